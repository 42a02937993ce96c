"""Saving and loading models as local folders in Hugging Face's layout: config.json and model.safetensors.

Nothing is unpickled, evaluated or fetched. A key of config.json that regard does not know is refused, so that none that
makes others run code (`auto_map` and its like) is ever acted upon. A link is followed, as in the hub's own cache; what
it leads to must be a file that passes the same checks.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping
from dataclasses import Field, asdict, fields
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, overload

import torch
from torch import Tensor, nn

from regard.core import RegardError
from regard.core.files import write_whole
from regard.core.names import import_plugin
from regard.models.config import list_parts, make_config
from regard.models.files import (
    import_safetensors,
    name_fault,
    open_file,
    read_header,
    read_tensors,
    tell,
    write_tensors,
)
from regard.models.layout import (
    CONFIG,
    DTYPES,
    FORMAT,
    MODELS,
    MOST_CONFIG_BYTES,
    RESTORE,
    WEIGHTS,
    Folder,
    find_model,
    read_config,
)
from regard.models.outline import allocate, outline
from regard.plugins import load

# beside the fields of the model's own Config
_KEYS = ("model_type", "architectures", "regard_version", "regard_format", "dtype", "training")
# far above what any model here needs, far below what hurts
MOST_HEADER_BYTES = 2**23

Model = TypeVar("Model", bound="Pretrained")


class Pretrained(nn.Module):
    """The base of models that are saved to a folder and loaded from it.

    >>> import tempfile
    >>> from regard.models.transformer import Config, Transformer
    >>> model = Transformer(Config(vocab_size=9, num_hiddens=8, num_heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_pretrained(folder)
    ...     Transformer.from_pretrained(folder).config == model.config
    True

    A class that inherits keeps what it is made of as `config`, a dataclass of settings (`ModelConfig`), and has a
    `model_type` of its own, by which folders are found again: see `regard.models.layout`.
    """

    model_type: ClassVar[str]
    config_class: ClassVar[type[Any]]

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """A new model, its weights initialised at random."""
        return cls(config)

    def save_pretrained(self, folder: Folder, training: Mapping[str, Any] | None = None) -> None:
        """Save the model, and what a task wants to know of it later as "training" in config.json.

        Whoever reads the folder meanwhile, or after a stop, finds the old model, the new one, or no config.json.
        """
        called, config, place = type(self).__name__, getattr(self, "config", None), pathlib.Path(folder)
        if config is None:
            raise RegardError(f"{called} has no config, without which it cannot be loaded: make it by from_config.")
        if find_model(self.model_type) is None:
            raise RegardError(
                f"{called} could not be loaded, since no installed package declares its model_type {self.model_type!r}:"
                " add it to the entry points regard.models of yours."
            )
        # a copy each: the matrices of a GRU share their memory on a GPU, which safetensors refuses
        tensors = {
            name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in self.state_dict().items()
        }
        if bad := [name for name, x in tensors.items() if not x.isfinite().all()]:
            raise RegardError(f"{called} {bad[0]} is not finite, so nothing was saved: go back to an earlier state.")
        # a count of batches, say, is of integers in any dtype
        numbers = next((x for x in tensors.values() if x.is_floating_point()), torch.empty(0))
        dtype = str(numbers.dtype).removeprefix("torch.")
        found = {name: (_name_dtype(x), list(x.shape)) for name, x in tensors.items()}
        if why := misfit_tensors(outline(type(self), config, dtype), found):
            raise RegardError(f"{called} is not what its config says, and could not be loaded: {why}.")
        if large := _find_large(config, len(tensors), sum(x.numel() * x.element_size() for x in tensors.values())):
            raise RegardError(
                f"{called} has {large}, too large for its weights, and could not be loaded: what is no size of a weight"
                " needs a limit of its own, setting(…, most=…)."
            )
        text = _write_config(self, config, dtype, training)
        raw = write_tensors(tensors, {"format": "pt"})
        try:
            if not _is_same_model(place, json.loads(text)):
                # an old config beside new weights could pass for a model
                (place / CONFIG).unlink(missing_ok=True)
            write_whole(place / WEIGHTS, raw)
            write_whole(place / CONFIG, text)
        except OSError as error:
            raise name_fault(place, "cannot be written", "check the folder and its space", tell(error)) from None

    @classmethod
    def from_pretrained(cls, folder: Folder, device: str | torch.device = "cpu") -> Self:
        """Load the model from a local folder to `device`, in evaluation mode; no random numbers are drawn."""
        # a missing package is no fault of the folder's
        import_safetensors()
        place, entries = pathlib.Path(folder), read_config(folder)
        kind = entries["model_type"]
        if kind != cls.model_type:
            raise _refuse_kind(place, _name_class(kind), cls.__name__)
        config = _make_config(cls, place / CONFIG, entries)
        file = place / WEIGHTS
        with open_file(file, "regard reads one file of this name, no shards and no pickles") as opened:
            try:
                header, _, num_bytes = read_header(opened, MOST_HEADER_BYTES)
            except ValueError as error:
                raise name_fault(file, "is not safetensors", RESTORE, tell(error)) from None
            if large := _find_large(config, len(header), num_bytes):
                raise name_fault(place / CONFIG, f"has {large}, too large for its weights", "correct it")
            try:
                model = outline(cls, config, entries["dtype"])
            except (RegardError, RuntimeError, TypeError, OverflowError) as error:
                raise name_fault(place / CONFIG, "makes no model", "correct it", tell(error)) from None
            found = {name: (entry.get("dtype"), entry.get("shape")) for name, entry in header.items()}
            if why := misfit_tensors(model, found):
                raise name_fault(file, "does not fit config.json", "restore the folder", why)
            need = sum(x.numel() * x.element_size() for x in model.state_dict().values())
            if num_bytes != need:
                raise name_fault(file, f"has {num_bytes} bytes of numbers where {need} belong", RESTORE)
            try:
                tensors = read_tensors(opened)
            except ValueError as error:
                raise name_fault(file, "is not safetensors", RESTORE, tell(error)) from None
        for name, x in tensors.items():
            if not x.isfinite().all():
                raise name_fault(file, f"has a {name} that is not finite", "take an earlier one")
        if not _is_same_model(place, entries):
            raise name_fault(place, "changed while it was read", "load it again")
        try:
            allocate(model, device)
        except (RuntimeError, AssertionError) as error:
            raise RegardError(f"device {str(device)!r} cannot be used: {tell(error)[:100]}.") from None
        model.load_state_dict(tensors)
        return model.eval()


@overload
def load_pretrained(
    folder: Folder, device: str | torch.device = ..., *, kinds: tuple[type[Model], ...]
) -> Model: ...  # fmt: skip


@overload
def load_pretrained(folder: Folder, device: str | torch.device = ...) -> Any: ...


def load_pretrained(
    folder: Folder, device: str | torch.device = "cpu", *, kinds: tuple[type[Pretrained], ...] = ()
) -> Pretrained:
    """Load a model from a local folder, of the class that its config.json names, one of `kinds` where given."""
    name = read_config(folder)["model_type"]
    if kinds and name not in [x.model_type for x in kinds]:
        raise _refuse_kind(pathlib.Path(folder), _name_class(name), *(x.__name__ for x in kinds))
    return _load_class(name).from_pretrained(folder, device)


@cache
def _load_class(model_type: str) -> type[Pretrained]:
    """Import the class of a known model_type; that of another package must be what it says."""
    reference = find_model(model_type)
    assert reference is not None, "read_config asked before"

    def fits(name: str, found: Any) -> bool:
        return isinstance(found, type) and issubclass(found, Pretrained) and getattr(found, "model_type", "") == name

    if model_type in MODELS:
        kind: type[Pretrained] = load(reference)
    else:
        kind = import_plugin("models", model_type, reference, "must be a Pretrained of that model_type", fits)
    return kind


def misfit_tensors(model: nn.Module, found: Mapping[str, tuple[Any, Any]]) -> str | None:
    """Why tensors of these dtypes and shapes are not those of the model, or None."""
    expected = model.state_dict()
    for name in expected:
        if name not in found:
            return f"{name} is missing"
    for name, (dtype, shape) in found.items():
        if name not in expected:
            return f"{name:.60} is one too many"
        size = list(expected[name].shape)
        if shape != size:
            return f"{name} has shape {shape!s:.40}, not {size}"
        if dtype != _name_dtype(expected[name]):
            return f"{name} has dtype {dtype!s:.40}, not {_name_dtype(expected[name])}"
    return None


def _name_dtype(x: Tensor) -> str:
    name = str(x.dtype).removeprefix("torch.")
    # of integers safetensors has I64, U8 and so on
    return DTYPES.get(name) or name.upper().replace("UINT", "U").replace("INT", "I")


def _name_class(model_type: str) -> str:
    """The name of the class of a known model_type."""
    return str(find_model(model_type)).rpartition(":")[2]


def _find_since(field: Field[Any]) -> int:
    """The format of folders that a setting came with."""
    since: int = field.metadata.get("since", 1)
    return since


def _write_config(model: Pretrained, config: Any, dtype: str, training: Mapping[str, Any] | None) -> str:
    from regard import __version__

    written = [x for x in fields(config) if _find_since(x) == 1 or getattr(config, x.name) != x.default]
    for field in written:
        if field.name in _KEYS:
            raise RegardError(f"Config {field.name} has the name of a key of every config.json: give it another.")
        if _find_since(field) > FORMAT:
            raise RegardError(
                f"Config {field.name} is since format {_find_since(field)} of folders, this regard writes up to"
                f" {FORMAT}: declare it by setting(…, since={FORMAT})."
            )
    values = asdict(config)
    entries = {
        "model_type": model.model_type,
        "architectures": [_name_class(model.model_type)],
        "regard_version": __version__,
        "regard_format": max([1, *map(_find_since, written)]),
        "dtype": dtype,
        **{x.name: values[x.name] for x in written},
        "training": dict(training or {}),
    }
    try:
        text = json.dumps(entries, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise RegardError(f"training must be what JSON can hold: {tell(error)[:100]}.") from None
    if len(text) > MOST_CONFIG_BYTES:
        raise RegardError(f"training is too long for a config.json of {MOST_CONFIG_BYTES:,} bytes: keep settings only.")
    return text


def _is_same_model(place: pathlib.Path, entries: Mapping[str, Any]) -> bool:
    """Whether the folder's config is of the same model; what a task wrote may differ, as a run goes on."""
    try:
        there = read_config(place)
    except RegardError:
        return False
    names = {*there, *entries} - {"training", "regard_version"}
    return all(name in there and name in entries and there[name] == entries[name] for name in names)


def _make_config(kind: type[Pretrained], file: pathlib.Path, entries: Mapping[str, Any]) -> Any:
    known = {field.name: field for field in fields(kind.config_class)}
    for name in entries:
        if name not in (*_KEYS, *known):
            raise name_fault(file, f"has the key {name!r:.60}, which no {kind.__name__} of regard has", "take it out")
    for name, field in known.items():
        # a default in its place could make another model of the same shapes, unless that is what its absence means
        if name not in entries and _find_since(field) == 1:
            raise name_fault(file, f"has no {name}", RESTORE)
    try:
        return make_config(kind.config_class, {name: x for name, x in entries.items() if name in known})
    except RegardError as error:
        raise name_fault(file, "makes no model", "correct it", tell(error)) from None


def _refuse_kind(place: pathlib.Path, name: str, *wanted: str) -> RegardError:
    articles = {x: "an" if x[0] in "AEIOU" else "a" for x in (name, *wanted)}
    others = " or ".join(f"of {articles[x]} {x}" for x in wanted)
    return name_fault(place / CONFIG, f"is of {articles[name]} {name}, not {others}", f"use {name}.from_pretrained")


def _find_large(config: Any, count: int, num_bytes: int) -> str | None:
    """A size beyond the number of weights: it could take forever, or all memory, before anyone saw that."""
    for field in fields(config):
        name, limits = field.name, {"num_hiddens": math.isqrt(num_bytes)}
        # what has a limit of its own is no size, or one of rows that only some models have
        if field.metadata.get("most") is not None:
            continue
        most = count if name.endswith("layers") else limits.get(name, num_bytes)
        for value in list_parts(getattr(config, name)):
            if type(value) is int and value > most:
                return f"{name}={str(value)[:20]}"
    return None
