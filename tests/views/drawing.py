"""Looks to draw, and what stands in a drawing."""

import math

import numpy as np
import pytest
import torch

from regard.engine.look import look
from regard.mask import Causal

matplotlib = pytest.importorskip("matplotlib")
figure = pytest.importorskip("matplotlib.figure")


def make(n=5, m=None, heads=3, batch=2, causal=False, seed=0, sharp=2.0, **options):
    """A look, and its weights as softmax has them."""
    rng = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, heads, n, 8, generator=rng, dtype=torch.float64) * sharp
    key = torch.randn(batch, heads, m or n, 8, generator=rng, dtype=torch.float64)
    scores = query @ key.mT / math.sqrt(8)
    if causal:
        scores = scores.masked_fill(torch.ones(n, m or n).triu(1 + (m or n) - n).bool(), -math.inf)
        options["mask"] = Causal()
    # a query that may see nothing has no weights
    return look(query, key, **options), torch.softmax(scores, -1).nan_to_num().numpy()


def pool(table, down, across):
    """Means of blocks, the slow way."""
    rows = range(0, table.shape[0], down)
    columns = range(0, table.shape[1], across)
    return np.array([[table[r : r + down, c : c + across].mean() for c in columns] for r in rows])


def list_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def write(axes, tmp_path):
    """As a user does, without our settings."""
    axes.figure.savefig(tmp_path / "a.png")
    return matplotlib.image.imread(tmp_path / "a.png")


# --- map --------------------------------------------------------------------------------------------------------------
