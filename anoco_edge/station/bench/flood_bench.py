"""Measures a line beside its page: once while nobody asks for it, once while it is flooded."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.bench.latency import LineBench, bench_line
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.station.database import Database
from anoco_edge.station.people.tokens import Tokens
from anoco_edge.station.people.users import Users
from anoco_edge.station.process import PageProcess

SOCKETS = 50
_PATIENCE = 120.0
_STATION = """
[station]
name = "bench"
folder = {folder}
[[cameras]]
name = "top"
source = "rendered:washer"
[[products]]
number = 1
name = "part"
captures = [{{ camera = "top", bundle = "bench.anoco" }}]
[tcp]
port = {tcp}
[page]
port = {page}
"""
"""What the page needs to know of the station that is measured."""


def bench_flood(
    config: StationConfig,
    folder: Path,
    parts: int,
    warmup: int,
    step: Callable[[str], None] = lambda _: None,
) -> LineBench:
    """Measure a station whose data lie in `folder` twice, and return all rows."""
    answers: dict[str, int] = {}
    idle = bench_line(config, folder, parts, warmup, step, _page(config, folder, None))
    busy = bench_line(config, folder, parts, warmup, step, _page(config, folder, answers))
    rows = [replace(row, bus=f"{row.bus}, page flooded") for row in busy.rows]
    words = ", ".join(f"{count} x {status}" for status, count in sorted(answers.items()))
    settings = {**idle.settings, "flood": f"{SOCKETS} WebSockets; answers: {words}"}
    return LineBench((*idle.rows, *rows), settings)


@contextmanager
def _page(config: StationConfig, folder: Path, answers: dict[str, int] | None) -> Iterator[None]:
    """Serve the page of a station, and flood it if its answers are wanted."""
    assert config.page is not None and config.tcp is not None
    port = config.page.port
    path = folder / "page.toml"
    values = {"folder": json.dumps(str(folder)), "tcp": config.tcp.port, "page": port}
    path.write_text(_STATION.format(**values), encoding="utf-8")
    token = _make_token(folder)
    page = PageProcess(path, lambda _: None)
    page.start()
    try:
        _wait_until_it_answers(port)
        if answers is None:
            yield
        else:
            with _flooding(port, token, answers):
                yield
    finally:
        page.close()


@contextmanager
def _flooding(port: int, token: str, answers: dict[str, int]) -> Iterator[None]:
    command = [sys.executable, "-m", "anoco_edge.station.bench.flood", str(port), token, "0"]
    flood = subprocess.Popen(
        [*command, str(SOCKETS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield
        answers.update(json.loads(flood.communicate(timeout=_PATIENCE)[0]))
    finally:
        flood.kill()
        flood.wait()


def _make_token(folder: Path) -> str:
    database = Database(folder)
    users = Users(database)
    if users.none:
        users.add("bench", "admin", secrets.token_urlsafe(16))
    _, token = Tokens(database, time.time).add("flood", "viewer", "bench", 1)
    database.close()
    return token


def _wait_until_it_answers(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=5):
                return
        except urllib.error.HTTPError:  # it answers, and the line is not ready yet
            return
        except OSError:
            time.sleep(0.1)
    raise EnvironmentMissingError(
        "the page does not answer", hint="run serve with a station.toml and look at its log"
    )
