"""Which backend takes a call, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from regard.core import RegardError
from regard.engine.backends import compiled, edges, fused, reference, sdpa, tiled
from regard.engine.call import Call, Cost
from regard.engine.double_backward import Again


class Backend(Protocol):
    """The interface of a backend: a module that says which calls it takes and what they cost, and runs them."""

    # True: `run` wants rows in the compute dtype, and a key head for each query head, as `fold.lift` makes them;
    # False: (b, h, n, d), (b, g, m, c) and (b, g, m, e) in the caller's dtype, with the call as it is
    LIFTS: bool
    # True: NaN and infinity under a mask are its own matter; False: `attend` takes them out before
    HANDLES_NAN: bool
    # True: its gradient can be differentiated (double backward); False: `run` is handed what does that
    TWICE_DIFFERENTIABLE: bool
    # True: `run` multiplies in torch, which autocast would change; False: nothing does but what a score makes of rows
    AUTOCASTS: bool
    # True: a compiler may trace `run`, its kernels being operators of torch; False: the call as a whole is one
    TRACEABLE: bool

    @property
    def errs(self) -> Callable[[Call, Tensor, Tensor, Tensor], bool] | None:
        """Whether it would be wrong for these numbers: `tiled` then takes the call, named or not. None: never."""

    def refuse(self, call: Call) -> str | None:
        """Why it cannot take the call, or None."""

    def decline(self, call: Call) -> str | None:
        """Why another backend is better for the call, or None."""

    def estimate(self, call: Call) -> Cost:
        """The estimated cost of the call."""

    def run(self, call: Call, query: Tensor, key: Tensor, value: Tensor, again: Again | None = None) -> Tensor:
        """The result (b, h, n, e); it may come in another dtype than the caller's.

        `again` makes it of the same tensors by `tiled`, for who differentiates a gradient that cannot be.
        """


# in the order in which `auto` asks
BACKENDS: dict[str, Backend] = {
    "edges": edges, "sdpa": sdpa, "fused": fused, "tiled": tiled, "compiled": compiled, "reference": reference,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The backend of a call, why not each of the others, and what the chosen one will cost."""

    call: Call
    backend: str
    by_name: bool = False

    @property
    def refusals(self) -> dict[str, str]:
        """Each other backend with its reason: what it cannot do, or what the chosen one does better."""
        others = {name: module for name, module in BACKENDS.items() if name != self.backend}
        better = f"backend={self.backend!r} was asked for." if self.by_name else f"{self.backend} comes first."
        return {
            name: module.refuse(self.call) or module.decline(self.call) or better for name, module in others.items()
        }

    @property
    def cost(self) -> Cost:
        return BACKENDS[self.backend].estimate(self.call)

    def __str__(self) -> str:
        s, call = self.call.sizes, self.call
        heads = f" {s.h} heads" + (f" on {s.g}" if s.g != s.h else "") if s.has_heads else ""
        what = f"{s.b} × {heads.strip() + ' × ' if heads else ''}{s.n} queries × {s.m} keys"
        terms = [f"score {call.score}", f"weigh {call.weigh}", f"mask {call.mask}"]
        terms += [f"bias {call.bias}"] if call.bias is not None else []
        terms += [f"dropout {call.dropout}"] if call.dropout else []
        lines = [
            f"{what}, widths {s.d}, {s.c}, {s.e}, {str(s.dtype).removeprefix('torch.')} on {s.device}",
            " · ".join(terms),
            f"backend {self.backend}: about {self.cost}",
        ]
        return "\n".join(lines + [f"  not {name}: {why}" for name, why in self.refusals.items()])


def plan(call: Call, backend: str) -> Plan:
    """Choose the backend of a call: the first that takes it, or the one that is named; raises where that cannot."""
    if backend == "auto":
        for name, module in BACKENDS.items():
            if module.refuse(call) is None and module.decline(call) is None:
                return Plan(call, name)
        raise AssertionError("tiled takes everything")
    if not isinstance(backend, str) or backend not in BACKENDS:
        names = ", ".join(repr(name) for name in ("auto", *BACKENDS))
        raise RegardError(f"backend must be one of {names}, got {backend!r}.")
    why = BACKENDS[backend].refuse(call)
    if why is not None:
        raise RegardError(f"backend={backend!r} cannot take this call: {why} Use backend='auto', or see explain(...).")
    return Plan(call, backend, by_name=True)
