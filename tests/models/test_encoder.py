"""The encoder against torch's own modules, one sentence after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import watch
from regard.models.config import POSITIONS
from regard.models.encoder import HEADS, KINDS, POOLINGS, Encoder
from tests.models.reading import LENS, RICH, SMALL, VALID, assert_same, build, draw, draw_inputs

# --- oracles ----------------------------------------------------------------------------------------------------------


def embed_by_hand(model: Encoder, ids: Tensor, spelling: Tensor | None = None, types: Tensor | None = None) -> Tensor:
    """What one sentence is to the layers, (n, d)."""
    config, d, n = model.config, model.config.num_hiddens, len(ids)
    rows = model.embedding.weight[ids] * (d**0.5 if config.scales_embedding else 1)
    if spelling is not None:
        rows = rows + model.spelling(spelling[None])[0] + model.grams(spelling[None])[0]
    if model.type_embedding is not None:
        rows = rows + model.type_embedding.weight[torch.zeros_like(ids) if types is None else types]
    if config.kind == "attention" and config.position == "learned":
        rows = rows + model.position.P[0, :n]
    if config.kind == "attention" and config.position == "sinusoidal":
        angles = torch.arange(n).double()[:, None] / 10000 ** (torch.arange(0, d, 2).double() / d)
        rows = rows + torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    if config.has_embed_norm:
        norm = model.embed_norm
        rows = functional.layer_norm(rows, (d,), norm.weight, norm.bias, config.norm_eps)
    return rows


def copy_to_torch(model: Encoder) -> nn.TransformerEncoder:
    config = model.config
    layer = nn.TransformerEncoderLayer(
        config.num_hiddens, config.num_heads, config.ffn_num_hiddens, 0.0, "gelu", config.norm_eps,
        batch_first=True, norm_first=config.norm_first,
    )  # fmt: skip
    norm = nn.LayerNorm(config.num_hiddens, config.norm_eps) if config.norm_first else None
    theirs = nn.TransformerEncoder(layer, config.num_layers, norm, enable_nested_tensor=False).double()
    for to, block in zip(theirs.layers, model.layers, strict=True):
        attention, projections = block.attention, [block.attention.W_q, block.attention.W_k, block.attention.W_v]
        state = {
            "self_attn.in_proj_weight": torch.cat([x.weight for x in projections]),
            "self_attn.in_proj_bias": torch.cat([x.bias for x in projections]),
        }
        pairs = {
            "self_attn.out_proj": attention.W_o, "linear1": block.ffn.dense1, "linear2": block.ffn.dense2,
            "norm1": block.addnorm1.ln, "norm2": block.addnorm2.ln,
        }  # fmt: skip
        for name, module in pairs.items():
            state |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
        to.load_state_dict(state)
    if norm is not None:
        theirs.norm.load_state_dict(model.norm.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position": "learned", "scales_embedding": False, "norm_eps": 1e-12, **RICH},
        {"position": "none", "num_types": 3, "norm_eps": 0.1},
    ],
    ids=["plain", "like BERT", "wide eps"],
)
def test_attention_is_torchs(norm_first, changes):
    model, inputs = build(norm_first=norm_first, **changes), draw_inputs(**changes)
    hidden, theirs = model.encode(inputs.pop("ids"), LENS, **inputs), copy_to_torch(model)
    inputs = draw_inputs(**changes)
    for i, length in enumerate(LENS.tolist()):
        alone = {name: x[i, :length] for name, x in inputs.items()}
        if length:
            assert_same(hidden[i, :length], theirs(embed_by_hand(model, **alone)[None])[0])
        assert not hidden[i, length:].any()


def test_a_gru_is_torchs():
    model, inputs = build(kind="gru", **RICH), draw_inputs(**RICH)
    theirs = nn.GRU(12, 6, 2, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(model.layers[0].rnn.state_dict())
    hidden = model(**inputs, valid_lens=LENS)
    for i, length in enumerate(LENS.tolist()):
        if length:
            rows = embed_by_hand(model, **{name: x[i, :length] for name, x in inputs.items()})
            assert_same(hidden[i, :length], theirs(rows[None])[0][0])
        assert not hidden[i, length:].any()


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_cnn_is_torchs(norm_first):
    model, inputs = build(kind="cnn", kernel_size=5, norm_first=norm_first, **RICH), draw_inputs(**RICH)
    hidden, layers = model(**inputs, valid_lens=LENS), model.layers[0]
    for i, length in enumerate(LENS.tolist()):
        rows = embed_by_hand(model, **{name: x[i, :length] for name, x in inputs.items()}) if length else None
        for conv, add in zip(layers.convs, layers.addnorms, strict=True):
            if rows is not None:
                inner = add.ln(rows) if norm_first else rows
                theirs = nn.Conv1d(12, 12, 5, padding="same").double()
                theirs.load_state_dict(conv.state_dict())
                inner = functional.gelu(theirs(inner.T[None]))[0].T
                rows = rows + inner if norm_first else add.ln(rows + inner)
        if rows is not None:
            assert_same(hidden[i, :length], model.norm(rows))
        assert not hidden[i, length:].any()


def test_heads_are_by_hand():
    ids, config = draw(4, 7), SMALL
    tags = build(head="tags")
    assert_same(tags(ids)[1], tags.encode(ids)[1] @ tags.output.weight.T + tags.output.bias)
    words = build(head="words", norm_eps=1e-3)
    dense = functional.gelu(words.encode(ids) @ words.words.dense.weight.T + words.words.dense.bias)
    norm = functional.layer_norm(dense, (12,), words.words.norm.weight, words.words.norm.bias, 1e-3)
    assert_same(words(ids), norm @ words.embedding.weight.T + words.words.bias)
    assert_same(words.predict_words(words.encode(ids)[1, 2:4]), words(ids)[1, 2:4])
    both = build(head="classes", pooling="first", has_pooler=True, has_next=True)
    pooled = torch.tanh(both.encode(ids)[:, 0] @ both.pooler.weight.T + both.pooler.bias)
    assert_same(both.pool(both.encode(ids)), pooled)
    assert_same(both(ids), pooled @ both.output.weight.T + both.output.bias)
    assert_same(both.predict_next(both.encode(ids)), pooled @ both.next_sentence.weight.T + both.next_sentence.bias)
    mean = build(head="classes", pooling="mean")
    expected = torch.stack([mean.encode(ids)[i, :n].mean(0) for i, n in enumerate((3, 7, 2, 1))])
    found = mean.read_out(mean.encode(ids), torch.tensor([3, 7, 2, 1]))
    assert_same(found, expected @ mean.output.weight.T + mean.output.bias)
    assert build(head="none")(ids).shape == (4, 7, config.num_hiddens)


# --- padding ----------------------------------------------------------------------------------------------------------

MAKES = [
    *({"head": head} for head in HEADS),
    *({"kind": kind, "head": head} for kind in KINDS[1:] for head in ("tags", "classes")),
    *({"head": "classes", "pooling": x, "has_pooler": True, "has_next": x == "first"} for x in POOLINGS[1:]),
    *({"position": x, "norm_first": True} for x in POSITIONS[1:5]),
    {"score": "additive", "weigh": "entmax"},
    {"kind": "cnn", "norm_first": True},
]


def run(model: Encoder, inputs: dict[str, Tensor], **which: Tensor) -> list[Tensor]:
    """What a model says of tokens alone, and the gradients of all it learns."""
    torch.manual_seed(4)
    out = model(**inputs, **which)
    valid = which.get("mask", VALID)
    said = [out if model.config.head == "classes" else out[valid]]
    if model.config.has_next:
        said.append(model.predict_next(model.encode(**inputs, **which), **which))
    loss = sum((x * torch.cos(torch.arange(x.numel()).double()).view_as(x)).sum() for x in said)
    grads = torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)
    return [*(x.detach() for x in said), *(x for x in grads if x is not None)]


@pytest.mark.parametrize("changes", MAKES, ids=str)
def test_padding_influences_nothing(changes):
    rates = dict.fromkeys(("dropout", "embed_dropout", "attention_dropout", "ffn_dropout", "word_dropout"), 0.3)
    model = build(**changes, **RICH, **rates)
    plain, other = draw_inputs(**RICH), draw_inputs(1, **RICH)
    mask = VALID.flip(1)
    for training, which in ((True, {"valid_lens": LENS}), (False, {"mask": mask})):
        model.train(training)
        valid = which.get("mask", VALID)
        poisoned = {name: x.where(valid.view(4, 7, *[1] * (x.ndim - 2)), other[name]) for name, x in plain.items()}
        assert not any(poisoned[name].equal(plain[name]) for name in plain)
        found, again = run(model, plain, **which), run(model, poisoned, **which)
        assert all(x.isfinite().all() for x in found)
        assert all(a.equal(b) for a, b in zip(found, again, strict=True))
    # floats are poisoned where they are given
    model.eval()
    for which in ({"valid_lens": LENS}, {"mask": mask}):
        hidden = model.encode(**plain, **which).detach()
        padding = ~which.get("mask", VALID)
        assert not hidden[padding].any()
        results = []
        for poison in (0.0, torch.nan):
            out = model.read_out(hidden.masked_fill(padding[..., None], poison), **which)
            learned = [
                x for name, x in model.named_parameters() if name.split(".")[0] in ("output", "words", "pooling")
            ]
            grads = torch.autograd.grad(out.sum(), learned, allow_unused=True) if learned else ()
            results.append([out, *(x for x in grads if x is not None)])
        assert all(a.equal(b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("changes", MAKES, ids=str)
def test_a_sentence_is_as_alone(changes):
    model, inputs = build(**changes, **RICH), draw_inputs(**RICH)
    together = model(**inputs, valid_lens=LENS)
    assert together.isfinite().all()
    for i, length in enumerate(LENS.tolist()):
        alone = model(
            **{name: x[i : i + 1, : max(length, 1)] for name, x in inputs.items()}, valid_lens=LENS[i : i + 1]
        )
        if length:
            whole = model(**{name: x[i : i + 1, :length] for name, x in inputs.items()})
            assert_same(alone, whole)
        if model.config.head == "classes":
            assert_same(together[i], alone[0])
        else:
            assert_same(together[i, :length], alone[0, :length])


@pytest.mark.parametrize(
    "changes", [{"kind": "gru"}, {"kind": "cnn"}, {"position": "none"}, {"position": "relative"}], ids=str
)
def test_padding_may_come_first_or_between(changes):
    model, inputs = build(head="classes", **changes, **RICH), draw_inputs(**RICH)
    usual = model(**inputs, valid_lens=LENS)
    turned = {
        name: torch.stack([x[i].roll(7 - n, 0) for i, n in enumerate(LENS.tolist())]) for name, x in inputs.items()
    }
    assert_same(model(**turned, mask=VALID.flip(1)), usual)
    # lengths and a mask both hold
    mask = torch.ones(4, 7, dtype=torch.bool)
    assert_same(model(**inputs, valid_lens=LENS, mask=mask), usual)
    if changes.get("position") == "relative":
        return
    gap = torch.tensor([0, 1, 3, 5])
    some = {name: x[1:2, gap] for name, x in inputs.items()}
    between = torch.zeros(1, 7, dtype=torch.bool)
    between[0, gap] = True
    assert_same(model(**{name: x[1:2] for name, x in inputs.items()}, mask=between), model(**some))


def test_types_are_zero_unless_given():
    model, ids = build(num_types=2), draw(4, 7)
    assert_same(model(ids), model(ids, types=torch.zeros_like(ids)))
    assert not model(ids).equal(model(ids, types=torch.ones_like(ids)))


def test_words_are_dropped_in_training_alone():
    model, ids = build(word_dropout=0.25, kind="cnn"), torch.arange(VALID.numel() * 100).view(100, -1) % 23
    seen: list[Tensor] = []
    model.embedding.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(ids)
    model.train()(ids)
    assert seen[0].equal(ids)
    changed = seen[1] != ids
    assert not changed[ids <= 3].any()
    assert (seen[1][changed] == 3).all()
    # five deviations of 2,300 draws
    assert abs(changed[ids > 3].double().mean() - 0.25) < 0.045


# --- a look -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_every_attention_is_seen(how):
    model, ids = build(head="classes", pooling=how), draw(4, 7)
    assert model.attention_weights == {"encoder": (None, None), "pooling": (None,)}
    with watch(model) as seen:
        out = model(ids, LENS)
    assert list(seen) == ["layers.0.attention", "layers.1.attention", "pooling"]
    assert model(ids, LENS).equal(out)
    weights = model.attention_weights
    assert [tuple(x.shape) for x in weights["encoder"]] == [(4, 3, 7, 7)] * 2
    assert weights["pooling"][0].shape == (4, 1, 7)
    assert build(kind="gru", head="tags").attention_weights == {"encoder": (), "pooling": ()}


@pytest.mark.gpu
@pytest.mark.parametrize("head", ["tags", "classes"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_says_the_same(kind, head):
    model, inputs = build(kind=kind, head=head, word_dropout=0.5, **RICH), draw_inputs(**RICH)
    for which in ({"valid_lens": LENS}, {"mask": VALID.flip(1)}):
        expected = model.cpu()(**inputs, **which)
        there = {name: x.to("cuda") for name, x in {**inputs, **which}.items()}
        assert_same(model.to("cuda")(**there).cpu(), expected, 1e-10)
        model.train()(**there).sum().backward()
        model.eval()
