"""What models are trained on, and by; and the Transformer made of `torch.nn.Transformer`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.layers import PositionalEncoding
from regard.models.transformer import Config, Transformer

PAD, BOS = 0, 1


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences in pairs, and how many tokens of theirs are to be said."""

    source: Tensor
    source_lens: Tensor
    inputs: Tensor
    labels: Tensor
    count: int


class Peer(nn.Module):
    """The same model around `nn.Transformer`, as its users write it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, d = config, config.num_hiddens
        self.embedding = nn.Embedding(config.vocab_size, d, PAD)
        self.position = PositionalEncoding(d, config.dropout)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.body = nn.Transformer(
                d, config.num_heads, config.num_encoder_layers, config.num_decoder_layers, config.ffn_num_hiddens,
                config.dropout, config.activation, batch_first=True,
            )  # fmt: skip
        # torch ends both stacks in a norm, the paper does not
        self.body.encoder.norm = self.body.decoder.norm = None
        for module in self.body.modules():
            # the paper drops out what a sublayer makes, and nothing within one; torch does both
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = config.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = config.ffn_dropout

    def forward(self, source: Tensor, source_lens: Tensor, target_inputs: Tensor) -> Tensor:
        n = target_inputs.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(n, device=source.device)
        # True is hidden here
        padding = torch.arange(source.shape[1], device=source.device) >= source_lens[:, None]
        hidden = self.body(
            self._embed(source), self._embed(target_inputs), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return functional.linear(hidden, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.position(self.embedding(ids) * self.config.num_hiddens**0.5)
        return rows


@torch.no_grad()
def copy_weights(ours: Transformer, peer: Peer) -> None:
    """Give the peer our numbers."""
    peer.embedding.weight.copy_(ours.embedding.weight)
    theirs = (*peer.body.encoder.layers, *peer.body.decoder.layers)
    for mine, other in zip((*ours.encoder, *ours.decoder), theirs, strict=True):
        is_decoder = hasattr(mine, "attention1")
        pairs = [("attention1", "self_attn"), ("attention2", "multihead_attn")]
        for name, its in pairs if is_decoder else [("attention", "self_attn")]:
            other.get_submodule(its).load_state_dict(mine.get_submodule(name).to_torch().state_dict())
        names = {f"addnorm{i}.ln": f"norm{i}" for i in ((1, 2, 3) if is_decoder else (1, 2))}
        for name, its in {**names, "ffn.dense1": "linear1", "ffn.dense2": "linear2"}.items():
            other.get_submodule(its).load_state_dict(mine.get_submodule(name).state_dict())


def draw_batch(batch: int, longest: int, vocab: int, device: str) -> Batch:
    """Sentences of any length from half of the longest."""
    noise = torch.Generator().manual_seed(0)
    lens, source_lens = (torch.randint(longest // 2, longest + 1, (batch,), generator=noise) for _ in range(2))
    lens[0] = source_lens[0] = longest
    labels, source = (_draw_ids(x, vocab, noise) for x in (lens, source_lens))
    inputs = torch.cat((torch.full((batch, 1), BOS), labels[:, :-1]), 1)
    given = (x.to(device) for x in (source, source_lens, inputs, labels))
    return Batch(*given, count=int(lens.sum()))


def _draw_ids(lens: Tensor, vocab: int, noise: torch.Generator) -> Tensor:
    ids = torch.randint(3, vocab, (len(lens), int(lens.max())), generator=noise)
    return ids.masked_fill(torch.arange(ids.shape[1]) >= lens[:, None], PAD)


def find_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1)


def make_step(
    model: nn.Module, find: Callable[..., Tensor], device: str, is_mixed: bool = True
) -> Callable[..., Tensor]:  # fmt: skip
    """One step of training by the loss that is found, in mixed precision or in the model's own."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, betas=(0.9, 0.98), fused=True)

    def step(*given: Any) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=is_mixed):
            loss = find(*given)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
