"""Memory and time of one look on the CPU: `python -m benchmarks.look` (131,072 tokens take minutes).

One head; extra memory is the most that was resident during the look beyond what was before it, as `benchmarks.peak` has
it: inputs do not count, the look and all that is held on the way do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from benchmarks.peak import begin, end
from regard import look
from regard.mask import Full, Window
from tools.arguments import Parser, read_count


def measure(positions: int, width: int = 64, window: int | None = None) -> tuple[float, float]:
    """MiB and seconds of a look at one head that keeps query and key."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, positions, width, generator=draw).unbind(0)
    mask = Full() if window is None else Window(window - 1, 0)
    # the first call of a process pays for what every later one finds ready
    look(query[:, :, :16], key[:, :, :16], mask=mask, keep=True)
    before, start = begin(), time.perf_counter()
    # held until the mark is read: what a look is made of counts
    seen = look(query, key, mask=mask, keep=True)
    seconds, extra = time.perf_counter() - start, end() - before
    del seen
    return extra / 2**20, seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.look", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--positions", type=read_count, default=131072, help="how many tokens")
    parser.add_argument("--width", type=read_count, default=64, help="of the head")
    parser.add_argument("--window", type=read_count, default=None, help="keys that a query sees [all]")
    options = parser.parse_args(arguments)
    extra, seconds = measure(options.positions, options.width, options.window)
    print(f"{options.positions:,} tokens, one head of width {options.width}: {extra:.1f} MiB, {seconds:.1f} s")


if __name__ == "__main__":
    main()
