"""Settings that cannot be measured are refused, in the words of those who gave them."""

import json

import pytest

from regard import RegardError
from regard.compare.registry import PARTS
from regard.compare.settings import Dimensions, Settings


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lengths": (64, 128)}, "lengths must be at least three, to fit a power to, got [64, 128]."),
        ({"lengths": "64"}, "lengths must be a list of whole numbers, got '64'."),
        ({"batches": ()}, "batches must be a list of whole numbers, got ()."),
        ({"lengths": (64, 0, 128)}, "lengths must be a whole number of at least 1, got 0."),
        ({"widths": (64, 12.5)}, "widths must be a whole number of at least 1, got 12.5."),
        ({"widths": (32, 30)}, "width 30 must be a multiple of heads=4, which share it."),
        ({"dims": Dimensions(width=10)}, "width 10 must be a multiple of heads=4, which share it."),
        ({"dims": Dimensions(heads=0)}, "heads must be a whole number of at least 1, got 0."),
        ({"dims": Dimensions(kernel=4)}, "a kernel must be odd and at least 3, to reach its neighbours, got 4."),
        ({"kernels": (1, 3)}, "a kernel must be odd and at least 3, to reach its neighbours, got 1."),
        ({"dims": Dimensions(window=1)}, "window must be at least 2, got 1."),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1."),
        ({"seed": 2**32}, "seed must be below 2**32, got 4294967296."),
        ({"seed": True}, "seed must be a whole number of at least 0, got True."),
        ({"seconds": 0}, "seconds must be a number above 0, or None for no limit, got 0."),
        ({"seconds": "60"}, "seconds must be a number above 0, or None for no limit, got '60'."),
        ({"parts": ("steps", "speed")}, f"parts must be some of {', '.join(PARTS)}, got speed."),
        ({"parts": ()}, f"parts must be some of {', '.join(PARTS)}, got none."),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong, said):
    with pytest.raises(RegardError) as caught:
        Settings(**wrong)
    assert str(caught.value) == said


def test_numbers_are_in_order_and_once_each():
    settings = Settings(lengths=[256, 64, 128, 64], parts=("digits", "steps"))
    assert settings.lengths == (64, 128, 256)
    assert settings.parts == ("steps", "digits")


def test_a_quick_look_has_no_long_sequences_unless_all_are():
    assert max(Settings().quicken().lengths) == 512
    assert Settings(lengths=(64, 2048, 4096)).quicken().lengths == (64, 2048, 4096)


def test_settings_are_plain_json():
    settings = Settings(dims=Dimensions(width=8), lengths=(8, 16, 32), widths=(8,), parts=("cost",), device="cuda")
    made = settings.to_dict()
    assert json.loads(json.dumps(made)) == made
    assert made["lengths"] == [8, 16, 32]
    assert made["dims"]["width"] == 8
