"""The benchmarks of translation run, and see when two models differ."""

from __future__ import annotations

import pytest
import torch

from benchmarks import translation
from benchmarks.gpu import translation as training
from regard.models.transformer import Config, Transformer
from tests.wide import wide


@wide
def test_training_is_measured_on_the_same_model(capsys):
    assert training.main(["--device", "cpu", "--tiny", "--eager", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("tokens/s") == 2
    assert "the same weights in float32: losses" in out


@pytest.mark.parametrize("part", ["body.decoder.layers.1.multihead_attn.out_proj.weight", "embedding.weight"])
def test_a_model_that_differs_is_found_out(part, monkeypatch):
    torch.manual_seed(0)
    config = Config.preset("tiny", 100)
    ours, peer = Transformer(config), training.Peer(config)
    batch = training.draw_batches(training.TINY, "cpu")[0]
    assert max(training.check_same(ours, peer, batch)) < training.TOLERANCE
    real = training.copy_weights

    def spoil(ours, peer):
        real(ours, peer)
        peer.get_parameter(part).data.mul_(1.05)

    monkeypatch.setattr(training, "copy_weights", spoil)
    assert max(training.check_same(ours, peer, batch)) > training.TOLERANCE


def test_batches_are_bucketed_and_of_the_size_asked_for():
    size = training.Size(tokens=2000)
    for batch in training.draw_batches(size, "cpu"):
        said = batch.labels != training.PAD
        assert batch.count == int(said.sum())
        assert 0.9 * size.tokens < batch.count <= size.tokens
        assert batch.count > 0.85 * batch.labels.numel()
        assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
        assert torch.equal((batch.source != training.PAD).sum(1), batch.source_lens)


def test_a_model_that_cannot_run_is_told_in_one_line():
    def fail(batch):
        raise ValueError("out of\nmemory")

    (result,) = training.take_turns({"broken": fail}, [None], 2, "cpu")
    assert result.missing == "ValueError: out of"
    assert "n/a: ValueError: out of" in training.show("eager", [result], 1)


@wide
def test_decoding_is_measured(capsys):
    assert translation.main(["--quick", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("× as fast") == out.count("× the time of greedy") == 2


def test_more_alone_than_there_are_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        translation.main(["--sentences", "3", "--single", "4"])
    assert stop.value.code == 2
    assert "--single: there are 3 sentences, got 4" in capsys.readouterr().err
