"""The GRU translator against its equations, written out in float64."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
import torch
from torch import Tensor, nn

from regard.layers import (
    AdditiveAttention,
    AttentionDecoder,
    BilinearAttention,
    ConcatAttention,
    CosineAttention,
    DotProductAttention,
)  # fmt: skip
from regard.models import seq2seq
from regard.models.seq2seq import Config, Seq2Seq, Seq2SeqAttentionDecoder, Seq2SeqEncoder
from regard.score import SCORES
from regard.weigh import Sparsemax
from tests.layers.textbook import Additive

# vocabulary, embedding, hidden units, layers; batch, source, steps
SIZES = (11, 3, 5, 2)
B, M, N = 3, 7, 4
LENS = torch.tensor([7, 2, 5])
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, SIZES[0], shape, generator=torch.Generator().manual_seed(seed))


def build(**given) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(Seq2SeqEncoder(*SIZES), Seq2SeqAttentionDecoder(*SIZES, **given)).double()


def step_gru(rnn: nn.GRU, x: Tensor, hidden: list[Tensor]) -> list[Tensor]:
    """One step of all layers, each equation in its line."""
    states = []
    for layer, h in enumerate(hidden):
        w_ih, w_hh, b_ih, b_hh = (
            getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        (w_ir, w_iz, w_in), (w_hr, w_hz, w_hn) = w_ih.chunk(3), w_hh.chunk(3)
        (b_ir, b_iz, b_in), (b_hr, b_hz, b_hn) = b_ih.chunk(3), b_hh.chunk(3)
        r = 1 / (1 + torch.exp(-(w_ir @ x + b_ir + w_hr @ h + b_hr)))
        z = 1 / (1 + torch.exp(-(w_iz @ x + b_iz + w_hz @ h + b_hz)))
        n = torch.tanh(w_in @ x + b_in + r * (w_hn @ h + b_hn))
        x = (1 - z) * n + z * h
        states.append(x)
    return states


def write_out(model: Seq2Seq, source: Tensor, lens: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and weights of the whole model, sentence by sentence, step by step, key by key."""
    encoder, decoder = model.encoder, model.decoder
    size, layers = decoder.rnn.hidden_size, decoder.rnn.num_layers
    logits, weights = [], torch.zeros(*target.shape, source.shape[1], dtype=torch.float64)
    for b in range(len(source)):
        hidden = [torch.zeros(size, dtype=torch.float64) for _ in range(layers)]
        memory = []
        for token in source[b, : lens[b]]:
            hidden = step_gru(encoder.rnn, encoder.embedding.weight[token], hidden)
            memory.append(hidden[-1])
        for i, token in enumerate(target[b]):
            attention = decoder.attention
            scores = torch.stack([
                attention.w_v.weight[0] @ torch.tanh(attention.W_q.weight @ hidden[-1] + attention.W_k.weight @ m)
                for m in memory
            ])  # fmt: skip
            alpha = torch.exp(scores - scores.max())
            alpha = alpha / alpha.sum()
            context = sum(a * m for a, m in zip(alpha, memory, strict=True))
            hidden = step_gru(decoder.rnn, torch.cat((context, decoder.embedding.weight[token])), hidden)
            logits.append(decoder.dense.weight @ hidden[-1] + decoder.dense.bias)
            weights[b, i, : lens[b]] = alpha.detach()
    return torch.stack(logits).unflatten(0, tuple(target.shape)), weights


def test_it_is_its_equations_step_by_step():
    model, source, target = build(), tokens(B, M), tokens(B, N, seed=1)
    found = model(source, LENS, target)
    wanted, weights = write_out(model, source, LENS, target)
    torch.testing.assert_close(found, wanted, **CLOSE)
    torch.testing.assert_close(model.attention_weights, weights, **CLOSE)
    torch.testing.assert_close(model.attention_weights.sum(-1), torch.ones(B, N, dtype=torch.float64), **CLOSE)
    pulled = torch.sin(torch.arange(wanted.numel(), dtype=torch.float64)).view_as(wanted)
    parameters = list(model.parameters())
    grads = [torch.autograd.grad(out, parameters, pulled) for out in (found, wanted)]
    for (name, _), one, other in zip(model.named_parameters(), *grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11, msg=name)
        assert one.abs().max() > 0, name


def test_parameters_have_the_textbooks_names():
    decoder = Seq2SeqAttentionDecoder(vocab_size=10, embed_size=8, num_hiddens=16, num_layers=2)
    # as d2l's class names and shapes them
    rnn = nn.GRU(8 + 16, 16, 2, dropout=0.1)
    names = {
        "attention.W_k.weight": (16, 16),
        "attention.W_q.weight": (16, 16),
        "attention.w_v.weight": (1, 16),
        "embedding.weight": (10, 8),
        "dense.weight": (10, 16),
        "dense.bias": (10,),
        **{f"rnn.{name}": tuple(value.shape) for name, value in rnn.state_dict().items()},
    }
    saved = {name: torch.randn(shape) for name, shape in names.items()}
    decoder.load_state_dict(saved)
    assert {name for name, _ in Seq2SeqEncoder(10, 8, 16, 1).named_parameters()} == {
        "embedding.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0",
    }  # fmt: skip
    assert isinstance(decoder, AttentionDecoder)


@pytest.mark.parametrize("source", [M, B], ids=["more steps than sentences", "as many"])
def test_the_textbooks_encoder_fits_the_decoder(source):
    # d2l's encoder runs a GRU over (steps, batch, embed_size), and returns what that returns
    decoder, rnn, attention = build().decoder, nn.GRU(3, 5, 2).double(), Additive(5, 5, 5).double()
    attention.load_state_dict(decoder.attention.state_dict())
    outputs, hidden = rnn(torch.randn(source, B, 3, dtype=torch.float64))
    X = tokens(B, N)
    found, _ = decoder(X, decoder.init_state((outputs, hidden), None))
    # its decoder, step by step: the query is the last hidden state, the context comes before the embedding
    memory, state, logits = outputs.permute(1, 0, 2), hidden, []
    for x in decoder.embedding(X).permute(1, 0, 2):
        context = attention(state[-1].unsqueeze(1), memory, memory, None)
        out, state = decoder.rnn(torch.cat((context, x.unsqueeze(1)), -1), state)
        logits.append(decoder.dense(out))
    torch.testing.assert_close(found, torch.cat(logits, 1), **CLOSE)


def test_steps_are_the_whole():
    model, source, target = build(), tokens(B, M), tokens(B, N, seed=1)
    whole = model(source, LENS, target)
    weights = model.attention_weights
    state, steps, looks = model.encode(source, LENS), [], []
    for X in target.split(1, 1):
        logits, state = model.decoder(X, state)
        steps.append(logits)
        looks.append(model.attention_weights)
    torch.testing.assert_close(torch.cat(steps, 1), whole, **CLOSE)
    torch.testing.assert_close(torch.cat(looks, 1), weights, **CLOSE)


@pytest.mark.parametrize("is_bidirectional", [False, True])
def test_padding_changes_nothing(is_bidirectional):
    torch.manual_seed(0)
    encoder = Seq2SeqEncoder(11, 3, 6, 2, is_bidirectional=is_bidirectional).double()
    source = tokens(B, M)
    outputs, hidden = encoder(source, LENS)
    other, same = encoder(torch.where(torch.arange(M) < LENS[:, None], source, 9), LENS)
    assert torch.equal(outputs, other)
    assert torch.equal(hidden, same)
    for b, length in enumerate(LENS.tolist()):
        alone, last = encoder(source[b : b + 1, :length])
        torch.testing.assert_close(outputs[b : b + 1, :length], alone, **CLOSE)
        torch.testing.assert_close(hidden[:, b : b + 1], last, **CLOSE)
        assert not outputs[b, length:].any()
        if is_bidirectional:
            # forth ends at the last token, back at the first
            torch.testing.assert_close(last[-1, :, :3], alone[:, -1, :3], **CLOSE)
            torch.testing.assert_close(last[-1, :, 3:], alone[:, 0, 3:], **CLOSE)


def test_an_empty_source_is_zeros():
    model, source = build(), tokens(2, M)
    outputs, hidden = model.encoder(source, torch.tensor([0, 3]))
    assert not outputs[0].any()
    assert not hidden[:, 0].any()
    logits = model(source, torch.tensor([0, 3]), tokens(2, N))
    logits.sum().backward()
    assert not model.attention_weights[0].any()
    assert all(p.grad.isfinite().all() for p in model.parameters())


LAYERS = {
    "additive": lambda: AdditiveAttention(5, 5, 4, weigh=Sparsemax()),
    "dot": DotProductAttention,
    "bilinear": lambda: BilinearAttention(5, 5),
    "cosine": lambda: CosineAttention(learns_scale=True),
    "concat": lambda: ConcatAttention(5, 5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_any_score_may_take_the_additive_ones_place(name):
    model, source, target = build(attention=LAYERS[name]()), tokens(B, M), tokens(B, N, seed=1)
    logits, layer = model(source, LENS, target), model.decoder.attention
    weights = model.attention_weights
    # the layer itself, called whole with the states that the loop went through
    state, memory = model.encode(source, LENS), model.encoder(source, LENS)[0]
    for i, X in enumerate(target.split(1, 1)):
        layer(state.hidden[-1:].transpose(0, 1), memory, memory, LENS)
        torch.testing.assert_close(weights[:, i : i + 1], layer.attention_weights, **CLOSE)
        _, state = model.decoder(X, state)
    logits.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())


def test_a_subclass_compares_in_its_own_way():
    class Doubled(AdditiveAttention):
        def compare(self, queries, keys):
            return super().compare(2 * queries, 2 * keys)

    torch.manual_seed(1)
    doubled, plain = Doubled(5, 5, 4), AdditiveAttention(5, 5, 4)
    plain.load_state_dict({
        name: (1 if name == "w_v.weight" else 2) * value for name, value in doubled.state_dict().items()
    })  # fmt: skip
    found, wanted = (build(attention=x)(tokens(B, M), LENS, tokens(B, N)) for x in (doubled, plain))
    torch.testing.assert_close(found, wanted, **CLOSE)


def test_keys_are_projected_once_a_sequence():
    model = build()
    calls = []
    model.decoder.attention.W_k.register_forward_hook(lambda *_: calls.append(1))
    model(tokens(B, M), LENS, tokens(B, N))
    assert len(calls) == 1


def test_weights_are_made_when_read_and_of_the_call():
    model = build()
    assert model.attention_weights is None
    model(tokens(B, M), LENS, tokens(B, N))
    layer = model.decoder.attention
    assert layer._weights is None
    assert layer._last_call.query.shape == (B, N, 5)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        # an optimiser's step in between
        for p in model.parameters():
            p.add_(1.0)
    weights = model.attention_weights
    copied(tokens(B, M), LENS, tokens(B, N))
    torch.testing.assert_close(weights, copied.attention_weights, **CLOSE)
    layer.shows_weights = False
    model(tokens(B, M), LENS, tokens(B, N))
    assert model.attention_weights is None


def test_copies_and_saved_weights_say_the_same():
    model = build()
    wanted = model(tokens(B, M), LENS, tokens(B, N))
    other = Seq2Seq(Seq2SeqEncoder(*SIZES), Seq2SeqAttentionDecoder(*SIZES)).double()
    other.load_state_dict(model.state_dict())
    for one in (other, copy.deepcopy(model)):
        assert torch.equal(one(tokens(B, M), LENS, tokens(B, N)), wanted)
        assert one.attention_weights.shape == (B, N, M)


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    model = Seq2Seq.from_config(Config(11, 11, 3, 6, 2, dropout=0.5, embed_dropout=0.5, is_bidirectional=True))
    given = tokens(B, M), LENS, tokens(B, N)
    assert not torch.equal(model(*given), model(*given))
    model.eval()
    assert torch.equal(model(*given), model(*given))


def test_rows_are_taken_with_all_they_have():
    model = build()
    source, target = tokens(B, M), tokens(B, N, seed=1)
    _, state = model.decoder(target, model.encode(source, LENS))
    rows = torch.tensor([2, 0, 2, 1, 1])
    taken = state.take(rows)
    assert len(taken) == 5
    X = tokens(5, 1, seed=2)
    found = model.decoder(X, taken)[0]
    _, fresh = model.decoder(target[rows], model.encode(source[rows], LENS[rows]))
    torch.testing.assert_close(found, model.decoder(X, fresh)[0], **CLOSE)
    # within a sentence the memories are shared
    assert taken.take(torch.tensor([2, 1, 0, 4, 3])).keys is taken.keys
    assert taken.take(torch.tensor([0, 0, 2, 3, 4])).keys is not taken.keys


@pytest.mark.parametrize("name", seq2seq.PRESETS)
@pytest.mark.parametrize("attention", SCORES)
def test_presets_travel_as_json(name, attention):
    config = Config.preset(name, 13, 17, attention=attention, num_hiddens=6)
    again = Config.from_dict(json.loads(json.dumps(dataclasses.asdict(config))))
    assert again == config
    model = Seq2Seq.from_config(again)
    assert model.config == config
    assert model(tokens(B, M), LENS, tokens(B, N)).shape == (B, N, 17)


def test_it_learns_to_copy():
    torch.manual_seed(0)
    model = Seq2Seq.from_config(Config(8, 8, 16, 32, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    lens = torch.randint(1, 5, (64,), generator=torch.Generator().manual_seed(3))
    source = torch.where(torch.arange(4) < lens[:, None], torch.randint(3, 8, (64, 4)), 0)
    target = torch.cat((torch.ones(64, 1).long(), source), 1)
    wanted = torch.cat((source, torch.zeros(64, 1).long()), 1)
    for _ in range(150):
        loss = nn.functional.cross_entropy(model(source, lens, target).transpose(1, 2), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (model(source, lens, target).argmax(-1) == wanted).float().mean() > 0.98
