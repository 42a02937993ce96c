"""The grammar's labels: every word has its part of speech, tones and telegrams follow, and nothing asked was taught."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict

import pytest

from regard.core import RegardError
from regard.data import grammar
from regard.data.grammar import UPOS, list_tagged, shorten, split_polite, split_short, split_tagged
from regard.data.phrasebook import PATTERNS, list_choices, list_pairs, split_pairs

# by eye, after the guidelines and the English Web Treebank
SENTENCES = """
how much is it to go to xi'an by train | ADV ADJ AUX PRON PART VERB ADP PROPN ADP NOUN
i want to go to beijing the day after tomorrow | PRON VERB PART VERB ADP PROPN DET NOUN ADP NOUN
they want to book a room on monday | PRON VERB PART VERB DET NOUN ADP PROPN
excuse me , where is the post office | VERB PRON PUNCT ADV AUX DET NOUN NOUN
please introduce the temple of heaven | INTJ VERB DET PROPN ADP PROPN
please introduce the old city wall | INTJ VERB DET ADJ NOUN NOUN
is there a high-speed train from dali to lhasa | VERB PRON DET ADJ NOUN ADP PROPN ADP PROPN
do you like the mutton soup with bread of xi'an | AUX PRON VERB DET NOUN NOUN ADP NOUN ADP PROPN
have you been to harbin | AUX PRON AUX ADP PROPN
that is too expensive , is one hundred yuan all right | PRON AUX ADV ADJ PUNCT AUX NUM NUM NOUN ADV ADJ
that red hat is ten yuan | DET ADJ NOUN AUX NUM NOUN
what time does the great wall open | DET NOUN AUX DET PROPN PROPN VERB
we want to eat fish and drink tea | PRON VERB PART VERB NOUN CCONJ VERB NOUN
we want to buy two blue phone cards | PRON VERB PART VERB NUM ADJ NOUN NOUN
they wait for you at the bank in kunming | PRON VERB ADP PRON ADP DET NOUN ADP PROPN
i go to west lake tomorrow in the morning | PRON VERB ADP PROPN PROPN NOUN ADP DET NOUN
the bank is next to the park | DET NOUN AUX ADV ADP DET NOUN
从 西安 到 大理 要 多 长 时间 | ADP PROPN ADP PROPN VERB ADV ADJ NOUN
我们 要 买 两 个 红色 的 帽子 | PRON AUX VERB NUM NOUN ADJ PART NOUN
他们 今天 晚上 八 点 到 武汉 | PRON NOUN NOUN NUM NOUN VERB PROPN
我 在 昆明 的 银行 等 你 | PRON ADP PROPN PART NOUN VERB PRON
请问 银行 在 哪里 | VERB NOUN VERB PRON
太 贵 了 ， 五十 块 可以 吗 | ADV ADJ PART PUNCT NUM NOUN AUX PART
"""
# the parts are the same on every machine and in every version
DIGESTS = {
    "tagged en": "a9d18722cbb8", "tagged zh": "edf0cbdf4a74", "polite en": "8e07f8775d96", "polite zh": "9314ef013cee",
    "short": "a3025bcc0f47",
}  # fmt: skip
MARKS = (".", "?", "\u3002", "\uff1f")


@pytest.mark.parametrize("sentence", SENTENCES.strip().splitlines(), ids=lambda line: line.split(" | ")[0])
def test_tags_by_eye(sentence):
    text, tags = sentence.split(" | ")
    language = "en" if text.isascii() else "zh"
    assert dict(list_tagged(language))[tuple(text.split())] == tuple(tags.split())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_word_of_the_phrasebook_has_a_tag(language):
    mark, side = (" ", 1) if language == "en" else ("", 0)
    tagged = list_tagged(language)
    assert [mark.join(words) for words, _ in tagged] == [pair[side] for pair in list_pairs()]
    assert all(len(words) == len(tags) for words, tags in tagged)
    assert {tag for _, tags in tagged for tag in tags} <= set(UPOS)
    assert len(UPOS) == 17


def test_tags_agree_with_rules_that_hold_for_english():
    kinds = defaultdict(set)
    for words, tags in list_tagged():
        for n, (word, tag) in enumerate(zip(words, tags, strict=True)):
            kinds[word].add(tag)
            after = tags[n + 1] if n + 1 < len(tags) else ""
            if word == "to":
                assert (tag == "PART") == (after == "VERB"), words
            if tag == "DET":
                assert after in {"ADJ", "NOUN", "PROPN"}, words
            if tag == "ADP":
                assert after in {"DET", "ADJ", "NOUN", "PROPN", "NUM", "PRON", "ADP"}, words
            if tag == "NUM":
                assert after in {"NOUN", "NUM", "ADJ", "ADP"}, words
    # the only words whose company decides
    assert {word for word, tags in kinds.items() if len(tags) > 1} == {"to", "is", "that", "city", "wall"}
    assert kinds["is"] == {"AUX", "VERB"}


def list_patterns() -> list[int]:
    """Of each sentence of the book, the place of its pattern."""
    return [n for n, pattern in enumerate(PATTERNS) for _ in list_choices(pattern)]


def parts_of(name: str, seed: int = 0) -> list[list]:
    kind, _, language = name.partition(" ")
    draw = {"tagged": split_tagged, "polite": split_polite, "short": split_short}[kind]
    return list(draw(seed=seed, **({"language": language} if language else {})))


def drop_mark(text):
    """A text, or its words, without the mark at its end."""
    if isinstance(text, tuple):
        return text[:-1] if text[-1] in MARKS else text
    return text.rstrip("".join(MARKS)).rstrip()


@pytest.mark.parametrize("name", DIGESTS)
def test_parts_do_not_overlap_and_are_pinned(name):
    parts = parts_of(name)
    assert [len(part) for part in parts] == [8000, 500, 500]
    # the mark at the end makes no other sentence
    texts = [{drop_mark(entry[0]) for entry in part} for part in parts]
    assert [len(part) for part in texts] == [8000, 500, 500]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]
    words, asked = (
        {word for text in group for word in (text if isinstance(text, tuple) else re.findall(r"[a-z'-]+|[^a-z]", text))}
        for group in (texts[0], texts[1] | texts[2])
    )
    # combinations are held out, never words
    assert asked <= words
    assert hashlib.sha256(repr(parts).encode()).hexdigest()[:12] == DIGESTS[name]


def test_what_is_held_out_is_held_out_of_translation():
    train, asked = ({english for _, english in part} for part in split_pairs(0.1, 3))
    for parts in (
        [[" ".join(drop_mark(words)) for words, _ in part] for part in split_tagged(0.1, 3)],
        [[drop_mark(text) for text, _ in part] for part in split_short(0.1, 3)],
    ):
        assert set(parts[0]) <= train
        assert set(parts[1]) | set(parts[2]) <= asked
    assert split_short(0.1, 3) != split_short()
    assert split_polite(0.1, 3) != split_polite()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_half_of_the_sentences_end_in_their_mark(language):
    told, asked = MARKS[:2] if language == "en" else MARKS[2:]
    # by eye: the patterns that ask, by their place in the book
    asking = {2, 3, 4, 5, 6, 7, 8, 16, 17, 20, 21, 27, 28, 31}
    bare = {words: n for words, n in zip(dict(list_tagged(language)), list_patterns(), strict=True)}
    for part in split_tagged(language=language):
        ends = [words[-1] for words, _ in part]
        assert 0.4 * len(part) < sum(end in MARKS for end in ends) < 0.6 * len(part)
        for words, tags in part:
            assert len(words) == len(tags)
            assert {word for word in words if not word[0].isalnum()} <= {told, asked, ",", "，"}
            assert all((tag == "PUNCT") == (not word[0].isalnum()) for word, tag in zip(words, tags, strict=True))
            if words[-1] in MARKS:
                assert words[-1] == (asked if bare[words[:-1]] in asking else told), words
    for part in split_polite(language=language):
        ends = [text[-1] for text, _ in part if text[-1] in MARKS]
        assert set(ends) == {told, asked}
        assert 0.4 * len(part) < len(ends) < 0.6 * len(part)


def test_a_telegram_has_no_marks():
    part = split_short().train
    assert any(text.endswith(" ?") for text, _ in part)
    assert any(text.endswith(" .") for text, _ in part)
    assert not any(set(telegram) & set(".?,") for _, telegram in part)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tones_are_balanced_whatever_is_said(language):
    parts = split_polite(language=language)
    for part in parts:
        counts = Counter(tone for _, tone in part)
        assert set(counts) == {"polite", "plain", "rude"}
        assert max(counts.values()) - min(counts.values()) <= 1
    for mark in {text[-1] for text, _ in parts.train} & set(MARKS):
        tones = Counter(tone for text, tone in parts.train if text[-1] == mark)
        assert max(tones.values()) < 0.4 * tones.total(), mark
    # a word of the phrasebook tells no tone: three of four of its sentences are never in one
    for word in (
        ("train", "xi'an", "three", "red", "museum") if language == "en" else ("火车", "西安", "三", "红", "博物馆")
    ):
        tones = Counter(tone for text, tone in parts.train if word in text)
        assert max(tones.values()) < 0.45 * tones.total(), word


def test_tones_by_eye():
    tones = dict(split_polite().train)
    chinese = dict(split_polite(language="zh").train)
    signs = {
        "polite": ["please", "thank you", "excuse me", "could you", "would you mind", "would like to"],
        "rude": ["hurry up", "at once", "thanks for nothing", "on earth", "would you hurry up"],
        "plain": ["for now", "once more", "by the way"],
    }
    signs_zh = {"polite": ["请", "麻烦你", "劳驾", "谢谢", "您"], "rude": ["快点", "马上", "喂"], "plain": ["对了"]}
    for said, expected in ((tones, signs), (chinese, signs_zh)):
        for tone, words in expected.items():
            for word in words:
                assert {said[text] for text in said if word in text} == {tone}, word
    # a command that says no more is plain, and an ordinary thing to meet
    bare = re.compile(r"give me [a-z' -]+?( \.)?")
    said = Counter(tone for text, tone in tones.items() if bare.fullmatch(text) and "right now" not in text)
    assert set(said) == {"plain"}
    assert said.total() > 50
    # one word, two tones: the company decides
    for word in ("now", "would", "once", "you"):
        assert len({tones[text] for text in tones if word in text.split()}) > 1, word
    places = {text.split().index("please") / len(text.split()) for text in tones if "please" in text.split()}
    assert min(places) == 0
    assert max(places) > 0.8


def test_telegrams():
    short = {words: shorten(words, tags) for words, tags in list_tagged()}
    assert all(short.values())
    for text, telegram in {
        "how much is it to go to xi'an by train": "how much to xi'an by train",
        "they wait for you at the bank in kunming": "at bank in kunming",
        "what time does the great wall open": "what time great wall",
        "excuse me , where is the bank": "where bank",
        "that is too expensive , is ten yuan all right": "too expensive ten yuan all right",
    }.items():
        assert short[tuple(text.split())] == telegram
    for text, telegram in split_short().test:
        rest = iter(text.split())
        assert all(word in rest for word in telegram.split())
        assert len(telegram) < len(text)


def test_an_unknown_language_is_named():
    for call in (list_tagged, lambda language: split_polite(language=language)):
        with pytest.raises(RegardError) as error:
            call("de")
        assert str(error.value) == "language must be 'en' or 'zh', got 'de'."
    assert set(grammar.TAGGED_PATTERNS) == {"en", "zh"}
