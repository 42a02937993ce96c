"""Folders made to do harm: nothing is unpickled, run, fetched or read from elsewhere, whatever lies in them."""

import json
import pathlib
import pickle
import shutil

import pytest
import torch

from regard.core import RegardError
from regard.tasks.checkpoints.open import hush, open_checkpoint
from regard.tasks.looks.look import look_at

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tests.tasks.checkpoints import build, refuse_network

TEXT = "the cat 安 ran"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("hf")
    return {kind: build(root / kind, kind) for kind in ("bert", "bart", "vit")}


@pytest.fixture(autouse=True)
def _no_harm(folders, monkeypatch):
    """Let whatever unpickles, runs a folder's code or reaches for the network fail."""
    import transformers.dynamic_module_utils as dynamic

    def refuse(*args, **options):
        raise AssertionError("something was unpickled, or run")

    refuse_network(monkeypatch)
    for holder, names in (
        (torch, ("load",)),
        (torch.serialization, ("load", "_load", "_legacy_load")),
        (torch.hub, ("load", "load_state_dict_from_url")),
        (pickle, ("load", "loads", "Unpickler")),
        (dynamic, ("get_class_from_dynamic_module", "get_class_in_module", "get_cached_module_file")),
    ):
        for name in names:
            monkeypatch.setattr(holder, name, refuse)


@pytest.fixture
def folder(folders, tmp_path):
    """A folder of its own, and another beside it with other weights, of which none may be seen."""
    place = shutil.copytree(folders["bert"], tmp_path / "mine")
    outside = tmp_path / "outside"
    outside.mkdir()
    tensors = load(place)
    save({name: x + 1 for name, x in tensors.items()}, outside / "model.safetensors")
    torch.save({name: x + 1 for name, x in tensors.items()}, tmp_path / "out.bin")
    return place


def load(place):
    import safetensors.torch

    return safetensors.torch.load_file(place / "model.safetensors")


def save(tensors, file):
    import safetensors.torch

    safetensors.torch.save_file(tensors, file, {"format": "pt"})


def change(place: pathlib.Path, **entries) -> None:
    file = place / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


def complain(place: pathlib.Path) -> str:
    with pytest.raises(RegardError) as error:
        open_checkpoint(place, "cpu")
    line = str(error.value)
    assert len(line) <= 200
    assert line.isprintable()
    return line


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("name", ["x.safetensors.index.json", "../outside/model.safetensors", "adapter_model.bin"])
def test_weights_that_a_config_names(folder, depth, name):
    entries = {"transformers_weights": name}
    for _ in range(depth):
        entries = {"more": [entries]}
    change(folder, **entries)
    names = dict.fromkeys(load(folder), "../out.bin")
    (folder / "x.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert "config.json names other weights (transformers_weights): keep them as" in complain(folder)


@pytest.mark.parametrize(
    "name",
    ["../out.bin", "../outside/model.safetensors", "a/../../outside/model.safetensors", "..\\x.safetensors",
     "weights.bin", ".safetensors", "a\0.safetensors", "\ud800.safetensors", "", 3, None, ["a.safetensors"]],
)  # fmt: skip
def test_shards_that_lead_out(folder, name):
    names = dict.fromkeys(load(folder), name)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "names files that are no safetensors of this folder" in complain(folder)


def test_shards_by_their_whole_path(folder, tmp_path):
    names = dict.fromkeys(load(folder), str(tmp_path / "outside" / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "names files that are no safetensors of this folder" in complain(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_links_that_lead_out(folder, tmp_path, name):
    (folder / name).replace(tmp_path / "outside" / name)
    (folder / name).symlink_to(f"../outside/{name}")
    assert f"{name} is a link that leads out of its folder: put the file itself there." in complain(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(name)
    complain(folder)


def test_shards_and_rules_that_are_links(folder, folders, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    names = dict.fromkeys(load(folder), "a.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "a.safetensors").symlink_to(tmp_path / "outside" / "model.safetensors")
    assert "a.safetensors is a link that leads out of its folder" in complain(folder)
    vit = shutil.copytree(folders["vit"], tmp_path / "vit")
    (vit / "preprocessor_config.json").replace(tmp_path / "rules.json")
    (vit / "preprocessor_config.json").symlink_to("../rules.json")
    with pytest.raises(RegardError, match=r"preprocessor_config\.json is a link that leads out of its folder"):
        look_at(f"hf:{vit}", image=tmp_path / "a.png", device="cpu")


def test_a_cache_of_the_hub_and_links_within(folder, tmp_path):
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0a1b"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for k, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, blobs / f"{k:040x}")
        (snapshot / file.name).symlink_to(f"../../blobs/{k:040x}")
    expected = load(folder)
    (folder / "model.safetensors").rename(folder / "inner.safetensors")
    (folder / "model.safetensors").symlink_to("inner.safetensors")
    (tmp_path / "link").symlink_to(folder)
    for place in (snapshot, folder, tmp_path / "link"):
        weights = open_checkpoint(place, "cpu").model.state_dict()
        assert all(torch.equal(weights[name], x) for name, x in expected.items())


class Harm:
    """What a pickle can do: write a file where it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


@pytest.mark.parametrize("kind", ["bert", "bart"])
def test_what_else_lies_there_is_not_touched(folders, tmp_path, kind):
    place, mark = shutil.copytree(folders[kind], tmp_path / kind), tmp_path / "mark"
    bad = pickle.dumps(Harm(mark))
    code = f"open({str(mark)!r}, 'w')\n"
    # pickles of all kinds, the mark of a checkpoint in parts, a gguf, code
    for name in ("pytorch_model.bin", "training_args.bin", ".metadata", "__0_0.distcp", "model.gguf", "spk_dict.pt",
                 "adapter_model.bin", "optimizer.pt", "vocab.pkl",
                 "shard-00000-model-00001-of-00001.safetensors"):  # fmt: skip
        (place / name).write_bytes(bad)
    (place / "custom_generate").mkdir()
    for name in ("custom_generate/generate.py", "modeling_bert.py", "configuration_bert.py", "tokenization_bert.py",
                 "__init__.py", "sitecustomize.py"):  # fmt: skip
        (place / name).write_text(code)
    (place / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    (place / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["a.B", None]}}))
    entries = {"custom_pipelines": {"x": {"impl": "a.B"}}, "_name_or_path": "evil/x", "name_or_path": "evil/x",
               "base_model_name_or_path": "evil/x", "gguf_file": "model.gguf", "fusion_config": {"x": True},
               "kernel_config": {"x": "evil/k"}, "use_kernels": True, "distributed_config": {"tp_size": 2},
               "trust_remote_code": True, "adapter_name": "evil", "tokenizer_class": "Evil", "to_dict": "evil",
               "attribute_map": {"hidden_size": "evil"}, "_attn_implementation_internal": "evil/k"}  # fmt: skip
    change(place, **entries)
    if kind == "bart":
        said = {"custom_generate": "evil/x", "cache_implementation": "evil", "assistant_model": "evil/x",
                "compile_config": {"backend": "evil"}, "decoder_start_token_id": 2, "eos_token_id": 2}  # fmt: skip
        (place / "generation_config.json").write_text(json.dumps(said))
    sight, plain = (look_at(f"hf:{one}", TEXT, target="the" if kind == "bart" else None, device="cpu")
                    for one in (place, folders[kind]))  # fmt: skip
    assert not mark.exists()
    assert all(torch.equal(look.map, plain.seen[name].map) for name, look in sight.seen.items())
    if kind == "bart":
        assert look_at(f"hf:{place}", TEXT, device="cpu", beam=1).said is not None
    config = open_checkpoint(place, "cpu").model.config
    assert not {"gguf_file", "kernel_config", "tokenizer_class", "adapter_name", "to_dict"} & vars(config).keys()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": "detr"}, "is of a model built on others (detr): watch(model) looks at any."),
        ({"model_type": "timm_wrapper", "architecture": "hf-hub:evil/x"}, "is of a model built on others (timm_wrap"),
        ({"model_type": "timm_backbone", "backbone": "x"}, "is of a model built on others (timm_backbone)"),
        ({"model_type": "encoder-decoder", "decoder": {"model_type": "bert"},
          "encoder": {"model_type": "timm_wrapper"}}, "is of a model built on others (timm_wrapper)"),
        ({"encoder": {"auto_map": {"AutoModel": "evil/x--a.B"}}}, "names code of its own (auto_map)"),
        ({"a": [[[{"quantization_config": {"quant_method": "x"}}]]]}, "has quantised weights"),
        ({"dtype": "load"}, "cannot be opened ("),
    ],
)  # fmt: skip
def test_configs_that_ask_for_more(folder, entries, message):
    change(folder, **entries)
    assert message in complain(folder)


def test_a_config_without_end(folder):
    text = (folder / "config.json").read_text().rstrip().removesuffix("}")
    (folder / "config.json").write_text(text + ', "x": ' + "[" * 400 + "]" * 400 + "}")
    assert "config.json is nested too deep" in complain(folder)


def test_a_class_with_a_way_of_its_own(folder, monkeypatch):
    import transformers

    monkeypatch.setattr(transformers.BertModel, "from_pretrained", classmethod(lambda *args, **options: None))
    assert "is opened in a way of its own (bert): watch(model) looks at any." in complain(folder)


def test_entries_that_older_files_have(tmp_path):
    # by other names, or under none that is declared: they count all the same
    place = build(tmp_path / "llama", "llama")
    file = place / "config.json"
    entries = json.loads(file.read_text())
    entries.pop("rope_parameters", None)
    entries.pop("dtype", None)
    file.write_text(json.dumps({**entries, "rope_theta": 77.0, "torch_dtype": "bfloat16", "tie_word_embeddings": True}))
    model = open_checkpoint(place, "cpu").model
    assert (model.config.rope_parameters["rope_theta"], model.dtype) == (77.0, torch.bfloat16)
    assert model.config.tie_word_embeddings


def test_no_network_inside_and_as_it_was_outside():
    from huggingface_hub import constants, is_offline_mode

    before = constants.HF_HUB_OFFLINE
    with hush():
        assert is_offline_mode()
    assert constants.HF_HUB_OFFLINE is before


def test_the_guards_themselves(tmp_path):
    # what is patched is what would be called
    torch.save({"a": torch.ones(1)}, tmp_path / "a.bin")
    with pytest.raises(AssertionError, match="unpickled"):
        torch.load(tmp_path / "a.bin")
    from transformers.modeling_utils import load_state_dict

    with pytest.raises(AssertionError, match="unpickled"):
        load_state_dict(tmp_path / "a.bin")
