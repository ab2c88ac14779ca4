"""A world around a line core, on a virtual clock, that knows the truth.

Parts lie in front of the cameras, cameras expose what lies there, a judge says what a picture
shows. All of them fail in the ways that the rules of a test choose. `LineWorld` compares everything
that the core puts out with what has really happened, by the principles P1 to P5 of the line, and
uses none of the core's own reasoning for it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from anoco_edge.line.core import effects as ef
from anoco_edge.line.core import events as ev
from anoco_edge.line.core.line_core import LineCore
from anoco_edge.line.core.settings import MS, LineSettings
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.words.constants import Reason, StatusBit

PROGRESS = 100 * MS
SECOND = 1000 * MS


@dataclass(frozen=True)
class TruePart:
    """A part that lies in front of the cameras from a moment on."""

    number: int
    good: bool
    placed: int


@dataclass(frozen=True)
class TrueFrame:
    """A frame and what it really shows."""

    camera: str
    counter: int
    exposed: int
    part: TruePart | None
    complete: bool
    stored: bool = False


@dataclass
class Camera:
    """A camera with its faults: what it does with the next requests, and whether it lives."""

    name: str
    bits: int
    connected: bool = True
    dead: bool = False
    counter: int = 0
    plans: deque[tuple[str, int]] = field(default_factory=deque)
    progress: int = -SECOND * 1000

    def next_counter(self) -> int:
        self.counter += 1
        return self.counter if self.bits == 0 else (self.counter - 1) % 65535 + 1


@dataclass
class Job:
    """What the judge was asked and when it answered."""

    order: ef.JudgePicture
    frame: TrueFrame
    answered: int | None = None
    opinion: ev.Opinion | None = None


class LineWorld:
    """The truth, the actors, and the checks."""

    def __init__(self, config: LineSettings, core_class: type[LineCore] = LineCore) -> None:
        self.settings, self.core_class = config, core_class
        self.now = 0
        self.runs = count(1)
        self.queue: list[tuple[int, int, Any]] = []
        self.order = count()
        self.parts: list[TruePart] = []
        self.cameras = {
            c.name: Camera(c.name, c.counter_bits, counter=65530) for c in config.cameras
        }
        self.frames: dict[ef.FrameKey, TrueFrame] = {}
        self.jobs: dict[tuple[str, int], Job] = {}
        self.judges = count(1)
        self.judge: int | None = None
        self.judge_busy_since: int | None = None
        self.judge_plans: deque[tuple[str, int]] = deque()
        self.judge_progress = self.io_progress = -SECOND * 1000
        self.io_dead = False
        self.generation = 1
        self.stored = 0
        self.prepare_plans: deque[tuple[str, int]] = deque()
        self.accepted: dict[str, tuple[TruePart, int, int]] = {}
        self.outcomes: dict[str, ef.PartRecord] = {}
        self.triggers = 0
        self.steps = 0
        self.core = self._new_core(Counters())
        self.schedule(PROGRESS, self._all_progress)

    # ---- the clock

    def schedule(self, after: int, action: Any) -> None:
        heapq.heappush(self.queue, (self.now + after, next(self.order), action))

    def advance(self, ms: int, *, stall: bool = False) -> None:
        """Let time pass. With `stall` nobody calls the core in between: all of it comes late."""
        end = self.now + ms * MS
        while True:
            due = self.queue[0][0] if self.queue else end + 1
            wake = end + 1 if stall else self.core.next_wakeup()
            at = max(min(due, wake), self.now)
            if at > end:
                break
            self.now = end if stall else at
            if due <= wake:
                at, _, action = heapq.heappop(self.queue)
                action()
            else:
                self.tell(ev.Tick())
                if self.core.next_wakeup() <= self.now:
                    raise AssertionError("the core wants to be called again at the same time")
        self.now = end
        self.tell(ev.Tick())

    # ---- the core

    def _new_core(self, counters: Counters) -> LineCore:
        self.shown = Status()
        self.decided_in_run = 0
        self.last_accepted: ef.PartRecord | None = None
        return self.core_class(self.settings, f"r{next(self.runs)}", counters, self.now)

    def crash(self) -> None:
        """Kill the station; cameras go on with what they were told, the judge dies with it."""
        for uid in [uid for uid in self.accepted if uid not in self.outcomes]:
            del self.accepted[uid]  # the store closes these as restarted
        self.frames.clear()
        kept = self.core.counters
        self.triggers = kept.outcomes
        self.core = self._new_core(replace(kept, triggers=kept.outcomes))
        self.judge = None
        self.start()

    def start(self) -> None:
        self.tell(ev.Enable(True))
        for camera in self.cameras.values():
            if camera.connected:
                self.tell(ev.CameraUp(camera.name))
                camera.progress = self.now
        self._start_judge()

    def tell(self, event: ev.Event) -> list[ef.Effect]:
        """Give an event to the core, check what it does and carry it out."""
        self.steps += 1
        effects = self.core.handle(event, self.now)
        self._follow(effects)
        return effects

    def _follow(self, effects: list[ef.Effect]) -> None:
        """Check what the core does and carry it out; READY holds for what stands in the end."""
        for effect in effects:
            self._check(effect)
        if self.shown.has(StatusBit.READY):
            self._check_alive("READY")
        for effect in effects:
            self._carry_out(effect)
        self._check_counters()

    # ---- the actors

    def _all_progress(self) -> None:
        self.schedule(PROGRESS, self._all_progress)
        for camera in self.cameras.values():
            if camera.connected and not camera.dead:
                camera.progress = self.now
                self.tell(ev.CameraProgress(camera.name))
        if self.judge is not None and self.judge_busy_since is None:
            self.judge_progress = self.now
            self.tell(ev.JudgeProgress(self.judge))
        if not self.io_dead:
            self.io_progress = self.now
            self.tell(ev.IoProgress())

    def _carry_out(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.TakePicture):
            if effect.simulated:
                self._take_stored(effect.camera)
            else:
                self._take_picture(self.cameras[effect.camera])
        elif isinstance(effect, ef.JudgePicture):
            self._judge_picture(effect)
        elif isinstance(effect, ef.ReplaceJudge):
            assert effect.judge == self.judge or self.judge is None
            self.judge = None
            self.schedule(300 * MS, self._start_judge)
        elif isinstance(effect, ef.PrepareProduct):
            self._prepare(effect)
        elif isinstance(effect, ef.RecordPart):
            for capture in effect.record.captures:
                self.frames.pop(capture.frame, None)
        elif isinstance(effect, ef.ReleaseFrame):
            self.frames.pop(effect.frame, None)

    def _take_picture(self, camera: Camera) -> None:
        kind, delay = camera.plans.popleft() if camera.plans else ("ok", 3)
        if kind == "missed" or not camera.connected or camera.dead:
            return
        exposing = delay * MS if kind == "slow exposure" else 2 * MS
        sending = delay * MS if kind == "late" else 4 * MS
        self.schedule(exposing, lambda: self.expose(camera, kind, sending))

    def _take_stored(self, camera: str) -> None:
        """Deliver a picture of a part that was good, whatever lies in front of the camera."""
        self.stored = self.stored % 65535 + 1
        part = TruePart(-1, good=True, placed=self.now)
        frame = TrueFrame(camera, self.stored, self.now, part, complete=True, stored=True)
        self.frames[ef.FrameKey(camera, frame.counter, simulated=True)] = frame
        at = self.now
        picture = ev.Picture(camera, frame.counter, at, at, simulated=True)
        self.schedule(3 * MS, lambda: self.tell(picture))

    def expose(self, camera: Camera, kind: str = "ok", sending: int = 4 * MS) -> None:
        """Expose what lies in front of the camera now, and send the frame."""
        if not camera.connected or camera.dead:
            return
        part = self.parts[-1] if self.parts else None
        if kind == "number again":
            camera.counter -= 1
        frame = TrueFrame(camera.name, camera.next_counter(), self.now, part, kind != "incomplete")
        if kind == "lost":
            return
        connection = camera.connected
        self.schedule(sending, lambda: self._deliver(camera, frame, connection))

    def _deliver(self, camera: Camera, frame: TrueFrame, connection: bool) -> None:
        if not camera.connected or camera.dead or connection is not camera.connected:
            return
        camera.progress = self.now
        # Like the memory of frames: a number that comes twice takes no other's place.
        self.frames.setdefault(ef.FrameKey(frame.camera, frame.counter), frame)
        # The camera's clock is mapped to ours with an uncertainty that holds the true time.
        since, until = frame.exposed - MS // 5, frame.exposed + MS // 5
        self.tell(ev.Picture(frame.camera, frame.counter, since, until, frame.complete))

    def _judge_picture(self, order: ef.JudgePicture) -> None:
        frame = self.frames[order.frame]
        job = Job(order, frame)
        self.jobs[order.uid, order.capture] = job
        self.judge_busy_since = self.now
        kind, delay = self.judge_plans.popleft() if self.judge_plans else ("ok", 20)
        if kind == "hang":
            return
        if kind == "crash":
            self.schedule(delay * MS, lambda: self.kill_judge(order.judge))
            return
        good = frame.part is not None and frame.part.good
        opinion = ev.Opinion("good" if good else "anomalous", order.product)
        if kind == "error":
            opinion = ev.Opinion("no-verdict", order.product, Reason.JUDGE_ERROR)
        elif kind == "other generation":
            other = ev.PreparedProduct(order.product.number, order.product.generation + 1, 1)
            opinion = ev.Opinion("good", other)
        self.schedule(delay * MS, lambda: self._answer(job, opinion))
        if kind == "twice":
            self.schedule((delay + 1) * MS, lambda: self._answer(job, opinion))

    def _answer(self, job: Job, opinion: ev.Opinion) -> None:
        """A killed judge's answers still lie in the pipe and are delivered too."""
        if job.answered is None:
            job.answered, job.opinion = self.now, opinion
        if job.order.judge == self.judge:
            self.judge_progress = self.now
            waiting = [j for j in self.jobs.values() if j.answered is None]
            if not any(j.order.judge == self.judge for j in waiting):
                self.judge_busy_since = None
        self.tell(ev.JudgeAnswer(job.order.judge, job.order.uid, job.order.capture, opinion))

    def _start_judge(self) -> None:
        if self.judge is None:
            self.judge = next(self.judges)
            self.judge_busy_since = None
            self.judge_progress = self.now
            self.tell(ev.JudgeUp(self.judge))

    def kill_judge(self, judge: int | None) -> None:
        if judge is not None and judge == self.judge:
            self.judge = None
            self.tell(ev.JudgeDown(judge, "killed"))

    def _prepare(self, effect: ef.PrepareProduct) -> None:
        kind, delay = self.prepare_plans.popleft() if self.prepare_plans else ("ok", 30)

        def ready() -> None:
            if effect.judge != self.judge:
                return
            if kind == "fails":
                self.tell(ev.PreparationFailure(effect.judge, effect.number, "damaged"))
                return
            product = ev.PreparedProduct(effect.number, self.generation, 0xBEEF)
            self.judge_progress = max(self.judge_progress, self.now)
            self.tell(ev.ProductReady(effect.judge, product))

        if kind != "hangs":
            self.schedule(delay * MS, ready)

    # ---- the PLC

    def trigger(self, seq: int, good: bool) -> None:
        """Place the next part and trigger; READY must say what becomes of the trigger."""
        self.tell(ev.Tick())
        ready = self.shown.has(StatusBit.READY)
        part = TruePart(len(self.parts), good, self.now)
        self.parts.append(part)
        before = self.core.counters
        effects = self.core.handle(ev.Trigger(seq), self.now)
        self.steps += 1
        taken = [effect for effect in effects if isinstance(effect, ef.RecordAccepted)]
        for effect in taken:
            self.accepted[effect.uid] = (part, self.now, effect.seq)
        refused = [e.record for e in effects if isinstance(e, ef.RecordPart)]
        refused = [record for record in refused if not record.accepted]
        if self.core.counters.triggers == before.triggers:  # a repeat of the pending part
            assert not taken and not refused and not ready
            self.parts.pop()
        else:
            self.triggers += 1
            assert len(taken) + len(refused) == 1, "P2: a trigger has one outcome"
            excuse = refused and refused[0].reason in (Reason.SEQUENCE_REPEATED,)
            assert bool(taken) == ready or excuse, "READY and the trigger disagree"
        self._follow(effects)

    # ---- the principles

    def _check(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.RecordPart):
            record = effect.record
            assert record.uid not in self.outcomes, "P2: decided twice"
            self.outcomes[record.uid] = record
            if record.accepted:
                assert record.uid in self.accepted, "P4: an outcome of no trigger of this run"
                self.decided_in_run += 1
                self.last_accepted = record
                if record.verdict == "good":
                    self._check_good(record)
        elif isinstance(effect, ef.PutOut):
            self._check_status(effect.status)
            self.shown = effect.status

    def _check_good(self, record: ef.PartRecord) -> None:
        part, accepted, seq = self.accepted[record.uid]
        assert record.seq == seq, "P3: the result has the number of another part"
        assert self.now < accepted + self.settings.deadline_ms * MS, "P1: after the deadline"
        product = next(p for p in self.settings.products if record.product.number == p.number)
        assert len(record.captures) == len(product.cameras)
        for number, camera in enumerate(product.cameras):
            job = self.jobs[record.uid, number]
            frame = job.frame
            assert frame.camera == camera and frame.complete, "P1: no whole picture"
            assert frame.stored == record.simulated, "P1: a stored picture in place of the part's"
            assert frame.stored or frame.part == part, "P3: the picture shows another part"
            window = accepted + self.settings.acquire_ms * MS
            assert accepted <= frame.exposed <= window, "P1: exposed outside of the window"
            assert job.answered is not None and job.opinion is not None, "P1: not judged"
            assert job.opinion.verdict == "good" and job.opinion.product == record.product
        assert part.good or record.simulated, "P1: a bad part passed"
        self._check_alive("P1: good on a dead station")

    def _check_alive(self, words: str) -> None:
        window = self.settings.alive_ms * MS
        for camera in self.cameras.values():
            assert camera.connected, f"{words}: {camera.name} is unplugged"
            assert self.now - camera.progress <= window, f"{words}: {camera.name}"
        assert self.now - self.io_progress <= window, f"{words}: I/O"
        busy = self.judge_busy_since
        limit = window if busy is None else max(window, self.settings.judge_hang_ms * MS)
        since = self.judge_progress if busy is None else busy
        assert self.judge is not None and self.now - since <= limit, f"{words}: the judge"

    def _check_status(self, status: Status) -> None:
        bits, before = status.bits, self.shown
        assert not (bits & StatusBit.PASS and bits & StatusBit.FAIL), "both PASS and FAIL"
        toggles = bool(bits & StatusBit.RESULT_TOGGLE)
        assert toggles == bool(self.decided_in_run % 2), "P2: one change of the toggle a result"
        if bits & (StatusBit.PASS | StatusBit.FAIL):
            assert bits & StatusBit.RESULT_VALID, "a verdict without RESULT_VALID"
        if bits & StatusBit.RESULT_VALID:
            record = self.last_accepted
            assert record is not None, "P4: a result of an earlier run was put out"
            assert status.result.seq == record.seq, "P3: the result of another part"
            marked = bool(bits & StatusBit.SIMULATED)
            assert marked == record.simulated, "P1: SIMULATED is not what the pictures are"
            good = record.verdict == "good"
            assert bool(bits & StatusBit.PASS) == good, "P2: put out is not what was decided"
            assert bool(bits & StatusBit.FAIL) != good
        if status.heartbeat != before.heartbeat:
            self._check_alive("P5: the heartbeat advanced")

    def _check_counters(self) -> None:
        counters = self.core.counters
        pending = len([uid for uid in self.accepted if uid not in self.outcomes])
        assert counters.triggers == self.triggers, "a trigger was not counted"
        assert counters.triggers == counters.outcomes + pending, "P2: outcomes do not add up"
        assert pending <= 1

    def check_end(self) -> None:
        """After everything has come to rest, every accepted trigger has its outcome."""
        self.advance(5000)
        assert not self.frames, f"frames were never let go: {list(self.frames)}"
        assert all(uid in self.outcomes for uid in self.accepted), "P4: an outcome is missing"
