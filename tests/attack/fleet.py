"""When Ray workers are killed during `infer --on ray`, every row is there exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.attack.campaign import Case, Plan

MARK = "ANOCO_FLEET_ATTACK"
PATIENCE = 240.0
PICTURES = 160
TASKS = 40  # with a batch of 1, each has four pictures and one line of the journal
RUNS = 3  # each takes Ray ten seconds and more to start


def cases(plan: Plan) -> Iterator[Case]:
    """Yield some runs, each with one or two kills."""
    if plan.short:
        yield Case("infer --on ray", not_executed="Ray takes minutes: in `make attack` only")
        return
    if find_spec("ray") is None:
        yield Case("infer --on ray", not_executed="ray is not installed")
        return
    from command_line import make_line, ok
    from tiny_bundle import write_good_pictures

    folder = make_line(plan.folder)
    write_good_pictures(folder / "many", PICTURES, seed=100)
    ok("infer", folder / "line.anoco", folder / "many", "--out", folder / "local", "--no-drift")
    expected = _rows(folder / "local")
    assert len(expected) == PICTURES
    for number in range(RUNS):
        rng = random.Random(plan.seed * 1000 + number)
        moments = sorted(rng.randrange(TASKS // 2) for _ in range(rng.choice((1, 2))))
        name = f"run {number}, kills after {' and '.join(map(str, moments))} of {TASKS} tasks"
        yield Case(name, _run(folder, folder / f"out{number}", moments, rng, expected))


def _run(
    folder: Path, out: Path, moments: list[int], rng: random.Random, expected: list[Any]
) -> str:
    from command_line import start

    mark = uuid4().hex
    os.environ[MARK] = mark  # every process of this run inherits it
    try:
        words = ("line.anoco", "many", "--batch", 1, "--no-drift", "--workers", 2)
        process = start("infer", *words, "--on", "ray", "--out", out, cwd=folder)
    finally:
        del os.environ[MARK]
    try:
        killed = _kill_workers(process, mark, out, moments, rng)
        said, complaint = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    if process.returncode:
        return f"it ended with {process.returncode}: {(complaint or said).strip()[-300:]}"
    if "Traceback" in complaint:
        return f"it showed a traceback: {complaint[-300:]}"
    rows = _rows(out)
    if rows != expected:
        sources = [source for source, *_ in rows]
        twice = sorted({s for s in sources if sources.count(s) > 1})
        missing = sorted({s for s, *_ in expected} - set(sources))
        return f"after {killed} kills rows are twice {twice[:3]}, missing {missing[:3]}, or differ"
    return "" if killed else "the run was over before a worker could be killed"


def _kill_workers(
    process: Any, mark: str, out: Path, moments: list[int], rng: random.Random
) -> int:
    """Send SIGKILL to workers of this run, each after a given number of tasks."""
    killed = 0
    for moment in moments:
        while process.poll() is None and not (_tasks_done(out) >= moment and _workers(mark)):
            time.sleep(0.005)
        if workers := _workers(mark):
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
    return killed


def _tasks_done(out: Path) -> int:
    """Count the lines of the journal, without the first, which describes the run."""
    try:
        return max(0, (out / "unfinished.jsonl").read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def _workers(mark: str) -> list[int]:
    found, wanted = [], f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = wanted in (entry / "environ").read_bytes().split(b"\0")
            if ours and (entry / "cmdline").read_bytes().startswith(b"ray::Worker"):
                found.append(int(entry.name))
    return sorted(found)


def _rows(folder: Path) -> list[Any]:
    """Return source, verdict and score of every row, in the order of the run."""
    (path,) = folder.rglob("results.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(Path(row["source"]).name, row["verdict"], row["score"]) for row in rows]
