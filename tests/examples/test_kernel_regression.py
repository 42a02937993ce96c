"""The demo: its three predictors come out in order, its width is the one others find, its picture is whole."""

import builtins
import re
import struct

import pytest
import torch

from examples import kernel_regression as demo
from regard.extras import install

SEEDS = range(20)


@pytest.fixture(scope="module")
def runs() -> dict[int, tuple[float, float, list[demo.Fit]]]:
    """Width, leave-one-out error and the three fits, by seed."""
    found = {}
    for seed in SEEDS:
        x, y = demo.draw_samples(50, seed)
        width, left_out = demo.learn_width(x, y)
        found[seed] = width, left_out, demo.compare(x, y, width)
    return found


def mean_error(runs, at: int) -> float:
    return sum(fits[at].error for _, _, fits in runs.values()) / len(runs)


def test_errors_stand_in_order_for_every_seed(runs):
    for seed, (_, _, (average, fixed, learned)) in runs.items():
        assert learned.error < fixed.error < average.error, f"seed {seed}"


def test_errors_over_seeds(runs):
    assert mean_error(runs, 0) == pytest.approx(0.9, rel=0.1)
    assert mean_error(runs, 1) == pytest.approx(0.42, rel=0.1)
    assert mean_error(runs, 2) <= 0.08


def test_the_width_is_a_minimum(runs):
    for seed, (width, left_out, _) in runs.items():
        x, y = demo.draw_samples(50, seed)
        around = demo.leave_one_out(x, y, width * torch.logspace(-1, 1, 41, dtype=torch.float64))
        # the middle of the row is the width itself
        assert around.argmin() == 20, f"seed {seed}"
        assert around[20].item() == pytest.approx(left_out, rel=1e-12)
        log_width = torch.tensor([width], dtype=torch.float64).log().requires_grad_()
        demo.leave_one_out(x, y, log_width.exp()).sum().backward()
        assert log_width.grad.abs().item() < 1e-6, f"seed {seed}"


def test_average_pooling_is_the_mean():
    x, y = demo.draw_samples(50, 0)
    curve = demo.compare(x, y, 1.0)[0].curve
    assert torch.allclose(curve, y.mean().expand_as(curve), rtol=1e-14, atol=0)


def test_leaving_one_out_is_what_a_loop_does():
    x, y = demo.draw_samples(11, 3)
    width = 2.5
    errors = []
    for at in range(11):
        rest = [other for other in range(11) if other != at]
        kernel = torch.exp(-0.5 * ((x[rest] - x[at]) * width) ** 2)
        errors.append(((kernel * y[rest]).sum() / kernel.sum() - y[at]) ** 2)
    found = demo.leave_one_out(x, y, torch.tensor([9.0, width], dtype=torch.float64))[1]
    assert found.item() == pytest.approx(torch.cat(errors).mean().item(), rel=1e-12)


# statsmodels announces a new default for its random numbers; it draws none here
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_statsmodels_finds_the_same_bandwidth(runs):
    nonparametric = pytest.importorskip("statsmodels.nonparametric.kernel_regression")
    x, y = demo.draw_samples(50, 0)
    kernel = nonparametric.KernelReg(y[:, 0].numpy(), x[:, 0].numpy(), var_type="c", reg_type="lc", bw="cv_ls")
    width, left_out, _ = runs[0]
    # its simplex search stops at four digits
    assert 1 / width == pytest.approx(kernel.bw[0], rel=1e-3)
    assert left_out <= kernel.cv_loo(kernel.bw, kernel.est["lc"]) + 1e-12
    # at one bandwidth both give one curve
    theirs = torch.from_numpy(kernel.fit(demo.list_points()[:, 0].numpy())[0])
    ours = demo.regress(demo.list_points(), x, y, 1 / float(kernel.bw[0]))
    assert torch.allclose(ours[:, 0], theirs, rtol=1e-9, atol=1e-9)


def test_weights_are_those_of_the_curve():
    x, y = demo.draw_samples(50, 0)
    weights = demo.regard_samples(demo.list_points(), x, 4.0)
    assert weights.shape == (50, 50)
    assert torch.allclose(weights.sum(1), torch.ones(50, dtype=torch.float64), rtol=1e-14, atol=0)
    assert torch.allclose(weights @ y, demo.regress(demo.list_points(), x, y, 4.0), rtol=1e-13, atol=1e-14)


def test_main_prints_a_table_and_draws_one_picture(tmp_path, capsys):
    picture = tmp_path / "new" / "curve.png"
    assert demo.main(["--seed", "4", "--out", str(picture)]) == 0
    printed, complaints = capsys.readouterr()
    assert complaints == ""
    assert printed.endswith(f"picture {picture}\n")
    rows = re.findall(r"^(\S+ \S+) +Gaussian\((\S+)\) +(\d\.\d{4})$", printed, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["average pooling", "fixed kernel", "learned kernel"]
    assert float(rows[2][2]) < float(rows[1][2]) < float(rows[0][2])
    assert f"learned width {rows[2][1]}" in printed
    # nothing but the picture is left behind
    assert [path.name for path in picture.parent.iterdir()] == ["curve.png"]
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert (width, height) == (1875, 810)


def test_a_seed_gives_the_same_again(tmp_path, capsys):
    pictures, texts = [], []
    for name in ("one.png", "two.png"):
        demo.main(["--seed", "7", "--samples", "20", "--out", str(tmp_path / name)])
        texts.append(capsys.readouterr().out.replace(name, ""))
        pictures.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert pictures[0] == pictures[1]
    demo.main(["--seed", "8", "--samples", "20", "--out", str(tmp_path / "one.png")])
    assert capsys.readouterr().out.replace("one.png", "") != texts[0]


def test_a_picture_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    picture = tmp_path / "curve.png"
    picture.write_bytes(b"old")

    def break_off(*args, **kwargs):
        raise RuntimeError("broken off")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", break_off)
    with pytest.raises(RuntimeError, match="broken off"):
        demo.main(["--samples", "5", "--out", str(picture)])
    assert picture.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_without_matplotlib_the_figures_are_still_printed(tmp_path, capsys, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    picture = tmp_path / "curve.png"
    assert demo.main(["--samples", "10", "--out", str(picture)]) == 0
    printed, complaints = capsys.readouterr()
    assert "learned kernel" in printed
    assert complaints == f"no picture: it needs matplotlib, {install('plot')}\n"
    assert not picture.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--samples", "2"], "must lie between 3 and 2000, got 2"),
        (["--samples", "2001"], "must lie between 3 and 2000, got 2001"),
        (["--samples", "many"], "must be a whole number, got 'many'"),
        (["--seed", "-1"], "must lie between 0 and"),
        (["--seed", str(2**63)], "must lie between 0 and"),
        (["--seed", "1.5"], "must be a whole number, got '1.5'"),
        (["--out", "curve.jpg"], "must end in .png, got 'curve.jpg'"),
        (["--width", "3"], "unrecognized arguments: --width 3"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        demo.main(arguments)
    assert stop.value.code == 2
    printed, complaint = capsys.readouterr()
    assert printed == ""
    assert complaint.count("\n") == 1
    assert words in complaint


def test_a_folder_that_cannot_be_written_is_one_line_and_status_two(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit) as stop:
        demo.main(["--samples", "5", "--out", str(tmp_path / "file" / "curve.png")])
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "cannot write" in complaint


def test_a_folder_is_no_picture(tmp_path, capsys):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(SystemExit) as stop:
        demo.main(["--out", str(tmp_path / "folder.png")])
    assert stop.value.code == 2
    assert "must be a file, got the folder" in capsys.readouterr().err


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit) as stop:
        demo.main(["--help"])
    assert stop.value.code == 0
    assert "python examples/kernel_regression.py --seed 4" in capsys.readouterr().out
