"""A worker that cannot work gives one line that says which and why, with the right exit code.

Ray only transports these answers; `test_fleet.py` tests that it does.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from anoco_edge import __version__
from anoco_edge.bundle import Bundle
from anoco_edge.detector import DetectorConfig
from anoco_edge.errors import AnocoError, EngineError, EnvironmentMissingError
from anoco_edge.fleet.cluster import Cluster, open_cluster
from anoco_edge.fleet.inspecting import Inspector
from anoco_edge.fleet.pool import (
    ATTEMPTS,
    Job,
    Pool,
    Task,
    _actor_class,
    _Worker,
    task_error,
)


def new_worker() -> Any:
    return _actor_class()()


def refusal(answer: dict[str, Any]) -> AnocoError:
    """Return the error that the driver raises for a worker's answer."""
    pool = Pool(cast(Any, _Named()), Job("", "", {}), lambda _: None)
    with pytest.raises(AnocoError) as caught:
        pool._introduce(_Worker(None), answer)
    assert "\n" not in str(caught.value)
    return caught.value


class _Named:
    """The part of a cluster that a pool needs; it starts nothing."""

    ray, name, workers = None, "ray", 2


def opened(worker: Any, config: DetectorConfig, product: str) -> dict[str, Any]:
    given = {"config": config, "product": product, "batch": 1, "save": "none"}
    answer: dict[str, Any] = worker.open(Inspector.__module__, Inspector.__name__, given)
    return answer


def test_one_that_can_work_says_so_and_works(here: Path) -> None:
    worker = new_worker()
    hello = worker.hello(str(here))
    assert hello == {"name": worker.name, "version": __version__, "ready": False}
    product = Bundle.open("line.anoco").product()
    assert opened(worker, DetectorConfig("line.anoco"), product.checksum)["ready"] is True
    (answer,) = worker.work((0, ["parts/good0.png"]))
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert answer.row.verdict == "good" and worker.progress() == 0


def test_one_whose_engine_dies_is_no_bug(here: Path) -> None:
    """The error reaches the driver unchanged, through Ray's pickle."""
    worker = new_worker()
    worker.hello(str(here))
    opened(worker, DetectorConfig("line.anoco"), Bundle.open("line.anoco").product().checksum)
    worker.job._detector._pipeline.engine._session = None
    with pytest.raises(EngineError, match="the engine stopped working") as caught:
        worker.work((0, ["parts/good0.png"]))
    carried = pickle.loads(pickle.dumps(caught.value))
    error = task_error(worker.name, carried)
    assert str(error).startswith(f"{worker.name}: the engine stopped working, references fail too")
    assert error.exit_code == 1 and "bug" not in str(error) and error.hint == caught.value.hint
    assert "this is a bug" in str(task_error(worker.name, ZeroDivisionError("oops")))


def test_one_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anoco_edge", None)
    answer = new_worker().hello("/")
    monkeypatch.undo()
    error = refusal(answer)
    assert error.exit_code == 3
    assert f":{os.getpid()}: anoco-edge is not installed there; install it with: pip" in str(error)


def test_one_without_the_extra_of_its_engine(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = new_worker()
    worker.hello(str(here))
    monkeypatch.setitem(sys.modules, "openvino", None)
    error = refusal(opened(worker, DetectorConfig("line.anoco", engine="openvino"), ""))
    assert error.exit_code == 3
    assert str(error).startswith(worker.name) and "anoco-edge[openvino]" in str(error)


def test_one_without_a_package_that_the_job_needs(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = new_worker()
    worker.hello(str(here))
    module = "anoco_edge_calibration.evaluation.fleet_evaluation"
    monkeypatch.setitem(sys.modules, module, None)
    error = refusal(worker.open(module, "Measurer", {}))
    assert error.exit_code == 3 and "install the same extras there as here" in str(error)


def test_one_of_another_version() -> None:
    error = refusal({"name": "worker far:1", "version": "0.0.0", "ready": False})
    assert error.exit_code == 3
    assert f"worker far:1 has anoco-edge 0.0.0, this is {__version__}" in str(error)


def test_one_that_does_not_see_the_folder(tmp_path: Path) -> None:
    error = refusal(new_worker().hello(str(tmp_path / "mounted")))
    assert error.exit_code == 3 and "mounted; pictures and bundle must lie at the same" in str(
        error
    )


def test_one_that_sees_another_bundle(here: Path) -> None:
    worker = new_worker()
    worker.hello(str(here))
    error = refusal(opened(worker, DetectorConfig("line.anoco"), "another checksum"))
    assert error.exit_code == 4 and "let all machines see the same bundle" in str(error)


def test_workers_that_all_die_at_the_start_end_the_run() -> None:
    said: list[str] = []
    pool = Pool(cast(Any, _Named()), Job("", "", {}), said.append)
    deaths = ATTEMPTS * _Named.workers
    with pytest.raises(AnocoError, match="workers on ray die before they can work"):
        for _ in range(deaths):
            worker = _Worker(None)
            pool._workers.append(worker)
            assert list(pool._replace(worker)) == []
    assert len(said) == deaths - 1 and "died while it started" in said[0]


def test_a_task_shared_with_another_is_not_blamed_alone() -> None:
    """A worker that had two tasks may have died of either, so each is run again alone."""
    pool = Pool(cast(Any, _Named()), Job("", "", {}), lambda _: None)
    tasks = [Task(0, "a"), Task(1, "b")]
    worker = _Worker(None, ready=True)
    worker.tasks.extend(tasks)
    pool._workers.append(worker)
    assert list(pool._replace(worker)) == []
    assert list(pool._waiting) == tasks
    assert [(task.alone, task.deaths) for task in tasks] == [(True, 0), (True, 0)]
    other = _Worker(None, ready=True)
    assert other.takes(alone=True)
    other.tasks.append(tasks[0])
    assert not other.takes(alone=False)


def test_a_cluster_without_room_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(os, "environ", dict(os.environ))  # otherwise Ray's token would stay there
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    with (
        pytest.raises(
            EnvironmentMissingError, match="no room for a worker, which takes 2 CPU and 1"
        ),
        open_cluster("ray", workers=0, threads=2, gpu=True),
    ):
        pass
    with open_cluster("ray", workers=0, threads=2, gpu=False) as cluster:
        assert isinstance(cluster, Cluster) and cluster.workers == 2
