"""The folder of a model: its files, and its config.json checked without torch, so that faults show at once."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from regard.models.files import check_folder, name_fault, open_file, read_object
from regard.plugins import find_plugins

# raise this when a config gains a field, and give that to the field as `since`: files without it mean its default.
# 2: inputs, input_size and window. A file says the least format that has all its fields, and leaves out later ones that
# have their defaults, so that earlier versions read what they can.
FORMAT = 2
CONFIG, WEIGHTS = "config.json", "model.safetensors"
# before the name of a folder of Hugging Face's
PREFIX = "hf:"
# the class of each model_type; those of other packages are entry points `regard.models`
MODELS = {
    "regard-encoder": "regard.models.encoder:Encoder",
    "regard-seq2seq": "regard.models.seq2seq:Seq2Seq",
    "regard-transformer": "regard.models.transformer:Transformer",
}
# dtypes as config.json and as safetensors name them
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float64": "F64"}
# far above what any model here needs, far below what hurts
MOST_CONFIG_BYTES = 2**20
RESTORE = "restore it, or save the model again"

Folder = str | os.PathLike[str]


def find_model(model_type: Any) -> str | None:
    """The class of a model_type as "module:Class", regard's own or one that an installed package declares.

    >>> find_model("regard-encoder"), find_model("bert")
    ('regard.models.encoder:Encoder', None)
    """
    if not isinstance(model_type, str):
        return None
    return MODELS.get(model_type) or find_plugins("models").get(model_type)


def read_config(folder: Folder) -> dict[str, Any]:
    """Read and check config.json of a local folder; what the task wrote is its "training"."""
    place = pathlib.Path(folder)
    check_folder(place, "name one that a run or save_pretrained wrote")
    file = place / CONFIG
    fix = "name a folder that a run or save_pretrained wrote"
    with open_file(file, fix) as opened:
        entries = read_object(opened, file, MOST_CONFIG_BYTES, fix, RESTORE)
    kind = entries.get("model_type")
    if find_model(kind) is None:
        found, names = f"model_type {kind!r:.40}", ", ".join({**MODELS, **find_plugins("models")})
        # so that what to do is still there, however many are installed
        known = f"regard loads {names if len(names) <= 66 else f'{names[:65]}…'}"
        if kind == "bert" or "transformers_version" in entries:
            raise name_fault(file, f"has the {found}, a folder of Hugging Face's", "write hf:FOLDER")
        known += "; install the package of another" if isinstance(kind, str) else ""
        raise name_fault(file, f"has the {found}", known)
    number = entries.get("regard_format")
    if type(number) is not int or number < 1:
        raise name_fault(file, f"has no regard_format that counts from 1, but {number!r:.40}", RESTORE)
    if number > FORMAT:
        raise name_fault(
            file, f"has regard_format {number}, this regard reads up to {FORMAT}", "install a newer regard"
        )
    if entries.get("dtype") not in [*DTYPES]:
        cause = f"needs a dtype of {', '.join(DTYPES)}, has {entries.get('dtype')!r:.40}"
        raise name_fault(file, cause, RESTORE)
    if not isinstance(entries.get("training", {}), dict):
        raise name_fault(file, "has a training that is not an object of keys", RESTORE)
    return entries
