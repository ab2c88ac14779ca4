"""A line core on a virtual clock, with helpers that play the PLC, the cameras and the judge."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from anoco_edge.line.core.effects import Effect, JudgePicture, PrepareProduct, TakePicture
from anoco_edge.line.core.events import (
    CameraProgress,
    CameraUp,
    Enable,
    Event,
    IoProgress,
    JudgeAnswer,
    JudgeProgress,
    JudgeUp,
    Opinion,
    Picture,
    PreparedProduct,
    ProductReady,
    Tick,
    Trigger,
)
from anoco_edge.line.core.line_core import LineCore
from anoco_edge.line.core.settings import MS, CameraSettings, LineProduct, LineSettings
from anoco_edge.line.core.status import Counters, Status

Kind = TypeVar("Kind")


def settings(
    *,
    cameras: tuple[str, ...] = ("top",),
    bits: Literal[0, 16] = 0,
    simulates: bool = False,
    **others: Any,
) -> LineSettings:
    """Settings with two products that use all cameras."""
    return LineSettings(
        tuple(CameraSettings(name, bits, simulates) for name in cameras),
        (LineProduct(1, "washer", cameras), LineProduct(2, "nut", cameras)),
        **others,
    )


class VirtualLine:
    """A core with a clock that stands still until a test moves it; times are in milliseconds."""

    def __init__(self, config: LineSettings | None = None, counters: Counters | None = None):
        self.settings = config or settings()
        self.core = LineCore(self.settings, "run", counters)
        self.now = 0.0
        self.effects: list[Effect] = []
        self.counter = {camera.name: 100 for camera in self.settings.cameras}
        self.judge = 1

    def say(self, event: Event) -> list[Effect]:
        """Let something happen now and return what the core wants done."""
        effects = self.core.handle(event, round(self.now * MS))
        self.effects += effects
        return effects

    def wait(self, ms: float, *, alive: bool = True) -> list[Effect]:
        """Let time pass; everything that is connected shows progress unless `alive` is False."""
        end, before = self.now + ms, len(self.effects)
        while self.now < end:
            self.now = min(end, self.now + 50, max(self.core.next_wakeup() / MS, self.now + 0.001))
            if alive:
                self.progress()
            self.say(Tick())
        return self.effects[before:]

    def progress(self) -> None:
        for camera in self.settings.cameras:
            self.say(CameraProgress(camera.name))
        self.say(JudgeProgress(self.judge))
        self.say(IoProgress())

    def start(self) -> VirtualLine:
        """Bring cameras, judge and product up until the line is ready."""
        self.say(IoProgress())
        self.say(JudgeUp(self.judge))
        for camera in self.settings.cameras:
            self.say(CameraUp(camera.name))
        self.say(Enable(True))
        self.test_cameras()
        self.prepare()
        return self

    def test_cameras(self) -> None:
        """Answer the last test request of every camera."""
        self.now += 1
        if self.settings.trigger == "bus":
            for camera in self.settings.cameras:
                self.picture(camera.name)

    def prepare(self, number: int = 1, generation: int = 1) -> PreparedProduct:
        product = PreparedProduct(number, generation, 0xBEEF)
        self.say(ProductReady(self.judge, product))
        return product

    def trigger(self, seq: int = 0, **others: Any) -> list[Effect]:
        return self.say(Trigger(seq, **others))

    def picture(self, camera: str = "top", *, ago: float = 0.5, **others: Any) -> list[Effect]:
        """Let a camera deliver a frame that was exposed `ago` milliseconds before now."""
        counter = others.pop("counter", self.counter[camera])
        self.counter[camera] = counter + 1
        at = round((self.now - ago) * MS)
        return self.say(Picture(camera, counter, at, at + MS // 10, **others))

    def judged(self, job: JudgePicture, verdict: Any = "good", **others: Any) -> list[Effect]:
        product = others.pop("product", job.product)
        return self.say(
            JudgeAnswer(job.judge, job.uid, job.capture, Opinion(verdict, product, **others))
        )

    def part(self, verdict: Any = "good", **others: Any) -> Status:
        """Send one part through with one camera and return the status of its result."""
        self.now += 1
        self.trigger(**others)
        self.now += 10
        (job,) = found(self.picture(), JudgePicture)
        self.now += 10
        self.judged(job, verdict)
        return self.status

    @property
    def status(self) -> Status:
        return self.core.status

    def bit(self, bit: int) -> bool:
        return bool(self.status.bits & bit)


def found(effects: list[Effect], kind: type[Kind]) -> list[Kind]:
    """Return the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def asked_for(effects: list[Effect]) -> list[str]:
    return [effect.camera for effect in found(effects, TakePicture)]


def prepared_numbers(effects: list[Effect]) -> list[int]:
    return [effect.number for effect in found(effects, PrepareProduct)]
