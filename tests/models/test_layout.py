"""Folders of earlier formats, and models of other packages."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from types import ModuleType

import pytest
import torch
from torch import nn

from regard import RegardError, models
from regard.models import encoder_config, layout, pretrained, seq2seq_config, transformer_config
from regard.models.config import ModelConfig, setting
from regard.models.encoder import Encoder
from regard.models.layout import FORMAT, MODELS, read_config
from regard.models.pretrained import Pretrained, load_pretrained
from tests.models import reading, small

pytest.importorskip("safetensors")

# the keys that regard 0.1.0 wrote, whose folders are to be read for good
OF_FIRST = {
    "encoder": "vocab_size labels head kind num_hiddens ffn_num_hiddens num_heads num_layers num_characters spelling"
    " num_grams kernel_size is_bidirectional dropout embed_dropout attention_dropout ffn_dropout word_dropout"
    " token_dropout norm_first norm_eps has_embed_norm scales_embedding start_std position max_len num_types score"
    " weigh activation pooling has_pooler has_next pad_id",
    "transformer": "vocab_size target_vocab_size num_hiddens ffn_num_hiddens num_heads num_encoder_layers"
    " num_decoder_layers dropout attention_dropout ffn_dropout bias norm_first ties_embeddings position score weigh"
    " activation pad_id max_len",
}


@pytest.mark.parametrize(("build", "kind"), [(reading.build, "encoder"), (small.build, "transformer")])
def test_what_earlier_versions_can_read_is_as_they_wrote_it(tmp_path, build, kind):
    model = build()
    model.save_pretrained(tmp_path)
    entries = read_config(tmp_path)
    assert entries["regard_format"] == 1
    assert " ".join(name for name in entries if name not in pretrained._KEYS) == OF_FIRST[kind]
    # and so files without the new keys are of models that read ids, in full
    config = load_pretrained(tmp_path).config
    assert config == model.config
    assert (config.inputs, config.input_size, config.window) == ("ids", 0, None)


def test_what_they_cannot_read_says_so(tmp_path):
    reading.build(window=(2, 1)).save_pretrained(tmp_path)
    entries = read_config(tmp_path)
    assert (entries["regard_format"], entries["window"]) == (2, [2, 1])
    assert "inputs" not in entries
    assert load_pretrained(tmp_path).config.window == (2, 1)
    # to other settings of the same weights a folder is of another model
    assert not pretrained._is_same_model(tmp_path, {**entries, "window": [2, 2]})


def test_no_format_is_ahead_of_the_number():
    configs = encoder_config.Config, transformer_config.Config, seq2seq_config.Config
    came = {x.metadata["since"] for config in configs for x in fields(config)}
    assert came == {*range(1, FORMAT + 1)}


# --- models of other packages -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Widths(ModelConfig):
    widths: tuple[int, ...] = setting((3, 2), "width of each layer")
    rate: int = setting(16_000, "samples a second", most=10**6)


class Own(Pretrained):
    model_type, config_class = "own", Widths

    def __init__(self, config):
        super().__init__()
        self.config, self.layer = config, nn.Linear(config.widths[0], config.widths[1])


class Tied(Own):
    """One matrix under two names, integers before the weights, and draws of its own."""

    model_type = "own-tied"

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.uint8))
        self.norm = nn.BatchNorm1d(3)
        self.twin = nn.Linear(config.widths[0], config.widths[1])
        self.twin.weight = self.layer.weight
        self.drawn = nn.Parameter(torch.randn(3, generator=torch.Generator().manual_seed(0)))


class Lost(Own):
    """A constant that no file has."""

    model_type = "own-lost-constant"

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("constant", torch.ones(3), persistent=False)


class Held(Own):
    model_type = "own-held"

    def __init__(self, config):
        super().__init__(config)
        self.constant = torch.ones(3)


@dataclass(frozen=True)
class Plain(Widths):
    rest: int = 3


@dataclass(frozen=True)
class Late(Widths):
    rest: int = setting(3, "what came later", since=FORMAT + 1)


@dataclass(frozen=True)
class Taken(Widths):
    dtype: str = setting("auto", "what a folder has, too")


@dataclass(frozen=True)
class Large(Widths):
    period: int = setting(4096, "no size of a weight")


@dataclass(frozen=True)
class Nothing(ModelConfig):
    """No settings."""


class Bare(Pretrained):
    model_type, config_class = "own-bare", Nothing

    def __init__(self, config):
        super().__init__()
        self.config, self.layer = config, nn.Linear(2, 3)


@pytest.fixture
def package(monkeypatch):
    """A package that is installed, as far as one can tell."""
    module = ModuleType("own_models")
    for kind in (Own, Tied, Lost, Held, Bare):
        setattr(module, kind.__name__, kind)
    module.Other = Encoder
    monkeypatch.setitem(sys.modules, "own_models", module)
    found = {"own": "own_models:Own", "own-other": "own_models:Other", "own-gone": "gone_models:Gone"}
    found |= {kind.model_type: f"own_models:{kind.__name__}" for kind in (Tied, Lost, Held, Bare)}
    monkeypatch.setattr(layout, "find_plugins", lambda kind: found if kind == "models" else {})
    yield found
    pretrained._load_class.cache_clear()


def change(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_model_of_another_package_is_found(tmp_path, package):
    model = Own.from_config(Widths((3, 4)))
    model.save_pretrained(tmp_path)
    assert read_config(tmp_path)["architectures"] == ["Own"]
    again = load_pretrained(tmp_path, kinds=(Own,))
    assert type(again) is Own
    assert again.config == model.config
    assert again.layer.weight.equal(model.layer.weight)
    with pytest.raises(RegardError, match=r"is of an Own, not of an Encoder: use Own\.from_pretrained\.$"):
        load_pretrained(tmp_path, kinds=(Encoder,))
    # a size beyond the weights is refused in a tuple, too; a rate is none
    change(tmp_path, widths=[3, 10**6])
    with pytest.raises(RegardError, match=r"has widths=1000000, too large for its weights"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "own-lost",
            "'own-lost': regard loads regard-encoder, regard-seq2seq, regard-transformer, own, own-othe…; install the"
            " package of another.",
        ),
        (
            "own-other",
            "entry point regard.models own-other=own_models:Other must be a Pretrained of that model_type:"
            " mend or remove the package that declares it.",
        ),
        (
            "own-gone",
            "entry point regard.models own-gone=gone_models:Gone cannot be imported (No module named 'gone_models'):"
            " mend or remove the package that declares it.",
        ),
    ],
)
def test_a_model_that_is_not_there_is_named(tmp_path, package, name, said):
    Own(Widths()).save_pretrained(tmp_path)
    change(tmp_path, model_type=name)
    with pytest.raises(RegardError) as error:
        load_pretrained(tmp_path)
    assert str(error.value).endswith(said)


def test_a_module_that_raises_is_named(tmp_path, package, monkeypatch):
    (tmp_path / "breaking_models.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(tmp_path)
    package["own-breaking"] = "breaking_models:Own"
    Own(Widths()).save_pretrained(tmp_path)
    change(tmp_path, model_type="own-breaking")
    with pytest.raises(RegardError) as error:
        load_pretrained(tmp_path)
    assert str(error.value) == (
        "entry point regard.models own-breaking=breaking_models:Own cannot be imported (boom): mend or remove the"
        " package that declares it."
    )


def test_what_weights_share_and_count_comes_back(tmp_path, package):
    model = Tied.from_config(Widths((3, 4)))
    model.seen[1] = 7
    model.norm(torch.randn(5, 3))
    model.save_pretrained(tmp_path)
    again = load_pretrained(tmp_path)
    assert again.twin.weight is again.layer.weight
    assert len([*again.parameters()]) == len([*model.parameters()])
    for name, x in model.state_dict().items():
        assert again.state_dict()[name].equal(x), name


def test_a_model_without_settings_comes_back(tmp_path, package):
    model = Bare(Nothing())
    model.save_pretrained(tmp_path)
    assert load_pretrained(tmp_path).layer.weight.equal(model.layer.weight)


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (Lost, Widths, "Lost constant is in no file: make it a parameter, or a buffer that is saved."),
        (Held, Widths, "Held constant is in no file: make it a parameter, or a buffer that is saved."),
        (
            Own,
            Late,
            f"Config rest is since format {FORMAT + 1} of folders, this regard writes up to {FORMAT}: declare it by"
            f" setting(…, since={FORMAT}).",
        ),
        (Own, Taken, "Config dtype has the name of a key of every config.json: give it another."),
        (
            Own,
            Large,
            "Own has period=4096, too large for its weights, and could not be loaded: what is no size of a weight needs"
            " a limit of its own, setting(…, most=…).",
        ),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, package, kind, config, message):
    settings = {"rest": 4} if config is Late else {}
    with pytest.raises(RegardError) as error:
        kind(config(**settings)).save_pretrained(tmp_path / "new")
    assert str(error.value) == message
    assert not (tmp_path / "new").exists()


def test_a_field_without_limits_is_named():
    with pytest.raises(RegardError) as error:
        Plain()
    assert str(error.value) == "Config rest says not what it may be: declare it by setting(…)."


def test_a_model_that_nobody_declares_is_not_saved(tmp_path, package):
    del package["own"]
    with pytest.raises(RegardError) as error:
        Own(Widths()).save_pretrained(tmp_path / "new")
    assert str(error.value) == (
        "Own could not be loaded, since no installed package declares its model_type 'own': add it to the entry points"
        " regard.models of yours."
    )
    assert not (tmp_path / "new").exists()


def test_the_room_has_every_model_of_the_table():
    for name, reference in MODELS.items():
        kind = reference.rpartition(":")[2]
        assert kind in models.__all__
        assert getattr(models, kind).model_type == name
