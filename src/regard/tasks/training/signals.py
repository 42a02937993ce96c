"""Ctrl-C and SIGTERM as a wish to stop, which is heeded where nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ear:
    """What was heard: the first signal, or 0."""

    number = 0

    def heed(self, number: int, frame: object) -> None:
        if self.number:
            # whoever asks twice does not want to wait
            raise KeyboardInterrupt
        self.number = number


@contextmanager
def heed_signals() -> Iterator[Ear]:
    """Until the block is left, the first signal is only heard; the second raises KeyboardInterrupt.

    >>> with heed_signals() as ear:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     ear.number == signal.SIGTERM
    True
    """
    ear = Ear()
    # only the main thread may be told; what is ignored, as nohup asks, or was set outside Python stays so
    is_main = threading.current_thread() is threading.main_thread()
    heard = [x for x in SIGNALS if is_main and signal.getsignal(x) not in (signal.SIG_IGN, None)]
    before = [signal.signal(number, ear.heed) for number in heard]
    try:
        yield ear
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)
