"""Calls, first calls and whole models beside their peers, at tiny sizes on the CPU: the rule is held, and told."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import cold, models, page, translation
from benchmarks.gpu.calls import measure_call
from benchmarks.gpu.cases import Place
from benchmarks.gpu.goal import Reading
from benchmarks.gpu.kinds import MAKES, SMALL, SWEEP, TABLE, TINY
from benchmarks.gpu.measure import Clock
from tests.wide import wide

PLACE = Place("cpu", torch.bfloat16, compiles=False)
HERE = ["--device", "cpu", "--tiny", "--repeat", "1"]


def run(measure, case):
    return measure(case, PLACE, True, 1, Clock("cpu"), lambda _: None)


def test_each_kind_of_dot_products_is_another():
    kinds = ("causal", "full", "lengths", "window", "alibi", "document", "softcap")
    place = replace(PLACE, dtype=torch.float64)
    works = [MAKES[kind](place, TINY) for kind in kinds]
    outs = [work.plain(slice(None), *work.inputs.values()) for work in works]
    # a cap is far above scores of this size
    assert all((one - other).abs().max() > 1e-4 for k, one in enumerate(outs) for other in outs[:k])


def test_the_sweep_has_every_length_and_fits():
    assert len(SWEEP) == 25
    assert {case.shape.n for case in SWEEP} >= {16, 32768}
    assert {case.shape.d for case in SWEEP} >= {32, 256}
    assert {case.dtype for case in SWEEP} == {torch.bfloat16, torch.float16, torch.float32}
    assert {name for case in SWEEP for name, _ in case.goals} == {"forward", "train"}
    for case in SWEEP:
        assert case.shape.lead[1] % (case.shape.key_heads or 1) == 0
        # a bfloat16 query of a GiB, and the dense scores that the truth walks over
        assert case.shape.lead[0] * case.shape.lead[1] * case.shape.n * case.shape.d <= 2**29
        assert case.shape.lead[0] * case.shape.lead[1] * case.shape.n**2 <= 2**32


@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (1.02, False), (float("nan"), False)])
def test_a_peer_counts_where_its_error_is_at_most_twice_eagers(factor, is_right):
    case = next(case for case in TABLE if case.name == "lengths-bert")

    def make(place, shape):
        work = case.make(place, shape)
        right = work.peers["sdpa, mask of truths"]
        return replace(work, peers={"peer": lambda: right() * factor})

    for part in run(measure_call, replace(case, make=make)):
        peer, ours = part.rows
        assert ours.side == "ours"
        assert ours.seconds
        assert bool(peer.seconds) is is_right
        assert is_right or peer.missing.startswith("wrong: ")
        if part.name != "lengths-bert:host":
            assert ours.bits is True
    assert [part.name.partition(":")[2] for part in run(measure_call, case)] == ["forward", "train", "host"]


def test_small_calls_have_torchs_causal_one_for_scale():
    for case in SMALL:
        train, host = run(measure_call, case)
        assert [row.side for row in train.rows] == ["peer", "ours"]
        assert all(row.seconds for row in (*train.rows, *host.rows)), case.name
        # ten calls a turn
        assert len(host.rows[0].seconds) >= 30


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("transformer-tiny-8", "body.decoder.layers.1.multihead_attn.out_proj.weight"),
        ("transformer-tiny-8", "embedding.weight"),
        ("gpt2-32x128-eager", "0.attention.W_v.weight"),
    ],
)
def test_a_model_that_differs_is_found_out(name, part):
    case = next(case for case in models.MODELS if case.name == name)
    (found,) = run(models.measure_model, case)
    assert all(row.seconds for row in found.rows)
    assert found.rows[1].bits is True
    assert found.tokens > 0

    def make(device, tiny):
        pair = case.make(device, tiny)
        pair.peer.get_parameter(part).data.mul_(1.5)
        return pair

    (found,) = run(models.measure_model, replace(case, make=make))
    assert found.rows[1].missing.startswith("wrong: ")


def test_batches_are_padded_and_shifted():
    batch = translation.draw_batch(5, 12, 100, "cpu")
    assert batch.count == int((batch.labels != translation.PAD).sum())
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
    assert torch.equal((batch.source != translation.PAD).sum(1), batch.source_lens)
    assert 6 <= int(batch.source_lens.min()) < int(batch.source_lens.max()) == 12


@wide
def test_all_models_are_those_of_their_peers():
    for case in models.MODELS:
        (part,) = run(models.measure_model, case)
        assert not any(row.missing for row in part.rows), part


def test_a_process_that_fails_is_told():
    case = replace(cold.COLD[0], kind="none")
    with pytest.raises(RuntimeError, match="KeyError: 'none'"):
        run(cold.measure_cold, case)


def test_sections_are_written_and_made_again(tmp_path, capsys):
    out, numbers, again = (tmp_path / name for name in ("page.md", "numbers.json", "again.md"))
    names = ("small-causal", "cold-twelve-lengths", "gpt2-32x128-eager")
    only = [word for name in names for word in ("--only", name)]
    assert program.main([*HERE, *only, "--out", str(out), "--json", str(numbers)]) == 0
    text = out.read_text()
    for heading in ("small calls", "first calls", "whole models"):
        assert f"\n## On a GPU: {heading}\n" in text
    assert "tokens/s" in text
    assert "The worst of 1: " in text
    raw = {entry["name"]: entry for entry in json.loads(numbers.read_text())}
    assert [*raw] == ["small-causal:train", "small-causal:host", "cold-twelve-lengths:train", "gpt2-32x128-eager"]
    assert raw["cold-twelve-lengths:train"]["rows"][0]["seconds"][0] > 0
    assert program.main(["--from", str(numbers), "--out", str(again)]) == 0
    assert again.read_text() == text
    assert program.main(["--from", str(numbers), "--section", "small", "--out", str(again)]) == 0
    assert "small-causal:host" in capsys.readouterr().out


def test_the_worst_is_that_of_peers_that_count():
    def block(name, ours, *peers):
        rows = [Reading(f"peer {k}", [x] if x else [], missing="" if x else "wrong") for k, x in enumerate(peers)]
        rows.append(Reading("regard auto (fused)", [ours], side="ours", bits=True))
        return page.Block(name, name, "", "", rows, None, "sweep", tokens=100)

    blocks = [block("a", 2.0, 1.0, 3.0), block("b:host", 9.0, 1.0), block("c", 1.0, 0.0, 0.8), block("d", 1.0)]
    assert page.show_worst(blocks) == "The worst of 2: 0.50 ×, a."
    cells = {name: rest for name, *rest in page.list_others(blocks)}
    assert cells["a"] == ["", "2 s, 50 tokens/s (fused)", "1 s, 100 tokens/s (peer 0)", "0.50 ×", "",
                          "peer 1 3 s, 33 tokens/s"]  # fmt: skip
    assert cells["c"][-1] == "peer 0 n/a: wrong"
    assert page.show_worst(blocks[-1:]) == ""


def test_bits_that_differ_fail_the_program(monkeypatch):
    rows = [Reading("regard", [1.0], side="ours", bits=False)]
    part = program.Part("small-full:train", "", program.NOTHING, rows)
    monkeypatch.setitem(program.SECTIONS, "small", (SMALL, lambda *_: [part]))
    main = partial(program.main, [*HERE, "--only", "small-full"])
    assert main() == 1
    rows[0].bits = True
    assert main() == 0
