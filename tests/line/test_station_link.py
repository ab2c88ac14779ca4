"""The socket between a line and its station: what passes, what is lost, and that nobody waits."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.core import events as ev
from anoco_edge.line.core.effects import CaptureRecord, DecideCandidate, FrameKey, PartRecord
from anoco_edge.line.frame_memory import FrameMemory
from anoco_edge.line.link.client import BURST, LARGEST_REQUEST, MOST_EVENTS, Client
from anoco_edge.line.link.messages import LineState
from anoco_edge.line.link.station_link import (
    MOST_CLIENTS,
    MOST_PREVIEWS,
    MOST_WAITING,
    NAME,
    StationLink,
)
from anoco_edge.line.words.constants import Reason

PATIENCE = 60
OPINION = ev.Opinion(
    "anomalous",
    ev.PreparedProduct(1, 2, 3),
    ratio=1.25,
    regions=(ev.RegionWord(1, 4, 5, 6, 7, 1250),),
)
CAPTURE = CaptureRecord("top", FrameKey("top", 1), 0, 1, OPINION)


def part(number: int) -> PartRecord:
    return PartRecord(
        f"r1-{number:06}",
        number,
        "A1",
        "",
        True,
        0,
        5,
        "anomalous",
        Reason.NONE,
        captures=(CAPTURE,),
    )


class Station:
    """A client that was written from the description of the link."""

    def __init__(self, path: Path) -> None:
        self.link = socket.socket(socket.AF_UNIX)
        self.link.settimeout(PATIENCE)
        self.link.connect(str(path))

    def send(self, **request: Any) -> None:
        text = json.dumps(request).encode()
        self.link.sendall(len(text).to_bytes(4, "big") + text)

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.link.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def receive(self) -> tuple[dict[str, Any], bytes]:
        header = json.loads(self.read(int.from_bytes(self.read(4), "big")))
        return header, self.read(header["payload"])

    def ask(self, **request: Any) -> tuple[dict[str, Any], bytes]:
        self.send(id=7, **request)
        while (answer := self.receive())[0].get("id") != 7:
            pass
        return answer

    def event(self, kind: str) -> tuple[dict[str, Any], bytes]:
        while (answer := self.receive())[0].get("event") != kind:
            pass
        return answer


class Line:
    """What the link asks of a line."""

    def __init__(self, folder: Path) -> None:
        self.posted: list[ev.Event] = []
        self.noted: list[str] = []
        self.state = LineState(words={"HEARTBEAT": 0})
        self.memory = FrameMemory(slots=8)
        self.path = folder / NAME
        self.link = StationLink(
            self.path,
            lambda: self.state,
            self.posted.append,
            lambda: "figures 1\n",
            self.memory,
            self.noted.append,
        )

    def show(self, width: int = 1200) -> Any:
        slot = self.memory.put(np.full((8, width, 3), 9, np.uint8))
        assert slot is not None
        self.link.frames.keep("top", slot)
        return slot


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    line.link.start()
    yield line
    line.link.close()
    assert not line.path.exists()


def test_the_station_asks_and_commands(line: Line) -> None:
    station = Station(line.path)
    assert station.ask(do="figures")[1] == b"figures 1\n"
    station.ask(do="command", name="reset")
    station.ask(do="command", name="maintenance", body={"on": True})
    station.ask(do="command", name="change_product", body={"number": 2})
    station.ask(do="command", name="new_generation")
    assert line.posted == [
        ev.Reset(),
        ev.Maintenance(True),
        ev.ChangeProduct(2),
        ev.NewGeneration(),
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "dance"},
        {},
        {"do": "command", "name": "trigger", "body": {"seq": 1}},
        {"do": "command", "name": "halt"},
        {"do": "command", "name": "maintenance", "body": {"on": 1}},
        {"do": "command", "name": "maintenance", "body": []},
        {"do": "command", "name": "change_product", "body": {"number": 0}},
        {"do": "frame", "camera": "left"},
        {"do": "candidate", "trial": 7, "stage": 3},
    ],
)
def test_what_cannot_be_done_is_an_error_and_changes_nothing(
    line: Line, request_: dict[str, Any]
) -> None:
    assert station_error(line, request_)
    assert [event for event in line.posted if not isinstance(event, ev.LivePicture)] == []


def station_error(line: Line, request: dict[str, Any]) -> str:
    return str(Station(line.path).ask(**request)[0]["error"])


def test_parts_come_with_a_preview_and_the_state_when_it_changes(line: Line) -> None:
    station = Station(line.path)
    station.ask(do="subscribe")
    station.event("state")
    slot = line.show()
    line.link.offer_part(part(1), slot)
    event, payload = station.event("part")
    header = event["part"]
    assert header["uid"] == "r1-000001" and header["verdict"] == "anomalous"
    (capture,) = header["captures"]
    assert capture["camera"] == "top" and capture["ratio"] == 1.25
    assert capture["regions"] == [{"left": 4, "top": 5, "right": 6, "bottom": 7, "peak": 1.25}]
    assert (capture["width"], capture["height"]) == (1200, 8), "what the regions are drawn over"
    assert simplejpeg.decode_jpeg_header(payload)[:2] == (4, 600)
    line.link.offer_log("warning", "hot")
    assert station.event("log")[0]["log"] == {"level": "warning", "text": "hot"}
    line.state = LineState(bits=["READY"], words={"HEARTBEAT": 1})
    while station.event("state")[0]["state"]["bits"] != ["READY"]:
        pass


def test_who_has_told_of_a_candidate_gets_the_decision_and_takes_the_candidate_along(
    line: Line,
) -> None:
    decision = DecideCandidate(7, True, "modbus 10.0.0.5")
    line.link.offer_decision(decision)
    wait_for(lambda: line.noted)
    assert line.noted == ["warning: TAKE_CANDIDATE by modbus 10.0.0.5 did not reach the page"]
    other, station = Station(line.path), Station(line.path)
    other.ask(do="subscribe")
    station.ask(do="candidate", trial=7, stage=1, differences=3)
    told = ev.CandidateReport(ev.Candidate(7, ev.CandidateStage.JUDGING, 3))
    assert line.posted == [told]
    line.link.offer_decision(decision)
    event, _ = station.event("decision")
    assert (event["trial"], event["take"], event["by"]) == (7, True, "modbus 10.0.0.5")
    other.link.close()
    station.link.close()
    wait_for(lambda: len(line.posted) == 2)
    assert line.posted[1:] == [ev.CandidateReport(None)], "said once, and of this connection"
    assert len(line.noted) == 1


def wait_for(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_latest_frame_is_a_small_jpeg_or_the_frame_itself(line: Line) -> None:
    station = Station(line.path)
    line.show()
    _, picture = station.ask(do="frame", camera="top")
    assert simplejpeg.decode_jpeg_header(picture)[:2] == (4, 600)
    header, raw = station.ask(do="frame", camera="top", full=True)
    assert (header["height"], header["width"]) == (8, 1200) and raw == b"\x09" * 8 * 1200 * 3
    assert ev.LivePicture("top") in line.posted, "a paused station takes another one"
    slots = [line.show() for _ in range(3)]
    assert line.memory.taken == 1 + 3, "one is held, and three by who delivered them"
    assert len(slots) == 3


def test_the_line_waits_for_nobody(line: Line) -> None:
    """A station that never reads: the line offers as before, and messages are lost and counted."""
    station = Station(line.path)
    station.ask(do="subscribe")
    station.event("state")
    line.state = LineState(bits=["x" * 300_000])
    deadline = time.monotonic() + PATIENCE
    number = 0
    while line.link.lost < 5:
        number += 1
        line.link.offer_part(part(number), None)
        line.link.offer_log("info", "y" * 100_000)
        assert time.monotonic() < deadline
        time.sleep(0.001)
    other = Station(line.path)
    assert other.ask(do="figures")[1], "others are served"
    assert number > MOST_EVENTS / 1_000_000


def test_what_waits_is_bounded_while_the_link_does_not_run(tmp_path: Path) -> None:
    line = Line(tmp_path)  # its thread is not started
    line.link._subscribed = True
    slot = line.memory.put(np.zeros((4, 4, 3), np.uint8))
    for number in range(MOST_WAITING + 9):
        line.link._preview_at = 0.0
        line.link.offer_part(part(number), slot)
        line.link.offer_log("info", "text")
    assert len(line.link._inbox) == MOST_WAITING and line.link.lost > 9
    assert line.link._held == MOST_PREVIEWS
    line.link.close()
    line.memory.let_go(slot)  # type: ignore[arg-type]
    assert line.memory.taken == 0, "what waited was let go"


def test_without_a_station_nothing_is_kept(line: Line) -> None:
    line.link.offer_part(part(1), line.show())
    line.link.offer_log("info", "text")
    assert not line.link._inbox


@pytest.mark.parametrize(
    "raw",
    [
        (LARGEST_REQUEST + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x02[]",
    ],
)
def test_who_breaks_the_rules_is_dropped(line: Line, raw: bytes) -> None:
    station = Station(line.path)
    station.link.sendall(raw)
    with pytest.raises((EOFError, ConnectionResetError)):
        station.receive()
    assert Station(line.path).ask(do="figures")[1]


def test_there_are_only_so_many_stations(line: Line) -> None:
    stations = [Station(line.path) for _ in range(MOST_CLIENTS)]
    for station in stations:
        station.ask(do="figures")
    with pytest.raises((EOFError, OSError)):
        Station(line.path).ask(do="figures")
    stations[0].link.close()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            assert Station(line.path).ask(do="figures")
            break
        except (EOFError, OSError):
            assert time.monotonic() < deadline


def test_a_station_that_asks_too_fast_is_read_more_slowly() -> None:
    ours, theirs = socket.socketpair()
    with selectors.DefaultSelector() as selector, theirs:
        client = Client(ours, selector)
        text = b'{"do": "figures"}'
        theirs.sendall((len(text).to_bytes(4, "big") + text) * (BURST + 20))
        client.turn(selectors.EVENT_READ)
        done = len(list(client.requests()))
        assert BURST <= done < BURST + 20
        client.close()


def test_only_its_owner_reaches_the_socket(line: Line) -> None:
    assert line.path.stat().st_mode & 0o777 == 0o600


def test_a_path_that_is_too_long_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissingError, match="too long for a socket"):
        Line(tmp_path / ("x" * 100))


def test_closing_ends_while_a_camera_delivers(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.link.start()
    stop = threading.Event()

    def deliver() -> None:
        while not stop.is_set():
            slot = line.memory.put(np.zeros((4, 4, 3), np.uint8))
            if slot is not None:
                line.link.frames.keep("top", slot)
                line.memory.let_go(slot)

    camera = threading.Thread(target=deliver)
    camera.start()
    time.sleep(0.05)
    line.link.close()
    stop.set()
    camera.join(PATIENCE)
    assert line.memory.taken == 0
