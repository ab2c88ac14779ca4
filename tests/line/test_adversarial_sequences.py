"""Sequences that were planned to break the principles P1 to P5, and what must come of each."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mosquitto_broker import wait_until
from pymodbus.client import ModbusTcpClient
from virtual_line import VirtualLine, found, settings

from anoco_edge.line.buses.configured import Buses
from anoco_edge.line.buses.modbus_bus import ModbusBus
from anoco_edge.line.buses.tcp_bus import TcpBus
from anoco_edge.line.cameras.actor import CameraOutlet, Frames
from anoco_edge.line.core.effects import (
    JudgePicture,
    RecordAccepted,
    RecordLate,
    RecordPart,
    ReleaseFrame,
    Reply,
    Say,
)
from anoco_edge.line.core.events import (
    Acknowledge,
    CameraProgress,
    ChangeProduct,
    Enable,
    Event,
    IoProgress,
    JudgeDown,
    JudgeUp,
    Picture,
    Reset,
    Tick,
)
from anoco_edge.line.core.settings import MS
from anoco_edge.line.core.status import Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.frame_memory import FrameMemory
from anoco_edge.line.store.recorder import RecorderLoad
from anoco_edge.line.store.recorder_watch import RecorderWatch
from anoco_edge.line.words.constants import Reason, StatusBit

PASS, READY = StatusBit.PASS, StatusBit.READY


@pytest.fixture
def line() -> VirtualLine:
    return VirtualLine().start()


def results(line: VirtualLine) -> list[tuple[str, Reason]]:
    records = [effect.record for effect in found(line.effects, RecordPart)]
    return [(record.verdict, record.reason) for record in records]


# ---- triggers


def test_the_same_number_with_another_code_is_another_part(line: VirtualLine) -> None:
    """Two clients that count for themselves must not get each other's verdicts."""
    line.trigger(5, part_code="A1", client="tcp:1")
    line.trigger(5, part_code="A1", client="tcp:2")
    line.trigger(5, client="tcp:3")
    (refused,) = found(line.trigger(5, part_code="B1", client="tcp:4"), Reply)
    assert (refused.record.verdict, refused.record.reason) == ("no-verdict", Reason.BUSY)
    line.now += 1
    line.picture(ago=1.5)
    assert results(line)[-1] == ("no-verdict", Reason.OUT_OF_STEP), "B1 may be what it shows"
    answered = [reply.client for reply in found(line.effects, Reply)]
    assert answered == ["tcp:4", "tcp:1", "tcp:2", "tcp:3"]


@pytest.mark.parametrize("client", ["tcp:1", ""])
def test_one_number_for_two_parts_of_a_client_passes_neither(
    line: VirtualLine, client: str
) -> None:
    """The first part is good and its picture was taken in time; its PASS could be read as B1's."""
    line.trigger(5, part_code="A1", client=client)
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.trigger(5, part_code="B1", client=client)
    line.judged(job)
    codes = {e.record.part_code: e.record.reason for e in found(line.effects, RecordPart)}
    assert codes == {"B1": Reason.BUSY, "A1": Reason.SEQUENCE_REPEATED}
    assert not line.bit(PASS)


@pytest.mark.parametrize(("waited", "verdict"), [(100, "good"), (150, "no-verdict")])
def test_a_trigger_that_had_to_wait_for_the_core_has_that_much_less_time(
    line: VirtualLine, waited: int, verdict: str
) -> None:
    """The part moves on meanwhile: what is exposed late shows another one, or none."""
    line.wait(1000)
    line.trigger(received=round((line.now - waited) * MS))
    line.now += 60
    jobs = found(line.picture(), JudgePicture)
    for job in jobs:
        line.judged(job)
    assert results(line) == [(verdict, Reason.NONE if jobs else Reason.NO_PICTURE)]
    (record,) = [effect.record for effect in found(line.effects, RecordPart)]
    assert record.total_ms == waited + 60
    assert bool(jobs) == (verdict == "good")


# ---- pictures


@pytest.mark.parametrize("wired", [False, True])
def test_a_picture_of_a_time_to_come_is_out_of_step(wired: bool) -> None:
    """With a wired trigger its exposure would begin the time until the deadline."""
    line = VirtualLine(settings(trigger="camera" if wired else "bus")).start()
    line.now += 10
    if not wired:
        line.trigger()
    assert not found(line.picture(ago=-50), JudgePicture)
    assert results(line) == [("no-verdict", Reason.OUT_OF_STEP)]


def test_a_number_that_a_camera_gives_twice_takes_no_frame_from_the_part(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    counter = line.counter["top"]
    (job,) = found(line.picture(), JudgePicture)
    again = line.picture(counter=counter)
    assert not found(again, ReleaseFrame), "the judge reads it, and its record lets it go"
    assert results(line) == [("no-verdict", Reason.OUT_OF_STEP)]
    line.judged(job)
    assert found(line.effects, RecordLate) and not line.bit(PASS)


def test_a_number_that_a_camera_gives_twice_fills_no_memory() -> None:
    memory, frames = FrameMemory(slots=3, slot_bytes=64), Frames()
    events: list[Event] = []
    outlet = CameraOutlet("top", memory, frames, events.append)
    for shade in range(5):
        outlet.deliver(np.full((2, 2, 3), shade, np.uint8), 7, 0, 1)
    assert events == [Picture("top", 7, 0, 1)] * 5, "the core hears of each"
    (slot,) = frames.values()
    assert memory.taken == 1 and memory.view(slot).max() == 0, "the first stays"
    memory.close()


# ---- the judge


def test_the_second_of_two_long_jobs_does_not_stop_the_heartbeat() -> None:
    """Each picture may take as long as judge_hang_ms, and the judge is silent meanwhile."""
    config = settings(
        cameras=("top", "side"), deadline_ms=5000, acquire_ms=5000, judge_hang_ms=3000, alive_ms=500
    )
    line = VirtualLine(config).start()
    line.trigger()
    line.now += 1
    jobs = found(line.picture("top") + line.picture("side"), JudgePicture)
    beats = []
    for step in range(24):
        line.now += 100
        for event in (CameraProgress("top"), CameraProgress("side"), IoProgress(), Tick()):
            line.say(event)
        beats.append(line.status.heartbeat)
        if step == 11:
            line.judged(jobs[0])
    assert len(set(beats)) == len(beats)
    line.judged(jobs[1])
    assert results(line) == [("good", Reason.NONE)]


@pytest.mark.parametrize("step", ["asked", "one picture", "both", "one opinion", "decided"])
def test_a_judge_that_is_killed_at_each_step_of_a_part_with_two_pictures(step: str) -> None:
    """Its answers that still lie in the pipe decide nothing, neither this part nor the next."""
    line = VirtualLine(settings(cameras=("top", "side"))).start()
    line.trigger(1)
    line.now += 1
    jobs: list[JudgePicture] = []
    steps = ["asked", "one picture", "both", "one opinion", "decided"]
    for camera in ("top", "side")[: steps.index(step)]:
        jobs += found(line.picture(camera), JudgePicture)
    for job in jobs[: steps.index(step) - 2]:
        line.judged(job)
    line.say(JudgeDown(1, "killed"))
    expected = ("good", Reason.NONE) if step == "decided" else ("no-verdict", Reason.JUDGE_DOWN)
    assert results(line) == [expected]
    assert not line.bit(READY)
    for job in jobs:  # what was in the pipe
        line.judged(job)
    line.judge = 2
    line.say(JudgeUp(2))
    line.say(Acknowledge())
    line.wait(1000)
    line.test_cameras()
    line.prepare()
    for job in jobs:
        line.judged(job)
    assert len(results(line)) == 1
    line.wait(1000)
    line.say(Reset())
    line.test_cameras()
    line.now += 1
    assert found(line.trigger(2), RecordAccepted)
    for job in jobs:
        line.judged(job)
    line.now += 1
    mine = found(line.picture("top") + line.picture("side"), JudgePicture)
    line.judged(mine[0], "anomalous")
    for job in jobs:
        line.judged(job)
    line.judged(mine[1])
    assert results(line)[1:] == [("anomalous", Reason.NONE)]


def test_a_reset_while_a_part_is_judged_and_its_verdict_after_the_next_trigger(
    line: VirtualLine,
) -> None:
    """RESET gives the part up; no trigger is served while the judge still has its picture."""
    line.trigger(1)
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.say(Reset())
    assert results(line) == [("no-verdict", Reason.RESET)]
    line.test_cameras()
    line.trigger(2)
    assert results(line)[1:] == [("no-verdict", Reason.BUSY)]
    line.judged(job)
    assert found(line.effects, RecordLate) and not line.bit(PASS)
    assert line.bit(READY) and found(line.trigger(3), RecordAccepted)


def test_a_product_that_changes_between_trigger_and_picture(line: VirtualLine) -> None:
    """The part keeps the product of its trigger, and the next one waits for the new product."""
    line.trigger(1)
    line.say(ChangeProduct(2))
    line.prepare(2)
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    assert job.product.number == 1
    line.judged(job)
    (record,) = [effect.record for effect in found(line.effects, RecordPart)]
    assert record.product is not None
    assert (record.verdict, record.product.number) == ("good", 1)
    assert line.status.product == 2, "what parts are judged by from now on"
    line.say(Acknowledge())
    line.trigger(2)
    line.say(ChangeProduct(1))
    line.say(JudgeDown(1, "killed"))
    assert results(line)[1:] == [("no-verdict", Reason.JUDGE_DOWN)]
    assert not line.bit(READY)


def test_outputs_while_time_has_jumped_over_deadline_and_hold(line: VirtualLine) -> None:
    """Nobody called the core for a minute: neither the verdict nor a result that is over stands."""
    line.trigger(1)
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.now += 60_000
    line.judged(job)
    assert results(line) == [("no-verdict", Reason.DEADLINE)]
    assert not line.bit(PASS)


# ---- the recorder


def test_the_warning_about_dropped_pictures_ends_with_them(line: VirtualLine) -> None:
    watch = RecorderWatch()
    for dropped, now, expected in ((0, 0, False), (1, 5, True), (3, 14, True), (3, 24, False)):
        news = watch.look(RecorderLoad(0, 0, dropped, ""), has_room=True, now=now)
        if news is not None:
            line.say(news)
        assert line.bit(StatusBit.WARNING) == expected, now
    said = [effect.text for effect in found(line.effects, Say)]
    assert said.count("the recorder drops pictures") == 1


def test_a_recorder_that_cannot_write_is_a_warning(line: VirtualLine) -> None:
    """Its rows wait in memory, and a power failure would lose them: somebody should know."""
    watch = RecorderWatch()
    for failure, expected in (("", False), ("the disk is full", True), ("", False)):
        news = watch.look(RecorderLoad(5, 0, 0, failure), has_room=True, now=1.0)
        if news is not None:
            line.say(news)
        assert line.bit(StatusBit.WARNING) == expected


# ---- buses


def test_a_bus_that_refuses_the_output_keeps_it_from_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Status] = []

    def refuse(status: Status) -> None:
        raise OSError("the card was pulled out")

    buses = Buses.__new__(Buses)
    buses._made = {  # type: ignore[dict-item]
        "gpio": SimpleNamespace(put_out=refuse),
        "tcp": SimpleNamespace(put_out=shown.append),
    }
    fault = Status(StatusBit.FAULT)
    with pytest.raises(OSError, match="pulled out"):
        buses.put_out(fault)
    assert shown == [fault]


def test_connections_without_another_end_are_probed() -> None:
    """A PLC that lost its power closes nothing, and must not stay the master of its successor."""
    events: list[Event] = []
    port = free_port()
    bus = ModbusBus("127.0.0.1", port, (), events.append, lambda: None)
    bus.start()
    plc = ModbusTcpClient("127.0.0.1", port=port, timeout=60)
    plc.connect()
    plc.write_register(0, 1)
    wait_until(lambda: Enable(True) in events)
    master: Any = bus._registers.master
    assert_probed(master.transport)
    plc.close()
    bus.close()
    line = TcpBus("127.0.0.1", 0, (), events.append, lambda: None)
    line.start()
    with socket.create_connection(("127.0.0.1", line.port)):
        wait_until(lambda: bool(line._writers))
        (writer,) = line._writers.values()
        assert_probed(writer.transport)
    line.close()


def assert_probed(transport: asyncio.BaseTransport) -> None:
    link = transport.get_extra_info("socket")
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle, step, probes = (link.getsockopt(socket.IPPROTO_TCP, option) for option in options)
    assert idle + step * probes <= 10
