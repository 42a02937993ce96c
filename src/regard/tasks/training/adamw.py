"""AdamW and the clipping of gradients, without what torch finds out anew at each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class AdamW(torch.optim.AdamW):
    """torch's AdamW, to the last bit; where all parameters have gradients, it lists what it keeps of them once.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
    >>> for _ in range(2):
    ...     weight.grad = torch.ones(1)
    ...     _ = optimizer.step()
    >>> round(weight.item(), 4)
    0.8
    """

    # by the group that they are of: whether any is complex, and the lists that torch asks for
    _kept: dict[int, tuple[bool, tuple[list[Tensor], ...]]]

    def __init__(self, *args: Any, **options: Any) -> None:
        self._kept = {}
        super().__init__(*args, **options)

    def _init_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], *states: Any) -> Any:
        found = [x.grad for x in group["params"]]
        kept = self._kept.get(id(group))
        if kept is None or any(x is None for x in found):
            is_complex = super()._init_group(group, params, grads, *states)  # type: ignore[no-untyped-call]
            if len(params) == len(found):
                self._kept[id(group)] = is_complex, tuple(list(one) for one in states)
            return is_complex
        params += group["params"]
        grads += found
        for given, own in zip(states, kept[1], strict=True):
            given += own
        return kept[0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        # also what loading a state comes to
        self._kept = {}
        super().__setstate__(state)  # type: ignore[no-untyped-call]


@torch.no_grad()
def clip_gradients(gradients: list[Tensor], most: float) -> None:
    """What `torch.nn.utils.clip_grad_norm_` does to gradients of one dtype on one device.

    >>> gradients = [torch.tensor([3.0]), torch.tensor([4.0])]
    >>> clip_gradients(gradients, 1.0)
    >>> [round(x.item(), 3) for x in gradients]
    [0.6, 0.8]
    """
    if not gradients:
        return
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
