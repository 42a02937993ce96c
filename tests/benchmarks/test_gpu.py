"""The GPU benchmarks on the CPU, at tiny sizes: contenders compute the same, and the program says what it found."""

import json
import pathlib
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import flex_attention

from benchmarks.gpu import __main__ as program
from benchmarks.gpu.cases import CASES, FLEX, Place
from benchmarks.gpu.goal import Goal, Reading
from benchmarks.gpu.kinds import SWEEP, TABLE
from benchmarks.gpu.measure import find_truth, list_contenders, list_rows, measure_errors, prepare
from benchmarks.report import write_section

HERE = ["--device", "cpu", "--tiny", "--backend", "tiled", "--repeat", "1"]
WIDE = Place("cpu", torch.float64, compiles=False)
# a call of each kind
KINDS = {case.what: replace(case, trains=True) for case in (*SWEEP, *TABLE)}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("case", [*CASES, *KINDS.values()], ids=lambda case: case.name)
def test_contenders_of_a_case_agree(case, monkeypatch):
    # FlexAttention has its gradients on the CPU as well, but will not have them used
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    work, cotangent = prepare(case, WIDE, case.tiny)
    # a few rows at a time, as on the large tensors
    monkeypatch.setattr("benchmarks.gpu.measure.ROOM", 5 * work.per_row)
    rows = list_rows(case, case.tiny, work)
    assert len(rows) > 1 or case.tiny.n == 1
    truth = find_truth(work, rows, cotangent)
    assert set(truth) == {"out", *(work.inputs if case.trains else ())}
    sides = []
    for side, contender in list_contenders(work, "tiled", cotangent):
        errors = measure_errors(contender.call(), truth, rows)
        assert set(errors) == set(truth)
        assert max(errors.values()) < 1e-11, f"{contender.name}: {errors}"
        sides.append(side)
    assert sides[-2:] == ["ours", "auto"]
    assert case.name == "kernel-regression-million" or "peer" in sides


@pytest.mark.parametrize("case", [case for case in (*CASES, *KINDS.values()) if "window" in case.what])
def test_a_tiny_window_hides_something(case):
    work, _ = prepare(case, WIDE, case.tiny)
    rows = work.plain(slice(None), *work.inputs.values())
    hidden = {**work.inputs, "value": work.inputs["value"].clone()}
    hidden["value"][..., -1, :] += 1
    changed = (work.plain(slice(None), *hidden.values()) != rows).any(-1)
    assert 0 < changed.float().mean() < 0.5


def test_a_wrong_result_has_an_error():
    exact = {"out": torch.ones(1, 4, 2), "query": torch.ones(1, 4, 2)}
    found = {"out": exact["out"].clone(), "query": torch.full((1, 4, 2), torch.nan)}
    found["out"][:, 3] = 2
    rows = [slice(0, 2), slice(2, 4)]
    errors = measure_errors(found, exact, rows)
    assert errors["out"] == pytest.approx(0.5)
    assert errors["query"] != errors["query"]


def reading(name: str, side: str, seconds: float, **more) -> Reading:
    return Reading(name, [seconds], extra=2**20, side=side, **more)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal(), ""),
        (Goal(ms=2, mib=1), "reached"),
        (Goal(ms=1.5), "not reached: 2 ms"),
        (Goal(mib=0.5), "not reached: 1.0 MiB of memory"),
        (Goal(times=1, over="Flex"), "reached"),
        (Goal(times=3), "not reached: 0.50 × sdpa"),
        (Goal(times=1, over="eager"), "not reached: no peer to compare with"),
        (Goal(bits=True), "not reached: bits differ from run to run"),
    ],
    ids=str,
)
def test_goals(goal, verdict):
    rows = [reading("FlexAttention", "peer", 0.003), reading("sdpa", "peer", 0.001)]
    rows += [Reading("eager", missing="out of memory"), reading("regard fused", "ours", 0.002, bits=False)]
    assert goal.judge(rows) == verdict
    rows[-1].missing = "no"
    assert goal.judge(rows) == ("not reached: ours has no time" if str(goal) else "")


def test_the_program_measures_and_writes(tmp_path, capsys):
    page, numbers = tmp_path / "page.md", tmp_path / "numbers.json"
    page.write_text("# Benchmarks\n\n## On the CPU\n\nstays\n")
    arguments = [*HERE, "--only", "decode", "--only", "bias-train", "--out", str(page), "--json", str(numbers)]
    assert program.main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.err.count("\n") >= 2
    assert "[1/2] bias-train" in shown.err
    assert f"{FLEX} " in shown.out
    assert "n/a: NotImplementedError" in shown.out
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n## On the CPU\n\nstays\n\n## On a GPU\n\n")
    # without the folders that files lie in
    words = [pathlib.Path(word).name for word in arguments]
    assert f"    python -m benchmarks.gpu {' '.join(words)}\n" in text
    raw = json.loads(numbers.read_text())
    assert [entry["name"] for entry in raw] == ["bias-train", "decode"]
    ours = next(row for row in raw[0]["rows"] if row["side"] == "ours")
    assert ours["bits"] is True
    assert set(ours["errors"]) == {"out", "query", "key", "value", "bias"}
    assert ours["seconds"]
    # the page can be made again from the numbers, here in two halves
    again = tmp_path / "again.md"
    halves = []
    for entry in raw:
        halves.append(tmp_path / f"{entry['name']}.json")
        halves[-1].write_text(json.dumps([entry]))
    command = [part for half in reversed(halves) for part in ("--from", str(half))]
    again.write_text("# Benchmarks\n\n## On the CPU\n\nstays\n")
    assert program.main([*command, "--out", str(again)]) == 0
    assert again.read_text() == text


def test_what_ours_cannot_do_is_told_and_fails(capsys):
    assert program.main([*HERE, "--only", "decode", "--backend", "none"]) == 1
    shown = capsys.readouterr().out
    assert "regard none" in shown
    assert "n/a: RegardError: backend must be one of" in shown
    assert "sdpa flash" in shown


def test_a_case_that_cannot_begin_is_told_and_fails(monkeypatch, capsys):
    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr("benchmarks.gpu.measure.prepare", fail)
    assert program.main([*HERE, "--only", "decode"]) == 1
    assert "n/a: MemoryError: no room" in capsys.readouterr().out


def test_the_list_names_every_case(capsys):
    assert program.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*program.ALL]
    assert len(lines) == sum(len(cases) for cases, _ in program.SECTIONS.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no CUDA device"),
        (["--only", "nothing"], "invalid choice: 'nothing'"),
        (["--repeat", "0"], "must be a whole number above 0"),
        (["--out", "page.txt"], "must end in .md"),
        (["--from", "missing.json"], "cannot read missing.json"),
    ],
)
def test_errors_are_one_line(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as left:
        program.main(arguments)
    assert left.value.code == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_numbers_of_another_kind_are_refused(tmp_path, capsys):
    path = tmp_path / "other.json"
    for text in ("{}x", '{"a": 1}', '[{"name": "decode"}]', "[1]"):
        path.write_text(text)
        with pytest.raises(SystemExit):
            program.main(["--from", str(path)])
        assert "is not what --json writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (None, "# Benchmarks\n\n## B\n\nnew\n"),
        ("# T\n\nintro\n", "# T\n\nintro\n\n## B\n\nnew\n"),
        (
            "# T\n\n## A\n\na\n\n## B\n\nold\n\n### deeper\n\nold\n\n## C\n\nc\n",
            "# T\n\n## A\n\na\n\n## B\n\nnew\n\n## C\n\nc\n",
        ),
        ("# T\n\n## B\n", "# T\n\n## B\n\nnew\n"),
    ],
)
def test_a_section_is_replaced_and_the_rest_stays(page, expected, tmp_path):
    path: pathlib.Path = tmp_path / "page.md"
    if page is not None:
        path.write_text(page)
    for _ in range(2):
        write_section(path, "B", ["new"])
        assert path.read_text() == expected
