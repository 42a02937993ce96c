"""Tokenizers trained on your own text by Hugging Face tokenizers: byte-level BPE, words, characters."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from regard.core import RegardError
from regard.core.files import write_whole
from regard.extras import install

Kind = Literal["bpe", "words", "spaces", "characters"]
Form = Literal["NFC", "NFKC"]

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
# where text is cut; words take the space before them along, so that no space is lost
CUTS = {
    "words": r" ?(?:\w+(?:['\u2019]\w+)*|[^\w\s])|\s",
    # behind a tab there is no space: cut at <, that no word is a special token
    "spaces": r" \S+|[^\s<]+|<|\s",
    "characters": r"[\s\S]",
}
# four specials; byte-level BPE knows all 256 bytes besides
LEAST = {"bpe": 260, "words": 5, "spaces": 5, "characters": 5}
# the vocabularies of the largest models stay below this
MOST_BYTES = 64 * 2**20
SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A tokenizer: text to token ids and back.

    >>> tokenizer = train_tokenizer(["introduce xi'an", "introduce beijing"], kind="words")
    >>> ids = tokenizer.encode("introduce xi'an")
    >>> ids, tokenizer.decode(ids), tokenizer.list_tokens(ids)
    ([4, 6], "introduce xi'an", ['introduce', "xi'an"])

    Ids 0 to 3 are <pad> <bos> <eos> <unk>, and no text is ever read as one of these: "<eos>" in a sentence is five
    characters. `decode(encode(text))` is `normalise(text)`, where every word (or character) is known; BPE knows all.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        # else a user's "<eos>" ends the sentence; the file does not keep this
        inner.encode_special_tokens = True
        # words carry the space before them, the first too
        self._spaced = self._clean("x") == " x"

    @property
    def vocab_size(self) -> int:
        return int(self._inner.get_vocab_size())

    @property
    def keeps_words(self) -> bool:
        """Whether every word is one token: no subwords."""
        return self._spaced and type(self._inner.model).__name__ == "WordLevel"

    def _clean(self, text: str) -> str:
        normalizer = self._inner.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def normalise(self, text: str) -> str:
        """`text` as the tokenizer normalises it: one unicode form, in lower case where it was so trained."""
        clean = self._clean(text)
        return clean[1:] if self._spaced else clean

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`, without <bos> and <eos>."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """The token ids of many texts, on all cores."""
        return [found.ids for found in self._inner.encode_batch(list(_check_texts(texts)), add_special_tokens=False)]

    def encode_spans(self, texts: Iterable[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The token ids of many texts, and of each text the character spans that `list_spans` gives."""
        found = self._inner.encode_batch(list(_check_texts(texts)), add_special_tokens=False)
        return [(one.ids, one.offsets) for one in found]

    def list_spans(self, text: str) -> list[tuple[int, int]]:
        """The character spans (offsets) in `text` of the tokens of `encode(text)`, from one up to another.

        >>> train_tokenizer(["introduce xi'an"], kind="words").list_spans("introduce xi'an")
        [(0, 9), (9, 15)]
        """
        return self.encode_spans([text])[0][1]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` up to the first <eos>; <pad> and <bos> are left out, <unk> is shown."""
        known = []
        for number in map(int, ids):
            token = self._find_token(number)
            if number == EOS:
                break
            if number not in (PAD, BOS):
                known.append(f" {token}" if self._spaced and number == UNK else token)
        return str(self._inner.decoder.decode(known))

    def list_tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as the text it stands for, for labels in a picture; part of a character is shown as �."""
        return [self._inner.decoder.decode([self._find_token(int(number))]) for number in ids]

    def _find_token(self, number: int) -> str:
        if not 0 <= number < self.vocab_size:
            raise RegardError(f"ids must be below vocab_size={self.vocab_size} and not negative, got {number}.")
        return str(self._inner.id_to_token(number))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `tokenizer.json` in Hugging Face's own format, whole or not at all."""
        name = os.fspath(path)
        try:
            write_whole(pathlib.Path(name), self._inner.to_str(pretty=True))
        except OSError as error:
            raise RegardError(
                f"{name} cannot be written ({error.strerror or error}): check the folder and its space."
            ) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Load a `tokenizer.json` that `save` wrote."""
        hf, name = import_tokenizers(), os.fspath(path)
        text = read_text(name)
        if why := _find_fault(text):
            raise RegardError(f"{name} is not a tokenizer of regard ({why}): restore it, or train again.")
        try:
            inner = hf.Tokenizer.from_str(text)
        # a panic in Rust is a BaseException, and has no public name
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            why = "".join(x if x.isprintable() else "?" for x in " ".join(str(error).split())[:100])
            raise RegardError(f"{name} is not a tokenizer ({why}): restore it, or train again.") from None
        if not _is_ours(hf, inner):
            raise RegardError(f"{name} has steps that no tokenizer of regard has: restore it, or train again.")
        return cls(inner)


def train_tokenizer(
    texts: Iterable[str],
    kind: Kind = "bpe",
    *,
    vocab_size: int = 8000,
    lowercase: bool = False,
    form: Form = "NFC",
    min_count: int = 1,
) -> Tokenizer:
    """Train a tokenizer on `texts`; the same texts give the same one.

    >>> tokenizer = train_tokenizer(["介绍一下西安", "介绍一下北京"], kind="characters")
    >>> tokenizer.decode(tokenizer.encode("西安 北京")), tokenizer.vocab_size
    ('西安<unk>北京', 12)

    "bpe" merges bytes, so that nothing is unknown; "words" cuts at spaces and punctuation (xi'an is one word), "spaces"
    at spaces alone, for text that is tokenised already; "characters" suits Chinese. `vocab_size` is the most it may
    have, the four specials included; what occurs less than `min_count` times is not learned. form="NFKC" folds width
    and ligatures, which decoding does not bring back.
    """
    for name, value, known in (("kind", kind, tuple(LEAST)), ("form", form, ("NFC", "NFKC"))):
        if value not in known:
            raise RegardError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
    if vocab_size < LEAST[kind]:
        raise RegardError(f"vocab_size must be at least {LEAST[kind]} with kind={kind!r}, got {vocab_size}.")
    hf = import_tokenizers()
    inner = _build(hf, kind, lowercase, form)
    options = {"special_tokens": list(SPECIAL), "vocab_size": vocab_size, "min_frequency": min_count}
    if kind == "bpe":
        alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
        trainer = hf.trainers.BpeTrainer(**options, initial_alphabet=alphabet, show_progress=False)
    else:
        trainer = hf.trainers.WordLevelTrainer(**options, show_progress=False)
    seen = 0

    def count() -> Iterator[str]:
        nonlocal seen
        for text in _check_texts(texts):
            seen += bool(text)
            yield text

    inner.train_from_iterator(count(), trainer)
    if not seen:
        raise RegardError("texts must hold at least one sentence to train a tokenizer, got none.")
    return Tokenizer(inner)


def _build(hf: Any, kind: str, lowercase: bool, form: str) -> Any:
    """An untrained tokenizer: every step, no vocabulary."""
    shape = {"NFC": hf.normalizers.NFC, "NFKC": hf.normalizers.NFKC}[form]
    # lower case may take a letter apart: İ
    steps = [shape(), hf.normalizers.Lowercase(), shape()] if lowercase else [shape()]
    if kind == "bpe":
        inner = hf.Tokenizer(hf.models.BPE())
        inner.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
        join = [hf.decoders.ByteLevel()]
    else:
        inner = hf.Tokenizer(hf.models.WordLevel(unk_token=SPECIAL[UNK]))
        inner.pre_tokenizer = hf.pre_tokenizers.Split(hf.Regex(CUTS[kind]), "isolated")
        join = [hf.decoders.Fuse()]
    if kind != "characters":
        # a word is the same token at the start of a sentence and within
        steps.append(hf.normalizers.Prepend(" "))
        join.append(hf.decoders.Strip(" ", 1, 0))
    inner.normalizer = hf.normalizers.Sequence(steps)
    inner.decoder = hf.decoders.Sequence(join)
    return inner


def _list_steps(inner: Any) -> dict[str, Any]:
    """The configuration of a tokenizer, without its vocabulary."""
    content: dict[str, Any] = json.loads(inner.to_str())
    return {**content, "model": {k: v for k, v in content["model"].items() if k not in ("vocab", "merges")}}


def _is_ours(hf: Any, inner: Any) -> bool:
    # a step of someone else's could lose text, read it as a special token, or never end
    for kind, lowercase, form in itertools.product(LEAST, (False, True), ("NFC", "NFKC")):
        plain = _build(hf, kind, lowercase, form)
        plain.add_special_tokens(list(SPECIAL))
        if _list_steps(plain) == _list_steps(inner):
            return True
    return False


def import_tokenizers() -> Any:
    """Import Hugging Face tokenizers; the error says how to install it."""
    try:
        import tokenizers
    except ImportError:
        raise RegardError(f"Tokenizers need the package tokenizers: {install('text')}.") from None
    return tokenizers


def _check_texts(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise RegardError("texts must be a sequence of sentences, got one str: put it in a list.")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise RegardError(f"texts must be str, text {number} is a {type(text).__name__}.")
        if SURROGATE.search(text):
            raise RegardError(f"texts must be unicode, text {number} has half a surrogate pair: read it as UTF-8.")
        yield text


def read_text(name: str) -> str:
    """Read a tokenizer's file, which must be of UTF-8 and not too large."""
    try:
        # to open a pipe could take forever
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise RegardError(f"{name} is not a file, so it is no tokenizer: check the name.")
        with open(name, "rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RegardError(f"{name} cannot be read ({error.strerror or error}): check the name.") from None
    if len(raw) > MOST_BYTES:
        raise RegardError(f"{name} is larger than {MOST_BYTES:,} bytes, too large for a tokenizer: check the name.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RegardError(f"{name} is not UTF-8, so it is no tokenizer: restore it, or train again.") from None


def _find_fault(text: str) -> str | None:
    """Why `text` is no tokenizer of ours; Rust would take some of it in silence and panic at the rest."""
    doubled: list[str] = []

    def pair_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = sorted(key for key, _ in pairs)
            doubled.extend(one for one, other in itertools.pairwise(keys) if one == other)
        return found

    try:
        model = json.loads(text, object_pairs_hook=pair_up)["model"]
        vocab, kind = model["vocab"], model["type"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no JSON with model, vocab and type: {type(error).__name__}" if text.strip() else "the file is empty"
    if doubled:
        return f"the key {doubled[0]!r:.40} stands there twice"
    if kind not in ("BPE", "WordLevel"):
        return f"type must be BPE or WordLevel, is {str(kind)[:40]!r}"
    if not isinstance(vocab, dict) or not all(type(number) is int for number in vocab.values()):
        return "vocab must give each token an id"
    if sorted(vocab.values()) != list(range(len(vocab))):
        return f"the ids of {len(vocab)} tokens must be 0 to {len(vocab) - 1}, each once"
    for number, token in enumerate(SPECIAL):
        if vocab.get(token) != number:
            return f"{token} must have id {number}, has {vocab.get(token)}"
    merges = model.get("merges", [])
    for merge in merges if isinstance(merges, list) else [merges]:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        two = isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) for part in parts)
        if not (two and {*parts, "".join(parts)} <= vocab.keys()):
            return f"the merge {repr(merge)[:40]} is not of two tokens of the vocabulary"
    return None
