"""The watchdog of systemd hears of a line only while nothing has stopped without a word."""

from __future__ import annotations

import queue
import time
from pathlib import Path

import pytest
from virtual_line import VirtualLine

from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.events import (
    CameraDown,
    CameraProgress,
    IoProgress,
    JudgeDown,
    JudgeProgress,
    Tick,
)
from anoco_edge.line.server import LineServer


def test_what_stops_without_a_word_hangs_and_what_is_known_to_be_lost_does_not() -> None:
    line = VirtualLine().start()
    line.wait(5000)
    assert line.core.hung == []
    line.say(CameraDown("top", "unplugged"))
    line.say(JudgeDown(1, "crashed"))
    for _ in range(50):
        line.now += 100
        line.say(IoProgress())
    assert line.core.hung == [] and not line.bit(1), "not ready, and no restart would help"
    line.now += 1200
    line.say(Tick())
    assert line.core.hung == ["io"]


@pytest.mark.parametrize("silent", ["camera:top", "judge"])
def test_a_camera_or_a_judge_that_says_nothing_any_more(silent: str) -> None:
    line = VirtualLine().start()
    for _ in range(15):
        line.now += 100
        line.say(IoProgress())
        line.say(JudgeProgress(1) if silent != "judge" else CameraProgress("top"))
    assert line.core.hung == [silent]


def test_the_thread_of_the_core_gives_the_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs: queue.SimpleQueue[float] = queue.SimpleQueue()
    server = LineServer(
        parse_config(EXAMPLE, "station.toml"),
        tmp_path,
        say=lambda _: None,
        alive=lambda: signs.put(time.monotonic()),
    )
    server._thread.start()  # without cameras, judge and buses
    try:
        signs.get(timeout=60)
        signs.get(timeout=60)
        monkeypatch.setattr(type(server.core), "hung", ["io"])
        server.post(Tick())
        while True:  # those that were under way
            signs.get(timeout=0.5)
    except queue.Empty:
        pass
    finally:
        server.stop()
    assert server.failure is None
