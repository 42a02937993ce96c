"""A step of training whole models, beside the same models as they are written with torch alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.cases import Contender
from benchmarks.gpu import translation
from benchmarks.gpu.cases import Place
from benchmarks.gpu.goal import Goal, Part, Reading
from benchmarks.gpu.measure import Clock, check_device
from benchmarks.measure import one_line, take_turns
from regard.layers import SelfAttention
from regard.mask import Causal
from regard.models import Bert, Seq2Seq, Transformer
from regard.models.seq2seq import Config as Seq2SeqConfig
from regard.models.transformer import Config

# ‖ours − peer‖ / ‖peer‖ of the outputs, with the same weights: in float32, and rounded to bfloat16 layer after layer
TOLERANCE, TOLERANCE_LOW = 5e-3, 5e-2
# seconds that both may take their turns
PATIENCE = 2.0
MODES: dict[str, dict[str, Any]] = {"compiled": {}, "graphs": {"mode": "reduce-overhead"}}


class Pair(NamedTuple):
    """Two models of the same weights: what they make of a batch, and the loss of it."""

    ours: nn.Module
    peer: nn.Module
    call: Callable[[nn.Module], Tensor]
    find_loss: Callable[[Tensor], Tensor]
    tokens: int
    # weights in float32 under autocast, or all in bfloat16
    is_mixed: bool = True


@dataclass(frozen=True)
class Model:
    """A row of the table; `make` takes a device and whether the model is to be tiny."""

    name: str
    title: str
    make: Callable[[str, bool], Pair]
    goal: Goal
    peer: str
    mode: str = "eager"


class TorchAttention(nn.Module):
    """`SelfAttention` with the same weights around torch's function."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, rows: Tensor, mask: None = None) -> Tensor:
        parts = (layer(rows).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.W_q, self.W_k, self.W_v))
        out: Tensor = self.W_o(
            functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
        )
        return out


class Block(nn.Module):
    """A block of GPT-2: a norm before attention, another before the feed-forward layer."""

    def __init__(self, width: int, attention: nn.Module, mask: Causal | None) -> None:
        super().__init__()
        self.attention, self.mask = attention, mask
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ffn = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows + self.attention(self.norm1(rows), mask=self.mask)
        out: Tensor = rows + self.ffn(self.norm2(rows))
        return out


def _draw(device: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator(device).manual_seed(0), device=device)


def _make_gpt(batch: int, n: int, device: str, tiny: bool) -> Pair:
    width, heads, depth = (32, 2, 2) if tiny else (768, 12, 12)
    ours = nn.Sequential(*(Block(width, SelfAttention(width, heads, bias=True), Causal()) for _ in range(depth)))
    peer = nn.Sequential(*(Block(width, TorchAttention(width, heads), None) for _ in range(depth)))
    peer.load_state_dict(ours.state_dict())
    rows = _draw(device, *((2, 9) if tiny else (batch, n)), width).bfloat16()
    find_loss = lambda out: functional.mse_loss(out.float(), rows.float().roll(1, 1))  # noqa: E731
    ours, peer = (model.to(device, torch.bfloat16) for model in (ours, peer))
    return Pair(ours, peer, lambda model: model(rows), find_loss, rows.shape[0] * rows.shape[1], is_mixed=False)


def _translate(ours: nn.Module, peer: nn.Module, batch: translation.Batch, device: str) -> Pair:
    call = lambda model: model(batch.source, batch.source_lens, batch.inputs)  # noqa: E731
    find_loss = partial(translation.find_loss, labels=batch.labels)
    return Pair(ours.to(device), peer.to(device), call, find_loss, batch.count)


def _make_transformer(preset: str, count: int, device: str, tiny: bool) -> Pair:
    vocab, batch = (100, 3) if tiny else ({"base": 37000, "tiny": 10000}[preset], count)
    config = Config.preset("tiny" if tiny else preset, vocab)
    ours, peer = Transformer(config), translation.Peer(config)
    translation.copy_weights(ours, peer)
    return _translate(ours, peer, translation.draw_batch(batch, 9 if tiny else 32, vocab, device), device)


class TorchSeq2Seq(nn.Module):
    """A GRU translator as a loop in plain torch, around the layers of ours."""

    def __init__(self, ours: Seq2Seq) -> None:
        super().__init__()
        self.encoder, self.decoder = ours.encoder, ours.decoder

    def forward(self, source: Tensor, lens: Tensor, inputs: Tensor) -> Tensor:
        encoder, decoder, attention = self.encoder, self.decoder, self.decoder.attention
        packed = pack_padded_sequence(encoder.embedding(source), lens.cpu(), batch_first=True, enforce_sorted=False)
        memory, hidden = encoder.rnn(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True, total_length=source.shape[1])
        keys, outputs = attention.W_k(memory), []
        padding = torch.arange(source.shape[1], device=source.device) >= lens[:, None]
        for embedded in decoder.embedding(inputs).split(1, 1):
            query = attention.W_q(hidden[-1])[:, None]
            scores = attention.w_v(torch.tanh(query + keys)).squeeze(-1).masked_fill(padding, -torch.inf)
            context = (torch.softmax(scores, -1).to(memory.dtype)[:, None]) @ memory
            output, hidden = decoder.rnn(torch.cat((context, embedded), -1), hidden)
            outputs.append(output)
        logits: Tensor = decoder.dense(torch.cat(outputs, 1))
        return logits


def _make_seq2seq(count: int, device: str, tiny: bool) -> Pair:
    vocab, batch = (100, 3) if tiny else (10000, count)
    rates = {"embed_dropout": 0.0, "is_bidirectional": False}
    ours = Seq2Seq.from_config(Seq2SeqConfig.preset("tiny" if tiny else "base", vocab, vocab, **rates))
    return _translate(ours, TorchSeq2Seq(ours), translation.draw_batch(batch, 9 if tiny else 32, vocab, device), device)


def _make_bert(count: int, device: str, tiny: bool) -> Pair:
    from transformers import AutoModel, BertConfig  # type: ignore[import-untyped]

    few: dict[str, int] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = BertConfig(attention_probs_dropout_prob=0.0, **(few if tiny else {}))
    peer = AutoModel.from_config(config, attn_implementation="sdpa", add_pooling_layer=False)
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        ours = Bert.from_pretrained(folder).to(device)
    batch = translation.draw_batch(3 if tiny else count, 9 if tiny else 128, config.vocab_size, device)
    mask = (batch.source != translation.PAD).long()
    target = _draw(device, *mask.shape, config.hidden_size)

    def call(model: nn.Module) -> Tensor:
        out = model(batch.source, attention_mask=mask)
        rows: Tensor = out if isinstance(out, Tensor) else out.last_hidden_state
        return rows * mask[..., None]

    find_loss = lambda out: functional.mse_loss(out.float(), target)  # noqa: E731
    return Pair(ours.train(), peer.to(device).train(), call, find_loss, int(mask.sum()))


MODELS = [
    Model(
        f"gpt2-{batch}x{n}-{mode}", f"GPT-2 small, 12 blocks, {batch} × {n:,}, weights in bfloat16, {mode}",
        partial(_make_gpt, batch, n), Goal(times=times, bits=True), "sdpa", mode,
    )
    # a graph is for what waits on the host
    for batch, n, times, modes in ((8, 1024, 0.971, ("compiled",)), (32, 128, 0.909, MODES))
    for mode in ("eager", *modes)
] + [
    Model(f"{name}-{count}", f"{title}, {count} sentences, autocast, eager", partial(make, count),
          Goal(times=1.1 if count == 1024 else 0.97, ms=20 if f"{name}-{count}" == "transformer-tiny-256" else None,
               bits=True), peer)
    for name, title, make, peer in (
        ("transformer-base", "Transformer base, to 32 tokens", partial(_make_transformer, "base"), "nn.Transformer"),
        ("transformer-tiny", "Transformer tiny, to 32 tokens", partial(_make_transformer, "tiny"), "nn.Transformer"),
        ("bert-base", "BERT base, to 128 tokens", _make_bert, "transformers, sdpa"),
        ("gru", "GRU translator, base, to 32 tokens", _make_seq2seq, "a loop in torch"),
    )
    # the last has the paper's 25,000 tokens
    for count in (8, 64, 256, *([1024] if name == "transformer-base" else []))
]  # fmt: skip


def measure_model(
    case: Model, place: Place, tiny: bool, repeat: int, clock: Clock, progress: Callable[[str], None]
) -> list[Part]:
    """Steps of both in turns, after both were seen to give the same and ours the same bits."""
    if place.compiles:
        torch.compiler.reset()
    torch.manual_seed(0)
    pair = case.make(place.device, tiny)
    rows = [Reading(case.peer), Reading("regard", side="ours")]
    theirs, ours = (_look(pair, model, place.device) for model in (pair.peer, pair.ours))
    rows[1].bits = torch.equal(*(_look(pair, pair.ours, place.device, pair.is_mixed) for _ in range(2)))
    apart = ((ours - theirs).norm() / theirs.norm()).item()
    rows[1].errors = {"out": apart}
    if not apart <= (TOLERANCE if pair.is_mixed else TOLERANCE_LOW):
        rows[1].missing, rows[1].wrong = f"wrong: {apart:.1e} from {case.peer}", True
    contenders = []
    for row, model in zip(rows, (pair.peer, pair.ours), strict=True):
        progress(f"{row.contender}, first steps")
        compiles = case.mode in MODES and place.compiles
        forward: Any = torch.compile(model, dynamic=False, **MODES[case.mode]) if compiles else model
        find = partial(_find_loss, pair, forward)
        contenders.append(Contender(row.contender, translation.make_step(model, find, place.device, pair.is_mixed)))
        try:
            # a graph is captured in the second step, and played from the third on
            for _ in range(1 if tiny else 4):
                contenders[-1].call()
        except Exception as problem:
            row.missing = row.missing or one_line(problem)
    take_turns(contenders, rows, repeat, clock.pace, progress, PATIENCE)
    if clock.on_device:
        check_device(case.name)
    return [Part(case.name, f"{case.title}, a step of training", case.goal, rows, pair.tokens)]


def _find_loss(pair: Pair, forward: nn.Module) -> Tensor:
    return pair.find_loss(pair.call(forward))


def _look(pair: Pair, model: nn.Module, device: str, is_mixed: bool = False) -> Tensor:
    """What a model gives where nothing is dropped out, with gradients: without, torch may take other code."""
    model.eval()
    with torch.autocast(device, torch.bfloat16, enabled=is_mixed):
        out = pair.call(model).detach().float()
    model.train()
    return out
