"""What the numbers of a part say, a paragraph each: every claim is made of them, for what is expected or against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.compare.kinds import KINDS
from regard.compare.report.cells import (
    VAGUE,
    choose_sizes,
    compare_at,
    is_noisy,
    is_sparse,
    is_vague,
    name_kind,
    show_list,
    show_powers,
    show_seconds,
    show_share,
    show_size,
    show_steps,
    take,
    tell_noise,
)
from regard.compare.report.lessons import read_digits, read_order, read_recall

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison

Part = Mapping[str, Any]
# exponents nearer to the textbooks' than this are the textbooks'
CLOSE = 0.02
BOOKS = "By the textbooks' formulas, which have no constant factors"


def write_readings(comparison: Comparison) -> dict[str, str]:
    """A paragraph for each part that was measured, and one for the textbooks' table where a column of it was."""
    parts = comparison.parts
    made = {}
    if any(name in parts for name in ("operations", "steps", "paths", "cost")):
        made["textbook"] = read_textbook(parts)
    for name, read in READERS.items():
        if name in parts:
            made[name] = read(parts[name], comparison.settings)
    return made


def read_textbook(parts: Part) -> str:
    """Which rows are whose, and which cells another machine would change."""
    text = "Every cell has what the textbooks say above what was measured here on the running layer. "
    if "operations" in parts or "steps" in parts:
        text += "Several published notes swap the rows of convolution and recurrence. " + _tell_apart(parts) + " "
    fixed = [name for name in ("operations", "steps", "paths") if name in parts]
    if fixed:
        named = show_list([{"paths": "longest paths", "steps": "sequential steps"}.get(name, name) for name in fixed])
        text += f"{named[0].upper()}{named[1:]} are counted, and the same on every machine. "
    if "cost" in parts:
        text += "Seconds, memory and where the lines cross depend on the machine and on torch's kernels. "
    learned = [name for name in ("recall", "order", "digits") if name in parts]
    if learned:
        text += f"What is learned ({show_list(learned)}) depends on the seed, and in its last digits on the machine. "
    return text.strip()


def _tell_apart(parts: Part) -> str:
    """Convolution and recurrence by what was measured of them."""
    said = []
    fits = parts.get("operations", {}).get("fits", [])
    kernel = [fit for fit in fits if fit["of"] == "mixing" and fit["exponents"].get("k") is not None]
    if kernel:
        grows = [f"{name_kind(fit['kind'])} (k^{fit['exponents']['k']:.2f})" for fit in kernel]
        said.append(f"the operations that grow with the kernel are those of {show_list(grows)}")
    steps = parts.get("steps", {}).get("fits", [])
    if steps:
        waits = [name_kind(fit["kind"]) for fit in steps if fit["order"] != "1"]
        said.append(
            f"the chain of steps that grows with n is that of {show_list(waits)}" if waits else "no chain grows with n"
        )
    return f"Measured, {show_list(said)}." if said else "Nothing measured here tells them apart."


def read_operations(part: Part, settings: Part) -> str:
    fits = [fit for fit in part["fits"] if fit["of"] == "mixing"] or part["fits"]
    off, count = [], 0
    for fit in fits:
        for axis, book in fit["textbook"].items():
            found = fit["exponents"].get(axis)
            # where there was one width or one kernel, there is no exponent of it
            count += found is not None
            if found is not None and abs(found - book) > CLOSE:
                off.append(f"of {axis} in {name_kind(fit['kind'])} ({found:.2f}, not {book})")
    text = "Counted is what the textbooks count: of attention the products in which tokens meet, of the others all of"
    text += " them. They grow as follows: "
    text += "; ".join(f"{name_kind(fit['kind'])} {show_powers(fit['exponents'])}" for fit in fits) + ". "
    if off:
        text += f"Of {count} exponents {len(off)} differ from the textbooks' by more than {CLOSE}: {show_list(off)}. "
    else:
        text += f"All {count} exponents are within {CLOSE} of the textbooks'. "
    wrong = [row for row in part["rows"] if row["formula"] is not None and row["mixing"] != row["formula"]]
    known = sum(row["formula"] is not None for row in part["rows"])
    if known:
        text += f"{known - len(wrong)} of {known} counts are exactly the formula's. "
    tiled = [row["n"] for row in take(part["rows"], kind="windowed")]
    if tiled:
        start = next((fit["from"] for fit in take(fits, kind="windowed") if "from" in fit), min(tiled))
        text += f"Windowed attention's powers are those from n = {start:,} on, where it is cut into tiles; in short"
        text += " sequences torch's own kernel is quicker, and meets all pairs. "
    return text + _read_projections(part, settings)


def _read_projections(part: Part, settings: Part) -> str:
    """What self-attention does besides, and what that does to where it is the cheapest."""
    rows = choose_sizes(take(part["rows"], kind="attention"), settings)
    if not rows:
        return ""
    row = min(rows, key=lambda row: row["n"])
    n, d, rest = row["n"], row["d"], row["operations"] - row["mixing"]
    text = f"The textbooks leave out the projections of self-attention: {rest:,} more operations at n = {n}, d = {d}"
    text += f" ({rest / (n * d * d):.3g}·n·d²), {show_share(rest / row['operations'])} of the layer. "
    for other in choose_sizes(part["rows"], settings):
        if other["n"] == n and other["kind"] in ("conv", "rnn"):
            # products grow with n², all else of both layers with n
            book = n * other["mixing"] / row["mixing"]
            whole = n * (other["operations"] - rest) / row["mixing"]
            layers = "whole layers of one width" if settings.get("has_equal_parameters") else "whole layers"
            crossed = f"{layers} at n = {whole:.0f}" if whole >= 1 else f"{layers} never: it is always dearer"
            text += f"By those products alone it meets {name_kind(other['kind'])} at n = {book:.0f}, {crossed}. "
    return text.strip()


def read_steps(part: Part, settings: Part) -> str:
    fits = part["fits"]
    text = "The longest chain of operations that wait for one another, in the traced graph for n tokens: "
    text += "; ".join(f"{name_kind(fit['kind'])} {show_steps(fit)}" for fit in fits) + ". "
    loose = [name_kind(fit["kind"]) for fit in fits if not fit["is_exact"]]
    if loose:
        text += f"For {show_list(loose)} this is a fit, not exact. "
    else:
        # a window has one law from where it is cut into tiles
        starts = {fit["kind"]: fit.get("from", 0) for fit in fits}
        count = sum(row["n"] >= starts.get(row["kind"], 0) for row in part["rows"])
        text += f"Each is exact for all that was traced ({count} graphs"
        short = len(part["rows"]) - count
        text += f", and {short} of windows in sequences too short to be cut into tiles). " if short else "). "
    other = [fit for fit in fits if fit["order"] != fit["textbook"]]
    if other:
        said = [f"{name_kind(fit['kind'])} O({fit['order']}), not O({fit['textbook']})" for fit in other]
        text += f"It is not what the textbooks say of {show_list(said)}."
    else:
        text += "Each is of the order that the textbooks say; how long a step is, they leave out."
    return text


def read_paths(part: Part, settings: Part) -> str:
    rows = part["rows"]
    wrong = [row for row in rows if row["length"] != row["formula"]]
    text = "How many layers, of a recurrence how many steps, until the last output depends on the first input; read"
    text += " off the boolean Jacobian of the running stack. "
    text += f"{len(rows) - len(wrong)} of {len(rows)} lengths are exactly the formula's"
    if wrong:
        row = wrong[0]
        size = f"n = {row['n']}" + (f", k = {row['k']}" if row["k"] is not None else "")
        found = "none" if row["length"] is None else row["length"]
        text += f"; {name_kind(row['kind'])} at {size} is not: {found}, not {row['formula']}"
    text += ". "
    chosen = choose_sizes(rows, settings)
    if chosen:
        n = max(row["n"] for row in chosen)
        at = [row for row in chosen if row["n"] == n and row["length"] is not None]
        k = next((row["k"] for row in at if row["k"] is not None), None)
        said = [f"{row['length']} for {name_kind(row['kind'])}" for row in at]
        text += f"At n = {n}" + (f" and k = {k}" if k else "") + f": {show_list(said)}." if said else ""
    return text.strip()


def read_cost(part: Part, settings: Part) -> str:
    rows = [row for row in part["rows"] if row["seconds"] is not None]
    if not rows:
        return "Nothing was timed."
    batch = max(row["batch"] for row in rows)
    ran = take(rows, batch=batch, **{"pass": "forward"}) or rows
    text = f"One layer, forward, batch {batch}. "
    for n in sorted({min(row["n"] for row in ran), _find_longest(ran)}):
        at = sorted((row for row in ran if row["n"] == n), key=lambda row: float(row["seconds"]))
        first, last = at[0], at[-1]
        text += f"At n = {n:,} the quickest is {_show_timing(first)}"
        text += f", the slowest {_show_timing(last)}. " if last != first else ". "
    text += tell_noise(rows)
    fits = take(part["fits"], of="seconds", batch=batch, **{"pass": "forward"})
    known = [fit for fit in fits if fit["exponent"] is not None]
    if known:
        said = [f"{name_kind(fit['kind'])} n^{fit['exponent']:.2f}" for fit in known]
        vague = [name_kind(fit["kind"]) for fit in known if is_vague(fit)]
        low, high = min(fit["from"] for fit in known), max(fit["to"] for fit in known)
        text += f"Seconds grow as {show_list(said)}, over n = {low:,} to at most {high:,}. "
        named = "all of them" if len(vague) == len(known) else show_list(vague)
        text += f"That is uncertain by more than {VAGUE} for {named}. " if vague else ""
        text += _read_growth([fit for fit in known if not is_vague(fit)])
    text += _read_crossings(part, batch) + _read_memory(part, batch)
    if part.get("skipped"):
        text += f"Left out, as listed below: {len(part['skipped'])} measurements. "
    return text + "All of this depends on the machine."


def _show_timing(row: Part) -> str:
    return f"{name_kind(row['kind'])} ({show_seconds(row['seconds'])}{' ?' if is_noisy(row) else ''})"


def _find_longest(rows: Sequence[Part]) -> int:
    """The longest that most kinds were measured at: what is too long for some would make the others the best."""
    counts = Counter(row["n"] for row in rows)
    return int(max(counts, key=lambda n: (counts[n], n)))


def _read_growth(fits: Sequence[Part]) -> str:
    """Whether time grows as operations do in the textbooks, to a tenth."""
    groups: dict[str, list[str]] = {}
    for fit in fits:
        if fit["kind"] in KINDS:
            over = fit["exponent"] - KINDS[fit["kind"]].powers["n"]
            way = "as" if abs(over) <= 0.1 else "faster than" if over > 0 else "more slowly than"
            groups.setdefault(way, []).append(name_kind(fit["kind"]))
    said = [f"{way} its operations in {show_list(groups[way])}" for way in sorted(groups)]
    return f"To a tenth, that is {show_list(said)}. " if said else ""


def _read_crossings(part: Part, batch: int) -> str:
    """Self-attention against each of the older layers, by the formula and by the clock; the table has all others."""
    text = ""
    timed = {"of": "seconds", "batch": batch, "pass": "forward"}
    for name, case in ((BOOKS, {"of": "textbook"}), ("By the clock", timed)):
        said, few = [], False
        for cross in take(part["crossings"], one="attention", **case):
            if cross["other"] in ("conv", "rnn", "gru"):
                if is_sparse(part["rows"], cross):
                    few, spans = True, _say_lengths(compare_at(part["rows"], cross))
                else:
                    spans = show_list([_say_span(*span) for span in cross["spans"]]) or "at no length"
                said.append(f"than {name_kind(cross['other'])} {spans}")
        text += f"{name}, self-attention is cheaper {show_list(said)}. " if said else ""
        text += "Those are too few lengths to say anything of others. " if few else ""
    return text


def _say_lengths(gaps: Mapping[int, float]) -> str:
    """
    >>> _say_lengths({32: -0.1, 64: 0.2})
    'at n = 32 and not at n = 64'
    """
    return show_list([f"{'at' if gap < 0 else 'not at'} n = {n:,}" for n, gap in gaps.items()]) or "at no common length"


def _say_span(low: float | None, high: float | None) -> str:
    if low is None:
        return "at every length" if high is None else f"up to n ≈ {high:,.0f}"
    return f"from n ≈ {low:,.0f} on" if high is None else f"from n ≈ {low:,.0f} to {high:,.0f}"


def _read_memory(part: Part, batch: int) -> str:
    rows = [row for row in take(part["rows"], batch=batch, **{"pass": "training"}) if row["bytes"] is not None]
    if not rows:
        return ""
    n = _find_longest(rows)
    at = sorted((row for row in rows if row["n"] == n), key=lambda row: float(row["bytes"]))
    said = [f"{name_kind(row['kind'])} {show_size(row['bytes'])}" for row in at]
    text = f"At n = {n:,} training keeps, between operators, {show_list(said)}"
    text += "; what a kernel takes and gives back within one call is not in it on a CPU, and may be more. "
    fits = [fit for fit in take(part["fits"], of="bytes", kind="attention", batch=batch) if fit["exponent"] is not None]
    if fits:
        power = max(fit["exponent"] for fit in fits)
        text += f"Self-attention's memory grows as n^{power:.2f}: "
        text += "no n × n weights are kept. " if power < 1.5 else "n × n weights are kept. "
    return text


READERS = {
    "operations": read_operations, "steps": read_steps, "paths": read_paths, "cost": read_cost, "recall": read_recall,
    "order": read_order, "digits": read_digits,
}  # fmt: skip
