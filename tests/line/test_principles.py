"""Hypothesis searches for a trace that breaks the principles P1 to P5, and finds planted bugs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from line_world import LineWorld

from anoco_edge.line.core import events as ev
from anoco_edge.line.core.line_core import LineCore
from anoco_edge.line.core.liveness import Liveness
from anoco_edge.line.core.pairing import Pairing
from anoco_edge.line.core.settings import MS, CameraSettings, LineProduct, LineSettings
from anoco_edge.line.words.constants import StatusBit

CAMERA_FAULTS = (
    *("missed", "lost", "late", "slow exposure", "incomplete", "not asked for", "number again"),
)
JUDGE_FAULTS = ("ok", "ok", "hang", "crash", "error", "other generation", "twice", "killed")
DELAYS = (320, 5, 80, 280, 500)  # ms, around the deadline
PACES = (60, 60, 40, 120, 15)
BREAKS = ("dies", "unplugged", "I/O", "halt", "disable")
SEEN: Counter[str] = Counter()


class LineMachine(RuleBasedStateMachine):
    """Triggers, pictures, clocks and crashes, in any order."""

    core_class: type[LineCore] = LineCore

    def __init__(self) -> None:
        super().__init__()
        self.seq = 0

    @initialize(cameras=st.sampled_from([("top",), ("top", "side")]), bits=st.sampled_from([0, 16]))
    def start(self, cameras: tuple[str, ...], bits: Any) -> None:
        config = LineSettings(
            tuple(CameraSettings(name, bits, simulates=True) for name in cameras),
            (LineProduct(1, "washer", cameras), LineProduct(2, "nut", cameras[:1])),
            deadline_ms=300,
            acquire_ms=100,
            hold_ms=200,
            judge_hang_ms=600,
            alive_ms=400,
            fault_after=4,
        )
        self.world = LineWorld(config, self.core_class)
        self.world.start()
        self.world.advance(200)

    @rule(good=st.booleans(), step=st.sampled_from([1, 1, 1, 1, 0, 2]))
    def trigger(self, good: bool, step: int) -> None:
        self.seq = (self.seq + step - 1) % 65535 + 1
        self.world.trigger(self.seq, good)

    @rule(parts=st.lists(st.booleans(), min_size=1, max_size=6), ms=st.sampled_from(PACES))
    def parts_pass_by(self, parts: list[bool], ms: int) -> None:
        for good in parts:
            self.world.tell(ev.Acknowledge())
            self.trigger(good, 1)
            self.world.advance(ms)

    @rule()
    def everything_is_repaired(self) -> None:
        world = self.world
        world.io_dead = False
        for camera in world.cameras.values():
            camera.dead = False
            camera.plans.clear()
            if not camera.connected:
                self.plug(camera)
        world.judge_plans.clear()
        world.prepare_plans.clear()
        for event in (ev.Simulate(False), ev.ChangeProduct(1), ev.Enable(True), ev.Reset()):
            world.tell(event)
        world.advance(800)

    @rule(kind=st.sampled_from(["ok", "crash", "twice"]), delay=st.sampled_from(DELAYS))
    def a_part_meets_a_slow_judge(self, kind: str, delay: int) -> None:
        """What hypothesis draws depends on the modules that are loaded; this it meets anyway."""
        self.everything_is_repaired()
        self.world.judge_plans.append((kind, delay))
        self.trigger(True, 1)
        self.world.advance(400)

    @rule(good=st.booleans(), delay=st.sampled_from([120, 140, 160]))
    def a_picture_meets_the_next_part(self, good: bool, delay: int) -> None:
        """The picture of a part comes when that is decided, before that of the next part."""
        self.everything_is_repaired()
        self.camera(False).plans.extend([("late", delay), ("late", 60)])
        self.trigger(good, 1)
        self.world.advance(110)
        self.world.tell(ev.Acknowledge())
        self.trigger(not good, 1)
        self.world.advance(400)

    @rule(ms=st.sampled_from([1, 5, 20, 50, 100, 250, 400]), stall=st.sampled_from([0, 0, 0, 1]))
    def time_passes(self, ms: int, stall: int) -> None:
        self.world.advance(ms, stall=bool(stall))

    @rule(event=st.sampled_from([ev.Acknowledge(), ev.Reset(), ev.Abort()]))
    def plc_answers(self, event: Any) -> None:
        self.world.tell(event)
        self.world.advance(20)

    @rule(kind=st.sampled_from(CAMERA_FAULTS), delay=st.integers(1, 400), which=st.booleans())
    def camera_fails_once(self, kind: str, delay: int, which: bool) -> None:
        """The fault of the next request, or an exposure that nobody asked for."""
        if kind == "not asked for":
            self.world.expose(self.camera(which))
        else:
            self.camera(which).plans.append((kind, delay))

    @rule(kind=st.sampled_from(JUDGE_FAULTS), delay=st.sampled_from(DELAYS))
    def judge_fails_once(self, kind: str, delay: int) -> None:
        if kind == "killed":
            self.world.kill_judge(self.world.judge)
        else:
            self.world.judge_plans.append((kind, delay))

    @rule(
        kind=st.sampled_from(["dies", "unplugged", "I/O", "halt", "disable"]), which=st.booleans()
    )
    def something_breaks_for_long(self, kind: str, which: bool) -> None:
        """A camera that dies says nothing at all; only one that is unplugged is reported."""
        camera = self.camera(which)
        if kind == "dies":
            camera.dead ^= True
        elif kind == "unplugged" and camera.connected:
            camera.connected = False
            self.world.tell(ev.CameraDown(camera.name, "unplugged"))
        elif kind == "unplugged":
            self.plug(camera)
        elif kind == "I/O":
            self.world.io_dead ^= True
        else:
            self.world.tell(ev.Halt() if kind == "halt" else ev.Enable(False))

    @rule(number=st.sampled_from([1, 2, 9]), kind=st.sampled_from(["ok", "ok", "fails", "hangs"]))
    def product_changes(self, number: int, kind: str) -> None:
        self.world.prepare_plans.append((kind, 30))
        self.world.tell(ev.ChangeProduct(number))

    @rule(pause=st.booleans(), ms=st.integers(0, 30))
    def a_person_looks(self, pause: bool, ms: int) -> None:
        """Pauses the station, has pictures taken, and lets it go on while one may be under way."""
        self.world.tell(ev.Maintenance(pause))
        for camera in self.world.cameras:
            self.world.tell(ev.LivePicture(camera))
        self.world.advance(ms)
        self.world.tell(ev.Maintenance(False))

    @rule(ms=st.sampled_from([0, 3, 20]), parts=st.integers(0, 2))
    def stored_pictures_take_the_place(self, ms: int, parts: int) -> None:
        """Simulates for a while; the pictures before and after may be under way."""
        for on in (True, False):
            self.world.tell(ev.Simulate(on))
            self.world.advance(ms)
            for _ in range(parts):
                self.world.tell(ev.Acknowledge())
                self.trigger(False, 1)
                self.world.advance(60)

    @rule()
    def product_is_taught_again(self) -> None:
        self.world.generation += 1
        self.world.tell(ev.NewGeneration())

    @rule()
    def station_is_killed(self) -> None:
        self.world.crash()
        self.world.advance(100)

    def plug(self, camera: Any) -> None:
        camera.connected, camera.counter, camera.progress = True, 0, self.world.now
        self.world.tell(ev.CameraUp(camera.name))

    def camera(self, which: bool) -> Any:
        cameras = list(self.world.cameras.values())
        return cameras[-1 if which else 0]

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check_end()
            SEEN["traces"] += 1
            SEEN["events"] += self.world.steps
            SEEN.update(record.verdict for record in self.world.outcomes.values())
            SEEN.update(record.reason.name for record in self.world.outcomes.values())
            SEEN["simulated"] += sum(each.simulated for each in self.world.outcomes.values())


def search(
    machine: type[RuleBasedStateMachine], examples: int, steps: int = 40, *, shrink: bool = True
) -> None:
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)


def report(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = ", ".join(f"{SEEN[name]} {name}" for name in ("good", "anomalous", "no-verdict"))
    with capsys.disabled():
        print(f"\nP1 to P5 held in {SEEN['traces']} traces of {SEEN['events']} events: {verdicts}")


def test_no_trace_breaks_the_principles(capsys: pytest.CaptureFixture[str]) -> None:
    SEEN.clear()
    search(LineMachine, examples=150)
    report(capsys)
    assert SEEN["traces"] >= 150
    assert SEEN["good"] > 20 and SEEN["anomalous"] > 20, "hardly any part was judged"
    assert not [name for name in ("DEADLINE", "OUT_OF_STEP", "JUDGE_DOWN") if not SEEN[name]]


@pytest.mark.full
def test_no_longer_trace_breaks_the_principles(capsys: pytest.CaptureFixture[str]) -> None:
    SEEN.clear()
    search(LineMachine, examples=3000, steps=80)
    report(capsys)
    assert SEEN["traces"] >= 1500
    often = ("DEADLINE", "NO_PICTURE", "OUT_OF_STEP", "CAMERA_DOWN", "JUDGE_DOWN", "NOT_ALIVE")
    assert not [name for name in often if not SEEN[name]]


# ---- planted bugs


class LateVerdictPutOut(LineCore):
    """Planted: an opinion that comes after the deadline is put on the wires all the same."""

    def _on_judge_answer(self, event: ev.JudgeAnswer) -> None:
        late = self._part is None
        super()._on_judge_answer(event)
        if late and event.opinion.verdict == "good":
            self._outputs.held_until = self._now + 100 * MS
            self._outputs._verdict = StatusBit.PASS


def picture_of_the_part_before(self: Pairing, picture: ev.Picture) -> Any:
    """Planted: whatever arrives after the trigger is taken for its picture."""
    if self._offset is None:
        return self._answer_test(picture)
    return "current" if self._requests else "out of step"


def dead_without_cameras(self: Liveness, now: int) -> list[str]:
    """Planted: nobody looks whether the camera still answers."""
    late = [name for name, until in self._until.items() if now > until]
    return [name for name in late if not name.startswith("camera:")]


def test_a_late_verdict_that_is_put_out_is_found() -> None:
    class Machine(LineMachine):
        core_class = LateVerdictPutOut

    with pytest.raises(
        AssertionError, match=r"P2: put out is not what was decided|P4: a result of"
    ):
        search(Machine, examples=300, steps=25, shrink=False)


def test_a_picture_of_the_part_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pairing, "answer", picture_of_the_part_before)
    # A part that takes two pictures forgets to let the first of them go.
    found = r"P3: the picture shows another part|P1: (exposed|not judged)|frames were never let go"
    with pytest.raises(AssertionError, match=found):
        search(LineMachine, examples=300, steps=25, shrink=False)


def test_the_heartbeat_of_a_dead_camera_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Liveness, "dead", dead_without_cameras)
    with pytest.raises(AssertionError, match=r"P5: the heartbeat advanced: |READY: |P1: good on"):
        search(LineMachine, examples=300, steps=25, shrink=False)
