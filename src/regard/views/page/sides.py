"""Which texts the queries and keys of an attention belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from regard.core import RegardError
from regard.views.page.tokens import Labels

Sides = Mapping[str, tuple[str, str]]

# of a longer name or text only the beginning tells two things apart
SHORT = 28


class Texts:
    """The texts of a page, whose tokens attend or are attended to: its sides.

    >>> texts = Texts({"source": ["a", "b", "c"], "target": ["x", "y"]})
    >>> texts.place("decoder.cross", 2, 3), texts.place("encoder", 3, 3)
    ((1, 0), (0, 0))
    """

    def __init__(self, tokens: Labels | Sequence[str] | Mapping[str, Labels | Sequence[str]], suffix: str = "") -> None:
        given = tokens if isinstance(tokens, Mapping) else {"text": tokens}
        if not given:
            raise RegardError("page tokens must be a list of labels, or a mapping of names to lists; got none.")
        self.names = [str(name) for name in given]
        self.suffix = suffix
        self.labels = [Labels.read(name, labels) for name, labels in given.items()]

    def place(self, name: str, n: int, m: int, kind: str = "", sides: Sides | None = None) -> tuple[int, int]:
        """The texts of an attention's queries and keys: as told, or by their lengths, its kind and its name."""
        for pattern, pair in _check(sides).items():
            if fnmatchcase(name, pattern):
                return self._find(name, pattern, pair, n, m)
        sizes = [len(labels) for labels in self.labels]
        pairs = [(q, k) for k, length in enumerate(sizes) if length == m for q in range(len(sizes)) if sizes[q] == n]
        if not pairs and kind != "cross" and n < m and m in sizes:
            # a step with a cache: the last queries of the keys' own text
            key = sizes.index(m)
            return self._tail(key, n), key
        if not pairs:
            counts = ", ".join(f"{side[:12]} {size}" for side, size in zip(self.names[:3], sizes, strict=False))
            raise RegardError(
                f"page tokens do not fit {name[:40]!r}: it has {n} queries and {m} keys, the labels are {counts}."
                " Give one label a token."
            )
        pairs = _keep(pairs, lambda q, k: (q != k) == (kind == "cross")) if kind else pairs
        parts = name.lower().replace("#", ".").split(".")
        if len(pairs) > 1 and {"source", "target"} <= set(self.names):
            source, target = self.names.index("source"), self.names.index("target")
            if "decoder" in parts:
                pairs = _keep(pairs, lambda q, k: q == target)
            elif "encoder" in parts:
                pairs = _keep(pairs, lambda q, k: q == k == source)
            if any("cross" in part or "encoder_attn" in part or "encdec" in part for part in parts):
                pairs = _keep(pairs, lambda q, k: (q, k) == (target, source))
            elif "decoder" in parts and not kind:
                pairs = _keep(pairs, lambda q, k: q == k)
        if len(pairs) > 1:
            raise RegardError(
                f"page cannot tell whose tokens {name[:40]!r} has ({n} by {m} fits several): name them,"
                f" sides={{{name[:40]!r}: (query side, key side)}}."
            )
        return pairs[0]

    def are_one(self, query: int, key: int) -> bool:
        """Whether queries and keys are of one text (self-attention)."""
        return query == key or self.names[query].startswith(f"{self.names[key]} (last ")

    def describe(self) -> list[dict[str, Any]]:
        """The texts as the page's data has them."""
        sides = []
        for name, labels in zip(self.names, self.labels, strict=True):
            side: dict[str, Any] = {"name": name + self.suffix, "labels": list(labels.labels), "joined": labels.joined}
            if any(labels.special):
                side["special"] = list(labels.special)
            if any(labels.marks):
                side["marks"] = [k for k, is_mark in enumerate(labels.marks) if is_mark]
            sides.append(side)
        return sides

    def _find(self, name: str, pattern: str, pair: tuple[str, str], n: int, m: int) -> tuple[int, int]:
        known = isinstance(pair, tuple | list) and all(isinstance(side, str) and side in self.names for side in pair)
        if not known or len(pair) != 2:
            raise RegardError(f"page sides[{pattern[:40]!r}] must be two of {self.names}, got {pair!r}."[:200])
        query, key = self.names.index(pair[0]), self.names.index(pair[1])
        sizes = len(self.labels[query]), len(self.labels[key])
        if sizes != (n, m):
            raise RegardError(
                f"page sides[{pattern[:40]!r}] has {sizes[0]} by {sizes[1]} labels, but {name[:60]!r} is {n} by {m}:"
                " name other sides."
            )
        return query, key

    def _tail(self, key: int, n: int) -> int:
        name = f"{self.names[key]} (last {n})"
        if name not in self.names:
            self.names.append(name)
            self.labels.append(self.labels[key].tail(n))
        return self.names.index(name)


def _check(sides: Any) -> Sides:
    wrong = "" if sides is None or isinstance(sides, Mapping) else type(sides).__name__
    for name in sides if isinstance(sides, Mapping) else ():
        wrong = wrong if isinstance(name, str) else f"a name of {type(name).__name__}"
    if wrong:
        raise RegardError(f"page sides must be a mapping of names to (query side, key side), got {wrong}.")
    return sides or {}


def _keep(pairs: list[tuple[int, int]], rule: Any) -> list[tuple[int, int]]:
    """Those that follow the rule, or all where none does."""
    return [pair for pair in pairs if rule(*pair)] or pairs


def check_names(names: Any) -> list[str] | None:
    """Check the names of two things that are compared."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or [type(name) for name in names] != [str, str]:
        raise RegardError(f"page names must be two texts, one for each that is compared, got {str(names)[:60]}.")
    return list(names)


def name_models(models: list[str], texts: list[Texts], names: list[str] | None) -> list[str]:
    """The names of two models that are compared: as told, by their classes, or by their texts where the class is one.

    >>> one, other = Texts(["to", " be"]), Texts(["or", " not"])
    >>> name_models(["Bert", "Bert"], [one, other], None)
    ['A: to be', 'B: or not']
    """
    if names is None:
        said = ["".join(text.labels[0].labels) for text in texts]
        names = said if len(set(models)) == 1 and len(set(said)) == 2 else models
    short = [name if len(name) <= SHORT else f"{name[: SHORT - 1]}…" for name in names]
    return [f"{letter}: {name}" if name else letter for letter, name in zip("AB", short, strict=True)]
