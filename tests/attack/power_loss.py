"""After a power cut at any call, the state is old or new, although unsynced data is lost.

The calls of each command are recorded with their data and replayed on a model of a disk
(replay.py). After every prefix the model gives states that a cut may leave. Each must be the whole
old or the whole new state, and once the command has reported success it must be the new one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence

import numpy as np

from tests.attack.campaign import Case, Plan
from tests.attack.commands import COMMANDS, Command, NotWholeError, Prepared, prepared
from tests.attack.replay import Disk, Files, outcomes, write_files

SHARE = 0.25  # of the states after which the next command is run, which takes most of the time


def cases(plan: Plan, commands: Sequence[Command] = COMMANDS) -> Iterator[Case]:
    """Try every prefix of every command's trace, or some drawn by the seed."""
    rng = plan.rng()
    for found in prepared(plan, commands):
        if isinstance(found, Case):
            yield found
        else:
            yield from replay(found, plan, rng)


def replay(found: Prepared, plan: Plan, rng: np.random.Generator) -> Iterator[Case]:
    """Yield the distinct states that a cut may leave during one command."""
    disk, seen = Disk(found.template), set[tuple[bytes, bool]]()
    number, total = 0, len(found.events)
    points = set(range(total + 1))
    if plan.short:
        points = {0, total, *(int(k) for k in rng.permutation(total)[:5])}
    for number, event in enumerate((None, *found.events)):
        if event is not None:
            disk.apply(event)
        if number not in points:
            continue
        done = number == total and found.command.durable
        last = f"{event.op.name.lower()} {event.other or event.path}" if event else "the start"
        for words, files in outcomes(disk, rng, plan.choose(3, 1)):
            key = (_digest(files), done)
            if key not in seen:
                seen.add(key)
                name = f"{found.command.name}, power cut after call {number} of {total} ({last})"
                goes_on = rng.random() < SHARE
                yield Case(f"{name}, {words}", _broken(found, files, done, goes_on))


def _digest(files: Files) -> bytes:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{-1 if data is None else len(data)}\0".encode() + (data or b""))
    return digest.digest()


def _broken(found: Prepared, files: Files, done: bool, goes_on: bool) -> str:
    folder = found.cases / "case"
    folder.mkdir()
    try:
        write_files(files, folder)
        found.judge(folder, success=done)
        if goes_on:
            found.go_on(folder)
    except NotWholeError as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
    return ""
