"""Training a Transformer of the paper's size, ours beside the same model made of `torch.nn.Transformer`."""

from __future__ import annotations

import argparse
import datetime
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu.page import describe_run
from benchmarks.measure import one_line
from regard.layers import PositionalEncoding
from regard.models.transformer import PRESETS, Config, Transformer
from tools.arguments import Parser, read_count, read_date

EXAMPLES = """examples:
  python -m benchmarks.gpu.translation                          both models, as they are and compiled
  python -m benchmarks.gpu.translation --device cpu --tiny      whether all is right, without a GPU
The status is 1 where the two models disagree or ours does not run, 2 where the command cannot run.
"""
PAD, BOS = 0, 1
# what is to be reached: our tokens per second over the peer's
TARGET = 1.1
# both compute the same sums in float32, in another order
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Size:
    """Of the model and of what it is trained on; `tokens` are a batch's, of the target."""

    preset: str = "base"
    vocab: int = 37000
    tokens: int = 25000
    batches: int = 6


TINY = Size("tiny", 100, 60, 2)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences of about one length, and how many tokens of theirs are to be said."""

    source: Tensor
    source_lens: Tensor
    inputs: Tensor
    labels: Tensor
    count: int


@dataclass
class Result:
    """One model: seconds of each round, and the most memory of a step; or why there are none."""

    name: str
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    missing: str = ""


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


def draw_batches(size: Size, device: str) -> list[Batch]:
    """Sentences of about as many tokens as those of WMT, each batch of one length; the longest are left out."""
    noise = torch.Generator().manual_seed(0)
    batches = []
    for part in range(size.batches):
        # quantiles of a log-normal law of mean 28, one in the middle of each part
        middle = torch.distributions.Normal(3.2, 0.55).icdf(torch.tensor((part + 0.5) / size.batches)).exp()
        lens = (middle * (0.94 + 0.12 * torch.rand(2 * size.tokens, generator=noise))).round().long().clamp(min=2)
        lens = lens[: int((lens.cumsum(0) <= size.tokens).sum())]
        spread = 0.9 + 0.2 * torch.rand(len(lens), generator=noise)
        source_lens = (lens * spread).round().long().clamp(min=2)
        source, target = (draw_ids(x, size.vocab, noise) for x in (source_lens, lens))
        inputs = torch.cat((torch.full((len(lens), 1), BOS), target[:, :-1]), 1)
        given = (x.to(device) for x in (source, source_lens, inputs, target))
        batches.append(Batch(*given, count=int(lens.sum())))
    return batches


def draw_ids(lens: Tensor, vocab: int, noise: torch.Generator) -> Tensor:
    ids = torch.randint(3, vocab, (len(lens), int(lens.max())), generator=noise)
    return ids.masked_fill(torch.arange(ids.shape[1]) >= lens[:, None], PAD)


def find_loss(model: nn.Module, batch: Batch) -> Tensor:
    """What both models are trained by."""
    return find_loss_of(model(batch.source, batch.source_lens, batch.inputs), batch.labels)


def find_loss_of(logits: Tensor, labels: Tensor) -> Tensor:
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


def check_same(ours: Transformer, peer: Peer, batch: Batch) -> tuple[float, float]:
    """How far the loss and its gradients lie apart, with the same numbers in float32 and nothing dropped out."""
    copy_weights(ours, peer)
    found = []
    for model in (ours, peer):
        model.eval().zero_grad(set_to_none=True)
        few = Batch(*(x[:8] for x in (batch.source, batch.source_lens, batch.inputs, batch.labels)), count=0)
        # torch leaves its training code where it is only asked for an answer: gradients keep it on it
        loss = find_loss(model, few)
        loss.backward()
        weight = model.get_submodule("embedding").weight
        assert isinstance(weight, Tensor)
        assert weight.grad is not None
        found.append((loss.detach(), weight.grad.clone()))
        model.train().zero_grad(set_to_none=True)
    (loss, grad), (their_loss, their_grad) = found
    return abs(loss / their_loss - 1).item(), ((grad - their_grad).norm() / their_grad.norm()).item()


def take_turns(
    steps: dict[str, Callable[[Batch], Tensor]], batches: Sequence[Batch], rounds: int, device: str
) -> list[Result]:
    """Seconds for all batches, each model in its turn, after one round that does not count."""
    results = [Result(name) for name in steps]
    for turn in range(rounds + 1):
        for result in results if turn % 2 else reversed(results):
            if result.missing:
                continue
            try:
                result.peak, seconds = _time(steps[result.name], batches, device)
            except Exception as problem:
                result.missing = one_line(problem)
            else:
                result.seconds += [seconds] if turn else []
    return results


def _time(step: Callable[[Batch], Tensor], batches: Sequence[Batch], device: str) -> tuple[int, float]:
    on_device = device == "cuda"
    # what the other model left must not be collected in this one's time
    gc.collect()
    if on_device:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for batch in batches:
        step(batch)
    if on_device:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return torch.cuda.max_memory_allocated() if on_device else 0, seconds


def show(title: str, results: Sequence[Result], count: int) -> str:
    """A table; the peer comes first."""
    lines = [title]
    peer = results[0]
    for result in results:
        if result.missing:
            lines.append(f"  {result.name:<22} n/a: {result.missing}")
            continue
        speed = count / statistics.median(result.seconds)
        ratio = "" if peer.missing else f"{statistics.median(peer.seconds) / statistics.median(result.seconds):.3f} ×"
        low, high = count / max(result.seconds), count / min(result.seconds)
        lines.append(
            f"  {result.name:<22} {speed:>10,.0f} tokens/s ({low:,.0f} to {high:,.0f}) {ratio:>9}"
            f" {result.peak / 2**30:>7.2f} GiB at the peak"
        )
    return "\n".join(lines)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.gpu.translation", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--rounds", type=read_count, default=9, metavar="N", help="turns of each model over all batches (default 9)")
    add("--inner", action="store_true", help="also drop out attention weights and hidden units, as torch's default is")
    add("--eager", action="store_true", help="leave out the compiled models, which take minutes")
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu is there to see that all is right, not how fast")
    add("--tiny", action="store_true", help="small models and batches, for the same purpose")
    add(
        "--tokens", type=read_count, nargs="+", default=[25000, 50000], metavar="N",
        help="target tokens in a batch, one measurement each (default 25000, the paper's, and 50000)",
    )  # fmt: skip
    add("--date", type=read_date, help="the date in the heading (default today)")
    options = parser.parse_args(arguments)
    options.date = options.date or datetime.date.today().isoformat()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device. To see that all is right: --device cpu --tiny")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    size = TINY if options.tiny else Size()
    dropout = PRESETS[size.preset]["dropout"] if options.inner else 0.0
    torch.manual_seed(0)
    config = Config.preset(size.preset, size.vocab, attention_dropout=dropout, ffn_dropout=dropout)
    ours, peer = Transformer(config).to(options.device), Peer(config).to(options.device)
    print(describe_run(options.device, options.date, "python -m benchmarks.gpu.translation"))
    loss, grad = check_same(ours, peer, draw_batches(size, options.device)[0])
    print(f"the same weights in float32: losses {loss:.1e} apart, gradients {grad:.1e}", flush=True)
    title = f"training {size.preset}, vocabulary {size.vocab}, dropout {config.dropout}, inner {dropout}, bfloat16"
    print(f"{title}; target {TARGET} ×")
    is_whole = loss < TOLERANCE and grad < TOLERANCE
    for tokens in [size.tokens] if options.tiny else options.tokens:
        is_whole &= compare(options, replace(size, tokens=tokens), ours, peer)
    return 0 if is_whole else 1


def compare(options: argparse.Namespace, size: Size, ours: nn.Module, peer: nn.Module) -> bool:
    """Both models side by side on batches of a size; whether ours could be measured."""
    batches = draw_batches(size, options.device)
    shapes = ", ".join(f"{x.source.shape[0]} × {x.source.shape[1]} to {x.inputs.shape[1]}" for x in batches)
    print(f"batches of {size.tokens} tokens: {shapes}")
    is_measured = True
    for compiles in (False,) if options.eager else (False, True):
        steps = {}
        for name, model in (("nn.Transformer", peer), ("regard Transformer", ours)):
            forward = torch.compile(model) if compiles else model
            steps[name] = make_step(model, partial(find_loss, forward), options.device)
        # a compiler makes a kernel for each shape: one has to do
        some = batches[2:3] * size.batches if compiles else batches
        results = take_turns(steps, some, options.rounds, options.device)
        tokens = sum(batch.count for batch in some)
        print(show("compiled, batches of one shape" if compiles else "eager", results, tokens), flush=True)
        is_measured &= not results[1].missing
    return is_measured


if __name__ == "__main__":
    sys.exit(main())
