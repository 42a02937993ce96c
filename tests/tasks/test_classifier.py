"""A trained classifier: what it says of each text, against its model asked text by text."""

from __future__ import annotations

import json

import pytest
import torch

from regard import RegardError
from regard.tasks.text.classifier import Classifier
from regard.tasks.text.classify import ClassifyJob
from tests.tasks.reading import MOODS, build, make, save

pytest.importorskip("tokenizers")

TEXTS = ["the cat sat", "", "zz", "the cat looking there! zz zz", "a", "the cat sat"]


def ask(model, lexicon, text):
    """Probabilities of one text alone."""
    (one,) = lexicon.encode_texts([text])
    width = max(map(len, one.letters)) or 1
    spelling = torch.tensor([[row + [0] * (width - len(row)) for row in one.letters]])
    with torch.no_grad():
        return model(torch.tensor([one.ids]), spelling=spelling)[0].softmax(-1).tolist()


@pytest.fixture(scope="module")
def classifier():
    return Classifier(*build(make(ClassifyJob)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "first"},
        {"pooling": "hard"},
        {"pooling": "mean", "position": "rotary"},
        {"model": "gru"},
        {"model": "cnn"},
    ],
    ids=str,
)
def test_answers_are_the_models_text_by_text(changes):
    model, lexicon = build(make(ClassifyJob, **changes))
    found = Classifier(model, lexicon).classify(TEXTS, batch_size=4)
    assert [one.text for one in found] == TEXTS
    for text, one in zip(TEXTS, found, strict=True):
        expected = dict(zip(MOODS, ask(model, lexicon, text), strict=True))
        assert one.scores == pytest.approx(expected, abs=1e-5)
        assert sum(one.scores.values()) == pytest.approx(1, abs=1e-6)
        assert one.label == max(expected, key=expected.get)
        assert one.score == one.scores[one.label]
        assert one.num_left_out == 0
    # of a text with nothing in it nothing is known, either, unless <bos> is
    assert [one.unknown for one in found] == [0, int(changes.get("pooling") != "first"), 1, 2, 0, 0]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_neighbours_and_order_do_not_matter(classifier, batch_size):
    texts, seen = [*TEXTS, "the " * 90], []
    alone = {text: classifier.classify([text])[0] for text in texts}
    options = {"batch_size": batch_size, "on_progress": lambda *args: seen.append(args)}
    for one in classifier.classify(texts[::-1], **options):
        other = alone[one.text]
        assert (one.label, one.unknown) == (other.label, other.unknown)
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
    assert seen[-1] == (7, 7)
    assert classifier.classify([]) == []


@pytest.mark.parametrize("pooling", ["soft", "first"])
def test_the_end_of_a_long_text_is_not_read(pooling):
    model, lexicon = build(make(ClassifyJob, pooling=pooling))
    classifier, frame = Classifier(model, lexicon, 4), int(pooling == "first")
    long, short, edge = classifier.classify(
        ["the cat sat looking there a a", "the cat", "the cat sat looking"[: 19 - 8 * frame]]
    )
    assert [x.num_left_out for x in (long, short, edge)] == [3 + frame, 0, 0]
    assert long.scores == pytest.approx(edge.scores, abs=1e-6)
    # the whole of it is another text
    assert Classifier(model, lexicon).classify([long.text])[0].scores != pytest.approx(long.scores, abs=1e-4)


def test_a_folder_brings_it_back(classifier, tmp_path):
    save(make(ClassifyJob), tmp_path, max_length=3)
    again = Classifier.load(tmp_path, "cpu")
    assert (again.max_length, again.model.training) == (3, False)
    again.max_length = None
    assert again.classify(TEXTS) == classifier.classify(TEXTS)


def test_positions_are_a_limit(tmp_path):
    save(make(ClassifyJob, position="learned", max_len=5), tmp_path, max_length=512)
    classifier = Classifier.load(tmp_path, "cpu")
    (found,) = classifier.classify(["the cat" + " the cat" * 8])
    assert (classifier.max_length, found.num_left_out) == (5, 13)
    assert json.loads((tmp_path / "config.json").read_text())["training"]["max_length"] == 512


def test_no_more_is_read_than_there_are_positions():
    model, lexicon = build(make(ClassifyJob, position="learned", max_len=3))
    for given in (None, 9):
        (found,) = Classifier(model, lexicon, given).classify(["the cat looking there!"])
        assert found.num_left_out == 2
    assert Classifier(model, lexicon, 2).max_length == 2


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the cat", "texts must be a sequence of sentences, got one str: put it in a list."),
        (["the", 3], "texts must be str, text 1 is a int."),
    ],
)
def test_what_is_no_text(classifier, texts, message):
    with pytest.raises(RegardError) as error:
        classifier.classify(texts)
    assert str(error.value) == message
