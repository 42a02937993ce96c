"""Polite, plain and rude versions of the phrasebook's sentences."""

from __future__ import annotations

import random
import re
from typing import Literal

Frames = tuple[tuple[str, str], ...]
Language = Literal["en", "zh"]

TONES = ("polite", "plain", "rude")

_ASKS_FOR = "^(?=give |introduce |bring |show |tell )"
_ASKS = "^(?=have |do |how |is |where |what )"
_TELLS = "^(?!give |introduce |bring |show |tell |have |do |how |is |where |what )"
_WISHES = "^(?=give |introduce |bring |show |tell |how |where |what |(?:i|we|they) want )"
_ASKS_FOR_ZH = "^(?=给我|介绍)"
_ASKS_ZH = "^(?=.*(?:吗|怎么|多少|几点|哪里|多长))"
_TELLS_ZH = "^(?!给我|介绍|.*(?:吗|怎么|多少|几点|哪里|多长))"
_WISHES_ZH = "^(?=给我|介绍|.*(?:想|要买|要订|怎么走|多少|几点|哪里))"
_END = ".*$"
# where a sentence allows it, and what is put there (\g<0> is what was there); some words stand in two tones
FRAMES: dict[Language, dict[str, Frames]] = {
    "en": {
        "polite": (
            (_ASKS_FOR, "please "), (_ASKS_FOR, "could you "), (_ASKS_FOR, "would you kindly "),
            ("^give", "would you mind giving"), ("^introduce", "would you mind introducing"),
            ("^give me", "give me , please ,"), ("^(i|we) want to", r"\1 would like to"), (_ASKS, "may i ask , "),
            ("^", "excuse me , "), ("^", "sorry to trouble you , "), ("^", "i beg your pardon , "),
            (_WISHES + _END, r"\g<0> , please"), (_WISHES + _END, r"\g<0> , if you would be so kind"),
            (_END, r"\g<0> , thank you"), (_END, r"\g<0> , thank you very much"),
        ),
        "plain": (
            *[("^", "")] * 4, *[(_ASKS_FOR, "")] * 16,
            ("^", "well , "), ("^", "so , "), ("^", "by the way , "), (_TELLS, "for now , "),
            (_TELLS, "you see , "), (_TELLS + _END, r"\g<0> , i think"), (_TELLS + _END, r"\g<0> , as you said"),
            (_ASKS + _END, r"\g<0> , he asks"), (_END, r"\g<0> , she says once more"),
        ),
        "rude": (
            (_ASKS_FOR, "hurry up and "), (_ASKS_FOR, "would you hurry up and "), ("^give me", "give me right now"),
            ("^(i|we) want", r"\1 said \1 want"), ("^(how|where)(?= is | do )", r"\1 on earth"),
            ("^", "hey you , "), ("^", "hurry up , "), ("^", "come on , "), ("^", "thanks for nothing , "),
            (_WISHES + _END, r"\g<0> , now"), (_WISHES + _END, r"\g<0> , at once"), (_END, r"\g<0> , you fool"),
            (_WISHES + _END, r"\g<0> , and be quick"), (_END, r"\g<0> , what are you waiting for"),
        ),
    },
    "zh": {
        "polite": (
            (_ASKS_FOR_ZH, "请"), (_ASKS_FOR_ZH, "麻烦你"), (_ASKS_FOR_ZH, "能不能请您"), (_ASKS_ZH, "请问"),
            ("^你(?=去|喜欢)", "您"), ("^", "劳驾，"), ("^", "不好意思，"), ("^", "打扰一下，"),
            (_END, r"\g<0>，谢谢"), (_END, r"\g<0>，谢谢您"), (_WISHES_ZH + _END, r"\g<0>，麻烦你了"),
        ),
        "plain": (
            *[("^", "")] * 4, *[(_ASKS_FOR_ZH, "")] * 16,
            ("^", "那么，"), ("^", "对了，"), (_TELLS_ZH, "其实，"), (_TELLS_ZH, "你看，"),
            (_TELLS_ZH + _END, r"\g<0>，你知道"), (_ASKS_ZH + _END, r"\g<0>，他问"), (_END, r"\g<0>，她说"),
        ),
        "rude": (
            (_ASKS_FOR_ZH, "马上"), (_ASKS_FOR_ZH, "赶紧"), ("(?=怎么走)", "到底"), ("(?=在哪里)", "到底"),
            ("^", "快点，"), ("^", "喂，"), ("^", "你听着，"), (_WISHES_ZH + _END, r"\g<0>，快点"),
            (_WISHES_ZH + _END, r"\g<0>，马上"), (_WISHES_ZH + _END, r"\g<0>，别磨蹭"), (_END, r"\g<0>，少废话"),
            (_END, r"\g<0>，还等什么"),
        ),
    },
}  # fmt: skip
# what the phrasebook itself says politely
COURTESY = {"en": re.compile("^(please |excuse me , )"), "zh": re.compile("^请问?")}
# what may as well be a command; of three who want a thing only one, that no two sentences become the same
COMMANDS: dict[Language, Frames] = {
    "en": (
        ("^how much for", "give me"), ("^how much is this", "show me this"), ("^i want to buy", "give me"),
        ("^i want to eat (.*) and drink", r"bring me \1 and"), ("^i want to eat(?!.* and )", "bring me"),
        ("^how do i get", "tell me how to get"), ("^where is (.*)", r"tell me where \1 is"),
    ),
    "zh": (("^我要买", "给我"),),
}  # fmt: skip


def strip_tones(texts: list[str], language: Language, chance: random.Random) -> list[str]:
    """Each sentence of the phrasebook without polite phrases; half of those that can be are a command.

    >>> strip_tones(["please give me five cups of tea", "excuse me , where is the bank"], "en", random.Random(1))
    ['give me five cups of tea', 'tell me where the bank is']
    """
    found = []
    for text in texts:
        bare = COURTESY[language].sub("", text)
        for where, put in COMMANDS[language]:
            if re.search(where, bare) and chance.random() < 0.5:
                bare = re.sub(where, put, bare)
                break
        found.append(bare)
    return found


def set_tones(texts: list[str], language: Language, chance: random.Random) -> list[tuple[str, str]]:
    """Each sentence in a tone, (text, tone), the tones in equal numbers.

    >>> set_tones(["give me five cups of tea"], "en", random.Random(3))
    [('would you mind giving me five cups of tea', 'polite')]
    """
    frames = FRAMES[language]
    tones = [TONES[n % len(TONES)] for n in range(len(texts))]
    chance.shuffle(tones)
    found = []
    for text, tone in zip(texts, tones, strict=True):
        able = [frame for frame in frames[tone] if re.search(frame[0], text)]
        where, put = chance.choice(able)
        said = re.sub(where, put, text, count=1)
        if not where.endswith(_END) and chance.random() < 0.25:
            # an end as well
            said = re.sub("^.*$", chance.choice([end for other, end in able if other.endswith(_END)]), said)
        found.append((said, tone))
    return found
