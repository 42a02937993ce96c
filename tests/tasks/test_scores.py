"""Scores of labels against counts made here, and of hidden words against their formula."""

import random
import sys

import pytest
import torch

from regard.core import RegardError
from regard.extras import install
from regard.models.encoder import Config, Encoder
from regard.tasks.metrics.labels import score_labels
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.filler import score_words

pytest.importorskip("torchmetrics")

LABELS = list("abcd")


def test_labels_are_counted_right():
    chance = random.Random(0)
    right = [chance.choice("aaabbcx") for _ in range(400)]
    said = [x if x != "x" and chance.random() < 0.6 else chance.choice("abc") for x in right]
    found = score_labels(said, right, LABELS)
    pairs = list(zip(said, right, strict=True))
    assert found.accuracy == pytest.approx(100 * sum(a == b for a, b in pairs) / 400, abs=1e-4)
    # d is neither said nor right
    assert list(found.labels) == ["a", "b", "c", "x"]
    means = []
    for name, score in found.labels.items():
        hits = pairs.count((name, name))
        precision, recall = (100 * hits / max(side.count(name), 1) for side in (said, right))
        means.append(2 * precision * recall / max(precision + recall, 1e-9))
        assert (score.precision, score.recall, score.count) == (
            pytest.approx(precision, abs=1e-4), pytest.approx(recall, abs=1e-4), right.count(name)
        )  # fmt: skip
        assert score.f1 == pytest.approx(means[-1], abs=1e-4)
    assert found.f1 == pytest.approx(sum(means) / 4, abs=1e-4)
    assert found.unknown == {"x": right.count("x")}
    for meant, answer, times in found.confusions:
        assert pairs.count((answer, meant)) == times
    times = [times for _, _, times in found.confusions]
    assert times == sorted(times, reverse=True)
    assert sum(times) == sum(a != b for a, b in pairs)


def test_labels_of_one_kind():
    found = score_labels(["a"], ["a"], ["a"])
    assert (found.accuracy, found.f1, found.confusions) == (100, 100, [])


def test_hidden_words_by_the_formula():
    torch.manual_seed(0)
    lexicon = Lexicon.train(["the cat sat on the mat", "a dog ran off"], "words")
    model = Encoder(Config.preset("tiny", lexicon.vocab_size, head="words", num_hiddens=8, num_heads=2)).eval()
    documents = [("the cat sat on the mat", "a dog ran"), ("the dog sat on a mat off the cat",)]
    found = score_words(model, lexicon, documents, batch_size=2)
    # nothing is dropped, and the model is left as it was
    assert found == score_words(model.train(), lexicon, documents, batch_size=2)
    assert model.training
    with torch.no_grad():
        for parameter in model.words.parameters():
            parameter.zero_()
        model.embedding.weight.zero_()
    # all words alike
    even = score_words(model, lexicon, documents, rate=0.9)
    assert even.perplexity == pytest.approx(lexicon.vocab_size)
    assert even.count > found.count > 0
    assert score_words(model, lexicon, documents, rate=0.9, batch_size=1).count == even.count


def test_what_cannot_be_scored():
    with pytest.raises(RegardError, match=r"labels must be as many as the right ones, got 1 and 2: one for each."):
        score_labels(["a"], ["a", "b"], LABELS)
    with pytest.raises(RegardError, match=r"labels must be one at least to be scored, got none."):
        score_labels([], [], LABELS)
    lexicon = Lexicon.train(["the cat"], "words")
    model = Encoder(Config.preset("tiny", lexicon.vocab_size, head="words")).eval()
    with pytest.raises(RegardError, match=r"documents must hold a word that the model knows to be scored, got none."):
        score_words(model, lexicon, [("unknown",)])


def test_without_torchmetrics(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics.functional", None)
    with pytest.raises(RegardError) as caught:
        score_labels(["a"], ["a"], LABELS)
    assert str(caught.value) == f"scores of labels need the package torchmetrics: {install('train')}."
