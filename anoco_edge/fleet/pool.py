"""Hand tasks to workers and return results as they come; replace a worker that dies.

Few tasks are under way at any time, so the memory of the driver does not grow with their number. A
task whose worker died is done again by another worker that has no other task, so that it is known
which task ends workers. After it has ended `ATTEMPTS` workers, the task is given up.

This uses Ray's actors and not Ray Data, because Ray Data gave a row that ends its worker to one new
worker after the other without end, and needs pandas and pyarrow (250 MB) on every machine.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import NotRequired, TypedDict

from anoco_edge import __version__
from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.fleet.cluster import Cluster, reason_of

ATTEMPTS = 3
WAITING = 2  # tasks that a worker has at a time, so that the next is there when one is done
TALK = "talk"  # the concurrency group in which a worker answers while it works
TALK_SECONDS = 2.0  # between two questions to a worker about its progress
# Seconds without a worker, after which the user is told why nothing happens.
PATIENCE_SECONDS = 60.0
START_SECONDS = 600.0  # until the first worker must be ready: a cluster may have to grow first


@dataclass(eq=False)
class Task:
    """A piece of work: its number, and what the worker is given.

    `alone` says that a worker that had this task died, so that no worker gets it together with
    another one. `deaths` counts the workers that died while they had only this task.
    """

    number: int
    payload: Any
    alone: bool = False
    deaths: int = 0


@dataclass(frozen=True)
class Done:
    """A task that is over, with its result, or None where it ended too many workers."""

    task: Task
    result: Any
    worker: str


@dataclass(frozen=True)
class Job:
    """What workers do: `module.name(**given)` makes the object that is called with each payload."""

    module: str
    name: str
    given: Mapping[str, object]


class Greeting(TypedDict):
    """What a new worker answers: its name, then whether it is ready, or the error and exit code."""

    name: str
    ready: NotRequired[bool]
    version: NotRequired[str]
    error: NotRequired[str]
    code: NotRequired[int]


@dataclass
class _Worker:
    actor: Any
    name: str = "a worker"
    ready: bool = False
    tasks: deque[Task] = field(default_factory=deque)
    asked: float = 0.0  # when its progress was last asked for; infinity while that is awaited

    def takes(self, alone: bool) -> bool:
        """Whether the worker can be given one more task."""
        if alone or any(task.alone for task in self.tasks):
            return not self.tasks
        return len(self.tasks) < WAITING


class Pool:
    """Workers on a cluster that all do the same job.

    `say` is called when a worker has died. `listen` is called now and then with the name of a
    worker and how many steps of its task it has done, where the job counts its `steps`.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        say: Callable[[str], None],
        listen: Callable[[str, int], None] | None = None,
    ) -> None:
        self._ray = cluster.ray
        self._cluster = cluster
        self._job = job
        self._say = say
        self._listen = listen
        self._workers: list[_Worker] = []
        self._pending: dict[Any, tuple[_Worker, Task | None]] = {}
        self._questions: dict[Any, _Worker] = {}
        self._waiting: deque[Task] = deque()
        self._began = time.monotonic()
        self._started = self._warned = False
        self._failed_starts = 0  # workers that died before they were ready, in a row

    def run(self, tasks: Iterable[Task]) -> Iterator[Done]:
        """Yield results in the order in which they are ready; the caller may `add` tasks."""
        source = iter(tasks)
        try:
            while True:
                wanted = WAITING * self._cluster.workers - len(self._waiting)
                self._waiting.extend(islice(source, max(0, wanted)))
                self._hand_out()
                if not self._pending:
                    return
                yield from self._next()
        finally:
            for worker in self._workers:
                self._end(worker)

    def add(self, tasks: Iterable[Task]) -> None:
        """Add tasks that are done next."""
        self._waiting.extendleft(tasks)

    def _hand_out(self) -> None:
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self._cluster.workers and len(self._waiting) > starting:
            self._hire()
            starting += 1
        while self._waiting:
            alone = self._waiting[0].alone
            free = [w for w in self._workers if w.ready and w.takes(alone)]
            if not free:
                return
            worker = min(free, key=lambda w: len(w.tasks))
            task = self._waiting.popleft()
            worker.tasks.append(task)
            self._pending[worker.actor.work.remote(task.payload)] = (worker, task)

    def _hire(self) -> None:
        need = self._cluster.resources
        options = {"num_cpus": need["CPU"], "num_gpus": need.get("GPU", 0)}
        actor = self._ray.remote(**options, concurrency_groups={TALK: 1})(_actor_class())
        worker = _Worker(actor.remote())
        self._workers.append(worker)
        self._pending[worker.actor.hello.remote(str(Path.cwd()))] = (worker, None)

    def _next(self) -> Iterator[Done]:
        """Wait for the next answer, and yield the tasks that are over by it."""
        self._ask()
        try:
            awaited = [*self._pending, *self._questions]
            ready, _ = self._ray.wait(awaited, timeout=TALK_SECONDS)
        except Exception as error:  # noqa: BLE001 - Ray's, gRPC's and the system's own kinds
            raise self._lost(error) from None
        if not ready:
            self._check_start()
            return
        if ready[0] in self._questions:
            self._hear(ready[0])
            return
        worker, task = self._pending.pop(ready[0])
        try:
            answer = self._ray.get(ready[0])
        except self._ray.exceptions.RayActorError:
            yield from self._replace(worker)
        except self._ray.exceptions.RayTaskError as error:
            raise task_error(worker.name, error.cause or error) from None
        except Exception as error:  # noqa: BLE001
            raise self._lost(error) from None
        else:
            if task is None:
                self._introduce(worker, answer)
            else:
                worker.tasks.remove(task)
                yield Done(task, answer, worker.name)

    def _ask(self) -> None:
        now = time.monotonic()
        for worker in self._workers if self._listen else ():
            if worker.ready and worker.tasks and now - worker.asked >= TALK_SECONDS:
                worker.asked = math.inf
                asked = worker.actor.progress.options(concurrency_group=TALK).remote()
                self._questions[asked] = worker

    def _hear(self, question: Any) -> None:
        worker = self._questions.pop(question)
        worker.asked = time.monotonic()
        # That a worker died is noticed where its work is awaited.
        with suppress(self._ray.exceptions.RayError):
            steps = self._ray.get(question)
            if self._listen and worker in self._workers:
                self._listen(worker.name, steps)

    def _check_start(self) -> None:
        if self._started:
            return
        waited = time.monotonic() - self._began
        if waited > PATIENCE_SECONDS and not self._warned:
            self._warned = True
            self._say(f"no worker has started on {self._cluster.name} yet: it is busy, or slow")
        if waited > START_SECONDS:
            raise EnvironmentMissingError(
                f"no worker could be started on {self._cluster.name} in {START_SECONDS:.0f} s",
                hint="is the cluster busy? Ask for fewer workers, or wait for it",
            )

    def _introduce(self, worker: _Worker, answer: Greeting) -> None:
        """Take the first answers of a worker: who it is, then that it can work, or why not."""
        if "error" in answer:
            error = AnocoError(f"{answer['name']}: {answer['error']}")
            error.exit_code = answer["code"]
            raise error
        if answer.get("version", __version__) != __version__:
            raise EnvironmentMissingError(
                f"{answer['name']} has anoco-edge {answer['version']}, this is {__version__}",
                hint="install the same version everywhere",
            )
        worker.name = answer["name"]
        worker.ready = answer["ready"]
        if worker.ready:
            self._failed_starts = 0
            self._started = True
        else:
            job = self._job
            opened = worker.actor.open.remote(job.module, job.name, job.given)
            self._pending[opened] = (worker, None)

    def _replace(self, worker: _Worker) -> Iterator[Done]:
        """Give the tasks of a dead worker to others; a task that it had alone may be the reason."""
        self._workers.remove(worker)
        self._pending = {ref: it for ref, it in self._pending.items() if it[0] is not worker}
        self._questions = {ref: w for ref, w in self._questions.items() if w is not worker}
        self._end(worker)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS * self._cluster.workers:
                raise AnocoError(
                    f"workers on {self._cluster.name} die before they can work, {worker.name} last",
                    hint="is there memory enough? Ask for fewer workers",
                )
            self._say(f"{worker.name} died while it started; another one takes its place")
            return
        self._say(f"{worker.name} died; another one takes its place and does its work again")
        tasks = list(worker.tasks)
        for task in tasks:
            task.alone = True
            task.deaths += len(tasks) == 1
        self._waiting.extendleft(task for task in reversed(tasks) if task.deaths < ATTEMPTS)
        yield from (Done(t, None, worker.name) for t in tasks if t.deaths >= ATTEMPTS)

    def _end(self, worker: _Worker) -> None:
        with suppress(Exception):  # the worker may be gone already, or its whole cluster
            self._ray.kill(worker.actor)

    def _lost(self, error: Exception) -> AnocoError:
        return AnocoError(
            f"the connection to {self._cluster.name} was lost: {reason_of(error)[:200]}",
            hint="run the same command again: it continues",
        )


def task_error(worker: str, cause: BaseException) -> AnocoError:
    """Turn the exception of a worker into an error for the user.

    An AnocoError is not a bug: it may say that an engine died.

    >>> str(task_error("worker a:1", AnocoError("the GPU is lost", hint="restart it")))
    'worker a:1: the GPU is lost; restart it'
    """
    if isinstance(cause, AnocoError):
        error = AnocoError(f"{worker}: {cause.what}", hint=cause.hint)
        error.exit_code = cause.exit_code
        return error
    text = f"{worker} failed: {type(cause).__name__}: {cause}"
    return AnocoError(text, hint="this is a bug, please report it")


def _actor_class() -> type:
    """Return the class of the actors.

    It is made in a function, so that Ray sends its code along and it can say that a machine lacks
    this package. It may therefore use nothing from outside.
    """

    class Worker:
        def hello(self, folder: str) -> Greeting:
            """Say who this is, and change to the folder of the driver, so that paths agree."""
            import os
            import socket

            self.name = f"worker {socket.gethostname()}:{os.getpid()}"
            try:
                from anoco_edge import __version__ as version
            except ImportError:
                return self.unable(
                    "anoco-edge is not installed there; install it with: pip install anoco-edge", 3
                )
            try:
                os.chdir(folder)
            except OSError:
                return self.unable(
                    f"there is no folder {folder}; pictures and bundle must lie at the same "
                    "place on every machine",
                    3,
                )
            return {"name": self.name, "version": version, "ready": False}

        def open(self, module: str, name: str, given: Mapping[str, object]) -> Greeting:
            """Make the object that does the work."""
            import importlib

            from anoco_edge.errors import AnocoError

            try:
                self.job = getattr(importlib.import_module(module), name)(**given)
            except AnocoError as error:
                return self.unable(str(error), error.exit_code)
            except ImportError as error:
                return self.unable(f"{error}; install the same extras there as here", 3)
            return {"name": self.name, "ready": True}

        def work(self, payload: Any) -> Any:
            return self.job(payload)

        def progress(self) -> int:
            """Return how many steps are done, while `work` is running."""
            return int(getattr(self.job, "steps", 0))

        def unable(self, error: str, code: int) -> Greeting:
            return {"name": self.name, "error": error, "code": code}

    return Worker
