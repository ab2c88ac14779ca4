"""Runs each case in a fork of one process that has the shim and all imports.

The campaign talks to it in lines of JSON. A fork takes milliseconds, while starting Python with its
imports takes seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from anoco_edge.cli.app import make_app
from tests.attack.fork_server import PATIENCE, ForkServer, fork_server
from tests.attack.shim import Mode, Shim, build_shim

CALL = "call"  # stands in place of a command; the next word names a function as module:function


@dataclass(frozen=True)
class Task:
    """What a fork runs, in which folder, and what happens to its calls there."""

    folder: str
    command: tuple[str, ...]
    mode: int = Mode.COUNT
    number: int = 0
    error: int = 0
    trace: str = ""
    clock: tuple[int, int, int] | None = None
    exchange: bool = True
    cache: str = ""


@dataclass(frozen=True)
class Ended:
    """How a fork ended; a negative code is the signal that killed it."""

    code: int
    out: str
    err: str
    calls: int
    hit: str
    clock_reads: int = 0
    hung: bool = False
    seconds: float = field(default=0.0, compare=False)

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL and not self.hung


class Forks:
    """The campaign's side of the connection."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def run(self, task: Task) -> Ended:
        """Run one task in a fork."""
        return Ended(**self._server.ask(asdict(task)))


@contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    """Start the process; its caches lie in `folder`."""
    variables = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": str(build_shim(folder)),
        "OMP_NUM_THREADS": "1",
    }
    with fork_server("tests.attack.forks", folder, **variables) as server:
        yield Forks(server)


# ---- the process that forks


def _serve(scratch: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write there
    _see_libc_through_the_shim()
    make_app()  # imports the modules of all commands
    shim = Shim()
    for line in sys.stdin:
        given = json.loads(line)
        task = Task(**{**given, "command": tuple(given["command"])})
        answers.write(json.dumps(asdict(_run(task, shim, scratch))) + "\n")
        answers.flush()


def _see_libc_through_the_shim() -> None:
    """Replace functions looked up in libc by name, which would bypass the shim."""
    real = ctypes.CDLL

    class ShimmedLibrary(real):  # type: ignore[misc, valid-type]
        def __init__(self, name: Any, *args: Any, **options: Any) -> None:
            super().__init__(None if "libc.so" in str(name) else name, *args, **options)

    ctypes.CDLL = ShimmedLibrary  # type: ignore[misc]


def _learn(path: Path) -> None:
    """Import what the last fork had to import itself, so that the next ones have it."""
    if path.exists():
        for name in json.loads(path.read_text()):
            with suppress(ImportError):
                import_module(name)
        path.unlink()


def _run(task: Task, shim: Shim, scratch: Path) -> Ended:
    out, err, imported = (scratch / name for name in ("out.txt", "err.txt", "imported.json"))
    shim.step_clock(0, 0, 0)
    shim.arm(task.folder, Mode.OFF)
    child = os.fork()
    if not child:
        code = 70
        try:
            known = set(sys.modules)
            code = _child(task, shim, out, err)
            imported.write_text(json.dumps([m for m in list(sys.modules) if m not in known]))
        except BaseException:  # noqa: BLE001 - the child must not return into the loop
            traceback.print_exc()
        finally:
            os._exit(code)
    handle = os.pidfd_open(child)
    hung = not select.select([handle], [], [], PATIENCE)[0]
    if hung:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(handle)
    _learn(imported)
    said = [path.read_text(errors="replace") for path in (out, err)]
    return Ended(code, *said, shim.calls, shim.hit, shim.clock_reads, hung)


def _child(task: Task, shim: Shim, out: Path, err: Path) -> int:
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(task.folder)
    if task.cache:
        os.environ["XDG_CACHE_HOME"] = task.cache
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    trace = os.open(task.trace, flags, 0o644) if task.trace else -1
    shim.refuse_exchange(not task.exchange)
    if task.clock:
        shim.step_clock(*task.clock)
    shim.arm(task.folder, task.mode, task.number, task.error, trace)
    code = run_command(task.command)
    sys.stdout.flush()
    shim.disarm()
    return code


def run_command(command: Sequence[str]) -> int:
    """Run a command of anoco-edge, or a function, as the program's entry point does."""
    from anoco_edge.cli import main

    try:
        if command[0] == CALL:
            module, _, name = command[1].partition(":")
            getattr(import_module(module), name)(*command[2:])
            return 0
        sys.argv = ["anoco-edge", *command]
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
