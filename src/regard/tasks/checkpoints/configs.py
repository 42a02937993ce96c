"""The config.json of a Hugging Face checkpoint: which entries are used, ignored or refused."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from regard.models import files
from regard.models.files import name_fault, open_file, tell

CONFIG = "config.json"
MOST_BYTES, MOST_DEPTH = 2**26, 32
RESTORE, ANY = "restore the folder", "watch(model) looks at any"
# beginnings of keys that no file may decide, at any depth: which code attends, what of, and where more is to be found
IGNORED = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation",
           "output_attentions", "output_hidden_states", "_name_or_path", "name_or_path", "_commit_hash", "_auto_class",
           "base_model_name_or_path", "fusion_config", "kernel_config", "use_kernels", "distributed_config",
           "trust_", "custom_pipelines", "gguf_file", "task_specific_params")  # fmt: skip
# what a model cannot do without, and has not here
REFUSED = {
    "auto_map": ("names code of its own (auto_map)", "no code out of a folder is run"),
    "quantization_config": ("has quantised weights (quantization_config)", "take the folder before that"),
    "transformers_weights": ("names other weights (transformers_weights)", "keep them as model.safetensors alone"),
}
# vision models that are built on a model of another package, by its name
BACKBONES = ("backbone", "backbone_config", "use_timm_backbone")
# asked for by functions that all families share
SHARED = ("rope_scaling", "rope_parameters", "torch_dtype", "layer_types")


def open_inside(file: pathlib.Path, fix: str) -> BinaryIO:
    """Open a file of a folder; a symbolic link that leads out of it is refused."""
    home, real = (pathlib.Path(os.path.realpath(path)) for path in (file.parent, file))
    # in the cache of the Hub, a snapshot is links into the blobs beside it
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (real.is_relative_to(home) or real.is_relative_to(blobs)):
        raise name_fault(file, "is a link that leads out of its folder", "put the file itself there")
    return open_file(file, fix)


def read_object(file: pathlib.Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    with open_inside(file, "name a folder of a Hugging Face checkpoint") as opened:
        return files.read_object(opened, file, MOST_BYTES, RESTORE, RESTORE)


def check_entries(file: pathlib.Path, entries: Mapping[str, Any]) -> None:
    """Refuse a config that would run its own code or needs other files, at any depth."""
    if str(entries.get("model_type", "")).startswith("regard-"):
        raise name_fault(file.parent, "is a run of regard", "name it without hf:")
    for key, value, depth in _walk(entries):
        if key in REFUSED and value:
            raise name_fault(file, *REFUSED[key])
        if depth > MOST_DEPTH:
            raise name_fault(file, "is nested too deep", RESTORE)


def make_transformers_config(transformers: Any, file: pathlib.Path, entries: Mapping[str, Any]) -> Any:
    """The transformers config of a known model type; unknown entries are dropped unless they are plain numbers."""
    kind = entries.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        cause = f"has the model_type {kind!r:.40}"
        raise name_fault(file, cause, f"transformers {transformers.__version__} does not know it")
    kinds = {value for key, value, _ in _walk(entries) if key == "model_type" and isinstance(value, str)}
    for one in sorted(kinds & set(transformers.CONFIG_MAPPING)):
        if one.startswith("timm_") or not set(BACKBONES).isdisjoint(list_names(transformers.CONFIG_MAPPING[one])):
            raise name_fault(file, f"is of a model built on others ({one:.40})", ANY)
    opener = transformers.CONFIG_MAPPING[kind]
    known = list_names(opener) | asked_names(opener) | set(SHARED)
    kept = {key: value for key, value in _drop(entries).items() if key in known or _is_plain(value)}
    try:
        return opener.from_dict(kept)
    except Exception as error:
        raise name_fault(file, "makes no model", "correct it", tell(error)) from None


def choose_class(transformers: Any, place: pathlib.Path, config: Any) -> Any:
    """The transformers model class for a config; multimodal models are refused."""
    if any(getattr(config, name, None) is not None for name in ("text_config", "vision_config", "audio_config")):
        raise name_fault(place, f"is of several kinds of input ({config.model_type:.40})", ANY)
    table = transformers.MODEL_MAPPING
    if config.is_encoder_decoder:
        table = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    found = table.get(type(config), None)
    found = found[0] if isinstance(found, list | tuple) else found
    if found is None or found.main_input_name not in ("input_ids", "pixel_values"):
        raise name_fault(place, f"takes no text and no picture ({config.model_type:.40})", ANY)
    # a way of its own to open folders may read whatever lies there
    if found.from_pretrained.__func__ is not transformers.PreTrainedModel.from_pretrained.__func__:
        raise name_fault(place, f"is opened in a way of its own ({config.model_type:.40})", ANY)
    return found


def list_names(opener: Any) -> set[str]:
    """The fields that a config class declares, and their aliases."""
    declared = {field.name for field in dataclasses.fields(opener)} if dataclasses.is_dataclass(opener) else set()
    return {*declared, *opener.attribute_map}


def asked_names(opener: Any) -> set[str]:
    """Further names that the code of a config class mentions, such as fields of older files."""
    found: set[str] = set()
    for one in opener.__mro__:
        for name in ("__init__", "__post_init__"):
            code = getattr(vars(one).get(name), "__code__", None)
            if code is not None:
                found |= {x for x in (*code.co_consts, *code.co_varnames) if isinstance(x, str)}
    return found


def _is_plain(value: Any) -> bool:
    """Whether a value cannot name anything: a number, true, false, null, or a list of these."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float)


def _walk(entries: Any) -> Iterator[tuple[str, Any, int]]:
    """All keys, values and depths of nested entries; items of a list have no keys."""
    rest = [(entries, 0)]
    while rest:
        one, depth = rest.pop()
        pairs = one.items() if isinstance(one, dict) else (("", value) for value in one)
        for key, value in pairs:
            yield key, value, depth
            if isinstance(value, dict | list):
                rest.append((value, depth + 1))


def _drop(entries: Any) -> Any:
    """The entries without ignored keys, at any depth."""
    if isinstance(entries, dict):
        kept = {key: value for key, value in entries.items() if not key.startswith(IGNORED)}
        return {key: _drop(value) for key, value in kept.items()}
    return [_drop(value) for value in entries] if isinstance(entries, list) else entries
