"""GPIO with doubles of the kernel's lines: no chip was here, and none can be simulated."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpiod
import pytest
from gpiod.line import Direction, Value
from mosquitto_broker import wait_until

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.line.buses.gpio_bus import GpioBus, GpioSettings
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.events import Enable, Event, Reset, Trigger, TriggerRelease
from anoco_edge.line.core.status import Status
from anoco_edge.line.server import LineServer
from anoco_edge.line.station_check import check_station
from anoco_edge.line.words.constants import CommandBit, StatusBit

PASS, READY, ALIVE, TRIGGER, RESET, ENABLE = 17, 5, 27, 22, 23, 24
TABLE = """
[gpio]
chip = "/dev/gpiochip9"
inputs = { TRIGGER = 22, RESET = 23 }
outputs = { PASS = 17, READY = 5 }
alive = 27
"""
VALID = StatusBit.RESULT_VALID


class Lines:
    """Stands in for a chip: its lines by number, and edges that a test makes."""

    def __init__(self) -> None:
        self.values: dict[int, bool] = {}
        self.set: list[tuple[int, bool]] = []
        self.requests: list[Request] = []
        self.failure: OSError | None = None

    def request_lines(self, path: str, config: dict[Any, Any], consumer: str) -> Request:
        if self.failure is not None:
            raise self.failure
        ((lines, settings),) = config.items()
        self.requests.append(Request(self, lines, settings))
        return self.requests[-1]

    def edge(self, line: int, high: bool) -> None:
        self.values[line] = high
        kind = gpiod.EdgeEvent.Type.RISING_EDGE if high else gpiod.EdgeEvent.Type.FALLING_EDGE
        (request,) = [each for each in self.requests if line in each.lines]
        request.edges.append(gpiod.EdgeEvent(kind.value, 0, line, 0, 0))
        os.write(request.end, b"e")


class Request:
    """Stands in for gpiod.LineRequest."""

    def __init__(self, chip: Lines, lines: tuple[int, ...], settings: gpiod.LineSettings) -> None:
        self.chip, self.lines, self.settings = chip, lines, settings
        self.edges: list[gpiod.EdgeEvent] = []
        self.fd, self.end = os.pipe()
        self.released = False

    def set_values(self, values: dict[int, Value]) -> None:
        assert self.settings.direction is Direction.OUTPUT and not self.released
        if self.chip.failure is not None:
            raise self.chip.failure
        for line, value in values.items():
            self.chip.values[line] = value is Value.ACTIVE
            self.chip.set.append((line, value is Value.ACTIVE))

    def get_value(self, line: int) -> Value:
        return Value.ACTIVE if self.chip.values.get(line) else Value.INACTIVE

    def read_edge_events(self) -> list[gpiod.EdgeEvent]:
        os.read(self.fd, 64)
        found, self.edges = self.edges, []
        return found

    def release(self) -> None:
        self.released = True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    made = Lines()
    monkeypatch.setattr(gpiod, "request_lines", made.request_lines)
    return made


class Wires:
    """A bus on a clock that the test moves."""

    def __init__(self, inputs: dict[CommandBit, int]) -> None:
        self.events: list[Event] = []
        self.time = 0
        self.turns = 0
        outputs = {StatusBit.PASS: PASS, StatusBit.READY: READY}
        settings = GpioSettings("/dev/gpiochip9", inputs, outputs, ALIVE, pulse_ms=100)
        self.bus = GpioBus(settings, self.events.append, self._turn, lambda: self.time)

    def _turn(self) -> None:
        self.turns += 1


@pytest.fixture
def wires(lines: Lines) -> Iterator[Callable[..., Wires]]:
    made: list[Wires] = []

    def make(inputs: dict[CommandBit, int] | None = None) -> Wires:
        made.append(Wires(inputs or {CommandBit.TRIGGER: TRIGGER, CommandBit.RESET: RESET}))
        made[-1].bus.start()
        return made[-1]

    yield make
    for each in made:
        each.bus.close()


def test_a_good_part_is_a_pulse_on_the_wire(wires: Callable[..., Wires], lines: Lines) -> None:
    station = wires()
    assert not lines.values.get(PASS)
    station.bus.put_out(Status(VALID | StatusBit.PASS | StatusBit.RESULT_TOGGLE))
    assert lines.values[PASS], "at once, in the thread of the caller"
    station.time = 99_000_000
    time.sleep(0.15)
    assert lines.values[PASS]
    station.time = 100_000_000
    wait_until(lambda: not lines.values[PASS])
    # The same result does not make another pulse; the next one does.
    station.bus.put_out(Status(VALID | StatusBit.PASS | StatusBit.RESULT_TOGGLE, heartbeat=2))
    assert not lines.values[PASS]
    station.bus.put_out(Status(VALID | StatusBit.PASS))
    assert lines.values[PASS]
    # The next trigger takes the result from the wire, however short the pulse was.
    station.bus.put_out(Status(StatusBit.BUSY))
    assert not lines.values[PASS]


def test_no_other_result_gives_power_to_the_wire(wires: Callable[..., Wires], lines: Lines) -> None:
    station = wires()
    fail = StatusBit.FAIL | VALID
    station.bus.put_out(Status(fail | StatusBit.RESULT_TOGGLE))
    station.bus.put_out(Status(fail | StatusBit.NO_VERDICT))
    station.bus.put_out(Status(StatusBit.FAULT))
    simulated = VALID | StatusBit.PASS | StatusBit.SIMULATED | StatusBit.RESULT_TOGGLE
    station.bus.put_out(Status(simulated))
    assert (PASS, True) not in lines.set


def test_alive_is_a_square_wave_of_the_heartbeat(wires: Callable[..., Wires], lines: Lines) -> None:
    station = wires()
    for beat in (1, 1, 2, 3, 3, 3):
        station.bus.put_out(Status(StatusBit.READY, beat))
    assert [on for line, on in lines.set if line == ALIVE] == [True, False, True]
    assert lines.values[READY]
    station.bus.close()
    assert not any(lines.values.get(line) for line in (PASS, READY, ALIVE)), "everything falls"
    assert all(request.released for request in lines.requests)


def test_edges_are_commands(wires: Callable[..., Wires], lines: Lines) -> None:
    lines.values[TRIGGER] = True  # for long: that is no edge
    station = wires()
    assert station.events == [Enable(True)], "there is no wire for ENABLE"
    for line, high in ((TRIGGER, False), (TRIGGER, True), (RESET, True), (TRIGGER, False)):
        lines.edge(line, high)
    expected = [Enable(True), TriggerRelease(), Trigger(0, ""), Reset(), TriggerRelease()]
    wait_until(lambda: station.events == expected)
    wait_until(lambda: station.turns > 1)


def test_a_wire_for_enable(wires: Callable[..., Wires], lines: Lines) -> None:
    station = wires({CommandBit.TRIGGER: TRIGGER, CommandBit.ENABLE: ENABLE})
    assert station.events == []
    lines.edge(ENABLE, True)
    lines.edge(ENABLE, False)
    wait_until(lambda: station.events == [Enable(True), Enable(False)])


def test_a_chip_that_fails_gives_no_sign_of_life(wires: Callable[..., Wires], lines: Lines) -> None:
    station = wires()
    lines.failure = OSError("gone")
    station.bus.put_out(Status(StatusBit.READY))
    wait_until(lambda: not station.bus._thread.is_alive())
    before = station.turns
    time.sleep(0.25)
    assert station.turns == before


def test_lines_that_cannot_be_had(lines: Lines) -> None:
    lines.failure = OSError(16, "Device or resource busy")
    with pytest.raises(EnvironmentMissingError, match="cannot use the lines of /dev/gpiochip9"):
        Wires({CommandBit.TRIGGER: TRIGGER}).bus.start()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("outputs = { PAS = 1 }", "PAS"),
        ("inputs = { TRIGGER = 4 }\noutputs = { PASS = 4 }", "line 4 comes twice"),
        ("", "uses no line"),
        ("alive = -1", "greater than or equal to 0"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_config(f"{EXAMPLE}\n[gpio]\n{text}\n", "station.toml")


def test_a_station_with_wires_alone(lines: Lines, tmp_path: Path) -> None:
    alone = EXAMPLE.replace("[tcp]\nport = 7700", "")
    with pytest.raises(UsageError, match="nobody could trigger"):
        parse_config(f"{alone}\n[gpio]\nalive = 3\n", "station.toml")
    config = parse_config(alone + TABLE, "station.toml")
    findings = {each.name: each for each in check_station(config, tmp_path).findings}
    assert findings["gpio"].state != "ok" and "/dev/gpiochip9" in findings["gpio"].detail
    server = LineServer(config, tmp_path, say=lambda _: None)
    server._buses.start()
    server._buses.put_out(Status(StatusBit.READY))
    assert lines.values[READY]
    lines.edge(TRIGGER, True)
    wait_until(lambda: server._events.qsize() >= 2)
    server.stop()
