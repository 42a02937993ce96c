"""Time and memory against the length, and where layers cross: what is told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from regard.compare.kinds import KINDS
from regard.compare.meters.cost import PASSES, measure_cost
from regard.compare.part import Column, Listing, Part
from regard.compare.report.cells import NOTHING, name_each, name_kind, show_list, show_scaled
from regard.compare.report.figures import Sheet, look_up
from regard.compare.rows import Numbers, group, take
from regard.engine.call import show_bytes

# half the width of an interval from which on an exponent says little
VAGUE = 0.25
# at fewer lengths nothing is said of those between and beyond
ENOUGH = 3
OF = {"textbook": "textbooks", "operations": "operations", "seconds": "seconds", "bytes": "memory"}
BOOKS = "By the textbooks' formulas, which have no constant factors"


def list_columns(part: Numbers) -> Iterator[Column]:
    """How seconds and memory grow, forward and in training."""
    batch = max((fit["batch"] for fit in part["fits"]), default=None)
    note = "" if batch is None else f" Seconds and memory: forward above, training below, batch {batch}."
    if any(map(_is_vague, take(part["fits"], batch=batch))):
        note += f" With ?: uncertain by more than {VAGUE}."
    for of in ("seconds", "bytes"):
        cells = {}
        for kind, fits in group(take(part["fits"], of=of), "kind").items():
            found = {fit["pass"]: _show_growth(fit) for fit in take(fits, batch=batch)}
            cells[kind] = "\n".join(found.get(which, NOTHING) for which in PASSES)
        yield Column(OF[of], cells, note if of == "bytes" else "")


def _is_vague(fit: Numbers) -> bool:
    """Whether a fitted exponent may be another by much."""
    low, high = fit["interval"]
    return bool(high - low > 2 * VAGUE)


def _show_growth(fit: Numbers) -> str:
    """An exponent of time or memory; what is vague is shown to be."""
    return f"n^{fit['exponent']:.1f} ?" if _is_vague(fit) else f"n^{fit['exponent']:.2f}"


def list_crossings(part: Numbers, settings: Numbers) -> Iterator[Listing]:
    """By what is counted, down; by the layer it is set against, across."""
    crossings, skipped = part["crossings"], len(part["skipped"])
    cases = group(crossings, "of", "pass", "batch")
    leads = {(lead["of"], lead["pass"], lead["batch"]): lead["spans"] for lead in part["leads"]}
    others = list(group(crossings, "other"))
    rows = []
    for of, which, batch in sorted(cases, key=lambda case: list(OF).index(case[0])):
        here = {cross["other"]: cross for cross in cases[of, which, batch]}
        name = OF[of] + (f", {which}, batch {batch}" if batch else "")
        cells = [show_crossing(here[other], part["rows"]) if other in here else NOTHING for other in others]
        # who leads at a few lengths is in the cells before
        is_told = all(_list_few(part["rows"], cross) is None for cross in here.values())
        rows.append((name, *cells, show_spans(leads[of, which, batch]) if is_told else NOTHING))
    note = "Always and never: the two do not cross at the lengths looked at."
    if any(_list_few(part["rows"], cross) is not None for cross in crossings):
        note += " At and not at: the only lengths that both were measured at."
    if any(NOTHING in row for row in rows):
        note += f" {NOTHING}: not measured at common lengths, or at too few for all layers, or no exact formula, as for"
        note += " a window that is cut into tiles."
    if len(set(part["widths"].values())) > 1:
        note += f" Widths: {show_list(f'{name_kind(kind)} {width}' for kind, width in part['widths'].items())}."
    if skipped:
        note += f" Left out, as the page lists: {skipped} of {skipped + len(part['rows'])} timings."
    note = " ".join([note, *_tell_noise(part["rows"])])
    dims, axes = settings.get("dims") or {}, {"width": "d", "kernel": "k", "window": "w"}
    sizes = ", ".join(f"{letter} = {dims[name]}" for name, letter in axes.items() if name in dims)
    title = "Lengths at which self-attention costs less than" + (f" ({sizes})" if sizes else "")
    # a table of seven columns has no room for a word that says nothing here
    names = (name_kind(other).removesuffix(" attention") for other in others)
    yield Listing(title, ("by", *names, "all"), tuple(rows), note)


def list_rows(name: str, part: Numbers) -> Sequence[Numbers]:
    """Lists as the page shows them: spans of crossings as inequalities."""
    rows: Sequence[Numbers] = part[name]
    return [{**row, "spans": show_crossing(row, part["rows"])} for row in rows] if name == "crossings" else rows


def _list_few(rows: Sequence[Numbers], cross: Numbers) -> list[tuple[int, float]] | None:
    """Where both were measured at too few lengths to speak of others: those, and what the one takes more; else None."""
    if cross["batch"] is None:
        return None
    here = take(rows, batch=cross["batch"], **{"pass": cross["pass"]})
    one, other = ({row["n"]: row[cross["of"]] for row in take(here, kind=cross[who])} for who in ("one", "other"))
    lengths = sorted(one.keys() & other)
    return [(n, one[n] - other[n]) for n in lengths] if len(lengths) < ENOUGH else None


def show_crossing(cross: Numbers, rows: Sequence[Numbers]) -> str:
    """Where the one is cheaper; if both were measured at a few of the lengths in `rows` alone, at which of those."""
    if (few := _list_few(rows, cross)) is not None:
        said = (f"{'at' if gap < 0 else 'not at' if gap else 'equal at'} {n:,}" for n, gap in few)
        return ", ".join(said) or NOTHING
    return "equal" if cross["is_equal"] else show_spans(cross["spans"])


def show_spans(spans: Sequence[Sequence[float | None]]) -> str:
    """Lengths from and to, as inequalities.

    >>> show_spans([[None, 64.2]]), show_spans([[32.0, 64.0]]), show_spans([[None, None]]), show_spans([])
    ('n < 64', '32 < n < 64', 'always', 'never')
    """
    if [None, None] in spans:
        return "always"
    said = []
    for low, high in spans:
        below, above = (f"{low:,.0f} < " if low else ""), (f" < {high:,.0f}" if high else "")
        said.append(f"{below}n{above}" if high else f"n > {low:,.0f}")
    return ", ".join(said) or "never"


def _tell_noise(rows: Sequence[Numbers]) -> Iterator[str]:
    """How many timings may be of what else the machine did."""
    if count := sum(map(_is_noisy, rows)):
        yield f"{count} of {len(rows)} timings are uncertain (?): half of the rounds took twice as long as the fastest."


def _is_noisy(row: Numbers) -> bool:
    """Whether the median of the rounds is more than twice the fastest."""
    return bool(row["seconds"] > 2 * row["fastest"])


def read_cost(part: Numbers, settings: Numbers) -> Iterator[str]:
    """Who is the quickest, how time and memory grow, and where self-attention is cheaper."""
    if not part["rows"]:
        yield "Nothing was timed."
        return
    batch = max(row["batch"] for row in part["rows"])
    forward = {"batch": batch, "pass": "forward"}
    ran = take(part["rows"], **forward) or part["rows"]
    yield f"One layer, forward, batch {batch}."
    for n in sorted({min(row["n"] for row in ran), _find_longest(ran)}):
        first, *_, last = 2 * sorted(take(ran, n=n), key=lambda row: float(row["seconds"]))
        slowest = f", the slowest {_show_timing(last)}" if last != first else ""
        yield f"At n = {n:,} the quickest is {_show_timing(first)}{slowest}."
    yield from _tell_noise(part["rows"])
    yield from _read_growth(take(part["fits"], of="seconds", **forward))
    for name, case in ((BOOKS, {"of": "textbook"}), ("By the clock", {"of": "seconds", **forward})):
        crossings = [cross for cross in take(part["crossings"], **case) if cross["other"] in ("conv", "rnn", "gru")]
        if crossings:
            said = show_list(f"than {name_kind(cross['other'])} {_say_crossing(cross, part)}" for cross in crossings)
            yield f"{name}, self-attention is cheaper {said}."
        if any(_list_few(part["rows"], cross) is not None for cross in crossings):
            yield "Those are too few lengths to say anything of others."
    yield from _read_memory(part, batch)
    if part["skipped"]:
        yield f"Left out, as listed below: {len(part['skipped'])} measurements."
    yield "All of this depends on the machine."


def _show_timing(row: Numbers) -> str:
    return f"{name_kind(row['kind'])} ({show_scaled(row['seconds'])}{' ?' if _is_noisy(row) else ''})"


def _find_longest(rows: Sequence[Numbers]) -> int:
    """The longest that most kinds were measured at: what is too long for some would make the others the best."""
    counts = Counter(row["n"] for row in rows)
    return int(max(counts, key=lambda n: (counts[n], n)))


def _read_growth(fits: Sequence[Numbers]) -> Iterator[str]:
    """How time grows, and whether as operations do in the textbooks, to a tenth."""
    if not fits:
        return
    said = show_list(name_each(fits, lambda fit: f"n^{fit['exponent']:.2f}"))
    low, high = min(fit["from"] for fit in fits), max(fit["to"] for fit in fits)
    yield f"Seconds grow as {said}, over n = {low:,} to at most {high:,}."
    if vague := [name_kind(fit["kind"]) for fit in fits if _is_vague(fit)]:
        named = "all of them" if len(vague) == len(fits) else show_list(vague)
        yield f"That is uncertain by more than {VAGUE} for {named}."
    ways: dict[str, list[str]] = {}
    for fit in fits:
        if fit["kind"] in KINDS and not _is_vague(fit):
            over = fit["exponent"] - KINDS[fit["kind"]].powers["n"]
            way = "as" if abs(over) <= 0.1 else "faster than" if over > 0 else "more slowly than"
            ways.setdefault(way, []).append(name_kind(fit["kind"]))
    if said := show_list(f"{way} its operations in {show_list(ways[way])}" for way in sorted(ways)):
        yield f"To a tenth, that is {said}."


def _say_crossing(cross: Numbers, part: Numbers) -> str:
    """Where self-attention is the cheaper, in words; the table has it in signs."""
    if (few := _list_few(part["rows"], cross)) is not None:
        return show_list(f"{'at' if gap < 0 else 'not at'} n = {n:,}" for n, gap in few) or "at no common length"
    return show_list(_say_span(*span) for span in cross["spans"]) or "at no length"


def _say_span(low: float | None, high: float | None) -> str:
    if low is None:
        return "at every length" if high is None else f"up to n ≈ {high:,.0f}"
    return f"from n ≈ {low:,.0f} on" if high is None else f"from n ≈ {low:,.0f} to {high:,.0f}"


def _read_memory(part: Numbers, batch: int) -> Iterator[str]:
    rows = take(part["rows"], batch=batch, **{"pass": "training"})
    if not rows:
        return
    n = _find_longest(rows)
    at = sorted(take(rows, n=n), key=lambda row: int(row["bytes"]))
    yield f"At n = {n:,} training keeps, between operators,"
    yield f"{show_list(name_each(at, lambda row: show_bytes(row['bytes'])))};"
    yield "what a kernel takes and gives back within one call is not in it on a CPU, and may be more."
    if fits := take(part["fits"], of="bytes", kind="attention", batch=batch):
        power = max(fit["exponent"] for fit in fits)
        kept = "no n × n weights are kept" if power < 1.5 else "n × n weights are kept"
        yield f"Self-attention's memory grows as n^{power:.2f}: {kept}."


def draw_seconds(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Seconds against the number of tokens, both axes logarithmic: medians, shaded from the lower to the upper
    quartile.
    """
    _draw_cost(sheet, part, "seconds")


def draw_memory(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Extra memory at its peak against the number of tokens, both axes logarithmic. On a CPU it is what lives between
    operators, without what a kernel takes and gives back within one call, as a convolution for copies.
    """
    _draw_cost(sheet, part, "bytes")


def _draw_cost(sheet: Sheet, part: Numbers, of: str) -> None:
    """A panel for each pass, down, and each batch, across."""
    rows = [row for row in part["rows"] if row[of] > 0]
    batches = sorted(group(rows, "batch")) or [None]
    passes = [which for which in PASSES if take(rows, **{"pass": which})] or ["forward"]
    panels = sheet.begin(5.4, 3.4, down=len(passes), across=len(batches))
    for which, row_of in zip(passes, panels, strict=True):
        for batch, axes in zip(batches, row_of, strict=True):
            here = take(rows, batch=batch, **{"pass": which})
            for kind, own in group(here, "kind").items():
                x = [row["n"] for row in own]
                sheet.plot(axes, kind, x, [row[of] for row in own])
                if of == "seconds":
                    low, high = ([row[edge] for row in own] for edge in ("low", "high"))
                    axes.fill_between(x, low, high, color=look_up(kind)[0], alpha=0.18, linewidth=0)
            sheet.name(axes, f"{which}, batch {batch}", "n, tokens", "seconds" if of == "seconds" else "extra memory")
            show, base = (show_scaled, 10) if of == "seconds" else (_show_ticks, 2)
            sheet.scale(axes, [row["n"] for row in here], show, base)
    sheet.explain()


def _show_ticks(count: float) -> str:
    return show_bytes(count).replace(".0 ", " ")


COST = Part(
    "cost", title="Time and memory", nature="timed", share=35, quick_share=14,
    measure=measure_cost,
    lists={
        "rows": "kind n# batch# pass seconds# low# high# bytes#",
        "fits": "kind batch# pass of exponent# interval from to",
        "crossings": "one other batch? pass of is_equal spans",
    },
    tables=list_crossings,
    columns=list_columns,
    list_rows=list_rows,
    read=read_cost,
    pictures=(draw_seconds, draw_memory),
)  # fmt: skip
