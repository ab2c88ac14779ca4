"""HTTP on the line's own port, with http.client as the other side."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.http_bus import MOST_CLIENTS, HttpBus
from anoco_edge.line.buses.json_messages import COMMANDS
from anoco_edge.line.core.effects import CaptureRecord, FrameKey, PartRecord, RecordLate, RecordPart
from anoco_edge.line.core.events import (
    CameraDown,
    CandidateDecision,
    ChangeProduct,
    Enable,
    Event,
    Opinion,
    Picture,
    PreparedProduct,
    Reset,
    Tick,
    Trigger,
)
from anoco_edge.line.core.settings import MS
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.metrics import Depths, LineMetrics
from anoco_edge.line.words.constants import Reason, StatusBit
from anoco_edge.line.words.table import COMMAND_BITS

PATIENCE = 60.0
GOOD = PartRecord("r1-000001", 7, "A1", "", True, 0, 90 * MS, "good", Reason.NONE, ratio=0.5)
BUSY = PartRecord("r1-000002", 8, "", "", False, 0, 0, "no-verdict", Reason.BUSY)


class Line:
    """A server, the events that it gave, and what a trigger is answered with."""

    def __init__(
        self, clients: tuple[str, ...] = (), token: str = "", patience: float = 60
    ) -> None:
        self.events: list[Event] = []
        self.turns = 0
        self.result: PartRecord | None = GOOD
        self.port = free_port()
        self.bus = HttpBus(
            ("127.0.0.1", self.port),
            clients,
            self._post,
            self._turn,
            figures=lambda: "figures 1\n",
            patience=patience,
            token=token,
        )
        self.bus.start()

    def _turn(self) -> None:
        self.turns += 1

    def _post(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Trigger) and self.result is not None:
            self.bus.reply(event.client, self.result)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        link = self.connect()
        link.request(method, path, body, headers)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        if answer.status >= 400 and "health" not in path:
            assert answer.headers["Content-Type"] == "application/problem+json"
        return answer.status, json.loads(text) if text.startswith("{") else text


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.bus.close()


def test_a_trigger_is_answered_with_the_result_of_that_part(line: Line) -> None:
    status, result = line.ask("POST", "/api/v1/trigger", '{"seq": 7, "part_code": "A1"}')
    assert status == 200
    assert (result["uid"], result["verdict"], result["reason"]) == ("r1-000001", "good", "NONE")
    assert line.events == [Trigger(7, "A1", "http:1")]
    line.result = BUSY
    status, problem = line.ask("POST", "/api/v1/trigger", "")
    assert status == problem["status"] == 409 and "BUSY" in problem["detail"]
    assert problem["result"]["accepted"] is False
    line.bus.reply("http:1", GOOD)  # nobody waits any more


def test_every_command_of_the_table_and_the_state(line: Line) -> None:
    assert set(COMMANDS) == {bit.name.lower() for bit in COMMAND_BITS} | {"plc_heartbeat"}
    for name, body in (
        ("enable", '{"on": true}'),
        ("change_product", '{"number": 4}'),
        ("reset", ""),
        ("take_candidate", ""),
        ("drop_candidate", "{}"),
    ):
        assert line.ask("POST", f"/api/v1/{name}", body)[0] == 202
    decisions = [CandidateDecision(take, "http 127.0.0.1") for take in (True, False)]
    assert line.events == [Enable(True), ChangeProduct(4), Reset(), *decisions]
    line.bus.put_out(Status(StatusBit.READY, 9, counters=Counters(70000)))
    state = line.ask("GET", "/api/v1/status")[1]
    assert (state["BITS"], state["HEARTBEAT"], state["COUNT_TRIGGERS"]) == (["READY"], 9, 70000)
    assert line.ask("GET", "/metrics") == (200, "figures 1\n")


def test_health_follows_the_heartbeat_and_the_bits(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("anoco_edge.line.buses.http_bus.time.monotonic", lambda: now[0])

    def health() -> tuple[int, int]:
        return line.ask("GET", "/health/live")[0], line.ask("GET", "/health/ready")[0]

    assert health() == (503, 503)
    line.bus.put_out(Status(StatusBit.WARNING, heartbeat=1))
    assert health() == (200, 503)
    line.bus.put_out(Status(StatusBit.READY, heartbeat=1))
    assert health() == (200, 200)
    line.bus.put_out(Status(StatusBit.BUSY, heartbeat=1))
    assert health() == (200, 200)
    now[0] += 1.1
    assert health() == (503, 503), "the heartbeat stands still"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", None, {}, 404),
        ("GET", "/api/v1/trigger", None, {}, 405),
        ("PUT", "/api/v1/trigger", None, {}, 501),
        ("POST", "/api/v1/status", "", {}, 404),
        ("POST", "/trigger", "", {}, 404),
        ("POST", "/api/v1/trigger", '{"seq": 70000}', {}, 400),
        ("POST", "/api/v1/trigger", '{"seq": "7"}', {}, 400),
        ("POST", "/api/v1/trigger", '{"sequence": 7}', {}, 400),
        ("POST", "/api/v1/trigger", "[]", {}, 400),
        ("POST", "/api/v1/trigger", "no JSON", {}, 400),
        ("POST", "/api/v1/enable", "", {}, 400),
        ("POST", "/api/v1/trigger", " " * 5000, {}, 413),
        ("POST", "/api/v1/trigger", "", {"Content-Length": "-1"}, 413),
        ("POST", "/api/v1/trigger", "", {"Transfer-Encoding": "chunked"}, 413),
        ("POST", "/api/v1/trigger", "", {"Origin": "http://elsewhere"}, 403),
        ("GET", "/" + "x" * 70000, None, {}, 414),
    ],
)
def test_what_is_refused(
    line: Line, method: str, path: str, body: str | None, headers: dict[str, str], status: int
) -> None:
    found, problem = line.ask(method, path, body, **headers)
    assert (found, problem["status"]) == (status, status) and problem["detail"]
    assert not line.events


def test_a_token_and_an_allowed_client() -> None:
    line = Line(("127.0.0.1",), token="s3cret")
    try:
        body = '{"on": true}'
        for header in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
            assert line.ask("POST", "/api/v1/enable", body, **header)[0] == 401
        assert not line.events
        assert line.ask("POST", "/api/v1/enable", body, Authorization="Bearer s3cret")[0] == 202
        assert line.ask("GET", "/metrics")[0] == 200
    finally:
        line.bus.close()
    other = Line(("10.0.0.5",))
    with pytest.raises((http.client.HTTPException, OSError)):
        other.ask("GET", "/metrics")
    other.bus.close()


def test_a_flood_of_requests_is_spread_over_time(line: Line) -> None:
    begin = time.monotonic()
    link = line.connect()
    for _ in range(18):
        link.request("GET", "/api/v1/status")
        assert link.getresponse().read()
    assert time.monotonic() - begin > 0.2, "10 at once, then 20 a second"
    assert line.ask("POST", "/api/v1/trigger", "")[0] == 200, "commands have a pace of their own"
    link.close()


def test_silent_clients_take_no_more_than_their_places(line: Line) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", line.port), PATIENCE) for _ in range(MOST_CLIENTS)
    ]
    with pytest.raises((http.client.HTTPException, OSError)):
        line.ask("GET", "/metrics")
    turns = line.turns
    for each in silent:
        each.close()
    end = time.monotonic() + PATIENCE
    while True:
        try:
            assert line.ask("GET", "/metrics")[0] == 200
            break
        except (http.client.HTTPException, OSError):
            assert time.monotonic() < end
            time.sleep(0.05)
    while line.turns <= turns:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_line_that_gives_no_result(line: Line) -> None:
    line.result = None
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(line.ask("POST", "/api/v1/trigger", "")[0])
    )
    asking.start()
    end = time.monotonic() + PATIENCE
    while not line.events:
        assert time.monotonic() < end
        time.sleep(0.01)
    line.bus.close()
    asking.join(PATIENCE)
    hung = Line(patience=0.05)
    hung.result = None
    answers.append(hung.ask("POST", "/api/v1/trigger", "")[0])
    hung.bus.close()
    assert answers == [503, 503]


def test_a_port_that_is_taken(line: Line) -> None:
    second = HttpBus(
        ("127.0.0.1", line.port), (), print, lambda: None, figures=lambda: "", patience=1
    )
    with pytest.raises(EnvironmentMissingError, match="cannot listen on"):
        second.start()


def figures() -> str:
    metrics = LineMetrics("press-3", 500, ["top"])
    opinion = Opinion("good", PreparedProduct(1, 4, 5))
    capture = CaptureRecord("top", FrameKey("top", 1), 5, 6, opinion)
    good = PartRecord(
        *("r1-1", 1, "", "", True, 0, 90 * MS, "good", Reason.NONE),
        captures=(capture,),
        acquire_ms=30,
    )
    late = PartRecord("r1-2", 2, "", "", True, 0, 500 * MS, "no-verdict", Reason.DEADLINE)
    metrics.count(Picture("top", 1, 0, 1, complete=False), [RecordPart(good)], 95 * MS)
    metrics.count(Tick(), [RecordPart(late), RecordLate("r1-2", 0, opinion, 9)], 501 * MS)
    metrics.count(CameraDown("top"), [RecordPart(BUSY)], 600 * MS)
    status = Status(StatusBit.READY, 3, 1, 4, 0xBEEF, counters=Counters(1234567, 1, 0, 1, 1))
    return metrics.text(status, State.READY, Depths({"rows": 3}, dropped=2))


@pytest.mark.parametrize(
    "line",
    [
        'triggers_total{station="press-3"} 1234567',
        'parts_total{station="press-3",verdict="good"} 1',
        'no_verdicts_total{station="press-3",reason="DEADLINE"} 1',
        'refusals_total{station="press-3",reason="BUSY"} 1',
        'output_seconds_bucket{station="press-3",le="0.05"} 0',
        'output_seconds_bucket{station="press-3",le="0.1"} 1',
        'output_seconds_bucket{station="press-3",le="+Inf"} 2',
        'output_seconds_sum{station="press-3"} 0.596',
        'reserve_seconds_bucket{station="press-3",le="0.005"} 1',
        'reserve_seconds_sum{station="press-3"} 0.405',
        'acquire_seconds_sum{station="press-3"} 0.03',
        'late_verdicts_total{station="press-3"} 1',
        'camera_incomplete_total{station="press-3",camera="top"} 1',
        'camera_losses_total{station="press-3",camera="top"} 1',
        'queue_depth{station="press-3",queue="rows"} 3',
        'pictures_dropped_total{station="press-3"} 2',
        'state{station="press-3",state="Ready"} 1.0',
    ],
)
def test_figures(line: str) -> None:
    assert f"\nanoco_line_{line}\n" in figures()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is missing")
def test_prometheus_own_checker_finds_nothing() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=figures(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
