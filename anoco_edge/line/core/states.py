"""The state machine of a vision system after OPC 40100-1.

Operational is the state around Initialized, Ready, SingleExecution and ContinuousExecution, which
belong to its automatic mode.
"""

from __future__ import annotations

from enum import Enum

from anoco_edge.errors import UsageError


class State(Enum):
    """The states, by the names of OPC 40100-1."""

    PREOPERATIONAL = "Preoperational"
    INITIALIZED = "Initialized"
    READY = "Ready"
    SINGLE_EXECUTION = "SingleExecution"
    CONTINUOUS_EXECUTION = "ContinuousExecution"
    ERROR = "Error"
    HALTED = "Halted"


class Cause(Enum):
    """What makes the machine change its state; most are the names of methods of OPC 40100-1."""

    SELECT_MODE_AUTOMATIC = "SelectModeAutomatic"
    PREPARE_RECIPE = "PrepareRecipe"
    UNPREPARE_RECIPE = "UnprepareRecipe"
    START_SINGLE_JOB = "StartSingleJob"
    JOB_DONE = "JobDone"
    ABORT = "Abort"
    START_CONTINUOUS = "StartContinuous"
    STOP = "Stop"
    LOST = "Lost"  # a camera or the judge is not there any more
    FAIL = "Fail"
    HALT = "Halt"
    RESET = "Reset"


OPERATIONAL = (
    State.INITIALIZED,
    State.READY,
    State.SINGLE_EXECUTION,
    State.CONTINUOUS_EXECUTION,
)

TRANSITIONS: dict[tuple[State, Cause], State] = {
    (State.PREOPERATIONAL, Cause.SELECT_MODE_AUTOMATIC): State.INITIALIZED,
    (State.INITIALIZED, Cause.PREPARE_RECIPE): State.READY,
    (State.READY, Cause.UNPREPARE_RECIPE): State.INITIALIZED,
    (State.READY, Cause.START_SINGLE_JOB): State.SINGLE_EXECUTION,
    (State.SINGLE_EXECUTION, Cause.JOB_DONE): State.READY,
    (State.SINGLE_EXECUTION, Cause.ABORT): State.READY,
    (State.READY, Cause.START_CONTINUOUS): State.CONTINUOUS_EXECUTION,
    (State.CONTINUOUS_EXECUTION, Cause.STOP): State.READY,
    **{(state, Cause.LOST): State.PREOPERATIONAL for state in OPERATIONAL},
    **{(state, Cause.FAIL): State.ERROR for state in (State.PREOPERATIONAL, *OPERATIONAL)},
    **{(state, Cause.HALT): State.HALTED for state in State},
    **{(state, Cause.RESET): State.PREOPERATIONAL for state in State},
}


class VisionStateMachine:
    """The current state, and the only way to change it.

    >>> machine = VisionStateMachine()
    >>> machine.fire(Cause.SELECT_MODE_AUTOMATIC)
    >>> machine.state.value
    'Initialized'
    >>> machine.fire(Cause.START_SINGLE_JOB)
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: StartSingleJob is not allowed in Initialized; wait for ...
    """

    def __init__(self) -> None:
        self.state = State.PREOPERATIONAL

    def allows(self, cause: Cause) -> bool:
        """Whether there is a transition from here."""
        return (self.state, cause) in TRANSITIONS

    def fire(self, cause: Cause) -> None:
        """Change the state; a cause without a transition from here is a UsageError."""
        if not self.allows(cause):
            allowed = [s.value for s, c in TRANSITIONS if c is cause]
            raise UsageError(
                f"{cause.value} is not allowed in {self.state.value}",
                hint=f"wait for {' or '.join(allowed)}",
            )
        self.state = TRANSITIONS[self.state, cause]
