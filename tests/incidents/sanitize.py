"""A few small calls of every kind of kernel, for `compute-sanitizer` to watch: `make sanitize` on a CUDA device.

Not a test: the tool counts bad reads, bad writes and races, and its exit code says whether there were any.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from regard import attend
from regard.bias import Alibi, Dense, Relative
from regard.mask import Allowed, Causal, Document, Lengths, Window
from regard.score import Additive, Dot, Feature, Gaussian
from regard.weigh import Entmax, Relu, Sigmoid, Softmax, Sum


def list_calls() -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """(queries, keys, d, e) and terms. No size is a multiple of a block, and memory ends where a tensor does."""
    yield (67, 93, 24, 40), {}
    yield (67, 93, 64, 64), {"mask": Causal(), "dropout": 0.2}
    yield (67, 93, 80, 9), {"mask": Lengths(torch.tensor([50, 0])), "bias": Dense(torch.randn(2, 67, 93))}
    yield (67, 93, 16, 16), {"mask": Allowed(torch.rand(2, 1, 67, 93) < 0.5), "weigh": Sigmoid(-4.0)}
    yield (67, 67, 33, 33), {"mask": Document(torch.sort(torch.randint(0, 4, (2, 67)))[0]), "weigh": Relu(2, 0.01)}
    yield (67, 93, 24, 24), {"mask": Window(9, 3), "weigh": Entmax()}
    yield (67, 93, 24, 40), {"score": Additive(torch.randn(24)), "mask": Causal()}
    yield (67, 93, 9, 17), {"score": Additive(torch.randn(9) * 30), "weigh": Softmax()}
    yield (67, 93, 1, 1), {"score": Gaussian(torch.tensor(1.3))}
    yield (67, 93, 24, 24), {"score": Feature(), "weigh": Sum()}
    yield (67, 93, 24, 24), {"score": Dot(0.7, 1.5), "bias": Relative(torch.randn(2, 6), max_distance=9)}
    yield (67, 93, 24, 24), {"score": Additive(torch.randn(24)), "bias": Alibi(torch.rand(2))}


def main(every: int = 1, first: int = 0) -> None:
    """All calls, or every so-manieth."""
    for dtype in (torch.float32, torch.bfloat16):
        for (n, m, d, e), terms in itertools.islice(list_calls(), first, None, every):
            sizes = ((n, d), (m, d), (m, e))
            rows = [torch.randn(2, 2, *size, dtype=dtype).requires_grad_() for size in sizes]
            out = attend(*rows, **terms, backend="fused")
            out.backward(torch.randn_like(out))
            torch.cuda.synchronize()
            print(dtype, terms, flush=True)


if __name__ == "__main__":
    torch.set_default_device("cuda")
    torch.manual_seed(0)
    main(*map(int, sys.argv[1:]))
