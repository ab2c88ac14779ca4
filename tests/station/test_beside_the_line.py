"""A whole station with its page: whatever happens to the web process, every part gets its verdict.

`serve` runs as users start it; the test is the PLC, and floods the page from another process.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from command_line import environment, ok
from running_station import RunningStation
from tiny_bundle import make_tiny_bundle, write_good_pictures
from websockets.sync.client import connect

from anoco_edge.line.words.constants import StatusBit


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStation]:
    folder = tmp_path_factory.mktemp("station")
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", str(folder / "line.anoco"), *write_good_pictures(folder / "good", 3))
    station = RunningStation(folder)
    yield station
    station.stop()
    data = sqlite3.connect(folder / "press-3" / "line.db")
    with closing(data):
        verdicts = data.execute("SELECT verdict, count(*) FROM part GROUP BY verdict").fetchall()
        assert verdicts == [("good", station.seq)], "every part has its verdict, and once"
        assert data.execute("SELECT count(*) FROM late").fetchone() == (0,)


def test_the_page_shows_what_the_line_does(station: RunningStation) -> None:
    headers = {"Authorization": f"Bearer {station.token}"}
    with connect(f"ws://127.0.0.1:{station.web}/api/v1/live", additional_headers=headers) as tab:
        assert json.loads(tab.recv(60))["type"] == "state"
        part = {"preview": None}
        while part["preview"] is None:  # only so many parts a second get one
            station.part()
            while (part := json.loads(tab.recv(60)))["type"] != "part":
                pass
    assert part["seq"] == station.seq and part["verdict"] == "good"
    assert part["captures"][0]["camera"] == "top"
    assert (part["captures"][0]["width"], part["captures"][0]["height"]) == (96, 80)
    preview = station.program.get(part["preview"])
    assert preview.status == 200 and preview.body[:2] == b"\xff\xd8"

    def latest() -> dict[str, object]:
        """The part that was written down last."""
        items = station.program.get("/api/v1/parts?limit=1").json["items"]
        return dict(items[0]) if items else {}

    station.wait_for(lambda: latest().get("uid") == part["uid"])
    assert latest()["preview"] == part["preview"], "a good part is seen after a reload, too"
    picture = station.program.get("/api/v1/cameras/top/picture")
    assert picture.status == 200 and picture.headers["content-type"] == "image/jpeg"
    assert station.program.get("/api/v1/cameras/left/picture").status == 404

    def state() -> dict[str, object]:
        return dict(station.program.get("/api/v1/state").json)

    station.wait_for(lambda: state()["counters"]["good"] == station.seq)  # type: ignore[index]
    shown = state()
    assert shown["name"] == "press-3" and shown["product"]["name"] == "washer"  # type: ignore[index]
    assert shown["yield"] == 1.0 and shown["cameras"][0]["up"] is True  # type: ignore[index]
    figures = station.program.get("/metrics").body.decode()
    assert "anoco_line_triggers_total" in figures
    assert 'anoco_station_line_connected{station="press-3"} 1' in figures


def test_a_person_pauses_the_line_and_lets_it_go_on(station: RunningStation) -> None:
    pause = "/api/v1/line/maintenance"
    assert station.program.post(pause, {"on": True}).status == 202
    station.plc.wait_for(StatusBit.READY, high=False)
    assert station.program.post(pause, {"on": False}).status == 202
    station.part()
    entries = json.loads(ok("station", "audit", station.folder / "station.toml", "--json").out)
    assert [each["details"] for each in entries[:2]] == ['{"on": false}', '{"on": true}']
    assert entries[0]["user"] == "ada/test" and entries[0]["via"] == "token"


@pytest.mark.full
def test_the_plc_takes_a_candidate_and_drops_another(station: RunningStation) -> None:
    """It sees the candidate, decides, and the line changes over between two parts."""
    station.part()
    product = station.program.get("/api/v1/products/1/captures/0").json
    generation = product["generation"]

    def candidate(state: str) -> None:
        station.wait_for(lambda: station.plc.ask("C")[1] == state)

    asked = {"change": {"what": "threshold", "value": 2 * product["threshold"]}}
    job = station.program.post("/api/v1/products/1/captures/0/what-if", asked).json["id"]
    station.wait_for(lambda: station.program.get(f"/api/v1/jobs/{job}").json["state"] == "done")

    def begin_trial() -> None:
        trial = {"product": 1, "candidate": job, "parts": 100_000}
        assert station.program.post("/api/v1/shadow", trial).status == 201
        candidate("1")

    def latest() -> dict[str, object]:
        shown = ok("station", "audit", station.folder / "station.toml", "--json").out
        return dict(json.loads(shown)[0])

    station.plc.send("C,1")
    station.wait_for(lambda: any("there is no candidate" in line for line in station.said))
    begin_trial()
    station.plc.send("C,0")
    candidate("0")
    entry = latest()
    assert (entry["action"], entry["user"], entry["via"]) == (
        *("trial dropped", "tcp 127.0.0.1", "plc"),
    )
    begin_trial()
    station.plc.send("C,1")
    station.part()
    candidate("0")
    entry = latest()
    assert (entry["action"], entry["subject"], entry["user"], entry["via"]) == (
        *("trial taken", "product 1", "tcp 127.0.0.1", "plc"),
    )

    def judges_by() -> object:
        return station.program.get("/api/v1/state").json["product"]["generation"]

    station.wait_for(lambda: judges_by() == generation + 1)
    station.part()
    begin_trial()
    (page,) = station.pages()
    os.kill(page, signal.SIGKILL)
    candidate("0")
    station.wait_for(lambda: station.pages() not in ([], [page]))
    candidate("1")
    station.plc.send("C,0")
    candidate("0")


def test_a_web_process_that_hangs_or_is_killed_disturbs_nobody(station: RunningStation) -> None:
    (page,) = station.pages()
    os.kill(page, signal.SIGSTOP)
    for _ in range(5):
        station.part()
    os.kill(page, signal.SIGKILL)
    station.part()
    station.wait_for(lambda: station.pages() not in ([], [page]))
    station.wait_for(station.connected)
    assert any("the page ended (-9); it starts again" in line for line in station.said)
    station.part()


def flood(station: RunningStation, requests: int, sockets: int) -> dict[str, int]:
    """Flood the page while parts go through, and return what the flood was answered."""
    command = [
        sys.executable,
        "-m",
        "anoco_edge.station.bench.flood",
        str(station.web),
        station.token,
    ]
    flooding = subprocess.Popen(
        [*command, str(requests), str(sockets)],
        env=environment(),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    station.part()
    while flooding.poll() is None:
        station.part()
    assert flooding.stdout is not None and flooding.returncode == 0
    answers: dict[str, int] = json.load(flooding.stdout)
    flooding.stdout.close()
    assert sum(answers.values()) == requests
    assert not {status for status in answers if status.startswith("50") and status != "503"}
    assert answers.get("200", 0) > 0, answers  # a slow machine is never asked too fast: no 429
    assert station.program.get("/health/live").status in (200, 429)
    return answers


def test_a_flooded_page_changes_no_verdict(station: RunningStation) -> None:
    (page,) = station.pages()
    flood(station, 200, 6)
    assert station.pages() == [page], "it was slow, and is still there"


@pytest.mark.full
def test_ten_thousand_requests_and_fifty_sockets_change_no_verdict(station: RunningStation) -> None:
    flood(station, 10_000, 50)
