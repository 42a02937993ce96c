"""Multi-head attention: the textbook's class, nn.MultiheadAttention and formulas written out are the judges."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.bias import Alibi
from regard.layers.multihead import MultiHeadAttention, SelfAttention
from regard.mask import Allowed, Causal
from regard.score import SCORES, Additive, Custom, Dot
from regard.weigh import Softmax, Sparsemax
from tests.tolerances import assert_close

F64 = torch.float64


class Textbook(nn.Module):
    """The class of d2l.ai, written out."""

    def __init__(self, key_size, query_size, value_size, num_hiddens, num_heads, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(query_size, num_hiddens, bias=bias)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=bias)
        self.W_v = nn.Linear(value_size, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        return X.permute(0, 2, 1, 3).reshape(-1, X.shape[1], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2]).permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys, values, valid_lens):
        queries, keys, values = (
            self.transpose_qkv(linear(rows))
            for linear, rows in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        scores = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[-1])
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, self.num_heads, 0)
            if valid_lens.dim() == 1:
                valid_lens = valid_lens.repeat_interleave(scores.shape[1])
            flat = scores.reshape(-1, scores.shape[-1])
            late = torch.arange(flat.shape[1])[None, :] >= valid_lens.reshape(-1)[:, None]
            scores = flat.masked_fill(late, -1e6).reshape(scores.shape)
        self.attention_weights = scores.softmax(-1)
        return self.W_o(self.transpose_output(self.attention_weights @ values))


def rows(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gradients(out, module, *inputs):
    """By name, those of a fixed random projection of the output."""
    named = dict(module.named_parameters())
    grads = torch.autograd.grad((out * rows(*out.shape, seed=99)).sum(), (*named.values(), *inputs))
    return dict(zip((*named, *range(len(inputs))), grads, strict=True))


LENGTHS = {
    "none": None,
    "per sequence": torch.tensor([3, 7]),
    "per query": torch.tensor([[1, 2, 3, 4, 5], [7, 1, 6, 2, 3]]),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)
def test_it_is_the_textbooks(valid_lens, bias):
    theirs = Textbook(3, 5, 2, 12, 4, bias).double()
    ours = MultiHeadAttention(3, 5, 2, 12, 4, 0.0, bias).double()
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    inputs = [x.requires_grad_() for x in (rows(2, 5, 5), rows(2, 7, 3, seed=1), rows(2, 7, 2, seed=2))]
    out, expected = (layer(*inputs, valid_lens) for layer in (ours, theirs))
    assert_close(out, expected)
    assert_close(ours.attention_weights, theirs.attention_weights.view(2, 4, 5, 7), "weights")
    got, wanted = gradients(out, ours, *inputs), gradients(expected, theirs, *inputs)
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert_close(got[name], wanted[name], f"gradient of {name}")


def test_dropout_is_the_textbooks_in_the_mean_and_off_in_evaluation():
    layer = SelfAttention(8, 2, dropout=0.5).double()
    x = rows(1, 6, 8)
    with torch.no_grad():
        many = layer(x.expand(4000, -1, -1))
        assert many[0].sub(many[1]).abs().max() > 0.01, "sequences are dropped apart"
        out = layer.eval()(x)
        assert torch.equal(out, layer(x))
    # six standard errors
    assert ((many.mean(0) - out[0]).abs() < 6 * many.std(0) / 4000**0.5).all()


# nn.MultiheadAttention


def modules(bias=True, batch_first=True, kdim=None, vdim=None):
    module = nn.MultiheadAttention(12, 3, bias=bias, batch_first=batch_first, kdim=kdim, vdim=vdim, dtype=F64)
    for seed, parameter in enumerate(module.parameters()):
        # biases start as zeros: they must not go unnoticed
        parameter.data = 0.4 * rows(*parameter.shape, seed=seed)
    return module


SIZES = {"self": (None, None), "cross": (5, 7), "one other": (5, None)}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("is_causal", [True, False])
def test_it_is_torchs_and_back(sizes, bias, batch_first, is_causal):
    module = modules(bias, batch_first, *sizes)
    layer = MultiHeadAttention.from_torch(module)
    inputs = [rows(2, 5, 12), rows(2, 7, module.kdim, seed=1), rows(2, 7, module.vdim, seed=2)]
    inputs = [x.requires_grad_() for x in inputs]
    late = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    # torch has the last query at the last key only if told so
    future = torch.ones(5, 7, dtype=torch.bool).triu(3) if is_causal else None
    theirs = [x if batch_first else x.transpose(0, 1) for x in inputs]
    expected, weights = module(*theirs, key_padding_mask=late, attn_mask=future, average_attn_weights=False)
    mask = Causal() if is_causal else None
    out = layer(*theirs, torch.tensor([7, 4]), mask=mask)
    assert_close(out, expected)
    assert_close(layer.attention_weights, weights, "weights")
    padded = Allowed(~late[:, None, None])
    assert_close(layer(*theirs, mask=padded if mask is None else mask & padded), expected)
    # gradients of the inputs, and of one weight through its copy
    got, wanted = gradients(out, layer, *inputs), gradients(expected, module, *inputs)
    for at in range(3):
        assert_close(got[at], wanted[at], f"gradient of input {at}")
    assert_close(got["W_o.weight"], wanted["out_proj.weight"])
    # and back
    again = layer.to_torch()
    state = module.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())
    assert again.batch_first == batch_first


def test_averaged_weights_are_the_mean_over_heads_and_none_are_needed():
    module = modules().eval()
    layer = MultiHeadAttention.from_torch(module)
    x = rows(2, 5, 12)
    out, weights = module(x, x, x)
    found, found_weights = layer(x, x, x)
    assert_close(found, out)
    assert_close(found_weights, weights)
    assert_close(layer.attention_weights.mean(1), weights)
    found, nothing = layer(x, x, x, need_weights=False)
    assert_close(found, module(x, x, x, need_weights=False)[0])
    assert nothing is None


def test_where_all_is_padded_torch_says_nan_and_we_zeros():
    module = modules()
    layer = MultiHeadAttention.from_torch(module)
    x = rows(2, 5, 12)
    late = torch.tensor([[True] * 5, [False] * 3 + [True] * 2])
    expected, weights = module(x, x, x, key_padding_mask=late, average_attn_weights=False)
    assert expected[0].isnan().all()
    out = layer(x, x, x, torch.tensor([0, 3]))
    assert_close(out[1], expected[1])
    assert_close(layer.attention_weights[1], weights[1])
    assert torch.equal(layer.attention_weights[0], torch.zeros(3, 5, 5, dtype=F64))
    assert torch.equal(out[0], layer.W_o.bias.detach().expand(5, 12))


def test_conversion_copies_mode_rate_device_dtype_and_what_learns():
    module = nn.MultiheadAttention(8, 2, dropout=0.25, dtype=torch.bfloat16).eval()
    module.in_proj_bias.requires_grad_(False)
    state = torch.random.get_rng_state()
    layer = MultiHeadAttention.from_torch(module)
    assert torch.equal(torch.random.get_rng_state(), state), "nothing is drawn"
    assert (layer.training, layer.dropout, layer.W_q.weight.dtype) == (False, 0.25, torch.bfloat16)
    assert not layer.W_v.bias.requires_grad
    assert layer.W_o.bias.requires_grad
    again = layer.to_torch()
    assert (again.training, again.dropout, again.in_proj_weight.dtype) == (False, 0.25, torch.bfloat16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    for other in (module, again):
        assert other.in_proj_weight[:8].abs().sum() > 0
        assert other.out_proj.weight.abs().sum() > 0
    assert isinstance(SelfAttention.from_torch(module), SelfAttention)


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_on_one_side_alone_goes_both_ways(bias):
    module = modules(bias)
    module.out_proj.bias = None if bias else nn.Parameter(rows(12))
    layer, x = SelfAttention.from_torch(module), rows(2, 5, 12)
    assert_close(layer(x), module(x, x, x)[0])
    assert_close(layer.to_torch()(x, x, x)[0], module(x, x, x)[0])


def test_grouped_heads_are_written_out_for_torch():
    layer = MultiHeadAttention(5, 12, 7, 12, 6, bias=True, num_key_heads=2).double()
    assert layer.W_k.weight.shape == (4, 5)
    assert layer.W_v.weight.shape == (4, 7)
    queries, keys, values = rows(2, 5, 12), rows(2, 7, 5), rows(2, 7, 7)
    expected, weights = layer.to_torch()(queries, keys, values, average_attn_weights=False)
    assert_close(layer(queries, keys, values), expected)
    assert_close(layer.attention_weights, weights)


# terms


def test_grouped_heads_share_keys_in_order():
    layer = MultiHeadAttention(12, 12, 12, 12, 4, num_key_heads=2).double()
    full = Textbook(12, 12, 12, 12, 4).double()
    state = layer.state_dict()
    for name in ("W_k.weight", "W_v.weight"):
        one, other = state[name].split(3)
        state[name] = torch.cat((one, one, other, other))
    full.load_state_dict(state)
    x = rows(2, 5, 12)
    assert_close(layer(x, x, x, torch.tensor([2, 5])), full(x, x, x, torch.tensor([2, 5])))


def written_out(layer, x, scored, weigh=lambda scores: scores.softmax(-1)):
    """Self-attention with a score of projected (heads, i, 1, d) and (heads, 1, j, d)."""
    out = []
    for sequence in x:
        query, key, value = (
            linear(sequence).view(len(sequence), layer.num_heads, -1).transpose(0, 1)
            for linear in (layer.W_q, layer.W_k, layer.W_v)
        )
        out.append(layer.W_o((weigh(scored(query[:, :, None], key[:, None])) @ value).transpose(0, 1).flatten(1)))
    return torch.stack(out)


FORMULAS = {
    "dot": lambda layer, q, k: (q * k).sum(-1) / 3**0.5,
    "additive": lambda layer, q, k: ((q + k).tanh() * layer.score_weight[:, None, None]).sum(-1),
    "bilinear": lambda layer, q, k: torch.einsum("hixd,hde,hxje->hij", q, layer.score_weight, k),
    "cosine": lambda layer, q, k: torch.cosine_similarity(q, k, -1) * layer.score_scale[:, None, None],
    "concat": lambda layer, q, k: nn.functional.leaky_relu(
        (q * layer.score_query_weight[:, None, None] + k * layer.score_key_weight[:, None, None]).sum(-1), 0.2
    ),
    "feature": lambda layer, q, k: ((nn.functional.elu(q) + 1) * (nn.functional.elu(k) + 1)).sum(-1),
    "gaussian": lambda layer, q, k: -0.5 * ((q - k) * layer.score_width[:, None, None]).square().sum(-1),
}


@pytest.mark.parametrize("by", ["name", "class"])
@pytest.mark.parametrize("name", SCORES)
def test_every_score_has_its_self_attention(name, by):
    layer = SelfAttention(12, 4, score=name if by == "name" else SCORES[name]).double()
    for seed, (called, parameter) in enumerate(layer.named_parameters()):
        if called.startswith("score_"):
            # away from where they start, each head another
            parameter.data += 0.3 * rows(*parameter.shape, seed=seed)
    x = rows(2, 5, 12).requires_grad_()
    out, expected = layer(x), written_out(layer, x, lambda q, k: FORMULAS[name](layer, q, k))
    assert_close(out, expected)
    got, wanted = gradients(out, layer, x), gradients(expected, layer, x)
    for at in wanted:
        assert_close(got[at], wanted[at], f"gradient of {at}")


def test_learned_scores_have_documented_names_and_starts():
    documented = {
        "dot": {},
        "additive": {"score_weight": (4, 3)},
        "bilinear": {"score_weight": (4, 3, 3)},
        "cosine": {"score_scale": (4,)},
        "concat": {"score_query_weight": (4, 3), "score_key_weight": (4, 3)},
        "gaussian": {"score_width": (4, 3)},
        "feature": {},
    }
    heads = {name: SelfAttention(12, 4, score=name) for name in documented}
    for name, layer in heads.items():
        found = {called: tuple(p.shape) for called, p in layer.named_parameters() if called.startswith("score")}
        assert found == documented[name]
    assert heads["additive"].score_weight.abs().max() <= 3**-0.5
    assert heads["concat"].score_key_weight.abs().max() <= 3**-0.5
    assert 3**-0.5 < heads["bilinear"].score_weight.abs().max() <= 1
    assert torch.equal(heads["cosine"].score_scale, torch.ones(4))
    assert_close(heads["gaussian"].score_width.detach(), torch.full((4, 3), 3**-0.25))


def test_terms_in_the_call_come_before_the_layers_own():
    weight = rows(4, 3, seed=5)
    x = rows(2, 5, 12)
    plain = SelfAttention(12, 4).double()
    given = SelfAttention(12, 4, score=Additive(weight), weigh=Sparsemax()).double()
    given.load_state_dict(plain.state_dict())
    assert_close(plain(x, score=Additive(weight), weigh=Sparsemax()), given(x))
    assert_close(given(x, score=Dot(), weigh=Softmax()), plain(x))
    function = written_out(plain, x, lambda q, k: (q - k).abs().sum(-1).neg())
    assert_close(plain(x, score=lambda q, k: -torch.cdist(q, k, p=1)), function)
    assert not torch.allclose(plain(x), given(x))


def test_a_module_as_score_is_part_of_the_layer():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(0.7, dtype=F64))

        def forward(self, query, key):
            return self.factor * (query @ key.mT)

    layer = SelfAttention(12, 4, score=Scaled()).double()
    assert "score.factor" in layer.state_dict()
    x = rows(2, 5, 12)
    expected = written_out(layer, x, lambda q, k: layer.score.factor * (q * k).sum(-1))
    out = layer(x)
    assert_close(out, expected)
    assert_close(gradients(out, layer)["score.factor"], gradients(expected, layer)["score.factor"])


def test_mask_bias_and_lengths_act_together():
    layer, x = SelfAttention(12, 4).double(), rows(2, 5, 12)
    lengths = torch.tensor([2, 5])
    extra = rows(4, 5, 5, seed=3).requires_grad_()
    allowed = torch.ones(5, 5, dtype=torch.bool).tril() & (torch.arange(5) < lengths[:, None, None])
    scores = iter(allowed)

    def scored(q, k):
        return ((q * k).sum(-1) / 3**0.5 + extra).masked_fill(~next(scores), -torch.inf)

    expected = written_out(layer, x, scored)
    out = layer(x, lengths, mask=Causal(), bias=extra)
    assert_close(out, expected)
    assert_close(layer(x, lengths, mask=torch.ones(5, 5, dtype=torch.bool).tril(), bias=extra), expected)
    assert_close(gradients(out, layer, extra)[0], gradients(expected, layer, extra)[0])
    distance = (torch.arange(5.0, dtype=F64) - torch.arange(5.0, dtype=F64)[:, None]).abs()
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=F64)
    assert_close(layer(x, bias=Alibi()), layer(x, bias=-slopes[:, None, None] * distance))


def test_order_is_unknown_without_positions_and_known_with():
    def climb(rows, offset=0):
        return rows + torch.arange(offset, offset + rows.shape[2], dtype=rows.dtype)[:, None]

    x, turned = rows(2, 5, 12), torch.tensor([3, 0, 4, 2, 1])
    for name in SCORES:
        layer = SelfAttention(12, 4, score=name).double()
        assert_close(layer(x[:, turned]), layer(x)[:, turned], name)
    layer = SelfAttention(12, 4, position=climb).double()
    assert not torch.allclose(layer(x[:, turned]), layer(x)[:, turned], atol=1e-3)


def test_positions_are_told_where_queries_and_keys_stand():
    seen = []

    def note(rows, offset=0):
        seen.append((tuple(rows.shape), offset))
        return rows

    layer = MultiHeadAttention(12, 12, 12, 12, 4, num_key_heads=2, position=note).double()
    layer(rows(1, 2, 12), rows(1, 5, 12), rows(1, 5, 12))
    assert seen == [((1, 2, 5, 3), 0), ((1, 4, 2, 3), 3)]


# as modules go


def test_weights_are_recomputed_without_a_trace():
    layer, x = SelfAttention(12, 4, dropout=0.5, score="additive"), rows(2, 5, 12, dtype=torch.float32)
    assert layer.attention_weights is None
    out = layer(x, torch.tensor([2, 5]))
    state = torch.random.get_rng_state()
    weights = layer.attention_weights
    assert torch.equal(torch.random.get_rng_state(), state)
    assert weights.shape == (2, 4, 5, 5)
    assert not weights.requires_grad
    assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    assert torch.equal(weights[0, ..., 2:], torch.zeros(4, 5, 3))
    out.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_copies_and_autocast(name, dtype):
    layer, x = SelfAttention(12, 4, score=name, num_key_heads=2), rows(2, 5, 12, dtype=torch.float32)
    expected = layer(x, mask=Causal())
    other = copy.deepcopy(layer)
    assert torch.equal(other(x, mask=Causal()), expected)
    fresh = SelfAttention(12, 4, score=name, num_key_heads=2)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x, mask=Causal()), expected)
    half = other.to(dtype)(x.to(dtype), mask=Causal())
    assert half.dtype == dtype
    assert_close(half.detach(), expected.detach().to(dtype))
    with torch.autocast("cpu", dtype):
        cast = layer(x, mask=Causal())
    assert_close(cast.detach(), expected.detach().to(dtype))


def layer_of(**options):
    return MultiHeadAttention(3, 5, 2, 12, 4, **options)


def call(*shapes, layer=None, **options):
    return (layer or layer_of())(*(torch.zeros(s) for s in shapes), **options)


GOOD = ((2, 5, 5), (2, 7, 3), (2, 7, 2))
MESSAGES = {
    "queries": (
        lambda: call((2, 5, 4), *GOOD[1:]),
        "MultiHeadAttention queries must be (batch, queries, query_size=5), got shape (2, 5, 4).",
    ),
    "keys": (
        lambda: call(GOOD[0], (2, 7, 4), GOOD[2]),
        "MultiHeadAttention keys must be (batch, keys, key_size=3), got shape (2, 7, 4).",
    ),
    "values": (
        lambda: call(*GOOD[:2], (7, 2)),
        "MultiHeadAttention values must be (batch, values, value_size=2), got shape (7, 2).",
    ),
    "pairs": (
        lambda: call(*GOOD[:2], (2, 6, 2)),
        "MultiHeadAttention must have one value for each key: got 7 keys and 6 values.",
    ),
    "no keys": (
        lambda: layer_of()(torch.zeros(GOOD[0]), None, None),
        "MultiHeadAttention needs keys and values: only a static cache that was filled does without.",
    ),
    "lengths": (
        lambda: call(*GOOD, valid_lens=torch.tensor([3, 8])),
        "MultiHeadAttention valid_lens must be at most 7 (the number of keys), got 8.",
    ),
    "X": (
        lambda: SelfAttention(12, 4)(torch.zeros(2, 5, 11)),
        "SelfAttention X must be (batch, positions, num_hiddens=12), got shape (2, 5, 11).",
    ),
    "heads": (
        lambda: SelfAttention(10, 4),
        "SelfAttention num_hiddens=10 must be a multiple of num_heads=4.",
    ),
    "no heads": (
        lambda: SelfAttention(10, 0),
        "SelfAttention num_hiddens=10 must be a multiple of num_heads=0.",
    ),
    "key heads": (
        lambda: layer_of(num_key_heads=3),
        "MultiHeadAttention num_heads=4 must be a multiple of num_key_heads=3.",
    ),
    "dropout": (lambda: layer_of(dropout=1.0), "MultiHeadAttention dropout must lie in [0, 1), got 1.0."),
    "score name": (
        lambda: layer_of(score="dots"),
        f"MultiHeadAttention score must be a term, a function or one of {', '.join(map(repr, SCORES))}, got 'dots'.",
    ),
    "no score name": (
        lambda: layer_of(score=""),
        f"MultiHeadAttention score must be a term, a function or one of {', '.join(map(repr, SCORES))}, got ''.",
    ),
    "score class": (
        lambda: layer_of(score=int),
        "score must be a Score such as Dot() or a function of two tiles, got the class int (write int(…)).",
    ),
    "score that cannot begin": (
        lambda: layer_of(score=Custom),
        "MultiHeadAttention score Custom must be made of what its start() gives: Custom.__init__() missing 1 required"
        " positional argument: 'function'.",
    ),
    "weigh class": (
        lambda: layer_of(weigh=Softmax),
        "weigh must be a weigher such as Softmax(), got the class Softmax (write Softmax(…)).",
    ),
    "cache": (lambda: call(*GOOD, cache=True), "MultiHeadAttention cache must be a Cache, got bool."),
    "from a stranger": (
        lambda: MultiHeadAttention.from_torch(nn.Linear(2, 2)),
        "MultiHeadAttention.from_torch takes an nn.MultiheadAttention, got Linear.",
    ),
    "add_bias_kv": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(4, 2, add_bias_kv=True)),
        "MultiHeadAttention.from_torch has no counterpart of add_bias_kv=True: a learned key and value.",
    ),
    "add_zero_attn": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(4, 2, add_zero_attn=True)),
        "MultiHeadAttention.from_torch has no counterpart of add_zero_attn=True: clear the flag of the module, and give"
        " the layer weigh=Softmax(sink=torch.zeros(1)), which does the same.",
    ),
    "widths from torch": (
        lambda: SelfAttention.from_torch(nn.MultiheadAttention(4, 2, kdim=3)),
        "SelfAttention.from_torch needs one width for all: got embed_dim=4, kdim=3, vdim=4."
        " MultiHeadAttention.from_torch takes any.",
    ),
    "widths to torch": (
        lambda: layer_of().to_torch(),
        "MultiHeadAttention.to_torch needs query_size and num_hiddens to be equal, since nn.MultiheadAttention has one"
        " width for both: got 5 and 12.",
    ),
    "score to torch": (
        lambda: SelfAttention(12, 4, score="cosine").to_torch(),
        "SelfAttention.to_torch has no counterpart of score=cosine: nn.MultiheadAttention is a scaled dot product under"
        " softmax.",
    ),
    "scale to torch": (
        lambda: SelfAttention(12, 4, score=Dot(scale=1.0)).to_torch(),
        "SelfAttention.to_torch has no counterpart of score=Dot(scale=1.0): nn.MultiheadAttention is a scaled dot"
        " product under softmax.",
    ),
    "weigh to torch": (
        lambda: SelfAttention(12, 4, weigh=Sparsemax()).to_torch(),
        "SelfAttention.to_torch has no counterpart of weigh=Sparsemax(): nn.MultiheadAttention is a scaled dot product"
        " under softmax.",
    ),
    "position to torch": (
        lambda: SelfAttention(12, 4, position=nn.Identity()).to_torch(),
        "SelfAttention.to_torch has no counterpart of position=Identity: nn.MultiheadAttention is a scaled dot product"
        " under softmax.",
    ),
}


@pytest.mark.parametrize(("act", "message"), MESSAGES.values(), ids=MESSAGES)
def test_what_is_wrong_is_said_in_one_line(act, message):
    with pytest.raises(RegardError) as caught:
        act()
    assert str(caught.value) == message


def test_the_way_out_of_add_zero_attn_is_one():
    module = modules()
    layer = MultiHeadAttention.from_torch(module)
    x = rows(2, 5, 12)
    module.add_zero_attn = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = module(x, x, x)[0]
    assert_close(layer(x, x, x, weigh=Softmax(sink=torch.zeros(1, dtype=F64))), expected)
