"""`regard demo`: what it shows, with a few steps in place of a thousand."""

import json
import re
import signal

import pytest

from regard.cli import demo as demonstration
from regard.data.phrasebook import draw_pairs
from regard.tasks.reading import pairs as corpus
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.text.translate import TranslateTask
from regard.tasks.training.state import save_state

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
    assert lines[0].startswith("Training a translator (GRU with Bahdanau's attention) on the phrasebook's travel sent")
    assert "Of 20 sentences it never saw, 0 come out exactly right" in lines[2]
    shown = [line.strip().partition("  →  ")[0] for line in lines[4:10]]
    assert shown == [source for source, _ in PairCorpus().part().test[:5]] + [demonstration.SENTENCE]
    for name in ("attention.png", "attention.html", "curves.png", "model.safetensors"):
        assert (out / name).stat().st_size > 0
    assert str(out / "attention.png") in said
    assert f"Token by token:        {out / 'attention.html'} " in said
    assert said.rstrip().endswith("--look look.html")
    page = (out / "attention.html").read_text(encoding="utf-8")
    # the sentence, a token a character, and no address of anything outside
    assert (
        json.dumps([*demonstration.SENTENCE, "<eos>"], ensure_ascii=False, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        in page
    )
    assert not re.search(r"(src|href)=.?https?:", page)
    assert [line.split()[1] for line in err.splitlines() if line.startswith("step ")] == ["1", "2", "3", "4", "5"]
    # a second time it is only shown
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.suffix != ".png"}
    status, again, err = command("demo", "--out", out, "--max-steps", "5")
    assert (status, err) == (0, "")
    assert again.splitlines()[0] == f"A trained translator was in {out} already: nothing is trained again."
    assert again.splitlines()[4:] == lines[4:]
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.suffix != ".png"} == before
    # another seed is another run, and nothing is said of one that was there
    status, said, err = command("demo", "--out", out, "--max-steps", "5", "--seed", "1")
    assert (status, said, err.count("\n")) == (2, "", 1)


def test_a_state_of_something_else(command, tmp_path):
    save_state(tmp_path / "resume.safetensors", {"step": 5})
    (tmp_path / "resume.json").write_text("{}")
    status, _, err = command("demo", "--out", tmp_path)
    assert (status, err.count("\n")) == (2, 1)


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
