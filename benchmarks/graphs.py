"""A GAT layer on the CPU along the edges of graphs, beside PyG's GATConv where it is installed.

    python -m benchmarks.graphs

Targets are drawn at random, or as in social networks, where few have very many links. Contenders take turns; the best
of each counts. Extra memory is the most that was resident during a training call beyond what was before it, as
`benchmarks.peak` has it, the result included. What a mask sorts once is done before; its time is printed.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.peak import begin, end
from regard import attend
from regard.mask import Edges
from regard.score import Concat
from tools.arguments import Parser, read_count

HEADS, WIDTH, FEATURES = 8, 8, 64
Call = Callable[[], Tensor]


def draw_edges(nodes: int, count: int, is_heavy: bool) -> Tensor:
    """Sources and targets (2, edges), each once; where they are heavy, few nodes are the target of most."""
    noise = torch.Generator().manual_seed(0)
    source, target = torch.randint(nodes, (2, count), generator=noise)
    if is_heavy:
        target = (nodes * torch.rand(count, generator=noise).pow(3)).long().clamp(max=nodes - 1)
    return torch.unique(torch.stack([source, target]), dim=1)


class Gat(nn.Module):
    """GATConv's arithmetic by `attend`."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(FEATURES, HEADS * WIDTH, bias=False)
        self.target, self.source = (nn.Parameter(torch.randn(HEADS, WIDTH) * 0.3) for _ in range(2))

    def forward(self, rows: Tensor, mask: Edges) -> Tensor:
        heads = self.project(rows).view(-1, HEADS, WIDTH).transpose(0, 1)[None]
        out = attend(heads, heads, heads, score=Concat(self.target, self.source), mask=mask)
        return out[0].transpose(0, 1).flatten(1)


def list_contenders(rows: Tensor, ends: Tensor, mask: Edges) -> dict[str, Call]:
    layer = Gat()
    found: dict[str, Call] = {"regard": partial(layer, rows, mask)}
    if find_spec("torch_geometric") is not None:
        from torch_geometric.nn import GATConv  # type: ignore[import-not-found]

        peer = GATConv(FEATURES, WIDTH, heads=HEADS, add_self_loops=False, bias=False)
        with torch.no_grad():
            for own, other in (
                (peer.lin.weight, layer.project.weight),
                (peer.att_dst, layer.target),
                (peer.att_src, layer.source),
            ):
                own.copy_(other.view(own.shape))
        found["PyG"] = partial(peer, rows, ends)
        torch.testing.assert_close(found["regard"](), found["PyG"](), rtol=1e-4, atol=1e-4)
    return found


def train(call: Call) -> None:
    call().square().sum().backward()


def measure(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The best of so many turns of each, in seconds."""
    best = dict.fromkeys(calls, math.inf)
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def weigh(call: Call) -> float:
    """MiB of one training call."""
    before = begin()
    train(call)
    return max(end() - before, 0) / 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(
        prog="python -m benchmarks.graphs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--edges", type=read_count, action="append", help="may be repeated [10,000 to 1,000,000; ten a node]"
    )
    parser.add_argument("--repeat", type=read_count, default=3, help="turns of each contender [3]")
    options = parser.parse_args(arguments)
    print(
        f"GAT, {FEATURES} features to {HEADS} heads of {WIDTH}, float32, {torch.get_num_threads()} threads,"
        f" torch {torch.__version__}"
    )
    for count in options.edges or (10_000, 100_000, 1_000_000):
        for is_heavy in (False, True):
            nodes = max(count // 10, 2)
            ends = draw_edges(nodes, count, is_heavy)
            rows, mask = torch.randn(nodes, FEATURES), Edges(ends[1], ends[0])
            start = time.perf_counter()
            calls = list_contenders(rows, ends, mask)
            calls["regard"]()
            sorting = time.perf_counter() - start
            with torch.no_grad():
                forward = measure(dict(calls), options.repeat)
            both = measure({name: partial(train, call) for name, call in calls.items()}, options.repeat)
            kind = "few with very many" if is_heavy else "at random"
            print(
                f"{nodes:,} nodes, {ends.shape[1]:,} edges, {kind} (sorted, and met first, in {sorting * 1e3:.0f} ms)"
            )
            for name, call in calls.items():
                print(
                    f"  {name:<7} forward {forward[name] * 1e3:8.1f} ms, training {both[name] * 1e3:8.1f} ms,"
                    f" {weigh(call):7.1f} MiB"
                )


if __name__ == "__main__":
    main()
