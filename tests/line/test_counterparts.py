"""Modbus clients that others wrote: mbpoll, and npm's modbus-serial as a PLC that scans."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ok
from mosquitto_broker import wait_until
from npm_packages import with_packages
from paths import TESTS
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.line.buses.modbus_bus import ModbusBus
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.events import Enable, Event, PlcBeat, Trigger, TriggerRelease
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import CommandBit, StatusBit, StatusRegister

PATIENCE = 240
PLC = TESTS / "support/plc"


@pytest.mark.skipif(shutil.which("mbpoll") is None, reason="mbpoll is missing")
def test_mbpoll_reads_and_writes() -> None:
    events: list[Event] = []
    port = free_port()
    bus = ModbusBus("127.0.0.1", port, (), events.append, lambda: None)
    bus.start()
    bus.put_out(Status(StatusBit.READY | StatusBit.PASS, 9, counters=Counters(70000)))
    try:
        words = dict(mbpoll(port, "-t", "3", "-c", "64"))
        assert len(words) == 64 and words[StatusRegister.STATUS] == 65
        assert words[StatusRegister.HEARTBEAT] == 9
        assert [words[StatusRegister.COUNT_TRIGGERS + n] for n in (0, 1)] == [1, 70000 - 65536]
        bits = int(CommandBit.ENABLE | CommandBit.TRIGGER)
        mbpoll(port, "-t", "4", "127.0.0.1", str(bits), "17")
        wait_until(lambda: TriggerRelease() in events)  # its commands fall when it disconnects
    finally:
        bus.close()
    said = [event for event in events if not isinstance(event, PlcBeat)]
    assert said == [Enable(True), Trigger(17), Enable(False), TriggerRelease()]


def mbpoll(port: int, *options: str) -> list[tuple[int, int]]:
    """Call it once and return addresses with values; a write names the host before its values."""
    host = [] if "127.0.0.1" in options else ["127.0.0.1"]
    command = ["mbpoll", "-m", "tcp", "-p", str(port), "-0", "-1", "-r", "0", *options, *host]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return [(int(a), int(v)) for a, v in re.findall(r"^\[(\d+)\]:\s+(\d+)", done.stdout, re.M)]


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PLC with its package, from the registry that npm is set up for."""
    return with_packages(PLC, tmp_path_factory.mktemp("plc"))


@pytest.fixture
def station(tmp_path: Path) -> Iterator[tuple[LineServer, int]]:
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", str(tmp_path / "line.anoco"), *write_good_pictures(tmp_path / "good", 3))
    port = free_port()
    text = EXAMPLE.replace("rendered:washer", "folder:good").replace("[tcp]", "[modbus]")
    text = text.replace("port = 7700", f"port = {port}")
    text += "\n[line]\ndeadline_ms = 30000\nacquire_ms = 30000\nhold_ms = 60000\n"
    text += "judge_hang_ms = 60000\nalive_ms = 10000\nplc_timeout_ms = 10000\n"
    server = LineServer(parse_config(text, "station.toml"), tmp_path, say=lambda _: None)
    server.start()
    yield server, port
    server.stop()


def test_a_plc_that_scans_every_10_ms(
    node_modules: Path, station: tuple[LineServer, int], tmp_path: Path
) -> None:
    server, port = station
    done = subprocess.run(
        ["node", "plc.js", str(port), "25"],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "NODE_PATH": str(node_modules / "node_modules")},
    )
    assert done.returncode == 0, done.stderr
    parts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [part["seq"] for part in parts] == list(range(1, 26))
    assert all(part["release"] and part["part"] == f"P{part['seq']}" for part in parts)
    assert server.status.counters == Counters(25, 25, 0, 0, 0)
