"""What a page holds: names and numbers of every head, details of some, within a size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.page.blobs import Blobs
from regard.views.page.exact import Keys, measure_error, pack_query
from regard.views.page.heads import RULE, Head, measure, shrink, split
from regard.views.page.sides import Sides, Texts

MIB = 1 << 20
# all heads have details where they take no more than this together
SMALL = 3 * MIB
# beyond this total variation bytes are no picture of a row, and half precision is taken instead
WORST = 0.02


@dataclass
class Payload:
    """Entries of a page, and the arrays they name."""

    blobs: Blobs = field(default_factory=Blobs)
    entries: list[dict[str, Any]] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(
        self, seen: Mapping[str, Look], texts: Texts, model: int, first: int, sequence: int, sides: Sides | None
    ) -> None:
        """An entry for each head of each attention; `first` is the number of the model's first side."""
        kinds, checks = getattr(seen, "kinds", None) or {}, getattr(seen, "checks", None) or {}
        for layer, (name, look) in enumerate(seen.items()):
            count = math.prod(look.entropy.shape[:-2] if look.entropy.ndim > 2 else look.entropy.shape[:-1])
            if not 0 <= sequence < count:
                raise RegardError(f"page sequence must be 0 to {count - 1} for {name[:60]!r}, got {sequence}.")
            for number, part in enumerate(split(look, sequence)):
                head = measure(part)
                query, key = texts.place(name, head.n, head.m, str(kinds.get(name, "")), sides)
                self.heads.append(head)
                self.entries.append(
                    {
                        "id": len(self.entries), "model": model, "name": name, "layer": layer, "head": number,
                        "queries": first + query, "keys": first + key, "n": head.n, "m": head.m,
                        "kind": str(kinds.get(name, "")) or ("self" if query == key or head.n < head.m and "(last" in texts.names[query] else "cross"),
                        "stats": head.means, "exact": False, "why": part.why, "terms": part.terms,
                        "check": _tell(checks.get(name)), "width": list(part.block), "shape": list(part.map.shape),
                        "blobs": {},
                    }
                )  # fmt: skip

    def fill(self, heads: int, budget: int) -> None:
        """Thumbnails of all heads, details of the most interesting."""
        self._add_thumbs()
        ids = self._choose(heads, budget)
        top = self._add_lists(ids, budget)
        exact = self._add_exact(ids, budget)
        all_of = "all" if len(ids) == len(self.entries) else f"the {len(ids)} most interesting ({RULE}) of"
        self.notes.insert(
            0, f"Details of {all_of} {len(self.entries)} heads, the {top} largest weights of each query; {exact}."
        )
        self.notes.append("Thumbnails are coloured by the root of the weight.")

    def _add_thumbs(self) -> None:
        images, scales = [], []
        for head in self.heads:
            image = np.sqrt(np.nan_to_num(shrink(head.look.map, head.n, head.look.block[0]), posinf=0.0))
            scale = float(image.max()) / 255 if image.size and image.max() > 0 else 1 / 255
            images.append(np.rint(image / scale).astype(np.uint8))
            scales.append(scale)
        for entry, blob in zip(self.entries, self.blobs.add_together(images, scales, 2), strict=True):
            entry["blobs"]["thumb"] = blob

    def _choose(self, heads: int, budget: int) -> list[int]:
        """The most interesting, one of each kind among them, and their twins of the other model."""
        ranked = sorted(range(len(self.heads)), key=lambda k: -self.heads[k].interest)
        if sum(_weigh(head, head.look.top_keys.shape[-1]) for head in self.heads) <= min(SMALL, budget / 2):
            return ranked
        own = [k for k in ranked if self.entries[k]["model"] == 0]
        kinds = {self.entries[k]["kind"]: k for k in reversed(own)}
        chosen = sorted({*kinds.values()}, key=own.index)[:heads]
        chosen += [k for k in own if k not in chosen][: heads - len(chosen)]
        places = {(e["layer"], e["head"], e["kind"]): e["id"] for e in self.entries if e["model"] == 1}
        twins = [places.get(tuple(self.entries[k][name] for name in ("layer", "head", "kind"))) for k in chosen]
        return sorted(chosen, key=own.index) + [k for k in twins if k is not None]

    def _add_lists(self, ids: list[int], budget: int) -> int:
        """Maps, rows' statistics and the longest lists of top keys that leave half of the size for query and key."""
        most = max((self.heads[k].look.top_keys.shape[-1] for k in ids), default=0)
        rows = sum(self.heads[k].n for k in ids)
        # about 5 bytes a pair once packed
        top = max(min(most, 2), min(most, int(0.35 * budget / max(rows * 5, 1))))
        for k in ids:
            look, blobs = self.heads[k].look, self.entries[k]["blobs"]
            for name in ("map", "entropy", "peak", "first"):
                blobs[name] = self.blobs.add_numbers(getattr(look, name).numpy())
            blobs["received"] = self.blobs.add(look.received.numpy().astype(np.float32))
            blobs["top_keys"] = self.blobs.add(look.top_keys[:, :top].numpy().astype(np.int32))
            blobs["top_weights"] = self.blobs.add_numbers(look.top_weights[:, :top].numpy())
        return top

    def _add_exact(self, ids: list[int], budget: int) -> str:
        """Query and key of as many heads as fit: all in half precision, or more of them with keys in bytes."""
        able = [k for k in ids if self.heads[k].look.query is not None]
        if not able:
            return "no exact tiles"
        left = budget - self.blobs.size
        fits = {small: self._count(able, left, small) for small in (False, True)}
        # bytes only where half precision would leave out heads that bytes bring in
        small = fits[True] > fits[False]
        done, worst, packed = 0, 0.0, dict[int, Keys]()
        for k in able:
            head, entry = self.heads[k], self.entries[k]
            if self.blobs.size + self._cost(k, small, set(packed)) > budget and done >= 1:
                entry["why"] = (
                    f"query and key of {done} heads fill the page: this head has its largest weights and map alone"
                )
                continue
            look = head.look
            assert look.key is not None
            assert look.spans is not None
            mark = look.key.data_ptr()
            keys = packed.get(mark) or Keys.pack(look.key, small)
            query, stat = pack_query(look, keys)
            error = measure_error(look, keys, query, stat)
            if small and error > WORST:
                keys = Keys.pack(look.key, False)
                query, stat = pack_query(look, keys)
                error = measure_error(look, keys, query, stat)
            packed[mark] = keys
            entry["blobs"] |= {
                "query": self.blobs.add(query), "key": self.blobs.add(keys.numbers), "stat": self.blobs.add(stat),
                "spans": self.blobs.add(look.spans.numpy().astype(np.int32)),
            }  # fmt: skip
            entry["exact"], entry["why"], entry["error"] = True, "", error
            done, worst = done + 1, max(worst, error)
        kind = "keys in centred bytes" if small else "query and key in half precision"
        return f"exact tiles of {done} heads ({kind}: rows differ by at most {worst:.1g} in total variation)"

    def _count(self, able: list[int], left: float, small: bool) -> int:
        taken, known, count = 0.0, set[int](), 0
        for k in able:
            taken += self._cost(k, small, known)
            if taken > left:
                break
            count += 1
        return count

    def _cost(self, k: int, small: bool, known: set[int]) -> float:
        """About how many characters query, key and statistic take; keys that other heads share cost once."""
        look = self.heads[k].look
        assert look.query is not None
        assert look.key is not None
        fresh = look.key.data_ptr() not in known
        known.add(look.key.data_ptr())
        return (
            4 / 3 * (look.query.numel() * 1.9 + fresh * look.key.numel() * (1 if small else 1.9) + self.heads[k].n * 8)
        )


def _weigh(head: Head, top: int) -> float:
    """About how many characters a head's details take in full."""
    look = head.look
    exact = 0 if look.query is None or look.key is None else look.query.numel() + look.key.numel()
    return 4 / 3 * (2 * exact + head.n * (5 * top + 12) + head.m * 4 + look.map.numel() * 2)


def _tell(check: Any) -> str:
    if check is None:
        return ""
    return str(check.text()) if hasattr(check, "text") else str(check)
