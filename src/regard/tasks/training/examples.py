"""The dataset of a run: where its examples come from, and its training, validation and test split."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from regard.core import RegardError
from regard.data.split import Part, Split, split, split_evenly, take_first
from regard.models.config import check_field
from regard.tasks.training.digest import digest_data

# how examples are parted: evenly, or each by its hash alone, as runs did that do not say how
PARTINGS = ("even", "hash")
# files that one corpus may name
MOST_FILES = 10_000


def is_list(x: Any, kind: type, counts: Container[int]) -> bool:
    return isinstance(x, list | tuple) and len(x) in counts and all(type(entry) is kind for entry in x)


Fits = dict[str, Callable[[Any], bool]]
# what the settings of a corpus may be that someone else wrote
SHARED: Fits = {
    "data": lambda x: is_list(x, str, range(1, MOST_FILES)),
    "valid": lambda x: is_list(x, str, range(MOST_FILES)),
    "held_out": lambda x: x is None or (type(x) in (int, float) and 0 <= x < 0.5),
    "limit": lambda x: x is None or (type(x) is int and x >= 1),
    "seed": lambda x: type(x) is int,
    "parting": lambda x: x in PARTINGS,
}


@dataclass(frozen=True)
class Examples:
    """A dataset in files, and how it is split; a subclass says how examples are read.

    `data` names files, or else the `builtin` examples, which `draw` splits: by hash, by masks, or as they come. Where
    `open` gives something with a length and numbered items that is no list, as torch's datasets are, examples are made
    when they are asked for: they need not lie in memory.
    Without files to validate by, `held_out` is the fraction of the examples that validates, and another such fraction
    is the test; None takes what suits their number, see `split_evenly`. With `valid` given, all of `data` is learned
    from, and there is no test. `limit` is the most examples to learn from.
    """

    data: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    held_out: float | None = None
    limit: int | None = None
    seed: int = 0
    parting: str = "even"

    # what fields may be when they are read again; those that are a `setting` say it themselves
    fits: ClassVar[Fits] = SHARED
    # what examples are called
    called: ClassVar[str] = "examples"
    # the name, in place of a file's, of those that come with the package, where there are some
    builtin: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.data and self.builtin:
            object.__setattr__(self, "data", (self.builtin,))

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Self:
        """The dataset that `dataclasses.asdict` gave, also after JSON, which has no tuples."""
        fixed: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in entries.items()}
        hints, own = get_type_hints(cls), {x.name: x for x in fields(cls) if "help" in x.metadata}
        for name, value in entries.items():
            if name in own and name not in cls.fits:
                check_field(own[name], fixed[name], hints[name], "a corpus'")
            elif name not in cls.fits or not cls.fits[name](value):
                raise RegardError(f"a corpus cannot have {name[:20]}={value!r:.40}.")
        return cls(**{"parting": "hash", **fixed})

    def open(self, paths: tuple[str, ...]) -> Iterable[Any] | Split:
        """Read the examples of files; as a `Split`, where the files say of each which part it is in."""
        raise NotImplementedError

    def draw(self) -> Split:
        """The built-in examples, split."""
        raise RegardError(f"no {self.called} come with regard: name some (--data).")

    def read_key(self, example: Any) -> str:
        """The key that an example is split by: examples of equal keys stay in one part."""
        return digest_data(example)

    def read_label(self, example: Any) -> str:
        """The label that a stratified split keeps in proportion."""
        return ""

    def digest(self, examples: Sequence[Any]) -> str:
        """A hash of the test examples, by which they are known when they are read again."""
        return digest_data(examples)

    def part(self) -> Split:
        """The training, validation and test examples."""
        if self.held_out is not None and not 0 <= self.held_out < 0.5:
            raise RegardError(f"held_out must be a fraction below one half, got {self.held_out}.")
        if self.limit is not None and self.limit < 1:
            raise RegardError(f"limit must be at least 1, got {self.limit}.")
        found = self.open(self.data) if self.data and self.data != (self.builtin,) else self.draw()
        if isinstance(found, Split):
            # what is built in, and files that say of each example which part it is in
            parts = found._replace(valid=self.read(self.valid, "valid")) if self.valid else found
        elif self.valid:
            parts = Split(take_first(found), self.read(self.valid, "valid"), [])
        elif self.parting == "even":
            options: dict[str, Any] = {"seed": self.seed, "key": self.read_key, "label": self.read_label}
            parts = split_evenly(found, held_out=self.held_out, **options)
        else:
            fraction = 0.05 if self.held_out is None else self.held_out
            parts = split(found, test=fraction, valid=fraction, seed=self.seed, key=self.read_key)
        for name, part in (("training", parts.train), ("validation", parts.valid)):
            if not len(part):
                raise self.refuse(parts, name)
        return parts._replace(train=take_first(parts.train, self.limit))

    def read(self, paths: tuple[str, ...], part: Part, limit: int | None = None) -> Sequence[Any]:
        """The examples of files, or the first `limit` of them; of a dataset that is split, those of one part."""
        found = self.draw() if paths == (self.builtin,) else self.open(paths)
        return take_first(getattr(found, part) if isinstance(found, Split) else found, limit)

    def refuse(self, parts: Split, name: str) -> RegardError:
        """The error of a split that leaves a part empty."""
        keys = [self.read_key(example) for part in parts for example in part]
        what = f"{' and '.join(self.data)} leaves no {self.called} for {name}, of {len(keys)}"
        return RegardError(
            f"{what} ({len(set(keys))} different): give more, a larger held_out (--held-out 0.2), or valid"
            " (--valid FILE)."
        )
