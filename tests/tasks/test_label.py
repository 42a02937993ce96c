"""Labels of words and texts: what they cost and how well they are met, one by one by hand."""

from __future__ import annotations

import hashlib
import math
import sys
from itertools import pairwise

import pytest
import torch

from regard import RegardError
from regard.data.rows import NO_LABEL
from regard.extras import install
from regard.models import seq2seq
from regard.tasks.reading.labelling import LabelTask
from regard.tasks.reading.predict import find_logits, part_sentence
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classify import ClassifyJob, LabelledCorpus
from regard.tasks.text.tag import TagJob
from regard.tasks.training.classification import open_scores
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.machine import Machine
from regard.tasks.training.run import train
from tests.tasks.reading import LABELLED, MOODS, TAGGED, TAGS, VOCAB, build, make, read_pieces

for package in ("lightning", "tokenizers", "safetensors", "torchmetrics"):
    pytest.importorskip(package)

KINDS = {"tag": (TagJob, TAGGED, TAGS), "classify": (ClassifyJob, LABELLED, MOODS)}
EACH = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def prepare():
    """A task in float64, its model, and the examples."""

    def call(name, **changes):
        kind, examples, _ = KINDS[name]
        job = make(kind, **changes)
        model, lexicon = build(job)
        task = LabelTask(job, model.double(), lexicon, examples, examples[1:])
        task.model.eval()
        return task

    return call


def ask(task, text):
    """Logits of one text alone, a row for each label that it has."""
    lexicon = task.lexicon
    (one,) = lexicon.encode_words([text]) if task.job.is_worded else lexicon.encode_texts([text])
    width = max(map(len, one.letters)) or 1
    spelling = torch.tensor([[row + [0] * (width - len(row)) for row in one.letters]])
    with torch.no_grad():
        logits = task.model(torch.tensor([one.ids]), spelling=spelling)[0]
    return logits[one.starts].tolist() if task.job.is_worded else [logits.tolist()]


def list_pairs(task, examples):
    """(logits, number of the label) for each label there is."""
    labels = task.model.config.labels
    for text, given in examples:
        given = given if task.job.is_worded else (given,)
        yield from zip(ask(task, text), map(labels.index, given), strict=True)


def cost(logits, label, smoothing=0.0):
    """Cross entropy by its definition."""
    total = math.log(sum(map(math.exp, logits)))
    chances = [total - x for x in logits]
    return (1 - smoothing) * chances[label] + smoothing * sum(chances) / len(logits)


# --- what they cost ---------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_the_formula(prepare, name, smoothing):
    task = prepare(name, label_smoothing=smoothing)
    examples, seen = KINDS[name][1], 0
    batches = [*task.batches(0, 1).walk()]
    assert len(batches) == 3
    for batch in batches:
        pairs = [*list_pairs(task, [examples[number] for number in batch.numbers.tolist()])]
        assert task.count(batch) == len(pairs)
        expected = sum(cost(*pair, smoothing) for pair in pairs)
        assert float(task.measure(task.model, batch).detach()) == pytest.approx(expected, rel=1e-10)
        seen += len(pairs)
    assert seen == sum(len(given) if name == "tag" else 1 for _, given in examples)


@EACH
def test_a_validation_is_as_by_scikit_learn(prepare, fabric, name):
    metrics = pytest.importorskip("sklearn.metrics")
    task = prepare(name, label_smoothing=0.3)
    with torch.no_grad():
        found = task.validate(task.model, fabric)
    pairs = [*list_pairs(task, KINDS[name][1][1:])]
    said, wanted = [max(range(len(x)), key=x.__getitem__) for x, _ in pairs], [label for _, label in pairs]
    assert 0 < sum(a == b for a, b in zip(said, wanted, strict=True)) < len(pairs)
    # nothing is smoothed here
    assert found["loss"] == pytest.approx(sum(cost(*pair) for pair in pairs) / len(pairs), rel=1e-10)
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(wanted, said), rel=1e-6)
    assert found["f1"] == pytest.approx(100 * metrics.f1_score(wanted, said, average="macro"), rel=1e-6)
    assert (task.metric, task.more_is_better) == ("accuracy", True)


def test_scores_of_many_labels_are_as_by_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    chance = torch.Generator().manual_seed(0)
    said, wanted = (torch.randint(7, (4, 50), generator=chance) for _ in range(2))
    # there is no label 6 at all, and 5 is never said
    said[said >= 5], wanted[wanted == 6] = 0, NO_LABEL
    scores = open_scores(7)
    for one, other in zip(said, wanted, strict=True):
        for score in scores.values():
            score.update(one, other)
    kept = wanted != NO_LABEL
    pair = wanted[kept].tolist(), said[kept].tolist()
    assert float(scores["accuracy"].compute()) == pytest.approx(metrics.accuracy_score(*pair), rel=1e-6)
    expected = metrics.f1_score(*pair, average="macro", zero_division=0)
    assert float(scores["f1"].compute()) == pytest.approx(expected, rel=1e-6)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.setitem(sys.modules, "torchmetrics.classification", None)
    with pytest.raises(RegardError) as error:
        open_scores(3)
    assert str(error.value) == f"scores of labels need the package torchmetrics: {install('train')}."


def test_what_there_is_to_learn_from_is_said_once(tmp_path, capsys):
    file = tmp_path / "texts.tsv"
    file.write_text("".join(f"text {n}\t{'abc'[n % 3]}\n" for n in range(60)))
    unheard = tmp_path / "unheard.tsv"
    unheard.write_text(file.read_text().replace("text", "unheard"))
    job = ClassifyJob.default(
        corpus=LabelledCorpus((str(file),), (str(unheard),)), recipe={"max_steps": 1},
        changes={"num_hiddens": 8, "num_heads": 2, "ffn_num_hiddens": 8, "num_layers": 1, "num_grams": 50},
    )  # fmt: skip
    for said in (
        "60 texts for training, 60 for validation, none for the test; labels: a (20), b (20), c (20).",
        "step 1",
    ):
        train(job, str(tmp_path / "run"), Machine("cpu"))
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if "for training" in line] == ([said] if "training" in said else [])
    # words that it is validated by are none that it has learned
    known = (tmp_path / "run" / "tokenizer.json").read_text()
    assert ' text"' in known
    assert "unheard" not in known


def test_what_is_too_long_is_noted(prepare):
    assert prepare("tag", max_length=4).notes[1:] == [
        "1 of 5 texts are too long for max_length or max_tokens: left out."
    ]  # fmt: skip
    assert list(prepare("tag").notes[1:]) == []
    # of a text that has one label the beginning is read
    assert list(prepare("classify", max_length=2).notes[1:]) == []


@EACH
def test_settings_know_the_data(prepare, name):
    task = prepare(name)
    assert task.settings["task"] == name
    assert task.settings == prepare(name).settings
    _, examples, labels = KINDS[name]
    other = [(examples[0][0], labels[:1] * 4 if name == "tag" else labels[0]), *examples[1:]]
    digests = [
        LabelTask(task.job, task.model, task.lexicon, *parts).settings["data_digest"]
        for parts in ((examples, examples[1:]), (other, examples[1:]), (examples, other[:1]))
    ]
    assert len(set(digests)) == 3
    assert digests[0] == task.settings["data_digest"]
    # runs that earlier versions began, which took the printed form, go on
    before = hashlib.sha256(repr((task.train, task.valid)).encode()).hexdigest()[:16]
    task.recall({"data_digest": before})
    assert task.settings["data_digest"] == before
    task.recall({"data_digest": digests[1]})
    assert task.settings["data_digest"] == digests[0]


@EACH
def test_data_are_digested_once(prepare, name, monkeypatch):
    task = prepare(name)
    expected = task.settings
    monkeypatch.setattr("regard.tasks.training.run.digest_data", None)
    assert task.settings == expected


def test_labels_that_nothing_teaches_are_noted(prepare):
    for name, more, said in (
        ("classify", [("a", "good"), ("a", "odd")], "odd"),
        ("tag", [(("a",) * 7, tuple("ABCDEFG"))], "A, B, C, D, E, …"),
    ):
        task = prepare(name)
        made = LabelTask(task.job, task.model, task.lexicon, KINDS[name][1], more)
        assert made.notes[1:] == [f"labels of the validation data that no training example has: {said}."]


@EACH
def test_a_validation_leaves_nothing_out(prepare, fabric, name):
    whole, parts = prepare(name), prepare(name, max_tokens=2)
    parts.valid = whole.valid
    with torch.no_grad():
        found, expected = (task.validate(whole.model, fabric) for task in (parts, whole))
    assert found == pytest.approx(expected, rel=1e-9)


# --- no more positions than there are ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_framed", [False, True])
@pytest.mark.parametrize("limit", [2, 3, 4])
def test_sentences_are_parted_between_words(is_framed, limit):
    words = TAGGED[3][0]
    lexicon = Lexicon.train([words], "spaces", has_letters=True, is_framed=is_framed)
    (one,) = lexicon.encode_words([words])
    most, parts = limit - is_framed, part_sentence(lexicon, one, limit)
    cuts = [words[start : start + most] for start in range(0, 5, most)]
    assert parts == lexicon.encode_words(cuts)
    assert part_sentence(lexicon, one, 6) == part_sentence(lexicon, one, None) == [one]


def test_pieces_of_a_word_stay_together():
    lexicon = read_pieces()
    (one,) = lexicon.encode_words([["the", "looking", "cats", "!"]])
    assert part_sentence(lexicon, one, 5) == lexicon.encode_words([["the", "looking"], ["cats", "!"]])
    first, second, third, fourth = part_sentence(lexicon, one, 3)
    # of a word that is too long by itself the first are read
    assert second.ids == [VOCAB[token] for token in ("[CLS]", "look", "[SEP]")]
    assert [x.starts for x in (first, second, third, fourth)] == [[1]] * 4
    assert part_sentence(lexicon, lexicon.encode_words([[]])[0], 1)[0].starts == []


@EACH
def test_learned_positions_are_a_limit(prepare, fabric, name):
    task = prepare(name, position="learned", max_len=3)
    sizes = [batch.ids.shape[1] for batch in task.batches(0, 1).walk()]
    assert max(sizes) <= task.limit == 3
    left_out = "2 of 5 texts are too long for max_length or max_tokens: left out."
    assert task.notes[1:] == ([left_out] if name == "tag" else [])
    with torch.no_grad():
        assert math.isfinite(task.validate(task.model, fabric)["loss"])
    # every tag of the validation is asked for
    count = sum(task.count(batch) for batch in task.batches_to_validate(0, 1).walk())
    assert count == (10 if name == "tag" else 4)


# --- answers ----------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_answers_are_in_order_whatever_the_batch(prepare, name, batch_size):
    task, seen = prepare(name), []
    texts = [text for text, _ in KINDS[name][1]] * 2
    lexicon = task.lexicon
    encoded = lexicon.encode_words(texts) if name == "tag" else lexicon.encode_texts(texts)
    found = find_logits(task.model, encoded, batch_size=batch_size, on_progress=lambda *args: seen.append(args))
    for text, one, rows in zip(texts, encoded, found, strict=True):
        assert rows.shape == ((len(one.ids), 4) if name == "tag" else (2,))
        torch.testing.assert_close(rows.view(-1, rows.shape[-1]), torch.tensor(ask(task, text)), rtol=0, atol=1e-5)
    assert seen[-1] == (len(texts), len(texts))
    assert all(0 < b[0] - a[0] <= batch_size for a, b in pairwise([(0, 0), *seen]))
    assert not any(x.requires_grad for x in found)
    assert find_logits(task.model, []) == []


def test_long_texts_are_answered_one_at_a_time(prepare, monkeypatch):
    monkeypatch.setattr("regard.tasks.reading.predict.PLACES", 8)
    task, sizes = prepare("classify"), []
    texts = ["the cat " * 20, "the", "the cat", "a " * 7]
    task.model.register_forward_pre_hook(lambda _, args: sizes.append(args[0].numel()))
    found = find_logits(task.model, task.lexicon.encode_texts(texts))
    assert len(found) == 4
    assert max(sizes) == len(task.lexicon.encode_texts(texts)[0].ids) >= 40
    for text, row in zip(texts, found, strict=True):
        torch.testing.assert_close(row, torch.tensor(ask(task, text)[0]), rtol=0, atol=1e-5)


def test_a_model_in_training_is_asked_in_evaluation(prepare):
    task = prepare("classify", dropout=0.9, embed_dropout=0.9)
    encoded = task.lexicon.encode_texts([text for text, _ in LABELLED])
    expected = find_logits(task.model, encoded)
    task.model.train()
    found = find_logits(task.model, encoded)
    assert task.model.training
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


# --- the folder -------------------------------------------------------------------------------------------------------


def test_the_best_model_is_one_of_the_task(prepare, tmp_path):
    folder, task = RunFolder(tmp_path), prepare("tag")
    task.write_files(folder)
    # weights are kept in the precision of a model's own
    task.save(folder, task.model.float().state_dict())
    task.check(folder)
    assert {"config.json", "model.safetensors", "tokenizer.json", "letters.json"} == {
        x.name for x in tmp_path.iterdir()
    }
    other = seq2seq.Seq2Seq.from_config(seq2seq.Config(9, 9, embed_size=2, num_hiddens=2, num_layers=1))
    other.save_pretrained(tmp_path)
    with pytest.raises(RegardError) as error:
        task.check(folder)
    assert str(error.value).startswith(f"{tmp_path / 'config.json'} is damaged: restore it, or begin in a new folder")
