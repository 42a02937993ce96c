"""Signal handling: Ctrl-C and SIGTERM stop training behind the step under way, when it is saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """The first stop signal that was received, by its number, or 0."""

    number = 0

    def handle(self, number: int, frame: object) -> None:
        if self.number:
            # whoever asks twice does not want to wait
            raise KeyboardInterrupt
        self.number = number


@contextmanager
def catch_signals() -> Iterator[StopSignal]:
    """Catch SIGINT and SIGTERM within the block: the first is recorded, the second raises KeyboardInterrupt.

    >>> with catch_signals() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.number == signal.SIGTERM
    True
    """
    stop = StopSignal()
    # only the main thread may be told; what is ignored, as nohup asks, or was set outside Python stays so
    is_main = threading.current_thread() is threading.main_thread()
    caught = [x for x in SIGNALS if is_main and signal.getsignal(x) not in (signal.SIG_IGN, None)]
    before = [signal.signal(number, stop.handle) for number in caught]
    try:
        yield stop
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)
