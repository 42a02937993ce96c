"""Faults of the comparison: clocks, memory, reach, fits, crossings, tests of what was learned from."""

from tools.faults.fault import Fault

PATHS = "compare/measure/paths.py"

COMPARE = [
    Fault(
        "compare/measure/crossings.py",
        "start + (end - start) * before / (before - after)",
        "start + (end - start) * before / (before + after)",
        "two curves cross where they do not",
    ),
    Fault(
        "compare/measure/memory.py",
        "        self.live -= size\n",
        "",
        "memory that is freed still counts",
    ),
    Fault(
        "compare/measure/clock.py",
        "return (read() - start) / loops",
        "return read() - start",
        "a short call takes as long as all of its turn",
    ),
    Fault(
        PATHS,
        'poisoned[:, : first + 1] = float("nan")',
        'poisoned[:, :first] = float("nan")',
        "the reach is one token short",
    ),
    Fault(
        PATHS,
        "return torch.cat(found).mT",
        "return torch.cat(found)",
        "what sees what is turned around",
    ),
    Fault(
        "compare/measure/puzzles.py",
        "columns = length - 1 - distances[:, None] - torch.arange(self.extent)",
        "columns = length - distances[:, None] - torch.arange(self.extent)",
        "what tells the answer stands a token nearer than is said",
    ),
    Fault(
        "compare/measure/digits.py",
        "test = order[MOST:]",
        "test = order[: len(order) - MOST]",
        "digits are tested that were learned from",
    ),
    Fault(
        "compare/measure/fits.py",
        "stats.t.ppf(0.975, spare)",
        "stats.t.ppf(0.95, spare)",
        "an interval of 95 in 100 holds 90",
    ),
    Fault(
        "compare/measure/cost.py",
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
        "compare/report/page.py",
        'return html.escape(str(text).encode(errors="replace").decode())',
        'return str(text).encode(errors="replace").decode()',
        "what a machine is called becomes markup in the report",
    ),
]
