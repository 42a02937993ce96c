"""From a file of sentence pairs to batches of token ids."""

from regard.data.batches import Batch, Batches, pad
from regard.data.pairs import Pairs, read_aligned, read_pairs
from regard.data.split import Split, find_part, split
from regard.data.tokens import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer

__all__ = [
    "BOS", "EOS", "PAD", "UNK", "Batch", "Batches", "Pairs", "Split", "Tokenizer", "find_part", "pad", "read_aligned",
    "read_pairs", "split", "train_tokenizer",
]  # fmt: skip
