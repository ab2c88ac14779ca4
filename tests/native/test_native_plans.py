"""The native library finds the plans that Python stored, by the same folder, records and rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import fails

from anoco_edge.pipeline.native import choose_parts
from anoco_edge.plans import cache
from anoco_edge.plans.device import Device
from anoco_edge.plans.tensorrt_builder import BuiltPlan

pytestmark = pytest.mark.usefixtures("empty_cache")

ORIN = Device("Orin", "sm87", "cuda 12060 540.4.0")
GRAPH = "ab" * 32


@dataclass(frozen=True)
class Found:
    code: int
    lines: list[str]


@pytest.fixture
def find(native_build: Path) -> Any:
    """Return `find(graph, version, full_version, device)`, which asks the library."""

    def ask(
        graph: str = GRAPH, version: str = "10.3.0", full: str = "10.3.0.30", device: Any = ORIN
    ) -> Found:
        words = [graph, version, full, device.name, device.capability, device.driver]
        done = subprocess.run(
            [native_build / "tests" / "read_plans", *words], capture_output=True, text=True
        )
        return Found(done.returncode, done.stdout.splitlines())

    return ask


def store(
    content: bytes = b"a plan", *, batch: int = 1, version: str = "10.3.0", **changes: Any
) -> cache.PlanRecord:
    built = BuiltPlan(content, changes.get("plan_engine", "tensorrt"), version, (), 1.5, 100.0)
    shape = (batch, 64, 64, 3)
    return cache.store_plan(
        built,
        name="line",
        graph=changes.get("graph", GRAPH),
        fingerprint=cache.Fingerprint.of(version, changes.get("device", ORIN)),
        profile={"pixels": ((1, 64, 64, 3), shape, shape)},
    )


def test_what_python_filed_is_found(find: Any) -> None:
    assert find().code == 1, "an empty cache, or none"
    record = store(b"x" * 1000)
    assert find().lines == [str(record.path), "1", "1000"]


@pytest.mark.parametrize("version", ["10.3.0", "10.3.0.30"])
def test_pythons_packages_name_versions_in_two_ways(find: Any, version: str) -> None:
    store(version=version)
    assert find().code == 0
    assert find(full="10.3.0.31").code == (0 if version == "10.3.0" else 1)


def test_one_picture_at_a_time_wants_the_smallest_batch_then_the_newest(
    find: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(b"large", batch=4)
    monkeypatch.setattr(cache, "now", lambda: "2020-01-01T00:00:00+00:00")
    store(b"old", batch=2, version="10.3.0.30")
    monkeypatch.setattr(cache, "now", lambda: "2021-01-01T00:00:00+00:00")
    new = store(b"new one", batch=2)
    assert find().lines == [str(new.path), "2", "7"]


@pytest.mark.parametrize(
    "changed",
    [
        {"graph": "cd" * 32},
        {"version": "10.4.0"},
        {"plan_engine": "tensorrt-rtx"},
        {"device": Device("Orin Nano", "sm87", ORIN.driver)},
        {"device": Device("Orin", "sm86", ORIN.driver)},
        {"device": Device("Orin", "sm87", "cuda 13000 580.1")},
    ],
)
def test_a_plan_of_something_else_is_not_used(find: Any, changed: dict[str, Any]) -> None:
    store(**changed)
    assert find().code == 1


def test_the_library_names_this_machines_gpu_as_python_does(
    native_build: Path, simulated_driver: Path
) -> None:
    """Both read it from the simulated driver, in a process of their own."""
    environment = {**os.environ, "ANOCO_CUDA_DRIVER": str(simulated_driver)}
    environment.pop("ANOCO_EDGE_CUDA_BINDING", None)
    told = subprocess.run(
        [native_build / "tests" / "read_plans", GRAPH, "10.3.0", "10.3.0.30"],
        capture_output=True,
        text=True,
        env=environment,
    )
    code = (
        "from anoco_edge.plans.device import current_device as f; d = f(); "
        "print(f'no plan for {d.label}, {d.capability}, {d.driver} in ', end='')"
    )
    wanted = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert told.returncode == 1 and told.stdout.startswith(wanted), told.stdout
    assert "Simulated device (8 SMs, 4 GB), sm87" in wanted


def test_a_changed_plan_is_refused(find: Any) -> None:
    record = store()
    for content in (b"a plaN", b"a plan and more", b""):
        record.path.write_bytes(content)
        found = find()
        assert found.code == 2 and "is not the plan that was built here" in found.lines[0]
        assert "anoco-edge build BUNDLE --force" in found.lines[0]


@pytest.mark.parametrize("which", ["folder", "record", "plan"])
def test_what_others_can_write_is_refused(find: Any, which: str) -> None:
    record = store()
    path = {
        "folder": record.path.parent,
        "record": record.record_path,
        "plan": record.path,
    }[which]
    path.chmod(0o777)
    found = find()
    assert found.code == 2 and f"{path} can be written by others" in found.lines[0]


def test_what_belongs_to_somebody_else_is_refused(find: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    record = store()
    os.chown(record.path, 12345, -1)
    assert "belongs to another user" in find().lines[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", "00" * 32),
        ("profile", {}),
        ("profile", {"pixels": [[1], [1]]}),
        ("sha256", "short"),
        ("size", "7"),
        ("extra", 1),
        ("targets", ["sm86"]),
    ],
)
def test_a_file_that_is_no_record_is_as_good_as_not_there(find: Any, key: str, value: Any) -> None:
    record = store()
    beside = record.record_path
    beside.write_text(json.dumps({**json.loads(beside.read_text()), key: value}))
    assert find().code == 1
    beside.write_text("{")
    assert find().code == 1


def test_a_record_without_its_plan(find: Any) -> None:
    record = store()
    record.path.unlink()
    assert find().code == 1


def test_the_cache_is_where_python_has_it(
    find: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    record = store()
    assert (tmp_path / "home/.cache/anoco-edge/plans") == record.path.parent
    assert find().code == 0
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert find().code == 0


def test_the_native_runtime_asks_for_tensorrt(here: Path, use_native: Path) -> None:
    """TensorRT is not installed here, or the library was built without its headers.

    The error says which.
    """
    args = ("infer", "line.anoco", "parts", "--runtime", "native", "--engine", "tensorrt")
    line = fails(3, *args)
    assert "TensorRT" in line and ("ANOCO_TENSORRT_INCLUDE" in line or "cannot be loaded" in line)
    assert "devices belong to openvino" in fails(2, *args, "--device", "GPU")
    assert choose_parts("tensorrt")["scorer"][0] == "cuda"


def test_whether_the_backend_was_built(native_build: Path) -> None:
    """Where no headers exist, this test tells CI that the backend was not compiled."""
    if not any(native_build.rglob("tensorrt/backend.cpp.o")):
        pytest.skip(
            "TensorRT's headers (NvInfer.h) are not here: backend.cpp and library.cpp in "
            "runtime/src/backends/tensorrt were not compiled "
            "(-DANOCO_TENSORRT_INCLUDE=FOLDER compiles them)"
        )
    assert not any(native_build.rglob("tensorrt/unavailable.cpp.o"))
