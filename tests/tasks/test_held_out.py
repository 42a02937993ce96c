"""What a run is asked: the examples it held out, or others."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from regard import RegardError
from regard.tasks.registry import find_task
from regard.tasks.text.tag import TaggedCorpus
from regard.tasks.training.digest import digest_data
from regard.tasks.training.held_out import find_examples, find_learned
from tests.tasks.reading import save, tag_job

for package in ("safetensors", "tokenizers"):
    pytest.importorskip(package)


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("".join(f"word{number} NOUN\n\n" for number in range(40)))
    return file


@pytest.fixture
def keep(tmp_path):
    """A run that learned from a corpus."""

    def keep(corpus, **training):
        save(tag_job, tmp_path / "run", corpus=corpus and asdict(corpus), **training)
        return tmp_path / "run"

    return keep


def test_what_it_held_out(data, keep):
    corpus = TaggedCorpus((str(data),), held_out=0.2)
    test = corpus.part().test
    assert len(test) == 8
    run = keep(corpus, test_digest=corpus.digest(test))
    assert find_examples(run, find_task("tag")) == test
    assert find_examples(run, find_task("tag"), limit=3) == test[:3]
    assert len(find_examples(run, find_task("tag"), (str(data),))) == 40


def test_what_it_cannot_be_asked_is_named(data, keep):
    def refuse():
        with pytest.raises(RegardError) as error:
            find_examples(run, find_task("tag"))
        return str(error.value)

    run = keep(None)
    assert refuse() == f"{run} does not say what it was trained on: name sentences by --data."
    run = keep(TaggedCorpus((str(data),), (str(data),)))
    assert refuse() == f"{run} held no sentences out of {data}: name others by --data."
    run = keep(TaggedCorpus((str(data),), held_out=0.2), test_digest="of others")
    assert refuse() == (
        f"{data} changed since {run} was trained, so what it held out may be what it learned from: name sentences it"
        " never saw by --data."
    )


def test_what_it_learned_is_there_as_it_was(data, keep):
    corpus = TaggedCorpus((str(data),), held_out=0.2)
    parts = corpus.part()
    run = keep(corpus, data_digest=digest_data(*parts[:2]))
    assert find_learned(run, TaggedCorpus) == parts
    data.write_text(data.read_text().replace("NOUN", "VERB"))
    with pytest.raises(RegardError) as error:
        find_learned(run, TaggedCorpus)
    assert str(error.value) == (
        f"{data} changed since {run} was trained, which knows the sentences as they were: restore them, or train it"
        " anew."
    )
