"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.cases import CASES
from benchmarks.measure import time_case, weigh_contender
from benchmarks.report import Block, describe_machine, show_block, show_head, tell, write_page
from tools.arguments import Parser, read_count, read_date, read_path

EXAMPLES = """examples:
  python -m benchmarks                            all cases, some minutes
  python -m benchmarks --quick                    all cases on small tensors, to see that they run
  python -m benchmarks --only dot --only window   some of them
  python -m benchmarks --out docs/benchmarks.md   the table as a page
"""


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks",
        description="Measure speed and memory of regard beside the code a user would write without it.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"a case, may be repeated: {', '.join(names)}"
    )
    parser.add_argument("--threads", type=read_count, default=2, metavar="N", help="threads of torch (default 2)")
    parser.add_argument("--repeat", type=read_count, metavar="N", help="turns of each contender (default 7, quick 3)")
    parser.add_argument("--quick", action="store_true", help="small tensors: shows that all runs, not how fast")
    parser.add_argument(
        "--out", type=partial(read_path, ".md"), metavar="MD", help="also write the table as a Markdown page"
    )
    parser.add_argument("--date", type=read_date, help="the date on the page (default today)")
    options = parser.parse_args(arguments)
    options.repeat = options.repeat or (3 if options.quick else 7)
    options.date = options.date or datetime.date.today().isoformat()
    options.parser = parser
    return options


def _warn_if_busy() -> None:
    # threads wait for one another: a single other process may make two threads ten times slower than one
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): times will not be worth much", file=sys.stderr)


def measure_all(options: argparse.Namespace) -> list[Block]:
    """Every chosen case, shown as soon as it is done."""
    chosen = [case for case in CASES if not options.only or case.name in options.only]
    blocks = []
    for number, case in enumerate(chosen, 1):
        place = f"[{number}/{len(chosen)}] {case.name}:"
        if not sys.stderr.isatty():
            print(place.rstrip(":"), file=sys.stderr, flush=True)
        n = case.quick if options.quick else case.n
        rows = time_case(case, n, options.threads, options.repeat, partial(tell, place))
        for at, row in enumerate(rows):
            if not row.missing:
                tell(place, f"memory of {row.contender}")
                row.extra = weigh_contender(case, at, n, options.threads)
        block = Block(case.name, case.title.format(n=n), rows)
        blocks.append(block)
        tell("", "\r")
        print(show_block(block), flush=True)
    return blocks


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    machine = describe_machine(options.threads)
    print(f"{machine}; float32\n\n{show_head()}")
    _warn_if_busy()
    blocks = measure_all(options)
    if options.out is not None:
        given = list(sys.argv[1:] if arguments is None else arguments)
        command = " ".join(["python -m benchmarks", *given])
        try:
            write_page(blocks, machine, command, options.date, options.repeat, options.out)
        except OSError as problem:
            options.parser.error(f"cannot write {options.out}: {problem.strerror or problem}")
        print(f"page {options.out}")
    # an answer that differs is worth more than any time
    return 1 if any(row.wrong for block in blocks for row in block.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
