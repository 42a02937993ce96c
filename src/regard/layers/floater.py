"""FLOATER, a positional encoding from a learned differential equation: https://arxiv.org/abs/2003.09229."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import RegardError
from regard.extras import install
from regard.layers.inputs import check_rate
from regard.layers.positional import check_count, check_offset, check_sequence, find_positions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class Flow(nn.Module):
    """The vector field of a neural ODE: dp/dt = W_2·[act(W_1·[p, t]), t] of an encoding p, with biases.

    >>> Flow(num_hiddens=3)(torch.tensor(0.5), torch.ones(3))
    tensor([0., 0., 0.], grad_fn=<ViewBackward0>)

    `W_2` is initialised to zero, and the flow with it: at first nothing moves.
    """

    def __init__(self, num_hiddens: int, activation: str = "relu") -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        if activation not in ACTIVATIONS:
            raise RegardError(f"Flow activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
        self.num_hiddens, self.activation = num_hiddens, activation
        self.W_1 = nn.Linear(num_hiddens + 1, num_hiddens)
        self.W_2 = nn.Linear(num_hiddens + 1, num_hiddens)
        nn.init.zeros_(self.W_2.weight)
        nn.init.zeros_(self.W_2.bias)

    def forward(self, t: Tensor, p: Float[Tensor, "... num_hiddens"]) -> Float[Tensor, "... num_hiddens"]:
        time = t.to(p.dtype).expand(*p.shape[:-1], 1)
        hidden = ACTIVATIONS[self.activation](_project(self.W_1, torch.cat((p, time), -1)))
        return _project(self.W_2, torch.cat((hidden, time), -1))

    def extra_repr(self) -> str:
        return f"num_hiddens={self.num_hiddens}, activation={self.activation}"


class Floater(nn.Module):
    """A positional encoding p(t) that solves dp/dt = flow(t, p), added to each row at t = position · spacing.

    >>> X = torch.ones(2, 5, 4)
    >>> Floater(num_hiddens=4)(X).equal(X)
    True

    `initial`, the encoding of position 0, is initialised to zero, and so is the flow: until it has learned the layer
    returns X bit for bit, so that it may be put into a trained model. Several blocks share their motion by `flow=`, any
    module of (t, p), each with an `initial` of its own. The equation is solved by `torchdiffeq` (`pip install
    regard[ode]`), in float32 at least, with `steps` Runge–Kutta steps between neighbours; there is no longest
    sequence. `adjoint` solves backwards for gradients, in memory that does not grow with `steps`.

    A call solves from position 0 to its last, one step after another, also when `offset`, the position of its first
    row, is late. Under torch.compile the same steps are a loop in the graph; one offset for each sequence breaks it.
    """

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        flow: nn.Module | None = None,
        spacing: float = 0.01,
        steps: int = 5,
        adjoint: bool = False,
    ) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        check_count(self, "steps", steps)
        check_rate(self, dropout)
        if not spacing > 0:
            raise RegardError(f"Floater spacing must be positive, got {spacing}.")
        if isinstance(flow, Flow) and flow.num_hiddens != num_hiddens:
            raise RegardError(
                f"Floater has num_hiddens={num_hiddens} and its flow {flow.num_hiddens}: give both the same."
            )
        # said before hours of training, not in its first step
        _find_solver(adjoint)
        self.num_hiddens, self.spacing, self.steps, self.adjoint = num_hiddens, spacing, steps, adjoint
        self.dropout = nn.Dropout(dropout)
        self.flow: nn.Module = Flow(num_hiddens) if flow is None else flow
        self.initial = nn.Parameter(torch.zeros(num_hiddens))

    def forward(
        self,
        X: Float[Tensor, "batch positions num_hiddens"],
        offset: int | Tensor = 0,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        check_sequence(self, X, self.num_hiddens)
        check_offset(self, offset, X.shape[0])
        n = X.shape[1]
        if isinstance(offset, Tensor):
            latest = int(offset.max()) if offset.numel() else 0
            rows = F.embedding(find_positions(offset, n, X.device), self.solve(latest + n))
        else:
            rows = self.solve(offset + n)[offset:]
        # p is added by taking −p away: where p is zero, −0.0 in X stays −0.0
        out: Tensor = self.dropout(X - (0 - rows.to(X.dtype)))
        return out

    def solve(self, count: int) -> Float[Tensor, "count num_hiddens"]:
        """The encodings of the first `count` positions."""
        work = torch.promote_types(self.initial.dtype, torch.float32)
        start = self.initial.to(work)
        times = torch.arange(count, dtype=torch.float64, device=start.device) * self.spacing
        # half precision cannot tell late times apart
        with torch.autocast(start.device.type, enabled=False):
            if count < 2:
                return start.expand(count, -1)
            if torch.compiler.is_compiling():
                return self._unroll(start, times)
            # a grid through every position, so that nothing is interpolated
            options = {"grid_constructor": lambda flow, p, t: _divide(t, self.steps)}
            solution: Tensor = _find_solver(self.adjoint)(self.flow, start, times, method="rk4", options=options)
            return solution

    def _unroll(self, start: Tensor, times: Tensor) -> Tensor:
        """The same steps in a form that a compiler takes whole: `torchdiffeq` looks into its tensors."""
        from torch._higher_order_ops.scan import scan

        def advance(p: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
            p = _step(self.flow, ends[0], ends[1], p)
            return p, p.clone()

        grid = _divide(times, self.steps)
        _, rest = scan(advance, start, torch.stack((grid[:-1], grid[1:]), -1))
        return torch.cat((start.unsqueeze(0), rest[self.steps - 1 :: self.steps]))

    def extra_repr(self) -> str:
        return f"num_hiddens={self.num_hiddens}, spacing={self.spacing}, steps={self.steps}, adjoint={self.adjoint}"


def _project(linear: nn.Linear, rows: Tensor) -> Tensor:
    """The linear layer in the dtype of its input, which may be wider than its own."""
    return F.linear(rows, linear.weight.to(rows.dtype), linear.bias.to(rows.dtype))


def _divide(times: Tensor, steps: int) -> Tensor:
    """The times, forwards or backwards, and `steps` − 1 between any two of them."""
    parts = torch.arange(steps, dtype=times.dtype, device=times.device) / steps
    between = times[:-1, None] + (times[1:] - times[:-1])[:, None] * parts
    return torch.cat((between.flatten(), times[-1:]))


def _step(flow: Callable[[Tensor, Tensor], Tensor], start: Tensor, end: Tensor, p: Tensor) -> Tensor:
    """One step of the fourth-order Runge–Kutta method that `torchdiffeq` calls rk4, Kutta's 3/8 rule."""
    dt = (end - start).to(p.dtype)
    a = flow(start, p)
    b = flow(start + (end - start) / 3, p + dt * a / 3)
    c = flow(start + (end - start) * 2 / 3, p + dt * (b - a / 3))
    d = flow(end, p + dt * (a - b + c))
    return p + (a + 3 * (b + c) + d) * dt / 8


def _find_solver(adjoint: bool) -> Callable[..., Any]:
    try:
        import torchdiffeq
    except ImportError:
        raise RegardError(f"Floater needs torchdiffeq, which is not installed: {install('ode')}.") from None
    solver: Callable[..., Any] = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
    return solver
