"""The worker: a process of low priority that explains, tries and makes changes, one at a time.

It is started by `worker_process` and ends when its pipe is closed. Whatever it is doing then, no
change is left half done: a commit is one rename in the bundle.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from pydantic import BaseModel

from anoco_edge.errors import AnocoError
from anoco_edge.station.jobs.job_models import JobProblem
from anoco_edge.station.jobs.tasks import Tasks
from anoco_edge.station.jobs.worker_messages import (
    ORDER,
    CancelOrder,
    Finished,
    Progress,
    WorkerSetup,
    WorkOrder,
)
from anoco_edge.station.web.error_status import status_of

_SAY_SECONDS = 0.2


class JobCancelledError(Exception):
    """The job was ended by a person."""


class Worker:
    """Does the jobs that come through a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._orders: queue.SimpleQueue[WorkerSetup | WorkOrder | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._said = 0.0
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def serve(self) -> None:
        """Do jobs until the pipe is closed."""
        setup = self._orders.get()
        if not isinstance(setup, WorkerSetup):
            return
        os.nice(setup.niceness)
        tasks = Tasks(setup)
        while isinstance(order := self._orders.get(), WorkOrder):
            self._send(self._finished(tasks, order))

    def _finished(self, tasks: Tasks, order: WorkOrder) -> Finished:
        self._cancelled.clear()
        try:
            result = tasks.do(order.request, self._ticker(order.job))
            return Finished(job=order.job, result=_plain(result))
        except JobCancelledError:
            return Finished(job=order.job, cancelled=True)
        except AnocoError as error:
            problem = JobProblem(status=status_of(error), detail=error.what, hint=error.hint)
        except MemoryError:
            problem = JobProblem(status=507, detail="there is too little memory for this")
        except Exception as error:  # noqa: BLE001 (whatever an engine raises: say it)
            problem = JobProblem(status=500, detail=f"the worker failed: {error!r}"[:500])
        return Finished(job=order.job, problem=problem)

    def _ticker(self, job: str) -> Callable[[float, str], None]:
        def tick(progress: float, note: str) -> None:
            if self._cancelled.is_set():
                raise JobCancelledError
            if (now := time.monotonic()) - self._said >= _SAY_SECONDS:
                self._said = now
                self._send(Progress(job=job, progress=progress, note=note))

        return tick

    def _send(self, message: Progress | Finished) -> None:
        self._pipe.send_bytes(message.model_dump_json().encode())

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                order = ORDER.validate_json(self._pipe.recv_bytes())
                if isinstance(order, CancelOrder):
                    self._cancelled.set()
                else:
                    self._orders.put(order)
        os._exit(0)  # nobody would hear the result


def _plain(result: BaseModel) -> object:
    return result.model_dump(mode="json")


def main() -> None:
    """Start with the handle of the pipe as the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the line, which ends the page
    with contextlib.suppress(EOFError, OSError):
        Worker(Connection(int(sys.argv[1]))).serve()
    os._exit(0)  # threads of engines must not keep a worker alive that nobody hears


if __name__ == "__main__":
    main()
