"""The state machine allows what OPC 40100-1 allows, and settings that cannot work are refused."""

from __future__ import annotations

from typing import Any

import pytest
from virtual_line import settings

from anoco_edge.errors import UsageError
from anoco_edge.line.core.settings import CameraSettings, LineProduct, LineSettings
from anoco_edge.line.core.states import OPERATIONAL, TRANSITIONS, Cause, State, VisionStateMachine


def test_reset_and_halt_work_in_every_state() -> None:
    for state in State:
        machine = VisionStateMachine()
        machine.state = state
        machine.fire(Cause.HALT)
        assert machine.state is State.HALTED
        machine.state = state
        machine.fire(Cause.RESET)
        assert machine.state is State.PREOPERATIONAL


def test_only_ready_starts_a_job() -> None:
    starts = {state for state, cause in TRANSITIONS if cause is Cause.START_SINGLE_JOB}
    assert starts == {State.READY}
    assert all(TRANSITIONS[state, Cause.FAIL] is State.ERROR for state in OPERATIONAL)
    left = {cause for state, cause in TRANSITIONS if state is State.ERROR}
    assert left == {Cause.RESET, Cause.HALT}


def test_what_is_not_allowed_names_where_it_is() -> None:
    machine = VisionStateMachine()
    with pytest.raises(UsageError, match="PrepareRecipe is not allowed in Preoperational; wait"):
        machine.fire(Cause.PREPARE_RECIPE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"acquire_ms": 600}, "acquire_ms 600 is not within deadline_ms 500"),
        ({"acquire_ms": 0}, "acquire_ms 0"),
        ({"trigger": "camera", "cameras": ("a", "b")}, "there are 2 cameras"),
    ],
)
def test_settings_that_cannot_work(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings(**change)


def test_a_product_needs_cameras_that_exist() -> None:
    with pytest.raises(UsageError, match="needs cameras"):
        LineSettings((CameraSettings("top"),), (LineProduct(1, "nut", ("side",)),))
    with pytest.raises(UsageError, match="has no product"):
        LineSettings((CameraSettings("top"),), ())
