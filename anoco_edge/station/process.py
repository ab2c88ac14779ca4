"""Starts the web process beside the line, and again when it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from anoco_edge.errors import missing

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
STEADY_SECONDS = 60.0
STOP_SECONDS = 5.0


class PageProcess:
    """The web process of a station.toml; `say` gets a line when it ends. The line waits for nothing
    here: a thread of its own looks after the process."""

    def __init__(self, config: Path, say: Callable[[str], None]) -> None:
        for package in ("fastapi", "uvicorn", "websockets", "jinja2"):
            if importlib.util.find_spec(package) is None:
                raise missing(package, "station", "to serve the page")
        self._config, self._say = config, say
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="page", daemon=True)

    @property
    def pid(self) -> int | None:
        """The number of the process that runs now."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Start the process and the thread that looks after it."""
        self._thread.start()

    def close(self) -> None:
        """End the process."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(2 * STOP_SECONDS)

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            began = time.monotonic()
            code = self._run()
            if self._closing.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY_SECONDS else pause
            self._say(f"the page ended ({code}); it starts again in {pause:.0f} s")
            self._closing.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _run(self) -> int | str:
        command = [sys.executable, "-m", "anoco_edge.station.main", str(self._config)]
        try:
            process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        except OSError as error:
            return str(error)
        while process.poll() is None and not self._closing.wait(0.2):
            pass
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
