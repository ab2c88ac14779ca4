"""A whole station on bad days: killed at every step of a part, and with a slow detector."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from command_line import environment, ok
from line_client import PATIENCE, Client
from paths import PACKAGES, SUPPORT, python_path
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.judge.process import JudgeProcess
from anoco_edge.line.server import LineServer
from anoco_edge.line.store.database import open_database
from anoco_edge.line.words.constants import Reason, StatusBit

TIMES = """
[line]
deadline_ms = {deadline}
acquire_ms = {acquire}
hold_ms = 60000
judge_hang_ms = {hang}
alive_ms = 60000
fault_after = 1000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", str(tmp_path / "line.anoco"), *write_good_pictures(tmp_path / "good", 3))
    return tmp_path


def write_station(folder: Path, *, deadline: int, acquire: int, hang: int) -> tuple[Path, int]:
    port = free_port()
    text = EXAMPLE.replace("rendered:washer", "folder:good")
    text = text.replace("port = 7700", f"port = {port}")
    path = folder / "station.toml"
    path.write_text(text + TIMES.format(deadline=deadline, acquire=acquire, hang=hang))
    return path, port


# ---- kill -9


class KilledStation:
    """A station in a process of its own, whose camera does what a line of its input says."""

    def __init__(self, path: Path, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.station", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path(*PACKAGES, SUPPORT)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n"
        self.client = Client(port)

    @property
    def judge(self) -> int:
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def let_no_picture_come(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("ignore\n")
        self.process.stdin.flush()
        time.sleep(0.5)  # the camera has read it

    def kill(self) -> None:
        judge = self.judge
        self.process.kill()
        os.kill(judge, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def running(path: Path, port: int) -> Iterator[KilledStation]:
    station = KilledStation(path, port)
    try:
        yield station
    finally:
        if station.process.poll() is None:
            station.kill()


def rows_of(folder: Path) -> list[tuple[int, str | None, int]]:
    with closing(sqlite3.connect(folder / "press-3/line.db", timeout=10)) as data:
        return data.execute("SELECT accepted, verdict, reason FROM part ORDER BY uid").fetchall()


def wait_for_rows(folder: Path, accepted: int, decided: int) -> None:
    """Wait until the rows are written of parts that were accepted and of all outcomes."""
    end = time.monotonic() + PATIENCE
    while True:
        rows = rows_of(folder)
        written = sum(row[0] for row in rows), sum(row[1] is not None for row in rows)
        if written == (accepted, decided):
            return
        assert time.monotonic() < end, (written, accepted, decided)
        time.sleep(0.05)


@pytest.mark.full
def test_a_station_that_is_killed_at_every_step_of_a_part(folder: Path) -> None:
    """After each restart nothing is put out, the interrupted part is closed, counters go on."""
    path, port = write_station(folder, deadline=60000, acquire=60000, hang=120000)
    good = interrupted = 0
    for step in ("idle", "exposing", "judging", "decided", "acknowledged", "refused"):
        with running(path, port) as station:
            client = station.client
            first = client.ask("S")
            shown = StatusBit.RESULT_VALID | StatusBit.PASS | StatusBit.FAIL | StatusBit.READY
            assert not int(first[1], 16) & (shown | StatusBit.BUSY), step
            assert first[4:] == [str(n) for n in (good + interrupted, good, 0, interrupted, 0)]
            client.send("E,1")
            client.wait_for(StatusBit.READY)
            if step == "exposing":
                station.let_no_picture_come()
            if step == "judging":
                os.kill(station.judge, signal.SIGSTOP)
            if step in ("exposing", "judging"):
                client.send("T,1")
                bit = StatusBit.EXPOSING if step == "exposing" else StatusBit.ACQ_DONE
                client.wait_for(bit)
                interrupted += 1
            elif step != "idle":
                assert client.ask("T,1")[2] == "PASS"
                good += 1
            if step == "acknowledged":
                client.send("A,1")
                client.wait_for(StatusBit.RESULT_VALID, high=False)
            if step == "refused":
                assert client.ask("T,2")[3] == str(int(Reason.NOT_ACKNOWLEDGED))
            pending = step in ("exposing", "judging")
            outcomes = good + interrupted - pending + (step == "refused")
            wait_for_rows(folder, good + interrupted, outcomes)
            station.kill()
    with running(path, port) as station:
        counters = station.client.ask("S")[4:]
    assert counters == [str(n) for n in (good + interrupted + 1, good, 0, interrupted, 1)]
    closed = [(accepted, reason) for accepted, verdict, reason in rows_of(folder) if reason]
    restarted = (1, int(Reason.RESTARTED))
    assert closed == [restarted, restarted, (0, int(Reason.NOT_ACKNOWLEDGED))]


# ---- no permission

WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Makes root obey the modes of files, as everybody else does."""


@pytest.mark.parametrize(("name", "mode"), [("press-3", 0o555), ("press-3/line.db", 0o444)])
def test_a_store_that_must_not_be_written_is_one_line(folder: Path, name: str, mode: int) -> None:
    root = os.geteuid() == 0
    if root and shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing, and root may write everywhere")
    path, _ = write_station(folder, deadline=60000, acquire=60000, hang=120000)
    open_database(folder / "press-3", print).close()
    (folder / name).chmod(mode)
    program = [*(WITHOUT_RIGHTS if root else ()), sys.executable, "-m", "anoco_edge"]
    done = subprocess.run(
        [*program, "serve", str(path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    (folder / name).chmod(0o755)
    assert done.returncode in (1, 3)
    (words,) = done.stderr.splitlines()
    assert re.search(rf"cannot write into \S*/{name}", words) and "bug" not in words


# ---- a full disk


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 3 MB for the data of the station."""
    disk = folder / "press-3"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk))
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here, so that a disk could be full")
    yield disk
    subprocess.run(("umount", "--lazy", str(disk)), check=True)


@pytest.mark.full
def test_a_full_disk_stops_no_part_and_loses_no_row(folder: Path, small_disk: Path) -> None:
    """Pictures are dropped and counted, rows wait, and all is written when there is room again."""
    path, port = write_station(folder, deadline=60000, acquire=60000, hang=120000)
    said: list[str] = []
    server = LineServer(parse_config(path.read_text(), "a"), folder, say=said.append)
    server.start()
    try:
        client = Client(port)
        client.send("E,1")
        ballast = small_disk / "ballast"
        for number in range(1, 41):
            client.wait_for(StatusBit.READY)
            assert client.ask(f"T,{number}")[1:3] == [str(number), "PASS"]
            client.send(f"A,{number}")
            if number == 5:
                wait_for_rows(folder, 5, 5)
                with ballast.open("wb", buffering=0) as file, suppress(OSError):
                    while True:
                        file.write(bytes(4096))
        client.wait_for(StatusBit.WARNING)
        assert any("the recorder cannot write" in text for text in said), said
        ballast.unlink()
        wait_for_rows(folder, 40, 40)
        assert "the recorder writes again" in said
        assert client.ask("S")[4:] == ["40", "40", "0", "0", "0"]
    finally:
        server.stop()


# ---- a detector that is slow


SLOW_JUDGE = """
import time
from anoco_edge import Detector
from anoco_edge.line.judge.child import main

inspect, seconds = Detector.inspect, iter({seconds})

def slowly(self, *args, **others):
    time.sleep(next(seconds, 0))
    return inspect(self, *args, **others)

Detector.inspect = slowly
main()
"""


@pytest.mark.full
@pytest.mark.parametrize(("seconds", "hangs"), [(4.0, False), (600.0, True)])
def test_a_detector_that_needs_longer_than_the_deadline(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, hangs: bool
) -> None:
    """The part is rejected at its deadline; its verdict comes late, or the judge is replaced."""
    (folder / "slow_judge.py").write_text(SLOW_JUDGE.format(seconds=[0, seconds]))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    slow = partial(JudgeProcess, program="slow_judge")
    monkeypatch.setattr("anoco_edge.line.server.JudgeProcess", slow)
    hang = 6000 if hangs else 120_000
    path, port = write_station(folder, deadline=2000, acquire=1900, hang=hang)
    server = LineServer(parse_config(path.read_text(), "a"), folder, say=lambda _: None)
    server.start()
    try:
        client = Client(port)
        client.send("E,1")
        client.wait_for(StatusBit.READY)
        judge = server.judge.pid
        answer = client.ask("T,1")
        assert answer[2:4] == ["NOVERDICT", str(int(Reason.DEADLINE))]
        assert int(answer[5]) >= 2000
        client.send("A,1")
        client.wait_for(StatusBit.READY)
        assert (server.judge.pid != judge) == hangs
        assert client.ask("S")[4:] == ["1", "0", "0", "1", "0"]
    finally:
        server.stop()
    with closing(sqlite3.connect(folder / "press-3/line.db")) as data:
        late = data.execute("SELECT verdict FROM late").fetchall()
        part = data.execute("SELECT verdict, reason FROM part").fetchall()
    assert late == ([] if hangs else [("good",)])
    assert part == [("no-verdict", int(Reason.DEADLINE))]
