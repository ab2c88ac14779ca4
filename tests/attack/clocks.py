"""When the wall clock steps by hours or decades, only the shown times are odd.

The clock of a device may step while a command runs: a time server answers late, a battery is empty,
or the first start has a wrong date. Generations keep their order, locks and streams wait exactly as
long as they should, and the newest overlays stay.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.attack.campaign import Case, Plan
from tests.attack.commands import (
    COMMANDS,
    LINE,
    Command,
    NotWholeError,
    Prepared,
    last_line,
    prepared,
)
from tests.attack.forks import Ended

HOUR, YEAR = 3600, 31_556_952
OFFSETS = (-60 * YEAR, -10 * YEAR, -YEAR, -HOUR, HOUR, YEAR, 15 * YEAR, 100 * YEAR)
WAIT = 0.5  # seconds that a lock is waited for
SILENCE = 1.0  # seconds after which a stream is lost
LATEST = 30.0  # seconds, for a busy machine; a wait by the wall clock would take hours
_SLOW = ("export", "real", "calibrate ")

Step = tuple[int, int, int]


def cases(plan: Plan, commands: Sequence[Command] = COMMANDS) -> Iterator[Case]:
    """Run each command with clock steps drawn by the seed, then what waits and what deletes."""
    rng = plan.rng()
    for found in prepared(plan, [c for c in commands if not c.name.startswith(_SLOW)]):
        if isinstance(found, Case):
            yield found
            continue
        for _ in range(plan.choose(8, 1)):
            yield _case(found, "", _draw(rng, 12), _command)
        if found.command.name == "enroll again":
            for _ in range(plan.choose(4, 1)):
                yield _case(found, "a lock is held, ", _draw(rng, 12), _waits_for_lock)
                yield _case(found, "a stream runs, ", _draw(rng, 40), _stream_runs)
                yield _case(found, "a stream falls silent, ", _draw(rng, 40), _stream_is_lost)
                yield _case(found, "--keep 2, ", _draw(rng, 12), _keeps_newest)


def _draw(rng: np.random.Generator, reads: int) -> Step:
    """Draw a clock that is right or wrong at first and steps at one of its first reads."""
    before, after = rng.choice([0, 0, *OFFSETS]), rng.choice([0, *OFFSETS])
    return int(before), int(rng.integers(1, reads)), int(after or HOUR)


def _case(
    found: Prepared, what: str, step: Step, attempt: Callable[[Prepared, Path, Step], None]
) -> Case:
    before, turn, after = step
    name = f"{found.command.name}, {what}clock off by {before} s, by {after} s from read {turn} on"
    with found.copy() as folder:
        try:
            attempt(found, folder, step)
        except NotWholeError as error:
            return Case(name, str(error))
    return Case(name)


def _run(found: Prepared, folder: Path, step: Step, *words: str) -> tuple[Ended, float]:
    task = found.task(folder, clock=step)
    start = time.monotonic()
    ended = found.forks.run(replace(task, command=words) if words else task)
    if "Traceback" in ended.err or "internal error" in ended.err or ended.hung:
        raise NotWholeError(f"it showed: {last_line(ended)}")
    return ended, time.monotonic() - start


def _command(found: Prepared, folder: Path, step: Step) -> None:
    """Run a command, which must succeed and leave the new state.

    The next command, by the right clock, must work too.
    """
    ended, _ = _run(found, folder, step)
    if ended.code:
        raise NotWholeError(f"it ended with {ended.code}: {last_line(ended)}")
    found.judge(folder, success=True)
    found.go_on(folder)


def _waits_for_lock(found: Prepared, folder: Path, step: Step) -> None:
    handle = os.open(folder / LINE / "products/default/.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        ended, seconds = _run(found, folder, step, *found.command.run, "--wait", str(WAIT))
    finally:
        os.close(handle)
    if ended.code != 1 or "another process is changing" not in ended.err:
        raise NotWholeError(f"it ended with {ended.code}: {last_line(ended)}")
    if not WAIT <= seconds < LATEST:
        raise NotWholeError(f"it waited {seconds:.1f} s in place of {WAIT} s")


def _stream_runs(found: Prepared, folder: Path, step: Step) -> None:
    """Read a stream of steady frames; a clock that leaps ahead must not look like silence."""
    from command_line import network_camera

    with network_camera(200, pause=0.05) as address:
        words = ("infer", LINE, address, "--limit", "6", "--timeout", "20", "--json")
        ended, _ = _run(found, folder, step, *words)
    frames = sum('"verdict"' in line for line in ended.out.splitlines())
    if ended.code or frames != 6:
        raise NotWholeError(f"{frames} of 6 frames, it ended with {ended.code}: {last_line(ended)}")


def _stream_is_lost(found: Prepared, folder: Path, step: Step) -> None:
    from command_line import network_camera

    with network_camera(200, pause=600) as address:
        words = ("infer", LINE, address, "--timeout", str(SILENCE), "--json")
        ended, seconds = _run(found, folder, step, *words)
    if ended.code != 1:
        raise NotWholeError(f"it ended with {ended.code}: {last_line(ended)}")
    if not SILENCE <= seconds < LATEST:
        raise NotWholeError(f"it waited {seconds:.1f} s in place of {SILENCE} s")


def _keeps_newest(found: Prepared, folder: Path, step: Step) -> None:
    """Overlays of an earlier run are dated in the future, and those of this run must stay."""
    first = ("infer", LINE, "parts0", "--out", "out", "--save", "all")
    ended, _ = _run(found, folder, (0, 0, 0), *first)
    if ended.code:
        raise NotWholeError(last_line(ended))
    for path in (folder / "out").rglob("*.jpg"):
        os.utime(path, (4e9, 4e9))
    ended, _ = _run(
        found, folder, step, "infer", LINE, "parts1", *first[3:], "--keep", "2", "--json"
    )
    if ended.code:
        raise NotWholeError(f"it ended with {ended.code}: {last_line(ended)}")
    rows = json.loads(ended.out)["results"]
    places = [path.parent for path in (folder / "out").rglob("results*.jsonl")]
    for row in rows[-2:]:
        if not any((place / row["overlay"]).is_file() for place in places):
            raise NotWholeError(f"the overlay {row['overlay']} of this run was not kept")
