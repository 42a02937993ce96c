"""Text as words and back."""

import gzip
import itertools
import random
import time

import pytest

from regard.data.words import cut_words, join_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("  ", ""),
        ("don't", "do n't"),
        ("Don\u2019t", "Do n\u2019t"),
        ("I'm sure they'll say we've won; he'd go.", "I 'm sure they 'll say we 've won ; he 'd go ."),
        ("Can't won't cannot", "Ca n't wo n't can not"),
        ("John's dogs' bones", "John 's dogs ' bones"),
        ("gonna gotta", "gon na got ta"),
        ("Dr. Who left at 9 a.m. on Jan. 5.", "Dr. Who left at 9 a.m. on Jan. 5 ."),
        ("He saw A. B", "He saw A. B"),
        ("$1,000.50 is 5%!", "$ 1,000.50 is 5 % !"),
        ("well-known e-mail", "well - known e-mail"),
        ("Wait... what?! -- so", "Wait ... what ?! -- so"),
        ("see www.a.com, (x@y.org) or notes.txt.", "see www.a.com , ( x@y.org ) or notes.txt ."),
        ("rock'n'roll o'clock", "rock'n'roll o'clock"),
        ('He said "no".', 'He said " no " .'),
        ("我爱西安。", "我 爱 西 安 。"),
        ("Xi'an西安", "Xi'an 西 安"),
        ("café nai\u0308ve", "café nai\u0308ve"),
        ("हिन्दी में।", "हिन्दी में ।"),
    ],
)
def test_words(text, words):
    assert [word for word, _, _ in cut_words(text)] == words.split()


def test_every_character_is_in_one_word_where_it_says():
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choices("aB9.-'\u2019@/:; \t\n()$n't西\U0001f600_é\u0301", k=rng.randrange(30)))
        words = cut_words(text)
        assert all(text[start:stop] == word for word, start, stop in words)
        assert all(a[2] <= b[1] for a, b in itertools.pairwise(words))
        assert "".join(word for word, _, _ in words) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    ["I can't stop (it's \"fun\").", "Pay $5, not 6%!", "a well-known and/or dog", "西安很大。", "No; the dogs' home."],
)
def test_there_and_back(text):
    assert join_words([word for word, _, _ in cut_words(text)]) == text


def test_joined_words():
    assert join_words([]) == ""
    assert join_words(["-", "one"]) == "- one"
    assert join_words(["西", "安", "is", "big", "."]) == "西安 is big."


@pytest.mark.parametrize("part", ["a", "a-", "a.", "a+", "1.", "1,2:", "www.(", "n't", "'", "@", "é\u0301", "e-"])
def test_a_word_without_an_end_takes_no_longer(part):
    text, start = part * 20_000, time.process_time()
    cut_words(text)
    # a quadratic walk takes minutes
    assert time.process_time() - start < 5


def test_english_treebank(data):
    same = total = back = 0
    with gzip.open(data / "ud_english_ewt" / "en_ewt-ud-test.conllu.gz", "rt", encoding="utf-8") as lines:
        text, words = "", []
        for line in lines:
            if line.startswith("# text = "):
                text, words = line[9:].strip(), []
            elif line.split("\t")[0].isdigit():
                words.append(line.split("\t")[1])
            elif not line.strip():
                total += 1
                same += [word for word, _, _ in cut_words(text)] == words
                back += join_words(words) == text
    assert total == 2077
    # measured: 0.927 and 0.873
    assert same / total > 0.92
    assert back / total > 0.86
