"""Faults of the tasks: schedules, resuming, what is kept, scores, labels and alignments off by one."""

from tools.faults.fault import Fault

FIT, TRANSLATE, LABEL = "tasks/training/fit.py", "tasks/text/translate.py", "tasks/reading/labelling.py"

TASKS = [
    Fault(
        "tasks/training/recipe.py",
        "return self.lr * (step + 1) / self.warmup",
        "return self.lr * step / self.warmup",
        "the warm-up is a step behind, and the first step learns nothing",
    ),
    Fault(
        FIT,
        'if state["optimizer"] is not None:',
        'if state["optimizer"] is None:',
        "a run that goes on forgets its optimiser",
    ),
    Fault(
        FIT,
        "                self.average.steps = self.standing.step\n",
        "",
        "a run that goes on has a young average again",
    ),
    Fault(
        FIT,
        "            self.losses.fill_(self.standing.loss_sum)\n",
        "",
        "a run that goes on forgets the losses since the last validation",
    ),
    Fault(
        FIT,
        "found = task.validate(model.eval(), self.fabric)",
        "found = task.validate(model, self.fabric)",
        "validation with dropout",
    ),
    Fault(
        FIT,
        "fabric.backward(loss * (fabric.world_size / everyone))",
        "fabric.backward(loss * (fabric.world_size / self.task.count(batch) / len(group)))",
        "batches of a step count alike, however few losses they have",
    ),
    Fault(
        FIT,
        "now.worse = 0 if is_best else now.worse",
        "now.worse = now.worse",
        "a better model does not give patience back",
    ),
    Fault(
        FIT,
        "epoch, start = divmod(self.standing.taken, len(self.batches))",
        "epoch, start = divmod(self.standing.step, len(self.batches))",
        "a run that goes on counts steps as batches",
    ),
    Fault(
        "tasks/training/average.py",
        "decay = min(self.decay, (1 + self.steps) / (10 + self.steps))",
        "decay = self.decay",
        "the average clings to the first weights",
    ),
    Fault(
        "tasks/training/state.py",
        "    write_whole(path, raw)\n",
        "    path.write_bytes(raw)\n",
        "a state is written over the old one",
    ),
    Fault(
        TRANSLATE,
        'ignore_index=PAD, reduction="sum",',
        'reduction="sum",',
        "a translator learns to say padding",
    ),
    Fault(
        TRANSLATE,
        "self._compare(model, batch.to(fabric.device), 0.0)",
        "self._compare(model, batch.to(fabric.device), self.job.label_smoothing)",
        "the validation's loss is smoothed",
    ),
    Fault(
        "tasks/text/translator.py",
        "inputs = pad([[BOS, *said[:-1]] for said in ids])[0]",
        "inputs = pad(ids)[0]",
        "a token's weights are those of the one behind it",
    ),
    Fault(
        LABEL,
        "prepare_reading(job, folder, [text for text, _ in found.train])",
        "prepare_reading(job, folder, [text for part in found for text, _ in part])",
        "words of the validation and the test are in the vocabulary",
    ),
    Fault(
        "tasks/reading/predict.py",
        "starts = [start - first + before for start, _ in group]",
        "starts = [start - first for start, _ in group]",
        "tags of a sentence in parts lie on the tokens before",
    ),
    Fault(
        "tasks/metrics/translation.py",
        "metric.corpus_score(list(hypotheses), [list(references)])",
        "metric.corpus_score(list(references), [list(hypotheses)])",
        "BLEU takes the references for what was said",
    ),
    Fault(
        "tasks/metrics/labels.py",
        'f1 = classification.multiclass_f1_score(one, two, average="macro", **options)',
        'f1 = classification.multiclass_f1_score(one, two, average="micro", **options)',
        "the mean F1 over labels is one over all words",
    ),
    Fault(
        "tasks/text/filler.py",
        "WordScores(math.exp(min(loss / count, 700))",
        "WordScores(math.exp(min(loss / len(part.ids), 700))",
        "perplexity of texts, not of words",
    ),
    Fault(
        "tasks/text/summarizer.py",
        "f1 += 2 * shared / (len(said) + len(wanted))",
        "f1 += shared / max(len(said), len(wanted))",
        "F1 of a summary is divided by its longer side",
    ),
]
