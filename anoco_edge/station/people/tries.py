"""Limits how often a password, a PIN or a code may be tried."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FREE_TRIES, FREE_TRIES_OF_ADDRESS = 5, 30
LONGEST_WAIT = 300.0
FORGOTTEN_SECONDS = 3600.0
_MOST_KEYS = 4096


class Tries:
    """Counts failures by a key, such as a name and an address.

    After `free` of them each further one has to wait longer: 1 s, 2 s, 4 s, up to five minutes. An
    hour without a failure and they are forgotten. Time is that of a clock that nobody can set.

    >>> now = 0.0
    >>> tries = Tries(lambda: now)
    >>> for _ in range(6):
    ...     tries.fail("mia")
    >>> tries.wait("mia"), tries.wait("ben")
    (2.0, 0.0)
    >>> tries.succeed("mia"); tries.wait("mia")
    0.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, free: int = FREE_TRIES) -> None:
        self._clock, self._free = clock, free
        self._failures: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Return for how many seconds the next try is refused."""
        with self._lock:
            _, until = self._failures.get(key, (0, 0.0))
            return max(until - self._clock(), 0.0)

    def fail(self, key: str) -> None:
        """Count a wrong try."""
        with self._lock:
            if len(self._failures) >= _MOST_KEYS and key not in self._failures:
                self._forget_oldest()
            now = self._clock()
            count, until = self._failures.get(key, (0, now))
            count = 1 if now - until > FORGOTTEN_SECONDS else count + 1
            over = min(count - self._free, 20)
            pause = min(2.0**over, LONGEST_WAIT) if over >= 0 else 0.0
            self._failures[key] = (count, now + pause)

    def succeed(self, key: str) -> None:
        """Forget the failures after a right one."""
        with self._lock:
            self._failures.pop(key, None)

    def _forget_oldest(self) -> None:
        oldest = min(self._failures, key=lambda key: self._failures[key][1])
        del self._failures[oldest]
