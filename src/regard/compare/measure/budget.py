"""Time for things that are done one after the other, and what is left out where it is too short."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

# what is said of all that was left out for it
WHY = "the quick look had no time left"


class Budget:
    """So many seconds from now on; None is all the time there is.

    >>> clock = iter([0.0, 0.0, 4.0, 7.0])
    >>> budget = Budget(10.0, lambda: next(clock))
    >>> [budget.allows() for _ in range(3)]
    [True, True, False]
    """

    def __init__(self, seconds: float | None, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._end = math.inf if seconds is None else read() + seconds
        self._begun: float | None = None
        self._longest = 0.0

    def allows(self) -> bool:
        """Whether to begin another: the first always, then if there is time for one as long as the longest before."""
        now, begun = self._read(), self._begun
        self._longest = max(self._longest, 0.0 if begun is None else now - begun)
        self._begun = now
        return begun is None or now + self._longest <= self._end
