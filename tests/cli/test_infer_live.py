"""`infer` handles live input: a network camera, and a user who presses Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    PATIENCE,
    Ran,
    names,
    network_camera,
    ok,
    rows_of,
    start,
    write_video,
)
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.results.signals import signals_held

KEYS = {"source", "score", "threshold", "ratio", "verdict", "regions", "evidence", "timings"}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_live_stream_gives_json_lines_and_counts_what_it_skipped(here: Path) -> None:
    with network_camera(100_000, 0.001) as address:
        ran = ok("infer", "line.anoco", address, "--json", "--limit", "8", "--out", "out")
    *rows, summary = lines_of(ran.out)
    assert rows == rows_of(Path("out")) and len(rows) == 8
    assert all(row.keys() >= KEYS for row in rows)
    numbers = [int(row["source"].rpartition("#")[2]) for row in rows]
    assert numbers == sorted(set(numbers))
    assert summary["pictures"] == 8 and summary["lost"] is None
    # Every frame that arrived was inspected or counted; some arrive after the last inspected one.
    assert summary["skipped"] >= numbers[-1] + 1 - 8 > 0
    assert str(summary["skipped"]) in Path("out/report.html").read_text()
    with network_camera(100_000, 0.001) as address:
        ran = ok("infer", "line.anoco", "--camera", address, "--limit", "3", "--threshold", "9")
    assert "3 inspected, 3 good" in ran.out and "frames skipped" in ran.out


def test_a_live_camera_cannot_fill_the_disk(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anoco_edge.cli.commands.infer.LIVE_KEEP", 2)
    with network_camera(100_000, 0.001) as address:
        infer = ("infer", "line.anoco", address, "--limit", "5", "--save", "all", "--out")
        ok(*infer, "out")
        ok(*infer, "more", "--keep", "0")
    assert len(names("out/overlays")) == len(names("out/frames")) == 2
    assert len(rows_of(Path("out"))) == len(names("more/overlays")) == 5


def test_teach_from_a_live_stream(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "new.anoco").path
    with network_camera(100_000, 0.01) as address:
        live = ("infer", bundle, address, "--teach-every", "0.1", "--limit", "6", "--json")
        began = time.monotonic()
        ran = ok(*live, "--teach", "3")
    assert time.monotonic() - began > 0.2
    assert len(lines_of(ran.out)) == 3 + 1
    assert len(ok("product", "list", bundle, "--json").json[0]["references"]) == 3


def interrupted(number: int, *args: object) -> Ran:
    """Run the command, and send it a signal once results.jsonl has a few rows."""
    process = start(*args, "--out", "out")
    deadline = time.monotonic() + PATIENCE
    results = Path("out/results.jsonl")
    while not results.exists() or results.read_bytes().count(b"\n") < 3:
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ran(process.returncode, out, err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_live_run_is_stopped_cleanly(here: Path, number: int) -> None:
    with network_camera(100_000, 0.02) as address:
        ran = interrupted(number, "infer", "line.anoco", address, "--save", "all")
    assert ran.code == 0 and "Traceback" not in ran.err, ran.err
    rows = rows_of(Path("out"))
    assert f"{len(rows)} inspected" in ran.out and "frames skipped" in ran.out
    assert "</html>" in Path("out/report.html").read_text()
    assert len(names("out/overlays")) == len(names("out/frames")) == len(rows)
    with Path("out/results.csv").open(newline="") as stream:
        assert [int(row["id"]) for row in csv.DictReader(stream)] == [row["id"] for row in rows]


def test_a_finite_run_that_is_stopped_says_so(here: Path) -> None:
    clip = write_video("clip.avi", [textured_picture(k) for k in range(3000)])
    ran = interrupted(signal.SIGINT, "infer", "line.anoco", clip, "--save", "none", "--json")
    assert ran.code == 130 and "stopped before the end" in ran.err
    assert ran.json["summary"]["interrupted"] is True
    assert ran.json["results"] == rows_of(Path("out"))
    assert 3 <= len(ran.json["results"]) < 3000


def test_a_signal_within_a_row_is_heard_after_it() -> None:
    seen = []
    with pytest.raises(KeyboardInterrupt), signals_held():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        seen.append("whole")
    assert seen == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_there_are_no_signals_to_hold() -> None:
    seen: list[str] = []

    def work() -> None:
        with signals_held():
            seen.append("whole")

    elsewhere = threading.Thread(target=work)
    elsewhere.start()
    elsewhere.join()
    assert seen == ["whole"]
