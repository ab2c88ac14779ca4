"""The jobs of a station: queued in station.db, done one at a time by a worker of low priority.

A job survives the death of both processes: what was running is queued again when the web process
starts. A worker that dies twice over one job fails it. A commit is one rename in the bundle and is
bound to a generation, so that a commit which is repeated after a kill changes nothing twice.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import Row

from anoco_edge.errors import AnocoError
from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.job_models import (
    RANKS,
    REQUEST,
    CommitRequest,
    Job,
    JobProblem,
    JobRequest,
    TooManyJobsError,
)
from anoco_edge.station.jobs.worker_messages import Finished, WorkerSetup, WorkOrder
from anoco_edge.station.jobs.worker_process import WorkerProcess

MOST_ATTEMPTS = 2
MOST_WAITING, MOST_OF_A_KIND = 50, 20
IDLE_SECONDS = 120.0
CANCEL_SECONDS = 20.0
KEPT_OF_A_KIND = 500  # jobs that are over; an explanation takes some 10 kB
PAUSE_SECONDS = 5.0
_OLD = """
DELETE FROM job WHERE id IN (
    SELECT id FROM job WHERE kind = ? AND state NOT IN ('queued', 'running')
    AND id NOT IN (SELECT candidate FROM shadow WHERE state IN ('running', 'waiting'))
    ORDER BY rowid DESC LIMIT -1 OFFSET ?
)
"""
_SHOWN = "id, kind, state, by, at, progress, note, result, problem"
_log = logging.getLogger("anoco.station")
OnChange = Callable[[Job], None]


class Jobs:
    """Takes jobs and has them done, from `start` to `close`.

    `on_change` is called for every step of a job, `on_commit` with the job and its request when a
    product was changed, `on_end` when a job is over. `spare` is asked for work when nothing waits.
    All are called by the thread of this object, `on_change` by that of `submit` too.
    """

    def __init__(
        self,
        database: Database,
        setup: WorkerSetup,
        *,
        on_change: OnChange = lambda _: None,
        on_commit: Callable[[CommitRequest], None] = lambda _: None,
        on_end: Callable[[JobRequest, Job], None] = lambda _, __: None,
        spare: Callable[[], JobRequest | None] = lambda: None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._database, self._setup, self._idle = database, setup, idle_seconds
        self.on_change, self.on_commit, self.on_end = on_change, on_commit, on_end
        self.spare = spare
        self._changed = threading.Condition()
        self._closing = self._waiting = self._lost = False
        self._cancelled: set[str] = set()
        self._worker: WorkerProcess | None = None
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)

    def start(self) -> None:
        """Queue again what an earlier run left, and start the thread. Another call does nothing."""
        if self._thread.ident is not None:
            return
        self._queue_running()
        self._thread.start()

    def close(self) -> None:
        """End the thread and the worker; the job under way is done again at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(30)

    @property
    def worker_pid(self) -> int | None:
        """The number of the worker's process, while there is one."""
        worker = self._worker
        return None if worker is None else worker.pid

    # ---- what routes call

    def submit(self, request: JobRequest, by: str) -> Job:
        """Queue a job. No transaction may be open: the thread would not see it."""
        text = request.model_dump_json()
        with self._database.write() as data:
            waiting = "SELECT kind FROM job WHERE state IN ('queued', 'running')"
            kinds = [kind for (kind,) in data.execute(waiting)]
            if len(kinds) >= MOST_WAITING or kinds.count(request.kind) >= MOST_OF_A_KIND:
                raise TooManyJobsError(
                    f"{len(kinds)} jobs wait already", hint="wait until some are done"
                )
            new = self._insert(request.kind, "queued", by, text)
        with self._changed:
            self._waiting = True
            self._changed.notify_all()
        job = self.require(new)
        self.on_change(job)
        return job

    def record(self, request: JobRequest, by: str, result: object) -> Job:
        """Note a job that was done at once, without the worker."""
        new = self._insert(request.kind, "done", by, request.model_dump_json(), json.dumps(result))
        return self.require(new)

    def same(self, request: JobRequest) -> Job | None:
        """Return the last job with this very request that did not fail."""
        row = self._database.row(
            f"SELECT {_SHOWN} FROM job WHERE kind = ? AND request = ? "
            "AND state IN ('queued', 'running', 'done') ORDER BY rowid DESC LIMIT 1",
            (request.kind, request.model_dump_json()),
        )
        return None if row is None else _job(row)

    def get(self, job: str) -> Job | None:
        """Return a job by its id."""
        row = self._database.row(f"SELECT {_SHOWN} FROM job WHERE id = ?", (job,))
        return None if row is None else _job(row)

    def require(self, job: str) -> Job:
        """Return a job that is known to exist."""
        found = self.get(job)
        assert found is not None
        return found

    def request_of(self, job: str) -> JobRequest | None:
        """Return what a job was asked to do."""
        row = self._database.row("SELECT request FROM job WHERE id = ?", (job,))
        return None if row is None else REQUEST.validate_json(row["request"])

    def latest(self, limit: int = 50) -> list[Job]:
        """Return the latest jobs, without their results, which may be large."""
        columns = _SHOWN.replace("result", "NULL AS result")
        query = f"SELECT {columns} FROM job ORDER BY rowid DESC LIMIT ?"
        return [_job(row) for row in self._database.rows(query, (limit,))]

    def cancel(self, job: str) -> Job | None:
        """End a job. One that is under way ends when nothing is left half done."""
        with self._database.write() as data:
            gone = data.execute(
                "UPDATE job SET state = 'cancelled', ended = ? WHERE id = ? AND state = 'queued'",
                (wall_time(), job),
            ).rowcount
        with self._changed:
            if not gone and (known := self.get(job)) is not None and not known.over:
                self._cancelled.add(job)
            self._changed.notify_all()
        found = self.get(job)
        if found is not None and gone:
            self.on_change(found)
        return found

    def wait(self, job: str, seconds: float) -> Job:
        """Wait until a job is over, or for so long; return it as it is then."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (found := self.require(job)).over:
                left = end - time.monotonic()
                if left <= 0 or self._closing:
                    break
                self._changed.wait(min(left, 1.0))
        return found

    def _insert(
        self, kind: str, state: str, by: str, request: str, result: str | None = None
    ) -> str:
        new = secrets.token_hex(8)
        with self._database.write() as data:
            data.execute(
                "INSERT INTO job (id, kind, state, by, at, request, progress, result) "
                "VALUES (?,?,?,?,?,?,?,?)",
                (new, kind, state, by, wall_time(), request, float(state == "done"), result),
            )
        return new

    # ---- the thread

    def _work(self) -> None:
        idle_since = time.monotonic()
        while not self._closing:
            try:
                if self._do_next():
                    idle_since = time.monotonic()
                    continue
            except (sqlite3.Error, AnocoError) as error:  # a full disk, or no line.db: again later
                _log.warning("the jobs cannot go on: %s", error)
                self._end_worker()
                self._lost = True
            if self._worker is not None and time.monotonic() - idle_since >= self._idle:
                self._end_worker()
            with self._changed:
                if not self._closing and (self._lost or not self._waiting):
                    self._changed.wait(min(self._idle, PAUSE_SECONDS))
        self._end_worker()

    def _do_next(self) -> bool:
        """Do the next job; False where nothing waits and there is nothing to do beside."""
        if self._lost:  # nobody does what is noted as running: there is only this thread
            self._queue_running()
            self._lost = False
        self._waiting = False  # a job that comes from here on is seen by the next call
        row = self._next()
        if row is not None:
            self._do(row["id"], REQUEST.validate_json(row["request"]), row["attempts"])
            return True
        if (more := self.spare()) is not None:
            self.submit(more, "station")
            return True
        return False

    def _queue_running(self) -> None:
        with self._database.write() as data:
            data.execute("UPDATE job SET state = 'queued', progress = 0 WHERE state = 'running'")

    def _next(self) -> Row | None:
        ranks = " ".join(f"WHEN '{kind}' THEN {rank}" for kind, rank in RANKS.items())
        return self._database.row(
            "SELECT id, request, attempts FROM job WHERE state = 'queued' "
            f"ORDER BY CASE kind {ranks} END, rowid LIMIT 1"
        )

    def _do(self, job: str, request: JobRequest, attempts: int) -> None:
        if attempts >= MOST_ATTEMPTS:
            words = "the worker ended unexpectedly each time it was tried"
            hint = "there may be too little memory; look at the log"
            failed = Finished(job=job, problem=_problem(500, words, hint))
            self._end(job, request, failed, again=True)
            return
        self._update(job, "state = 'running', attempts = attempts + 1", ())
        try:
            if self._worker is None:
                self._worker = WorkerProcess(self._setup)
            self._worker.work(WorkOrder(job=job, request=request))
            answer = self._follow(job, self._worker)
        except (EOFError, OSError):  # killed, or out of memory: the job is queued again
            self._end_worker()
            answer = None
        if answer is None:
            taken_back = int(self._closing)  # the end of this process is no failure of the worker
            fields = "state = 'queued', progress = 0, attempts = attempts - ?"
            self._update(job, fields, (taken_back,))
        else:
            self._end(job, request, answer, again=attempts > 0)

    def _follow(self, job: str, worker: WorkerProcess) -> Finished | None:
        """Pass on what a worker says until the job is over; None if this process is to end."""
        kill_at: float | None = None
        while not self._closing:
            if job in self._cancelled and kill_at is None:
                kill_at = time.monotonic() + CANCEL_SECONDS
                worker.cancel()
            answer = worker.answer(0.2)
            if isinstance(answer, Finished):
                return answer
            if answer is not None:
                values = (min(max(answer.progress, 0.0), 0.99), answer.note)
                self._update(job, "progress = ?, note = ?", values)
            if kill_at is not None and time.monotonic() >= kill_at:
                worker.kill()
                self._worker = None
                return Finished(job=job, cancelled=True)
        return None

    def _end(self, job: str, request: JobRequest, answer: Finished, *, again: bool = False) -> None:
        state = "cancelled" if answer.cancelled else "failed" if answer.problem else "done"
        result = None if state != "done" else json.dumps(answer.result)
        problem = None if answer.problem is None else answer.problem.model_dump_json()
        values = (state, result, problem, wall_time(), float(state == "done"))
        self._cancelled.discard(job)
        self._update(job, "state = ?, result = ?, problem = ?, ended = ?, progress = ?", values)
        done = self.require(job)
        # A commit that is repeated after a kill may find itself made, and then is a conflict; one
        # that was cancelled late may have been made.
        if isinstance(request, CommitRequest) and (state != "failed" or again):
            self.on_commit(request)
        self.on_end(request, done)
        with self._database.write() as data:  # a page that is open for weeks explains each reject
            data.execute(_OLD, (request.kind, KEPT_OF_A_KIND))

    def _update(self, job: str, fields: str, values: tuple[str | float | None, ...]) -> None:
        with self._database.write() as data:
            data.execute(f"UPDATE job SET {fields} WHERE id = ?", (*values, job))
        with self._changed:
            self._changed.notify_all()
        self.on_change(self.require(job))

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            with suppress(OSError):
                worker.close()


def _problem(status: int, detail: str, hint: str) -> JobProblem:
    return JobProblem(status=status, detail=detail, hint=hint)


def _job(row: Row) -> Job:
    values = dict(row)
    for name in ("result", "problem"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return Job.model_validate(values)
