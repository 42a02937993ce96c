"""Hard attention against gradients enumerated over all draws, softmax written out, and a task that it must learn."""

import copy
import itertools

import pytest
import torch
from torch import nn

from regard import attend
from regard.core import RegardError
from regard.layers.hard import Draw, HardAttention
from regard.layers.scored import (
    AdditiveAttention,
    BilinearAttention,
    ConcatAttention,
    CosineAttention,
    DotProductAttention,
)
from regard.weigh import Entmax, Hard, Softmax
from tests.tolerances import DIFFERENCES, assert_close

N, M, D = 2, 4, 3
# of a normal variable, once in 150,000 beyond; a table of 40 numbers, and seeds that are fixed
FAR = 4.5


def make_rows(batch, n=N, m=M, d=D, e=2, dtype=torch.float64):
    return (torch.randn(batch, size, width, dtype=dtype) for size, width in ((n, d), (m, d), (m, e)))


def probabilities(query, key, valid=M):
    """Softmax of the scaled dot product over the first `valid` keys, written out."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores[..., :valid]
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def drawn_keys(layer):
    return layer.attention_weights.argmax(-1)


def z_scores(samples, exact):
    """How many standard errors the mean of the samples lies from what is expected."""
    return (samples.mean(0) - exact).abs() / (samples.std(0) / samples.shape[0] ** 0.5)


class TestReinforce:
    """The estimator's mean is the gradient of the expected reward, enumerated over all draws."""

    @pytest.fixture(autouse=True)
    def _problem(self):
        torch.manual_seed(11)
        self.query, self.key = torch.randn(1, N, D).double(), torch.randn(1, M, D).double()
        # one reward for each pair of draws, far from zero: a baseline that is not subtracted right shows
        self.reward = torch.randn(M, M).double() * 2 + 3
        self.own = torch.randn(N, M).double() + 1

    def exact(self, of):
        """The gradient of −(expected reward) with respect to the query and the key."""
        query, key = self.query.clone().requires_grad_(), self.key.clone().requires_grad_()
        p = probabilities(query, key)[0]
        if of == "sequence":
            expected = sum(p[0, a] * p[1, b] * self.reward[a, b] for a, b in itertools.product(range(M), repeat=2))
        else:
            expected = (p * self.own).sum()
        return torch.autograd.grad(-expected, (query, key))

    def samples(self, of, baseline=0.0, batch=20_000):
        """One estimate for each of `batch` draws, all in one call."""
        layer = HardAttention(entropy=0.0).double()
        layer.baseline.fill_(baseline)
        query = self.query.expand(batch, -1, -1).clone().requires_grad_()
        key = self.key.expand(batch, -1, -1).clone().requires_grad_()
        layer(query, key, torch.zeros(batch, M, 1).double())
        chosen = drawn_keys(layer)
        rewards = {"sequence": self.reward[chosen[:, 0], chosen[:, 1]], "query": self.own[torch.arange(N), chosen]}
        layer.reinforce(rewards[of]).backward()
        # the surrogate is the mean over the batch
        return query.grad * batch, key.grad * batch

    @pytest.mark.parametrize("of", ["sequence", "query"])
    @pytest.mark.parametrize("baseline", [0.0, 3.0, -20.0])
    def test_mean_is_the_enumerated_gradient(self, of, baseline):
        for samples, exact in zip(self.samples(of, baseline), self.exact(of), strict=True):
            far = z_scores(samples, exact[0])
            assert far.max() < FAR
            # the test has the power to see a sign: the opposite gradient is far away
            if abs(baseline) < 10:
                assert z_scores(samples, -exact[0]).max() > 2 * FAR

    def test_a_good_baseline_makes_less_noise(self):
        without, with_one = (self.samples("sequence", baseline)[0].var(0).mean() for baseline in (0.0, 3.0))
        assert with_one < 0.6 * without


def test_probabilities_of_what_was_changed_are_refused():
    layer, keys = HardAttention(), torch.ones(1, 5, 4)
    layer(torch.ones(1, 3, 4), keys, torch.ones(1, 5, 2))
    keys.zero_()
    with pytest.raises(RegardError, match="changed in place"):
        _ = layer.soft_weights


def test_autocast_brings_all_to_one_dtype():
    with torch.autocast("cpu", torch.bfloat16):
        out = HardAttention()(torch.ones(1, 3, 4), torch.ones(1, 5, 4).bfloat16(), torch.ones(1, 5, 2))
    assert out.dtype == torch.bfloat16


def test_an_empty_batch_teaches_nothing():
    layer = HardAttention()
    layer(*(torch.zeros(0, n, 4, requires_grad=True) for n in (3, 5, 5)))
    loss = layer.reinforce(torch.zeros(0))
    assert loss == 0
    assert layer.baseline == 0


def test_surrogate_is_the_formula_and_the_baseline_moves_after():
    query, key, values = make_rows(3)
    layer = HardAttention(entropy=0.3, momentum=0.8).double()
    layer.baseline.fill_(0.5)
    baseline = 0.5
    for reward in (
        torch.tensor([1.0, -2.0, 4.0]).double(),
        torch.tensor([[1.0, 3.0], [0.0, 2.0], [5.0, 1.0]]).double(),
    ):
        layer(query, key, values)
        p = probabilities(query, key)
        log_prob = p.gather(-1, drawn_keys(layer)[..., None])[..., 0].log()
        entropy = -(p * p.log()).sum(-1)
        assert_close(layer.draw.log_prob, log_prob)
        assert_close(layer.draw.entropy, entropy)
        each = reward if reward.ndim == 2 else reward[:, None]
        expected = (-(each - baseline) * log_prob - 0.3 * entropy).sum(-1).mean()
        assert_close(layer.reinforce(reward), expected)
        baseline = 0.8 * baseline + 0.2 * reward.mean().item()
        assert layer.baseline.item() == pytest.approx(baseline, rel=1e-12)


def test_gradient_of_the_entropy_is_the_formula():
    query, key, values = make_rows(2)
    query, key = query.requires_grad_(), key.requires_grad_()
    layer = HardAttention(entropy=0.7).double()
    layer(query, key, values)
    # no reward over the baseline: the entropy alone is left
    made = torch.autograd.grad(layer.reinforce(torch.zeros(2).double()), (query, key))
    p = probabilities(query, key)
    # dH/ds_j = −p_j (log p_j + H)
    derivative = (-p * (p.log() - (p * p.log()).sum(-1, keepdim=True))).detach() * -0.7 / 2 / D**0.5
    assert_close(made[0], derivative @ key)
    assert_close(made[1], derivative.mT @ query)


SCORED = {
    "dot": lambda: DotProductAttention(),
    "additive": lambda: AdditiveAttention(D, D, 5),
    "bilinear": lambda: BilinearAttention(D, D),
    "cosine": lambda: CosineAttention(scale=3.0, learns_scale=True),
    "concat": lambda: ConcatAttention(D, D),
}


@pytest.mark.parametrize("name", SCORED)
def test_every_score_can_be_drawn_by(name):
    # gradients of log p and of the entropy, in query, key and the score's own weights, by plain autograd of all scores
    layer = HardAttention(SCORED[name](), entropy=0.1).double()
    query, key, values = make_rows(2)
    inputs = [query.requires_grad_(), key.requires_grad_(), *layer.parameters()]
    lengths = torch.tensor([[1, 4], [3, 2]])
    out = layer(query, key, values, lengths)
    weights = layer.attention_weights
    assert_close(out, weights @ values)
    reward = torch.tensor([2.0, -1.0]).double()
    made = torch.autograd.grad(layer.reinforce(reward), inputs)

    rows, columns, score = layer.attention.compare(query, key)
    scores = score(rows, columns).masked_fill(torch.arange(M) >= lengths[..., None], -torch.inf)
    log_p = torch.log_softmax(scores, -1)
    finite = log_p.masked_fill(log_p == -torch.inf, 0.0)
    entropy = -(finite.exp() * finite).masked_fill(log_p == -torch.inf, 0.0).sum(-1)
    chosen = finite.gather(-1, weights.argmax(-1)[..., None])[..., 0]
    loss = (-reward[:, None] * chosen - 0.1 * entropy).sum(-1).mean()
    for one, other in zip(made, torch.autograd.grad(loss, inputs), strict=True):
        assert_close(one, other)
    assert_close(layer.soft_weights, log_p.exp())


def test_straight_through_is_the_drawn_value_with_the_soft_gradient():
    inputs = [x.requires_grad_() for x in make_rows(5)]
    layer, lengths = HardAttention(how="straight-through").double(), torch.tensor([4, 1, 3, 0, 2])
    out = layer(*inputs, lengths)
    drawn = layer.attention_weights @ inputs[2]
    assert torch.equal(out, drawn)
    assert not torch.equal(layer.attention_weights, layer.soft_weights)
    cotangent = torch.randn_like(out)
    made = torch.autograd.grad(out, inputs, cotangent)
    soft = DotProductAttention()(*inputs, lengths)
    for one, other in zip(made, torch.autograd.grad(soft, inputs, cotangent), strict=True):
        assert_close(one, other)
    assert layer.draw is None


def test_values_have_their_gradient():
    query, key, values = make_rows(2)
    layer = HardAttention().double()

    def run(values):
        torch.manual_seed(2)
        return layer(query, key, values)

    assert torch.autograd.gradcheck(run, values.requires_grad_(), **DIFFERENCES)


def test_draws_follow_the_softmax():
    query, key, _ = make_rows(1)
    count = 20_000
    layer = HardAttention().double()
    layer(query.expand(count, -1, -1), key.expand(count, -1, -1), torch.zeros(count, M, 1).double())
    p = probabilities(query, key)
    share = layer.attention_weights.mean(0)
    assert ((share - p) / (p * (1 - p) / count).sqrt()).abs().max() < FAR
    assert torch.equal(layer.attention_weights.sum(-1), torch.ones(count, N).double())


@pytest.mark.parametrize("shape", ["batch", "queries"])
def test_no_invalid_key_is_drawn(shape):
    count = 500
    query, key, values = make_rows(count)
    lengths = torch.randint(1, M + 1, (count,) if shape == "batch" else (count, N))
    # an invalid key would be by far the best
    key = torch.where((torch.arange(M) < lengths.view(count, -1).amax(-1)[:, None])[..., None], key, 100.0)
    for how in ("reinforce", "straight-through"):
        layer = HardAttention(how=how).double()
        layer(query, key, values, lengths)
        assert (drawn_keys(layer) < lengths.view(count, -1)).all()
        # of several valid keys, not always the same
        assert len(drawn_keys(layer).unique()) == M


def test_evaluation_takes_the_best_and_repeats():
    query, key, values = make_rows(3)
    layer, lengths = HardAttention().double().eval(), torch.tensor([4, 2, 1])
    out = layer(query, key, values, lengths)
    assert torch.equal(out, layer(query, key, values, lengths))
    allowed = (torch.arange(M) < lengths[:, None])[:, None]
    assert torch.equal(out, attend(query, key, values, weigh=Hard(), mask=allowed))
    best = (query @ key.mT).masked_fill(~allowed, -torch.inf).argmax(-1)
    assert torch.equal(drawn_keys(layer), best)
    assert layer.draw is None


def test_evaluation_draws_where_asked():
    query, key, values = make_rows(50)
    layer = HardAttention(samples_in_eval=True).double().eval()
    torch.manual_seed(3)
    one, other = layer(query, key, values), layer(query, key, values)
    torch.manual_seed(3)
    assert torch.equal(layer(query, key, values), one)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", SCORED)
def test_queries_without_a_valid_key(name):
    layer = HardAttention(SCORED[name](), entropy=0.5).double()
    query, key, values = (x.requires_grad_() for x in make_rows(2))
    out = layer(query, key, values, torch.tensor([0, 3]))
    assert torch.equal(out[0], torch.zeros(N, 2).double())
    assert torch.equal(layer.draw.log_prob[0], torch.zeros(N).double())
    assert torch.equal(layer.draw.entropy[0], torch.zeros(N).double())
    loss = layer.reinforce(torch.ones(2).double()) + out.sum()
    loss.backward()
    for x in (query, key, values):
        assert torch.equal(x.grad[0], torch.zeros_like(x.grad[0]))
        assert x.grad[1].isfinite().all()
        assert x.grad[1].abs().max() > 0
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_sure_and_extreme_scores():
    # one key takes all, scores of a thousand: log p is 0 there, and nothing overflows
    query = torch.tensor([[[2000.0, 0.0], [0.0, 0.0]]], requires_grad=True)
    key = torch.tensor([[[1.0, 0.0], [-1.0, 0.0], [0.0, 5.0]]])
    layer = HardAttention(DotProductAttention(), entropy=0.1)
    layer(query, key, torch.eye(3)[None])
    assert_close(layer.draw.log_prob, torch.tensor([[0.0, -torch.tensor(3.0).log().item()]]))
    assert_close(layer.draw.entropy, torch.tensor([[0.0, torch.tensor(3.0).log().item()]]))
    layer.reinforce(torch.ones(1)).backward()
    assert query.grad.isfinite().all()


def test_hidden_nan_stays_hidden():
    query, key, values = make_rows(2)
    key[0, 3], values[0, 3] = torch.nan, torch.inf
    layer = HardAttention(entropy=0.1).double()
    query.requires_grad_()
    out = layer(query, key, values, torch.tensor([3, 4]))
    (layer.reinforce(torch.ones(2).double()) + out.sum()).backward()
    assert out.isfinite().all()
    assert query.grad.isfinite().all()


def test_several_draws_for_one_reward():
    # as in a decoder, which attends once a step and is rewarded at the end
    query, key, values = make_rows(2)
    layer, reward = HardAttention(entropy=0.2).double(), torch.tensor([1.0, 2.0]).double()
    draws = []
    for step in range(3):
        layer(query * step, key, values)
        draws.append(layer.draw)
    assert all(isinstance(draw, Draw) for draw in draws)
    expected = sum((-reward * x.log_prob.sum(-1) - 0.2 * x.entropy.sum(-1)).mean() for x in draws)
    assert_close(layer.reinforce(reward, draws), expected)
    # one reward, one move
    assert layer.baseline.item() == pytest.approx(0.15)


def test_a_look_under_no_grad_costs_no_gradient():
    query, key, values = make_rows(2)
    query.requires_grad_()
    layer = HardAttention().double()
    layer(query, key, values)
    with torch.no_grad():
        assert layer.draw.log_prob.shape == layer.draw.entropy.shape == (2, N)
    layer.reinforce(torch.ones(2).double()).backward()
    assert query.grad.abs().max() > 0


def test_no_gradient_passes_the_reward():
    query, key, values = make_rows(2)
    layer, reward = HardAttention().double(), torch.ones(2, requires_grad=True)
    layer(query.requires_grad_(), key, values)
    layer.reinforce(reward).backward()
    assert reward.grad is None


def test_dropout_drops_the_drawn_value():
    query, key, values = make_rows(2_000)
    layer = HardAttention(DotProductAttention(dropout=0.25)).double()
    out = layer(query, key, values)
    drawn = layer.attention_weights @ values
    kept = (out != 0).all(-1)
    assert_close(out[kept], drawn[kept] / 0.75)
    assert torch.equal(out[~kept], torch.zeros_like(out[~kept]))
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.03)
    layer.eval()
    assert torch.equal(layer(query, key, values), layer.attention_weights @ values)


@pytest.mark.parametrize("how", ["reinforce", "straight-through"])
def test_training_finds_the_right_key(how):
    # key j bears the name of its place; a query asks for one by a name that the layer has to translate
    torch.manual_seed(1)
    size, batch = 5, 64
    layer = HardAttention(BilinearAttention(size, size), how=how, entropy=0.01)
    names, keys = torch.eye(size), torch.eye(size).expand(batch, -1, -1)
    right = torch.tensor([3, 0, 4, 1, 2])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(80):
        asked = torch.randint(0, size, (batch, 1))
        out = layer(names[asked], keys, keys)
        hit = out.gather(-1, right[asked][..., None])[:, 0, 0]
        loss = layer.reinforce(hit.detach()) if how == "reinforce" else -hit.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    layer.eval()
    assert torch.equal(layer(names[None], keys[:1], keys[:1])[0].argmax(-1), right)
    if how == "reinforce":
        assert 0.5 < layer.baseline.item() < 1


def test_state_copies_and_precision():
    query, key, values = make_rows(2, dtype=torch.float32)
    layer = HardAttention(AdditiveAttention(D, D, 4))
    out = layer(query, key, values)
    layer.reinforce(torch.ones(2))
    out = layer(query, key, values)
    clone, other = copy.deepcopy(layer).eval(), HardAttention(AdditiveAttention(D, D, 4)).eval()
    assert clone.draw is None
    other.load_state_dict(layer.state_dict())
    assert "baseline" in layer.state_dict()
    assert other.baseline.item() == pytest.approx(0.1)
    assert torch.equal(other(query, key, values), clone(query, key, values))
    for dtype in (torch.bfloat16, torch.float16):
        half = copy.deepcopy(layer).to(dtype)
        out = half(*(x.to(dtype) for x in (query, key, values)))
        assert out.dtype == dtype
        weights = half.soft_weights.double()
        # sums over keys are float32
        assert half.draw.log_prob.dtype == torch.float32
        chosen = weights.gather(-1, half.attention_weights.argmax(-1)[..., None])[..., 0]
        assert_close(half.draw.log_prob.exp(), chosen.to(dtype))
        half.reinforce(torch.ones(2)).backward()
        assert half.attention.W_q.weight.grad.isfinite().all()


@pytest.mark.parametrize("how", ["reinforce", "straight-through"])
def test_autocast(how):
    query, key, values = make_rows(2, dtype=torch.float32)
    layer = HardAttention(AdditiveAttention(D, D, 4), how=how)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(query, key, values)
        loss = out.sum() if how == "straight-through" else layer.reinforce(torch.ones(2))
    assert_close(out, (layer.attention_weights.float() @ values).bfloat16())
    loss.backward()
    assert 0 < layer.attention.W_q.weight.grad.abs().max() < torch.inf


def test_no_row_of_scores_is_held_for_all_queries():
    # 1,024² scores would be a million numbers; no tensor that the surrogate makes has more than a tile of them
    seen = []
    query, key, values = make_rows(1, n=1024, m=1024, dtype=torch.float32)
    layer = HardAttention()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            seen.extend(x.numel() for x in [out] if isinstance(x, torch.Tensor))
            return out

    layer(query.requires_grad_(), key, values)
    with Watch():
        layer.reinforce(torch.ones(1)).backward()
    assert max(seen) <= 2**18


class Unscored(nn.Module):
    weigh = Softmax()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"attention": Unscored()},
            "HardAttention attention must be a layer of one score such as DotProductAttention() or None, got Unscored.",
        ),
        (
            {"attention": DotProductAttention(weigh=Entmax())},
            "HardAttention draws by softmax, attention has weigh=Entmax(): leave its weigh out.",
        ),
        (
            {"attention": DotProductAttention(weigh=Softmax(torch.zeros(1)))},
            "HardAttention draws by softmax, attention has weigh=Softmax(sink=float32[1]): leave its weigh out.",
        ),
        ({"how": "gumbel"}, "HardAttention how must be 'reinforce' or 'straight-through', got 'gumbel'."),
        ({"momentum": 1.0}, "HardAttention momentum must lie in [0, 1), got 1.0."),
    ],
)
def test_wrong_choices(arguments, message):
    with pytest.raises(RegardError) as failure:
        HardAttention(**arguments)
    assert str(failure.value) == message


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (
            torch.ones(3),
            "HardAttention reward must be a tensor (batch,)=(2,) or (batch, queries)=(2, 5), got shape (3,).",
        ),
        (
            torch.ones(()),
            "HardAttention reward must be a tensor (batch,)=(2,) or (batch, queries)=(2, 5), got shape ().",
        ),
        (1.0, "HardAttention reward must be a tensor (batch,)=(2,) or (batch, queries)=(2, 5), got float."),
    ],
)
def test_wrong_rewards(reward, message):
    layer = HardAttention().double()
    layer(*make_rows(2, n=5))
    with pytest.raises(RegardError) as failure:
        layer.reinforce(reward)
    assert str(failure.value) == message
    # a second try with the right one
    layer.reinforce(torch.ones(2))
    assert layer.baseline.item() == pytest.approx(0.1)


def test_nothing_to_reinforce():
    rows = list(make_rows(2))
    layer = HardAttention().double()
    message = (
        "HardAttention has no draw to reinforce: call the layer in training, with how='reinforce', and reinforce it"
        " once."
    )
    for call in (lambda: None, lambda: layer.eval()(*rows), lambda: layer.train()(*rows)):
        call()
        if layer.training and layer.draw is not None:
            layer.reinforce(torch.ones(2))
        with pytest.raises(RegardError) as failure:
            layer.reinforce(torch.ones(2))
        assert str(failure.value) == message
    with pytest.raises(RegardError) as failure:
        layer.reinforce(torch.ones(2), [])
    assert str(failure.value) == "HardAttention draws must hold at least one draw, got none."


def test_wrong_sizes_are_the_layers_own():
    layer = HardAttention(AdditiveAttention(key_size=2, query_size=3, num_hiddens=4))
    with pytest.raises(RegardError) as failure:
        layer(torch.zeros(1, 2, 5), torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))
    assert str(failure.value) == "HardAttention queries must be (batch, queries, query_size=3), got shape (1, 2, 5)."
