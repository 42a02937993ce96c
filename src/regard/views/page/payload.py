"""The data of a page: statistics of every head, details of the most informative, within a size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.page.blobs import Array, Blobs
from regard.views.page.exact import Keys, measure_error, pack_query
from regard.views.page.heads import Head, measure, shrink, split
from regard.views.page.note import Note, tell_check, tell_count
from regard.views.page.sides import Sides, Texts

# all heads have details where they take no more than this together
SMALL = 3_000_000
# beyond this total variation keys in bytes are no picture of a row
WORST = 0.03
# the fewest of a query's largest weights that a head without exact rows brings
FEWEST = 3
# about how many characters a pair of key and weight takes, and a row's or key's statistics
PAIR, ROW, KEY = 5.5, 8.0, 2.6


@dataclass
class Payload:
    """The entries of a page, and the arrays that they name."""

    blobs: Blobs = field(default_factory=Blobs)
    entries: list[dict[str, Any]] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    note: dict[str, str] = field(default_factory=dict)
    told: Note = field(default_factory=Note)

    def read(
        self, seen: Mapping[str, Look], texts: Texts, model: int, first: int, sequence: int, sides: Sides | None
    ) -> None:
        """Add an entry for each head of each attention; `first` is the number of the model's first side."""
        kinds, checks = getattr(seen, "kinds", None) or {}, getattr(seen, "checks", None) or {}
        for layer, (name, look) in enumerate(seen.items()):
            n, m = look.entropy.shape[-1], look.received.shape[-1]
            if not n or not m:
                raise RegardError(
                    f"page seen[{name[:60]!r}] has no queries or no keys ({n} by {m}): there is nothing to show."
                )
            count = math.prod(look.entropy.shape[:-2] if look.entropy.ndim > 2 else look.entropy.shape[:-1])
            if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < count:
                raise RegardError(f"page sequence must be 0 to {count - 1} for {name[:60]!r}, got {sequence!r}.")
            told = str(kinds.get(name) or "")
            for number, part in enumerate(split(look, sequence)):
                query, key = texts.place(name, n, m, told, sides)
                kind = told or ("self" if texts.are_one(query, key) else "cross")
                head = measure(part, kind == "self")
                self.heads.append(head)
                self.entries.append(
                    {
                        "id": len(self.entries), "model": model, "name": name, "layer": layer, "head": number,
                        "queries": first + query, "keys": first + key, "n": head.n, "m": head.m,
                        "kind": kind, "stats": head.means,
                        "exact": False, "why": part.why, "terms": part.terms, "check": tell_check(checks.get(name)),
                        "width": list(part.block), "shape": list(part.map.shape), "blobs": {},
                    }
                )  # fmt: skip

    def fill(self, heads: int, budget: float) -> None:
        """Add thumbnails of all heads, and of the most informative as much as fits into so many characters."""
        self._add_thumbs()
        ids = self._choose(heads, min(SMALL, budget / 2))
        for k in ids:
            look, blobs = self.heads[k].look, self.entries[k]["blobs"]
            for name in ("map", "entropy", "peak", "first", "received"):
                blobs[name] = self.blobs.add_numbers(getattr(look, name).numpy())
        told = self.told
        if len(ids) == len(self.entries):
            told.say("all", heads=len(ids))
        else:
            told.say("some", count=len(ids), heads=len(self.entries))
        self._add_exact(ids, budget, told)
        rest = [k for k in ids if not self.entries[k]["exact"]]
        if rest:
            told.say("lists", weights=self._add_lists(rest, budget - self.blobs.size), heads=len(rest))
        # a page that leaves nothing out has nothing to tell
        if len(ids) < len(self.entries) or not all(map(self._is_full, ids)):
            self.note = told.join()

    def _add_thumbs(self) -> None:
        images, scales = [], []
        for head in self.heads:
            # the root, so that small weights are not all one shade; the page squares it again
            image = np.sqrt(np.nan_to_num(shrink(head.look.map, head.n, head.look.block[0]), posinf=0.0))
            scale = float(image.max()) / 255 if image.size and image.max() > 0 else 1 / 255
            images.append(np.rint(image / scale).astype(np.uint8))
            scales.append(scale)
        for entry, blob in zip(self.entries, self.blobs.add_together(images, scales, 2), strict=True):
            entry["blobs"]["thumb"] = blob

    def _choose(self, heads: int, small: float) -> list[int]:
        """All heads where they are small; else the most informative, of each kind one, and their twins in the other."""
        ranked = sorted(range(len(self.heads)), key=lambda k: -self.heads[k].interest)
        if sum(map(self._weigh, ranked)) <= small:
            return ranked
        own = [k for k in ranked if self.entries[k]["model"] == 0]
        kinds = {self.entries[k]["kind"]: k for k in reversed(own)}
        chosen = sorted(kinds.values(), key=own.index)[:heads]
        chosen += [k for k in own if k not in chosen][: heads - len(chosen)]
        chosen.sort(key=own.index)
        places = {(e["layer"], e["head"], e["kind"]): e["id"] for e in self.entries if e["model"] == 1}
        twins = [places.get(tuple(self.entries[k][name] for name in ("layer", "head", "kind"))) for k in chosen]
        pairs = zip(chosen, twins, strict=True)
        return [k for pair in pairs for k in pair if k is not None]

    def _add_exact(self, ids: list[int], budget: float, told: Note) -> None:
        """Query and key of as many heads as fit, in half precision, or with keys in bytes where that brings in more."""
        for k in ids:
            if self._is_full(k):
                # the map has a cell for each pair: every weight is there
                self.entries[k] |= {"exact": True, "why": ""}
                if (spans := self.heads[k].look.spans) is not None:
                    self.entries[k]["blobs"]["spans"] = self.blobs.add(spans.numpy().astype(np.int32))
        full = sum(self.entries[k]["exact"] for k in ids)
        able = [k for k in ids if self.heads[k].look.query is not None and not self.entries[k]["exact"]]
        if full:
            told.say("full", heads=full)
        if not able:
            if not full:
                told.say("nothing")
            return
        others = len(ids) - full - len(able)
        left = budget - self.blobs.size - sum(self._weigh_lists(k, FEWEST) for k in ids) * (others / len(ids))
        fits = {small: self._fit(able, left, small) for small in (False, True)}
        packed = self._pack(able[: fits[True]], True) if fits[True] > fits[False] else {}
        small = bool(packed) and all(error <= WORST for *_, error in packed.values())
        packed = packed if small else self._pack(able[: fits[False]], False)
        for k in able:
            if k not in packed:
                self.entries[k]["why"] = f"the page has room for query and key of {tell_count(len(packed), 'head')}"
                continue
            query, logsumexp, keys, error = packed[k]
            spans = self.heads[k].look.spans
            assert spans is not None
            self.entries[k]["blobs"] |= {
                "query": self.blobs.add(query),
                "key": self.blobs.add(keys.numbers, keys.scale if small else None),
                "stat": self.blobs.add(logsumexp),
                "spans": self.blobs.add(spans.numpy().astype(np.int32)),
            }
            self.entries[k] |= {"exact": True, "why": "", "error": error}
        if not packed:
            told.say("tight")
            return
        worst = max(error for *_, error in packed.values())
        told.say("bytes" if small else "halves", heads=len(packed), worst=f"{worst:.1g}")

    def _pack(self, ids: list[int], small: bool) -> dict[int, tuple[Array, Array, Keys, float]]:
        """Query, statistic, keys and what they are off by; heads of one group share their keys."""
        packed, known = {}, dict[int, Keys]()
        for k in ids:
            look = self.heads[k].look
            assert look.key is not None
            mark = look.key.data_ptr()
            if mark not in known:
                known[mark] = Keys.pack(look.key, small)
            query, logsumexp = pack_query(look, known[mark])
            packed[k] = (query, logsumexp, known[mark], measure_error(look, known[mark], query, logsumexp))
        return packed

    def _add_lists(self, ids: list[int], left: float) -> int:
        """The largest weights of each query, as many as fit."""
        most = max(self.heads[k].look.top_keys.shape[-1] for k in ids)
        top = int(left / (PAIR * sum(self.heads[k].n for k in ids) or 1))
        top = max(min(most, top), min(most, FEWEST))
        for k in ids:
            look, blobs = self.heads[k].look, self.entries[k]["blobs"]
            blobs["top_keys"] = self.blobs.add(look.top_keys[:, :top].numpy().astype(np.int32))
            blobs["top_weights"] = self.blobs.add_numbers(look.top_weights[:, :top].numpy())
        return top

    def _fit(self, able: list[int], left: float, small: bool) -> int:
        """How many heads, the first of these, bring query and key when the others bring lists."""
        lists, known = sum(self._weigh_lists(k, FEWEST) for k in able), set[int]()
        for count, k in enumerate(able):
            left -= self._weigh_exact(k, small, known)
            lists -= self._weigh_lists(k, FEWEST)
            if left < lists:
                return count
        return len(able)

    def _is_full(self, k: int) -> bool:
        return self.heads[k].look.block == (1, 1)

    def _weigh(self, k: int) -> float:
        """About how many characters a head's details take in full."""
        head = self.heads[k]
        rest = ROW * head.n + KEY * head.m + 8 / 3 * head.look.map.numel()
        if self._is_full(k):
            return rest
        if head.look.query is None:
            return rest + self._weigh_lists(k, head.look.top_keys.shape[-1])
        return rest + self._weigh_exact(k, False, set())

    def _weigh_lists(self, k: int, top: int) -> float:
        return PAIR * self.heads[k].n * min(top, self.heads[k].look.top_keys.shape[-1])

    def _weigh_exact(self, k: int, small: bool, known: set[int]) -> float:
        """Query, key and statistic; keys that heads share count once."""
        look = self.heads[k].look
        assert look.query is not None
        assert look.key is not None
        fresh = look.key.data_ptr() not in known
        known.add(look.key.data_ptr())
        keys = fresh * look.key.numel() * (1.25 if small else 2.5)
        return 2.5 * look.query.numel() + keys + 8 * self.heads[k].n
