"""Scripts without spaces between words: Chinese, Japanese, Thai."""

from __future__ import annotations

import re
from collections.abc import Sequence

# scripts without spaces between words: Chinese, and those that "zh" would leave in one piece, kana and Thai
HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
OTHERS = re.compile("[\u3040-\u30ff\u0e00-\u0e7f]")


def is_unspaced(texts: Sequence[str]) -> bool:
    """Whether texts are in a script without spaces between words, by the first thousand.

    >>> is_unspaced(["我爱你。"]), is_unspaced(["I love you."])
    (True, False)
    """
    sample = "".join(texts[:1000])
    return len(HAN.findall(sample)) + len(OTHERS.findall(sample)) > 0.3 * len(sample)
