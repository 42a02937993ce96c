"""What a run says of itself, with a terminal and without."""

from __future__ import annotations

import io

import pytest

from regard.tasks.training.progress import Progress

rich = pytest.importorskip("rich.console")

ROW = {"step": 20, "epoch": 2.0, "lr": 0.1, "loss": 5.3269, "valid_loss": 5.274, "valid_exact": 12.5, "seconds": 61.4}
LINE = "step 20  epoch 2.0  loss 5.327  valid loss 5.274  valid exact 12.5  61 s"


def test_a_line_a_validation_and_no_bar_without_a_terminal(capsys):
    progress = Progress()
    with progress.show(total=100, done=0):
        assert not progress.is_due()
        progress.advance(1, 2.0, 1000.0)
        progress.report(ROW, is_best=True)
        progress.report(ROW, is_best=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"{LINE}  best", LINE]


def test_nothing_where_nothing_is_wanted(capsys):
    progress = Progress(is_shown=False)
    with progress.show(total=100, done=0):
        progress.advance(1, 2.0, 1000.0)
        progress.report(ROW, is_best=True)
        progress.say("hello")
    assert capsys.readouterr() == ("", "")


def test_a_bar_in_a_terminal(monkeypatch):
    stream, clock = io.StringIO(), iter([10.0, 10.1, 10.3])
    progress = Progress(unit="words")
    progress._console = rich.Console(file=stream, force_terminal=True, width=150, highlight=False, markup=False)
    with progress.show(total=100, done=40):
        with monkeypatch.context() as patch:
            # not faster than eyes are
            patch.setattr("regard.tasks.training.progress.time.monotonic", lambda: next(clock))
            assert [progress.is_due() for _ in range(3)] == [True, False, True]
        progress.report(ROW, is_best=False)
        progress.advance(41, 2.3456, 12345.6)
        progress._bar.refresh()
    shown = stream.getvalue()
    for part in ("training", "40/100", "41/100", "loss 2.346", "valid exact 12.5", "12,346 words/s", "left", LINE):
        assert part in shown
    assert not progress.is_due()


def test_what_looks_like_markup_is_text(capsys):
    Progress().say("[red]a[/red] " + "word " * 60)
    assert capsys.readouterr().err == "[red]a[/red] " + "word " * 60 + "\n"
