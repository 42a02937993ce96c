"""A look at all weights beside one forward pass of cuDNN on the same rows: time, memory, and whether it is right."""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.measure import Clock
from benchmarks.gpu.page import describe_run
from benchmarks.measure import one_line
from benchmarks.report import show_bytes, show_time, table_lines
from regard.core import Mask
from regard.engine.look import Look, look
from regard.mask import Causal, Full
from tools.arguments import Parser, read_count, read_date

EXAMPLES = """examples:
  python -m benchmarks.gpu.look                        without a mask, and causal
  python -m benchmarks.gpu.look --positions 131072 --heads 1
  python -m benchmarks.gpu.look --device cpu --tiny    whether all is right, without a GPU
The status is 1 where the look is wrong, slower or larger than it may be, 2 where the command cannot run.
"""
# what is to be reached: times the forward pass, and bytes beside the inputs
TIMES, BYTES = 6.0, 256 * 2**20
# of the largest number of a field: sums in another order
TOLERANCE = 1e-5
MASKS: dict[str, Mask] = {"no mask": Full(), "causal": Causal()}
# of weights and sums; distances are in positions
FIELDS = ("top_weights", "entropy", "peak", "total", "first", "local", "distance", "received", "map")


@dataclass
class Result:
    """One mask: milliseconds of both in turns, what the look held, its largest error, or why there is none."""

    mask: str
    forward: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    extra: int | None = None
    error: float = float("nan")
    missing: str = ""

    @property
    def times(self) -> float:
        return statistics.median(self.seen) / statistics.median(self.forward)

    def list_misses(self) -> Iterator[str]:
        if self.missing:
            yield self.missing
            return
        if not self.error <= TOLERANCE:
            yield f"wrong by {self.error:.1e}"
        if self.extra is None:
            # times without a GPU mean nothing
            return
        if self.times > TIMES:
            yield f"{self.times:.2f} times the forward pass"
        if self.extra > BYTES:
            yield f"{show_bytes(self.extra)} of memory"


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.gpu.look", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--positions", type=read_count, default=16384, metavar="N", help="queries and keys (default 16384)")
    add("--heads", type=read_count, default=32, metavar="N", help="default 32")
    add("--width", type=read_count, default=64, metavar="N", help="of a head (default 64)")
    add("--repeat", type=read_count, default=20, metavar="N", help="turns of each (default 20)")
    add("--date", type=read_date, help="the date of the table (default today)")
    add("--backend", default="auto", metavar="NAME", help="how to look (default auto)")
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu is there to see that all is right, not how fast")
    add("--tiny", action="store_true", help="few positions, for the same purpose")
    options = parser.parse_args(arguments)
    options.date = options.date or datetime.date.today().isoformat()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device. To see that all is right: --device cpu --tiny")
    if options.tiny:
        options.positions, options.heads, options.repeat = 300, 2, 1
    return options


def measure_error(found: Look, rows: Sequence[Tensor], mask: Mask) -> float:
    """The largest difference from the walk over whole rows, which shares no kernel, on the first and last head."""
    worst = 0.0
    for head in {0, rows[0].shape[1] - 1}:
        query, key, _ = (x[:, head : head + 1] for x in rows)
        exact = look(query, key, mask=mask, backend="tiled")
        for name in FIELDS:
            one, other = getattr(found, name)[:, head : head + 1], getattr(exact, name)
            gap = (one - other).abs().max() / max(1.0, other.abs().max().item())
            worst = max(worst, gap.item()) if gap == gap else float("nan")
    return worst


def measure(name: str, rows: Sequence[Tensor], options: argparse.Namespace, clock: Clock) -> Result:
    """Right first; then both in turns."""
    result, mask = Result(name), MASKS[name]
    see: Callable[[], object] = partial(look, rows[0], rows[1], mask=mask, backend=options.backend)
    held: AbstractContextManager[None] = sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if clock.on_device else nullcontext()
    try:
        found = see()
        assert isinstance(found, Look)
        result.error = measure_error(found, rows, mask)
        del found
        with held:
            query, key, value = rows
            attend = partial(scaled_dot_product_attention, query, key, value, is_causal=isinstance(mask, Causal))
            attend()
            _, result.extra = clock.weigh(see)
            for _ in range(options.repeat):
                result.forward += clock.time(attend)
                result.seen += clock.time(see)
    except Exception as problem:
        result.missing = one_line(problem)
    return result


def list_cells(result: Result) -> list[str]:
    misses = ", ".join(result.list_misses()) or "reached"
    if result.missing:
        return [result.mask, "", "", "", "", "", misses]
    forward, seen = (show_time(statistics.median(x)) for x in (result.forward, result.seen))
    extra = "" if result.extra is None else show_bytes(result.extra)
    return [result.mask, forward, seen, f"{result.times:.2f}", extra, f"{result.error:.1e}", misses]


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    given = list(sys.argv[1:] if arguments is None else arguments)
    print(describe_run(options.device, options.date, " ".join(["python -m benchmarks.gpu.look", *given])))
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    draw = torch.Generator(options.device).manual_seed(0)
    shape = 1, options.heads, options.positions, options.width
    rows = [torch.randn(shape, generator=draw, device=options.device).to(dtype) for _ in range(3)]
    print(f"top-16, entropy, received, a 256×256 map and all else of a look at {shape}, {str(dtype)[6:]}", flush=True)
    clock = Clock(options.device)
    results = [measure(name, rows, options, clock) for name in MASKS]
    goal = f"at most {TIMES:g} times, {show_bytes(BYTES)}"
    head = "mask", "cuDNN forward", "look", "times", "extra memory", "largest error", goal
    print("\n".join(table_lines(head, map(list_cells, results))))
    return 1 if any(list(result.list_misses()) for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
