"""The files of a BERT as Hugging Face has them: its config, and which of its weights is which of ours."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.layers.blocks import ACTIVATIONS
from regard.models.encoder_config import Config
from regard.models.files import check_folder, name_fault, open_file, read_header, read_object, read_tensors, tell
from regard.models.layout import CONFIG, MOST_CONFIG_BYTES, WEIGHTS
from regard.models.pretrained import MOST_HEADER_BYTES

INDEX = "model.safetensors.index.json"
RESTORE = "restore the folder"
# no way in such a name leads out of the folder
SHARD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors")
FLOATS = ("F64", "F32", "F16", "BF16")
# sizes: ours, theirs
SIZES = {
    "vocab_size": "vocab_size", "num_hiddens": "hidden_size", "ffn_num_hiddens": "intermediate_size",
    "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers", "max_len": "max_position_embeddings",
    "num_types": "type_vocab_size",
}  # fmt: skip
# where each size can be seen: a tensor and its axis
SHOWN = {
    "vocab_size": ("embeddings.word_embeddings.weight", 0), "num_hiddens": ("embeddings.word_embeddings.weight", 1),
    "max_len": ("embeddings.position_embeddings.weight", 0),
    "num_types": ("embeddings.token_type_embeddings.weight", 0),
    "ffn_num_hiddens": ("encoder.layer.0.intermediate.dense.weight", 0),
}  # fmt: skip
# what would make another model of the same weights
PLAIN = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False, "auto_map": None}
# the parts of a layer: ours, theirs
LAYER = {
    "attention.W_q": "attention.self.query", "attention.W_k": "attention.self.key",
    "attention.W_v": "attention.self.value", "attention.W_o": "attention.output.dense",
    "addnorm1.ln": "attention.output.LayerNorm", "ffn.dense1": "intermediate.dense", "ffn.dense2": "output.dense",
    "addnorm2.ln": "output.LayerNorm",
}  # fmt: skip
# what is saved twice, and as what
POSITIONS = "embeddings.position_ids"
DOUBLES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def read_entries(place: pathlib.Path) -> dict[str, Any]:
    """Read config.json of a local folder."""
    check_folder(place)
    with open_file(place / CONFIG, "name a folder of a Hugging Face checkpoint") as opened:
        return read_object(opened, place / CONFIG, MOST_CONFIG_BYTES, RESTORE, RESTORE)


def check_entries(file: pathlib.Path, entries: Mapping[str, Any]) -> None:
    """Check that a config is of a plain BERT."""
    kind = entries.get("model_type")
    if kind != "bert":
        raise name_fault(file, f"has the model_type {kind!r:.40}", "Bert reads folders of the model_type 'bert'")
    for name, plain in PLAIN.items():
        value = entries.get(name, plain)
        if value is not None and value != plain:
            raise name_fault(file, f"has {name}={value!r:.40}", f"Bert reads models that have {plain!r} there")
    act = entries.get("hidden_act", "gelu")
    if act not in [*ACTIVATIONS]:
        raise name_fault(file, f"has hidden_act={act!r:.40}", f"Bert knows {', '.join(ACTIVATIONS)}")


def list_weights(place: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files of the weights: one, or the shards that an index names."""
    if (place / WEIGHTS).exists() or not (place / INDEX).exists():
        if not (place / WEIGHTS).exists() and [*place.glob("*.bin")]:
            raise name_fault(place, "has its weights as a pickle", "save them as model.safetensors")
        return [place / WEIGHTS]
    file = place / INDEX
    with open_file(file, RESTORE) as opened:
        entries = read_object(opened, file, MOST_HEADER_BYTES, RESTORE, RESTORE)
    table = entries.get("weight_map")
    if not isinstance(table, dict) or not table:
        raise name_fault(file, "has no weight_map", RESTORE)
    for name in table.values():
        if not isinstance(name, str) or not SHARD.fullmatch(name):
            raise name_fault(file, f"names the file {name!r:.60}", "it must be a .safetensors of this folder")
    return [place / name for name in sorted(set(table.values()))]


@contextlib.contextmanager
def _reading(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise name_fault(file, "is not safetensors", RESTORE, tell(error)) from None


def read_shapes(files: list[pathlib.Path]) -> dict[str, Any]:
    """The shape of each tensor by its plain name; a weight that is of no floating-point dtype is refused."""
    shapes: dict[str, Any] = {}
    for file in files:
        with open_file(file, "Bert reads safetensors, no pickles") as opened, _reading(file):
            header = read_header(opened, MOST_HEADER_BYTES)[0]
        for raw, entry in header.items():
            name = _plain(raw)
            if name in shapes:
                raise name_fault(file, f"has {raw:.80} a second time", RESTORE)
            if name != POSITIONS and entry.get("dtype") not in FLOATS:
                kind = str(entry.get("dtype"))
                raise name_fault(file, f"has {raw:.60} of dtype {kind:.20}", "take weights that are not quantised")
            shapes[name] = entry.get("shape")
    return shapes


def read_weights(files: list[pathlib.Path]) -> dict[str, Tensor]:
    """Load all tensors, by their plain names."""
    found: dict[str, Tensor] = {}
    for file in files:
        with open_file(file, RESTORE) as opened, _reading(file):
            found |= {_plain(name): x for name, x in read_tensors(opened).items()}
    return found


def _plain(name: str) -> str:
    """A tensor's name without the prefix of its model, and layer norms by their names of today."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def make_bert_config(file: pathlib.Path, entries: Mapping[str, Any], shapes: Mapping[str, Any]) -> Config:
    """The `Config` of a BERT; it has a pooler and heads where the folder has their weights."""
    sizes = _read_sizes(file, entries, shapes)
    is_labelled, has_next = "classifier.weight" in shapes, "cls.seq_relationship.weight" in shapes
    head = "words" if any(name.startswith("cls.predictions.") for name in shapes) else "none"
    if is_labelled:
        head = _name_head(file, entries.get("architectures"))
    labels = _read_labels(file, entries, shapes) if is_labelled else ()
    dropout = entries.get("hidden_dropout_prob", 0.1)
    try:
        return Config(
            **sizes, head=head, labels=labels, dropout=dropout, embed_dropout=dropout,
            attention_dropout=entries.get("attention_probs_dropout_prob", 0.1),
            norm_eps=entries.get("layer_norm_eps", 1e-12), has_embed_norm=True, scales_embedding=False,
            position="learned", activation=entries.get("hidden_act", "gelu"), pooling="first", has_next=has_next,
            has_pooler=head == "classes" or has_next or "pooler.dense.weight" in shapes,
            pad_id=entries.get("pad_token_id") or 0,
        )  # fmt: skip
    except RegardError as error:
        raise name_fault(file, "makes no model", "correct it", tell(error)) from None


def _read_sizes(file: pathlib.Path, entries: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of config.json, which must be those of the weights: others could take forever, or all memory."""
    sizes: dict[str, Any] = {}
    for ours, theirs in SIZES.items():
        value = entries.get(theirs)
        if type(value) is not int or value < 1:
            raise name_fault(file, f"needs a number above 0 as {theirs}, has {value!r:.40}", RESTORE)
        sizes[ours] = value
    # each number once, so that one high number makes no layers that are not there
    layers = {int(found[1]) for name in shapes if (found := re.match(r"encoder\.layer\.(\d{1,6})\.", name))}
    counts: dict[str, Any] = {"num_layers": len(layers)}
    for ours, (name, axis) in SHOWN.items():
        shape = shapes.get(name)
        if not isinstance(shape, list) or len(shape) != 2:
            raise name_fault(file.parent, f"has no {name} of two axes among its weights", RESTORE)
        counts[ours] = shape[axis]
    for ours, count in counts.items():
        if sizes[ours] != count:
            cause = f"has {SIZES[ours]}={sizes[ours]:.10g}, its weights {count!s:.20}"
            raise name_fault(file, cause, "correct it, or restore the folder")
    return sizes


def _name_head(file: pathlib.Path, kinds: Any) -> str:
    """The head whose weights are called classifier, by the architectures that config.json names."""
    heads = {"BertForTokenClassification": "tags", "BertForSequenceClassification": "classes"}
    found = (
        [heads[kind] for kind in kinds if isinstance(kind, str) and kind in heads] if isinstance(kinds, list) else []
    )
    if len(found) != 1:
        cause = f"has architectures={kinds!r:.60} for a classifier"
        raise name_fault(file, cause, f"name one of {', '.join(heads)}")
    return found[0]


def _read_labels(file: pathlib.Path, entries: Mapping[str, Any], shapes: Mapping[str, Any]) -> tuple[str, ...]:
    shape = shapes["classifier.weight"]
    count = shape[0] if isinstance(shape, list) and len(shape) == 2 else 0
    table = entries.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    if not isinstance(table, dict) or len(table) != count or {*table} != {str(i) for i in range(len(table))}:
        raise name_fault(file, f"needs an id2label of the {count} labels that its weights have", "correct it")
    return tuple(table[str(i)] for i in range(count))


def name_tensors(place: pathlib.Path, config: Config, shapes: Mapping[str, Any]) -> dict[str, str]:
    """The name in the folder of each of our tensors; one that is missing, or that has no place, is refused by name."""
    # a bias that has two names may be saved under either
    bias = "cls.predictions.bias" if "cls.predictions.bias" in shapes else "cls.predictions.decoder.bias"
    names = {
        "embedding.weight": "embeddings.word_embeddings.weight",
        "type_embedding.weight": "embeddings.token_type_embeddings.weight",
        "position.P": "embeddings.position_embeddings.weight",
    }
    parts = [("embed_norm", "embeddings.LayerNorm")]
    for i in range(config.num_layers):
        parts += [(f"layers.{i}.{ours}", f"encoder.layer.{i}.{theirs}") for ours, theirs in LAYER.items()]
    optional = {
        "output": ("classifier", config.head in ("tags", "classes")),
        "words.dense": ("cls.predictions.transform.dense", config.head == "words"),
        "words.norm": ("cls.predictions.transform.LayerNorm", config.head == "words"),
        "pooler": ("pooler.dense", config.has_pooler),
        "next_sentence": ("cls.seq_relationship", config.has_next),
    }
    parts += [(ours, theirs) for ours, (theirs, is_there) in optional.items() if is_there]
    for ours, theirs in parts:
        names |= {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}
    if config.head == "words":
        names["words.bias"] = bias
    for theirs in names.values():
        if theirs not in shapes:
            raise name_fault(place, f"has no {theirs:.80} among its weights", RESTORE)
    for theirs in shapes:
        if theirs not in names.values() and (theirs not in DOUBLES or config.head != "words") and theirs != POSITIONS:
            raise name_fault(place, f"has {theirs:.80} among its weights", "no BERT that regard reads has it")
    return names


def check_doubles(place: pathlib.Path, tensors: Mapping[str, Tensor]) -> None:
    """Check that tied weights that are stored twice are equal."""
    for name, other in DOUBLES.items():
        if name in tensors and other in tensors and not torch.equal(tensors[name], tensors[other]):
            raise name_fault(place, f"has a {name} that is not its {other}", "regard reads models that tie the two")
    if POSITIONS in tensors:
        found = tensors[POSITIONS].flatten()
        if not torch.equal(found.long(), torch.arange(len(found))):
            raise name_fault(place, f"has {POSITIONS} that do not count from 0", RESTORE)
