"""Encoders whose weights are those of another, or of a folder."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.models.encoder import HEADS, KINDS, Encoder
from regard.models.pretrained import load_pretrained
from regard.models.transformer import Transformer
from tests.models import small
from tests.models.reading import LABELS, LENS, RICH, SMALL, build, draw_inputs

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
