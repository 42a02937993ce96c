"""Which words of a sentence make the shorter one."""

import itertools
import random

import pytest

from regard.core import RegardError
from regard.data import Kept, mark_kept, read_aligned


def brute(words: str, short: str) -> tuple[bool, ...]:
    """The same by trying every choice of words."""
    subsequences = {
        tuple(short[i] for i in chosen)
        for size in range(len(short) + 1)
        for chosen in itertools.combinations(range(len(short)), size)
    }
    fits = [
        chosen
        for size in range(len(words) + 1)
        for chosen in itertools.combinations(range(len(words)), size)
        if tuple(words[i] for i in chosen) in subsequences
    ]
    # most words, fewest runs, earliest
    best = min(fits, key=lambda chosen: (-len(chosen), sum(i - 1 not in chosen for i in chosen), chosen))
    return tuple(i in best for i in range(len(words)))


def test_every_choice():
    rng = random.Random(0)
    ties = 0
    for _ in range(400):
        letters = rng.choice(["ab", "abc", "abcde"])
        words, short = ("".join(rng.choices(letters, k=rng.randrange(size))) for size in (10, 6))
        assert mark_kept(words, short) == brute(words, short), (words, short)
        ties += 0 < len(short) < len(words)
    assert ties > 100


@pytest.mark.parametrize(
    ("words", "short", "kept"),
    [
        ("", "", ""),
        ("", "a", ""),
        ("a b", "", ".."),
        ("The cat sat on the mat", "cat on mat", ".x.x.x"),
        ("The cat sat on the mat", "the MAT", "....xx"),
        ("the cat the cat", "the cat", "xx.."),
        ("the big cat the cat", "the cat", "...xx"),
        ("STRASSE", "straße", "x"),
        ("straße", "STRASSE", "x"),
        ("a b c", "a x c", "x.x"),
    ],
)
def test_known(words, short, kept):
    assert "".join(".x"[mark] for mark in mark_kept(words.split(), short.split())) == kept


def test_pairs():
    kept = Kept([("It's a dog.", "It's dog."), ("He ran.", "He runs.")])
    assert kept.share == 0
    assert list(kept) == list(kept)
    (words, tags), _ = kept
    assert (words, tags) == (("It", "'s", "a", "dog", "."), ("keep", "keep", "drop", "keep", "keep"))
    assert (kept.total, kept.reworded, kept.share) == (2, 1, 0.5)


@pytest.mark.parametrize("is_short", [False, True])
def test_what_would_take_forever_is_refused(is_short):
    pair = ("a " * 2000, "a " * 2001)
    kept = Kept([("a b", "a"), pair if is_short else pair[::-1]])
    with pytest.raises(RegardError) as error:
        list(kept)
    assert str(error.value) == (
        f"the pair that begins with {('a ' * 30)!r} has a side of more than 2,000 words: cut it, or leave it out."
    )


def test_another_cut():
    kept = Kept([("a-b c", "a-b")], cut=lambda text: [(x, 0, 0) for x in text.split()])
    assert list(kept) == [(("a-b", "c"), ("keep", "drop"))]


def test_real_compressions(data):
    folder = data / "sentence_compression"
    pairs = read_aligned(folder / "google-eval.sentence.txt.gz", folder / "google-eval.compression.txt.gz")
    kept = Kept(list(itertools.islice(pairs, 1000)))
    tags = [tag for _, row in kept for tag in row]
    assert kept.total == 1000
    assert kept.share < 0.2
    assert 0.2 < tags.count("keep") / len(tags) < 0.7
