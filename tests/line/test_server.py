"""A whole station: TCP clients, simulated camera, the judge's process, the store."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from command_line import environment, fails, ok
from line_client import PATIENCE, Client
from mosquitto_broker import wait_until
from PIL import Image
from pymodbus.client import ModbusTcpClient
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.tcp_bus import parse_line, result_line, status_line
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.effects import Effect, PartRecord
from anoco_edge.line.core.events import (
    Acknowledge,
    CandidateDecision,
    ChangeProduct,
    Enable,
    Event,
    NewGeneration,
    PlcBeat,
    Reset,
    Simulate,
    StatusQuery,
)
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import CommandBit, Reason, StatusBit, StatusRegister

SLOW = """
[line]
deadline_ms = 60000
acquire_ms = 60000
hold_ms = 60000
judge_hang_ms = 120000
alive_ms = 60000
fault_after = 1000
"""  # no test may depend on an idle machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("station")
    make_tiny_bundle(made / "line.anoco")
    pictures = write_good_pictures(made / "good", 3)
    ok("enroll", str(made / "line.anoco"), *pictures)
    return made


def station_text(port: int, name: str = "press-3") -> str:
    text = EXAMPLE.replace("rendered:washer", "folder:good").replace(
        "port = 7700", f"port = {port}"
    )
    return text.replace('folder = "press-3"', f'folder = "{name}"') + SLOW


@pytest.fixture
def station(folder: Path) -> Iterator[tuple[LineServer, Client, list[str]]]:
    said: list[str] = []
    port, modbus, web = free_port(), free_port(), free_port()
    text = station_text(port) + f"\n[modbus]\nport = {modbus}\n\n[http]\nport = {web}\n"
    text += "\n[store]\nkeep_good_every = 1\n"
    (folder / "station.toml").write_text(text)
    server = LineServer(parse_config(text, "a"), folder, say=said.append)
    server.start()
    client = Client(port)
    client.modbus, client.http = modbus, web
    yield server, client, said
    server.stop()


def test_parts_get_their_verdicts_and_rows(
    station: tuple[LineServer, Client, list[str]], folder: Path
) -> None:
    server, client, said = station
    announced: list[PartRecord] = []
    server._buses._announce.append(announced.append)
    assert client.ask("T,1")[2:4] == ["NOVERDICT", str(int(Reason.DISABLED))]
    client.send("E,1")
    client.wait_for(StatusBit.READY)
    for seq in range(2, 8):
        answer = client.ask(f"T,{seq},A{seq}")
        assert answer[:3] == ["R", str(seq), "PASS"], (answer, said)
        client.send(f"A,{seq}")
    assert client.ask("P,99999")[0] == "?" and client.ask("hello")[0] == "?"

    assert part_over_modbus(client.modbus, 10) == "PASS"
    client.wait_for(StatusBit.READY, high=False)  # the Modbus master took ENABLE with it
    client.send("E,1")
    client.wait_for(StatusBit.READY)

    assert part_over_http(client.http, 11) == "good"
    client.send("A,11")
    client.wait_for(StatusBit.READY)

    # The judge is killed while a part waits for it: no verdict, and the line goes on by itself.
    pid = server.judge.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    client.send("T,12")
    client.wait_for(StatusBit.BUSY)
    os.kill(pid, signal.SIGKILL)
    assert client.lines.readline().split(",")[:4] == ["R", "12", "NOVERDICT", "6"]
    client.send("A,12")
    client.wait_for(StatusBit.READY)
    assert client.ask("T,13")[2] == "PASS"
    status = client.ask("S")
    assert status[4:] == ["11", "9", "0", "1", "1"]
    figures = over_http(client.http, "/metrics").read().decode()
    for line in (
        'parts_total{station="press-3",verdict="good"} 9',
        'no_verdicts_total{station="press-3",reason="JUDGE_DOWN"} 1',
        'refusals_total{station="press-3",reason="DISABLED"} 1',
        'output_seconds_count{station="press-3"} 10',
        'reserve_seconds_bucket{station="press-3",le="5.0"} 0',
        'judge_replacements_total{station="press-3"} 1',
        'status{station="press-3",bit="PASS"} 1.0',
    ):
        assert f"\nanoco_line_{line}\n" in figures, figures
    server.stop()
    assert server._memory.taken == 0, "every frame was let go"
    assert [part.seq for part in announced] == [*range(2, 8), 10, 11, 12, 13], "by every bus"
    data = sqlite3.connect(folder / "press-3" / "line.db")
    rows = data.execute("SELECT seq, verdict, part_code FROM part ORDER BY uid").fetchall()
    assert rows[1] == (2, "good", "A2") and len(rows) == 11
    assert data.execute("SELECT count(*) FROM part WHERE verdict IS NULL").fetchone() == (0,)
    counted = dict(data.execute("SELECT name, value FROM counter"))
    assert counted == {"triggers": 11, "good": 9, "no_verdict": 1, "missed": 1}
    assert data.execute("SELECT bundle_sha256 FROM capture").fetchone()[0]
    (document,) = data.execute("SELECT document FROM config").fetchone()
    assert json.loads(document)["station"]["name"] == "press-3"
    (uid,) = data.execute("SELECT uid FROM part WHERE seq = 2").fetchone()
    assert ok("replay", uid, "--station", folder / "station.toml", "--json").json["state"] == "same"


def over_http(port: int, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    link.request("GET" if body is None else "POST", path, body)
    return link.getresponse()


def part_over_http(port: int, seq: int) -> str:
    assert over_http(port, "/health/live").status == over_http(port, "/health/ready").status == 200
    answer = over_http(port, "/api/v1/trigger", json.dumps({"seq": seq}).encode())
    result = json.load(answer)
    assert answer.status == 200 and result["seq"] == seq and result["uid"], result
    return str(result["verdict"])


def part_over_modbus(port: int, seq: int) -> str:
    """Send one part through by the handshake of bits, as a PLC does."""
    plc = ModbusTcpClient("127.0.0.1", port=port, timeout=PATIENCE)
    assert plc.connect()

    def wait_for(bit: StatusBit, *, high: bool = True) -> list[int]:
        end = time.monotonic() + PATIENCE
        while True:
            registers: list[int] = plc.read_input_registers(0, count=64).registers
            if bool(registers[0] & bit) == high:
                return registers
            assert time.monotonic() < end, registers
            time.sleep(0.01)

    enable, trigger = CommandBit.ENABLE, CommandBit.ENABLE | CommandBit.TRIGGER
    plc.write_registers(0, [int(enable), seq])
    wait_for(StatusBit.READY)
    plc.write_registers(0, [int(trigger), seq])
    wait_for(StatusBit.TRIGGER_ACK)
    plc.write_register(0, int(enable))
    wait_for(StatusBit.TRIGGER_ACK, high=False)
    result = wait_for(StatusBit.RESULT_VALID)
    assert result[StatusRegister.RESULT_SEQ] == seq
    plc.write_register(0, int(enable | CommandBit.RESULT_ACK))
    wait_for(StatusBit.RESULT_VALID, high=False)
    plc.close()
    return "PASS" if result[0] & StatusBit.PASS else "FAIL"


# Two parts of the first run, one of them interrupted, and one of the second.
COUNTED = ["3", "2", "0", "1", "0"]


def test_a_station_that_is_killed_goes_on_with_its_counters(folder: Path) -> None:
    port = free_port()
    (folder / "killed.toml").write_text(station_text(port, "killed"))
    command = [sys.executable, "-m", "anoco_edge", "serve", str(folder / "killed.toml")]
    seen: list[str] = []
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"\0anoco-serve-{os.getpid()}")
    watched = {"NOTIFY_SOCKET": f"@anoco-serve-{os.getpid()}", "WATCHDOG_USEC": "1000000"}
    for run in (1, 2):
        process = subprocess.Popen(
            command, env={**environment(), **watched}, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        for line in process.stderr:
            if "listens on" in line:
                break
        client = Client(port)
        assert not client.bits() & (StatusBit.READY | StatusBit.RESULT_VALID)
        client.send("E,1")
        client.wait_for(StatusBit.READY)
        assert client.ask(f"T,{run}")[2] == "PASS"
        if run == 1:
            client.send("A,1")
            client.wait_for(StatusBit.READY)
            time.sleep(1.0)  # the rows of part 1 are committed
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            judge = int(children.split()[0])
            os.kill(judge, signal.SIGSTOP)
            client.send("T,2")
            client.wait_for(StatusBit.BUSY)
            time.sleep(1.0)  # its acceptance too
            process.kill()
            os.kill(judge, signal.SIGKILL)
        seen = client.ask("S")[4:] if run == 2 else []
        process.terminate()
        process.wait(PATIENCE)
        process.stderr.close()
    assert seen == COUNTED
    heard = [manager.recv(4096).decode().partition("\n")[0] for _ in range(2)]
    assert heard == ["READY=1", "WATCHDOG=1"] or heard == ["WATCHDOG=1", "READY=1"]
    manager.close()


def broken(*_: object) -> NoReturn:
    raise KeyError("a mistake")


def test_a_core_that_fails_leaves_fault_and_no_verdict_on_the_wire(
    station: tuple[LineServer, Client, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, _ = station
    client.send("E,1")
    client.wait_for(StatusBit.READY)
    monkeypatch.setattr(server.core, "handle", broken)
    client.wait_for(StatusBit.FAULT)
    assert client.bits() == StatusBit.FAULT and isinstance(server.failure, KeyError)


def test_a_bus_that_refuses_the_output_leaves_fault_on_all_others(
    station: tuple[LineServer, Client, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, said = station
    monkeypatch.setattr(server._buses._made["tcp"], "put_out", broken)
    web: Any = server._buses._made["http"]
    wait_until(lambda: web.status.bits == StatusBit.FAULT)
    assert isinstance(server.failure, KeyError)
    assert any("shows FAULT: KeyError('a mistake')" in line for line in said)


def test_a_status_is_never_older_than_the_command_before_it(
    station: tuple[LineServer, Client, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, _ = station
    client.send("E,1")
    client.wait_for(StatusBit.READY)
    handle = server.core.handle

    def slowly(event: Event, now: int) -> list[Effect]:
        time.sleep(0.2 if isinstance(event, Enable) else 0.0)
        return handle(event, now)

    monkeypatch.setattr(server.core, "handle", slowly)
    client.send("E,0", "S", "E,1", "S")
    answers = [client.lines.readline().split(",") for _ in range(2)]
    ready = [bool(int(answer[1], 16) & StatusBit.READY) for answer in answers]
    assert ready == [False, True]


def test_a_client_that_asks_without_reading_does_not_fill_the_queue(
    station: tuple[LineServer, Client, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, _ = station
    handle, go_on, asked = server.core.handle, threading.Event(), threading.Event()

    def held_up(event: Event, now: int) -> list[Effect]:
        if isinstance(event, StatusQuery):
            asked.set()
            assert go_on.wait(PATIENCE)
        return handle(event, now)

    monkeypatch.setattr(server.core, "handle", held_up)
    client.send(*["S"] * 2000)
    assert asked.wait(PATIENCE)
    time.sleep(0.3)  # all of them have arrived
    assert server._events.qsize() < 500
    go_on.set()
    assert all(client.lines.readline().startswith("S,") for _ in range(2000))


def test_stored_pictures_take_the_place_of_a_camera(folder: Path) -> None:
    Image.fromarray(np.zeros((80, 96, 3), np.uint8)).save(made(folder / "stored") / "dark.png")
    port = free_port()
    text = station_text(port, "simulated")
    text = text.replace('"folder:good"', '"folder:good"\nsimulate = "folder:stored"')
    server = LineServer(parse_config(text, "a"), folder, say=lambda _: None)
    server.start()
    client = Client(port)
    marked = StatusBit.READY | StatusBit.SIMULATED
    try:
        for commands, wanted in ((("E,1", "M,1"), marked), (("M,0",), StatusBit.READY)):
            client.send(*commands)
            while client.bits() & marked != wanted:
                time.sleep(0.02)
            passed = client.ask("T,")[2] == "PASS"
            assert passed != (wanted is marked), "the stored picture is not a good one"
            assert bool(client.bits() & StatusBit.SIMULATED) == (wanted is marked)
            client.send("A")
    finally:
        server.stop()
    data = sqlite3.connect(folder / "simulated" / "line.db")
    found = data.execute("SELECT simulated FROM part ORDER BY uid").fetchall()
    assert found == [(1,), (0,)]


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_bundle_that_is_replaced_while_it_judges(folder: Path) -> None:
    """The judge keeps what it has prepared; the line takes the new generation when it is told."""
    bundle = folder / "replaced.anoco"
    shutil.copytree(folder / "line.anoco", bundle)
    port = free_port()
    text = station_text(port, "replaced").replace("line.anoco", "replaced.anoco")
    server = LineServer(parse_config(text, "a"), folder, say=lambda _: None)
    server.start()
    client = Client(port)
    generations = []
    try:
        client.send("E,1")
        for step in ("", "taught again", "told", "gone"):
            if step == "taught again":
                ok("enroll", str(bundle), *write_good_pictures(folder / "more", 4))
            elif step == "told":
                server.post(NewGeneration())
                while server.status.generation != 2:
                    time.sleep(0.02)
            elif step == "gone":
                bundle.rename(folder / "elsewhere.anoco")
            client.wait_for(StatusBit.READY)
            assert client.ask("T,")[2] == "PASS"
            generations.append(server.status.generation)
            client.send("A")
    finally:
        server.stop()
    assert generations == [1, 1, 2, 2]
    data = sqlite3.connect(folder / "replaced" / "line.db")
    rows = data.execute("SELECT generation FROM capture ORDER BY uid").fetchall()
    assert [generation for (generation,) in rows] == generations, "rows name what has judged"


def test_a_port_that_is_taken_and_a_second_station(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        path = folder / "taken.toml"
        path.write_text(station_text(taken.getsockname()[1]))
        assert "cannot listen on 127.0.0.1" in fails(3, "serve", str(path))
        text = path.read_text() + f"\n[modbus]\nport = {free_port()}\n"
        server = LineServer(parse_config(text, "a"), folder, say=lambda _: None)
        with pytest.raises(EnvironmentMissingError, match="cannot listen on"):
            server.start()  # the port was taken after the check
        server.stop()
    assert "give one of the two" in fails(2, "serve")


@pytest.mark.parametrize(
    "line",
    [
        "M,2",
        "M",
        "H,x",
        "H,65536",
        "",
        "T,x",
        "T,70000",
        "T,1,a,b",
        "P,0",
        "E,2",
        "A,-1",
        "X,1",
        "S,1",
        "Q",
        "C,2",
        "T,²",
    ],
)
def test_a_line_that_is_not_understood(line: str) -> None:
    with pytest.raises(ValueError):
        parse_line(line, "tcp:1")


def test_every_command_of_the_line_protocol() -> None:
    commands = ("E,0", "A", "A,7", "P,2", "X", "S", "H,65535", "M,1", "M,0", "C,1", "C,0")
    assert [parse_line(line, "tcp:1", "tcp 10.0.0.5") for line in commands] == [
        Enable(False),
        *(Acknowledge(), Acknowledge(7), ChangeProduct(2), Reset(), StatusQuery("tcp:1")),
        *(PlcBeat(65535), Simulate(True), Simulate(False)),
        *(CandidateDecision(True, "tcp 10.0.0.5"), CandidateDecision(False, "tcp 10.0.0.5")),
    ]


def test_answers_of_the_line_protocol() -> None:
    record = PartRecord("u", 3, "", "", True, 0, 1, "no-verdict", Reason.DEADLINE, total_ms=500)
    assert result_line(record) == "R,3,NOVERDICT,1,0,500"
    from anoco_edge.line.core.status import Counters, Status

    shown = Status(StatusBit.READY | StatusBit.PASS, 7, 1, counters=Counters(9, 5, 2, 1, 1))
    assert status_line(shown) == "S,0041,7,1,9,5,2,1,1"
