"""`regard demo`: what it shows, with a few steps in place of a thousand."""

import signal

import pytest

from regard.cli import demo as demonstration
from regard.data.phrasebook import draw_pairs
from regard.tasks import corpus
from regard.tasks.corpus import Corpus
from regard.tasks.translate import TranslateTask

for package in ("lightning", "matplotlib", "sacrebleu"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def _fewer_sentences(monkeypatch):
    pairs = draw_pairs(600)
    monkeypatch.setattr(corpus, "split_pairs", lambda **options: (pairs[:500], pairs[500:]))
    monkeypatch.setattr(corpus, "PHRASES", 20)


def test_what_is_shown(command, tmp_path):
    out = tmp_path / "demo"
    status, said, err = command("demo", "--out", out, "--max-steps", "5")
    assert status == 0
    lines = said.splitlines()
    assert lines[0].startswith("Training a translator (GRU with Bahdanau's attention) on 55,000 Chinese travel")
    assert "Of 20 sentences it never saw, 0 come out exactly right" in lines[2]
    shown = [line.strip().partition("  →  ")[0] for line in lines[4:10]]
    assert shown == [source for source, _ in Corpus().part().test[:5]] + [demonstration.SENTENCE]
    for name in ("attention.png", "curves.png", "model.safetensors"):
        assert (out / name).stat().st_size > 0
    assert str(out / "attention.png") in said
    assert said.rstrip().endswith("--look look.png")
    assert [line.split()[1] for line in err.splitlines()] == ["1", "2", "3", "4", "5"]


def test_stopped(command, tmp_path, monkeypatch):
    inner = TranslateTask.measure

    def stop(self, model, batch):
        signal.raise_signal(signal.SIGINT)
        return inner(self, model, batch)

    monkeypatch.setattr(TranslateTask, "measure", stop)
    status, said, err = command("demo", "--out", tmp_path / "demo", "--max-steps", "5")
    assert status == 130
    assert "exactly right" not in said
    assert err.splitlines()[-1].startswith(f"Stopped and saved. {tmp_path / 'demo'}: step 1, ")


def test_a_folder_of_something_else(command, tmp_path):
    (tmp_path / "cat.png").write_text("mine")
    status, _, err = command("demo", "--out", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"{tmp_path} holds 'cat.png' but no resume.json, so it is no run")
