"""The fixtures of all tests: caches, a bundle that needs no torch, doubles of missing hardware."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.fake_cuda import FakeCuda, install_cuda
from doubles.fake_tensorrt import FakeTensorRt, install_tensorrt
from doubles.libcuda import SimulatedLibcuda, install_libcuda
from doubles.simulated import SimulatedGpu, simulated_gpu
from hypothesis import settings
from native_build import shared_build
from tiny_bundle import make_tiny_bundle, write_good_pictures
from traced_graphs import FOLDER, share_traces, traces_folder

from anoco_edge.bundle import Bundle

# A failed assert in these helpers shows its values, as one in a test file does.
pytest.register_assert_rewrite(
    "agreement", "command_line", "native_controller", "other_process", "product_kinds"
)

# No test may depend on an idle machine, so hypothesis sets no time limit for an example.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# New products would be taught in BF16 where the processor has it: the same scores on any machine.
os.environ["ANOCO_EDGE_CPU_PRECISION"] = "fp32"

USERS_CACHE = os.environ.get("XDG_CACHE_HOME")

share_traces()  # before any test file imports `trace`

# A shell makes its background jobs ignore Ctrl-C, and our programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep self-test results and other cached files out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def users_cache() -> Iterator[None]:
    """Use the user's cache after all, for what the native build has compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if USERS_CACHE is None:
            patch.delenv("XDG_CACHE_HOME")
        else:
            patch.setenv("XDG_CACHE_HOME", USERS_CACHE)
        yield


@pytest.fixture(autouse=True, scope="session")
def traced_graphs() -> Iterator[None]:
    """Share traced graphs among all processes and runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(traces_folder()))
        yield


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a cache of its own, so that it finds no plan of another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def gpu_memory(simulated_driver: Path) -> SimulatedGpu:
    """Set up the memory that stands for a GPU's, shared by the doubles of CUDA and TensorRT."""
    return simulated_gpu(simulated_driver)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, gpu_memory: SimulatedGpu) -> Iterator[FakeCuda]:
    """Make the machine look as if it had a GPU, an Orin, and a program that uses cuda-python."""
    fake = install_cuda(monkeypatch, gpu_memory)
    yield fake
    fake.close()


@pytest.fixture
def libcuda(
    monkeypatch: pytest.MonkeyPatch, gpu_memory: SimulatedGpu
) -> Iterator[SimulatedLibcuda]:
    """Make the machine look as if it had a GPU, which is reached as by default."""
    simulated = install_libcuda(monkeypatch, gpu_memory)
    yield simulated
    simulated.close()


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeTensorRt:
    """Make TensorRT look installed for that GPU."""
    return install_tensorrt(monkeypatch, cuda)


@pytest.fixture
def tiny_bundle(tmp_path: Path) -> Bundle:
    """Write a new bundle without products, of 64 x 64 pixels and 4 x 4 patches with 8 features."""
    return make_tiny_bundle(tmp_path / "tiny.anoco")


@pytest.fixture
def good_pictures(tmp_path: Path) -> Callable[[int], list[Path]]:
    """Return `good_pictures(n)`, which writes n pictures of good parts and returns their paths."""
    return lambda n: write_good_pictures(tmp_path / "good", n)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle that knows four good parts, and a folder of three others.

    A test file that needs other parts has a template of its own.
    """
    from command_line import make_line

    return make_line(tmp_path_factory.mktemp("template"))


@pytest.fixture
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the template, and make the copy the current directory."""
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="session")
def native_build() -> Path:
    """Build runtime/ with its tests; this run and later ones share the build folder."""
    return shared_build("native")


@pytest.fixture(scope="session")
def native_library(request: pytest.FixtureRequest) -> Path:
    """Return the native library; ANOCO_EDGE_LIBRARY names one that is already built."""
    named = os.environ.get("ANOCO_EDGE_LIBRARY")
    return Path(named or request.getfixturevalue("native_build") / "libanoco_edge.so")


@pytest.fixture(scope="module")
def use_native(native_library: Path) -> Iterator[Path]:
    """Make Python load the library that was built here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANOCO_EDGE_LIBRARY", str(native_library))
        yield native_library


@pytest.fixture(scope="session")
def simulated_driver(request: pytest.FixtureRequest) -> Path:
    """Return libsimcuda (runtime/tests/simcuda); ANOCO_SIMCUDA names one that is already built."""
    named = os.environ.get("ANOCO_SIMCUDA")
    return Path(named or request.getfixturevalue("native_build") / "tests/simcuda/libsimcuda.so")


@pytest.fixture(scope="module")
def use_simulated_driver(use_native: Path, simulated_driver: Path) -> Iterator[Path]:
    """Make the native library load the simulated CUDA driver, which it keeps in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANOCO_CUDA_DRIVER", str(simulated_driver))
        yield simulated_driver


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print figures and what this machine could not run; tests report both with record_property."""
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
