"""Labels that the phrasebook's grammar gives: parts of speech, tones (polite, plain, rude), and compressed sentences.

The tags are those of [Universal Dependencies](https://universaldependencies.org/u/pos/).
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain

from regard.core import RegardError
from regard.data.phrasebook import PATTERNS, list_choices, list_pairs, split_pairs
from regard.data.split import Split
from regard.data.tones import Language, set_tones, strip_tones

Sentence = tuple[tuple[str, ...], tuple[str, ...]]

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM",
    "VERB", "X",
)  # fmt: skip
# how many sentences a split has: to learn from, to choose by, to be asked
SIZES = (8000, 500, 500)

# what fills a gap, but for the words below
GAP_TAGS = {
    "city": "PROPN", "sight": "PROPN", "place": "NOUN", "dish": "NOUN", "drink": "NOUN", "thing": "NOUN",
    "number": "NUM", "hour": "NUM", "day": "NOUN", "part": "NOUN", "ride": "NOUN", "price": "NUM", "colour": "ADJ",
    "who": "PRON",
}  # fmt: skip
# sights with no name of their own
NOT_NAMES = ("the old city wall", "the panda base", "古城墙", "熊猫基地")
WORD_TAGS = {
    "the": "DET", "of": "ADP", "with": "ADP", "on": "ADP", "in": "ADP", "after": "ADP", "old": "ADJ", "roast": "ADJ",
    "hot": "ADJ", "steamed": "ADJ", "cold": "ADJ", "fried": "ADJ", "high-speed": "ADJ", "kung": "PROPN", "pao": "PROPN",
    "monday": "PROPN", "tuesday": "PROPN", "wednesday": "PROPN", "thursday": "PROPN", "friday": "PROPN",
    "saturday": "PROPN", "sunday": "PROPN",
}  # fmt: skip

# the patterns of the phrasebook in their order, word by word
TAGGED_PATTERNS: dict[Language, tuple[str, ...]] = {
    "en": (
        "introduce/VERB {city}",
        "please/INTJ introduce/VERB {sight}",
        "have/AUX you/PRON been/AUX to/ADP {city}",
        "do/AUX you/PRON like/VERB the/DET {dish} of/ADP {city}",
        "how/ADV is/AUX the/DET weather/NOUN in/ADP {city}",
        "is/AUX {city} far/ADJ from/ADP {city2}",
        "is/VERB there/PRON a/DET {ride} from/ADP {city} to/ADP {city2}",
        "how/ADV long/ADV does/AUX it/PRON take/VERB from/ADP {city} to/ADP {city2}",
        "how/ADV much/ADJ is/AUX it/PRON to/PART go/VERB to/ADP {city} by/ADP {ride}",
        "{who} go/VERB from/ADP {city} to/ADP {city2} by/ADP {ride}",
        "{who} want/VERB to/PART go/VERB to/ADP {sight}",
        "{who} want/VERB to/PART go/VERB to/ADP {city} {day}",
        "{who} go/VERB to/ADP {sight} {day} {part}",
        "{who} want/VERB to/PART go/VERB to/ADP {city} by/ADP {ride}",
        "please/INTJ give/VERB me/PRON one/NUM ticket/NOUN to/ADP {city}",
        "please/INTJ give/VERB me/PRON {number} tickets/NOUN to/ADP {city} {day}",
        "excuse/VERB me/PRON ,/PUNCT where/ADV is/AUX {place}",
        "how/ADV do/AUX i/PRON get/VERB to/ADP {place}",
        "{place} is/AUX next/ADV to/ADP {place2}",
        "{place} is/AUX across/ADP from/ADP {place2}",
        "how/ADV do/AUX i/PRON get/VERB from/ADP {place} to/ADP {sight}",
        "what/DET time/NOUN does/AUX {sight} open/VERB",
        "{place} closes/VERB at/ADP {hour} {part}",
        "the/DET {ride} to/ADP {city} leaves/VERB at/ADP {hour} {part}",
        "{who} want/VERB to/PART eat/VERB {dish}",
        "{who} want/VERB to/PART eat/VERB {dish} and/CCONJ drink/VERB {drink}",
        "please/INTJ give/VERB me/PRON {number} cups/NOUN of/ADP {drink}",
        "how/ADV much/ADJ for/ADP the/DET {dish}",
        "how/ADV much/ADJ is/AUX this/DET {colour} {thing}",
        "that/DET {colour} {thing} is/AUX {price} yuan/NOUN",
        "{who} want/VERB to/PART buy/VERB {number} {colour} {thing+}",
        "that/PRON is/AUX too/ADV expensive/ADJ ,/PUNCT is/AUX {price} yuan/NOUN all/ADV right/ADJ",
        "{who} will/AUX stay/VERB for/ADP {number} days/NOUN",
        "{who} want/VERB to/PART book/VERB a/DET room/NOUN {day}",
        "{who} wait/VERB for/ADP you/PRON at/ADP {place} in/ADP {city}",
        "{who} arrive/VERB in/ADP {city} {day} at/ADP {hour} {part}",
        "the/DET ticket/NOUN for/ADP {sight} is/AUX {price} yuan/NOUN",
        "{who} lost/VERB the/DET {thing}",
    ),
    "zh": (
        "介绍/VERB 一下/ADV {city}",
        "请/VERB 介绍/VERB 一下/ADV {sight}",
        "你/PRON 去/VERB 过/AUX {city} 吗/PART",
        "你/PRON 喜欢/VERB {city} 的/PART {dish} 吗/PART",
        "{city} 的/PART 天气/NOUN 怎么样/PRON",
        "{city} 离/ADP {city2} 远/ADJ 吗/PART",
        "从/ADP {city} 到/ADP {city2} 有/VERB {ride} 吗/PART",
        "从/ADP {city} 到/ADP {city2} 要/VERB 多/ADV 长/ADJ 时间/NOUN",
        "坐/VERB {ride} 去/VERB {city} 要/VERB 多少/DET 钱/NOUN",
        "{who} 坐/VERB {ride} 从/ADP {city} 去/VERB {city2}",
        "{who} 想/AUX 去/VERB {sight}",
        "{who} 想/AUX {day} 去/VERB {city}",
        "{who} {day} {part} 去/VERB {sight}",
        "{who} 想/AUX 坐/VERB {ride} 去/VERB {city}",
        "请/VERB 给/VERB 我/PRON 一/NUM 张/NOUN 去/VERB {city} 的/PART 票/NOUN",
        "请/VERB 给/VERB 我/PRON {number} 张/NOUN {day} 去/VERB {city} 的/PART 票/NOUN",
        "请问/VERB {place} 在/VERB 哪里/PRON",
        "去/VERB {place} 怎么/ADV 走/VERB",
        "{place} 在/VERB {place2} 旁边/NOUN",
        "{place} 在/VERB {place2} 对面/NOUN",
        "从/ADP {place} 到/ADP {sight} 怎么/ADV 走/VERB",
        "{sight} 几/NUM 点/NOUN 开门/VERB",
        "{place} {part} {hour} 点/NOUN 关门/VERB",
        "去/VERB {city} 的/PART {ride} {part} {hour} 点/NOUN 出发/VERB",
        "{who} 想/AUX 吃/VERB {dish}",
        "{who} 想/AUX 吃/VERB {dish} 喝/VERB {drink}",
        "请/VERB 给/VERB 我/PRON {number} 杯/NOUN {drink}",
        "{dish} 多少/DET 钱/NOUN",
        "这/DET 个/NOUN {colour} 的/PART {thing} 多少/DET 钱/NOUN",
        "那/DET 个/NOUN {colour} 的/PART {thing} {price} 块/NOUN 钱/NOUN",
        "{who} 要/AUX 买/VERB {number} 个/NOUN {colour} 的/PART {thing}",
        "太/ADV 贵/ADJ 了/PART ，/PUNCT {price} 块/NOUN 可以/AUX 吗/PART",
        "{who} 要/AUX 住/VERB {number} 天/NOUN",
        "{who} 要/AUX 订/VERB {day} 的/PART 房间/NOUN",
        "{who} 在/ADP {city} 的/PART {place} 等/VERB 你/PRON",
        "{who} {day} {part} {hour} 点/NOUN 到/VERB {city}",
        "{sight} 的/PART 门票/NOUN 是/AUX {price} 块/NOUN",
        "{who} 的/PART {thing} 丢/VERB 了/PART",
    ),
}

_ASKED = {
    "en": re.compile("^(?:.* , )?(?:have|do|how|is|where|what) "),
    "zh": re.compile("吗|怎么|多少|几点|哪里|多长"),
}
# told, asked
_MARKS = {"en": ".?", "zh": "\u3002\uff1f"}
_SPACES = {"en": " ", "zh": ""}

_KEPT = {"NOUN", "PROPN", "NUM", "ADJ", "ADP", "ADV"}


def list_tagged(language: Language = "en") -> tuple[Sentence, ...]:
    """All sentences of the phrasebook, in its order, with part-of-speech tags: (words, tags).

    >>> list_tagged()[0], list_tagged("zh")[0]
    ((('introduce', "xi'an"), ('VERB', 'PROPN')), (('介绍', '一下', '西安'), ('VERB', 'ADV', 'PROPN')))
    """
    return tuple(_find_tagged(language).values())


def split_tagged(held_out: float = 0.05, seed: int = 0, *, language: Language = "en") -> Split:
    """Sentences with part-of-speech tags, (words, tags), split; half of them end in a question mark or a full stop.

    >>> [len(part) for part in split_tagged()]
    [8000, 500, 500]

    What is held out is what `phrasebook.split_pairs` holds out with the same numbers: combinations, never words.
    """
    tagged, space = _find_tagged(language), _SPACES[language]

    def end(words: tuple[str, ...], tags: tuple[str, ...]) -> Sentence:
        mark = _choose_mark(space.join(words), language)
        return ((*words, mark), (*tags, "PUNCT")) if mark else (words, tags)

    return Split(*([end(*tagged[chinese]) for chinese, _ in part] for part in _split(held_out, seed)))


def split_polite(held_out: float = 0.05, seed: int = 0, *, language: Language = "en") -> Split:
    """Sentences labelled by tone, (text, "polite" | "plain" | "rude"), split; as many in each tone.

    >>> split_polite().test[1]
    ('come on , is there a bus from chongqing to dunhuang ?', 'rude')

    What is asked is the same in all tones; only what is said around it decides. The mark at the end is that of
    what is asked. Held out as in `split_tagged`.
    """
    side, space, chance = ("zh", "en").index(_check(language)), _SPACES[language], random.Random(seed)

    def say(texts: list[str]) -> list[tuple[str, str]]:
        texts = strip_tones(texts, language, chance)
        marks = (_choose_mark(text, language) for text in texts)
        said = set_tones(texts, language, chance)
        return [
            (f"{text}{space}{mark}" if mark else text, tone) for (text, tone), mark in zip(said, marks, strict=True)
        ]

    return Split(*(say([pair[side] for pair in part]) for part in _split(held_out, seed)))


def split_short(held_out: float = 0.05, seed: int = 0) -> Split:
    """English sentences and their compressions (see `shorten`), split; held out as in `split_tagged`.

    >>> split_short().test[1]
    ('is there a bus from chongqing to dunhuang ?', 'bus from chongqing to dunhuang')
    """
    return Split(
        *([(" ".join(words), shorten(words, tags)) for words, tags in p] for p in split_tagged(held_out, seed))
    )


def shorten(words: Sequence[str], tags: Sequence[str]) -> str:
    """An English sentence compressed to a telegram: what names a thing, a number, a quality, a place or a question.

    >>> shorten("the cat sat on the mat".split(), "DET NOUN VERB ADP DET NOUN".split())
    'cat on mat'
    """
    following = [*tags[1:], ""]
    kept = [
        word
        for word, tag, after in zip(words, tags, following, strict=True)
        # "for you" goes whole
        if word == "what" or (tag in _KEPT and not (tag == "ADP" and after == "PRON"))
    ]
    return " ".join(kept)


@lru_cache
def _find_tagged(language: Language) -> dict[str, Sentence]:
    """The words and tags of each sentence, by the Chinese one, which names it."""
    found = []
    for pattern, line in zip(PATTERNS, TAGGED_PATTERNS[_check(language)], strict=True):
        pieces = line.split()
        for choice in list_choices(pattern):
            words = {f"{{{gap}}}": forms[language == "en"] for gap, forms in choice.items()}
            words |= {f"{{{gap}+}}": forms[2] for gap, forms in choice.items()}
            tagged = [_tag(piece, words.get(piece, "")) for piece in pieces]
            found.append((tuple(chain(*(word for word, _ in tagged))), tuple(chain(*(tag for _, tag in tagged)))))
    return dict(zip((chinese for chinese, _ in list_pairs()), found, strict=True))


@cache
def _tag(piece: str, phrase: str) -> Sentence:
    """The words of a piece of a pattern, a word with its tag or a gap that the phrase fills, and their tags."""
    if not phrase:
        word, tag = piece.rsplit("/", 1)
        return (word,), (tag,)
    words, other = phrase.split(), "NOUN" if phrase in NOT_NAMES else GAP_TAGS[piece.strip("{2+}")]
    return tuple(words), tuple(WORD_TAGS.get(word, other) for word in words)


def _choose_mark(text: str, language: Language) -> str:
    """The punctuation at the end of a sentence: for half of them, by a hash of the text, none."""
    if hashlib.sha256(text.encode()).digest()[0] % 2:
        return ""
    return _MARKS[language][bool(_ASKED[language].search(text))]


@lru_cache(maxsize=4)
def _split(held_out: float, seed: int) -> Split:
    """The pairs of the phrasebook, split, in sizes that are quick to train on."""
    train, asked = split_pairs(held_out, seed)
    few, valid, test = SIZES
    # patterns take turns until the rare ones are used up: each part has its share of these
    return Split(train[:few], asked[1 : 2 * valid : 2], asked[: 2 * test : 2])


def _check(language: Language) -> Language:
    if language not in TAGGED_PATTERNS:
        raise RegardError(f"language must be 'en' or 'zh', got {language!r}.")
    return language
