"""OpenVINO: Intel's engine for processors, and for Intel's GPUs and NPUs."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines.base import (
    EngineSettings,
    check_features,
    check_shape,
    engine_failed,
    graph_precision,
)
from anoco_edge.engines.probe_graph import PROBE_GRAPH, check_probe, probe_input
from anoco_edge.errors import BundleError, EnvironmentMissingError
from anoco_edge.machine import cache_folder, package_version
from anoco_edge.plugins.packages import import_package
from anoco_edge.storage.atomic_files import write_atomic
from anoco_edge.storage.hashes import sha256_bytes, sha256_file


def open_engine(name: str, bundle: Bundle, settings: EngineSettings) -> OpenVinoEngine:
    """Load the bundle's backbone."""
    return OpenVinoEngine(bundle, settings)


def try_out(name: str) -> str:
    """Run a graph of one addition and list the devices; raises what failed."""
    core = load_core()
    model = core.compile_model(core.read_model(PROBE_GRAPH), "CPU", options("CPU"))
    check_probe("OpenVINO", model(probe_input())["y"])
    devices = [f"{d} ({core.get_property(d, 'FULL_DEVICE_NAME')})" for d in found_devices(core)]
    return f"OpenVINO {package_version('openvino')} ran a graph; devices: {', '.join(devices)}"


def compiled_precision(wanted: str) -> str:
    """Compile a small graph for the processor, and return the precision that OpenVINO gives it."""
    core = load_core()
    how = options("CPU", half=wanted == "bf16")
    model = core.compile_model(core.read_model(PROBE_GRAPH), "CPU", how)
    given: str = model.get_property("INFERENCE_PRECISION_HINT").to_string()
    return given


class OpenVinoEngine:
    """The backbone in one infer request, which threads use in turn.

    It is compiled for a batch of one picture, which is all that an NPU takes. A shape that varies
    made a picture 3 to 12 % slower on two cores, and a batch of four took as long as four pictures
    one by one.
    """

    name = "openvino"

    def __init__(self, bundle: Bundle, settings: EngineSettings) -> None:
        core = load_core()
        self._bundle = bundle
        self._device = pick_device(settings.device, found_devices(core))
        self.cpu_precision = graph_precision(bundle)
        if self._device == "CPU" and settings.cpu_precision == "bf16":
            self.cpu_precision = "bf16"
        self._lock = threading.Lock()
        self._compiled = self._load(core, bundle.graph(), settings.threads)
        self._request = self._compiled.create_infer_request()
        # A self-test that passed is remembered for this version and device alone.
        parts = (
            self.name,
            package_version("openvino") or "",
            self._device,
            core.get_property(self._device, "FULL_DEVICE_NAME"),
            platform.machine(),
            "bf16" if self.cpu_precision == "bf16" else "",
        )
        self.fingerprint = "|".join(filter(None, parts))

    def _load(self, core: Any, graph: bytes | Path, threads: int) -> Any:
        try:
            with kept_graphs(self._bundle) as cache:
                return self._compile(core, graph, self._options(threads, cache))
        except Exception:  # noqa: BLE001 (a faulty graph is reported below)
            pass  # perhaps only the cache fails (a full disk, no permission): try without it
        try:
            return self._compile(core, graph, self._options(threads))
        except BundleError:
            raise  # the shape is not the manifest's
        except Exception as error:  # noqa: BLE001 (even a UnicodeError, if its message is not text)
            raise BundleError(
                f"OpenVINO {package_version('openvino')} cannot load "
                f"{self._bundle.path / 'backbone.onnx'} on {self._device}: {error}",
                hint="the bundle is damaged, or made for a newer version",
            ) from None

    def _options(self, threads: int, cache: Path | None = None) -> dict[str, str | int]:
        return options(self._device, threads, cache, half=self.cpu_precision == "bf16")

    def _compile(self, core: Any, graph: bytes | Path, how: dict[str, str | int]) -> Any:
        contract = self._bundle.manifest.input
        model = core.read_model(graph)
        model.reshape({"pixels": [1, *contract.picture_shape]})
        check_shape(self._bundle, tuple(model.output("features").shape)[1:])
        return core.compile_model(model, self._device, how)

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Compute the patch features of a batch of preprocessed pictures."""
        contract = self._bundle.manifest.input
        features = np.empty((len(pixels), contract.rows * contract.cols, contract.dim), np.float32)
        with self._lock:
            for picture, grid in zip(np.ascontiguousarray(pixels), features, strict=True):
                grid[:] = self._run(picture[None])
        return features

    def _run(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Run one picture; the next run overwrites the result, which lies in the request."""
        try:
            given = {"pixels": self._bundle.manifest.input.arranged(picture)}
            outputs = self._request.infer(given, share_inputs=True, share_outputs=True)
        except Exception as error:  # noqa: BLE001 (a plug-in's exceptions have no common base)
            raise engine_failed(f"openvino on {self._device}", 1, error) from None
        features: NDArray[np.float32] = outputs["features"]
        check_features(self._bundle, features, 1)
        grid: NDArray[np.float32] = features[0]
        return grid


def load_core() -> Any:
    """Make OpenVINO's `Core`; an error says how to install it.

    OpenVINO reports each import of it to Intel, and keeps a number for this user in ~/intel, unless
    its package for that is missing: so it is, for this process.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_package("openvino", "openvino", "to run the backbone").Core()


def found_devices(core: Any) -> list[str]:
    """List the devices of this machine.

    While OpenVINO looks for them, it gives this thread a stack for signals, which is freed together
    with the plug-in that owns it. Ctrl-C would then crash the process, so the thread's own stack is
    put back.
    """
    stack = _SignalStack()
    libc = ctypes.CDLL(None)
    libc.sigaltstack(None, ctypes.byref(stack))
    try:
        return list(core.available_devices)
    finally:
        libc.sigaltstack(ctypes.byref(stack), None)


class _SignalStack(ctypes.Structure):
    """The C library's stack_t."""

    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def pick_device(wanted: str, found: Sequence[str]) -> str:
    """Choose the device to compile for, out of those that were found.

    AUTO is a GPU if there is one, else the processor. OpenVINO's own AUTO is not used: it starts on
    the processor and changes to another device while it runs, so the self-test would test the wrong
    one, and it takes no precision. An NPU computes in half precision only, so it must be named.

    >>> pick_device("AUTO", ["CPU", "GPU.0", "GPU.1", "NPU"]), pick_device("GPU", ["CPU", "GPU"])
    ('GPU.0', 'GPU')
    """
    names = ["GPU", "CPU"] if wanted.upper() == "AUTO" else [wanted.upper()]
    for name in names:
        for device in (name, f"{name}.0"):  # devices have numbers where there are several
            if device in found:
                return device
    raise EnvironmentMissingError(
        f"OpenVINO finds no device {wanted!r} here",
        hint=f"use {', '.join([*found, 'AUTO'])}; a GPU or NPU needs its driver installed",
    )


def options(
    device: str, threads: int = 0, cache: Path | None = None, *, half: bool = False
) -> dict[str, str | int]:
    """Options to compile with: float32 if the device has it, and the shortest time for a picture.

    `half` asks for BF16 products instead.

    >>> [options("CPU", half=half)["INFERENCE_PRECISION_HINT"] for half in (False, True)]
    ['f32', 'bf16']
    """
    chosen: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY"}
    if not device.startswith("NPU"):
        # By default it rounds to bf16 or f16 where the device can, which changes the features.
        chosen["INFERENCE_PRECISION_HINT"] = "bf16" if half else "f32"
    if device == "CPU":
        chosen["INFERENCE_NUM_THREADS"] = threads  # 0: all cores
    if cache is not None:
        chosen["CACHE_DIR"] = str(cache)
    return chosen


@contextlib.contextmanager
def kept_graphs(bundle: Bundle) -> Iterator[Path]:
    """Give OpenVINO a folder to keep what it compiles from this bundle.

    OpenVINO loads a damaged file without an error and computes nonsense with it, and a self-test
    that passed earlier would hide that. So the hash of each file is kept beside it when it is
    written, and files without the right hash are removed.
    """
    folder = cache_folder() / "openvino" / sha256_bytes(bundle.graph_identity().encode())[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for blob in folder.glob("*.blob"):
        hash_file = blob.with_suffix(".sha256")
        if not hash_file.is_file() or hash_file.read_text() != sha256_file(blob):
            blob.unlink(missing_ok=True)
            hash_file.unlink(missing_ok=True)
    yield folder
    for blob in folder.glob("*.blob"):
        if not blob.with_suffix(".sha256").is_file():
            write_atomic(blob.with_suffix(".sha256"), sha256_file(blob).encode())
