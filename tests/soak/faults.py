"""The faults that happen to the station while it works, and a sink that is down at times."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.soak.material import Material

LONGEST_LOCK = 3.0  # longer than SQLite waits, so that the recorder has to try again
_CAMERA = ("ignore", "lose", "twice", "late")


class Sink(ThreadingHTTPServer):
    """Takes what the outbox sends; `got` counts each uid."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.got: Counter[str] = Counter()
        self.down = False
        super().__init__(("127.0.0.1", port), _Post)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Post(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.down:
            self.server.got[self.headers["Idempotency-Key"]] += 1
        self.send_response(503 if self.server.down else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def judge_of(station: int) -> int | None:
    """Return the process of the judge of a station."""
    for task in Path(f"/proc/{station}/task").glob("*/children"):
        with suppress(OSError, ValueError, IndexError):
            return int(task.read_text().split()[0])
    return None


def is_stopped(process: int) -> bool:
    """Whether a process is there and stopped by a signal."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


class Faults:
    """A thread that lets one fault after the other happen; `stops` are the times, on our clock, in
    which the judge certainly stood still."""

    def __init__(
        self,
        station: subprocess.Popen[str],
        material: Material,
        sink: Sink,
        *,
        seed: int,
        pause: float,
    ) -> None:
        self._station, self._material, self._sink = station, material, sink
        self._random, self._pause = random.Random(f"faults {seed}"), pause
        self.done: Counter[str] = Counter()
        self.stops: list[tuple[int, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._kinds: dict[str, Callable[[], None]] = {
            "judge killed": self._kill_judge,
            "judge stopped": self._stop_judge,
            "camera unplugged": self._unplug,
            "data base locked": self._lock,
            "sink down": self._stop_sink,
            **{f"frame: {word}": self._frame_fault(word) for word in _CAMERA},
        }

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the fault of now and the thread."""
        self._ending.set()
        self._thread.join(30)

    def _work(self) -> None:
        waiting: list[str] = []  # every kind comes as often as the others
        while not self._ending.wait(self._random.expovariate(1 / self._pause)):
            if not waiting:
                waiting = self._random.sample(sorted(self._kinds), len(self._kinds))
            kind = waiting.pop()
            self.done[kind] += 1
            self._kinds[kind]()

    def _for_a_while(self, longest: float) -> None:
        self._ending.wait(self._random.uniform(0.05, longest))

    def _kill_judge(self) -> None:
        judge = judge_of(self._station.pid)
        if judge is not None:
            with suppress(ProcessLookupError):
                os.kill(judge, signal.SIGKILL)

    def _stop_judge(self) -> None:
        """Stop the judge for a moment, or until the station kills it."""
        judge = judge_of(self._station.pid)
        if judge is None:
            return
        with suppress(ProcessLookupError):
            os.kill(judge, signal.SIGSTOP)
            end = time.monotonic() + self._random.uniform(0.02, 2.0)
            began = 0
            while time.monotonic() < end and not self._ending.is_set():
                before = time.monotonic_ns()
                if is_stopped(judge):
                    began = began or time.monotonic_ns()
                    last = before
                elif began:
                    break
                time.sleep(0.005)
            if began:
                self.stops.append((began, last))
            os.kill(judge, signal.SIGCONT)

    def _unplug(self) -> None:
        self._command("off")
        self._for_a_while(1.5)
        self._command("on")

    def _frame_fault(self, word: str) -> Callable[[], None]:
        return lambda: self._command(word)

    def _command(self, word: str) -> None:
        assert self._station.stdin is not None
        with suppress(BrokenPipeError):
            self._station.stdin.write(f"{word}\n")
            self._station.stdin.flush()

    def _lock(self) -> None:
        data = sqlite3.connect(self._material.folder / "store" / "line.db", timeout=5)
        with closing(data), suppress(sqlite3.OperationalError):
            data.execute("BEGIN IMMEDIATE")
            self._for_a_while(LONGEST_LOCK)
            data.rollback()

    def _stop_sink(self) -> None:
        self._sink.down = True
        self._for_a_while(2.0)
        self._sink.down = False
