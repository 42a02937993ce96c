"""Faults of the layers: heads, caches, positions, padding, what is drawn and how it learns."""

from tools.faults.fault import Fault

CACHE, MULTIHEAD, HARD = "layers/cache.py", "layers/multihead.py", "layers/hard.py"

LAYERS = [
    Fault(
        CACHE,
        "self._held = key.index_select(0, indices), value.index_select(0, indices)",
        "self._held = key.index_select(0, indices), value[: len(indices)]",
        "beams that change places leave their values behind",
    ),
    Fault(
        CACHE,
        "                new[:, :, : self.length] = old\n",
        "                new[:, :, : self.length - 1] = old[:, :, :-1]\n",
        "a cache that grows loses its last position",
    ),
    Fault(
        MULTIHEAD,
        "key = self.position(key, offset=0 if cache is None else cache.length)",
        "key = self.position(key, offset=0)",
        "each step's key stands at the first position",
    ),
    Fault(
        MULTIHEAD,
        "rows.reshape(*rows.shape[:2], heads, rows.shape[2] // heads).transpose(1, 2)",
        "rows.reshape(*rows.shape[:2], rows.shape[2] // heads, heads).permute(0, 3, 1, 2)",
        "a head takes every h-th column in place of its own stretch",
    ),
    Fault(
        MULTIHEAD,
        "                cache.truncate(before)\n",
        "                pass\n",
        "a call that is refused stays in the cache",
    ),
    Fault(
        "layers/blocks.py",
        "Window(before, 0)",
        "Window(before, before)",
        "in a window a decoder looks ahead",
    ),
    Fault(
        "layers/attention.py",
        "rate = dropout if self.training else 0.0",
        "rate = dropout",
        "dropout of the weights stays on in evaluation",
    ),
    Fault(
        "layers/conv_layers.py",
        "act(conv(clear_padding(x, valid).mT)).mT",
        "act(conv(x.mT)).mT",
        "from the second convolution on padding leaks into its neighbours",
    ),
    Fault(
        "layers/pooling.py",
        "return rows.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)",
        "return rows.mean(1)",
        "the mean over a sequence counts its padding",
    ),
    Fault(
        "layers/spelling.py",
        "functional.relu(conv(rows)).masked_fill(~is_letter, 0).amax(-1)",
        "functional.relu(conv(rows)).amax(-1)",
        "what a filter finds past a word's end counts",
    ),
    Fault(
        "layers/grams.py",
        "(found / count.to(found.dtype).sqrt())",
        "(found / count)",
        "runs of letters are averaged, not divided by the root of their number",
    ),
    Fault(
        "layers/positional.py",
        "rows = self.P[:, offset : offset + X.shape[1]]",
        "rows = self.P[:, : X.shape[1]]",
        "learned positions of a step begin at zero again",
    ),
    Fault(
        "layers/rotary.py",
        "other * cos + one * sin)",
        "other * cos - one * sin)",
        "a sign makes the rotation none",
    ),
    Fault(
        HARD,
        "part = -(gain if gain.ndim == 2",
        "part = (gain if gain.ndim == 2",
        "reinforce learns to draw what was bad",
    ),
    Fault(
        HARD,
        "reward = reward.detach().to(",
        "reward = reward.to(",
        "gradients pass through the reward",
    ),
    Fault(
        "layers/torch_parity.py",
        "rows.unflatten(0, (-1, width)).repeat_interleave(count, 0).flatten(0, 1)",
        "rows.unflatten(0, (-1, width)).repeat(count, *[1] * rows.ndim).flatten(0, 1)",
        "grouped heads are written out for torch in the wrong order",
    ),
]
