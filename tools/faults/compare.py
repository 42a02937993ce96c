"""Faults of the comparison: clocks, memory, reach, fits, crossings, tests of what was learned from."""

from tools.faults.fault import Fault

SIGHT = "compare/meters/sight.py"

COMPARE = [
    Fault(
        "compare/meters/curves.py",
        "start + (end - start) * before / (before - after)",
        "start + (end - start) * before / (before + after)",
        "two curves cross where they do not",
    ),
    Fault(
        "compare/meters/spending.py",
        "        self.live -= size\n",
        "",
        "memory that is freed still counts",
    ),
    Fault(
        "compare/meters/spending.py",
        "return (read() - start) / loops",
        "return read() - start",
        "a short call takes as long as all of its turn",
    ),
    Fault(
        SIGHT,
        'poisoned[:, : first + 1] = float("nan")',
        'poisoned[:, :first] = float("nan")',
        "the reach is one token short",
    ),
    Fault(
        SIGHT,
        "return torch.cat(found).mT",
        "return torch.cat(found)",
        "what sees what is turned around",
    ),
    Fault(
        "compare/meters/puzzles.py",
        "columns = length - 1 - distances[:, None]",
        "columns = length - distances[:, None]",
        "what tells the answer stands a token nearer than is said",
    ),
    Fault(
        "compare/parts/digits.py",
        "order[MOST:]",
        "order[: len(order) - MOST]",
        "digits are tested that were learned from",
    ),
    Fault(
        "compare/meters/curves.py",
        "stats.t.ppf(0.975, spare)",
        "stats.t.ppf(0.95, spare)",
        "an interval of 95 in 100 holds 90",
    ),
    Fault(
        "compare/meters/cost.py",
        "[-max(-(-len(points) // 2), 3) :]",
        "[: max(-(-len(points) // 2), 3)]",
        "the growth of a cost is read off the short lengths",
    ),
    Fault(
        "compare/kinds.py",
        "guess = dims.width * (wanted / count_parameters(kind, dims)) ** 0.5",
        "guess = dims.width * (wanted / count_parameters(kind, dims))",
        "widths of equal parameters forget the root",
    ),
    Fault(
        "compare/page.py",
        'return html.escape(str(text).encode(errors="replace").decode())',
        'return str(text).encode(errors="replace").decode()',
        "what a machine is called becomes markup in the report",
    ),
]
