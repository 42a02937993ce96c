"""Sums over many tiles, held in float64 and in float32: how exact they are beside eager code, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.report import describe_machine, table_lines
from regard import attend
from tools.arguments import Parser, read_count

NAMES = ("output", "query", "key", "value")
# whose tiles are summed up in the dtype that they come in
NARROW = patch("regard.engine.tiles.walk.widen", lambda like: like.dtype)


def run(rows: Sequence[Tensor], by_tiles: bool) -> list[Tensor]:
    """The output, and the gradients of its sum."""
    query, key, value = leaves = [x.detach().requires_grad_() for x in rows]
    if by_tiles:
        out = attend(query, key, value, backend="tiled")
    else:
        out = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1) @ value
    # weights of different size, so that no gradient cancels
    cotangent = torch.linspace(1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad(out, leaves, cotangent)]


def measure_errors(length: int) -> list[tuple[str, ...]]:
    """The largest error of each tensor, in parts of its largest number."""
    noise = torch.Generator().manual_seed(0)
    rows = [torch.randn(1, 1, n, 16, generator=noise) for n in (8, length, length)]
    # of one sign: what is rounded away adds up
    rows[2] = rows[2].abs()
    exact = run([x.double() for x in rows], by_tiles=False)
    with NARROW:
        narrow = run(rows, by_tiles=True)
    found = {"eager": run(rows, by_tiles=False), "float32": narrow, "float64": run(rows, by_tiles=True)}
    return [
        (
            f"{length:,}",
            name,
            *(f"{(a.double() - b).abs().max() / b.abs().max():.1e}" for a, b in zip(made, exact, strict=True)),
        )
        for name, made in found.items()
    ]


def measure_ratio(shape: Sequence[int], turns: int) -> str:
    """How much longer forward and backward take with wide sums, both in turns."""
    rows, seconds = [torch.randn(*shape) for _ in NAMES[1:]], ([], [])
    for _ in range(turns + 1):
        for wide, own in zip((True, False), seconds, strict=True):
            start = time.perf_counter()
            if wide:
                run(rows, by_tiles=True)
            else:
                with NARROW:
                    run(rows, by_tiles=True)
            own.append(time.perf_counter() - start)
    wide, narrow = (median(own[1:]) for own in seconds)
    return f"{wide / narrow:.2f}"


def main() -> None:
    parser = Parser(prog="python -m benchmarks.sums", description=__doc__)
    parser.add_argument("--turns", type=read_count, default=9, metavar="N", help="measurements of each (default 9)")
    turns = parser.parse_args().turns
    rows = [row for length in (65_536, 1_048_576) for row in measure_errors(length)]
    print("\n".join(table_lines(("keys", "sums", *NAMES), rows)), end="\n\n")
    times = [
        ("×".join(map(str, s)), measure_ratio(s, turns)) for s in ((8, 8, 128, 32), (1, 8, 2048, 64), (1, 1, 8192, 16))
    ]
    print("\n".join(table_lines(("shape", "time in float64 / in float32"), times)), end="\n\n")
    print(f"{describe_machine(torch.get_num_threads())}.")


if __name__ == "__main__":
    main()
