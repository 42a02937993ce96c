"""The phrasebook: enough sentences, one translation each, and words that are never asked before they were taught."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from regard import RegardError
from regard.data.phrasebook import GAPS, PATTERNS, draw_pairs, list_pairs, split_pairs


def test_there_are_enough_and_none_twice():
    pairs = list_pairs()
    assert len(pairs) >= 50_000
    assert len({source for source, _ in pairs}) == len(pairs)
    assert len({target for _, target in pairs}) == len(pairs)


def test_no_gap_is_left():
    assert not [pair for pair in list_pairs() if re.search(r"[{}+/|=2]", "".join(pair))]


def test_languages_are_not_mixed():
    for source, target in list_pairs():
        assert re.fullmatch(r"[\u4e00-\u9fff，]+", source), source
        assert re.fullmatch(r"[a-z',\- ]+", target), target
        assert "  " not in target


@pytest.mark.parametrize("gap", GAPS)
def test_every_gap_is_used_and_its_words_differ(gap):
    assert any(f"{{{gap}}}" in pattern for pattern in PATTERNS)
    words = GAPS[gap].split("|")
    assert len({word.split(" ", 1)[0] for word in words}) == len(words)
    assert len({word.split(" ", 1)[1] for word in words}) == len(words)


def test_introduce_xian():
    assert ("介绍一下西安", "introduce xi'an") in list_pairs()
    assert ("我们要买三个红色的围巾", "we want to buy three red scarves") in list_pairs()
    assert not [source for source, _ in list_pairs() if source == "西安离西安远吗"]


def test_a_draw_follows_from_the_seed():
    assert draw_pairs(500, seed=3) == draw_pairs(500, seed=3)
    assert draw_pairs(500, seed=3) != draw_pairs(500, seed=4)
    assert len(set(draw_pairs(5000))) == 5000
    assert draw_pairs(100) == draw_pairs(200)[:100]


def test_a_draw_has_every_pattern():
    # each pattern begins or ends in its own way: as many kinds as patterns in the first round
    first = draw_pairs(len(PATTERNS))
    frames = [re.sub(r"\{[^}]*\}", "", pattern.split(" = ")[0]) for pattern in PATTERNS]
    for frame in frames:
        pieces = ".*".join(map(re.escape, frame))
        assert any(re.search(pieces, source) for source, _ in first), frame


@pytest.mark.parametrize("seed", [0, 1])
def test_combinations_are_held_out_and_words_are_not(seed):
    train, test = split_pairs(0.05, seed)
    assert not set(train) & set(test)
    assert set(train) | set(test) == set(list_pairs())
    assert 0.04 < len(test) / len(list_pairs()) < 0.06
    characters = Counter(character for source, _ in train for character in source)
    words = Counter(word for _, target in train for word in target.split())
    for source, target in test:
        assert all(characters[character] for character in source)
        assert all(words[word] for word in target.split())
    assert ("介绍一下西安", "introduce xi'an") in train


def test_the_split_follows_from_the_seed():
    assert split_pairs(seed=1) == split_pairs(seed=1)
    assert set(split_pairs(seed=1)[1]) != set(split_pairs(seed=2)[1])
    assert split_pairs(0.0)[1] == []


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: draw_pairs(-1), r"count must lie in \[0, \d+\], the sentences of the phrasebook, got -1\."),
        (lambda: split_pairs(1.0), r"held_out must lie in \[0, 1\), got 1\.0\."),
    ],
)
def test_what_is_wrong_is_said(act, message):
    with pytest.raises(RegardError, match=message):
        act()
