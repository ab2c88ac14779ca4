"""The core of a line: one trigger, one picture for each capture, one verdict, one output.

The core is plain code for one thread. It does no input and output and reads no clock: its owner
passes each event with the time at which it is handled and carries out the effects that come back.
Between events it wants to be called (with `Tick`) at `next_wakeup()`.

A part is good only if its own trigger was accepted, every picture of it was exposed after that
trigger and within the window, all of them were judged by the prepared product before the deadline,
and the station was alive. Everything else is `anomalous`, or `no-verdict` with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anoco_edge.line.core import events as ev
from anoco_edge.line.core.effects import (
    CaptureRecord,
    DecideCandidate,
    Effect,
    FrameKey,
    JudgePicture,
    RecordLate,
    ReleaseFrame,
    TellStatus,
)
from anoco_edge.line.core.part import Outcome, Part
from anoco_edge.line.core.rules import CoreRules
from anoco_edge.line.core.settings import LineSettings
from anoco_edge.line.core.states import OPERATIONAL, Cause, State
from anoco_edge.line.core.status import Counters
from anoco_edge.line.words.constants import Reason
from anoco_edge.line.words.registers import clean_part_code


class LineCore(CoreRules):
    """All rules of a line. `run` names this start of the station and begins every uid."""

    def __init__(
        self, settings: LineSettings, run: str, counters: Counters | None = None, now: int = 0
    ) -> None:
        super().__init__(settings, run, counters, now)
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.Trigger: self._on_trigger,
            ev.TriggerRelease: self._on_trigger_release,
            ev.Enable: self._on_enable,
            ev.Acknowledge: self._on_acknowledge,
            ev.Reset: self._on_reset,
            ev.Abort: lambda _: self._decide(Outcome("no-verdict", Reason.RESET)),
            ev.Halt: self._on_halt,
            ev.ChangeProduct: self._on_change_product,
            ev.Simulate: self._on_simulate,
            ev.PlcBeat: self._on_plc_beat,
            ev.StatusQuery: lambda query: self._replies.append(TellStatus(query.client)),
            ev.IoProgress: lambda _: self._life.progress("io", self._now),
            ev.Maintenance: self._on_maintenance,
            ev.LivePicture: self._on_live_picture,
            ev.NewGeneration: self._on_new_generation,
            ev.CandidateReport: self._on_candidate_report,
            ev.CandidateDecision: self._on_candidate_decision,
            ev.CameraUp: self._on_camera_up,
            ev.CameraDown: self._on_camera_down,
            ev.CameraProgress: self._on_camera_progress,
            ev.Picture: self._on_picture,
            ev.JudgeUp: self._on_judge_up,
            ev.JudgeDown: self._on_judge_down,
            ev.JudgeProgress: self._on_judge_progress,
            ev.ProductReady: self._on_product_ready,
            ev.PreparationFailure: self._on_preparation_failure,
            ev.JudgeAnswer: self._on_judge_answer,
            ev.RecorderRoom: self._on_recorder_room,
            ev.Tick: lambda _: None,
        }

    # ---- what the owner calls

    def handle(self, event: ev.Event, now: int) -> list[Effect]:
        """Handle one event at the time `now`; deadlines that have passed come first.

        A time before that of the last event is taken for that one: time does not run back.
        """
        self._now = max(self._now, now)
        self._effects, self._replies = [], []
        self._pass_time()
        self._settle()
        self._put_out()
        self._handlers[type(event)](event)
        self._settle()
        self._life.beat(self._now)  # not before: the event may say that something has died
        self._put_out()
        # Answers come after the outputs, so that who has one can rely on them.
        return [*self._effects, *self._replies]

    def next_wakeup(self) -> int:
        """Return when something happens by time alone."""
        part = self._part
        times = [
            self._life.next_beat,
            self._outputs.held_until,
            self._judge.hangs_at(),
            self._plc.lost_at(),
        ]
        if self.state is State.PREOPERATIONAL:
            times.append(self._cameras.next_test())
        if part is not None:
            times.append(part.deadline if part.acquired else part.acquire_until)
        return min(time for time in times if time is not None)

    # ---- triggers

    def _on_trigger(self, event: ev.Trigger) -> None:
        part = self._part
        if part is not None and self._repeats(event, part):
            self._outputs.trigger_ack |= not event.client
            if event.client:
                part.repeats.append(event.client)
            return
        if self._settings.trigger == "camera":
            self.counters = self.counters.plus("triggers")
            self._refuse(event.seq, event.part_code, event.client, Reason.WIRED)
            return
        seq = self._sequence.number(event.seq)
        order = self._sequence.check(event.seq)
        self._sequence.note(seq)
        self.counters = self.counters.plus("triggers")
        refusal = self.refusal()
        if refusal is Reason.NONE and order == "decided":
            refusal = Reason.SEQUENCE_REPEATED
        elif order == "jump":
            self._warn("sequence", f"the number of the part jumped to {seq}")
            if refusal is Reason.NONE and self._settings.strict_sequence:
                refusal = Reason.SEQUENCE_JUMP
        else:
            self._warnings.discard("sequence")
        if refusal is not Reason.NONE:
            self._refuse(seq, event.part_code, event.client, refusal)
            if part is not None:  # what is exposed from now on may show the part after it
                self._cameras.close(self._now)
                asked = event.client in (part.client, *part.repeats)
                if asked and event.seq == part.seq:  # it could not tell which part a PASS is of
                    self._decide(Outcome("no-verdict", Reason.SEQUENCE_REPEATED))
            if refusal is Reason.SEQUENCE_JUMP:
                self._fault(f"the number of the part jumped to {seq}")
            return
        # A trigger that had to wait begins its times when it came: the part may have moved on.
        came = min(event.received or self._now, self._now)
        part = self._accept(seq, event.part_code, event.client, came)
        self._outputs.begin_part(trigger_ack=not event.client)
        for capture in part.captures:
            self._cameras.ask(capture.camera, self._now, part.acquire_until)
            self._take_picture(capture.camera, part.uid)

    def _repeats(self, event: ev.Trigger, part: Part) -> bool:
        """Whether a trigger is that of the pending part once more. Another code is another part."""
        code = clean_part_code(event.part_code)
        return bool(event.seq) and event.seq == part.seq and code in ("", part.part_code)

    # ---- pictures

    def _on_picture(self, event: ev.Picture) -> None:
        frame = FrameKey(event.camera, event.counter, event.simulated)
        held = self._holds(frame)
        if not event.simulated:
            self._life.progress(f"camera:{event.camera}", self._now)
        if event.simulated != self._cameras.takes_stored(event.camera):
            used = False  # it was on its way when SIMULATE changed
        elif self._settings.trigger == "camera":
            used = self._make_part(event, frame)
        else:
            used = self._add_picture(event, frame)
        if not used and not held:
            self._effects.append(ReleaseFrame(frame))

    def _holds(self, frame: FrameKey) -> bool:
        """Whether the pending part has this frame; a camera may give a number twice."""
        part = self._part
        return part is not None and frame in (capture.frame for capture in part.captures)

    def _add_picture(self, event: ev.Picture, frame: FrameKey) -> bool:
        """Give a picture to the pending part if it is the picture of that part."""
        was_in_step = self._cameras.camera_in_step(event.camera)
        answer = self._cameras.answer(event, self._now)
        if answer == "out of step":
            if was_in_step:
                self._say("warning", f"camera {event.camera} is out of step")
            if self._waits_for(event.camera):
                self._decide(Outcome("no-verdict", Reason.OUT_OF_STEP))
            return False
        part = self._part
        if answer != "current" or part is None or not self._waits_for(event.camera):
            return False
        number = [capture.camera for capture in part.captures].index(event.camera)
        part.captures[number] = replace(
            part.captures[number],
            frame=frame,
            exposed_from=event.exposed_from,
            exposed_to=event.exposed_to,
        )
        self._judge_capture(part, number, event.complete)
        return True

    def _make_part(self, event: ev.Picture, frame: FrameKey) -> bool:
        """With a wired trigger: make a part of a picture, and count those that never came."""
        lost = self._cameras.lost_before(event, self._now)
        for reason in [Reason.FRAME_LOST] * (lost or 0):
            self._refuse_next(reason)
        refusal = self.refusal()
        if lost is None:
            refusal = Reason.OUT_OF_STEP
        elif refusal is Reason.NONE and event.exposed_from < (self._ready_since or 0):
            refusal = Reason.NOT_READY
        if refusal is not Reason.NONE:
            self._refuse_next(refusal)
            return False
        seq = self._sequence.number(0)
        self._sequence.note(seq)
        self.counters = self.counters.plus("triggers")
        part = self._accept(seq, "", "", event.exposed_from)
        self._outputs.begin_part(trigger_ack=False)
        part.captures[0] = CaptureRecord(event.camera, frame, event.exposed_from, event.exposed_to)
        if self._now >= part.acquire_until:
            self._decide(Outcome("no-verdict", Reason.NO_PICTURE))
        else:
            self._judge_capture(part, 0, event.complete)
        return True

    def _refuse_next(self, reason: Reason) -> None:
        seq = self._sequence.number(0)
        self._sequence.note(seq)
        self.counters = self.counters.plus("triggers")
        self._refuse(seq, "", "", reason)

    def _judge_capture(self, part: Part, number: int, complete: bool) -> None:
        frame, judge = part.captures[number].frame, self._judge.judge
        assert frame is not None
        if not complete:
            self._warn("incomplete", f"a picture of camera {frame.camera} is incomplete")
            self._decide(Outcome("no-verdict", Reason.PICTURE_INCOMPLETE))
            return
        self._warnings.discard("incomplete")
        if judge is None:
            self._decide(Outcome("no-verdict", Reason.JUDGE_DOWN))
            return
        if part.acquired:
            part.acquired_at = self._now
            self._outputs.acquired = True
        effect = JudgePicture(judge, part.uid, number, frame, part.product)
        self._judge.give(effect, self._now)
        self._life.progress("judge", self._now, self._judge.allowance(self._now))
        self._effects.append(effect)

    def _waits_for(self, camera: str) -> bool:
        part = self._part
        return part is not None and camera in (capture.camera for capture in part.captures)

    def _on_camera_up(self, event: ev.CameraUp) -> None:
        self._cameras.connect(event.camera)
        self._life.progress(f"camera:{event.camera}", self._now)

    def _on_camera_down(self, event: ev.CameraDown) -> None:
        self._cameras.disconnect(event.camera)
        self._life.lost(f"camera:{event.camera}")
        self._say("error", f"camera {event.camera} is gone: {event.why or 'no reason given'}")
        if self._waits_for(event.camera):
            self._decide(Outcome("no-verdict", Reason.CAMERA_DOWN))

    def _on_camera_progress(self, event: ev.CameraProgress) -> None:
        self._life.progress(f"camera:{event.camera}", self._now)

    # ---- the judge

    def _on_judge_up(self, event: ev.JudgeUp) -> None:
        if self._judge.judge is not None:
            self._lose_judge("another judge was started", replace_it=False)
        self._judge.start(event.judge, self._now)
        self._life.progress("judge", self._now)

    def _on_judge_down(self, event: ev.JudgeDown) -> None:
        if event.judge == self._judge.judge:
            self._lose_judge(event.why or "it ended")

    def _on_judge_progress(self, event: ev.JudgeProgress) -> None:
        if event.judge == self._judge.judge and self._judge.idle:
            self._judge.hear(self._now)
            self._life.progress("judge", self._now)

    def _on_judge_answer(self, event: ev.JudgeAnswer) -> None:
        job = (event.uid, event.capture)
        ours = event.judge == self._judge.judge and self._judge.finish(job)
        if ours:
            self._judge.hear(self._now)
            self._life.progress("judge", self._now, self._judge.allowance(self._now))
        part = self._part
        if not ours or part is None or part.uid != event.uid:
            late = RecordLate(event.uid, event.capture, event.opinion, self._now)
            self._effects.append(late)
            return
        part.add_opinion(event.capture, event.opinion)
        outcome = part.verdict()
        if outcome is not None:
            self._decide(outcome)

    # ---- products

    def _on_change_product(self, event: ev.ChangeProduct) -> None:
        self._forget(self._change.ask(event.number))
        if self._change.failure:
            self._warn("product", f"there is no product {event.number}")
        elif not self._change.waits:
            self._warnings.discard("product")

    def _on_new_generation(self, event: ev.NewGeneration) -> None:
        if not self._change.waits:
            self._effects += self._judge.prepare(self._change.needed, self._now)

    def _on_product_ready(self, event: ev.ProductReady) -> None:
        if event.judge != self._judge.judge:
            return
        self._judge.end_preparing(event.product.number)
        self._judge.hear(self._now)
        self._life.progress("judge", self._now, self._judge.allowance(self._now))
        if event.product.number == self._change.needed:
            self._warnings.discard("product")
        self._forget(self._change.offer(event.product))

    def _on_preparation_failure(self, event: ev.PreparationFailure) -> None:
        if event.judge == self._judge.judge:
            self._judge.end_preparing(event.number)
            self._judge.hear(self._now)
            self._change.fail(event.number, event.why)
            self._warn("product", f"product {event.number} cannot be prepared: {event.why}")

    # ---- the candidate, which judges elsewhere

    def _on_candidate_report(self, event: ev.CandidateReport) -> None:
        self._candidate = event.candidate

    def _on_candidate_decision(self, event: ev.CandidateDecision) -> None:
        """Pass a decision to the station, which does the rest; the part in work goes on."""
        asked = f"{'TAKE' if event.take else 'DROP'}_CANDIDATE by {event.by}"
        if self._candidate is None:
            self._say("warning", f"{asked} has no effect: the page does not run")
        elif self._candidate.stage is ev.CandidateStage.NONE:
            self._say("warning", f"{asked} has no effect: there is no candidate")
        else:
            self._say("info", asked)
            self._effects.append(DecideCandidate(self._candidate.trial, event.take, event.by))

    # ---- other commands

    def _on_trigger_release(self, event: ev.TriggerRelease) -> None:
        self._outputs.trigger_ack = False

    def _on_enable(self, event: ev.Enable) -> None:
        self._enabled = event.on

    def _on_acknowledge(self, event: ev.Acknowledge) -> None:
        if self._outputs.acknowledge(event.seq):
            self._warnings.discard("not-acknowledged")

    def _on_reset(self, event: ev.Reset) -> None:
        self._decide(Outcome("no-verdict", Reason.RESET))
        self._outputs.reset()
        self._sequence.reset()
        self._forget(self._change.reset())
        self._cameras.lose_step()
        self._no_verdicts = 0
        self._warnings.clear()
        self._move(Cause.RESET)

    def _on_halt(self, event: ev.Halt) -> None:
        self._decide(Outcome("no-verdict", Reason.HALTED))
        self._move(Cause.HALT)

    def _on_simulate(self, event: ev.Simulate) -> None:
        self._simulate = event.on

    def _on_plc_beat(self, event: ev.PlcBeat) -> None:
        self._plc.beat(event.value, self._now)

    def _on_maintenance(self, event: ev.Maintenance) -> None:
        self._maintenance = event.on

    def _on_live_picture(self, event: ev.LivePicture) -> None:
        """Take a picture for a person. Only while the station is paused: no part can miss it."""
        paused = self._maintenance and self._part is None and self.state in OPERATIONAL
        if paused and self._cameras.ask_between(event.camera, self._now):
            self._take_picture(event.camera)

    def _on_recorder_room(self, event: ev.RecorderRoom) -> None:
        self._room = event.rows
        if event.trouble:
            self._warn("recorder", f"the recorder {event.trouble}")
        else:
            self._warnings.discard("recorder")
