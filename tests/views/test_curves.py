"""The curves of a training, as they come out of their file."""

import math

import numpy as np
import pytest

from regard import RegardError
from regard.views import curves, draw_curves

matplotlib = pytest.importorskip("matplotlib")
image = pytest.importorskip("matplotlib.image")

HISTORY = [
    {"step": 100, "epoch": 1.0, "loss": 2.3, "valid_loss": 2.1, "valid_bleu": 12.3, "seconds": 30.2, "lr": 0.001},
    {"step": 200, "epoch": 2.0, "loss": 1.7, "valid_loss": 1.6, "valid_bleu": 20.0, "seconds": 60.0, "lr": 0.001},
    {"step": 300, "epoch": 3.0, "loss": 1.1, "valid_loss": 1.8, "valid_bleu": 19.5, "seconds": 90.1, "lr": 0.001},
]


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Draws, and gives back the figure that was written."""
    kept = []
    save = curves.save_figure
    monkeypatch.setattr(curves, "save_figure", lambda figure, path: (kept.append(figure), save(figure, path)))

    def look(history, name="curves.png"):
        draw_curves(history, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
        return kept[-1].axes

    return look


def list_lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def list_texts(axes):
    return [text.get_text() for text in axes.texts]


def test_losses_share_a_panel_and_metrics_have_their_own(look):
    loss, bleu = look(HISTORY)
    assert [axes.get_title(loc="left") for axes in (loss, bleu)] == ["loss", "bleu"]
    assert list_lines(loss) == {
        "training": ([100, 200, 300], [2.3, 1.7, 1.1]),
        "validation": ([100, 200, 300], [2.1, 1.6, 1.8]),
        "best 1.6 at step 200": ([200], [1.6]),
    }
    assert list_lines(bleu) == {
        "validation": ([100, 200, 300], [12.3, 20.0, 19.5]),
        "best 20 at step 200": ([200], [20.0]),
    }


@pytest.mark.parametrize(("metric", "best"), [("bleu", 3.0), ("chrf", 3.0), ("exact", 3.0), ("perplexity", 1.0),
                                              ("token_loss", 1.0), ("filter", 3.0), ("TER", 1.0)])  # fmt: skip
def test_the_best_is_the_least_where_less_is_better(look, metric, best):
    axes = look([{"step": step, f"valid_{metric}": value} for step, value in enumerate((2.0, 1.0, 3.0))])[1]
    assert any(label.startswith(f"best {best:g} ") for label in list_lines(axes))


def test_shares_of_one_run_are_in_one_unit(look):
    rows = [{"step": 1, "valid_accuracy": 30.0, "valid_f1": 0.2}, {"step": 2, "valid_accuracy": 40.0, "valid_f1": 0.9}]
    panels = look(rows)[1:]
    assert [list(axes.get_yticks()[[0, -1]]) for axes in panels] == [[0, 100], [0, 100]]


@pytest.mark.parametrize(
    ("metric", "values", "ends"),
    [
        ("accuracy", (97.2, 99.9, 100.0), [0, 100]),
        ("word_f1", (0.0, 12.0, 40.0), [0, 100]),
        ("accuracy", (0.2, 0.9, 1.0), [0, 1]),
        # not what the name promises: nothing may be cut off
        ("accuracy", (97.0, 101.0, 99.0), None),
        ("recall", (-1.0, 50.0, 99.0), None),
        ("bleu", (97.2, 99.9, 98.0), None),
    ],
)
def test_shares_are_drawn_from_nothing_to_all(look, metric, values, ends):
    axes = look([{"step": step, f"valid_{metric}": value} for step, value in enumerate(values)])[1]
    low, high = axes.get_ylim()
    assert low <= min(values) <= max(values) <= high
    ticks = axes.get_yticks()
    if ends is None:
        assert high - low < 2 * (max(values) - min(values))
    else:
        assert [ticks[0], ticks[-1]] == ends
        assert low < ends[0] < ends[1] < high < 1.1 * ends[1]


def test_the_picture_has_its_colours_and_size(tmp_path):
    draw_curves(HISTORY, tmp_path / "curves.png")
    picture = image.imread(tmp_path / "curves.png")
    assert 400 < picture.shape[0] < 700
    assert 1200 < picture.shape[1] < 1800
    half = picture.shape[1] // 2
    for colour, sides in (
        (curves.TRAINING, (True, False)),
        (curves.VALIDATION, (True, True)),
        (curves.BEST, (True, True)),
    ):
        wanted = np.array(matplotlib.colors.to_rgb(colour))
        for side, there in zip((picture[:, :half], picture[:, half:]), sides, strict=True):
            assert bool((np.abs(side[..., :3] - wanted) < 1 / 255).all(-1).any()) is there


@pytest.mark.parametrize("history", [[], [{"step": 1}], [{"step": 1, "seconds": 2.0}]])
def test_nothing_yet_is_said(look, history):
    (axes,) = look(history)
    assert list_texts(axes) == ["no values yet"]


def test_one_point_is_seen(look):
    loss, bleu = look(HISTORY[:1])
    assert all(line.get_marker() in "o*" for axes in (loss, bleu) for line in axes.lines)


def test_what_is_not_finite_is_a_gap_and_a_cross(look):
    broken = [
        {"step": 1, "loss": 1.0, "valid_loss": math.nan, "valid_bleu": None},
        {"step": 2, "loss": math.inf, "valid_loss": 0.5, "valid_bleu": -math.inf},
        {"step": 3, "loss": 0.9, "valid_loss": 0.7, "valid_bleu": math.nan},
    ]
    loss, bleu = look(broken)
    lines = list_lines(loss)
    assert math.isnan(lines["training"][1][1])
    assert lines["training not finite"][0] == [2]
    assert lines["validation not finite"][0] == [1]
    assert lines["best 0.5 at step 2"] == ([2], [0.5])
    assert list_texts(bleu) == ["no finite values"]
    assert not any(label.startswith("best") for label in list_lines(bleu))


def test_lines_of_a_resumed_run_count_once(look):
    again = [{"step": 200, "loss": 1.5}, {"step": 100, "loss": 9.0}, {"step": 100, "loss": 2.0}]
    (axes,) = look(again)
    assert list_lines(axes) == {"training": ([100, 200], [2.0, 1.5])}


def test_any_series_may_be_missing_from_a_line(look):
    loss, chrf = look(
        [{"step": 1, "loss": 3.0}, {"step": 2, "valid_chrf": 5}, {"step": 3, "valid_loss": np.float32(2)}]
    )
    assert list_lines(loss)["training"] == ([1], [3.0])
    assert list_lines(loss)["validation"] == ([3], [2.0])
    assert list_lines(chrf)["validation"] == ([2], [5.0])


def test_many_metrics_and_points_fit(look):
    history = [{"step": i, "loss": 1 / (i + 1), **{f"valid_m{k}": i for k in range(4)}} for i in range(2000)]
    axes = look(history)
    assert len(axes) == 5
    assert len({round(x.get_position().x0, 2) for x in axes}) == 3
    assert axes[0].lines[0].get_marker() == "None"


@pytest.mark.parametrize("value", [1e308, 1e99, 1e-308, 10**400])
def test_extremes_are_drawn(look, value):
    axes = look([{"step": 1, "loss": value}, {"step": 2, "loss": -value}, {"step": 10**15, "loss": 1.0}])
    assert len(axes) == 1


def test_names_are_taken_literally(tmp_path):
    history = [{"step": 1, r"valid_$\frac{1}{2}$<b>": 1.0, "valid_$": 2.0, "valid_$x$": 3.0}]
    draw_curves(history, tmp_path / "a.svg")
    page = (tmp_path / "a.svg").read_bytes()
    number = matplotlib.ft2font.FT2Font(matplotlib.font_manager.findfont("DejaVu Sans")).get_char_index(ord("$"))
    assert page.count(b'xlink:href="#DejaVuSans-%x"' % number) == 5
    assert b"Oblique" not in page


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([{"step": 1}, {"loss": 1.0}], "history, line 2: must be an object with the number of its step."),
        ([["step", 1]], "history, line 1: must be an object with the number of its step."),
        ([{"step": "1"}], "history, line 1: must be an object with the number of its step."),
        ([{"step": math.nan}], "history, line 1: must be an object with the number of its step."),
        ([{"step": 1, "loss": "low"}], "history, line 1: loss must be a number, got 'low'."),
        ([{"step": 1, "valid_bleu": [1]}], "history, line 1: valid_bleu must be a number, got '[1]'."),
        ([{"step": 1, "valid_ok": True}], "history, line 1: valid_ok must be a number, got 'True'."),
    ],
)
def test_a_wrong_line_is_named_and_nothing_written(tmp_path, history, message):
    with pytest.raises(RegardError) as error:
        draw_curves(history, tmp_path / "a.png")
    assert str(error.value) == message
    assert not list(tmp_path.iterdir())


def test_a_wrong_ending_is_named(tmp_path):
    with pytest.raises(RegardError, match=r"must end in \.png, \.svg or \.pdf"):
        draw_curves([], tmp_path / "curves.gif")
