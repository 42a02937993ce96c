"""The layers of https://d2l.ai, written out from their formulas: oracles, in whatever dtype they are given."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, valid_lens: Tensor | None) -> Tensor:
    if valid_lens is None:
        return torch.softmax(scores, -1)
    lens = valid_lens[:, None, None] if valid_lens.ndim == 1 else valid_lens[:, :, None]
    hidden = torch.arange(scores.shape[-1]) >= lens
    return torch.softmax(scores.masked_fill(hidden, -1e6), -1)


class Additive(nn.Module):
    def __init__(self, key_size: int, query_size: int, num_hiddens: int) -> None:
        super().__init__()
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        self.attention_weights = masked_softmax(self.w_v(features).squeeze(-1), valid_lens)
        return torch.bmm(self.attention_weights, values)


class DotProduct(nn.Module):
    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.attention_weights, values)


class AddNorm(nn.Module):
    def __init__(self, num_hiddens: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(num_hiddens)

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        out: Tensor = self.ln(Y + X)
        return out


class FFN(nn.Module):
    def __init__(self, num_hiddens: int, ffn_num_hiddens: int) -> None:
        super().__init__()
        self.dense1 = nn.Linear(num_hiddens, ffn_num_hiddens)
        self.dense2 = nn.Linear(ffn_num_hiddens, num_hiddens)

    def forward(self, X: Tensor) -> Tensor:
        out: Tensor = self.dense2(torch.relu(self.dense1(X)))
        return out


class MultiHead(nn.Module):
    def __init__(self, num_hiddens: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=False) for _ in range(4))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        batch, heads = queries.shape[0], self.num_heads

        def split(X: Tensor) -> Tensor:
            return X.reshape(batch, X.shape[1], heads, -1).permute(0, 2, 1, 3).reshape(batch * heads, X.shape[1], -1)

        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, heads, 0)
        out = DotProduct()(split(self.W_q(queries)), split(self.W_k(keys)), split(self.W_v(values)), valid_lens)
        out = out.reshape(batch, heads, out.shape[1], -1).permute(0, 2, 1, 3).reshape(batch, out.shape[1], -1)
        mixed: Tensor = self.W_o(out)
        return mixed


class EncoderBlock(nn.Module):
    def __init__(self, num_hiddens: int, ffn_num_hiddens: int, num_heads: int) -> None:
        super().__init__()
        self.attention = MultiHead(num_hiddens, num_heads)
        self.addnorm1 = AddNorm(num_hiddens)
        self.ffn = FFN(num_hiddens, ffn_num_hiddens)
        self.addnorm2 = AddNorm(num_hiddens)

    def forward(self, X: Tensor, valid_lens: Tensor | None) -> Tensor:
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
        out: Tensor = self.addnorm2(Y, self.ffn(Y))
        return out


class DecoderBlock(nn.Module):
    def __init__(self, num_hiddens: int, ffn_num_hiddens: int, num_heads: int) -> None:
        super().__init__()
        self.attention1 = MultiHead(num_hiddens, num_heads)
        self.addnorm1 = AddNorm(num_hiddens)
        self.attention2 = MultiHead(num_hiddens, num_heads)
        self.addnorm2 = AddNorm(num_hiddens)
        self.ffn = FFN(num_hiddens, ffn_num_hiddens)
        self.addnorm3 = AddNorm(num_hiddens)

    def forward(self, X: Tensor, memory: Tensor, memory_valid_lens: Tensor | None) -> Tensor:
        lens = torch.arange(1, X.shape[1] + 1).repeat(X.shape[0], 1)
        Y = self.addnorm1(X, self.attention1(X, X, X, lens))
        Z = self.addnorm2(Y, self.attention2(Y, memory, memory, memory_valid_lens))
        out: Tensor = self.addnorm3(Z, self.ffn(Z))
        return out
