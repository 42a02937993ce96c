"""What the operators are asked for, as torch takes it: a text, and the numbers that it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from regard.engine.backends.fused.recipe import Recipe, parse
from regard.engine.backends.fused.work import Seeds

_NO_REACH = (0,) * 6
# numbers of a text that it leaves open: symbols are others each time
Symbols = Sequence[int] | None


class Asked(NamedTuple):
    """What the two operators are asked for."""

    text: str
    symbols: Symbols
    seeds: Seeds | None


def write(recipe: str, reach: Sequence[int], numbers: Sequence[float], words: str, seeds: Seeds | None) -> Asked:
    """A recipe as a text, with words.

    "keeps" wants what gradients need, "dweight" and "dbias" want these gradients, and "sink" says that there is one.
    "named" is for our own kernels alone, and "one" for a statistic of rows as cuDNN keeps it.
    """
    is_known = all(type(x) is int for x in reach)
    known = ",".join(map(str, reach)) if is_known else ""
    text = "|".join([recipe, known, ",".join(map(repr, numbers)), words])
    return Asked(text, None if is_known else list(reach), seeds)


@lru_cache(1024)
def read_text(text: str, symbols: tuple[int, ...] | None = None) -> tuple[Recipe, frozenset[str]]:
    """
    >>> asked = write("dot;softmax;;after;", [0, 3, 0, 0, 0, 0], [0.5, 0.0, 1.0, 0.0], "keeps", None)
    >>> recipe, words = read_text(asked.text)
    >>> recipe.after, recipe.scale, *words
    (3, 0.5, 'keeps')
    """
    recipe, known, numbers, words = text.split("|")
    reach = tuple(map(int, known.split(","))) if known else symbols or _NO_REACH
    return parse(recipe, reach, tuple(map(float, numbers.split(",")))), frozenset(words.split(","))


def list_names(recipe: Recipe, words: frozenset[str]) -> list[str]:
    """What the tensors are, in their order."""
    terms = (("weight", not recipe.is_dot), ("sink", "sink" in words), ("bias", recipe.bias is not None))
    return ["query", "key", "value", *(name for name, is_there in terms if is_there), *recipe.marks]


def list_made(recipe: Recipe, words: frozenset[str]) -> list[str]:
    """What the operator of gradients makes gradients of."""
    always = ("query", "key", "value", "sink")
    return [name for name in list_names(recipe, words) if name in always or f"d{name}" in words]


def name_words(**words: bool) -> str:
    """
    >>> name_words(keeps=True, one=False, sink=True)
    'keeps,sink'
    """
    return ",".join([word for word, is_said in words.items() if is_said])
