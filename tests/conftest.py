"""What tests share: a place of their own for caches, a bundle that needs no torch, and doubles of
what no machine of ours has."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.fake_cuda import FakeCuda, install_cuda
from doubles.fake_tensorrt import FakeTensorRt, install_tensorrt
from doubles.simulated import SimulatedGpu, simulated_gpu
from native_build import build_once
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.bundle import Bundle

# A failed assert in these helpers shows its values, as one in a test file does.
pytest.register_assert_rewrite(
    "agreement", "command_line", "native_controller", "other_process", "product_kinds"
)

# A shell ignores Ctrl-C for what it runs in the background, and our programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Self-test results and the like stay out of the user's cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own: no plan of another test is in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def gpu_memory(simulated_driver: Path) -> SimulatedGpu:
    """Where the doubles of CUDA and TensorRT keep what is on the GPU, and our scorer finds it."""
    return simulated_gpu(simulated_driver)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, gpu_memory: SimulatedGpu) -> Iterator[FakeCuda]:
    """The machine has a GPU, an Orin."""
    fake = install_cuda(monkeypatch, gpu_memory)
    yield fake
    fake.close()


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeTensorRt:
    """And TensorRT is installed for it."""
    return install_tensorrt(monkeypatch, cuda)


@pytest.fixture
def tiny_bundle(tmp_path: Path) -> Bundle:
    """A fresh bundle without products: 64 x 64 pixels, 4 x 4 patches of 8 numbers."""
    return make_tiny_bundle(tmp_path / "tiny.anoco")


@pytest.fixture
def good_pictures(tmp_path: Path) -> Callable[[int], list[Path]]:
    """`good_pictures(n)` writes n pictures of good parts and gives their paths."""
    return lambda n: write_good_pictures(tmp_path / "good", n)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that was taught four good parts, and a folder of three others; a test file that
    needs other parts has a template of its own."""
    from command_line import make_line

    return make_line(tmp_path_factory.mktemp("template"))


@pytest.fixture
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template as the current directory."""
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of runtime/ with its tests; all processes of a test run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return build_once(shared / "runtime")


@pytest.fixture(scope="session")
def native_library(request: pytest.FixtureRequest) -> Path:
    """ANOCO_EDGE_LIBRARY names one that is built already."""
    named = os.environ.get("ANOCO_EDGE_LIBRARY")
    return Path(named or request.getfixturevalue("native_build") / "libanoco_edge.so")


@pytest.fixture(scope="module")
def use_native(native_library: Path) -> Iterator[Path]:
    """Python finds the library that was built here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANOCO_EDGE_LIBRARY", str(native_library))
        yield native_library


@pytest.fixture(scope="session")
def simulated_driver(request: pytest.FixtureRequest) -> Path:
    """libsimcuda (runtime/tests/simcuda); ANOCO_SIMCUDA names one that is built already."""
    named = os.environ.get("ANOCO_SIMCUDA")
    return Path(named or request.getfixturevalue("native_build") / "tests/simcuda/libsimcuda.so")


@pytest.fixture(scope="module")
def use_simulated_driver(use_native: Path, simulated_driver: Path) -> Iterator[Path]:
    """The native library finds the simulated CUDA driver; it stays with it in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANOCO_CUDA_DRIVER", str(simulated_driver))
        yield simulated_driver


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what this machine could not execute, and figures; tests say so by record_property."""
    lines: dict[str, None] = {}
    figures: dict[str, None] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "not executed":
                    lines[f"{report.nodeid}: {value}"] = None
                if name == "figure":
                    figures[str(value)] = None
            if outcome == "skipped" and isinstance(report.longrepr, tuple):
                reason = str(report.longrepr[2]).removeprefix("Skipped: ")
                lines[f"{report.nodeid}: {reason}"] = None
    for figure in figures:
        terminalreporter.line(figure)
    if lines:
        terminalreporter.section("not executed here")
        for line in lines:
            terminalreporter.line(line)
