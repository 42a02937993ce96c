"""The benchmark of translation runs."""

from __future__ import annotations

import pytest

from benchmarks import translation
from tests.wide import wide


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
