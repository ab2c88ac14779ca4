"""EIO, ENOSPC, EDQUOT, EROFS, EINTR and short writes at every call that changes a file.

A command that fails says so in one line with a documented exit code, and the line is true: "nothing
was changed" when every file is as it was, "committed" when the change is there. A call that the
system only interrupted or shortened is no failure.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence

from tests.attack.campaign import Case, Plan
from tests.attack.commands import (
    COMMANDS,
    Command,
    NotWholeError,
    Prepared,
    State,
    files_of,
    last_line,
    prepared,
)
from tests.attack.forks import Ended
from tests.attack.shim import Mode

EXIT_CODES = {1}  # StorageError
SHARE = 0.3  # of the calls with another fault, and of the cases after which the next command runs
_COMMITTED = re.compile(r"committed|was made|was written|is in place|threshold is set")

Fault = tuple[Mode, int]
_ALWAYS: tuple[Fault, ...] = ((Mode.FAIL, errno.EIO), (Mode.FAIL_FROM, errno.ENOSPC))
_OTHERS: tuple[Fault, ...] = (
    (Mode.FAIL, errno.ENOSPC),
    (Mode.FAIL, errno.EDQUOT),
    (Mode.FAIL, errno.EROFS),
    (Mode.FAIL_FROM, errno.EROFS),
    (Mode.FAIL_FROM, errno.EIO),
    (Mode.FAIL, errno.EINTR),
)


def cases(plan: Plan, commands: Sequence[Command] = COMMANDS) -> Iterator[Case]:
    """Yield the faults of every call: EIO, a disk that is full from there on, and short writes.

    Some calls also get another fault, drawn by the seed.
    """
    rng = plan.rng()
    for found in prepared(plan, commands):
        if isinstance(found, Case):
            yield found
            continue
        before = files_of(found.template)
        points = [
            (fault, number)
            for number in range(1, found.calls + 1)
            for fault in (*_ALWAYS, _OTHERS[rng.integers(len(_OTHERS))])
            if fault in _ALWAYS or plan.short or rng.random() < SHARE
        ]
        points += [((Mode.SHORT, 0), number) for number in found.writes]
        for fault, number in found.drawn(points, plan, rng):
            goes_on = plan.short or rng.random() < SHARE
            yield attack(found, fault, number, before, goes_on)


def attack(
    found: Prepared, fault: Fault, number: int, before: dict[str, bytes], goes_on: bool
) -> Case:
    """Run one case."""
    mode, error = fault
    with found.copy() as folder:
        ended = found.forks.run(found.task(folder, mode=mode, number=number, error=error))
        what = "a short write" if mode is Mode.SHORT else errno.errorcode[error]
        since = " from" if mode is Mode.FAIL_FROM else ""
        name = f"{found.command.name}, {what}{since} at call {number} of {found.calls}: {ended.hit}"
        try:
            state = found.judge(folder, success=not ended.code)
            if ended.code:
                _check_words(found, ended, state)
                if mode is Mode.SHORT or error == errno.EINTR:
                    raise NotWholeError(f"it failed: {last_line(ended)}")
                if "nothing was changed" in ended.err:
                    _check_files(found, before, files_of(folder), mode)
            if goes_on:
                found.go_on(folder)
        except NotWholeError as broken:
            return Case(name, str(broken))
        return Case(name)


def _check_files(
    found: Prepared, before: dict[str, bytes], after: dict[str, bytes], mode: Mode
) -> None:
    """Check that nothing was changed.

    If the disk no longer permits deleting, unused new files may stay until the next command.
    """
    if mode is Mode.FAIL_FROM or not found.command.old_after_failure:
        after = {name: data for name, data in after.items() if name in before}
    if after != before and found.command.old_after_failure:
        names = sorted(n for n in {*before, *after} if before.get(n) != after.get(n))
        raise NotWholeError(f"nothing was changed, it says, but {', '.join(names)}")


def _check_words(found: Prepared, ended: Ended, state: State) -> None:
    """Check that the message is one true line, with the right exit code."""
    line = last_line(ended)
    if ended.hung or ended.code not in EXIT_CODES:
        raise NotWholeError(f"it ended with {'no end' if ended.hung else ended.code}: {line}")
    if "Traceback" in ended.err or "internal error" in ended.err:
        raise NotWholeError(f"it showed: {line}")
    if not line.startswith("anoco-edge: "):
        raise NotWholeError(f"the last line is no error line: {line}")
    committed = state == found.new != found.old and not found.command.stepwise
    if committed and not _COMMITTED.search(ended.err):
        raise NotWholeError(f"the change is there, and it does not say so: {line}")
    if _COMMITTED.search(line) and state == found.old != found.new:
        raise NotWholeError(f"it says that the change is there, and it is not: {line}")
