"""How much memory the station and its judge take over time, and whether it is flat.

In the first third of a run memory comes to its usual size: caches fill, code is paged in. It is
flat if in the last third it takes at most `RISE_MB` more than in the second. In 100,000 parts that
is 60 bytes for each.
"""

from __future__ import annotations

import os
import statistics
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from tests.soak.faults import judge_of

SAMPLE_SECONDS = 0.5
SHORTEST_SECONDS = 300.0
"""The shortest run that is judged: in a shorter one the caches still fill."""
FEWEST_PARTS = 5_000
"""On a machine so busy that it inspects fewer, a judge hardly starts between two faults."""
STEPS = 9
RISE_MB = 2.0
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class MemoryLog:
    """A thread that reads the resident memory of both processes, in MB."""

    def __init__(self, station: int) -> None:
        self._pid = station
        self.station: list[float] = []
        self.judge: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join(5)

    def _work(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self.station += _resident(self._pid)
            judge = judge_of(self._pid)
            self.judge += _resident(judge) if judge else []


def _resident(process: int) -> list[float]:
    with suppress(OSError, IndexError):
        return [int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_MB]
    return []


def over_time(samples: list[float], steps: int = STEPS) -> list[float]:
    """Return the usual memory in each ninth of a run.

    A judge that was just started is small, so the upper half of each ninth counts.

    >>> over_time([1, 5, 5, 2, 6, 6], steps=2)
    [5.0, 6.0]
    """
    edges = [round(step * len(samples) / steps) for step in range(steps + 1)]
    parts = [sorted(samples[a:b]) for a, b in pairwise(edges)]
    return [statistics.median(part[len(part) // 2 :]) if part else 0.0 for part in parts]


def rise(usual: list[float]) -> float:
    """Return how much more memory the last third of a run took than the second.

    >>> rise([1.0, 9.0, 4.0, 5.0, 5.0, 5.0, 6.0, 6.0, 7.0])
    1.0
    """
    third = len(usual) // 3
    return statistics.median(usual[-third:]) - statistics.median(usual[-2 * third : -third])
