"""Documents as token sequences for pre-training: single, or in pairs for next-sentence prediction."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.core import RegardError
from regard.data import BOS, EOS
from regard.data.wordpiece import WordPiece
from regard.tasks.reading.vocabulary import Encoded, Lexicon

# tokens, their letters, their types, and whether the second text is any other
Row = tuple[list[int], list[list[int]], list[int], int]


class Read(NamedTuple):
    """Token sequences: ids, characters, token types (segments), and labels for next-sentence prediction.

    `others` is 0 for a text and the next of its document, 1 for one and any other.
    """

    ids: list[list[int]]
    letters: list[list[list[int]]] | None
    types: list[list[int]] | None = None
    others: list[int] | None = None


def read_documents(
    lexicon: Lexicon, documents: Sequence[Sequence[str]], limit: int | None = None, seed: int = 0, *,
    has_next: bool = False,
) -> Read:  # fmt: skip
    """Token sequences of documents, split into pieces of at most `limit` tokens, special tokens included.

    With `has_next` each piece is followed by the next of its document, or half the time by any of another. What has no
    known word in it is left out: there is nothing to guess.
    """
    # [CLS] a [SEP] b [SEP], or what stands around one text
    extra, texts = (3, 2) if has_next else (len(lexicon.frame([EOS])) - 1, 1)
    most = None if limit is None else (limit - extra) // texts
    if most is not None and most < 1:
        raise RegardError(f"max_length and max_tokens must be {extra + texts} or more to read anything, got {limit}.")
    pieces = _cut_texts(lexicon, [text for texts in documents for text in texts], most)
    by_document = [list(itertools.chain(*itertools.islice(pieces, len(texts)))) for texts in documents]
    rows = _pair(lexicon, by_document, random.Random(seed)) if has_next else _frame(lexicon, by_document)
    known = [row for row in rows if not lexicon.special.issuperset(row[0])]
    letters = [row[1] for row in known] if lexicon.letters is not None else None
    if not has_next:
        return Read([row[0] for row in known], letters)
    return Read([row[0] for row in known], letters, [row[2] for row in known], [row[3] for row in known])


def _cut_texts(lexicon: Lexicon, texts: Sequence[str], most: int | None) -> Iterator[list[Encoded]]:
    """The pieces of each text, without special tokens."""
    for one in lexicon.cut_texts(texts):
        ids = one.ids
        letters = [[]] * len(ids) if one.letters is None else one.letters
        step = most or max(len(ids), 1)
        cuts = [slice(start, start + step) for start in range(0, len(ids), step)]
        yield [Encoded(ids[cut], letters[cut]) for cut in cuts]


def _frame(lexicon: Lexicon, documents: Sequence[Sequence[Encoded]]) -> Iterator[Row]:
    for piece in itertools.chain(*documents):
        ids, letters = lexicon.frame(piece.ids), piece.letters or []
        yield ids, [*[[]] * (len(ids) - len(letters)), *letters], [], 0


def _pair(lexicon: Lexicon, documents: Sequence[Sequence[Encoded]], chance: random.Random) -> Iterator[Row]:
    documents = [pieces for pieces in documents if pieces]
    if len(documents) < 2 or max(map(len, documents)) < 2:
        raise RegardError(
            f"has_next needs two documents or more, one of them of two texts, to learn from and to validate by, got"
            f" {len(documents)}: part them by blank lines."
        )
    tokenizer = lexicon.tokenizer
    for number, pieces in enumerate(documents):
        for first, second in itertools.pairwise(pieces):
            is_other = chance.random() < 0.5
            if is_other:
                # any but this one
                other = chance.randrange(len(documents) - 1)
                second = chance.choice(documents[other + (other >= number)])
            a, b = first.ids, second.ids
            ids = tokenizer.frame(a, b) if isinstance(tokenizer, WordPiece) else [BOS, *a, EOS, *b, EOS]
            letters = [[], *(first.letters or []), [], *(second.letters or []), []]
            yield ids, letters, [0] * (len(a) + 2) + [1] * (len(b) + 1), int(is_other)
