"""One call of a fuzz run once more, by its number: `python -m tests.fuzz.again 1234`, in the same environment."""

from __future__ import annotations

import sys

from tests.fuzz.draw import draw_one
from tests.fuzz.examine import examine


def main() -> None:
    for number in map(int, sys.argv[1:]):
        drawn = draw_one(number)
        print(f"#{number} {drawn}")
        for backend, verdict in examine(drawn):
            print(f"  {'good' if verdict.is_good else 'BAD '} {backend} {verdict}")


if __name__ == "__main__":
    main()
