"""How the encoder is configured, starts and is misused."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.models.encoder import KINDS, PRESETS, Config, Encoder
from regard.models.encoder_config import SPELLINGS
from tests.models.reading import LENS, RICH, build, draw, draw_inputs

# --- config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_go_through_json(preset):
    config = Config.preset(preset, vocab_size=50, head="tags", labels=["A", "B"])
    assert config.labels == ("A", "B")
    again = Config.from_dict(json.loads(json.dumps(asdict(config))))
    assert again == config
    assert hash(again) == hash(config)


def test_base_is_berts():
    config = Config.preset("base", vocab_size=30522)
    assert (config.num_hiddens, config.ffn_num_hiddens, config.num_heads, config.num_layers) == (768, 3072, 12, 12)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"vocab_size": "9"}, "Config vocab_size must be int, got '9'."),
        ({"labels": "AB"}, "Config labels must be tuple[str, ...], got 'AB'."),
        ({"labels": ["A", 1]}, "Config labels must be tuple[str, ...], got ('A', 1)."),
        ({"labels": ["A", "B", "A"]}, "Config labels must differ, got 'A' twice."),
        ({"head": "tags"}, "Config head='tags' needs labels, got none."),
        ({"head": "tag"}, "Config head must be one of 'none', 'tags', 'classes', 'words', got 'tag'."),
        ({"kind": "lstm"}, "Config kind must be one of 'attention', 'gru', 'cnn', got 'lstm'."),
        ({"pooling": "last"}, "Config pooling must be one of 'soft', 'hard', 'mean', 'max', 'first', got 'last'."),
        ({"num_layers": 0}, "Config num_layers must be at least 1, got 0."),
        ({"num_characters": -1}, "Config num_characters must be at least 0, got -1."),
        ({"num_heads": 7}, "Config num_hiddens=256 must be a multiple of num_heads=7."),
        (
            {"kind": "gru", "num_hiddens": 7},
            "Config num_hiddens must be even for a GRU in both directions, got 7.",
        ),
        ({"kernel_size": 4}, "Config kernel_size must be odd, got 4."),
        ({"norm_eps": 0.0}, "Config norm_eps must lie in (0, 1), got 0.0."),
        ({"word_dropout": 1.0}, "Config word_dropout must lie in [0, 1), got 1.0."),
        (
            {"vocab_size": 3, "word_dropout": 0.1},
            "Config word_dropout needs <unk>, id 3, in the vocabulary, got 3 words.",
        ),
        (
            {"vocab_size": 3, "token_dropout": 0.1},
            "Config token_dropout needs <unk>, id 3, in the vocabulary, got 3 words.",
        ),
        ({"token_dropout": -0.1}, "Config token_dropout must lie in [0, 1), got -0.1."),
        ({"start_std": 10.0}, "Config start_std must lie in [0, 10), got 10.0."),
        ({"start_std": -0.1}, "Config start_std must lie in [0, 10), got -0.1."),
        ({"num_grams": 1}, "Config num_grams must be at least 2, got 1."),
        ({"spelling": "words"}, "Config spelling must be one of 'letters', 'grams', 'both', got 'words'."),
        ({"pad_id": 9}, "Config pad_id must lie in the vocabulary, 0 to 8, got 9."),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_wrong_config_is_named(entries, message):
    with pytest.raises(RegardError) as error:
        Config.from_dict({"vocab_size": 9, **entries})
    assert str(error.value) == message


def test_kinds_ask_for_what_they_use():
    # heads are of attention, halves of a GRU in both directions
    assert Config(9, kind="cnn", num_hiddens=7).num_hiddens == 7
    assert Config(9, kind="gru", num_hiddens=7, is_bidirectional=False).num_hiddens == 7


def test_it_learns_what_it_uses():
    """Several processes would wait for the gradient of what no loss reaches."""
    for changes in ({"head": "tags"}, {"head": "classes"}, {"head": "words"}, {"head": "none", "kind": "gru"}):
        model = build(**changes, **RICH)
        model(**draw_inputs(**RICH)).sum().backward()
        assert [name for name, x in model.named_parameters() if x.grad is None] == []
    assert build(head="tags").pooling is None


def test_it_starts_as_it_should():
    torch.manual_seed(0)
    scaled, plain = (
        Encoder(Config(500, num_hiddens=64, scales_embedding=x, num_types=200, position="learned"))
        for x in (True, False)
    )
    for model, std in ((scaled, 64**-0.5), (plain, 0.02)):
        for weight in (model.embedding.weight[1:], model.type_embedding.weight, model.position.P):
            assert abs(float(weight.detach().std()) / std - 1) < 0.05
        assert not model.embedding.weight[0].any()
        linear = model.layers[0].ffn.dense1
        assert linear.weight.abs().max() <= (6 / sum(linear.weight.shape)) ** 0.5
        assert not linear.bias.any()


@pytest.mark.parametrize("scales", [True, False])
def test_it_starts_as_told(scales):
    torch.manual_seed(0)
    letters = {"num_characters": 9, "num_grams": 500}
    config = Config(500, num_hiddens=64, scales_embedding=scales, start_std=0.3, num_types=200, **letters)
    model = Encoder(config)
    # runs of letters are added to embeddings as these are after scaling
    stds = (model.embedding.weight[1:], 0.3), (model.type_embedding.weight, 0.3)
    for weight, std in (*stds, (model.grams.embedding.weight[1:], 0.3 * (8 if scales else 1))):
        assert abs(float(weight.detach().std()) / std - 1) < 0.05
    assert not model.embedding.weight[0].any()
    assert not model.layers[0].ffn.dense1.bias.any()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_words_are_read_by_the_spelling_chosen(spelling):
    model = build(num_characters=9, spelling=spelling, num_grams=50)
    assert (model.spelling is not None, model.grams is not None) == (spelling != "grams", spelling != "letters")
    assert build(spelling=spelling).spelling is build(spelling=spelling).grams is None
    inputs = draw_inputs(num_characters=9)
    other = {**inputs, "spelling": inputs["spelling"].flip(-1)}
    assert not model(**inputs).allclose(model(**other))


def test_tokens_are_hidden_in_training_alone():
    model = build(token_dropout=0.25, word_dropout=0.25, kind="cnn", num_characters=9, num_grams=50)
    ids, spelling = torch.arange(2300).view(100, -1) % 23, draw(100, 23, 5, most=9)
    words, letters = [], []
    model.embedding.register_forward_pre_hook(lambda _, args: words.append(args[0]))
    for part in (model.spelling, model.grams):
        part.register_forward_pre_hook(lambda _, args: letters.append(args[0]))
    torch.manual_seed(0)
    for training in (False, True):
        model.train(training)(ids, spelling=spelling)
    assert words[0].equal(ids)
    assert letters[0].equal(spelling)
    # <mask> is the last word, and is met as a word besides
    is_hidden, is_unknown, is_free = letters[2].eq(0).all(-1), words[1] == 3, ids <= 3
    assert letters[3].equal(letters[2])
    assert (words[1][is_hidden] == 22).all()
    assert words[1][is_free].equal(ids[is_free])
    assert letters[2][is_free | is_unknown].equal(spelling[is_free | is_unknown])
    others = ~(is_hidden | is_unknown)
    assert words[1][others].equal(ids[others])
    assert letters[2][others].equal(spelling[others])
    # five deviations of 1,900 draws: a word is unknown where it is not hidden
    assert abs(is_hidden[~is_free].double().mean() - 0.25) < 0.05
    assert abs(is_unknown[~is_free].double().mean() - 0.75 * 0.25) < 0.05


def test_rates_and_norms_are_the_configs():
    rates = {"dropout": 0.11, "embed_dropout": 0.12, "attention_dropout": 0.13, "ffn_dropout": 0.14}
    model = build(head="classes", norm_first=True, has_embed_norm=True, norm_eps=1e-12, **rates)
    block = model.layers[1]
    found = model.dropout.p, model.embed_dropout.p, block.attention.dropout, block.ffn.dropout.p
    assert found == (0.11, 0.12, 0.13, 0.14)
    assert (block.addnorm1.dropout.p, block.addnorm2.dropout.p) == (0.11, 0.11)
    assert {x.eps for x in model.modules() if isinstance(x, nn.LayerNorm)} == {1e-12}


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: build()(draw(4, 7).double()),
            "Encoder ids must be int64 or int32 (batch, positions), got float64 of shape (4, 7).",
        ),
        (lambda: build()([[1]]), "Encoder ids must be int64 or int32 (batch, positions), got list."),
        (
            lambda: build()(draw(4, 7) + 22),
            "Encoder ids must be at most 22 (the last of the vocabulary), got 44.",
        ),
        (
            lambda: build()(draw(4, 7), LENS + 1),
            "Encoder valid_lens must be at most 7 (the number of keys), got 8.",
        ),
        (
            lambda: build()(draw(4, 7), mask=torch.ones(4, 6, dtype=torch.bool)),
            "Encoder mask must be bool (batch, positions)=(4, 7), True = a token, got bool of shape (4, 6).",
        ),
        (lambda: build()(draw(4, 7), types=draw(4, 7)), "Encoder with num_types=0 takes no types."),
        (
            lambda: build(num_types=2)(draw(4, 7), types=draw(4, 7)),
            "Encoder types must be at most 1 (the last of the types), got 22.",
        ),
        (
            lambda: build(num_types=2)(draw(4, 7), types=draw(4, 6, most=2)),
            "Encoder types must have the (batch, positions)=(4, 7) of ids, got (4, 6).",
        ),
        (
            lambda: build(num_characters=9)(draw(4, 7)),
            "Encoder with num_characters=9 needs spelling.",
        ),
        (
            lambda: build()(draw(4, 7), spelling=draw(4, 7, 5)),
            "Encoder with num_characters=0 takes no spelling.",
        ),
        (
            lambda: build(num_characters=9)(draw(4, 7), spelling=draw(7, 4, 5, most=9)),
            "Encoder spelling must have the (batch, positions)=(4, 7) of ids, got (7, 4, 5).",
        ),
        (
            lambda: build(head="tags").predict_words(torch.ones(2, 12)),
            "Encoder with head='tags' predicts no words: make it with head='words'.",
        ),
        (
            lambda: build().predict_next(torch.ones(2, 3, 12)),
            "Encoder has no head for the next sentence: make it with has_next=True.",
        ),
        (
            lambda: build(head="tags").pool(torch.ones(2, 3, 12).double()),
            "Encoder with head='tags' learns no soft pooling: take pooling='mean'.",
        ),
        (
            lambda: build(pooling="mean").pool(torch.ones(2, 12).double()),
            "Encoder hidden must be (batch, positions, num_hiddens=12), got shape (2, 12).",
        ),
        (
            lambda: build(position="learned", max_len=6)(draw(4, 7)),
            "LearnedPositionalEncoding has max_len=6 positions and X needs 7: make max_len larger, or take"
            " PositionalEncoding, which has no end.",
        ),
    ],
)
def test_a_wrong_call_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message


def test_no_positions_at_all():
    for kind in KINDS:
        for pooling in ("soft", "max", "first"):
            model = build(kind=kind, head="classes", pooling=pooling)
            assert model(draw(4, 7)[:, :0]).isfinite().all()
            assert model(draw(4, 7)[:0]).shape == (0, 3)
