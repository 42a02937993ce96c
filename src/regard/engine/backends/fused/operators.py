"""The kernels as operators of torch, for compilers and for whoever is told of every operator.

A compiled model calls `attend_fused` and `attend_fused_back` each time it runs, and a small call leaves no time for
more than to start the kernels. So these two have no autograd of their own, one text says all that is the same each
time, and what follows from it is found once. `attend_fused_call` has a gradient, and is in no graph that runs: whoever
traces it takes it apart into the two.

Graphs that torch keeps on disk go by the names and arguments here: what changes their meaning needs another name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.engine.backends.fused.asked import Asked, Symbols, list_made, list_names, name_words, read_text, write
from regard.engine.backends.fused.borrowed import as_logsumexp, as_rows_are_kept, could_borrow
from regard.engine.backends.fused.kind import find_kind, keep, recall
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.terms import LEARNED, complete, lay_out, stride_rows
from regard.engine.backends.fused.work import Seeds, is_borrowed, may_lend, run_backward, run_forward


def ask(order: Order, seeds: Seeds, by_name: bool) -> Tensor:
    """The output of an order, with a gradient where one is needed."""
    recipe, query, key, value, *learned, marks = order
    terms = [x for x in (*learned, *marks.values()) if x is not None]
    words = name_words(named=by_name, sink=order.sink is not None)
    drawn = list(seeds) if recipe.draws or recipe.dropout else None
    out: Tensor = _whole(query, key, value, terms, str(recipe), recipe.reach, recipe.numbers, words, drawn)
    return out


def ask_back(
    asked: Asked, grad: Tensor, tensors: Sequence[Tensor], out: Tensor, stat: Tensor | None, wants: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of the tensors that a text is about: those that have one, and want it."""
    names = list_names(*read_text(asked.text))
    wanted = {name for name, is_wanted in zip(names, wants, strict=False) if is_wanted}
    # each takes a kernel or a sum of its own
    words = name_words(dweight="weight" in wanted, dbias="bias" in wanted)
    asked = asked._replace(text=f"{asked.text},{words}")
    if torch.is_grad_enabled():
        made = _Back.apply(asked, grad, out, stat, *tensors)  # type: ignore[no-untyped-call]
    else:
        query, key, value, *terms = tensors
        made = _backward(grad, query, key, value, terms, out, stat, *asked)
    found = dict(zip(list_made(*read_text(asked.text)), made, strict=True))
    return [found.get(name) for name in names]


class _Task:
    """What a text asks of tensors of one sort."""

    __slots__ = ("count", "is_whole", "keeps", "keeps_one", "kind", "names", "wants")

    def __init__(self, text: str, symbols: Symbols, tensors: Sequence[Tensor]) -> None:
        recipe, words = read_text(text, None if symbols is None else tuple(symbols))
        self.names = list_names(recipe, words)
        self.count = len(self.names) - len(recipe.marks)
        named = dict(zip(self.names, tensors, strict=True))
        weight, sink, bias = (named.get(name) for name in LEARNED[3:])
        marks = {name: named[name] for name in recipe.marks}
        order = Order(recipe, tensors[0], tensors[1], tensors[2], weight, sink, bias, marks)
        self.kind = find_kind(order, "named" not in words)
        # whether the kernels read these tensors, and no other
        self.is_whole = self.count == 3 or (self.count == 4 and recipe.bias in ("dense", "slopes"))
        self.keeps, self.keeps_one = "keeps" in words, "one" in words
        made = list_made(recipe, words)
        self.wants = [name in made for name in self.names[: self.count]]

    def hold(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The tensors of a call by their names."""
        if self.is_whole:
            return dict(zip(self.names, tensors, strict=True))
        held = dict(zip(self.names[: self.count], tensors, strict=False))
        marks = dict(zip(self.names[self.count :], tensors[self.count :], strict=True))
        return complete(self.kind.recipe, held, marks)


def _find(text: str, symbols: Symbols, tensors: Sequence[Tensor]) -> _Task:
    """The task of a text, as it was found for the first tensors of their sort."""
    name: list[Any] = [text, symbols and tuple(symbols), tensors[0].device]
    for x in tensors:
        name += (x.dtype, x.shape, x.stride(), x.data_ptr() % 16)
    sort = tuple(name)
    task: _Task | None = recall(sort)
    return keep(sort, _Task(text, symbols, tensors)) if task is None else task


def _attend(
    query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Tensor], text: str, symbols: Symbols = None,
    seeds: Seeds | None = None,
) -> list[Tensor]:  # fmt: skip
    """The output; and what is kept: the rows' statistic, and the output in float32, each where gradients need it."""
    tensors = (query, key, value, *terms)
    task = _find(text, symbols, tensors)
    kind, keeps = task.kind, task.keeps
    borrows = is_borrowed(kind, keeps)
    out, stat, _ = run_forward(kind, task.hold(tensors), seeds or (0, 0), keeps, borrows)
    if borrows:
        out = _lay_out_anew(out, query)
    if stat is None or not keeps:
        return [out]
    if task.keeps_one != borrows:
        stat = as_rows_are_kept(stat) if borrows else as_logsumexp(stat)
    return [out, stat] if out.dtype == value.dtype else [out.to(value.dtype), stat, out]


def _imagine(
    query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Tensor], text: str, symbols: Symbols = None,
    seeds: Seeds | None = None,
) -> list[Tensor]:  # fmt: skip
    """Tensors as `_attend` makes them, without numbers."""
    recipe, words = read_text(text)
    out = lay_out(query, value.shape[-1], value.dtype)
    if "keeps" not in words or not (recipe.solves or recipe.keeps_rows):
        return [out]
    b, h, n, _ = query.shape
    stat = value.new_empty((b, h, n, 1) if "one" in words else (2, b, h, n), dtype=torch.float32)
    exact = [lay_out(query, value.shape[-1], torch.float32)] if recipe.keeps_exact(value.dtype) else []
    return [out, stat, *exact]


def _differentiate(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Tensor], out: Tensor, stat: Tensor | None,
    text: str, symbols: Symbols = None, seeds: Seeds | None = None,
) -> list[Tensor]:  # fmt: skip
    """The gradients of query, key and value, and those of weight, sink and bias that are there and wanted."""
    tensors = (query, key, value, *terms)
    task = _find(text, symbols, tensors)
    kind = task.kind
    borrows = is_borrowed(kind, True)
    if stat is not None and task.keeps_one != borrows:
        stat = as_logsumexp(stat) if borrows else as_rows_are_kept(stat)
    made = run_backward(kind, task.hold(tensors), seeds or (0, 0), borrows, grad, out, stat, task.wants)
    if borrows:
        return [_lay_out_anew(x, own) for x, own in zip(made, tensors, strict=True) if x is not None]
    # sums of a weight and of buckets may lie between others
    return [x.contiguous() if at > 2 else x for at, x in enumerate(made) if x is not None]


def _imagine_back(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Tensor], out: Tensor, stat: Tensor | None,
    text: str, symbols: Symbols = None, seeds: Seeds | None = None,
) -> list[Tensor]:  # fmt: skip
    """Tensors as `_differentiate` makes them, without numbers."""
    recipe, words = read_text(text)
    named = dict(zip(list_names(recipe, words), (query, key, value, *terms), strict=True))
    learned = [named[name] for name in list_made(recipe, words)[3:]]
    rows = [lay_out(x, x.shape[-1], x.dtype) for x in (query, key, value)]
    return [*rows, *(x.new_empty(x.shape) for x in learned)]


def _lay_out_anew(x: Tensor, rows: Tensor) -> Tensor:
    """Rows as a compiler was told that they lie, which cuDNN's may not."""
    width = x.shape[-1]
    lies = zip(x.shape, x.stride(), stride_rows(rows, width)[1], strict=True)
    is_there = all(one == other for size, one, other in lies if size > 1)
    return x if is_there else lay_out(rows, width, x.dtype).copy_(x)


def _call(
    query: Tensor, key: Tensor, value: Tensor, terms: Sequence[Tensor], recipe: str, reach: Sequence[int],
    numbers: Sequence[float], words: str, seeds: Seeds | None,
) -> Tensor:  # fmt: skip
    """The output by `attend_fused`, with `attend_fused_back` for its gradient."""
    asked = write(recipe, reach, numbers, words, seeds)
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value, *terms))):
        made: list[Tensor] = _forward(query, key, value, terms, *asked)
        return made[0]
    more = name_words(keeps=True, one=_may_keep_one(asked, query, key, value))
    out: Tensor = _Learning.apply(  # type: ignore[no-untyped-call]
        asked._replace(text=f"{asked.text},{more}"), query, key, value, *terms
    )
    return out


def _may_keep_one(asked: Asked, *rows: Tensor) -> bool:
    """Whether cuDNN will run it, by all that is known before it runs: then its own statistic is what is kept."""
    sizes = [x for row in rows for x in (*row.shape, *row.stride())]
    if asked.symbols is not None or not all(type(x) is int for x in sizes):
        return False
    recipe, words = read_text(asked.text)
    return not words & {"named", "sink"} and may_lend() and could_borrow(recipe, *rows, learns=True)


class _Learning(torch.autograd.Function):
    """The two operators, one the gradient of the other."""

    @staticmethod
    def forward(ctx: Any, asked: Asked, query: Tensor, key: Tensor, value: Tensor, *terms: Tensor) -> Tensor:
        out, *kept = _forward(query, key, value, terms, *asked)
        stat, exact = (*kept, None, None)[:2]
        ctx.asked = asked
        ctx.save_for_backward(query, key, value, *terms, out if exact is None else exact, stat)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        # read once: whoever keeps them elsewhere brings them back each time
        *tensors, out, stat = ctx.saved_tensors
        return None, *ask_back(ctx.asked, grad, tensors, out, stat, ctx.needs_input_grad[1:])


class _Back(torch.autograd.Function):
    """The operator of gradients, whose own gradient is refused."""

    @staticmethod
    def forward(
        ctx: Any, asked: Asked, grad: Tensor, out: Tensor, stat: Tensor | None, query: Tensor, key: Tensor,
        value: Tensor, *terms: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return tuple(_backward(grad, query, key, value, terms, out, stat, *asked))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        raise RegardError("backend='fused' has no second derivative. Use backend='tiled'.")


# an earlier import of this module gives way
if (_earlier := vars(torch.ops.regard).pop("fused_library", None)) is not None:
    _earlier._destroy()
_library = vars(torch.ops.regard)["fused_library"] = torch.library.Library("regard", "FRAGMENT")


def _define(schema: str, run: Callable[..., Any], imagine: Callable[..., Any] | None = None) -> Any:
    """An operator: of kernels, and of what they are said to make; or of other operators."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=torch.Tag.pt2_compliant_tag)
    if imagine is None:
        _library.impl(name, run, "CompositeImplicitAutograd")
    else:
        # the CPU has Triton's interpreter
        for device in ("CUDA", "CPU"):
            _library.impl(name, run, device)
        torch.library.register_fake(f"regard::{name}", imagine, lib=_library)
    return getattr(torch.ops.regard, name).default


_ROWS = "Tensor query, Tensor key, Tensor value, Tensor[] terms"
_ASKED = "str text, SymInt[]? symbols=None, SymInt[]? seeds=None"
_TOLD = "str recipe, SymInt[] reach, float[] numbers, str words, SymInt[]? seeds"
_GRAD, _KEPT = "Tensor grad", "Tensor out, Tensor? stat"
_forward = _define(f"attend_fused({_ROWS}, {_ASKED}) -> Tensor[]", _attend, _imagine)
_backward = _define(
    f"attend_fused_back({_GRAD}, {_ROWS}, {_KEPT}, {_ASKED}) -> Tensor[]", _differentiate, _imagine_back
)
_whole = _define(f"attend_fused_call({_ROWS}, {_TOLD}) -> Tensor", _call)
