"""What the Transformer shows, and how it is configured and misused."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict

import pytest
import torch

from regard import RegardError
from regard.layers import MultiHeadAttention
from regard.models.transformer import PRESETS, Config
from regard.weigh import WEIGHS
from tests.models.small import LENS, SOURCE, TARGET, assert_same, build

# --- a look -----------------------------------------------------------------------------------------------------------


def test_it_shows_its_weights():
    model = build()
    assert model.attention_weights == {name: (None, None) for name in ("encoder", "decoder", "cross")}
    with torch.no_grad():
        model(SOURCE, LENS, TARGET)
        seen = model.attention_weights
        sizes = {name: [tuple(x.shape) for x in layers] for name, layers in seen.items()}
        assert sizes == {"encoder": [(2, 3, 7, 7)] * 2, "decoder": [(2, 3, 6, 6)] * 2, "cross": [(2, 3, 6, 7)] * 2}
        assert all(not x.triu(1).any() for x in seen["decoder"])
        for name in ("encoder", "cross"):
            assert all(not x[0, ..., 3:].any() and x[1, ..., 3:].all() for x in seen[name])
        # a step shows its own row of them
        state = model.init_state(model.encode(SOURCE, LENS), LENS)
        for part in TARGET.split((5, 1), 1):
            model.decode(part, state)
        for name in ("decoder", "cross"):
            for row, whole in zip(model.attention_weights[name], seen[name], strict=True):
                assert_same(row, whole[:, :, -1:])


@pytest.mark.parametrize("weigh", WEIGHS)
def test_weighers_have_names(weigh):
    model = build(weigh=weigh)
    with torch.no_grad():
        assert model(SOURCE, LENS, TARGET).isfinite().all()
        assert {type(x.weigh) for x in model.modules() if isinstance(x, MultiHeadAttention)} == {WEIGHS[weigh]}


# --- config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_go_through_json(preset):
    config = Config.preset(preset, vocab_size=50, norm_first=True)
    again = Config.from_dict(json.loads(json.dumps(asdict(config))))
    assert again == config
    assert hash(again) == hash(config)
    assert again.norm_first
    with pytest.raises(FrozenInstanceError):
        again.dropout = 0.5


def test_tiny_is_the_baseline_of_multi30k():
    config = Config.preset("tiny", vocab_size=9716)
    sizes = config.num_hiddens, config.ffn_num_hiddens, config.num_heads, config.num_encoder_layers
    assert (*sizes, config.num_decoder_layers, config.dropout) == (128, 256, 4, 4, 4, 0.3)
    assert not config.norm_first
    assert config.position == "sinusoidal"
    assert config.ties_embeddings


NAMES = (
    "vocab_size, target_vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_encoder_layers, num_decoder_layers,"
    " dropout, attention_dropout, ffn_dropout, bias, norm_first, ties_embeddings, position, score, weigh, activation,"
    " pad_id, max_len, inputs, input_size, window"
)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"vocab_size": "9"}, "Config vocab_size must be int, got '9'."),
        ({"vocab_size": True}, "Config vocab_size must be int, got True."),
        ({"vocab_size": None}, "Config vocab_size must be int, got None."),
        ({"vocab_size": 9, "target_vocab_size": 1.5}, "Config target_vocab_size must be int | None, got 1.5."),
        ({"vocab_size": 9, "norm_first": 1}, "Config norm_first must be bool, got 1."),
        ({"vocab_size": 9, "num_heads": 0}, "Config num_heads must be at least 1, got 0."),
        ({"vocab_size": 9, "dropout": 1}, "Config dropout must lie in [0, 1), got 1."),
        ({"vocab_size": 9, "ffn_dropout": float("nan")}, "Config ffn_dropout must lie in [0, 1), got nan."),
        (
            {"vocab_size": 9, "position": "absolute"},
            "Config position must be one of 'sinusoidal', 'learned', 'rotary', 'relative', 'alibi', 'none', got"
            " 'absolute'.",
        ),
        (
            {"vocab_size": 9, "activation": "tanh"},
            "Config activation must be one of 'relu', 'gelu', 'silu', got 'tanh'.",
        ),
        ({"vocab_size": 9, "num_heads": 7}, "Config num_hiddens=512 must be a multiple of num_heads=7."),
        ({"vocab_size": 9, "pad_id": 9}, "Config pad_id must lie in each vocabulary, 0 to 8, got 9."),
        (
            {"vocab_size": 9, "target_vocab_size": 5, "pad_id": -1},
            "Config pad_id must be at least 0, got -1.",
        ),
        ({"vocab_size": 9, "layers": 3}, f"Config has no 'layers'; it has {NAMES}."),
        ({"num_heads": 8}, "Config needs 'vocab_size', got num_heads."),
        ({}, "Config needs 'vocab_size', got nothing."),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_wrong_config_is_named(entries, message):
    with pytest.raises(RegardError) as error:
        Config.from_dict(entries)
    assert str(error.value) == message


def test_an_unknown_preset_is_named():
    with pytest.raises(RegardError) as error:
        Config.preset("huge", vocab_size=9)
    assert str(error.value) == "Config preset must be one of 'tiny', 'small', 'base', got 'huge'."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, _: m.encode(SOURCE[0]),
            "Transformer source must be int64 or int32 (batch, positions), got int64 of shape (7,).",
        ),
        (
            lambda m, _: m.encode(SOURCE.double()),
            "Transformer source must be int64 or int32 (batch, positions), got float64 of shape (2, 7).",
        ),
        (
            lambda m, s: m.decode([[1]], s),
            "Transformer target must be int64 or int32 (batch, positions), got list.",
        ),
        (
            lambda m, _: m.encode(torch.tensor([[1, 45]])),
            "Transformer source must be at most 22 (the last of the vocabulary), got 45.",
        ),
        (lambda m, s: m.decode(TARGET - 30, s), "Transformer target must be at least 0, got -29."),
        (
            lambda m, s: m.decode(TARGET[:1], s),
            "Transformer needs a target for each source, got 1 and 2 sequences.",
        ),
        (
            lambda m, s: m.reorder(s, torch.tensor([[0]])),
            "Transformer state takes a vector of row numbers, got int64 of shape (1, 1).",
        ),
        (lambda m, s: m.reorder(s, [0]), "Transformer state takes a vector of row numbers, got list."),
        (
            lambda m, s: m.reorder(s, torch.tensor([2])),
            "Transformer state rows must be at most 1 (the last row), got 2.",
        ),
    ],
)
def test_a_wrong_call_is_named(call, message):
    model = build()
    state = model.init_state(model.encode(SOURCE, LENS), LENS)
    with pytest.raises(RegardError) as error:
        call(model, state)
    assert str(error.value) == message
    # and the state can still be used
    assert_same(model.decode(TARGET, state)[0], model(SOURCE, LENS, TARGET))
