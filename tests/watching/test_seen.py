"""What was seen, as a mapping and as a file."""

import json
import pickle
import re

import pytest
import torch
from torch import nn

from regard import RegardError, attend
from regard.mask import Causal
from regard.watching import Check, Seen, watch

safetensors = pytest.importorskip("safetensors.torch")


class Plain(nn.Module):
    def forward(self, x, y):
        return attend(x, y, y, mask=Causal())


def make(keep=True):
    noise = torch.Generator().manual_seed(2)
    model = nn.ModuleDict({"a": Plain(), "b": Plain()})
    x, y = (torch.randn(2, 4, n, 8, generator=noise) for n in (5, 7))
    with watch(model, rows=(1, -1), top=3, keep=keep) as seen:
        model["a"](x, y[:, :2])
        model["b"](x[0, 0], y[0, 0])
    seen.skipped["c"] = "it was \u2028 odd"
    return seen


def list_tensors(look):
    return {name: x for name, x in vars(look).items() if isinstance(x, torch.Tensor)}


@pytest.mark.parametrize("keep", [True, False])
def test_a_file_has_it_all(tmp_path, keep):
    seen, path = make(keep), tmp_path / "new" / "x.safetensors"
    seen.save(path)
    again = Seen.load(path)
    assert list(again) == list(seen) == ["a", "b"]
    assert (again.kinds, again.checks, again.skipped) == (seen.kinds, seen.checks, seen.skipped)
    assert (again.model, again.cells, again.steps) == (seen.model, seen.cells, seen.steps)
    for name, look in seen.items():
        ours, theirs = list_tensors(look), list_tensors(again[name])
        assert ours.keys() == theirs.keys()
        assert ("query" in ours) == keep
        assert all(torch.equal(ours[field], theirs[field]) for field in ours)
        assert (look.terms, look.why) == (again[name].terms, again[name].why)


def test_groups_of_key_heads_are_of_query_heads(tmp_path):
    # one sequence, which has no groups
    x = torch.randn(1, 4, 5, 8)
    model = Plain()
    with watch(model, keep=True) as seen:
        model(x, x[:, :2])
    seen.save(tmp_path / "x.safetensors")
    assert len(Seen.load(tmp_path / "x.safetensors")) == 1


def test_it_is_a_mapping_with_a_table():
    seen = make()
    assert len(seen) == 2
    assert "a" in seen
    assert "z" not in seen
    assert [*seen.values()][1] is seen["b"]
    text = repr(seen)
    assert text.startswith("Seen(2 attentions of ModuleDict)")
    assert "2 × 4: 5 × 7" in text
    assert "not looked at" in text
    moved = seen.to("meta")
    assert moved["a"].entropy.device.type == "meta"
    assert (moved.kinds, moved.checks, moved.skipped) == (seen.kinds, seen.checks, seen.skipped)


def rewrite(path, change):
    with safetensors.safe_open(path, "pt") as file:
        head, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    said = json.loads(head["seen"])
    change(said, tensors, head)
    if "seen" in head and head["seen"] is not None:
        head["seen"] = json.dumps(said)
    safetensors.save_file(tensors, path, {k: v for k, v in head.items() if v is not None})


def test_a_file_of_the_version_before_opens(tmp_path):
    # 0.1.0 called the logarithm of a row's sum of exp(scores) its statistic
    seen, path = make(), tmp_path / "x.safetensors"
    seen.save(path)

    def rename(said, tensors, head):
        for at in (0, 1):
            tensors[f"{at}.stat"] = tensors.pop(f"{at}.logsumexp")

    rewrite(path, rename)
    again = Seen.load(path)
    for name, look in seen.items():
        assert torch.equal(again[name].logsumexp, look.logsumexp)
        assert torch.equal(again[name].query, look.query)


DAMAGE = {
    "a tensor is missing": lambda said, tensors, head: tensors.pop("0.entropy"),
    "half of what is kept": lambda said, tensors, head: tensors.pop("0.logsumexp"),
    "a statistic beside its new name": lambda said, tensors, head: tensors.update(
        {"0.stat": tensors["0.logsumexp"].clone()}
    ),
    "a tensor too many": lambda said, tensors, head: tensors.update({"7.entropy": torch.zeros(1)}),
    "another kind": lambda said, tensors, head: tensors.update({"0.entropy": tensors["0.entropy"].int()}),
    "numbers for indices": lambda said, tensors, head: tensors.update({"0.top_keys": tensors["0.top_keys"].float()}),
    "another shape": lambda said, tensors, head: tensors.update({"0.peak": tensors["0.peak"][..., :2].clone()}),
    "another map": lambda said, tensors, head: tensors.update({"0.map": torch.zeros(2, 4, 5, 9)}),
    "a key out of range": lambda said, tensors, head: tensors["0.top_keys"].fill_(7),
    "a row out of range": lambda said, tensors, head: tensors["0.chosen"].fill_(-1),
    "spans out of range": lambda said, tensors, head: tensors["0.spans"].fill_(8),
    "another key": lambda said, tensors, head: tensors.update({"0.key": tensors["0.key"][..., :3].clone()}),
    "no axis": lambda said, tensors, head: tensors.update({"0.entropy": torch.zeros(())}),
    "keys without axes": lambda said, tensors, head: tensors.update({"0.top_keys": torch.tensor(0)}),
    "a query without axes": lambda said, tensors, head: tensors.update({"0.query": torch.tensor(0.0)}),
    "a map without axes": lambda said, tensors, head: tensors.update({"0.map": torch.tensor(0.0)}),
    "a key without axes": lambda said, tensors, head: tensors.update({"0.key": torch.tensor(0.0)}),
    "spans without axes": lambda said, tensors, head: tensors.update({"0.spans": torch.zeros((), dtype=torch.int32)}),
    "other leading axes of a key": lambda said, tensors, head: tensors.update({"0.key": torch.zeros(3, 2, 7, 8)}),
    "a key of no groups": lambda said, tensors, head: tensors.update({"0.key": torch.zeros(2, 0, 7, 8)}),
    "a key of three groups": lambda said, tensors, head: tensors.update({"0.key": torch.zeros(2, 3, 7, 8)}),
    "other leading axes of spans": lambda said, tensors, head: tensors.update(
        {"0.spans": torch.zeros(3, 5, 5, 2, dtype=torch.int32)}
    ),
    "spans of long": lambda said, tensors, head: tensors.update({"0.spans": tensors["0.spans"].long()}),
    "keys of int": lambda said, tensors, head: tensors.update({"0.top_keys": tensors["0.top_keys"].int()}),
    "half precision": lambda said, tensors, head: tensors.update({"0.entropy": tensors["0.entropy"].bfloat16()}),
    "eight bits": lambda said, tensors, head: tensors.update({"0.map": tensors["0.map"].to(torch.float8_e4m3fn)}),
    "a map of no blocks": lambda said, tensors, head: tensors.update({"0.map": torch.zeros(2, 4, 4, 7)}),
    "more keys than there are": lambda said, tensors, head: tensors.update(
        {
            "0.top_keys": torch.zeros(2, 4, 5, 9, dtype=torch.int64),
            "0.top_weights": torch.zeros(2, 4, 5, 9),
        }
    ),
    "a module that is none": lambda said, tensors, head: said["entries"][0].update(module=3),
    "a name twice": lambda said, tensors, head: said["entries"][1].update(name="a"),
    "another word": lambda said, tensors, head: said["entries"][0].update(kind="both"),
    "a name that is none": lambda said, tensors, head: said["entries"][0].update(name=3),
    "entries that are none": lambda said, tensors, head: said.update(entries={}),
    "more in the head": lambda said, tensors, head: said.update(more=1),
    "rows that are a text": lambda said, tensors, head: said["entries"][0]["check"].update(rows="16"),
    "fewer entries": lambda said, tensors, head: said["entries"].pop(),
    "no cells": lambda said, tensors, head: said.update(cells=0),
    "a reason that is none": lambda said, tensors, head: said["skipped"].update(c=None),
    "no head": lambda said, tensors, head: head.update(seen=None),
}


DAMAGED = "X is damaged (X): write it again with seen.save(…)."
NOT_OURS = "X is not a file of seen.save(…): its head does not say 'regard.seen.1'."


def fit(message):
    """What is filled in left open."""
    return "^" + re.escape(message).replace("X", ".*") + "$"


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line(tmp_path, damage):
    path = tmp_path / "x.safetensors"
    make().save(path)
    rewrite(path, damage)
    with pytest.raises(RegardError, match=fit(DAMAGED)) as error:
        Seen.load(path)
    assert "x.safetensors" in str(error.value)
    assert len(str(error.value)) <= 200


def test_other_files_are_named(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(RegardError, match=fit("X is not there: seen.save(…) writes such a file.")):
        Seen.load(path)
    safetensors.save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(RegardError, match=fit(NOT_OURS)):
        Seen.load(path)
    for content in (b"", b"nonsense", pickle.dumps({"a": 1}), path.read_bytes()[:-3]):
        path.write_bytes(content)
        with pytest.raises(RegardError, match=fit(DAMAGED)):
            Seen.load(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    with pytest.raises(RegardError, match=r"^seen.save and Seen.load need safetensors: pip install safetensors\.$"):
        make().save(tmp_path / "x")


def run_steps(sizes, cells, keep=False):
    """Decoding in steps of these sizes, and in one."""
    noise = torch.Generator().manual_seed(5)
    n = sum(sizes)
    query, key = (torch.randn(1, 2, n, 4, generator=noise) for _ in range(2))
    model = Plain()
    with watch(model, map=cells, top=3, rows=(0,), keep=keep) as seen:
        end = 0
        for size in sizes:
            end += size
            model(query[:, :, end - size : end], key[:, :, :end])
    with watch(model, map=cells, top=3, keep=keep) as whole:
        model(query, key)
    return seen, whole["Plain"]


@pytest.mark.parametrize(("sizes", "cells"), [((5, 1, 1, 1), 16), ((1,) * 9, 16), ((4, 2, 2), 4)])
def test_steps_in_one_are_the_whole(sizes, cells):
    seen, whole = run_steps(sizes, cells, keep=True)
    # `self` by its one floating argument in front
    joined = seen.join()
    (look,) = joined.values()
    for name in ("entropy", "peak", "total", "first", "local", "distance", "received", "logsumexp", "query", "key"):
        torch.testing.assert_close(getattr(look, name), getattr(whole, name))
    assert torch.equal(look.spans, whole.spans)
    assert torch.equal(look.top_keys, whole.top_keys)
    assert look.map.shape == whole.map.shape
    if cells == 16:
        torch.testing.assert_close(look.map, whole.map)
    torch.testing.assert_close(look.map.sum(), torch.tensor(2.0 * sum(sizes)))
    assert look.chosen.tolist() == [sum(sizes[:at]) for at in range(len(sizes))]
    assert joined.checks["Plain"].rows == sum(check.rows for check in seen.checks.values())


def test_maps_of_other_blocks_keep_their_sum():
    seen, whole = run_steps((7, 1, 1, 3), 4)
    (look,) = seen.join().values()
    assert look.map.shape == whole.map.shape
    torch.testing.assert_close(look.map.sum((-2, -1)), whole.map.sum((-2, -1)))


def test_a_check_can_be_told():
    assert Check(1, 0.0, 1.0, "float32").text() == "1 row recomputed: within 0.0x of float32's rounding"
    assert Check(why="x").text() == "not checked: x"
    off = Check(16, 1.0, 1e-7, "float32")
    assert not off.holds
    assert "these are not the weights used" in off.text()


def test_a_folder_is_no_file(tmp_path):
    seen = make()
    with pytest.raises(RegardError, match=fit("X is a folder: seen.save(…) needs the name of a file.")):
        seen.save(tmp_path)
    (tmp_path / "a").write_text("")
    with pytest.raises(RegardError, match=fit("X cannot be written (X): seen.save(…) needs a folder that it may use.")):
        seen.save(tmp_path / "a" / "x.safetensors")
    with pytest.raises(RegardError, match=fit("a path must be a text or a path, got int.")):
        seen.save(5)
    with pytest.raises(RegardError, match=fit("a path must be a text or a path, got NoneType.")):
        Seen.load(None)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["a"]


def test_a_table_has_plain_characters(tmp_path):
    seen = make()
    seen.model = "a\x1b[2Jb\nc"
    seen.add("x\x1b[2J\ny", seen["a"], "self", check=Check(1, 0.0, 1.0, "a\x1b[2J"))
    seen.skipped["z\x07"] = "it \x1b]0;x\x07 was"
    path = tmp_path / "x.safetensors"
    seen.save(path)
    for text in (repr(seen), repr(Seen.load(path)), repr(seen.join())):
        assert all(x.isprintable() for x in text.replace("\n", ""))
        assert len(text.splitlines()) == 6
