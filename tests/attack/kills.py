"""SIGKILL before, within and after every call that changes a file: the state is old or new.

A kill after a call is a kill before the next one, so the points are before each call, in the middle
of each write, and after the last call. Then the next command must work and delete what the dead
process left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.attack.campaign import Case, Plan
from tests.attack.commands import COMMANDS, Command, NotWholeError, Prepared, prepared
from tests.attack.shim import Mode


def cases(plan: Plan, commands: Sequence[Command] = COMMANDS) -> Iterator[Case]:
    """Kill every command at every point, or at some drawn by the seed."""
    rng = plan.rng()
    for found in prepared(plan, commands):
        if isinstance(found, Case):
            yield found
            continue
        points = [(Mode.KILL_BEFORE, number) for number in range(1, found.calls + 1)]
        points += [(Mode.KILL_WITHIN, number) for number in found.writes]
        points += [(Mode.KILL_AFTER, found.calls)]
        for mode, number in found.drawn(points, plan, rng):
            yield kill(found, mode, number)


def kill(found: Prepared, mode: Mode, number: int) -> Case:
    """Run one case."""
    with found.copy() as folder:
        ended = found.forks.run(found.task(folder, mode=mode, number=number))
        when = mode.name.removeprefix("KILL_").lower()
        name = f"{found.command.name}, killed {when} call {number} of {found.calls}: {ended.hit}"
        try:
            if not ended.killed:
                if ended.code or ended.hung:
                    raise NotWholeError(f"it was not killed but ended with {ended.code}")
                found.judge(folder, success=True)
            found.judge(folder)
            found.go_on(folder)
        except NotWholeError as error:
            return Case(name, str(error))
        return Case(name)
