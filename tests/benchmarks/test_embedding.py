"""The benchmark of embedding runs, and sees when two ways give other vectors."""

from __future__ import annotations

import gzip
import importlib.util

import pytest
import torch

from benchmarks import embedding
from regard.tasks.text.embedder import Embedder
from tests.tasks.test_embedder import make_folder
from tests.wide import wide


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # takes seconds to import
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sentence_transformers" else real(name)
    )
    monkeypatch.delenv("REGARD_DATA", raising=False)
    return str(make_folder(tmp_path, {"pooling_mode_mean_tokens": True}))


def run(folder: str, *more: str) -> int:
    return embedding.main(["--count", "8", "--rounds", "2", "--threads", "1", "--model", folder, *more])


def draw(monkeypatch) -> None:
    monkeypatch.setattr(embedding, "find_sentences", lambda count, data: (["a b", "the cat sat", "mat"] * count, "few"))


@wide
def test_it_is_measured(folder, capsys, monkeypatch):
    draw(monkeypatch)
    assert run(folder, "--processor") == 0
    out = capsys.readouterr().out
    assert out.count("regard is") == 2
    assert "target 1.2 × beside transformers as they come" in out


@wide
def test_other_vectors_are_found_out(folder, capsys, monkeypatch):
    draw(monkeypatch)
    real = Embedder.embed
    noise = torch.Generator().manual_seed(0)

    def spoil(*given, **options):
        vectors = real(*given, **options)
        return vectors + 0.01 * torch.randn(vectors.shape, generator=noise)

    monkeypatch.setattr(Embedder, "embed", spoil)
    assert run(folder) == 1


def test_threads_that_wait_are_not_counted(capsys):
    with pytest.raises(SystemExit) as stop:
        embedding.main(["--processor", "--threads", "2"])
    assert stop.value.code == 2
    assert "add --threads 1" in capsys.readouterr().err


def test_sentences(tmp_path):
    drawn, which = embedding.find_sentences(300, None)
    assert (len(drawn), which) == (300, "drawn")
    assert drawn == embedding.find_sentences(300, None)[0]
    assert 8 < sum(len(text.split()) for text in drawn) / 300 < 25
    (tmp_path / "sst2").mkdir()
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("a good film\t1\na bad one\t0\n")
    (tmp_path / "multi30k" / "train.en.gz").write_bytes(gzip.compress(b"A man.\nA dog.\nA cat.\n"))
    texts, which = embedding.find_sentences(4, str(tmp_path))
    assert {"a good film", "a bad one"} < set(texts)
    assert "SST-2 and Multi30k" in which
    with pytest.raises(SystemExit, match="--count: there are 4 sentences, got 5"):
        embedding.find_sentences(5, str(tmp_path))
