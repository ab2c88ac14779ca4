"""schemathesis reads the OpenAPI document of a running station and tries to prove it wrong.

It makes requests that fit the document and requests that do not, one by one and in sequences, and
compares every answer with what the document says. It comes into an environment of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from running_station import RunningStation
from taught_station import TaughtStation, make_taught_station
from tiny_bundle import write_good_pictures
from tool_environment import install_tool

from anoco_edge.station.database import Database
from anoco_edge.station.people.sessions import Sessions, csrf_token

TOOL = "schemathesis==4.32.5"
SETTINGS = """
[parameters]
"path.number" = 1
"path.capture" = 0
"path.uid" = "{uid}"

[checks]
# Ids of other stations and states of the line are refused though they fit; sessions are not in the
# document, so that who is signed in is no matter of it (tests/station/test_sign_in.py).
positive_data_acceptance.enabled = false
missing_required_header.enabled = false
ensure_resource_availability.enabled = false
ignored_auth.enabled = false

# A line that is paused is not ready, which is an answer with this status.
[[operations]]
include-name = "GET /health/ready"
checks.not_a_server_error.enabled = false

# Signing out would end the session that all other cases need.
[[operations]]
include-name = "DELETE /api/v1/session"
enabled = false
"""
CASES = int(os.environ.get("ANOCO_OPENAPI_CASES", "40"))  # of a route at most, in each phase


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    return make_taught_station(tmp_path_factory.mktemp("openapi"))


@pytest.fixture(scope="module")
def station(made: TaughtStation) -> Iterator[RunningStation]:
    write_good_pictures(made.base / "good", 3)
    station = RunningStation(made.base)
    yield station
    station.stop()


@pytest.mark.full
def test_every_answer_is_what_the_openapi_document_says(
    made: TaughtStation,
    station: RunningStation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(Database(station.folder / "press-3")) as database:
        session = Sessions(database, time.time).open("ada", "password")
    origin = f"http://127.0.0.1:{station.web}"
    headers = {
        "Cookie": f"anoco-{station.web}={session}",
        "Origin": origin,
        "X-Anoco-CSRF": csrf_token(session),
    }
    document, settings = tmp_path / "openapi.json", tmp_path / "schemathesis.toml"
    document.write_bytes(station.program.get("/api/v1/openapi.json").body)
    settings.write_text(SETTINGS.format(uid=made.uid(11)))
    command = [
        str(install_tool(tmp_path / "tool", TOOL) / "schemathesis"),
        *("--config-file", str(settings), "run", str(document), "--url", origin),
        *("--rate-limit", "45/s", "--seed", "20", "--max-examples", str(CASES)),
        *("--continue-on-failure", "--no-shrink", "--workers", "2"),
        *("--request-timeout", "300"),  # the page has the lowest priority of all
        *(word for name, value in headers.items() for word in ("-H", f"{name}: {value}")),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with capsys.disabled():
        print("\n", *re.findall(r"Tested: \d+|\d+ generated, \d+ passed", ran.stdout))
    assert station.connected(), "the line goes on, whatever it was told"
