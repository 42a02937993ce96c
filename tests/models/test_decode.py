"""Decoding against enumeration of all sentences, and a search written with lists."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from regard import RegardError
from regard.models.decode import decode_greedily, sample, search_beam
from regard.models.seq2seq import Config, Seq2Seq

BOS, EOS, PAD = 1, 2, 0
IDS = {"bos": BOS, "eos": EOS, "pad": PAD}


@dataclass(frozen=True, eq=False)
class Codes:
    """Which sentence, and all it said so far as one number."""

    sentence: Tensor
    code: Tensor
    device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: Tensor) -> Codes:
        return Codes(self.sentence[rows], self.code[rows])


class Table:
    """A decoder that looks its logits up: any sentence and any history has its own."""

    def __init__(self, batch: int, vocab: int, max_len: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        noise = torch.Generator().manual_seed(seed)
        self.logits = (2 * torch.randn(batch, vocab**max_len, vocab, generator=noise, dtype=torch.float64)).to(dtype)
        self.batch, self.vocab = batch, vocab
        self.rows: list[int] = []

    def start(self, *which: int) -> Codes:
        sentence = torch.tensor(which) if which else torch.arange(self.batch)
        return Codes(sentence, torch.full_like(sentence, -1))

    def __call__(self, X: Tensor, state: Codes) -> tuple[Tensor, Codes]:
        assert X.shape == (len(state), 1)
        self.rows.append(len(X))
        # the beginning is code 0, whatever bos is
        code = torch.where(state.code < 0, 0, state.code * self.vocab + X[:, 0] + 1)
        return self.logits[state.sentence, code % self.logits.shape[1]][:, None], replace(state, code=code)

    def log_probs(self, sentence: int, said: tuple[int, ...]) -> list[float]:
        """For the oracles: the next token's, with what is never said left out."""
        code = 0
        for token in said:
            code = code * self.vocab + token + 1
        found = torch.log_softmax(self.logits[sentence, code % self.logits.shape[1]].double(), -1)
        found[[BOS, PAD]] = -math.inf
        return found.tolist()

    def score(self, sentence: int, said: tuple[int, ...]) -> float:
        return sum(self.log_probs(sentence, said[:i])[token] for i, token in enumerate(said))


def penalise(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def enumerate_all(table: Table, sentence: int, max_len: int, alpha: float) -> tuple[float, list[int]]:
    words = [token for token in range(table.vocab) if token not in IDS.values()]
    ended = [
        (*said, EOS) for length in range(max_len) for said in itertools.product(words, repeat=length)
    ]  # fmt: skip
    return max((table.score(sentence, said) / penalise(len(said), alpha), list(said)) for said in ended)


def search_with_lists(table: Table, sentence: int, beam: int, max_len: int, alpha: float) -> tuple[float, list[int]]:
    """The same search for one sentence, without the promise that stops it early."""
    live, ended = [(0.0, ())], []
    for _ in range(max_len):
        candidates = [
            (score + log_prob, (*said, token))
            for score, said in live
            for token, log_prob in enumerate(table.log_probs(sentence, said))
            if log_prob > -math.inf
        ]
        candidates.sort(reverse=True)
        ended += [(s / penalise(len(said), alpha), said) for s, said in candidates[:beam] if said[-1] == EOS]
        live = [x for x in candidates if x[1][-1] != EOS][:beam]
        if len(ended) >= beam:
            break
    score, said = max(ended) if ended else (live[0][0] / penalise(max_len, alpha), live[0][1])
    return score, list(said)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
def test_a_wide_beam_finds_the_best_of_all(alpha):
    table = Table(batch=5, vocab=6, max_len=4)
    # three words: at most 27 beginnings are open, and 40 sentences end
    found = search_beam(table, table.start(), **IDS, max_len=4, beam=41, alpha=alpha)
    for b in range(5):
        score, said = enumerate_all(table, b, 4, alpha)
        assert found.tolist()[b] == said
        assert found.scores[b].item() == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_narrow_beam_is_the_search_with_lists(beam, alpha):
    table = Table(batch=60, vocab=7, max_len=4, seed=1)
    # many endings among the best, so that the room for what goes on is tried too
    table.logits[..., EOS] += 2
    found = search_beam(table, table.start(), **IDS, max_len=5, beam=beam, alpha=alpha)
    for b in range(60):
        score, said = search_with_lists(table, b, beam, 5, alpha)
        assert found.tolist()[b] == said
        assert found.scores[b].item() == pytest.approx(score, abs=1e-12)


def test_length_penalty_prefers_longer_ones():
    table = Table(batch=40, vocab=5, max_len=5, seed=1)
    lengths = [
        search_beam(table, table.start(), **IDS, max_len=5, beam=7, alpha=alpha).lengths.double().mean().item()
        for alpha in (0.0, 1.0, 3.0)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_beam_of_one_is_greedy(dtype):
    table = Table(batch=60, vocab=7, max_len=4, seed=2, dtype=dtype)
    greedy = decode_greedily(table, table.start(), **IDS, max_len=9)
    beam = search_beam(table, table.start(), **IDS, max_len=9, beam=1, alpha=0.0)
    assert torch.equal(greedy.tokens, beam.tokens)
    assert torch.equal(greedy.lengths, beam.lengths)
    assert torch.equal(greedy.scores, beam.scores)
    assert torch.equal(search_beam(table, table.start(), **IDS, max_len=9, beam=1).tokens, greedy.tokens)
    assert greedy.scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_a_beam_of_one_is_greedy_in_ties():
    table = Table(batch=20, vocab=9, max_len=3, seed=3)
    table.logits = table.logits.round()
    greedy = decode_greedily(table, table.start(), **IDS, max_len=8)
    assert torch.equal(greedy.tokens, search_beam(table, table.start(), **IDS, max_len=8, beam=1).tokens)


def test_greedy_takes_the_most_likely():
    table = Table(batch=30, vocab=6, max_len=5, seed=4)
    found = decode_greedily(table, table.start(), **IDS, max_len=5)
    for b, said in enumerate(found.tolist()):
        for i, token in enumerate(said):
            log_probs = table.log_probs(b, tuple(said[:i]))
            assert log_probs[token] == max(log_probs)
        assert found.scores[b].item() == pytest.approx(table.score(b, tuple(said)), abs=1e-12)
        assert EOS not in said[:-1]
        assert said[-1] == EOS or len(said) == 5
        assert (found.tokens[b, len(said) :] == PAD).all()
    assert {len(said) for said in found.tolist()} >= {1, 2, 5}


@pytest.mark.parametrize("decode", [decode_greedily, search_beam, sample])
def test_max_len_and_what_is_never_said(decode):
    table = Table(batch=8, vocab=6, max_len=4, seed=5)
    # bos and pad are what it would say, and the end is out of reach
    table.logits[..., [BOS, PAD]] += 50
    table.logits[..., EOS] = -math.inf
    for max_len in (1, 4):
        found = decode(table, table.start(), **IDS, max_len=max_len)
        assert found.tokens.shape == (8, max_len)
        assert (found.lengths == max_len).all()
        assert (found.tokens > EOS).all()
        assert found.scores.isfinite().all()


@pytest.mark.parametrize("decode", [decode_greedily, search_beam, sample])
def test_all_stop_at_once_where_the_end_is_sure(decode):
    table = Table(batch=8, vocab=6, max_len=4)
    table.logits[..., EOS] = 1e4
    found = decode(table, table.start(), **IDS, max_len=50)
    assert found.tolist() == [[EOS]] * 8
    assert len(table.rows) == 1


@pytest.mark.parametrize(("decode", "width"), [(decode_greedily, 1), (sample, 1), (search_beam, 5)])
def test_what_is_done_costs_nothing_more(decode, width):
    table = Table(batch=8, vocab=6, max_len=3, seed=6)
    # sentence b ends after b words, for sure
    for b in range(8):
        table.logits[b, :, EOS] = -1e4

    def force(X, state):
        logits, state = table(X, state)
        logits = logits.clone()
        logits[state.sentence < len(table.rows), 0, EOS] = 1e4
        return logits, state

    found = decode(force, table.start(), **IDS, max_len=50)
    assert found.lengths.tolist() == list(range(1, 9))
    assert table.rows == [width * n for n in range(8, 0, -1)]


def test_eos_may_be_bos_or_pad():
    table = Table(batch=8, vocab=6, max_len=4, seed=7)
    for ids in ({"bos": EOS, "eos": EOS, "pad": PAD}, {"bos": BOS, "eos": EOS, "pad": EOS}):
        found = search_beam(table, table.start(), **ids, max_len=5)
        assert all(said[-1] == EOS or len(said) == 5 for said in found.tolist())
        assert any(len(said) < 5 for said in found.tolist())
        assert torch.equal(
            decode_greedily(table, table.start(), **ids, max_len=5).tokens,
            search_beam(table, table.start(), **ids, max_len=5, beam=1).tokens,
        )


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(table: Table, seed: int, *which: int, **given):
    noise = torch.Generator().manual_seed(seed)
    return sample(table, table.start(*which), **IDS, max_len=5, generator=noise, **given)


def test_draws_are_as_likely_as_the_model_says():
    table = Table(batch=1, vocab=7, max_len=2)
    found = draw(table, 0, *[0] * 40_000, temperature=1.7, top_k=3)
    counts = torch.bincount(found.tokens[:, 0], minlength=7).double() / 40_000
    log_probs = torch.tensor(table.log_probs(0, ()), dtype=torch.float64)
    log_probs[log_probs < log_probs.sort().values[-3]] = -math.inf
    # four standard deviations of a frequency
    torch.testing.assert_close(counts, torch.softmax(log_probs / 1.7, -1), rtol=0, atol=0.01)
    for said, score in list(zip(found.tolist(), found.scores.tolist(), strict=True))[:20]:
        assert score == pytest.approx(table.score(0, tuple(said)), abs=1e-12)


def test_a_seed_says_all():
    table = Table(batch=30, vocab=7, max_len=3)
    first, again, other = (draw(table, seed) for seed in (5, 5, 6))
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    torch.manual_seed(1)
    free = sample(table, table.start(), **IDS, max_len=5)
    torch.manual_seed(1)
    assert torch.equal(free.tokens, sample(table, table.start(), **IDS, max_len=5).tokens)


def test_the_coldest_draw_is_greedy():
    table = Table(batch=30, vocab=7, max_len=3)
    greedy = decode_greedily(table, table.start(), **IDS, max_len=5).tokens
    assert torch.equal(draw(table, 0, top_k=1).tokens, greedy)
    assert torch.equal(draw(table, 0, temperature=1e-6).tokens, greedy)
    assert not torch.equal(draw(table, 0, top_k=100).tokens, greedy)


def test_draws_do_not_hang_on_when_others_end():
    table = Table(batch=6, vocab=7, max_len=3)
    before = draw(table, 0)
    # all but the last now end at once
    table.logits[:5, :, EOS] = 1e4
    after = draw(table, 0)
    assert after.lengths[:5].tolist() == [1] * 5
    assert after.tolist()[5] == before.tolist()[5]


# --- the translator ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    torch.manual_seed(0)
    model = Seq2Seq.from_config(Config(11, 13, 6, 10, 2)).double().eval()
    with torch.no_grad():
        # weights so large that sentences differ, and end
        for p in model.parameters():
            p.mul_(3)
        model.decoder.dense.bias[EOS] += 0.9
    return model


SOURCE = torch.randint(3, 11, (12, 7), generator=torch.Generator().manual_seed(0))
LENS = torch.tensor([7, 1, 5, 3, 2, 7, 6, 4, 1, 2, 5, 3])


@pytest.mark.parametrize("given", [None, {"beam": 1}, {"beam": 4}, {"beam": 4, "alpha": 2.0}])
def test_a_batch_is_its_sentences_one_at_a_time(model, given):
    def decode(source, lens):
        state = model.encode(source, lens)
        if given is None:
            return decode_greedily(model.decoder, state, **IDS, max_len=12)
        return search_beam(model.decoder, state, **IDS, max_len=12, **given)

    whole = decode(SOURCE, LENS)
    for b in range(len(LENS)):
        alone = decode(SOURCE[b : b + 1, : LENS[b]], LENS[b : b + 1])
        assert alone.tolist()[0] == whole.tolist()[b]
        torch.testing.assert_close(alone.scores[0], whole.scores[b], rtol=1e-11, atol=1e-11)
    assert len(set(map(tuple, whole.tolist()))) > 4
    # some end, at different places
    assert len(set(whole.lengths.tolist())) > 2


def test_a_beams_score_is_what_the_model_says_of_it(model):
    found = search_beam(model.decoder, model.encode(SOURCE, LENS), **IDS, max_len=12, beam=4)
    inputs = torch.cat((torch.full((12, 1), BOS), found.tokens[:, :-1]), 1)
    log_probs = torch.log_softmax(model(SOURCE, LENS, inputs), -1).gather(2, found.tokens[:, :, None])[:, :, 0]
    is_said = torch.arange(found.tokens.shape[1]) < found.lengths[:, None]
    scores = (log_probs * is_said).sum(-1) / ((5 + found.lengths.double()) / 6) ** 0.6
    torch.testing.assert_close(found.scores, scores.detach(), rtol=1e-11, atol=1e-11)


def test_float32_beam_of_one_is_greedy_bit_by_bit(model):
    single = Seq2Seq.from_config(model.config).eval()
    single.load_state_dict(model.state_dict())
    greedy = decode_greedily(single.decoder, single.encode(SOURCE, LENS), **IDS, max_len=12)
    beam = search_beam(single.decoder, single.encode(SOURCE, LENS), **IDS, max_len=12, beam=1, alpha=0.0)
    assert torch.equal(greedy.tokens, beam.tokens)
    assert torch.equal(greedy.scores, beam.scores)


MESSAGES = {
    "decode max_len must be at least 1, got 0.": lambda t: decode_greedily(t, t.start(), **IDS, max_len=0),
    "search_beam max_len must be at least 1, got 0.": lambda t: search_beam(t, t.start(), **IDS, max_len=0),
    "decode state must have at least one row, got none.": lambda t: sample(
        t, t.start().take(torch.tensor([]).long()), **IDS, max_len=3
    ),
    "decode bos and eos must be below the 5 tokens of the decoder, got 1 and 9.": lambda t: decode_greedily(
        t, t.start(), bos=1, eos=9, pad=0, max_len=3
    ),
    "sample temperature must be above 0, got 0: a greedy answer is its limit.": lambda t: draw(t, 0, temperature=0),
    "sample top_k must be None or at least 1, got 0.": lambda t: draw(t, 0, top_k=0),
    "search_beam beam must be at least 1, got 0.": lambda t: search_beam(t, t.start(), **IDS, max_len=3, beam=0),
    "search_beam alpha must be at least 0, got -1.0.": lambda t: search_beam(
        t, t.start(), **IDS, max_len=3, alpha=-1.0
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_pinned(message):
    with pytest.raises(RegardError) as error:
        MESSAGES[message](Table(batch=2, vocab=5, max_len=3))
    assert str(error.value) == message
