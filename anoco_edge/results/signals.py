"""Lets Ctrl-C end a run between two rows and never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block has ended, so that it is not cut off.

    >>> try:
    ...     with signals_held():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("whole")
    ... except KeyboardInterrupt:
    ...     print("then stopped")
    whole
    then stopped
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are delivered to the main thread only
        return
    heard: list[tuple[int, FrameType | None]] = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    ours = {int(s): h for s, h in handlers.items() if callable(h)}
    for number in ours:
        signal.signal(number, lambda n, f: heard.append((n, f)))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    for number, frame in heard[:1]:
        ours[number](number, frame)
