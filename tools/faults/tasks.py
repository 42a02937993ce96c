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
        "                if entries is not None:\n",
        "                if entries is None:\n",
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
        "        self.learner.recall(share * now.loss_sum, {name: share * x for name, x in now.loss_parts.items()})\n",
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
        "tasks/training/task.py",
        "self.fabric.backward(loss * (self.fabric.world_size / self.count))",
        "self.fabric.backward(loss)",
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
        "prepare_reading(job, folder, [text for text, _ in parts.train])",
        "prepare_reading(job, folder, [text for part in parts for text, _ in part])",
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
    Fault(
        FIT,
        "                _seed(self.fabric.device, self.recipe.seed, now.step, self.fabric.global_rank)\n"
        "                counted += self._learn(next(steps))\n",
        "                group = next(steps)\n"
        "                _seed(self.fabric.device, self.recipe.seed, now.step, self.fabric.global_rank)\n"
        "                counted += self._learn(group)\n",
        "a step is seeded behind its batches, whose random crops are others where a run goes on",
    ),
    Fault(
        "tasks/training/digest.py",
        'shown = value.mode, value.getpalette(None), value.info.get("transparency")',
        "shown = value.mode",
        "two pictures that differ by their palette are the same data",
    ),
    Fault(
        "tasks/training/digest.py",
        '_add(digest, "array", f"{value.dtype} {list(value.shape)}".encode())',
        '_add(digest, "array", f"{value.dtype} {value.numel()}".encode())',
        "a tensor and its transpose are the same data",
    ),
    Fault(
        "tasks/training/task.py",
        'options["lr"] = rate * options.get("lr_scale", 1.0)',
        'options["lr"] = rate',
        "two networks that learn at two rates learn at one",
    ),
    Fault(
        FIT,
        "for one in self.learner.optimizers\n        ]",
        "for one in self.learner.optimizers[:1]\n        ]",
        "of two optimizers one is saved",
    ),
    Fault(
        "tasks/training/classification.py",
        "self.usual = Counter(train).most_common(1)[0][0]",
        "self.usual = Counter(valid).most_common(1)[0][0]",
        "the baseline knows what is held out",
    ),
    Fault(
        "tasks/looks/scenes.py",
        "return read_row(look, query or 0, head)[0]",
        "return read_row(look, query or count - 1, head)[0]",
        "a picture shows the last patch in place of the class token",
    ),
    Fault(
        "tasks/looks/scenes.py",
        "weights = weigh_edges(split(look, 0)[head], pairs)",
        "weights = weigh_edges(split(look, 0)[0], pairs)",
        "a graph has the weights of another head",
    ),
]
