"""Jobs in a worker of their own: progress, an end by hand, and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from taught_station import TaughtStation, defective, make_taught_station

from anoco_edge.station.database import Database
from anoco_edge.station.jobs import jobs as jobs_module
from anoco_edge.station.jobs.job_models import (
    AddReferences,
    CommitRequest,
    DryRunRequest,
    ExplanationRequest,
    Job,
    PartPicture,
    RegionChange,
    ThresholdChange,
)
from anoco_edge.station.jobs.jobs import MOST_OF_A_KIND, Jobs, TooManyJobsError
from anoco_edge.station.jobs.shadow import Rule
from anoco_edge.station.products.explanation import Explanation
from anoco_edge.station.web import services as services_module
from anoco_edge.station.web.services import Services

PATIENCE = 900.0  # the machine may be loaded


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    return make_taught_station(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def told() -> list[int]:
    return []


@pytest.fixture(scope="module")
def changes() -> list[Job]:
    return []


@pytest.fixture(scope="module")
def services(station: TaughtStation, told: list[int], changes: list[Job]) -> Iterator[Services]:
    database = Database(station.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services_module, "NICENESS", 1)  # a loaded machine would never come to 5
        opened = station.services(database, on_change=changes.append, tell_line=told.append)
    opened.start()
    yield opened
    opened.close()
    database.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_job_is_done_by_another_process_of_low_priority(
    station: TaughtStation, services: Services, changes: list[Job]
) -> None:
    request = ExplanationRequest(uid=station.uid(10), number=0)
    job = services.jobs.submit(request, "eve")
    done = services.jobs.wait(job.id, PATIENCE)
    assert done.state == "done" and done.progress == 1.0, done.problem
    assert Explanation.model_validate(done.result).verdict == "anomalous"
    assert next(each.state for each in changes if each.id == job.id) == "queued"
    pid = services.jobs.worker_pid
    assert pid is not None and pid != os.getpid()
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    again = services.jobs.same(request)
    assert again is not None and again.id == job.id, "an explanation is computed once"
    wrong = services.jobs.submit(ExplanationRequest(uid="nobody", number=0), "eve")
    failed = services.jobs.wait(wrong.id, PATIENCE)
    assert failed.problem is not None and failed.problem.status == 422
    assert "has no part 'nobody'" in failed.problem.detail
    assert services.jobs.latest(1)[0].id == wrong.id


def test_a_killed_worker_loses_nothing(
    station: TaughtStation, services: Services, told: list[int]
) -> None:
    told.clear()
    generation = station.bundle.product().generation
    change = AddReferences(pictures=[PartPicture(part=station.uid(10))])
    request = CommitRequest(product=1, capture=0, expected=generation, change=change)
    job = services.jobs.submit(request, "eve")
    until(lambda: services.jobs.require(job.id).state == "running")
    pid = services.jobs.worker_pid
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    done = services.jobs.wait(job.id, PATIENCE)
    # Killed after the commit, the second try finds another generation; before, it makes it.
    assert done.state == "done" or (done.problem and done.problem.status == 412), done
    assert station.bundle.product().generation == generation + 1
    until(lambda: told == [1])
    assert services.jobs.worker_pid != pid
    list(station.bundle.verify())


def test_a_job_that_is_cancelled_ends_and_the_next_one_is_done(
    station: TaughtStation, services: Services
) -> None:
    now = station.bundle.product().generation
    region = RegionChange(points=[(0, 0), (60, 0), (60, 80), (0, 80)])
    request = DryRunRequest(product=1, capture=0, expected=now, change=region, last=5000)
    long, waiting = (services.jobs.submit(request, "eve") for _ in range(2))
    assert services.jobs.cancel(waiting.id) is not None
    assert services.jobs.require(waiting.id).state == "cancelled"
    services.jobs.cancel(long.id)
    assert services.jobs.wait(long.id, PATIENCE).state in ("cancelled", "done")
    small = DryRunRequest(product=1, capture=0, expected=now, change=ThresholdChange(value=0.5))
    job = services.jobs.submit(small, "eve")
    assert services.jobs.wait(job.id, PATIENCE).state == "done"


def test_a_candidate_is_tried_on_the_next_parts_and_taken_by_its_rule(
    station: TaughtStation, services: Services
) -> None:
    """The line stores every picture meanwhile (line/store/station_wishes); here the test does."""
    generation = station.bundle.product().generation
    change = ThresholdChange(value=1e9)
    dry = DryRunRequest(product=1, capture=0, expected=generation, change=change)
    job = services.jobs.wait(services.jobs.submit(dry, "eve").id, PATIENCE)
    begun = services.shadows.begin(1, 0, job.id, 2, Rule(drop_above=0), "eve")
    assert begun.state == "running" and services.shadows.next_request() is None
    station.judge(500, [defective(7), defective(8)])
    until(lambda: (services.shadows.current() or begun).state == "dropped")
    over = services.shadows.current()
    assert over is not None and (over.seen, over.laxer, over.stricter) == (2, 2, 0)
    assert {part.uid for part in over.differences} == {station.uid(500), station.uid(501)}
    assert station.bundle.product().generation == generation
    services.shadows.begin(1, 0, job.id, 1, Rule(take_at_most=5), "eve")
    station.judge(600, [defective(9)])
    until(lambda: station.bundle.product().generation == generation + 1)
    taken = services.shadows.current()
    assert taken is not None and taken.state == "taken"
    assert station.bundle.product().threshold.value == 1e9


# ---- without a worker


def test_what_was_running_is_queued_again_and_a_worker_that_dies_twice_fails_its_job(
    tmp_path: Path, station: TaughtStation
) -> None:
    database = Database(tmp_path)
    with database.write() as data:
        for number, attempts in (("a", 2), ("b", 1)):
            text = ExplanationRequest(uid="x", number=0).model_dump_json()
            data.execute(
                "INSERT INTO job (id, kind, state, by, at, request, attempts) "
                "VALUES (?,'explanation','running','eve',?,?,?)",
                (number, f"2026-{number}", text, attempts),
            )
    jobs = Jobs(database, station.setup())
    jobs._closing = True  # the thread ends at once
    jobs.start()
    jobs.close()
    assert jobs.require("a").state == jobs.require("b").state == "queued"
    jobs._do("a", ExplanationRequest(uid="x", number=0), 2)
    failed = jobs.require("a")
    assert failed.state == "failed" and failed.problem is not None
    assert "ended unexpectedly" in failed.problem.detail
    for _ in range(MOST_OF_A_KIND - 1):
        jobs.submit(ExplanationRequest(uid="x", number=0), "eve")
    with pytest.raises(TooManyJobsError):
        jobs.submit(ExplanationRequest(uid="x", number=0), "eve")
    database.close()


def test_only_the_latest_jobs_of_a_kind_are_kept(
    station: TaughtStation, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "KEPT_OF_A_KIND", 2)
    jobs = services.jobs
    tried = DryRunRequest(
        product=1, capture=0, expected=1, change=ThresholdChange(value=3.0), last=1
    )
    dry_run = jobs.record(tried, "eve", {})
    old = [
        jobs.record(ExplanationRequest(uid=station.uid(k), number=0), "eve", {}) for k in (1, 2, 3)
    ]
    wanted = ExplanationRequest(uid=station.uid(4), number=0)
    done = jobs.wait(jobs.submit(wanted, "eve").id, PATIENCE)
    assert done.state == "done", done.problem
    until(lambda: jobs.get(old[1].id) is None)
    kept = [job.id for job in jobs.latest(200) if job.kind == "explanation"]
    assert kept == [done.id, old[2].id]
    assert jobs.get(dry_run.id) is not None, "explanations push out no other job"
