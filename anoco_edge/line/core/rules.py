"""The rules of the core that hold whatever the event was: readiness, time, states, outcomes."""

from __future__ import annotations

from anoco_edge.line.core.acquisition import Acquisition
from anoco_edge.line.core.changeover import Changeover
from anoco_edge.line.core.effects import (
    CaptureRecord,
    Effect,
    Level,
    PartRecord,
    PutOut,
    RecordAccepted,
    RecordPart,
    ReplaceJudge,
    Reply,
    Say,
    StateChange,
    TakePicture,
    TellStatus,
)
from anoco_edge.line.core.events import Candidate, PreparedProduct
from anoco_edge.line.core.judge_slot import JudgeSlot
from anoco_edge.line.core.liveness import Liveness
from anoco_edge.line.core.outputs import Outputs
from anoco_edge.line.core.part import Outcome, Part
from anoco_edge.line.core.plc_link import PlcLink
from anoco_edge.line.core.sequence import Sequence
from anoco_edge.line.core.settings import MS, LineSettings
from anoco_edge.line.core.states import OPERATIONAL, Cause, State, VisionStateMachine
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.words.constants import Reason, StatusBit
from anoco_edge.line.words.registers import clean_part_code
from anoco_edge.line.words.table import REASONS

_GIVEN_UP = (Reason.RESET, Reason.HALTED)
"""Parts without a verdict because a person or the PLC wanted it so; they are no sign of a fault."""


_OF_EACH_PART = (Reason.BUSY, Reason.NOT_ACKNOWLEDGED)
_MEANINGS = {Reason(code.number): code.meaning for code in REASONS}


class CoreRules:
    """The state of a line and what follows from it by itself; `LineCore` adds the events."""

    def __init__(
        self, settings: LineSettings, run: str, counters: Counters | None = None, now: int = 0
    ) -> None:
        self._settings = settings
        self._run = run
        self._serial = 0
        self._now = now
        self._machine = VisionStateMachine()
        self._cameras = Acquisition(settings)
        self._judge = JudgeSlot(settings)
        numbers = [product.number for product in settings.products]
        self._change = Changeover(numbers[0], numbers)
        components = [*(f"camera:{camera.name}" for camera in settings.cameras), "judge", "io"]
        self._life = Liveness(components, settings.alive_ms)
        self._sequence = Sequence()
        self._outputs = Outputs(settings)
        self._plc = PlcLink(settings.plc_timeout_ms)
        self.counters = counters or Counters()
        self._part: Part | None = None
        self._no_verdicts = 0
        self._warnings: set[str] = set()
        self._enabled = False
        self._maintenance = False
        self._room = True
        self._candidate: Candidate | None = None
        self._simulate = False
        self._ready_since: int | None = None
        self._said: Reason | None = None
        self._shown = Status(counters=self.counters)
        self._effects: list[Effect] = []
        self._replies: list[Reply | TellStatus] = []

    @property
    def state(self) -> State:
        """The state after OPC 40100-1."""
        return self._machine.state

    @property
    def product(self) -> PreparedProduct | None:
        """The product that judges the next part; None while there is none."""
        return self._change.current

    @property
    def status(self) -> Status:
        """The status that was put out last."""
        return self._shown

    @property
    def warnings(self) -> frozenset[str]:
        """The names of what WARNING stands for; any thread may ask."""
        return frozenset(self._warnings)

    @property
    def connected_cameras(self) -> frozenset[str]:
        """The names of the cameras that are there; any thread may ask."""
        return self._cameras.connected

    @property
    def hung(self) -> list[str]:
        """The components that stopped without a word, so that a restart may help."""
        return self._life.hung(self._now)

    def refusal(self) -> Reason:
        """Return why a trigger could not be served now; NONE where it could.

        READY follows from this function, and so does what happens to a trigger.
        """
        dead = self._life.dead(self._now)
        reasons = (
            (self.state is State.ERROR, Reason.FAULT),
            (self.state is State.HALTED, Reason.NOT_READY),
            (self._maintenance, Reason.MAINTENANCE),
            (not self._enabled, Reason.DISABLED),
            (self._part is not None, Reason.BUSY),
            (not self._cameras.up, Reason.CAMERA_DOWN),
            (not self._cameras.in_step, Reason.OUT_OF_STEP),
            (self._judge.judge is None, Reason.JUDGE_DOWN),
            (self._change.waits, Reason.PRODUCT_CHANGE),
            (not self._judge.idle, Reason.BUSY),
            (self._outputs.awaits_acknowledge, Reason.NOT_ACKNOWLEDGED),
            (not self._plc.linked, Reason.PLC_LINK_LOST),
            (not self._room, Reason.RECORDER_FULL),
            (self._cameras.simulated != self._simulate, Reason.NOT_READY),
            (bool(dead), Reason.NOT_ALIVE),
            (self.state not in (State.READY, State.CONTINUOUS_EXECUTION), Reason.NOT_READY),
        )
        return next((reason for applies, reason in reasons if applies), Reason.NONE)

    # ---- time

    def _pass_time(self) -> None:
        part = self._part
        if part is not None and not part.acquired and self._now >= part.acquire_until:
            self._decide(Outcome("no-verdict", Reason.NO_PICTURE))
        elif part is not None and self._now >= part.deadline:
            self._decide(Outcome("no-verdict", Reason.DEADLINE))
        if self._outputs.expire(self._now):
            self._warn("not-acknowledged", "a result was not acknowledged within hold_ms")
        hangs_at = self._judge.hangs_at()
        if hangs_at is not None and self._now >= hangs_at:
            too_long = self._judge.preparing_too_long(self._now)
            self._lose_judge("it hangs")
            for number in too_long:
                self._change.fail(number, "it took longer than prepare_ms")
        if self._plc.pass_time(self._now):
            self._say("warning", "the heartbeat of the PLC is lost")

    def _settle(self) -> None:
        """Do what follows by itself from the state of cameras, judge and products."""
        if self._part is None:
            self._forget(self._change.switch())
            if self._cameras.simulated != self._simulate and self._outputs.held_until is None:
                self._cameras.simulate(self._simulate)
        if not self._change.complete:
            self._effects += self._judge.prepare(self._change.needed, self._now)
        self._follow_states()
        if self.state is State.PREOPERATIONAL:
            for camera in self._cameras.ask_for_tests(self._now):
                self._take_picture(camera)

    def _follow_states(self) -> None:
        able = self._cameras.in_step and self._judge.judge is not None
        wired = self._settings.trigger == "camera"
        prepared = not self._change.waits
        idle = self._part is None
        if self.state in OPERATIONAL and idle and not able:
            self._move(Cause.LOST)
        if self.state is State.PREOPERATIONAL and able:
            self._move(Cause.SELECT_MODE_AUTOMATIC)
        run = wired and self._enabled and prepared
        if self.state is State.CONTINUOUS_EXECUTION and idle and not run:
            self._move(Cause.STOP)
        if self.state is State.READY and not prepared:
            self._move(Cause.UNPREPARE_RECIPE)
        if self.state is State.INITIALIZED and prepared:
            self._move(Cause.PREPARE_RECIPE)
        if self.state is State.READY and run:
            self._move(Cause.START_CONTINUOUS)

    def _take_picture(self, camera: str, uid: str = "") -> None:
        self._effects.append(TakePicture(camera, uid, self._cameras.takes_stored(camera)))

    # ---- outcomes

    def _accept(self, seq: int, part_code: str, client: str, trigger_at: int) -> Part:
        product = self._change.current
        assert product is not None
        settings = self._settings
        cameras = next(p.cameras for p in settings.products if p.number == product.number)
        part = Part(
            self._uid(),
            seq,
            clean_part_code(part_code),
            client,
            trigger_at,
            trigger_at + settings.deadline_ms * MS,
            trigger_at + settings.acquire_ms * MS,
            product,
            [CaptureRecord(camera) for camera in cameras],
            self._cameras.simulated,
        )
        self._part = part
        self._sequence.accept(seq)
        if self.state is State.READY:
            self._move(Cause.START_SINGLE_JOB)
        self._effects.append(RecordAccepted(part.uid, seq, part.part_code, trigger_at, client))
        return part

    def _refuse(self, seq: int, part_code: str, client: str, reason: Reason) -> None:
        self.counters = self.counters.plus("missed")
        self._outputs.missed = True
        record = PartRecord(
            self._uid(),
            seq,
            clean_part_code(part_code),
            client,
            accepted=False,
            trigger_at=self._now,
            decided_at=self._now,
            verdict="no-verdict",
            reason=reason,
            simulated=self._cameras.simulated,
        )
        self._effects.append(RecordPart(record))
        if client:
            self._replies.append(Reply(client, record))

    def _uid(self) -> str:
        self._serial += 1
        return f"{self._run}-{self._serial:06d}"

    def _decide(self, outcome: Outcome) -> None:
        """Decide the pending part, put the outcome out and record it, once."""
        part = self._part
        if part is None:
            return
        if outcome.verdict == "good" and self._life.dead(self._now):
            outcome = Outcome("no-verdict", Reason.NOT_ALIVE)
        if not part.decide(outcome):
            return
        self._part = None
        name = {"good": "good", "anomalous": "fail", "no-verdict": "no_verdict"}[outcome.verdict]
        self.counters = self.counters.plus(name)
        record = part.record(self._now)
        self._outputs.put(record, self._now)
        self._effects.append(RecordPart(record))
        for client in filter(None, (part.client, *part.repeats)):
            self._replies.append(Reply(client, record))
        if self.state is State.SINGLE_EXECUTION:
            given_up = outcome.reason is Reason.RESET
            self._move(Cause.ABORT if given_up else Cause.JOB_DONE)
        if outcome.verdict != "no-verdict":
            self._no_verdicts = 0
        elif outcome.reason not in _GIVEN_UP:
            self._no_verdicts += 1
            if self._no_verdicts >= self._settings.fault_after:
                self._fault(f"{self._no_verdicts} parts in a row had no verdict")

    def _lose_judge(self, why: str, *, replace_it: bool = True) -> None:
        judge = self._judge.judge
        assert judge is not None
        self._judge.clear()
        self._change.lose()
        self._life.lost("judge")
        self._say("error", f"judge {judge} is lost: {why}")
        if replace_it:
            self._effects.append(ReplaceJudge(judge, why))
        self._decide(Outcome("no-verdict", Reason.JUDGE_DOWN))

    # ---- what is shown

    def _put_out(self) -> None:
        refusal = self.refusal()
        self._say_ready(refusal)
        ready = refusal is Reason.NONE
        if not ready:
            self._ready_since = None
        elif self._ready_since is None:
            self._ready_since = self._now
        part, product = self._part, self._change.current
        bits = self._outputs.bits
        for on, bit in (
            (ready, StatusBit.READY),
            (part is not None and not part.acquired, StatusBit.EXPOSING),
            (part is not None, StatusBit.BUSY),
            (self.state is State.ERROR, StatusBit.FAULT),
            (bool(self._warnings), StatusBit.WARNING),
            (self._plc.linked, StatusBit.PLC_LINK),
            (self._maintenance, StatusBit.MAINTENANCE),
            (self._cameras.simulated, StatusBit.SIMULATED),
        ):
            bits |= bit if on else StatusBit(0)
        status = Status(
            bits,
            self._life.heartbeat,
            product.number if product else 0,
            product.generation if product else 0,
            product.checksum if product else 0,
            self._outputs.words,
            self.counters,
            self._candidate or Candidate(),
        )
        if status != self._shown:
            self._shown = status
            self._effects.append(PutOut(status))

    def _move(self, cause: Cause) -> None:
        before = self.state
        self._machine.fire(cause)
        if self.state is not before:
            self._effects.append(StateChange(before, self.state, cause))

    def _say_ready(self, refusal: Reason) -> None:
        """Say when the station gets ready, and why it is not; each part makes it busy for a while,
        which is no news."""
        if refusal in _OF_EACH_PART or refusal is self._said:
            return
        self._said = refusal
        why = f"not ready ({refusal.name}): {_MEANINGS[refusal]}"
        self._say("info", "ready" if refusal is Reason.NONE else why)

    def _forget(self, product: PreparedProduct | None) -> None:
        if product is not None:
            self._effects += self._judge.forget(product)

    def _warn(self, name: str, text: str) -> None:
        self._warnings.add(name)
        self._say("warning", text)

    def _fault(self, why: str) -> None:
        self._say("error", f"FAULT: {why}")
        self._move(Cause.FAIL)

    def _say(self, level: Level, text: str) -> None:
        self._effects.append(Say(level, text))
