"""Settings that nobody gave: what a run was begun with stays, whatever wrote it."""

import json
import math
import random

import pytest

from regard import RegardError
from regard.tasks.metrics.verdict import LEVEL, find_chance, judge_labels
from regard.tasks.text.classify import ClassifyJob, LabelledCorpus
from regard.tasks.text.pretrain_job import PretrainJob, TextCorpus
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.job import open_job


@pytest.fixture
def begin(tmp_path):
    """A folder of a run that was begun so, and the job that is asked for now."""
    (tmp_path / "a.tsv").write_text("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(40)))
    corpus = LabelledCorpus(data=(str(tmp_path / "a.tsv"),))

    def call(entries, **recipe):
        job = ClassifyJob.default(corpus=corpus, recipe=recipe)
        settings = json.loads(json.dumps(job.settings))
        for name, value in entries.items():
            place, _, key = name.rpartition(".")
            (settings[place] if place else settings)[key] = value
        folder = RunFolder(tmp_path / "run")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "resume.json").write_text(json.dumps(settings))
        (tmp_path / "run" / "resume.safetensors").touch()
        return open_job(job, folder)[0]

    return call


def test_the_same_command_leaves_the_end_where_it_was(begin):
    # three steps an epoch: ten epochs end long before
    job = begin({"recipe.max_steps": 100, "recipe.epochs": 10}, max_steps=100)
    assert (job.recipe.epochs, job.recipe.max_steps) == (10, 100)
    assert job.fit_steps(3).recipe.epochs == 10


def test_another_number_of_steps_makes_room_for_them(begin):
    job = begin({"recipe.max_steps": 100, "recipe.epochs": 10}, max_steps=120)
    assert job.fit_steps(3).recipe.count_steps(3) == 120


@pytest.mark.parametrize(
    "entries",
    [{"recipe": []}, {"recipe": "x"}, {"corpus": None}, {"recipe.epochs": "x"}, {"recipe.warmup": "x"},
     {"batch_size": "x"}, {"recipe.patience": "x"}, {"corpus.held_out": "x"}, {"recipe.epochs": math.nan},
     {"recipe.max_steps": ["x"]}, {"recipe.validate_every": 1.5}],
)  # fmt: skip
def test_damaged_settings(begin, tmp_path, entries):
    with pytest.raises(RegardError) as error:
        begin(entries)
    file, cause = (
        tmp_path / "run" / "resume.json",
        "AttributeError" if "recipe" in entries or "corpus" in entries else "TypeError",
    )
    assert str(error.value) == f"{file} is damaged ({cause}): restore it, or name a new folder."


def test_documents_are_counted_by_what_is_cut_of_them(tmp_path):
    from regard.tasks.training.run import train

    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(f"line {n} of {d}" for n in range(30)) for d in range(12)))
    corpus = TextCorpus(data=(str(tmp_path / "a.txt"),))
    changes = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 1, "num_layers": 1}
    job = PretrainJob.default(corpus=corpus, has_next=True, changes=changes, recipe={"max_steps": 1}, max_length=16)
    train(job, str(tmp_path / "run"), is_shown=False)
    kept = RunFolder(tmp_path / "run").read_settings()
    # of twelve documents there would be four
    assert kept["batch_size"] > 4


def test_noise_is_seldom_taken_for_learning():
    chance = random.Random(0)
    for count, share in ((6, 0.5), (12, 0.5), (200, 0.9), (64, 0.25)):
        runs = [sum(chance.random() < share for _ in range(count)) for _ in range(2000)]
        assert sum(find_chance(right, count, share) <= LEVEL for right in runs) <= 2000 * LEVEL * 1.5


def test_what_cannot_be_told_is_not_told():
    # all right, as the most frequent label nearly is
    told = judge_labels(20, 20, 16, "a", "texts")
    assert len(told) == 1
    assert judge_labels(6, 6, 4, "a", "texts")[1] == (
        "6 held-out texts are too few, or too alike, to tell that from chance: give more examples, or hold out more"
        " (--held-out 0.2)."
    )
    # the most frequent label is not among them: one hit is no learning
    assert "nothing was learned" in judge_labels(1, 12, 0, "a", "texts", 4)[1]
