"""How the encoder is configured, kept, handed on and misused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.models.encoder import HEADS, KINDS, PRESETS, Config, Encoder
from regard.models.encoder_config import SPELLINGS
from regard.models.pretrained import load_pretrained
from regard.models.transformer import Transformer
from tests.models import small
from tests.models.reading import LABELS, LENS, RICH, SMALL, build, draw, draw_inputs

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


# --- weights of another -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_trunk_is_adopted(kind):
    teacher = build(kind=kind, head="words", has_pooler=True, pooling="first", num_types=2)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(1)
    config = replace(teacher.config, head="classes", num_characters=9, dropout=0.5, labels=("X", "Y"))
    torch.manual_seed(3)
    pupil = Encoder(config).eval()
    before = {name: x.clone() for name, x in pupil.state_dict().items()}
    kept = pupil.adopt(teacher)
    assert {name.split(".")[0] for name in kept} == {"output", "spelling", "grams"}
    assert all(pupil.state_dict()[name].equal(before[name]) for name in kept)
    for name, x in pupil.state_dict().items():
        assert name in kept or x.equal(teacher.state_dict()[name].float()), name
    # and none of it is shared
    pupil.embedding.weight.data.zero_()
    assert teacher.embedding.weight.any()


@pytest.mark.parametrize(
    ("mine", "theirs", "message"),
    [
        (
            {"num_layers": 2}, {"num_layers": 1},
            "Encoder cannot adopt: its num_layers is 2, the other's 1; make them equal.",
        ),
        (
            {"norm_first": True}, {},
            "Encoder cannot adopt: its norm_first is True, the other's False; make them equal.",
        ),
        (
            {}, {"num_types": 2},
            "Encoder cannot adopt: its num_types is 0, the other's 2; make them equal.",
        ),
        (
            {"num_characters": 9, "spelling": "grams"}, {"num_characters": 9},
            "Encoder cannot adopt: its spelling is 'grams', the other's 'both'; make them equal.",
        ),
        (
            {"num_characters": 9, "num_grams": 50}, {"num_characters": 9, "num_grams": 60},
            "Encoder cannot adopt: its num_grams is 50, the other's 60; make them equal.",
        ),
        (
            {}, {"num_characters": 9},
            "Encoder cannot adopt: its num_characters is 0, the other's 9; make them equal.",
        ),
        (
            {"position": "learned", "max_len": 9}, {"position": "learned", "max_len": 8},
            "Encoder cannot adopt: its position.P is (1, 9, 12), the other's (1, 8, 12); make them equal.",
        ),
    ],
)  # fmt: skip
def test_another_trunk_is_refused(mine, theirs, message):
    model = build(**mine)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with pytest.raises(RegardError) as error:
        model.adopt(build(**theirs))
    assert str(error.value) == message
    assert all(x.equal(before[name]) for name, x in model.state_dict().items())


def test_letters_are_adopted_and_how_they_are_read_may_be_new():
    teacher, pupil = (build(num_characters=9, spelling="grams", num_grams=50, dropout=x) for x in (0.0, 0.5))
    with torch.no_grad():
        teacher.grams.embedding.weight.add_(1)
    assert pupil.adopt(teacher) == []
    assert pupil.grams.embedding.weight.equal(teacher.grams.embedding.weight)
    # the other never read letters: what its config says of them means nothing
    kept = build(num_characters=9, spelling="letters", num_grams=50).adopt(build(spelling="grams", num_grams=60))
    assert {name.split(".")[0] for name in kept} == {"spelling"}


def test_only_an_encoder_is_adopted():
    with pytest.raises(RegardError) as error:
        build().adopt(nn.Linear(2, 2))
    assert str(error.value) == "Encoder adopts the weights of an Encoder, got Linear."


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back(tmp_path, kind, head):
    model = build(kind=kind, head=head, has_next=head == "words", labels=("名词", "<script>"), **RICH)
    model.save_pretrained(tmp_path, training={"step": 3})
    again = load_pretrained(tmp_path, kinds=(Encoder,))
    assert type(again) is Encoder
    assert again.config == model.config
    assert not again.training
    inputs = draw_inputs(**RICH)
    assert again(**inputs, valid_lens=LENS).equal(model(**inputs, valid_lens=LENS))
    again.save_pretrained(tmp_path / "again", training={"step": 3})
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": "AB"}, "makes no model (Config labels must be tuple[str, ...], got 'AB'): correct it."),
        ({"labels": []}, "makes no model (Config head='tags' needs labels, got none): correct it."),
        ({"labels": ["A"]}, "model.safetensors does not fit config.json (output.bias has shape [3], not [1])"),
        ({"kernel_size": 2}, "makes no model (Config kernel_size must be odd, got 2): correct it."),
        ({"num_layers": 10**9}, "config.json has num_layers=1000000000, too large for its weights: correct it."),
    ],
)
def test_a_wrong_folder_is_named(tmp_path, changes, message):
    build(head="tags").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(RegardError) as error:
        Encoder.from_pretrained(tmp_path)
    assert message in str(error.value)


def test_a_folder_of_another_model_is_named(tmp_path):
    build(head="tags").save_pretrained(tmp_path / "tags")
    small.build().save_pretrained(tmp_path / "translate")
    with pytest.raises(
        RegardError, match=r"is of a Transformer, not of an Encoder: use Transformer\.from_pretrained\.$"
    ):
        load_pretrained(tmp_path / "translate", kinds=(Encoder,))
    with pytest.raises(RegardError, match=r"is of an Encoder, not of a Transformer: use Encoder\.from_pretrained\.$"):
        Transformer.from_pretrained(tmp_path / "tags")
    assert type(load_pretrained(tmp_path / "translate", kinds=(Encoder, Transformer))) is Transformer
    assert load_pretrained(tmp_path / "tags").config == replace(SMALL, head="tags", labels=LABELS)
