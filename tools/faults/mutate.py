"""Slips of the hand that a Python file offers, found in its syntax tree: an operator, a number, a statement lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is", "in": "not in",
    "not in": "in", "and": "or", "or": "and", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*",
}  # fmt: skip
OPERATOR = re.compile(r"is\s+not\b|not\s+in\b|\b(?:is|in|and|or)\b|[<>]=?|[=!]=|//|[-+*/]")
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)
# an `if` of any other comparison is negated by its operator already
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "amin": "amax", "amax": "amin"}
# texts and lists can be added, but not subtracted: a crash is no slip of the hand
GLUED = (ast.List, ast.ListComp, ast.Tuple, ast.JoinedStr, ast.Dict, ast.Set)
# letters before and behind a change that are shown with it
NEAR = 36
# the nearest of these says what a number is for
TELLING = (
    ast.BinOp, ast.Compare, ast.Call, ast.Subscript, ast.keyword, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return,
)  # fmt: skip

# fields of the tree that are read by people and tools, not run
UNSEEN_FIELDS = ("annotation", "returns", "decorator_list", "type_params")
# options of what is shown, of what asserts that our own code is right, and of how thick ink is
UNSEEN_OPTIONS = (
    "repr", "strict", "help", "metavar", "show_default", "stacklevel", "size", "fontsize", "labelsize", "markersize",
    "linewidth", "pad", "labelpad", "zorder", "alpha",
)  # fmt: skip
UNSEEN_FUNCTIONS = ("__repr__", "extra_repr")
UNSEEN_CALLS = ("warn", "cast", "TypeVar", "getLogger", "Option", "Argument", "Some")
UNSEEN_NAMES = ("__all__", "EXAMPLES")
UNSEEN_TYPES = ("Annotated", "Literal", "Callable")
UNSEEN_NODES = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)


@dataclass(frozen=True)
class Slip:
    """The text from `start` to `stop` becomes `new`; `statement` is where the statement begins that it is part of."""

    start: int
    stop: int
    new: str
    statement: int
    what: str

    def make(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.stop :]


def list_slips(source: str) -> list[Slip]:
    """Every slip that the source offers, in the order of the file; what nobody could notice is left out.

    >>> [slip.what for slip in list_slips("def f(x):\\n    return x[1:] + 2 * x")]
    ['f: x[1:] + 2 * x becomes x[1:] - 2 * x', 'f: x[1:] becomes x[2:]', 'f: 2 * x becomes 2 / x', \
'f: 2 * x becomes 3 * x']
    """
    finder = _Finder(source)
    finder.walk(ast.parse(source), [], ())
    return finder.found


class _Finder:
    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Slip] = []
        self._lines = source.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]

    def walk(self, node: ast.AST, around: list[ast.AST], place: tuple[str, ...]) -> None:
        """Slips of a node and of all that is in it; `around` is what it is part of, `place` the names of that."""
        if _is_unseen(node):
            return
        around = [*around, node]
        for start, stop, new, shown in self._list(node, around):
            statement = next(x for x in reversed(around) if isinstance(x, ast.stmt))
            what = f"{'.'.join(place) or 'top'}: {self._tell(start, stop, new, shown)}"
            self.found.append(Slip(start, stop, new, self._span(statement)[0], what))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = (*place, node.name)
        for name, value in ast.iter_fields(node):
            if name not in UNSEEN_FIELDS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.walk(child, around, place)

    def _tell(self, start: int, stop: int, new: str, shown: ast.AST | None) -> str:
        """What becomes what, as far as it is near the change; of what stands in no expression, its line."""
        line = self.source.rfind("\n", 0, start) + 1, self.source.find("\n", stop) % (len(self.source) + 1)
        first, last = line if shown is None else self._span(shown)
        left, right = self.source[first:start], self.source[stop:last]
        # cut at a space
        left = left if len(left) <= NEAR else f"… {left[-NEAR:].partition(' ')[2]}"
        right = right if len(right) <= NEAR else f"{right[:NEAR].rpartition(' ')[0]} …"
        texts = (" ".join(f"{left}{text}{right}".split()) for text in (self.source[start:stop], new))
        before, after = (text[: 3 * NEAR] for text in texts)
        return f"{before} is dropped" if new == "pass" else f"{before} becomes {after}"

    def _list(self, node: ast.AST, around: list[ast.AST]) -> Iterator[tuple[int, int, str, ast.AST | None]]:
        """From, to, what stands there then, and the node that shows it."""
        if _can_be_dropped(node):
            yield *self._span(node), "pass", node
        if isinstance(node, ast.If | ast.IfExp):
            yield from self._negate(node.test)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            yield from self._turn(node.value)
        elif isinstance(node, ast.Compare):
            for left, right in pairwise([node.left, *node.comparators]):
                yield from self._swap(left, right, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            if not _is_glued(node.left) and not _is_glued(node.right):
                yield from self._swap(node.left, node.right, node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ARITHMETIC):
            if not _is_glued(node.value):
                yield from self._swap(node.target, node.value, node)
        elif isinstance(node, ast.BoolOp):
            yield from self._swap(*node.values[:2], node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start, _ = self._span(node)
            yield start, start + len(re.match(r"not\s*", self.source[start:])[0]), "", node  # type: ignore[index]
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
            new = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
            # a number says little without what it is part of
            yield *self._span(node), new, next((x for x in reversed(around) if isinstance(x, TELLING)), None)
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                if isinstance(bound, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.BinOp):
                    _, stop = self._span(bound)
                    yield stop, stop, " + 1", around[-2]
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in CALLS:
                _, stop = self._span(node.func)
                yield stop - len(name), stop, CALLS[name], node

    def _negate(self, test: ast.expr) -> Iterator[tuple[int, int, str, ast.AST]]:
        is_swapped = isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], ORDERED)
        if not is_swapped and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            start, stop = self._span(test)
            yield start, stop, f"not ({self.source[start:stop]})", test

    def _turn(self, call: ast.Call) -> Iterator[tuple[int, int, str, ast.AST]]:
        if len(call.args) > 1 and not any(isinstance(x, ast.Starred | ast.GeneratorExp) for x in call.args[:2]):
            (start, end), (begin, stop) = map(self._span, call.args[:2])
            one, two = self.source[start:end], self.source[begin:stop]
            if one != two:
                yield start, stop, two + self.source[end:begin] + one, call

    def _swap(self, left: ast.AST, right: ast.AST, node: ast.AST) -> Iterator[tuple[int, int, str, ast.AST]]:
        """The operator between two nodes; where a comment stands between them, nobody guesses."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[begin:end]
        found = OPERATOR.search(gap)
        if found and "#" not in gap:
            yield begin + found.start(), begin + found.end(), SWAPS[" ".join(found[0].split())], node

    def _span(self, node: ast.AST) -> tuple[int, int]:
        ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        # columns are counted in bytes
        start, stop = (
            self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode()) for line, column in ends
        )
        return start, stop


def _is_unseen(node: ast.AST) -> bool:
    """Whether all of a node is what nobody runs, or could notice."""
    if isinstance(node, UNSEEN_NODES):
        return True
    if isinstance(node, ast.FunctionDef):
        return node.name in UNSEEN_FUNCTIONS
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    if isinstance(node, ast.Assign):
        return any(isinstance(x, ast.Name) and x.id in UNSEEN_NAMES for x in node.targets)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id in UNSEEN_TYPES
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        node = node.value
    if isinstance(node, ast.Call):
        return (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) in UNSEEN_CALLS
    return isinstance(node, ast.keyword) and node.arg in UNSEEN_OPTIONS


def _can_be_dropped(node: ast.AST) -> bool:
    """A call for its effect, a yield, or what is written to an attribute or an entry."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom)
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_written = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and getattr(node, "value", None)
    return bool(is_written) and all(isinstance(x, ast.Attribute | ast.Subscript) for x in targets)


def _is_glued(node: ast.AST) -> bool:
    return isinstance(node, GLUED) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
