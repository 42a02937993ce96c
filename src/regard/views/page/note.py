"""The note of a page on what it shows and leaves out, in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from regard.views.page.heads import RULE

# the same in English and in Chinese
PARTS = {
    "all": ("Details of all {heads}", "全部 {heads} 个头都有细节"),
    "some": (
        f"Details of the {{count}} most interesting ({RULE}) of {{heads}}",
        "{heads} 个头中最值得看的 {count} 个有细节（熵低、很少看首个词元、很少看对角线附近）",
    ),
    "full": ("every weight of {heads}", "其中 {heads} 个头带有每一个权重"),
    "nothing": ("query and key were not kept, so no exact rows", "没有保留查询和键，因此没有精确的行"),
    "tight": ("no room for query and key", "容不下查询和键"),
    "halves": (
        "any row of {heads} from query and key in half precision, at most {worst} off in total variation",
        "{heads} 个头的任意一行可由半精度的查询和键算出，总变差至多 {worst}",
    ),
    "bytes": (
        "any row of {heads} from query in half precision, key in centred bytes, at most {worst} off in total variation",
        "{heads} 个头的任意一行可由半精度的查询和居中后按字节存储的键算出，总变差至多 {worst}",
    ),
    "edges": (
        "{unknown} unknown, outside of the largest of its query: the graph shows 0 there",
        "{unknown} 条边的权重未知（不在其查询最大的权重之中），图中显示为 0",
    ),
    "lists": ("the {weights} of each query for {heads}", "另有 {heads} 个头带有每个查询最大的 {weights} 个权重"),
}
NOUNS = {"heads": "head", "weights": "largest weight", "unknown": "edge weight"}


@dataclass
class Note:
    """A sentence that is put together part by part, in both languages.

    >>> note = Note()
    >>> note.say("all", heads=1)
    >>> note.join()
    {'en': 'Details of all 1 head.', 'zh': '全部 1 个头都有细节。'}
    """

    english: list[str] = field(default_factory=list)
    chinese: list[str] = field(default_factory=list)

    def say(self, part: str, **values: int | str) -> None:
        english, chinese = PARTS[part]
        counted = {name: tell_count(x, NOUNS[name]) if name in NOUNS else x for name, x in values.items()}
        self.english.append(english.format(**counted))
        self.chinese.append(chinese.format(**values))

    def join(self) -> dict[str, str]:
        return {"en": "; ".join(self.english) + ".", "zh": "；".join(self.chinese) + "。"}


def tell_count(number: int | str, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def tell_check(check: Any) -> dict[str, Any]:
    """The result of a self-check, and `holds` where it failed; nothing where there was none."""
    if check is None:
        return {}
    told: dict[str, Any] = {"en": str(check.text()) if hasattr(check, "text") else str(check)}
    if getattr(check, "rows", 0) and check.holds:
        told["zh"] = f"重算了 {check.rows} 行，误差不超过 {check.dtype} 舍入误差的 {check.ratio:.1f} 倍"
    elif getattr(check, "rows", 0):
        told |= {"zh": f"重算了 {check.rows} 行，与显示的不符：这些不是实际使用的权重", "holds": False}
    elif hasattr(check, "rows"):
        told["zh"] = f"未检查：{check.why}" if check.why else "未检查"
    return told
