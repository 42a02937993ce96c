"""A graph as sparse matrices, and the products of attention along its edges; each is another's gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from regard.engine.vmap import check_batched
from regard.mask import Edges
from regard.mask.edges import Neighbourhoods


class Graph:
    """Neighbourhoods, the places of their edges in order: those of a query side by side, some more than once.

    What fills up a neighbourhood has a weight of zero.
    """

    def __init__(self, groups: list[Neighbourhoods], m: int) -> None:
        self.groups, self.m = groups, m
        self.rows = torch.cat([group.rows for group in groups])
        self.keys = torch.cat([group.keys.flatten() for group in groups])
        widths = [torch.full_like(group.rows, group.keys.shape[1]) for group in groups]
        self.starts = _count_up(torch.cat(widths))
        # of each edge the place of its query
        self.owners = torch.repeat_interleave(torch.arange(len(self.rows)), torch.cat(widths))
        # MKL reads these twice as fast
        self.few = torch.int32 if max(len(self.keys), m) < 2**31 else torch.int64

    @cached_property
    def forth(self) -> tuple[Tensor, Tensor]:
        """Queries by keys, as rows of a sparse matrix."""
        return self.starts.to(self.few), self.keys.to(self.few)

    @cached_property
    def turned(self) -> tuple[Tensor, Tensor, Tensor]:
        """Edges in the order of their keys; keys by queries, and keys by edges, as rows of sparse matrices."""
        order = torch.argsort(self.keys, stable=True)
        starts = _count_up(torch.bincount(self.keys, minlength=self.m))
        return order, starts.to(self.few), self.owners[order].to(self.few)

    def cut(self, x: Tensor) -> Iterator[tuple[Tensor, Neighbourhoods]]:
        """Numbers of edges (b, h, edges, …) by their groups."""
        sizes = [group.keys.numel() for group in self.groups]
        return zip(x.split(sizes, 2), self.groups, strict=True)

    def gather(self, x: Tensor) -> Tensor:
        """Of keys (c, m, d) those at the edges, (c, edges, d)."""
        found: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return found

    def collect(self, x: Tensor) -> Tensor:
        """The sum over the edges of each key, (c, m, d)."""
        found: Tensor = _Collect.apply(x, self)  # type: ignore[no-untyped-call]
        return found

    def mix(self, weights: Tensor, x: Tensor, is_turned: bool = False) -> Tensor:
        """For each query the sum of its keys' rows by weights (c, edges); turned, for each key that of its queries'."""
        found: Tensor = _Mix.apply(weights, x, self, is_turned)  # type: ignore[no-untyped-call]
        return found

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """The dot product at each edge, (c, edges)."""
        found: Tensor = _Compare.apply(query, key, self)  # type: ignore[no-untyped-call]
        return found


def find_graph(edges: Edges, n: int, m: int) -> Graph:
    """The graph of a mask for so many queries and keys, kept with it."""
    made = edges.made
    if (n, m) not in made:
        # it serves calls with gradients, too
        with torch.inference_mode(False):
            made[n, m] = Graph(edges.neighbourhoods, m)
    found: Graph = made[n, m]
    return found


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return x.index_select(1, graph.keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        check_batched(grad)
        return ctx.graph.collect(grad), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        order, starts, _ = graph.turned
        ones = x.new_ones(len(order))
        matrix = _build(starts, order.to(graph.few), ones, (graph.m, len(order)))
        return _multiply(lambda _: matrix, x, graph.m)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        check_batched(grad)
        return ctx.graph.gather(grad), None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, x: Tensor, graph: Graph, is_turned: bool) -> Tensor:
        ctx.graph, ctx.is_turned = graph, is_turned
        ctx.save_for_backward(weights, x)
        (starts, ends), shape = graph.forth, (len(graph.rows), graph.m)
        if is_turned:
            order, starts, ends = graph.turned
            weights, shape = weights[:, order], (graph.m, len(graph.rows))
        return _multiply(lambda at: _build(starts, ends, weights[at], shape), x, shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        check_batched(grad)
        weights, x = ctx.saved_tensors
        pair = (x, grad) if ctx.is_turned else (grad, x)
        return ctx.graph.compare(*pair), ctx.graph.mix(weights, grad, not ctx.is_turned), None, None


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(query, key)
        if len(graph.keys) > len(graph.rows) * graph.m:
            # torch samples no more numbers than the matrix has, which is the smaller one then
            return (query @ key.mT).flatten(1)[:, graph.owners * graph.m + graph.keys]
        pattern = _build(*graph.forth, query.new_zeros(len(graph.keys)), (len(graph.rows), graph.m))
        found = query.new_empty(len(query), len(graph.keys))
        for at, (one, other) in enumerate(zip(query, key, strict=True)):
            found[at] = torch.sparse.sampled_addmm(pattern, one, other.mT, beta=0.0).values()
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        check_batched(grad)
        query, key = ctx.saved_tensors
        return ctx.graph.mix(grad, key), ctx.graph.mix(grad, query, True), None


def _count_up(counts: Tensor) -> Tensor:
    """Where each part begins, and the end."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _multiply(matrix: Callable[[int], Tensor], x: Tensor, count: int) -> Tensor:
    """A sparse matrix for each of the first axis, times its part of x."""
    found = x.new_empty(len(x), count, x.shape[-1])
    for at, part in enumerate(x):
        found[at] = matrix(at) @ part
    return found


def _build(starts: Tensor, ends: Tensor, numbers: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix by its rows."""
    _hush()
    return torch.sparse_csr_tensor(starts, ends, numbers, shape, check_invariants=False)


@cache
def _hush() -> None:
    """Let torch say here, where nobody hears it, that sparse matrices are young; it says so once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = torch.zeros(1, dtype=torch.int64)
        torch.sparse_csr_tensor(none, none[:0], none[:0], (0, 0), check_invariants=False)
