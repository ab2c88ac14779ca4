"""The judge as a process: it judges frames in shared memory, and is replaced when it hangs."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import pytest
from command_line import ok
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge import Detector
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import EngineError, PictureError
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.effects import (
    ForgetProduct,
    FrameKey,
    JudgePicture,
    PrepareProduct,
    ReplaceJudge,
)
from anoco_edge.line.core.events import (
    Event,
    JudgeAnswer,
    JudgeDown,
    JudgeProgress,
    JudgeUp,
    PreparationFailure,
    PreparedProduct,
    ProductReady,
)
from anoco_edge.line.frame_memory import FrameMemory, Slot
from anoco_edge.line.judge.alignment import AlignmentSettings
from anoco_edge.line.judge.child import Judge
from anoco_edge.line.judge.messages import CaptureSpec, JudgeSetup
from anoco_edge.line.judge.process import JudgeProcess
from anoco_edge.line.replay import TOLERANCE
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import Reason

Kind = TypeVar("Kind")
PATIENCE = 240.0


class Court:
    """A judge with a bundle, and the events that it gives."""

    def __init__(self, folder: Path) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.memory = FrameMemory(slots=2, slot_bytes=1 << 20)
        specs = {1: (CaptureSpec(str(folder / "line.anoco")),), 2: (CaptureSpec("gone.anoco"),)}
        # A score that no picture but the reference itself reaches.
        align = AlignmentSettings(((20, 20, 30, 30),), search=8, min_score=1.0)
        specs[3] = (CaptureSpec(str(folder / "line.anoco"), None, align),)
        self.judge = JudgeProcess(specs, "c0ffee", self.memory, self.events.put)

    def next(self, kind: type[Kind]) -> Kind:
        end = time.monotonic() + PATIENCE
        while True:
            event = self.events.get(timeout=max(end - time.monotonic(), 0.1))
            if isinstance(event, kind):
                return event

    def put(self, pixels: Any) -> Slot:
        slot = self.memory.put(pixels)
        assert slot is not None
        return slot

    def ask(self, judge: int, product: PreparedProduct, slot: Slot, uid: str = "u1") -> None:
        self.judge.carry_out(JudgePicture(judge, uid, 0, FrameKey("top", 1), product), slot)


@pytest.fixture(scope="module")
def folder_with_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", str(folder / "line.anoco"), *write_good_pictures(folder / "good", 3))
    return folder


@pytest.fixture
def court(folder_with_bundle: Path) -> Iterator[Court]:
    made = Court(folder_with_bundle)
    made.judge.start()
    yield made
    made.judge.close()
    made.memory.close()


def test_a_judge_prepares_judges_and_is_replaced(court: Court, folder_with_bundle: Path) -> None:
    judge = court.next(JudgeUp).judge
    court.judge.carry_out(PrepareProduct(judge, 2))
    failure = court.next(PreparationFailure)
    assert failure.number == 2 and "there is no bundle" in failure.why
    court.judge.carry_out(PrepareProduct(judge, 1))
    product = court.next(ProductReady).product
    detector = Detector.open(folder_with_bundle / "line.anoco")
    (origin,) = court.judge.origins[product]
    assert (product.number, product.generation) == (1, detector.product.generation)
    assert (origin.product, origin.generation) == ("default", 1) and len(origin.sha256) == 64
    court.next(JudgeProgress)

    # It says what a detector in this process says.
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 255, (80, 96, 3)).astype(np.uint8)
    spoilt = textured_picture(3)
    spoilt[:30, :40] = noise[:30, :40]
    for pixels in (textured_picture(3), spoilt):
        expected = detector.inspect(pixels)
        slot = court.put(pixels)
        court.ask(judge, product, slot)
        opinion = court.next(JudgeAnswer).opinion
        assert opinion.verdict == expected.verdict and opinion.product == product
        assert opinion.ratio == pytest.approx(expected.ratio, rel=TOLERANCE)
        assert len(opinion.regions) == len(expected.regions)
        court.memory.let_go(slot)
    assert opinion.verdict == "anomalous"
    assert court.memory.taken == 0, "the judge has let go of both frames"

    # What is nothing like the references has no verdict.
    slot = court.put(noise)
    court.ask(judge, product, slot)
    opinion = court.next(JudgeAnswer).opinion
    assert (opinion.verdict, opinion.reason) == ("no-verdict", Reason.UNLIKE_REFERENCES)
    court.memory.let_go(slot)

    # What is not found where it is searched for has none either.
    court.judge.carry_out(PrepareProduct(judge, 3))
    aligned = court.next(ProductReady).product
    slot = court.put(textured_picture(9))
    court.ask(judge, aligned, slot)
    assert court.next(JudgeAnswer).opinion.reason is Reason.NOT_FOUND
    court.memory.let_go(slot)

    # A product that was closed, or that it never had, gives no verdict.
    slot = court.put(pixels)
    court.judge.carry_out(ForgetProduct(judge, product))
    court.ask(judge, product, slot)
    assert court.next(JudgeAnswer).opinion.reason is Reason.WRONG_PRODUCT

    # Stopped by a signal it hangs; it is killed, its frame is free, and another one takes over.
    pid = court.judge.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    court.ask(judge, product, slot, "u2")
    court.memory.let_go(slot)
    assert court.memory.taken == 1
    court.judge.carry_out(ReplaceJudge(judge, "it hangs"))
    assert court.next(JudgeDown).judge == judge and court.memory.taken == 0
    again = court.next(JudgeUp).judge
    assert again == judge + 1 and court.judge.pid != pid

    # A replacement that was asked for twice happens once; a killed one is noticed.
    court.judge.carry_out(ReplaceJudge(judge, "again"))
    pid = court.judge.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    down = court.next(JudgeDown)
    assert down.judge == again and "-9" in down.why


def test_an_engine_that_fails_is_not_offered(
    folder_with_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> NoReturn:
        raise EngineError("the device was lost", hint="restart")

    memory = FrameMemory(slots=1, slot_bytes=1 << 10)
    specs = {1: (CaptureSpec(str(folder_with_bundle / "line.anoco")),)}
    ours, theirs = Pipe()
    with ours, theirs:
        handles = (memory.handle, memory.slots, memory.slot_bytes)
        judge = Judge(JudgeSetup(1, specs, "c0ffee", *handles), theirs)
        monkeypatch.setattr(Detector, "inspect", fails)
        judge._wanted.put(1)
        assert ours.poll(PATIENCE)
        failure = ours.recv()
        assert isinstance(failure, PreparationFailure) and "references fail too" in failure.why
        judge._wanted.put(-1)  # no product: the thread goes on
        assert ours.poll(PATIENCE) and ours.recv().number == -1
    memory.close()


@pytest.mark.parametrize("line", ["", "\n[line]\nblocking_sync = true\n"])
def test_threads_of_the_judge_sleep_as_station_toml_says(
    line: str, folder_with_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def opens(*_: object, settings: EngineSettings, **__: object) -> NoReturn:
        found.append(settings.blocking_sync)
        raise EngineError("seen", hint="")

    server = LineServer(parse_config(EXAMPLE + line, "a"), folder_with_bundle, say=lambda _: None)
    monkeypatch.setattr(Detector, "open", opens)
    ours, theirs = Pipe()
    with ours, theirs:
        Judge(server.judge._setup, theirs)._wanted.put(1)
        assert ours.poll(PATIENCE) and ours.recv().why == "seen"
    server.stop()
    assert found == [bool(line)]


def test_frames_take_turns_in_the_memory() -> None:
    memory = FrameMemory(slots=2, slot_bytes=1000)
    pixels = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    first, second = memory.put(pixels), memory.put(255 - pixels)
    assert first is not None and second is not None and memory.put(pixels) is None
    assert np.array_equal(memory.view(second), 255 - pixels)
    memory.hold(first)
    memory.let_go(first)
    assert memory.put(pixels) is None, "somebody still holds it"
    memory.let_go(first)
    assert memory.put(pixels) == first
    with pytest.raises(ValueError, match="read-only"):
        memory.view(second)[0] = 0
    with pytest.raises(PictureError, match="does not fit"):
        memory.put(np.zeros((20, 20, 3), np.uint8))


@pytest.mark.parametrize(
    ("program", "patience"), [("raise SystemExit", 120), ("import time; time.sleep(600)", 0.2)]
)
def test_a_judge_that_never_says_a_word_is_replaced(
    program: str, patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent_judge.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("anoco_edge.line.judge.process.START_SECONDS", patience)
    monkeypatch.setattr("anoco_edge.line.judge.process.RESTART_SECONDS", 0.05)
    memory = FrameMemory(slots=1, slot_bytes=1 << 10)
    judge = JudgeProcess({}, "c0ffee", memory, lambda _: None, program="silent_judge")
    judge.start()
    end = time.monotonic() + PATIENCE
    while judge._number < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    judge.close()
    memory.close()
