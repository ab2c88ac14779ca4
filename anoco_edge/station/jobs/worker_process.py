"""The worker as the web process sees it: a child that is started when there is work."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from anoco_edge.station.jobs.worker_messages import (
    ANSWER,
    CancelOrder,
    Finished,
    Progress,
    WorkerSetup,
    WorkOrder,
)

END_SECONDS = 5.0


class WorkerProcess:
    """A running worker. It ends when its pipe is closed, also when the web process is killed."""

    def __init__(self, setup: WorkerSetup) -> None:
        ours, theirs = Pipe()
        assert isinstance(ours, Connection) and isinstance(theirs, Connection)
        self._pipe = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anoco_edge.station.jobs.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._send(setup)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def work(self, order: WorkOrder) -> None:
        """Give the worker a job."""
        self._send(order)

    def cancel(self) -> None:
        """Ask the worker to end the job that is under way."""
        self._send(CancelOrder())

    def answer(self, timeout: float) -> Progress | Finished | None:
        """Return what the worker says; None when it says nothing for so long.

        A worker that is gone raises an EOFError.
        """
        try:
            if not self._pipe.poll(timeout):
                return None
            return ANSWER.validate_json(self._pipe.recv_bytes())
        except (OSError, ValueError):
            raise EOFError from None

    def close(self) -> int:
        """Let the worker end, kill it if it does not, and return its exit code."""
        self._pipe.close()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """End the worker at once. Nothing is half done: a change is one rename."""
        self._process.kill()
        self.close()

    def _send(self, message: WorkerSetup | WorkOrder | CancelOrder) -> None:
        try:
            self._pipe.send_bytes(message.model_dump_json().encode())
        except (OSError, ValueError):
            raise EOFError from None
