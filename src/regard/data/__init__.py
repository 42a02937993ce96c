"""From a file of sentences, in pairs, tagged or labelled, to batches of token ids."""

from regard.data.batches import Batch, Batches
from regard.data.buckets import pad
from regard.data.compression import Kept, mark_kept
from regard.data.labelled import read_labelled
from regard.data.pairs import Pairs, read_aligned, read_pairs
from regard.data.rows import Labelled, Masked, Rows
from regard.data.split import Split, find_part, split
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
