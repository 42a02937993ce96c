"""Loading a Hugging Face checkpoint from disk safely: no code of its own, no pickles, no downloads."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.extras import install
from regard.models.files import check_folder, import_safetensors, name_fault, read_header, tell
from regard.tasks.checkpoints.configs import (
    CONFIG,
    MOST_BYTES,
    RESTORE,
    check_entries,
    choose_class,
    make_transformers_config,
    open_inside,
    read_object,
)
from regard.tasks.training.device import find_device

WEIGHTS, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
SPEAKING = "generation_config.json"
# no way in such a name leads out of the folder
SHARD = re.compile(r"[A-Za-z0-9._-]+\.safetensors")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
# embeddings of positions, by the last part of their names; a longer text has no row there
POSITIONS = ("position_embeddings", "embed_positions", "wpe", "position_embedding")
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
          "forced_eos_token_id", "bad_words_ids")  # fmt: skip
# how deep a model is, in the words of its family
LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
          "num_encoder_layers", "num_decoder_layers")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded checkpoint: the model in evaluation mode and its tokenizer, None where the folder has none.

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
        """The kind of model: "pair" (encoder-decoder), "text" or "image"."""
        if self.model.main_input_name == "pixel_values":
            return "image"
        return "pair" if self.model.config.is_encoder_decoder else "text"


def open_checkpoint(folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Checkpoint:
    """Load the model and tokenizer of a folder that `save_pretrained` of transformers wrote.

    transformers never learns where the folder is: it gets a config of which only known entries are left, and weights
    that were read here, out of safetensors. The attention that runs is torch's own (sdpa), or eager code where a model
    has no other, whatever config.json says. Folders with code of their own, with adapters, with links that lead out of
    them, or with weights in pickles alone are refused.
    """
    transformers = _import_transformers()
    place, where = pathlib.Path(folder), find_device(device)
    check_folder(place)
    entries = read_object(place / CONFIG)
    check_entries(place / CONFIG, entries)
    _check_folder(place)
    files = _list_weights(place)
    _check_layers(place, files, entries)
    with hush():
        config = make_transformers_config(transformers, place / CONFIG, entries)
        opener = choose_class(transformers, place, config)
        # named here: what a config says of it, at any depth, is never asked
        attention = "sdpa" if opener._supports_sdpa else "eager"
        try:
            model, info = opener.from_pretrained(
                None, config=config, state_dict=_read_weights(files), attn_implementation=attention, dtype="auto",
                local_files_only=True, trust_remote_code=False, use_safetensors=True, output_loading_info=True,
            )  # fmt: skip
        except RegardError:
            raise
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
        model.generation_config = transformers.GenerationConfig(**_read_speaking(place, entries))
    speaks = model.can_generate() and not any(name.startswith("lm_head.") for name in missing)
    tokenizer = None if model.main_input_name == "pixel_values" else _read_tokenizer(place)
    return Checkpoint(place, model.eval().to(where), tokenizer, _count_positions(model), speaks)


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise RegardError("Hugging Face folders need the package transformers: pip install transformers.") from None
    return transformers


def _check_folder(place: pathlib.Path) -> None:
    """Check that a folder has weights of its own in safetensors, no adapter and no pickles alone."""
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


def _list_weights(place: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files of the weights, all of them in this folder."""
    if (place / WEIGHTS).exists():
        return [place / WEIGHTS]
    table = read_object(place / INDEX).get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    if not names or not all(map(SHARD.fullmatch, names)):
        raise name_fault(place / INDEX, "names files that are no safetensors of this folder", RESTORE)
    return [place / name for name in names]


def _check_layers(place: pathlib.Path, files: Sequence[pathlib.Path], entries: Mapping[str, Any]) -> None:
    """Check that a config has no more layers than there are tensors: to build them would take ages."""
    count = 0
    for file in files:
        with open_inside(file, RESTORE) as opened:
            try:
                count += len(read_header(opened, MOST_BYTES)[0])
            except ValueError as error:
                raise name_fault(file, "is not safetensors", RESTORE, tell(error)) from None
    for key, value in entries.items():
        if key in LAYERS and type(value) is int and value > count:
            raise name_fault(
                place / CONFIG, f"has {key:.40}={str(value)[:20]}, too large for its weights", "correct it"
            )


def _read_weights(files: Sequence[pathlib.Path]) -> dict[str, Tensor]:
    """The weights, memory-mapped: read from disk when they are used."""
    safetensors = import_safetensors()
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            found |= safetensors.torch.load_file(file)
        # of others' files, read by others' code
        except Exception as error:
            raise name_fault(file, "is not safetensors", RESTORE, tell(error)) from None
    return found


def _read_speaking(place: pathlib.Path, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The special token ids of generation_config.json; how to generate is for the caller to say."""
    file = place / SPEAKING
    if not file.exists():
        # where it stood before there was a file for it
        file = place / CONFIG
    said = entries if file.name == CONFIG else read_object(file)
    kept = {name: said[name] for name in TOKENS if said.get(name) is not None}
    for name, value in kept.items():
        if not _is_number(value):
            raise name_fault(file, f"needs the number of a token as {name}", "correct it")
    return kept


def _is_number(value: Any) -> bool:
    """Whether this is a token id, or a list of them."""
    return type(value) is int or (isinstance(value, list) and len(value) > 0 and all(map(_is_number, value)))


def _read_tokenizer(place: pathlib.Path) -> Any:
    """The tokenizer of tokenizer.json without its padding and truncation, which are for batches."""
    try:
        import tokenizers
    except ImportError:
        raise RegardError(f"Tokenizers need the package tokenizers: {install('text')}.") from None
    file = place / TOKENIZER
    with open_inside(file, "save the tokenizer there as a fast one") as opened:
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
    """The maximum sequence length: rows of the smallest position embedding, less those it reserves."""
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
    """Silence transformers within the block: no logs, no progress bars, no network."""
    from huggingface_hub import constants
    from transformers.utils import logging

    level, bars, offline = logging.get_verbosity(), logging.is_progress_bar_enabled(), constants.HF_HUB_OFFLINE
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # some families ask the Hub for kernels of theirs, whatever they are told
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
