"""`--on ray` gives the same results as one machine, whichever process is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from command_line import (
    PATIENCE,
    defective_picture,
    environment,
    fails,
    make_line,
    ok,
    refused,
    rows_of,
    start,
)
from paths import SUPPORT
from PIL import Image
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.detector import DetectorConfig
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.fleet import inspecting
from anoco_edge.fleet.cluster import open_cluster
from anoco_edge.fleet.inspecting import FleetRun
from anoco_edge.fleet.journal import NAME, Journal
from anoco_edge.fleet.pool import ATTEMPTS, Done, Job, Pool, Task
from anoco_edge.sources.files import find_pictures

MARK = "ANOCO_FLEET_TEST"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a calibrated line.anoco, and 400 parts in many/.

    Two parts are defective and one is not a picture. local/ holds the results of one machine.
    """
    folder = make_line(tmp_path_factory.mktemp("template"))
    held = write_good_pictures(folder / "held", 30, seed=900)
    ok("calibrate", folder / "line.anoco", *held, "--false-reject", "0.1")
    some = write_good_pictures(folder / "many", 100, seed=100)
    for copy in range(1, 4):
        for path in some:
            os.link(path, path.with_name(f"copy{copy}-{path.name}"))
    for k in (3, 70):
        Image.fromarray(defective_picture(k)).save(folder / "many" / f"scratched{k}.png")
    (folder / "many" / "broken.png").write_bytes(b"no picture")
    ran = start("infer", "line.anoco", "many", "--out", "local", "--batch", 2, cwd=folder)
    ran.communicate(timeout=PATIENCE)
    assert ran.returncode == 1  # because one file is not a picture
    return folder


@pytest.fixture(autouse=True)
def ours(template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes of a test, and end those that are left, also after a killed run."""
    mark = f"{MARK}={uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):  # a Ray in this process leaves these behind
        monkeypatch.delenv(name, raising=False)
    yield mark
    monkeypatch.delenv(MARK)
    wait_for(lambda: not processes(mark), "Ray's processes end")


def processes(mark: str, name: str = "") -> list[int]:
    """List the marked processes whose command line begins with this text, without this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            named = (entry / "cmdline").read_bytes().startswith(name.encode())
        except OSError:
            continue
        if marked and named and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def wait_for(happened: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return found


def journalled(folder: Path) -> int:
    """Count the tasks in the journal."""
    path = folder / NAME
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def same(folder: Path, local: Path) -> None:
    """Check that rows, table and overlays equal those of the local run, except for times."""
    rows, expected = rows_of(folder), rows_of(local)
    for row in (*rows, *expected):
        row.pop("timings")
    assert rows == expected
    assert not (folder / NAME).exists()
    overlays = {path.name: path.read_bytes() for path in (folder / "overlays").iterdir()}
    assert overlays == {path.name: path.read_bytes() for path in (local / "overlays").iterdir()}
    assert (folder / "report.html").read_text().count("<tr data-verdict") == len(rows)


# --- with Ray -------------------------------------------------------------------------------------

ON = ("infer", "line.anoco", "many", "--batch", 2, "--on", "ray", "--workers", 2)


@pytest.mark.full
def test_a_killed_driver_goes_on_and_a_killed_worker_is_replaced(template: Path, ours: str) -> None:
    first = start(*ON, "--out", "out", cwd=template)
    out = template / "out"
    wait_for(lambda: journalled(out) >= 3, "the first answers are in the journal")
    first.kill()
    first.communicate(timeout=PATIENCE)
    done = journalled(out)
    assert not (out / "results.jsonl").exists() and 3 <= done < 51
    with (out / NAME).open("ab") as journal:
        journal.write(b'{"task": 0, "result": [{"row"')  # killed in the middle of a line

    # Workers of the killed driver may take a while to end.
    orphans = set(processes(ours, "ray::Worker"))
    second = start(*ON, "--out", "out", cwd=template)
    wait_for(lambda: journalled(out) >= done + 3, "the run goes on")
    working = wait_for(  # Ray names a process by what it does, and another may still be starting
        lambda: [pid for pid in processes(ours, "ray::Worker.work") if pid not in orphans],
        "a worker is at work",
    )
    os.kill(working[0], signal.SIGKILL)
    said, complaint = second.communicate(timeout=PATIENCE)
    # The same as in the local run, since one file is not a picture.
    assert second.returncode == 1, complaint
    assert f"an unfinished run goes on: {8 * done} of 403 pictures are done" in complaint
    assert complaint.count("died; another one takes its place and does its work again") == 1
    assert "raylet" not in said and "Traceback" not in complaint
    shares = [line for line in complaint.splitlines() if line.startswith("worker ")]
    assert len(shares) >= 2  # the killed worker may not have done anything yet
    assert sum(int(line.split(": ")[1].split()[0]) for line in shares) == 403 - 8 * done
    same(out, template / "local")


EVAL = ("eval", "set", "--bundle", "bare.anoco", "--shots", "1,2", "--seeds", 2)


@pytest.mark.full
def test_an_evaluation_is_the_same_and_goes_on(template: Path) -> None:
    """There are two categories with four draws each.

    The driver is killed once a unit is measured.
    """
    make_tiny_bundle(template / "bare.anoco")
    for category, seed in (("bolt", 0), ("nut", 100)):
        write_good_pictures(template / "set" / category / "train" / "good", 5, seed=seed)
        write_good_pictures(template / "set" / category / "test" / "good", 3, seed=seed + 20)
        for k in range(3):
            path = template / "set" / category / "test" / "red" / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(defective_picture(seed + 40 + k)).save(path)
    local = start(*EVAL, "--out", "eval-local", "--cache", "cache", cwd=template)
    assert local.wait(PATIENCE) == 0
    first = start(*EVAL, "--out", "eval-on", "--cache", "cache", "--on", "ray", cwd=template)
    wait_for(lambda: journalled(template / "eval-on") >= 1, "a unit is measured")
    first.kill()
    first.communicate(timeout=PATIENCE)
    second = start(*EVAL, "--out", "eval-on", "--cache", "cache", "--on", "ray", cwd=template)
    _, complaint = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, complaint
    assert "an unfinished run goes on: " in complaint
    found, expected = (
        json.loads((template / out / "results.json").read_text())
        for out in ("eval-on", "eval-local")
    )
    assert found["rows"] == expected["rows"] and found["remarks"] == expected["remarks"]
    assert page_pictures(template / "eval-on") == page_pictures(template / "eval-local")
    assert not (template / "eval-on" / NAME).exists()


def page_pictures(folder: Path) -> list[str]:
    """Return the worst misses and false alarms that the report shows."""
    found = re.findall(r"data:image/jpeg;base64,[^\"]+", (folder / "report.html").read_text())
    assert found
    return found


@pytest.mark.full
def test_work_that_ends_every_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))  # workers import fleet_job
    said: list[str] = []
    heard: list[int] = []
    texts = ["a", "b", "poison", "c", "d", "e"]
    with open_cluster("ray", workers=2, threads=1, gpu=False) as cluster:
        job = Job("fleet_job", "Doubling", {"pause": 1.0})
        pool = Pool(cluster, job, said.append, lambda _worker, steps: heard.append(steps))
        found = {d.task.payload: d.result for d in pool.run(map(Task, range(6), texts))}
    assert found == {text: None if text == "poison" else text * 2 for text in texts}
    # The first time, the task beside it may have been the cause.
    deaths = sum("does its work again" in line for line in said)
    assert ATTEMPTS <= deaths <= ATTEMPTS + 1
    assert {1, 2, 3} & set(heard)


@pytest.mark.full
def test_ctrl_c_ends_it_quietly(template: Path) -> None:
    run = start(*ON, "--out", "stopped", cwd=template)
    wait_for(lambda: journalled(template / "stopped") >= 1, "the first answer is there")
    run.send_signal(signal.SIGTERM)
    said, complaint = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130 and "the same command goes on" in complaint
    assert "Traceback" not in complaint and said == ""


@pytest.fixture
def head(ours: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Start a separate Ray on the loopback interface, and return its address.

    It asks for a token, which the processes started here have.
    """
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", uuid4().hex * 2)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]

    def start_head(**variables: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        own = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        env = {**environment(), **own, **variables}
        options = ["--head", "--num-cpus=2", "--include-dashboard=false", "--port=0"]
        options += [f"--ray-client-server-port={port}", "--object-store-memory=100000000"]
        subprocess.run(
            [*ray, "start", *options], env=env, check=True, capture_output=True, timeout=PATIENCE
        )
        return f"ray://127.0.0.1:{port}"

    yield start_head
    for pid in processes(ours):  # `ray stop` would end those of other tests too
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.full
def test_a_cluster_that_runs_already_does_the_same(
    template: Path, head: Callable[..., str]
) -> None:
    run = start(*ON[:6], head(), "--out", "cluster", "--json", cwd=template)
    said, complaint = run.communicate(timeout=PATIENCE)
    assert run.returncode == 1, complaint
    document = json.loads(said)
    assert document["summary"]["pictures"] == len(document["results"]) == 403
    same(template / "cluster", template / "local")


# It comes before all other finders, because that of an editable install would find the package.
LACKING = """
import sys
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name == "anoco_edge":
            raise ModuleNotFoundError("no such package", name=name)
sys.meta_path.insert(0, Nowhere())
"""


@pytest.mark.full
def test_a_worker_without_the_package_is_one_line(
    template: Path, head: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    run = start(*ON[:6], head(PYTHONPATH=str(tmp_path)), "--out", "lacking", cwd=template)
    _, complaint = run.communicate(timeout=PATIENCE)
    assert run.returncode == 3 and "Traceback" not in complaint
    assert "anoco-edge is not installed there; install it with: pip install" in complaint


# --- without --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["many", "--on", "spark", "--out", "out"], "use ray, or ray://HOST:PORT"),
        (["many", "--on", "ray"], "needs --out"),
        (
            ["--camera", "0", "--on", "ray", "--out", "out"],
            "on the machine that it is plugged in to",
        ),
        (
            ["many", "--teach", "2", "--on", "ray", "--out", "out"],
            "on the machine that it is plugged in to",
        ),
        (["clip.mp4", "--on", "ray", "--out", "out"], "leave --on out"),
    ],
)
def test_what_cannot_be_spread_is_refused(here: Path, args: list[str], said: str) -> None:
    Path("clip.mp4").write_bytes(b"")
    assert said in refused(2, "infer", "line.anoco", *args)


def test_an_unfinished_run_of_another_kind_is_not_mixed_up(tmp_path: Path) -> None:
    with Journal(tmp_path, {"batch": 4, "bundle": "a"}) as journal:
        journal.add(8, [1, 2])
        with pytest.raises(StorageError, match="another run writes to"):
            Journal(tmp_path, {"batch": 4, "bundle": "a"})
    with pytest.raises(UsageError, match=r"an unfinished run that differs in: batch; finish"):
        Journal(tmp_path, {"batch": 2, "bundle": "a"})
    with Journal(tmp_path, {"batch": 4, "bundle": "a"}) as journal:
        assert journal.numbers() == [8] and journal.size(8) == 2 and journal[8] == [1, 2]


def test_a_run_that_did_nothing_leaves_nothing_to_go_on_with(tmp_path: Path) -> None:
    with Journal(tmp_path, {"bundle": "a"}):
        pass
    assert not (tmp_path / NAME).exists()
    (tmp_path / NAME).write_text('{"run": {"bundle": "a"}}\n')  # killed before its first result
    with Journal(tmp_path, {"bundle": "b"}) as journal:
        journal.add(0, [1])
    with Journal(tmp_path, {"bundle": "b"}) as journal:
        assert journal.numbers() == [0]


@pytest.mark.parametrize("cut", [1, 15, 40])
def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path, cut: int) -> None:
    with Journal(tmp_path, {"bundle": "a"}) as journal:
        journal.add(0, ["whole"])
        journal.add(1, ["x" * 50])
    path = tmp_path / NAME
    os.truncate(path, path.stat().st_size - cut)
    with Journal(tmp_path, {"bundle": "a"}) as journal:
        assert journal.numbers() == [0]
        journal.add(2, ["after"])
        assert journal[0] == ["whole"] and journal[2] == ["after"]
    with Journal(tmp_path, {"bundle": "a"}) as journal:
        assert journal.numbers() == [0, 2]


def test_what_is_done_is_not_done_again_and_a_split_task_goes_picture_by_picture() -> None:
    run = FleetRun(None, None, list("abcdefghij"), Path(), "none", 0, 1)  # type: ignore[arg-type]
    whole = [task.payload for task in run.tasks(())]
    assert whole == [(0, list("abcd")), (4, list("efgh")), (8, list("ij"))]
    left = [task.payload for task in run.tasks({0, 1, 2, 3, 4, 6})]
    assert left == [(5, ["f"]), (7, ["h"]), (8, list("ij"))]


def test_a_picture_that_ends_workers_costs_no_other(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool is a double that gives up on tasks with that picture; the work itself is real."""

    class GivingUp:
        def __init__(self, _cluster: object, job: Job, _say: object) -> None:
            self._work = inspecting.Inspector(**job.given)
            self._added: list[Task] = []

        def add(self, tasks: Iterator[Task]) -> None:
            self._added += tasks

        def run(self, tasks: Iterator[Task]) -> Iterator[Done]:
            for task in tasks:
                yield self._done(task)
            while self._added:
                yield self._done(self._added.pop())

        def _done(self, task: Task) -> Done:
            killer = any("good1" in path for path in task.payload[1])
            return Done(task, None if killer else self._work(task.payload), "a worker")

    monkeypatch.setattr(inspecting, "Pool", GivingUp)
    paths = find_pictures(["parts"], "")
    run = FleetRun.plan(DetectorConfig("line.anoco"), paths, Path("out"), "anomalous", 0, 2)
    with Journal(run.out, run.identity()) as journal:
        inspecting.inspect_on(cast(Any, None), run, journal, lambda _: None, lambda _: None)
        assert inspecting.pictures_in(journal) == {0, 1, 2}
        summary, _ = inspecting.write_rows(run, journal, "", None, lambda _: None)
    rows = rows_of(Path("out"))
    assert [row["verdict"] is None for row in rows] == [False, True, False]
    assert rows[1]["error"] == "parts/good1.png: it ended 3 workers, one after the other"
    assert (summary.pictures, summary.failed) == (3, 1)


def test_results_being_written_when_it_was_killed_are_written_anew(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answers are in the journal, so Ray is no longer needed."""
    monkeypatch.chdir(template)
    shutil.copytree("local", "earlier")
    paths = find_pictures(["many"], "")
    run = FleetRun.plan(DetectorConfig("line.anoco"), paths, Path("earlier"), "anomalous", 0, 2)
    work = inspecting.Inspector(**run.job().given)
    with Journal(run.out, run.identity()) as journal:
        for task in run.tasks(()):
            journal.add(task.number, [inspecting._kept(run.out, one) for one in work(task.payload)])
        journal.add(-1, [])
    monkeypatch.setitem(sys.modules, "ray", None)
    Path("earlier/results.jsonl").write_text('{"id": 0}\n')
    fails(1, *ON, "--out", "earlier")
    same(Path("earlier"), Path("local"))
    assert not Path("earlier/runs").exists()
