"""Decoders as the textbooks write them, a query a turn: joined where the turns are of one loop, and only there."""

import pytest
import torch
from torch import nn

from regard import attend
from regard.layers import AdditiveAttention
from regard.layers.pooling import AttentionPooling
from regard.score import Additive
from regard.views import page
from regard.watching import watch

SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7, 2]]), torch.tensor([[1, 7, 6, 5]])


class ByHand(nn.Module):
    """The attention of a textbook, whose own names tell nothing; `attend` has the last line."""

    def __init__(self):
        super().__init__()
        self.Wa, self.Ua, self.v = nn.Linear(16, 8), nn.Linear(16, 8), nn.Parameter(torch.randn(8))

    def forward(self, hidden, outputs):
        return attend(self.Wa(hidden), self.Ua(outputs), outputs, score=Additive(self.v))


class Bahdanau(AdditiveAttention):
    def __init__(self):
        super().__init__(16, 16, 8)

    def forward(self, hidden, outputs):
        return super().forward(hidden, outputs, outputs)


class Torchs(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(16, 2, batch_first=True)


class Decoder(nn.Module):
    """One step, or all of them in a loop."""

    def __init__(self, attention, steps):
        super().__init__()
        self.attention, self.loops = attention, steps == "in the decoder"
        self.embed, self.rnn, self.out = nn.Embedding(9, 16), nn.GRU(32, 16, batch_first=True), nn.Linear(16, 9)

    def step(self, y, state, outputs):
        if isinstance(self.attention, Torchs):
            context, _ = self.attention(state[-1][:, None], outputs, outputs)
        else:
            context = self.attention(state[-1][:, None], outputs)
        rows, state = self.rnn(torch.cat((context, self.embed(y)), -1), state)
        return self.out(rows), state

    def forward(self, y, state, outputs):
        if not self.loops:
            return self.step(y, state, outputs)
        rows = []
        for t in range(y.shape[1]):
            row, state = self.step(y[:, t : t + 1], state, outputs)
            rows.append(row)
        return torch.cat(rows, 1), state


class Model(nn.Module):
    def __init__(self, attention=ByHand, steps="in the decoder"):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.encoder = nn.Embedding(9, 16), nn.GRU(16, 16, batch_first=True)
        self.decoder, self.last = Decoder(attention(), steps), nn.Linear(9, 9)

    def forward(self, source, target):
        outputs, state = self.encoder(self.embed(source))
        if self.decoder.loops:
            return self.last(self.decoder(target, state, outputs)[0])
        rows = []
        for t in range(target.shape[1]):
            row, state = self.decoder(target[:, t : t + 1], state, outputs)
            rows.append(self.last(row))
        return torch.cat(rows, 1)


def count(seen):
    """How many queries each attention has once its steps are joined."""
    return {name: look.entropy.shape[-1] for name, look in seen.join().items()}


@pytest.mark.parametrize("steps", ["in the decoder", "in the model"])
@pytest.mark.parametrize("attention", [ByHand, Bahdanau, Torchs])
def test_the_turns_of_a_loop_are_one_attention(attention, steps):
    model = Model(attention, steps)
    plain = model(SOURCE, TARGET)
    with watch(model, rows=(0,)) as seen:
        assert torch.equal(model(SOURCE, TARGET), plain)
    assert list(seen)[:2] == ["decoder.attention", "decoder.attention#2"]
    assert set(seen.kinds.values()) == {"cross"}
    assert count(seen) == {"decoder.attention": 4}
    joined = seen.join()["decoder.attention"]
    torch.testing.assert_close(joined.rows, torch.cat([look.rows for look in seen.values()], -2))
    tokens = {"source": list("abcdef"), "target": list("wxyz")}
    made = page(seen, tokens, out=None).html
    assert '"n":4,"m":6' in made
    assert '"n":1' not in made


def test_loops_of_the_callers_own():
    model = Model(steps="outside")
    outputs, state = model.encoder(model.embed(SOURCE))
    for watched, name in (
        (model, "decoder.attention"), (model.decoder, "attention"), (model.decoder.attention, "ByHand"),
    ):  # fmt: skip
        now = state
        with watch(watched) as seen:
            for t in range(4):
                _, now = model.decoder(TARGET[:, t : t + 1], now, outputs)
        assert count(seen) == {name: 4}


@pytest.mark.parametrize("steps", ["in the decoder", "in the model"])
def test_passes_stay_apart(steps):
    model = Model(steps=steps)
    with watch(model) as seen:
        for target in (TARGET, TARGET, TARGET[:, :2]):
            model(SOURCE, target)
    assert list(count(seen).values()) == [4, 4, 2]
    # within the run of another module, too
    outer = nn.ModuleList([model])
    outer.forward = lambda: [model(SOURCE, TARGET), model(SOURCE, TARGET)]
    with watch(outer) as seen:
        outer()
    assert count(seen) == {"0.decoder.attention": 4, "0.decoder.attention#5": 4}
    with watch(model) as seen:
        model(SOURCE, TARGET)
        model(SOURCE.flip(1), TARGET)
    assert count(seen) == {"decoder.attention": 4, "decoder.attention#5": 4}


def test_the_decoder_alone_begins_twice():
    model = Model()
    outputs, state = model.encoder(model.embed(SOURCE))
    with watch(model.decoder) as seen:
        for target in (TARGET, TARGET[:, :3]):
            model.decoder(target, state, outputs)
    assert count(seen) == {"attention": 4, "attention#5": 3}


def test_questions_of_the_callers_own_loop_are_turns_too():
    attention, outputs = ByHand(), torch.randn(1, 6, 16)
    with watch(attention) as seen:
        for _ in range(3):
            attention(torch.randn(1, 1, 16), outputs)
    assert count(seen) == {"ByHand": 3}


def test_the_same_query_again_is_no_step():
    pooling, x = AttentionPooling(8), torch.randn(1, 5, 8)
    with watch(pooling) as seen:
        for _ in range(3):
            pooling(x)
    assert len(seen) == 3
    assert not seen.steps


def test_several_queries_at_a_time_are_no_turns():
    attention, outputs = ByHand(), torch.randn(1, 6, 16)
    with watch(attention) as seen:
        for _ in range(2):
            attention(torch.randn(1, 3, 16), outputs)
        # and one more of what went before
        attention(torch.randn(1, 1, 16), outputs)
    assert count(seen) == {"ByHand": 3, "ByHand#2": 4}
