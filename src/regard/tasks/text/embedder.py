"""Text embeddings, by a run of regard's own or by a BERT in a Hugging Face folder (sentence-transformers)."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import RegardError
from regard.models.bert_folder import read_entries
from regard.models.encoder import Encoder
from regard.models.files import name_fault, read_json, tell
from regard.models.layout import PREFIX
from regard.models.pretrained import load_pretrained
from regard.tasks.checkpoints.configs import MOST_BYTES, RESTORE, open_inside, read_object
from regard.tasks.reading.predict import open_rows, part_sentence
from regard.tasks.reading.vocabulary import Encoded, Lexicon
from regard.tasks.reading.warm_start import find_limit, limit_length, load_lexicon, open_bert, pause_training
from regard.tasks.text.tagger import Tagger
from regard.tasks.training.device import find_device

# how a sequence becomes one vector: "pool" is the model's own way
POOLINGS = ("mean", "cls", "max", "pool")
# tokens that keep a processor busy: with fewer at hand, a batch takes texts of another length too, padded
ENOUGH = {"cpu": 512, "cuda": 2**14}
# no way in such a name leads out of the folder
PART = re.compile(r"[A-Za-z0-9_-]+")
MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}


@dataclass(frozen=True)
class Reading:
    """How hidden states become an embedding, as files of sentence-transformers say it: pooling and normalisation."""

    pooling: str = "mean"
    is_normal: bool = False
    max_len: int | None = None
    lowercase: bool = False


class Embedder:
    """A text embedding model: an encoder, its tokenizer and its pooling.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["good film", "bad film"], "words")
    >>> embedder = Embedder(Encoder(Config.preset("tiny", lexicon.vocab_size)).eval(), lexicon)
    >>> embedder.embed(["good film", "bad"]).shape
    torch.Size([2, 128])

    The vector of a text is the mean of its hidden states, the frame of a BERT counted ([CLS], [SEP]); `reading` may say
    otherwise. Of a text with more than `reading.max_len` tokens the first are read.
    """

    def __init__(self, model: Encoder, lexicon: Lexicon, reading: Reading = Reading()) -> None:
        if reading.pooling not in POOLINGS:
            known = ", ".join(map(repr, POOLINGS))
            raise RegardError(f"Embedder pooling must be one of {known}, got {reading.pooling!r}.")
        self.model, self.lexicon, self.reading = model, lexicon, reading

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Embedder:
        """Load the embedder of a run, or of hf:FOLDER with a BERT in it; "auto" is a GPU where there is one.

        A classifier's vector is what it pools a text to; any other run's is the mean. In a folder of Hugging Face's,
        the files of sentence-transformers decide (modules.json and what it names: mean, first token or maximum, length
        one or not, the most tokens); without these it is the mean, not made of length one.
        """
        where, name = find_device(device), os.fspath(folder)
        place = pathlib.Path(os.path.expanduser(name.removeprefix(PREFIX)))
        if name.startswith(PREFIX):
            reading, inside = find_reading(place)
            bert, lexicon = open_bert(inside, where)
            return cls(bert, lexicon, replace(reading, max_len=limit_length(reading.max_len, bert)))
        if read_entries(place).get("model_type") == "bert":
            raise name_fault(place, "is a folder of Hugging Face's", "put hf: before its name")
        model = load_pretrained(place, where)
        if not isinstance(model, Encoder):
            raise name_fault(place, f"is of a {type(model).__name__}", "name a run of classify, tag or pretrain")
        pooling = "pool" if model.config.head == "classes" else "mean"
        return cls(model.eval(), load_lexicon(place, model), Reading(pooling, max_len=find_limit(place, model)))

    @property
    def size(self) -> int:
        """The size of an embedding."""
        return int(self.model.config.num_hiddens)

    def embed(
        self, texts: Sequence[str], *, batch_size: int = 512, on_progress: Callable[[int, int], None] | None = None
    ) -> Tensor:
        """The embedding of each text, (texts, size), float32 on the CPU.

        Texts of one length meet in a batch, so that next to nothing is padded: a vector is the same beside any others,
        up to rounding. `on_progress` is told how many texts are done, and of how many.
        """
        return self.embed_read(self.read(texts), batch_size=batch_size, on_progress=on_progress)

    def read(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenize texts; `num_left_out` of each is how many tokens were truncated."""
        if self.reading.lowercase and not isinstance(texts, str):
            texts = [text.lower() for text in texts]
        if self.model.config.head != "tags" or isinstance(texts, str):
            return self.lexicon.encode_texts(texts, self.reading.max_len)
        # as it was taught to read, in words
        cut = Tagger(self.model, self.lexicon).cut
        found = []
        for one in self.lexicon.encode_words([cut(text) for text in texts]):
            first, *rest = part_sentence(self.lexicon, one, self.reading.max_len)
            found.append(replace(first, num_left_out=len(one.ids) - len(first.ids)) if rest else first)
        return found

    @torch.inference_mode()
    def embed_read(
        self,
        encoded: Sequence[Encoded],
        *,
        batch_size: int = 512,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """The embedding of each text that `read` tokenized."""
        if batch_size < 1:
            raise RegardError(f"embed batch_size must be at least 1, got {batch_size}.")
        with torch.inference_mode(False):
            vectors = torch.zeros(len(encoded), self.size)
        place, done = next(self.model.parameters()).device, 0
        with pause_training(self.model):
            for numbers in gather([len(one.ids) for one in encoded], batch_size, ENOUGH[place.type]):
                group = [encoded[i] for i in numbers]
                (batch,) = open_rows(group, batch_size=len(group), shuffle=False).walk()
                here = batch.to(place)
                # lengths that are all the same need no mask
                is_even = int(batch.lengths.min()) == batch.ids.shape[1]
                lens = None if is_even else here.lengths
                hidden = self.model.encode(here.ids, lens, spelling=here.spelling)
                found = self._pool(hidden, lens).float().cpu()
                if not found.isfinite().all():
                    raise RegardError("embed: the model's vectors are not finite: its weights are broken, restore it.")
                vectors[[numbers[i] for i in batch.numbers.tolist()]] = found
                done += len(group)
                if on_progress is not None:
                    on_progress(done, len(encoded))
        return vectors

    def _pool(self, hidden: Tensor, lens: Tensor | None) -> Tensor:
        how = self.reading.pooling
        if how == "pool":
            out = self.model.pool(hidden, lens)
        elif how == "cls":
            out = hidden[:, 0]
        elif how == "max":
            rows = hidden
            if lens is not None:
                padded = torch.arange(hidden.shape[1], device=hidden.device) >= lens[:, None]
                rows = hidden.masked_fill(padded[..., None], -torch.inf)
            out = rows.amax(1)
        else:
            # rows of padding are zeros
            out = hidden.mean(1) if lens is None else hidden.sum(1) / lens[:, None]
        return functional.normalize(out, dim=-1) if self.reading.is_normal else out


def gather(lengths: Sequence[int], batch_size: int, enough: int) -> Iterator[list[int]]:
    """Batches by length, as numbers of texts: of one length, the longest first; few are filled up with shorter ones.

    >>> list(gather([3, 5, 3, 3, 5], batch_size=2, enough=6))
    [[1, 4], [0, 2], [3]]

    A batch has at least `enough` tokens and about twice as many at most, where `batch_size` and the texts allow it.
    """
    rows: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if rows:
            tokens = len(rows) * lengths[rows[0]]
            has_enough = tokens >= enough and (tokens >= 2 * enough or lengths[number] != lengths[rows[-1]])
            if len(rows) >= batch_size or has_enough:
                yield rows
                rows = []
        rows.append(number)
    if rows:
        yield rows


def find_reading(place: pathlib.Path) -> tuple[Reading, pathlib.Path]:
    """The pooling that sentence-transformers' files in a folder name, if there are any, and the model's own folder."""
    file = place / "modules.json"
    if not file.exists():
        return Reading(), place
    with open_inside(file, RESTORE) as opened:
        try:
            modules = read_json(opened.read(MOST_BYTES))
        except ValueError as error:
            raise name_fault(file, "is not JSON", RESTORE, tell(error)) from None
    parts = modules if isinstance(modules, list) else [modules]
    kinds, folders = [], []
    for part in parts:
        kind, path = (part.get("type"), part.get("path")) if isinstance(part, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str) or (path and not PART.fullmatch(path)):
            raise name_fault(file, "is no list of modules with a type and a path each", RESTORE)
        kinds.append(kind.rpartition(".")[2])
        folders.append(place / path)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        cause = f"has the modules {', '.join(kinds):.60}"
        raise name_fault(file, cause, "regard knows Transformer, Pooling and Normalize, in this order")
    asked = place / "config_sentence_transformers.json"
    if asked.exists() and read_object(asked).get("default_prompt_name"):
        raise name_fault(asked, "has a default_prompt_name", "take it out and put the prompt before your texts")
    limits = folders[0] / "sentence_bert_config.json"
    said = read_object(limits) if limits.exists() else {}
    most = said.get("max_seq_length")
    if most is not None and (type(most) is not int or most < 3):
        raise name_fault(limits, f"needs a number above 2 as max_seq_length, has {most!r:.40}", RESTORE)
    pooling = _read_pooling(folders[1] / "config.json")
    return Reading(pooling, len(kinds) == 3, most, said.get("do_lower_case") is True), folders[0]


def _read_pooling(file: pathlib.Path) -> str:
    said: dict[str, Any] = read_object(file)
    chosen = [name for name, value in said.items() if name.startswith("pooling_mode_") and value is True]
    found = [MODES.get(name) for name in chosen] or [said.get("pooling_mode")]
    if len(found) != 1 or found[0] not in MODES.values():
        names = ", ".join(chosen) or f"{said.get('pooling_mode')!r}"
        raise name_fault(file, f"pools by {names:.60}", "regard knows one of mean, cls and max")
    return str(found[0])
