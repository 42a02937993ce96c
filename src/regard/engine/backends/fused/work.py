"""A call at work: the passes of its kind run on its tensors, or cuDNN's kernels and what heals them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.backward import Backward, make_backward_heal
from regard.engine.backends.fused.borrowed import attend_borrowed, differentiate_borrowed
from regard.engine.backends.fused.forward import make_forward, make_forward_heal
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.terms import as_word

# so many numbers of features wait for the backward pass: to lay out few again takes as long as to read them
_FEW = 2**23
# for dropout, and for draws of hard attention
Seeds = tuple[int, int]
Held = dict[str, Tensor]


def is_borrowed(kind: Kind, learns: bool) -> bool:
    """Whether cuDNN runs a call of this kind now."""
    return (kind.may_borrow_learning if learns else kind.may_borrow) and may_lend()


def may_lend() -> bool:
    """Whether cuDNN may run anything now."""
    # its gradients differ by rounding from run to run, and a caller may have switched it off
    return not torch.are_deterministic_algorithms_enabled() and torch.backends.cuda.cudnn_sdp_enabled()


def run_forward(
    kind: Kind, held: Held, seeds: Seeds, keeps: bool, borrows: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The output, in float32 where a backward pass needs it so; the rows' statistic where it needs that, and their
    features where they are few."""
    if borrows:
        return *_forward_borrowed(kind, held, keeps), None
    work = kind.forward.get(keeps)
    if work is None:
        work = kind.forward[keeps] = make_forward(kind, held, keeps)
    made = work.run(list(held.values()), as_words(kind, seeds))
    stat, at = made[1] if "stat" in work.places else None, work.places.get("features")
    features = None if at is None else made[at - len(work.names)]
    return made[0], stat, features if features is not None and features.numel() <= _FEW else None


def _forward_borrowed(kind: Kind, held: Held, keeps: bool) -> tuple[Tensor, Tensor | None]:
    rows = held["query"], held["key"], held["value"]
    out, logsumexp = attend_borrowed(*rows, kind.recipe.scale, keeps)
    made = [*rows, out, logsumexp] if keeps else [*rows, out]
    sort = "heal", keeps, out.stride()
    heal = kind.forward.get(sort)
    if heal is None:
        heal = kind.forward[sort] = make_forward_heal(kind, made)
    heal.run(made)
    return out, logsumexp if keeps else None


def run_backward(
    kind: Kind, held: Held, seeds: Seeds, borrows: bool, grad: Tensor, out: Tensor, stat: Tensor | None,
    wants: Sequence[bool], features: Tensor | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of query, key and value, and of those of weight, sink and bias that are there and want one."""
    if borrows:
        rows = held["query"], held["key"], held["value"]
        pulled = differentiate_borrowed(grad, *rows, out, _there(stat), kind.recipe.scale)
        # who keeps tensors elsewhere may bring them back otherwise
        lie = tuple([(x.stride(), x.data_ptr() % 16) for x in (*rows, out, _there(stat))])
        heal_borrowed(kind, rows, grad, out, _there(stat), pulled, lie)
        return list(pulled)
    given = [*held.values(), grad, out]
    if stat is not None:
        given.append(stat)
    if features is not None:
        given.append(features)
    # kernels are compiled for how these lie; who keeps tensors elsewhere may bring them back otherwise
    sort = grad.dtype, features is None, *wants[3:], *[(x.stride(), x.data_ptr() % 16) for x in given]
    work: Backward | None = kind.backward.get(sort)
    if work is None:
        beside = {"grad": grad, "out": out, "stat": stat, "features": features}
        named = held | {name: x for name, x in beside.items() if x is not None}
        work = kind.backward[sort] = Backward(kind, named, wants[3:])
    made = work.run(given, as_words(kind, seeds))
    found: list[Tensor | None] = [*made[:3]]
    if len(wants) > 3:
        found += work.sum_up(held, stat, made)
    return found


def heal_borrowed(
    kind: Kind, rows: Sequence[Tensor], grad: Tensor, out: Tensor, logsumexp: Tensor, made: Sequence[Tensor],
    lie: Any = None,
) -> None:  # fmt: skip
    """Heal the gradients of query, key and value that cuDNN made, where they are; `lie` tells how the rest lies, if not
    as in the forward call."""
    given = [*rows, grad, out, logsumexp, *made]
    sort = "heal", lie, grad.stride(), grad.data_ptr() % 16, *[x.stride() for x in made]
    heal = kind.backward.get(sort)
    if heal is None:
        heal = kind.backward[sort] = make_backward_heal(kind, given)
    heal.run(given)


def as_words(kind: Kind, seeds: Seeds) -> Sequence[int]:
    """Seeds as kernels take them, where they take any."""
    if not kind.is_random:
        return ()
    return as_word(seeds[0]), as_word(seeds[1])


def _there(x: Tensor | None) -> Tensor:
    assert x is not None, "it was kept"
    return x
