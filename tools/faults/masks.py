"""Faults of the masks: rules, and the promises by which engines skip work."""

from tools.faults.fault import Fault

WINDOW, LENGTHS, CORE = "mask/window.py", "mask/lengths.py", "core/masks.py"

MASKS = [
    Fault(
        WINDOW,
        "return None, 0",
        "return None, 1",
        "causal sees one key of the future",
    ),
    Fault(
        WINDOW,
        "return self.before, self.after",
        "return self.before + 1, self.after",
        "window reaches one key too far back",
    ),
    Fault(
        WINDOW,
        "ahead = torch.arange(at[0] - max(rows, 1) + 1, at[0] + columns, device=tile.device)",
        "ahead = torch.arange(at[0] - max(rows, 1) + 2, at[0] + columns + 1, device=tile.device)",
        "pattern of a tile lies one step ahead",
    ),
    Fault(
        WINDOW,
        "offset=sizes.m - sizes.n)",
        "offset=0)",
        "causal aligned to the start, not the end",
    ),
    Fault(
        WINDOW,
        "stop = min(tile.j.stop, tile.i.stop + high + after)",
        "stop = min(tile.j.stop, tile.i.stop + low + after)",
        "span too narrow where offsets differ",
    ),
    Fault(
        WINDOW,
        "tile.i.start + low - before)",
        "tile.i.start + low - before + 1)",
        "span of a window starts one key late",
    ),
    Fault(
        WINDOW,
        "reached = tile.j.stop - 1 <= tile.i.start + low + after",
        "reached = tile.j.stop - 1 <= tile.i.stop - 1 + low + after",
        "covers promises too much ahead",
    ),
    Fault(
        WINDOW,
        "tile.j.start >= tile.i.stop - 1 + high - before",
        "tile.j.start >= tile.i.start + high - before",
        "covers promises too much behind",
    ),
    Fault(
        LENGTHS,
        "device=tile.device) < tile.slice",
        "device=tile.device) <= tile.slice",
        "lengths let one key of the padding in",
    ),
    Fault(
        LENGTHS,
        "longest = int(lengths.max())",
        "longest = int(lengths.min())",
        "span of the shortest sequence",
    ),
    Fault(
        LENGTHS,
        "int(lengths.min()) >= tile.j.stop",
        "int(lengths.max()) >= tile.j.stop",
        "covers by the longest sequence",
    ),
    Fault(
        "mask/edges.py",
        "min(int(high) + 1, tile.j.stop)",
        "min(int(high), tile.j.stop)",
        "a graph loses the last edge of a block",
    ),
    Fault(
        "mask/edges.py",
        "(codes[at] == wanted) & (j < base)",
        "codes[at] == wanted",
        "keys past the last edge alias the next query's",
    ),
    Fault(
        "mask/grid.py",
        "stop = min(tile.j.stop, tile.i.stop + rows * self.width + columns)",
        "stop = min(tile.j.stop, tile.i.stop + rows * self.width)",
        "span of a grid ends short",
    ),
    Fault(
        "mask/grid.py",
        "(i % self.width - j % self.width).abs() <= columns",
        "(i - j).abs() % self.width <= columns",
        "neighbours across the edge of an image",
    ),
    Fault(
        "mask/document.py",
        "stop = torch.where(some, order.gather(1, (last - 1).clamp(min=0)) + 1, 0)",
        "stop = torch.where(some, order.gather(1, (last - 1).clamp(min=0)), 0)",
        "span of a document loses its last key",
    ),
    Fault(
        CORE,
        "return range(min(s.start for s in spans), max(s.stop for s in spans))",
        "return spans[-1]",
        "a | b skips the keys of a",
    ),
    Fault(
        CORE,
        "return self.one.covers(tile) and self.other.covers(tile)",
        "return self.one.covers(tile) or self.other.covers(tile)",
        "a & b covered by one of them",
    ),
    Fault(
        CORE,
        "return not self.one.span(tile)",
        "return not self.one.covers(tile)",
        "~a covers what a only touches",
    ),
]
