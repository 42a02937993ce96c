"""Where the labels of examples stand, and which labels there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard import RegardError
from regard.data.rows import NO_LABEL
from regard.tasks.reading.labelling import list_labels, read_examples
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classify import ClassifyJob, LabelledCorpus
from tests.tasks.reading import LABELLED, MOODS, TAGGED, TAGS, VOCAB, make, mood_job, read_pieces, tag_job

for package in ("lightning", "tokenizers", "safetensors", "torchmetrics"):
    pytest.importorskip(package)


def test_tags_stand_at_first_pieces():
    words = (("looking", "cats", "!", "zz"), ("VERB", "NOUN", "PUNCT", "OTHER"))
    (one, empty), (row, none) = read_examples(tag_job, read_pieces(), TAGS, [words, ((), ())])
    tokens = ["[CLS]", "look", "##ing", "cat", "##s", "!", "[UNK]", "[SEP]"]
    assert one.ids == [VOCAB[token] for token in tokens]
    # a label that the model does not know is none
    assert row == [NO_LABEL, 3, NO_LABEL, 1, NO_LABEL, 2, NO_LABEL, NO_LABEL]
    assert (len(empty.ids), none) == (2, [NO_LABEL] * 2)


@pytest.mark.parametrize("is_framed", [False, True])
def test_tags_stand_behind_a_frame(is_framed):
    lexicon = Lexicon.train([words for words, _ in TAGGED], "spaces", is_framed=is_framed)
    encoded, rows = read_examples(tag_job, lexicon, TAGS, TAGGED)
    for one, row, (_, tags) in zip(encoded, rows, TAGGED, strict=True):
        assert len(one.ids) == len(row)
        assert row == [NO_LABEL] * is_framed + [TAGS.index(tag) for tag in tags]


def test_texts_have_one_label_each():
    lexicon = Lexicon.train([text for text, _ in LABELLED], "words")
    job = make(ClassifyJob, max_length=2)
    encoded, labels = read_examples(job, lexicon, MOODS, [*LABELLED, ("the", "odd")], 2)
    assert labels == [1, 0, 1, 1, 0, NO_LABEL]
    # training reads no more of a text than is read of it later
    assert [len(one.ids) for one in encoded] == [2, 2, 1, 2, 1, 1]


def test_labels_are_all_there_are_in_order():
    assert list_labels(tag_job, TAGGED) == list(TAGS)
    assert list_labels(mood_job, LABELLED) == list(MOODS)
    assert len(list_labels(mood_job, [("x", str(number)) for number in range(1000)])) == 1000


@pytest.mark.parametrize(
    ("labels", "count", "names"),
    [(["same"], 1, "same"), ([str(number) for number in range(1001)], 1001, "0, 1, 10"), (["a" * 99], 1, "a" * 40)],
)
def test_too_few_or_too_many_labels(labels, count, names):
    job = replace(mood_job, corpus=LabelledCorpus(("a.tsv", "b" * 99)))
    with pytest.raises(RegardError) as error:
        list_labels(job, [("x", label) for label in labels])
    files = ("a.tsv and " + "b" * 99)[:60]
    message = f"labels must be from 2 to 1000 different ones, {files} has {count} ({names}): name another column."
    assert str(error.value) == message
    assert len(message) <= 200
