"""Datasets and tokenizers: from files of text to padded batches of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

# at once: its file has the name of a function in it
from regard.data.split import Split, find_part, split
from regard.lazy import export

if TYPE_CHECKING:
    from regard.data.batches import Batch, Batches
    from regard.data.buckets import pad
    from regard.data.compression import Kept, mark_kept
    from regard.data.labelled import read_labelled
    from regard.data.pairs import Pairs, read_aligned, read_pairs
    from regard.data.rows import Labelled, Masked, Rows
    from regard.data.tagged import Tagged, read_tagged
    from regard.data.texts import Texts, read_texts
    from regard.data.tokens import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
    from regard.data.wordpiece import WordPiece, open_tokenizer
    from regard.data.words import cut_words, join_words

__all__ = [
    "BOS", "EOS", "PAD", "UNK", "Batch", "Batches", "Kept", "Labelled", "Masked", "Pairs", "Rows", "Split", "Tagged",
    "Texts", "Tokenizer", "WordPiece", "cut_words", "find_part", "join_words", "mark_kept", "open_tokenizer", "pad",
    "read_aligned", "read_labelled", "read_pairs", "read_tagged", "read_texts", "split", "train_tokenizer",
]  # fmt: skip
__getattr__, __dir__ = export(
    __name__,
    {
        "BOS": "tokens", "EOS": "tokens", "PAD": "tokens", "UNK": "tokens", "Batch": "batches", "Batches": "batches",
        "Kept": "compression", "Labelled": "rows", "Masked": "rows", "Pairs": "pairs", "Rows": "rows",
        "Tagged": "tagged", "Texts": "texts", "Tokenizer": "tokens", "WordPiece": "wordpiece",
        "cut_words": "words", "join_words": "words", "mark_kept": "compression",
        "open_tokenizer": "wordpiece", "pad": "buckets", "read_aligned": "pairs", "read_labelled": "labelled",
        "read_pairs": "pairs", "read_tagged": "tagged", "read_texts": "texts",
        "train_tokenizer": "tokens",
    },
)  # fmt: skip
