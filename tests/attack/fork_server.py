"""A process that has made all imports and forks for each case, which it is asked for in JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from paths import PACKAGES, ROOT, SUPPORT, python_path

PATIENCE = 120  # seconds, for a busy machine


class ForkServer:
    """The campaign's side of the connection."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers

    def ask(self, request: object) -> Any:
        """Send a request and wait for its answer; RuntimeError if the process has died."""
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError("the process that forks has died")
        return json.loads(answer)


@contextmanager
def fork_server(
    module: str, folder: Path, *, errors: IO[str] | None = None, **environment: str
) -> Iterator[ForkServer]:
    """Run `python -m MODULE FOLDER` with its caches in `folder`; it ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": python_path(*PACKAGES, SUPPORT, os.environ.get("PYTHONPATH", "")),
            "XDG_CACHE_HOME": str(folder / "cache"),
            **environment,
        },
        cwd=ROOT,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield ForkServer(process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()
