"""Options that are made of the settings of a task of one's own."""

from dataclasses import dataclass

import pytest

from regard import RegardError
from regard.cli.options.fields import make_options
from regard.models.config import setting


@dataclass(frozen=True)
class Sizes:
    rate: float = setting(0.5, "how fast")
    widths: tuple[int, ...] = setting((3, 2), "width of each layer")


def test_a_setting_that_cannot_be_typed_is_named():
    with pytest.raises(RegardError) as error:
        make_options(Sizes)
    assert str(error.value) == (
        "Sizes widths must be int, float, str or bool to be an option, got tuple[int, ...]: declare it as a plain"
        " field, not by setting."
    )
    assert make_options(Sizes, without=("widths",))(rate=0.25).rate == 0.25
