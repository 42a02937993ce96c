"""Models come back from their folders as they were, whoever reads and whenever the writer stops."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
import torch

import regard
from regard import RegardError
from regard.extras import install
from regard.models import pretrained
from regard.models.layout import read_config
from regard.models.pretrained import load_pretrained
from regard.models.seq2seq import Config as Seq2SeqConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqAttentionDecoder, Seq2SeqEncoder
from regard.models.transformer import POSITIONS, Transformer
from regard.score import SCORES
from tests.models.small import LENS, SMALL, SOURCE, TARGET, VOCAB, build

safetensors = pytest.importorskip("safetensors.torch")


def build_seq2seq(**changes) -> Seq2Seq:
    torch.manual_seed(1)
    return Seq2Seq.from_config(Seq2SeqConfig(VOCAB, VOCAB, 6, 8, **{"num_layers": 1, **changes})).eval()


MODELS = {
    **{f"transformer {x}": lambda x=x: build(position=x) for x in POSITIONS},
    "transformer of two vocabularies": lambda: build(target_vocab_size=29, ties_embeddings=False, norm_first=True),
    "transformer of float32": lambda: build(bias=False).float(),
    "transformer of bfloat16": lambda: build(position="alibi").bfloat16(),
    **{f"seq2seq {x}": lambda x=x: build_seq2seq(attention=x) for x in SCORES},
    "seq2seq both ways": lambda: build_seq2seq(is_bidirectional=True, num_layers=2, dropout=0.1),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back(tmp_path, name):
    model = MODELS[name]()
    model.save_pretrained(tmp_path / "a" / "b", training={"step": 3, "names": ["西安"]})
    folder = tmp_path / "a" / "b"
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    before = torch.get_rng_state()
    again = load_pretrained(str(folder))
    assert torch.get_rng_state().equal(before)
    assert type(again) is type(model)
    assert again.config == model.config
    assert not again.training
    assert [name for name, x in again.named_parameters() if not x.requires_grad] == []
    assert {x.device.type for x in (*again.parameters(), *again.buffers())} == {"cpu"}
    assert again(SOURCE, LENS, TARGET).equal(model(SOURCE, LENS, TARGET))
    assert read_config(folder)["training"] == {"step": 3, "names": ["西安"]}
    # by whoever reads the hub's files
    theirs, ours = safetensors.load_file(folder / "model.safetensors"), model.state_dict()
    assert theirs.keys() == ours.keys()
    assert all(theirs[name].equal(ours[name]) and theirs[name].dtype == ours[name].dtype for name in ours)
    # and once more: the same bytes
    again.save_pretrained(tmp_path / "c", training=read_config(folder)["training"])
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "c" / file).read_bytes() == (folder / file).read_bytes()


def test_a_model_goes_on_learning(tmp_path):
    model = build_seq2seq()
    model.save_pretrained(tmp_path)
    again = Seq2Seq.from_pretrained(tmp_path)
    for one in (model, again):
        one(SOURCE, LENS, TARGET).square().sum().backward()
    assert all(a.grad.equal(b.grad) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_the_config_is_the_hubs(tmp_path):
    build().save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    config = json.loads(text)
    assert config["model_type"] == "regard-transformer"
    assert config["architectures"] == ["Transformer"]
    assert config["regard_version"] == regard.__version__
    assert config["regard_format"] == 1
    assert config["dtype"] == "float64"
    assert config["num_hiddens"] == SMALL.num_hiddens
    assert config["training"] == {}
    assert read_config(tmp_path) == config
    # as other tools write it
    for other in (json.dumps(config, sort_keys=True), json.dumps(config, indent=4), f"\n{text}\n\n"):
        (tmp_path / "config.json").write_text(other)
        assert Transformer.from_pretrained(tmp_path).config == build().config


def test_tied_weights_are_saved_once(tmp_path):
    build().save_pretrained(tmp_path)
    found = safetensors.load_file(tmp_path / "model.safetensors")
    assert [name for name, x in found.items() if x.shape == (VOCAB, SMALL.num_hiddens)] == ["embedding.weight"]
    again = Transformer.from_pretrained(tmp_path)
    assert again.target_embedding is None
    assert again.output is None


def test_files_of_others_are_read(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    # no hash, no metadata, another order
    safetensors.save_file(dict(reversed(model.state_dict().items())), tmp_path / "model.safetensors")
    assert load_pretrained(tmp_path)(SOURCE, LENS, TARGET).equal(model(SOURCE, LENS, TARGET))


def test_the_hubs_cache_is_made_of_links(tmp_path):
    model = build()
    model.save_pretrained(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for name in os.listdir(tmp_path / "blobs"):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / name)
    assert load_pretrained(tmp_path / "snapshot")(SOURCE, LENS, TARGET).equal(model(SOURCE, LENS, TARGET))


# --- a stop at any moment ---------------------------------------------------------------------------------------------


class Stop(BaseException):
    pass


def stop_at(monkeypatch, number: int) -> list[str]:
    """Let the process end before its `number`th change of a folder."""
    done: list[str] = []
    for owner, name in ((os, "replace"), (pathlib.Path, "unlink")):

        def act(*args, real=getattr(owner, name), name=name, **kwargs):
            if len(done) == number:
                raise Stop
            done.append(f"{name} {pathlib.Path(args[-1]).name}")
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, act)
    return done


@pytest.mark.parametrize("number", range(3))
def test_a_run_that_stops_leaves_one_model_or_the_other(tmp_path, monkeypatch, number):
    old, new = build(), build()
    with torch.no_grad():
        new.embedding.weight.mul_(2)
    old.save_pretrained(tmp_path, training={"step": 1})
    with monkeypatch.context() as patch:
        done = stop_at(patch, number)
        if number < 2:
            with pytest.raises(Stop):
                new.save_pretrained(tmp_path, training={"step": 2})
        else:
            new.save_pretrained(tmp_path, training={"step": 2})
    # the config of a model that stays is never away
    assert done == ["replace model.safetensors", "replace config.json"][:number]
    expected = (new if number else old)(SOURCE, LENS, TARGET)
    assert load_pretrained(tmp_path)(SOURCE, LENS, TARGET).equal(expected)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("number", range(4))
def test_two_models_are_never_mixed(tmp_path, monkeypatch, number):
    # the same shapes: nothing but the config tells them apart
    old, new = build(), build(num_heads=4)
    old.save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        done = stop_at(patch, number)
        if number < 3:
            with pytest.raises(Stop):
                new.save_pretrained(tmp_path)
        else:
            new.save_pretrained(tmp_path)
    assert done == ["unlink config.json", "replace model.safetensors", "replace config.json"][:number]
    if number in (0, 3):
        expected = (new if number else old)(SOURCE, LENS, TARGET)
        assert load_pretrained(tmp_path)(SOURCE, LENS, TARGET).equal(expected)
    else:
        with pytest.raises(
            RegardError, match=r"config\.json is not there: name a folder that a run or save_pretrained wrote\.$"
        ):
            load_pretrained(tmp_path)


def test_a_reader_in_between_is_told(tmp_path, monkeypatch):
    old, new = build(), build(num_heads=4)
    old.save_pretrained(tmp_path)
    read = pretrained.read_tensors

    def read_late(opened):
        new.save_pretrained(tmp_path)
        return read(opened)

    monkeypatch.setattr(pretrained, "read_tensors", read_late)
    with pytest.raises(RegardError) as error:
        load_pretrained(tmp_path)
    assert str(error.value) == f"{tmp_path} changed while it was read: load it again."


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    old, new = build(), build()
    old.save_pretrained(tmp_path)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with torch.no_grad():
        new.embedding.weight.mul_(2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RegardError) as error:
            new.save_pretrained(tmp_path)
    message = f"{tmp_path} cannot be written (No space left on device): check the folder and its space."
    assert str(error.value) == message
    assert load_pretrained(tmp_path)(SOURCE, LENS, TARGET).equal(old(SOURCE, LENS, TARGET))
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


# --- what cannot be saved ---------------------------------------------------------------------------------------------


def with_nan() -> Transformer:
    model = build()
    with torch.no_grad():
        model.embedding.weight[3, 2] = torch.nan
    return model


def with_another_layer() -> Transformer:
    model = build()
    model.encoder.append(model.encoder[0])
    return model


def with_another_size() -> Transformer:
    model = build()
    model.embedding = torch.nn.Embedding(5, 12, 0)
    return model


def without_config() -> Seq2Seq:
    return Seq2Seq(Seq2SeqEncoder(9, 4, 6, 1), Seq2SeqAttentionDecoder(9, 4, 6, 1))


MIXED = "Transformer is not what its config says, and could not be loaded: {}."
UNSAVED = [
    ("Seq2Seq has no config, without which it cannot be loaded: make it by from_config.", without_config, {}),
    ("Transformer embedding.weight is not finite, so nothing was saved: go back to an earlier state.", with_nan, {}),
    (MIXED.format("encoder.2.attention.W_q.weight is one too many"), with_another_layer, {}),
    (MIXED.format("embedding.weight has shape [5, 12], not [23, 12]"), with_another_size, {}),
    ("training must be what JSON can hold: Object of type set is not JSON serializable.", build, {"a": {1}}),
    ("training must be what JSON can hold: Out of range float values are not JSON compliant.", build, {"a": 1e999}),
    ("training is too long for a config.json of 1,048,576 bytes: keep settings only.", build, {"a": "x" * 2**20}),
]


@pytest.mark.parametrize(("message", "make", "training"), UNSAVED, ids=[row[0][:50] for row in UNSAVED])
def test_what_could_not_be_loaded_is_not_saved(tmp_path, message, make, training):
    with pytest.raises(RegardError) as error:
        make().save_pretrained(tmp_path / "run", training)
    # Python's own words on a number go on with the number
    assert str(error.value).partition(": inf")[0].rstrip(".") == message.rstrip(".")
    assert len(message) <= 200
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_folders_place(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RegardError, match=r"run cannot be written \((File exists|Not a directory)\): check the folder"):
        build().save_pretrained(tmp_path / "run")


def test_a_device_that_is_not_there(tmp_path):
    build().save_pretrained(tmp_path)
    with pytest.raises(RegardError, match=r"^device 'nonsense' cannot be used: .*\.$"):
        load_pretrained(tmp_path, "nonsense")


def test_the_package_is_named_where_it_is_missing(tmp_path, monkeypatch):
    build().save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    for call in (lambda: build().save_pretrained(tmp_path / "a"), lambda: load_pretrained(tmp_path)):
        with pytest.raises(RegardError) as error:
            call()
        assert str(error.value) == f"Models on disk need the package safetensors: {install('train')}."
