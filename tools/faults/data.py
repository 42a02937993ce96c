"""Faults of the data: splits that leak, labels that are shifted, batches, readers."""

from tools.faults.fault import Fault

BUCKETS, ROWS = "data/buckets.py", "data/rows.py"

DATA = [
    Fault(
        "data/split.py",
        "place = _place(fold(source), seed)",
        "place = _place(source, seed)",
        "near-duplicates fall into different parts",
    ),
    Fault(
        "data/batches.py",
        "inputs, target[:, 1:].contiguous(), lengths - 1",
        "inputs, target[:, :-1].contiguous(), lengths - 1",
        "a decoder should answer what it is given",
    ),
    Fault(
        BUCKETS,
        "[self.rank :: self.world_size]]",
        "[:: self.world_size]]",
        "all processes learn from the first one's share",
    ),
    Fault(
        BUCKETS,
        "chance = draw_by(self.seed, epoch)",
        "chance = draw_by(self.seed, 0)",
        "every epoch has the order of the first",
    ),
    Fault(
        BUCKETS,
        "for batch in batches[start:]:",
        "for batch in batches[start + 1 :] if start else batches:",
        "an epoch that goes on leaves out a batch",
    ),
    Fault(
        ROWS,
        "labels = batch.ids.masked_fill(~chosen, self.rows.pad_label)",
        "labels = ids.masked_fill(~chosen, self.rows.pad_label)",
        "the answer to a hidden token is <mask> itself",
    ),
    Fault(
        ROWS,
        "batch.spelling.masked_fill(is_gone[..., None], PAD)",
        "batch.spelling",
        "letters tell what was hidden",
    ),
    Fault(
        "data/labelled.py",
        "columns or (0, 1)",
        "columns or (1, 0)",
        "labels are read as texts and texts as labels",
    ),
    Fault(
        "data/tagged.py",
        "        tags.append(tag)\n    if words:\n        yield tuple(words), tuple(tags)\n",
        "        tags.append(tag)\n",
        "the last sentence is lost where no blank line follows",
    ),
    Fault(
        "data/pairs.py",
        "in zip_longest(read_lines(first), read_lines(second)):",
        "in zip(read_lines(first), read_lines(second)):",
        "the longer of two aligned files is cut in silence",
    ),
    Fault(
        "data/lines.py",
        'text.removeprefix("\\ufeff") if number == 1 else text',
        "text",
        "a byte-order mark becomes part of the first sentence",
    ),
    Fault(
        "data/tokens.py",
        "        inner.encode_special_tokens = True\n",
        "        inner.encode_special_tokens = False\n",
        "<eos> in a user's text ends the sentence",
    ),
    Fault(
        "data/compression.py",
        "reworded += sum(marks) < len(wanted)",
        "reworded += sum(marks) < len(words)",
        "every shortened sentence counts as reworded",
    ),
]
