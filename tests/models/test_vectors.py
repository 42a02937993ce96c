"""Vectors in place of ids: the same as ids through a table, whatever padding holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard import RegardError, watch
from regard.models import encoder, transformer
from regard.models.encoder import KINDS, Encoder
from regard.models.pretrained import load_pretrained
from regard.models.transformer import Transformer
from tests.models import reading, small
from tests.models.reading import LENS, VALID, VOCAB, assert_same, draw

VECTORS = {"inputs": "vectors", "input_size": 5}


def build(**changes) -> Encoder:
    return reading.build(**{"vocab_size": 0, **VECTORS, **changes})


def draw_vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def autocast(model: Encoder, *given: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(*given)


def list_grads(model: Encoder | Transformer, out: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(out.sin().sum(), parameters, allow_unused=True)
    return {name: x for name, x in zip(names, grads, strict=True) if x is not None}


def turn(state: dict[str, Tensor], rename: str = "embedding.weight") -> dict[str, Tensor]:
    """The weights of a model of ids as one of vectors has them."""
    return {**state, "embedding.weight": state[rename].T}


# --- the law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [*({"kind": kind} for kind in KINDS), {"scales_embedding": False, "window": 1}], ids=str
)
def test_one_hot_vectors_are_ids(changes):
    of_ids = reading.build(head="classes", **changes)
    of_vectors = Encoder(replace(of_ids.config, vocab_size=0, inputs="vectors", input_size=VOCAB)).double().eval()
    of_vectors.load_state_dict(turn(of_ids.state_dict()))
    ids = draw(4, 7)
    out, again = of_ids(ids, LENS), of_vectors(functional.one_hot(ids, VOCAB).double(), LENS)
    assert_same(again, out)
    expected, found = turn(list_grads(of_ids, out)), list_grads(of_vectors, again)
    assert expected.keys() == found.keys()
    # of <pad>, which a table does not learn, there is none among the ids
    for name, grad in expected.items():
        assert_same(found[name], grad, 1e-12 * max(1, float(grad.abs().max())))


def test_one_hot_sources_are_ids():
    of_ids = small.build(target_vocab_size=19, window=(2, 1))
    config = replace(of_ids.config, vocab_size=19, target_vocab_size=None, inputs="vectors", input_size=small.VOCAB)
    of_vectors = Transformer(config).double().eval()
    of_vectors.load_state_dict(turn(of_ids.state_dict()))
    source, target = small.SOURCE, small.TARGET % 19
    out = of_ids(source, small.LENS, target)
    again = of_vectors(functional.one_hot(source, small.VOCAB).double(), small.LENS, target)
    assert_same(again, out)
    expected, found = turn(list_grads(of_ids, out)), list_grads(of_vectors, again)
    for name, grad in expected.items():
        assert_same(found[name], grad, 1e-12 * max(1, float(grad.abs().max())))


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_padded_may_be_nan(kind):
    model, vectors = build(kind=kind, head="tags"), draw_vectors(4, 7, 5)
    for which in ({"valid_lens": LENS}, {"mask": VALID.flip(1)}):
        results = []
        for poison in (0.0, torch.nan, torch.inf):
            padding = ~which.get("mask", VALID)
            given = vectors.masked_fill(padding[..., None], poison).requires_grad_()
            out = model(given, **which)
            out = out[~padding]
            (of_given,) = torch.autograd.grad(out.sum(), given, retain_graph=True)
            results.append([out, of_given, *list_grads(model, out).values()])
        assert all(x.isfinite().all() for x in results[0])
        for other in results[1:]:
            assert all(a.equal(b) for a, b in zip(results[0], other, strict=True))


def test_a_sources_padding_may_be_nan():
    model = small.build(**VECTORS)
    source, padding = draw_vectors(2, 7, 5), torch.arange(7) >= small.LENS[:, None]
    results = []
    for poison in (0.0, torch.nan):
        out = model(source.masked_fill(padding[..., None], poison), small.LENS, small.TARGET)
        results.append([out, *list_grads(model, out).values()])
    assert all(a.equal(b) and a.isfinite().all() for a, b in zip(*results, strict=True))
    assert_same(results[0][0][:1], model(source[:1, :3], None, small.TARGET[:1]))


# --- beginnings, folders, looks ---------------------------------------------------------------------------------------


def test_vectors_begin_as_large_as_ids():
    torch.manual_seed(0)
    for scales, std in ((True, 64**-0.5), (False, 0.02)):
        model = Encoder(encoder.Config(inputs="vectors", input_size=400, num_hiddens=64, scales_embedding=scales))
        made = model.embedding(torch.randn(500, 400)).detach()
        assert made.std().item() == pytest.approx(std, rel=0.05)
    model = Transformer(transformer.Config(9, inputs="vectors", input_size=400, num_hiddens=64))
    assert model.embedding(torch.randn(500, 400)).std().item() == pytest.approx(64**-0.5, rel=0.05)


def test_they_come_back(tmp_path):
    one, other = build(head="tags", window=(3, 0)), small.build(**VECTORS)
    for model, given in (
        (one, (draw_vectors(4, 7, 5), LENS)),
        (other, (draw_vectors(2, 7, 5), small.LENS, small.TARGET)),
    ):
        model.save_pretrained(tmp_path)
        again = load_pretrained(tmp_path)
        assert again.config == model.config
        assert again(*given).equal(model(*given))


def test_they_compile_and_are_seen():
    model, vectors = build(head="tags", window=(2, 1)), draw_vectors(4, 7, 5)
    # one after the other: to a compiler, what differs between two calls is any number from then on
    for one, given in ((reading.build(head="tags"), (draw(4, 7),)), (model, (vectors,)), (model, (vectors, LENS))):
        compiled = torch.compile(one, fullgraph=True, backend="aot_eager")
        assert_same(compiled(*given), one(*given))
    with watch(model) as seen:
        out = model(vectors, LENS)
    assert out.equal(model(vectors, LENS))
    assert list(seen) == ["layers.0.attention", "layers.1.attention"]


# --- what makes no sense ----------------------------------------------------------------------------------------------

OTHER = "has no meaning where inputs='vectors': leave it out, or take other inputs."


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "Config vocab_size must be at least 1 where inputs='ids', got 0."),
        ({"inputs": "vectors"}, "Config input_size must be at least 1 where inputs='vectors', got 0."),
        ({"inputs": "pixels"}, "Config inputs must be one of 'ids', 'vectors', got 'pixels'."),
        (
            {"vocab_size": 9, "input_size": 5},
            "Config input_size=5 has no meaning where inputs='ids': leave it out, or take other inputs.",
        ),
        *(
            ({**VECTORS, name: value}, f"Config {name}={value} {OTHER}")
            for name, value in {
                "vocab_size": 9, "num_characters": 9, "num_types": 2, "word_dropout": 0.1, "token_dropout": 0.1,
                "has_next": True, "pad_id": 1,
            }.items()
        ),
        (
            {**VECTORS, "head": "words"},
            "Config head='words' predicts ids, and inputs='vectors' have none: take another head.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_config_is_named(entries, message):
    with pytest.raises(RegardError) as error:
        encoder.Config.from_dict(entries)
    assert str(error.value) == message


def test_a_source_of_vectors_has_no_vocabulary():
    with pytest.raises(RegardError) as error:
        transformer.Config(9, 8, inputs="vectors", input_size=5)
    assert str(error.value) == f"Config target_vocab_size=8 {OTHER}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build()(draw(4, 7)), "Encoder vectors must be (batch, positions, input_size=5), got shape (4, 7)."),
        (
            lambda: build()(draw_vectors(4, 7, 5).float()),
            "Encoder is in float64 and vectors in float32: bring both to one, as by layer.to(vectors.dtype).",
        ),
        (
            lambda: autocast(build().float(), draw(4, 7, 5)),
            "Encoder is in float32 and vectors in int64: bring both to one, as by layer.to(vectors.dtype).",
        ),
        (
            lambda: autocast(build().float(), draw_vectors(4, 7, 5)),
            "Encoder is in float32 and vectors in float64: bring both to one, as by layer.to(vectors.dtype).",
        ),
        (lambda: build()([[1]]), "Encoder vectors must be a tensor, got list."),
        (
            lambda: small.build(**VECTORS).encode(draw_vectors(4, 7, 6)),
            "Transformer source must be (batch, positions, input_size=5), got shape (4, 7, 6).",
        ),
        (
            lambda: build(num_layers=1).adopt(reading.build(num_layers=1)),
            "Encoder cannot adopt: its vocab_size is 0, the other's 23; make them equal.",
        ),
    ],
)
def test_a_wrong_call_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
