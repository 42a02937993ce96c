"""A Hugging Face checkpoint on disk, opened with suspicion: no code of its own, no pickles, nothing fetched."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.core import RegardError
from regard.models.files import name_fault, open_file, read_header, read_json, tell
from regard.tasks.translator import find_device

PREFIX = "hf:"
CONFIG, WEIGHTS, INDEX, TOKENIZER = "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
MOST_BYTES = 2**26
# what a file may not decide: which code attends, and which is called for experts
IGNORED = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation",
           "output_attentions", "output_hidden_states", "_name_or_path", "_commit_hash")  # fmt: skip
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
# embeddings of positions, by the last part of their names; a longer text has no row there
POSITIONS = ("position_embeddings", "embed_positions", "wpe", "position_embedding")
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
          "forced_eos_token_id", "bad_words_ids")  # fmt: skip
# how deep a model is, in the words of its family
LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
          "num_encoder_layers", "num_decoder_layers")  # fmt: skip
RESTORE, ANY = "restore the folder", "watch(model) looks at any"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened checkpoint: the model in evaluation, and what cuts its texts, None where the folder has none.

    `positions` is how many tokens the model has places for, None where there is no such limit; `can_speak` says
    whether a decoder's words can be chosen, which needs its output layer.
    """

    folder: pathlib.Path
    model: Any
    tokenizer: Any
    positions: int | None
    can_speak: bool

    @property
    def kind(self) -> str:
        """What goes in and what attends to what: "pair", "text" or "image"."""
        if self.model.main_input_name == "pixel_values":
            return "image"
        return "pair" if self.model.config.is_encoder_decoder else "text"


def open_checkpoint(folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Checkpoint:
    """Open a folder that `save_pretrained` of transformers wrote.

    The attention that runs is torch's own (sdpa), or eager code where a model has no other, whatever config.json says.
    Folders with code of their own, with
    adapters, or with weights in pickles alone are refused.
    """
    transformers = _import_transformers()
    place, where = pathlib.Path(folder), find_device(device)
    if not place.is_dir():
        what = "is a file, not a folder" if place.exists() else "is not a folder on this machine"
        raise name_fault(place, what, "name one that holds config.json; nothing is fetched")
    entries = read_object(place / CONFIG)
    _check_folder(place, entries)
    _check_layers(place, entries)
    with hush():
        config = _make_config(transformers, place, entries)
        opener = _choose_class(transformers, place, config)
        # named here: what a config says of it, at any depth, is never asked
        attention = "sdpa" if opener._supports_sdpa else "eager"
        try:
            model, info = opener.from_pretrained(
                str(place), config=config, attn_implementation=attention, dtype="auto", local_files_only=True,
                trust_remote_code=False, use_safetensors=True, output_loading_info=True,
            )  # fmt: skip
        except Exception as error:
            # transformers tells of these in a report, which is hushed
            if "ignore_mismatched_sizes" in str(error):
                raise name_fault(place, "has weights of other sizes than its config.json says", RESTORE) from None
            # of others' code and others' files: whatever it is, the folder is at fault
            raise name_fault(place, "cannot be opened", RESTORE, tell(error)) from None
    missing = sorted(info["missing_keys"])
    # an output that no attention depends on may be made anew
    lost = [name for name in missing if not name.startswith(("pooler.", "lm_head.", "final_logits_bias"))]
    if lost:
        raise name_fault(place, "has not all weights", RESTORE, f"{len(lost)} are missing, the first is {lost[0]}")
    if model.can_generate():
        # of what a folder says of speaking, the tokens alone: how is for the caller
        said = model.generation_config
        kept = {name: getattr(said, name) for name in TOKENS if getattr(said, name, None) is not None}
        model.generation_config = transformers.GenerationConfig(**kept)
    speaks = model.can_generate() and not any(name.startswith("lm_head.") for name in missing)
    tokenizer = None if model.main_input_name == "pixel_values" else _read_tokenizer(place)
    return Checkpoint(place, model.eval().to(where), tokenizer, _count_positions(model), speaks)


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise RegardError("Hugging Face folders need the package transformers: pip install transformers.") from None
    return transformers


def read_object(file: pathlib.Path) -> dict[str, Any]:
    """A file of JSON, an object."""
    with open_file(file, "name a folder of a Hugging Face checkpoint") as opened:
        raw = opened.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise name_fault(file, f"has more than {MOST_BYTES:,} bytes", RESTORE)
    try:
        entries = read_json(raw)
    except ValueError as error:
        raise name_fault(file, "is not JSON", RESTORE, tell(error)) from None
    if not isinstance(entries, dict):
        raise name_fault(file, f"is a {type(entries).__name__}, not an object of keys", RESTORE)
    return entries


def _check_folder(place: pathlib.Path, entries: Mapping[str, Any]) -> None:
    """Complain of whatever would run code, need more than this folder, or be guessed."""
    if str(entries.get("model_type", "")).startswith("regard-"):
        raise name_fault(place, "is a run of regard", f"name it without {PREFIX}")
    if _holds(entries, "auto_map"):
        raise name_fault(place / CONFIG, "names code of its own (auto_map)", "no code out of a folder is run")
    if _holds(entries, "quantization_config"):
        raise name_fault(place / CONFIG, "has quantised weights (quantization_config)", "take the folder before that")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if (place / name).exists():
            raise name_fault(place, f"holds an adapter ({name})", "merge it into its model first")
    if (place / WEIGHTS).exists() or (place / INDEX).exists():
        return
    pickles = sorted(file.name for file in place.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise name_fault(
            place, f"has its weights in {pickles[0]:.40} alone", "save it as safetensors, pickles run code"
        )
    raise name_fault(place / WEIGHTS, "is not there", "name a folder of a Hugging Face checkpoint")


def _holds(entries: Any, key: str) -> bool:
    """Whether a key stands there with anything in it, at any depth."""
    if isinstance(entries, dict):
        return bool(entries.get(key)) or any(_holds(value, key) for value in entries.values())
    return isinstance(entries, list) and any(_holds(value, key) for value in entries)


def _check_layers(place: pathlib.Path, entries: Mapping[str, Any]) -> None:
    """More layers than there are tensors would be built for ages before anyone saw that."""
    files = [WEIGHTS] if (place / WEIGHTS).exists() else _list_shards(place)
    count = 0
    for name in files:
        with open_file(place / name, RESTORE) as opened:
            try:
                count += len(read_header(opened, MOST_BYTES)[0])
            except ValueError as error:
                raise name_fault(place / name, "is not safetensors", RESTORE, tell(error)) from None
    for key, value in entries.items():
        if key in LAYERS and type(value) is int and value > count:
            raise name_fault(
                place / CONFIG, f"has {key:.40}={str(value)[:20]}, too large for its weights", "correct it"
            )


def _list_shards(place: pathlib.Path) -> list[str]:
    table = read_object(place / INDEX).get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    # a name with a way in it would lead out of the folder
    if not names or any(pathlib.PurePath(name).name != name or not name.endswith(".safetensors") for name in names):
        raise name_fault(place / INDEX, "names files that are no safetensors of this folder", RESTORE)
    return names


def _make_config(transformers: Any, place: pathlib.Path, entries: Mapping[str, Any]) -> Any:
    kind = entries.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        cause = f"has the model_type {kind!r:.40}"
        raise name_fault(place / CONFIG, cause, f"transformers {transformers.__version__} does not know it")
    try:
        return transformers.CONFIG_MAPPING[kind].from_dict(_drop(entries))
    except Exception as error:
        raise name_fault(place / CONFIG, "makes no model", "correct it", tell(error)) from None


def _drop(entries: Any) -> Any:
    """The same without what a file may not decide, at any depth."""
    if isinstance(entries, dict):
        kept = {key: value for key, value in entries.items() if not key.startswith(IGNORED)}
        return {key: _drop(value) for key, value in kept.items()}
    return [_drop(value) for value in entries] if isinstance(entries, list) else entries


def _choose_class(transformers: Any, place: pathlib.Path, config: Any) -> Any:
    """The class that reads this config, for one kind of input."""
    if any(getattr(config, name, None) is not None for name in ("text_config", "vision_config", "audio_config")):
        raise name_fault(place, f"is of several kinds of input ({config.model_type:.40})", ANY)
    table = transformers.MODEL_MAPPING
    if config.is_encoder_decoder:
        table = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    found = table.get(type(config), None)
    found = found[0] if isinstance(found, list | tuple) else found
    if found is None or found.main_input_name not in ("input_ids", "pixel_values"):
        raise name_fault(place, f"takes no text and no picture ({config.model_type:.40})", ANY)
    return found


def _read_tokenizer(place: pathlib.Path) -> Any:
    """The tokenizer of tokenizer.json; what it says of padding and truncation is for batches, and left out."""
    try:
        import tokenizers
    except ImportError:
        raise RegardError("Tokenizers need the package tokenizers: pip install 'regard[text]'.") from None
    file = place / TOKENIZER
    with open_file(file, "save the tokenizer there as a fast one") as opened:
        raw = opened.read(MOST_BYTES + 1)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(raw.decode())
    # a panic in Rust is a BaseException, and has no public name
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise name_fault(file, "is not a tokenizer", RESTORE, tell(error)) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _count_positions(model: nn.Module) -> int | None:
    """The rows of the smallest table of positions, less those it keeps for itself."""
    counts = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in POSITIONS or not isinstance(module, nn.Embedding):
            continue
        # BART's tables begin at 2, RoBERTa's behind the one for padding
        padding = module.padding_idx
        own = getattr(module, "offset", 0 if padding is None else padding + 1)
        counts.append(module.num_embeddings - int(own))
    return min(counts, default=None)


@contextlib.contextmanager
def hush() -> Iterator[None]:
    """transformers without its reports and bars; as it was, afterwards."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
