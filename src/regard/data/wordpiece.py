"""WordPiece, BERT's tokenizer of subwords, out of tokenizer.json or vocab.txt: https://arxiv.org/abs/1810.04805."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.core import RegardError
from regard.data.tokens import SURROGATE, Tokenizer, import_tokenizers, read_text

TOKENIZER, VOCAB, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# how text is cleaned: as a normalizer calls it, and as tokenizer_config.json does
OPTIONS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# vocabularies have holes, but not such that a table of a row for each id would be out of all proportion
MOST_HOLES = 2**16
MOST_SIGNS = 2**16


class WordPiece(Tokenizer):
    """A WordPiece tokenizer: text to the subwords of a BERT and back.

    >>> vocab = {token: number for number, token in enumerate([*SPECIAL, "look", "##ing", "there", "!"])}
    >>> tokenizer = WordPiece.from_vocab(vocab)
    >>> ids = tokenizer.encode("Looking there!")
    >>> tokenizer.list_tokens(tokenizer.frame(ids)), tokenizer.decode(ids)
    (['[CLS]', 'look', '##ing', 'there', '!', '[SEP]'], 'looking there!')

    `encode` gives the ids of the text alone; `frame` puts [CLS] before and [SEP] behind them. No text is ever read as a
    special token: "[MASK]" in a sentence is a bracket, a word and a bracket, where transformers would hide a word.
    To hide one, put `mask_id` among the ids.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(inner.token_to_id, SPECIAL)
        # ids may have holes: the model has rows for these too
        self._size = max(inner.get_vocab().values()) + 1

    @property
    def vocab_size(self) -> int:
        return int(self._size)

    def frame(self, ids: Sequence[int], other: Sequence[int] | None = None) -> list[int]:
        """Add the special tokens: [CLS] ids [SEP], and with another text its ids and [SEP] behind."""
        first = [self.cls_id, *ids, self.sep_id]
        return first if other is None else [*first, *other, self.sep_id]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, subwords joined, no spaces before punctuation, without [PAD], [CLS] and [SEP]."""
        left_out = (self.pad_id, self.cls_id, self.sep_id)
        return str(self._inner.decoder.decode([self._find_token(x) for x in map(int, ids) if x not in left_out]))

    def list_tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as its vocabulary has it: a subword within a word begins with ##."""
        return [self._find_token(int(number)) for number in ids]

    def _find_token(self, number: int) -> str:
        if not 0 <= number < self.vocab_size:
            raise RegardError(f"ids must be below vocab_size={self.vocab_size} and not negative, got {number}.")
        token = self._inner.id_to_token(number)
        return SPECIAL[1] if token is None else str(token)

    @classmethod
    def from_vocab(
        cls, vocab: Mapping[str, int], *, lowercase: bool = True, strip_accents: bool | None = None,
        handle_chinese_chars: bool = True, clean_text: bool = True, longest: int = 100,
    ) -> WordPiece:  # fmt: skip
        """A tokenizer of this vocabulary; `strip_accents` None is as `lowercase`, words past `longest` are [UNK]."""
        if why := _find_fault(vocab):
            raise RegardError(f"vocab is not of a WordPiece: {why}.")
        return cls(_build(vocab, lowercase, strip_accents, handle_chinese_chars, clean_text, longest))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordPiece:
        """Load the tokenizer of a BERT: its folder, its tokenizer.json, or its vocab.txt.

        tokenizer_config.json beside it decides on lower case, accents and Chinese, as it does in transformers; what it
        does not say is as tokenizer.json has it, or else in lower case. Padding and truncation are for batches, and are
        not read.
        """
        place = pathlib.Path(path)
        if place.is_dir():
            place /= VOCAB if (place / VOCAB).exists() and not (place / TOKENIZER).exists() else TOKENIZER
        text = read_text(str(place))
        try:
            settings = _read_settings(place.with_name(SETTINGS))
            vocab, options = _read_lines(text) if place.suffix == ".txt" else _read_json(text)
            if why := _find_fault(vocab):
                raise ValueError(why)
        except ValueError as error:
            why = "".join(x if x.isprintable() else "?" for x in str(error)[:90])
            raise RegardError(f"{place} is no WordPiece of a BERT ({why}): restore the folder.") from None
        return cls.from_vocab(vocab, **options | settings)


def open_tokenizer(file: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer of a file or a folder: a `WordPiece`, or one that `train_tokenizer` made.

    >>> import tempfile
    >>> from regard.data import train_tokenizer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train_tokenizer(["introduce xi'an"], kind="words").save(f"{folder}/tokenizer.json")
    ...     type(open_tokenizer(folder)).__name__
    'Tokenizer'
    """
    place = pathlib.Path(file)
    if place.is_dir():
        if (place / VOCAB).exists() and not (place / TOKENIZER).exists():
            return WordPiece.load(place)
        place /= TOKENIZER
    if place.suffix == ".txt":
        return WordPiece.load(place)
    try:
        kind = json.loads(read_text(str(place)))["model"]["type"]
    # the reader of our own says what is wrong with it
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = None
    return WordPiece.load(place) if kind == "WordPiece" else Tokenizer.load(place)


def _build(
    vocab: Mapping[str, int], lowercase: bool, strip_accents: bool | None, chinese: bool, cleans: bool, longest: int
) -> Any:
    hf = import_tokenizers()
    inner = hf.Tokenizer(
        hf.models.WordPiece(
            dict(vocab), unk_token=SPECIAL[1], max_input_chars_per_word=longest, continuing_subword_prefix="##"
        )
    )
    inner.normalizer = hf.normalizers.BertNormalizer(cleans, chinese, strip_accents, lowercase)
    inner.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
    inner.decoder = hf.decoders.WordPiece(prefix="##")
    cls_id, sep_id = vocab["[CLS]"], vocab["[SEP]"]
    inner.post_processor = hf.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls_id), ("[SEP]", sep_id)],
    )
    # for others who read the file that is saved
    inner.add_special_tokens(list(SPECIAL))
    return inner


def _read_settings(file: pathlib.Path) -> dict[str, Any]:
    """The normalisation that tokenizer_config.json sets, where there is one."""
    if not file.exists():
        return {}
    try:
        entries = json.loads(read_text(str(file)))
    except RecursionError:
        raise ValueError(f"{SETTINGS} is nested too deep") from None
    except ValueError:
        raise ValueError(f"{SETTINGS} is not JSON") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{SETTINGS} is not an object of keys")
    found = {ours: entries[theirs] for ours, theirs in OPTIONS.items() if theirs in entries}
    _check_options(found, SETTINGS)
    return found


def _check_options(found: Mapping[str, Any], where: str) -> None:
    for name, value in found.items():
        if not isinstance(value, bool) and not (name == "strip_accents" and value is None):
            raise ValueError(f"{where} has {str(value)!r:.20} for {name}")


def _read_lines(text: str) -> tuple[dict[str, int], dict[str, Any]]:
    """The vocabulary of vocab.txt, a subword per line; of two the same, the later has the id."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return {token: number for number, token in enumerate(lines)}, {}


def _read_json(text: str) -> tuple[dict[str, int], dict[str, Any]]:
    """The vocabulary and normalisation of tokenizer.json; steps that no BERT has are faults."""
    try:
        content = json.loads(text)
        model, cleaning, cut = content["model"], content["normalizer"], content["pre_tokenizer"]
        kinds = [part["type"] for part in (model, cleaning, cut)]
        vocab, added = model["vocab"], content.get("added_tokens") or []
        extra = {token["content"]: token["id"] for token in added}
        strange = [token["content"] for token in added if not token["special"] and token["content"] not in vocab]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no JSON with model, normalizer and pre_tokenizer: {type(error).__name__}") from None
    if kinds != ["WordPiece", "BertNormalizer", "BertPreTokenizer"]:
        raise ValueError(f"its steps are {', '.join(map(str, kinds))[:60]}")
    if strange:
        raise ValueError(f"it adds the word {str(strange[0])!r:.40}")
    if model.get("unk_token") != SPECIAL[1] or model.get("continuing_subword_prefix") != "##":
        raise ValueError("its unknown piece is not [UNK], or its mark within words not ##")
    if not isinstance(vocab, dict):
        raise ValueError("vocab must give each piece an id")
    for token, number in extra.items():
        if vocab.setdefault(token, number) != number:
            raise ValueError(f"{str(token)!r:.40} has two ids")
    options = {name: cleaning[name] for name in (*OPTIONS, "clean_text") if name in cleaning}
    _check_options(options, "the normalizer")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or not 0 < longest <= MOST_SIGNS:
        raise ValueError(f"max_input_chars_per_word must be 1 to {MOST_SIGNS}")
    return vocab, {**options, "longest": longest}


def _find_fault(vocab: Mapping[str, int]) -> str | None:
    """Why this is no vocabulary of a BERT."""
    if not all(type(number) is int for number in vocab.values()):
        return "vocab must give each piece an id"
    if any(SURROGATE.search(token) for token in vocab):
        return "a piece has half a surrogate pair"
    for token in SPECIAL:
        if token not in vocab:
            return f"it has no {token}"
    numbers = sorted(vocab.values())
    if numbers[0] < 0 or numbers[-1] >= len(numbers) + MOST_HOLES or len(set(numbers)) < len(numbers):
        return f"the ids of {len(numbers)} pieces must count from 0, each once"
    return None
