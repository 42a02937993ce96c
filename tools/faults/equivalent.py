"""Drawn faults that nobody could see, each with the reason; they are not counted."""

EQUIVALENT: dict[str, str] = {
    "Machine.launch: names <= os.environ.keys() becomes names < os.environ.keys()": (
        "an environment has more names than a launcher sets"
    ),
    "split_pairs: _chance(pair[0], seed) < held_out becomes _chance(pair[0], seed) <= held_out": (
        "64 bits of a hash are equal to no share that anybody names"
    ),
}
