"""Which Hugging Face folders are not opened, and what is said of them."""

import builtins
import json
import pathlib
import shutil
import struct

import pytest

from regard.core import RegardError
from regard.extras import install
from regard.tasks.checkpoints import configs
from regard.tasks.checkpoints.open import open_checkpoint
from regard.tasks.looks.look import look_at
from regard.tasks.looks.of_checkpoint import look_at_text

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tests.tasks.checkpoints import build, refuse_network, train_bytes

TEXT = "the cat 安 ran"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    refuse_network(monkeypatch)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("hf")
    return {kind: build(root / kind, kind) for kind in ("bert", "bart", "vit")}


def test_planted_keys_are_not_obeyed(tmp_path):
    planted = {name: "evil/kernels:attend" for name in ("_attn_implementation", "_attn_implementation_internal",
               "attn_implementation", "_attn_implementation_autoset", "experts_implementation")}  # fmt: skip
    folder = build(tmp_path / "bert", "bert", entries={**planted, "output_attentions": True, "_name_or_path": "evil/x"})
    checkpoint = open_checkpoint(folder, "cpu")
    assert checkpoint.model.config._attn_implementation == "sdpa"
    assert len(look_at_text(checkpoint, TEXT).seen) == 2
    nested = configs._drop({"a": [{"_attn_implementation": "evil", "b": 1}], "text": {"_attn_implementation_x": 2}})
    assert nested == {"a": [{"b": 1}], "text": {}}


def change(folder: pathlib.Path, **entries) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


def shard(folder: pathlib.Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))


def empty(folder: pathlib.Path) -> None:
    import safetensors.torch

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.query.weight"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


MALFORMED = [
    (lambda f: change(f, auto_map={"AutoModel": "x.Y"}), "config.json names code of its own (auto_map)"),
    (lambda f: change(f, more={"auto_map": {"AutoModel": "x.Y"}}), "config.json names code of its own (auto_map)"),
    (lambda f: change(f, quantization_config={"bits": 4}), "has quantised weights (quantization_config)"),
    (lambda f: change(f, model_type="regard-seq2seq"), "is a run of regard: name it without hf:."),
    (lambda f: change(f, model_type="nothing"), "has the model_type 'nothing': transformers"),
    (lambda f: change(f, model_type=["bert"]), "has the model_type ['bert']: transformers"),
    (lambda f: change(f, model_type="whisper"), "takes no text and no picture (whisper): watch(model)"),
    (lambda f: change(f, model_type="wav2vec2"), "takes no text and no picture (wav2vec2): watch(model)"),
    (lambda f: change(f, model_type="clip"), "is of several kinds of input (clip): watch(model) looks at any."),
    (lambda f: change(f, num_hidden_layers=10**9), "has num_hidden_layers=1000000000, too large for its weights"),
    (lambda f: change(f, num_hidden_layers=3), "has not all weights (16 are missing, the first is encoder.layer.2."),
    (lambda f: change(f, hidden_size="x"), "config.json makes no model ("),
    (lambda f: change(f, hidden_size=18), "has weights of other sizes than its config.json says: restore the folder."),
    (lambda f: change(f, num_attention_heads=0), "cannot be opened ("),
    (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON ("),
    (lambda f: (f / "config.json").write_text("[]"), "config.json is a list, not an object of keys"),
    (lambda f: (f / "config.json").unlink(), "config.json is not there"),
    (lambda f: (f / "adapter_config.json").write_text("{}"), "holds an adapter (adapter_config.json): merge it"),
    (lambda f: (f / "adapter_model.safetensors").write_text(""), "holds an adapter (adapter_model.safetensors)"),
    (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "in pytorch_model.bin alone: save it as saf"),
    (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is not there"),
    (lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 2**60)), "is not safetensors ("),
    (empty, "has not all weights (1 are missing, the first is encoder.layer.1.attention.self.query.weight)"),
    (lambda f: shard(f, "../weights.safetensors"), "names files that are no safetensors of this folder"),
    (lambda f: shard(f, "weights.bin"), "names files that are no safetensors of this folder"),
    (lambda f: shard(f, "others.safetensors"), "others.safetensors is not there"),
    (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is not there: save the tokenizer there as a fast one."),
    (lambda f: (f / "tokenizer.json").write_text('{"model": 3}'), "tokenizer.json is not a tokenizer ("),
    (lambda f: (f / "tokenizer.json").write_bytes(b"\xff\xfe"), "tokenizer.json is not a tokenizer ("),
]


@pytest.mark.parametrize(("break_it", "message"), MALFORMED, ids=[message[-40:] for _, message in MALFORMED])
def test_malformed_folders(folders, tmp_path, break_it, message):
    folder = tmp_path / "b"
    folder.mkdir()
    for file in folders["bert"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    break_it(folder)
    with pytest.raises(RegardError) as error:
        open_checkpoint(folder, "cpu")
    assert message in str(error.value)
    assert len(str(error.value)) <= 200
    assert "\n" not in str(error.value)


def test_a_model_without_sdpa_runs_eager_code(tmp_path):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.Gemma2Config(vocab_size=290, head_dim=8, intermediate_size=8, **sizes)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    train_bytes().save(str(tmp_path / "tokenizer.json"))
    change(tmp_path, _attn_implementation="evil/kernels", max_window_layers=99)
    sight = look_at(f"hf:{tmp_path}", TEXT, device="cpu")
    assert [check.holds and check.is_done for check in sight.seen.checks.values()] == [True]


def test_attention_that_nobody_can_see(tmp_path):
    import transformers

    sizes = {"hidden_size": 16, "n_layer": 1, "n_head": 2}
    transformers.BloomModel(transformers.BloomConfig(vocab_size=290, **sizes)).save_pretrained(tmp_path)
    train_bytes().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(RegardError, match="does not use the attention interface of transformers"):
        look_at(f"hf:{tmp_path}", TEXT, device="cpu")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"eos_token_id": "x"}, "needs the number of a token as eos_token_id: correct it."),
        ({"bad_words_ids": [[1], []]}, "needs the number of a token as bad_words_ids: correct it."),
        ({"decoder_start_token_id": 99999}, "cannot be run ("),
        # how to speak is for the caller
        ({"num_beams": 7, "do_sample": True, "repetition_penalty": 3.0, "cache_implementation": "evil"}, None),
    ],
)
def test_what_a_folder_says_of_speaking(folders, tmp_path, said, message):
    folder = shutil.copytree(folders["bart"], tmp_path / "bart")
    before = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**before, **said}))
    if message is None:
        sights = [look_at(f"hf:{place}", TEXT, device="cpu", beam=1) for place in (folder, folders["bart"])]
        assert sights[0].tokens == sights[1].tokens
        return
    with pytest.raises(RegardError) as error:
        look_at(f"hf:{folder}", TEXT, device="cpu")
    assert message in str(error.value)
    assert len(str(error.value)) <= 200


def test_shards_are_read(folders, tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    for file in folders["bert"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as opened:
        names = list(opened.keys())
    (folder / "model.safetensors").rename(folder / "all.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "all.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert len(look_at_text(open_checkpoint(folder, "cpu"), TEXT).seen) == 2


def test_what_is_asked_wrongly(folders, tmp_path):
    for run, options, message in (
        (f"hf:{tmp_path / 'none'}", {}, "none is not a folder on this machine: name one that holds"),
        (f"hf:{folders['bert'] / 'config.json'}", {}, "config.json is a file, not a folder"),
        ("hf:", {}, "is"),
        (f"hf:{folders['bert']}", {"text": " "}, "look text is empty: give some words."),
        (f"hf:{folders['bert']}", {"text": "\ud800"}, "look text is not unicode (half a surrogate pair): read it as"),
        (f"hf:{folders['bert']}", {"target": "x"},
         "look target is for models with a decoder beside an encoder: leave it out."),
        (f"hf:{folders['bart']}", {"target": ""}, "look target is empty: give some words."),
        (f"hf:{folders['bert']}", {"layers": ["z"]}, "no attention is called 'z'; there are encoder.layer.0.attention"),
        (f"hf:{folders['bert']}", {"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'."),
    ):  # fmt: skip
        with pytest.raises(RegardError) as error:
            look_at(run, **{"text": TEXT, "device": "cpu", **options})
        assert message in str(error.value)


def test_a_home_is_found(folders, monkeypatch):
    # no shell sees to it behind hf:
    monkeypatch.setenv("HOME", str(folders["bert"].parent))
    assert len(look_at("hf:~/bert", TEXT, device="cpu").seen) == 2


def test_ids_beyond_the_model(tmp_path):
    folder = build(tmp_path / "b", "bert", vocab_size=20)
    with pytest.raises(RegardError, match=r"tokenizer\.json has ids beyond the model's 20 tokens"):
        look_at(f"hf:{folder}", TEXT, device="cpu")


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("transformers", "Hugging Face folders need the package transformers: pip install transformers."),
        ("tokenizers", f"Tokenizers need the package tokenizers: {install('text')}."),
        ("PIL", "Pictures need the package pillow: pip install pillow."),
    ],
)
def test_a_missing_package_is_named(folders, tmp_path, monkeypatch, package, message):
    inner = builtins.__import__

    def refuse(name, *args, **options):
        if (
            name.partition(".")[0] == package
            and len(args) > 0
            and str(args[0].get("__name__", "")).startswith("regard.")
        ):
            raise ImportError(name)
        return inner(name, *args, **options)

    kind = "vit" if package == "PIL" else "bert"
    options = {"image": tmp_path / "a.png"} if package == "PIL" else {"text": TEXT}
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RegardError) as error:
        look_at(f"hf:{folders[kind]}", device="cpu", **options)
    assert str(error.value) == message
