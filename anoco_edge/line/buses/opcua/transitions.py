"""The two state machines of OPC 40100-1, and the transitions between their states by name."""

from __future__ import annotations

from anoco_edge.line.core.effects import StateChange
from anoco_edge.line.core.states import OPERATIONAL, Cause, State

MACHINE = "VisionStateMachine"
AUTOMATIC = f"{MACHINE}/AutomaticModeStateMachine"
_SUFFIXES = {
    Cause.HALT: "",
    Cause.RESET: "",
    Cause.START_SINGLE_JOB: "",
    Cause.START_CONTINUOUS: "",
    Cause.STOP: "Stop",
    Cause.ABORT: "Abort",
}
"""What the standard adds to the name of a transition. A change that the station makes by itself is
"Auto"; one by a command is that of its method, by whichever bus the command came."""


def states_of(state: State) -> tuple[str, str]:
    """Return the states of both machines; the automatic mode has none unless it is operational.

    >>> states_of(State.READY), states_of(State.ERROR)
    (('Operational', 'Ready'), ('Error', ''))
    """
    return ("Operational", state.value) if state in OPERATIONAL else (state.value, "")


def transition_of(change: StateChange) -> tuple[str, str, str, str]:
    """Return the machine that made a transition, its states before and after, and its name.

    >>> transition_of(StateChange(State.SINGLE_EXECUTION, State.READY, Cause.JOB_DONE))[2:]
    ('Ready', 'SingleExecutionToReadyAuto')
    >>> transition_of(StateChange(State.READY, State.HALTED, Cause.HALT))[1:]
    ('Operational', 'Halted', 'OperationalToHalted')
    """
    (outer, inner), (outer_after, inner_after) = map(states_of, (change.before, change.after))
    path, before, after = MACHINE, outer, outer_after
    if outer == outer_after:
        path, before, after = AUTOMATIC, inner, inner_after
    return path, before, after, f"{before}To{after}{_SUFFIXES.get(change.cause, 'Auto')}"
