"""A tokenizer of texts and words, and a character vocabulary where words are also read by their characters."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.core import RegardError
from regard.data import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from regard.data.wordpiece import WordPiece, open_tokenizer

TOKENS_FILE, LETTERS_FILE = "tokenizer.json", "letters.json"
# of a longer word the middle is not read: an address is known by its ends
FIRST_LETTERS, LAST_LETTERS = 16, 8


@dataclass(frozen=True)
class Encoded:
    """One tokenized text.

    `letters` are the ids of each token's letters, where they are read. `starts` is where each word begins, in a
    sentence that came as words. `num_left_out` is how many tokens the text has beyond those that are read.
    """

    ids: list[int]
    letters: list[list[int]] | None = None
    starts: list[int] | None = None
    num_left_out: int = 0


class Lexicon:
    """A tokenizer, and a character vocabulary where words are also read by their characters.

    >>> lexicon = Lexicon.train([["the", "cat"], ["the", "mat"]], "spaces", has_letters=True)
    >>> (found,) = lexicon.encode_words([["the", "hat"]])
    >>> found.ids, len(found.letters), found.starts
    ([4, 3], 2, [0, 1])

    The last row of a model's vocabulary is <mask>, which no text is ever read as. `is_framed` puts <bos> before every
    text, for a model that reads a sentence out of its first place; BERT's tokenizers have their own frame.
    """

    def __init__(self, tokenizer: Tokenizer, letters: Tokenizer | None = None, *, is_framed: bool = False) -> None:
        self.tokenizer, self.letters, self.is_framed = tokenizer, letters, is_framed
        # how each word was read before, and spelled
        self._known: dict[str, list[int]] = {}
        self._spelled: dict[str, list[int]] = {}

    @classmethod
    def train(
        cls, texts: Iterable[Any], kind: str, *, has_letters: bool = False, is_framed: bool = False, **options: Any
    ) -> Lexicon:
        """A lexicon trained on texts, or on sentences of words; options are those of `train_tokenizer`."""
        lines = [text if isinstance(text, str) else " ".join(text) for text in texts]
        tokenizer = train_tokenizer(lines, kind, **options)  # type: ignore[arg-type]
        letters = None
        if has_letters:
            if not tokenizer.keeps_words:
                raise RegardError(f"letters are for tokens that are words: take tokens words or spaces, not {kind!r}.")
            form = options.get("form", "NFC")
            letters = train_tokenizer(lines, "characters", form=form, min_count=2 if len(lines) > 1000 else 1)
        return cls(tokenizer, letters, is_framed=is_framed)

    @classmethod
    def load(cls, folder: pathlib.Path, *, has_letters: bool, is_framed: bool = False) -> Lexicon:
        """The lexicon that a run saved."""
        letters = Tokenizer.load(folder / LETTERS_FILE) if has_letters else None
        return cls(open_tokenizer(folder / TOKENS_FILE), letters, is_framed=is_framed)

    def save(self, folder: pathlib.Path) -> None:
        self.tokenizer.save(folder / TOKENS_FILE)
        # one that was left by a start with other settings would be read as this run's
        (folder / LETTERS_FILE).unlink(missing_ok=True)
        if self.letters is not None:
            self.letters.save(folder / LETTERS_FILE)

    @property
    def vocab_size(self) -> int:
        """The size of a model's vocabulary, <mask> included."""
        return self.tokenizer.vocab_size + (not isinstance(self.tokenizer, WordPiece))

    @property
    def num_characters(self) -> int:
        return 0 if self.letters is None else self.letters.vocab_size

    @property
    def mask_id(self) -> int:
        return self.tokenizer.mask_id if isinstance(self.tokenizer, WordPiece) else self.tokenizer.vocab_size

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_id if isinstance(self.tokenizer, WordPiece) else PAD

    @property
    def unk_id(self) -> int:
        return self.tokenizer.unk_id if isinstance(self.tokenizer, WordPiece) else UNK

    @property
    def special(self) -> set[int]:
        """The ids of special tokens, which stand for no text."""
        inner = self.tokenizer
        if isinstance(inner, WordPiece):
            return {inner.pad_id, inner.cls_id, inner.sep_id, inner.mask_id}
        return {PAD, BOS, EOS, UNK, self.mask_id}

    def encode_texts(self, texts: Sequence[str], limit: int | None = None) -> list[Encoded]:
        """Tokenize texts, each truncated to `limit` tokens, special tokens included."""
        most = None if limit is None else max(1, limit - len(self.frame([UNK])) + 1)
        found = []
        for one in self.cut_texts(texts):
            ids, letters = self.frame(one.ids[:most]), one.letters
            if letters is not None:
                letters = self._fill(letters[:most], len(ids))
            found.append(Encoded(ids, letters, num_left_out=max(0, len(one.ids) - (most or len(one.ids)))))
        return found

    def cut_texts(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenize whole texts, without special tokens."""
        if self.letters is None:
            return [Encoded(ids) for ids in self.tokenizer.encode_all(texts)]
        rows = self.tokenizer.encode_spans(texts)
        lines = [[text[a:b].strip() for a, b in spans] for text, (_, spans) in zip(texts, rows, strict=True)]
        self._spell(word for words in lines for word in words)
        return [
            Encoded(ids, [self._spelled[word] for word in words]) for (ids, _), words in zip(rows, lines, strict=True)
        ]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Tokenize sentences of words; a word that has several subwords is known by its first."""
        self._learn(word for words in sentences for word in words)
        if self.letters is not None:
            self._spell(word for words in sentences for word in words)
        found = []
        for words in sentences:
            pieces = [self._known[word] for word in words]
            ids = self.frame([number for piece in pieces for number in piece])
            before = self._count_before()
            starts = [before]
            for piece in pieces[:-1]:
                starts.append(starts[-1] + len(piece))
            letters = None if self.letters is None else self._fill([self._spelled[word] for word in words], len(ids))
            found.append(Encoded(ids, letters, starts if words else []))
        return found

    def frame(self, ids: list[int]) -> list[int]:
        """Token ids with the special tokens around every text; never empty."""
        if isinstance(self.tokenizer, WordPiece):
            return self.tokenizer.frame(ids)
        return [BOS, *ids] if self.is_framed else ids or [UNK]

    def _count_before(self) -> int:
        return int(self.is_framed or isinstance(self.tokenizer, WordPiece))

    @staticmethod
    def _fill(letters: list[list[int]], count: int) -> list[list[int]]:
        """Characters of as many tokens: special tokens, and what stands for an empty text, have none."""
        return [*[[]] * (count - len(letters)), *letters]

    def _learn(self, words: Iterable[str]) -> None:
        """Tokenize every new word once."""
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        unknown = [self.unk_id]
        for word, ids in zip(new, self.tokenizer.encode_all(new), strict=True):
            # a word with a space in it is none that a tokenizer of words could know
            self._known[word] = unknown if not ids or (self.tokenizer.keeps_words and len(ids) > 1) else ids

    def _spell(self, words: Iterable[str]) -> None:
        """Encode the characters of every new word once."""
        assert self.letters is not None
        new = [word for word in dict.fromkeys(words) if word not in self._spelled]
        for word, letters in zip(new, self.letters.encode_all(new), strict=True):
            if len(letters) > FIRST_LETTERS + LAST_LETTERS:
                letters = letters[:FIRST_LETTERS] + letters[-LAST_LETTERS:]
            # with marks at its ends a suffix is another run of letters than the same within
            self._spelled[word] = [BOS, *letters, EOS]
