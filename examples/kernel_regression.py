"""Nadaraya–Watson kernel regression: attention before it had the name.

A point is predicted by the average of the samples, weighted by a Gaussian of their distance; that is `attend` with
`score=Gaussian(width)`, the point as query, the samples' x as keys and their y as values. Width 0 weighs all samples
alike, width 1 is a fixed guess, and the third width is learned by leaving each sample out of its own prediction.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from regard import attend
from regard.extras import install
from regard.mask import Window
from regard.score import Gaussian

NOISE = 0.5
END = 5.0
OUT = pathlib.Path("runs/demo/kernel_regression.png")
# each evaluation of the leave-one-out error meets all pairs of samples
MOST_SAMPLES = 2000


@dataclass(frozen=True)
class Fit:
    """One predictor: its name, the width of its kernel, its curve, and its error against the true one."""

    name: str
    width: float
    curve: Tensor
    error: float


def truth(x: Tensor) -> Tensor:
    """The curve behind the samples."""
    return 2 * torch.sin(x) + x**0.8


def draw_samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted x ~ U(0, 5) and y = truth(x) + N(0, 0.5²), each (count, 1)."""
    noise = torch.Generator().manual_seed(seed)
    x = (END * torch.rand(count, 1, generator=noise, dtype=torch.float64)).sort(0).values
    return x, truth(x) + NOISE * torch.randn(count, 1, generator=noise, dtype=torch.float64)


def list_points() -> Tensor:
    """The x at which predictors are compared with the true curve."""
    return 0.1 * torch.arange(round(END * 10), dtype=torch.float64)[:, None]


def regress(points: Tensor, x: Tensor, y: Tensor, width: float) -> Tensor:
    """The prediction at `points`."""
    return attend(points, x, y, score=Gaussian(width))


def regard_samples(points: Tensor, x: Tensor, width: float) -> Tensor:
    """The weight of each sample in each prediction, (points, samples): values that are the identity bring them out."""
    return attend(points, x, torch.eye(len(x), dtype=x.dtype), score=Gaussian(width))


def leave_one_out(x: Tensor, y: Tensor, widths: Tensor) -> Tensor:
    """For each width, the mean squared error of predicting every sample from all others; one head per width."""
    heads = len(widths)
    keys, values = x.expand(1, heads, -1, -1), y.expand(1, heads, -1, -1)
    # a window that reaches nowhere is the diagonal: all may meet but a sample and itself
    left_out = attend(keys, keys, values, score=Gaussian(widths[:, None]), mask=~Window(0, 0))
    return (left_out - values).square().mean((0, 2, 3))


def learn_width(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The width with the least leave-one-out error, and that error."""
    # the error may have several valleys: look at a coarse row of widths first, then go down from the best of them
    starts = torch.logspace(-1, 2, 25, dtype=torch.float64)
    best = starts[leave_one_out(x, y, starts).argmin()]
    # by its logarithm, so that every step leaves the width above zero
    log_width = best.log()[None].requires_grad_()
    descent = torch.optim.LBFGS(
        [log_width], max_iter=100, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def error() -> Tensor:
        descent.zero_grad()
        loss = leave_one_out(x, y, log_width.exp()).sum()
        loss.backward()
        return loss

    descent.step(error)
    with torch.no_grad():
        width = log_width.exp()
        return width.item(), leave_one_out(x, y, width).item()


def compare(x: Tensor, y: Tensor, learned: float) -> list[Fit]:
    """The three predictors on the same samples."""
    points = list_points()
    fits = []
    for name, width in (("average pooling", 0.0), ("fixed kernel", 1.0), ("learned kernel", learned)):
        curve = regress(points, x, y, width)
        fits.append(Fit(name, width, curve, (curve - truth(points)).square().mean().item()))
    return fits


def show_table(fits: Sequence[Fit]) -> str:
    """The predictors' errors, one line each."""
    lines = [f"{'predictor':<17} {'score':<15} {'squared error':>13}"]
    lines += [f"{fit.name:<17} {f'Gaussian({fit.width:.4g})':<15} {fit.error:>13.4f}" for fit in fits]
    return "\n".join(lines)


def draw_picture(x: Tensor, y: Tensor, fits: Sequence[Fit], out: pathlib.Path) -> None:
    """Curves and samples beside the attention map of the last fit, as a PNG that is whole or not there at all."""
    from matplotlib.figure import Figure

    # matplotlib takes numpy's arrays gladly, and torch's with a warning
    points, learned = list_points(), fits[-1]
    at, true, places = points.flatten().numpy(), truth(points).flatten().numpy(), x.flatten().numpy()
    figure = Figure(figsize=(12.5, 5.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))

    # Okabe and Ito's colours, told apart by the colour-blind too; line styles say the same again
    left.scatter(
        places,
        y.flatten().numpy(),
        s=22,
        color="#666666",
        edgecolors="white",
        linewidths=0.5,
        label="samples",
        zorder=2,
    )
    left.plot(at, true, color="black", linewidth=1.6, label="true curve", zorder=3)
    styles = (("#e69f00", (0, (1, 1.2))), ("#0072b2", (0, (5, 2))), ("#d55e00", "-"))
    for fit, (color, style) in zip(fits, styles, strict=True):
        label = f"{fit.name}, error {fit.error:.3f}"
        left.plot(at, fit.curve.flatten().numpy(), color=color, linestyle=style, linewidth=2.4, label=label, zorder=4)
    left.set(xlabel="x", ylabel="y", xlim=(0, END))
    left.set_title(f"{len(x)} samples, three predictors", pad=14)
    left.spines[["top", "right"]].set_visible(False)
    left.grid(color="#e6e6e6", linewidth=0.8)
    left.set_axisbelow(True)
    # below both panels, where it covers nothing
    figure.legend(loc="outside lower center", ncols=5, frameon=False)

    # a sample's column reaches half-way to its neighbours, so that both axes are true to x
    columns = torch.cat([torch.zeros(1), (x[1:, 0] + x[:-1, 0]) / 2, torch.full((1,), END)])
    step = float(points[1] - points[0])
    rows = torch.cat([points[:, 0] - step / 2, points[-1:, 0] + step / 2])
    weights = regard_samples(points, x, learned.width)
    mesh = right.pcolormesh(columns.numpy(), rows.numpy(), weights.numpy(), cmap="cividis", vmin=0)
    # one stroke per sample above the map: where they lie close, each has less weight
    above = right.get_xaxis_transform()
    right.vlines(places, 1.01, 1.035, transform=above, color="black", linewidth=0.8, clip_on=False)
    right.set(
        xlabel="key: x of a sample (strokes on top)", ylabel="query: x of a prediction", aspect="equal",
        xlim=(0, END), ylim=(float(rows[0]), float(rows[-1])),
    )  # fmt: skip
    right.set_title(f"attention of the learned kernel, width {learned.width:.3g}", pad=14)
    figure.colorbar(mesh, ax=right, label="weight", fraction=0.046, pad=0.03)
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(suffix=".png", prefix=".", dir=out.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            figure.savefig(file, format="png")
        # mkstemp keeps its file private; a picture is for all who may read the folder
        os.chmod(name, 0o644)
        os.replace(name, out)
    except BaseException:
        os.unlink(name)
        raise


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _whole_number(low: int, high: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"must lie between {low} and {high}, got {number}")
    return number


def _picture(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"must end in .png, got {text!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, got the folder {text!r}")
    return path


def _read(arguments: Sequence[str] | None) -> tuple[int, int, pathlib.Path, _Parser]:
    parser = _Parser(
        prog="kernel_regression.py",
        description="Nadaraya-Watson kernel regression as three attend calls: prints their errors, draws one picture.",
        epilog="examples:\n  python examples/kernel_regression.py\n"
        "  python examples/kernel_regression.py --seed 4 --samples 200 --out curve.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seed", type=lambda text: _whole_number(0, 2**63 - 1, text), default=0, help="of the samples (default 0)"
    )
    parser.add_argument(
        "--samples", type=lambda text: _whole_number(3, MOST_SAMPLES, text), default=50, metavar="N",
        help=f"how many, 3 to {MOST_SAMPLES} (default 50)",
    )  # fmt: skip
    parser.add_argument("--out", type=_picture, default=OUT, metavar="PNG", help=f"the picture (default {OUT})")
    options = parser.parse_args(arguments)
    return options.seed, options.samples, options.out, parser


def main(arguments: Sequence[str] | None = None) -> int:
    seed, count, out, parser = _read(arguments)
    x, y = draw_samples(count, seed)
    width, left_out = learn_width(x, y)
    fits = compare(x, y, width)
    print(f"{count} samples of y = 2 sin x + x^0.8 + noise (seed {seed}); errors against the true curve\n")
    print(show_table(fits))
    print(f"\nlearned width {width:.4g} (bandwidth {1 / width:.4g})")
    # a sample left out is itself noisy: no predictor gets below that but by luck
    print(f"leave-one-out squared error {left_out:.4f}, noise alone {NOISE**2:.4f}")
    try:
        draw_picture(x, y, fits, out)
    except ImportError:
        print(f"no picture: it needs matplotlib, {install('plot')}", file=sys.stderr)
    except OSError as problem:
        parser.error(f"cannot write {out}: {problem.strerror or problem}")
    else:
        print(f"picture {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
