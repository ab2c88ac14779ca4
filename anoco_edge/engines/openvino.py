"""OpenVINO: Intel's processors, and its GPUs and NPUs."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings, check_features, check_shape, engine_failed
from anoco_edge.errors import BundleError, EnvironmentMissingError, missing
from anoco_edge.machine import cache_folder, package_version
from anoco_edge.storage.atomic_files import write_atomic
from anoco_edge.storage.hashes import sha256_bytes, sha256_file


class OpenVinoEngine:
    """The backbone in one infer request, which threads take in turn.

    It is compiled for one picture, which is all that an NPU takes: a shape that varies made a
    picture 3 to 12 % slower on two cores, and a batch of four took as long as four one by one.
    """

    name = "openvino"

    def __init__(self, bundle: Bundle, settings: EngineSettings) -> None:
        core = load_core()
        self._bundle = bundle
        self._device = pick_device(settings.device, found_devices(core))
        self._lock = threading.Lock()
        self._compiled = self._load(core, bundle.graph(), settings.threads)
        self._request = self._compiled.create_infer_request()
        # What a self-test result is valid for: another version or device may compute otherwise.
        parts = (
            self.name,
            package_version("openvino") or "",
            self._device,
            core.get_property(self._device, "FULL_DEVICE_NAME"),
            platform.machine(),
        )
        self.fingerprint = "|".join(filter(None, parts))

    def _load(self, core: Any, graph: bytes | Path, threads: int) -> Any:
        try:
            with kept_graphs(self._bundle) as cache:
                return self._compile(core, graph, options(self._device, threads, cache))
        except Exception:  # noqa: BLE001 (the graph's fault is said below)
            pass  # the graph is at fault, or only the cache: a full disk, a place not ours
        try:
            return self._compile(core, graph, options(self._device, threads))
        except BundleError:
            raise  # of another shape
        except Exception as error:  # noqa: BLE001 (its words may not even be text: UnicodeError)
            raise BundleError(
                f"OpenVINO {package_version('openvino')} cannot load "
                f"{self._bundle.path / 'backbone.onnx'} on {self._device}: {error}",
                hint="the bundle is damaged, or made for a newer version",
            ) from None

    def _compile(self, core: Any, graph: bytes | Path, how: dict[str, Any]) -> Any:
        contract = self._bundle.manifest.input
        model = core.read_model(graph)
        model.reshape({"pixels": [1, contract.height, contract.width, 3]})
        check_shape(self._bundle, tuple(model.output("features").shape)[1:])
        return core.compile_model(model, self._device, how)

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Patch features of a batch of prepared pictures."""
        contract = self._bundle.manifest.input
        features = np.empty((len(pixels), contract.rows * contract.cols, contract.dim), np.float32)
        with self._lock:
            for picture, grid in zip(np.ascontiguousarray(pixels), features, strict=True):
                grid[:] = self._run(picture[None])
        return features

    def _run(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        """A view of the request's own memory, which the next run overwrites."""
        try:
            outputs = self._request.infer(
                {"pixels": picture}, share_inputs=True, share_outputs=True
            )
        except Exception as error:  # noqa: BLE001 (a plug-in's exceptions have no common base)
            raise engine_failed(f"openvino on {self._device}", 1, error) from None
        features: NDArray[np.float32] = outputs["features"]
        check_features(self._bundle, features, 1)
        grid: NDArray[np.float32] = features[0]
        return grid


def load_core() -> Any:
    """OpenVINO's entry; an error says how to get it."""
    try:
        import openvino
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "openvino":
            raise missing("openvino", "openvino", "to run the backbone") from None
        raise EnvironmentMissingError(
            f"openvino is installed but does not load: {error}",
            hint="install it again with: pip install --force-reinstall 'anoco-edge[openvino]'",
        ) from None
    return openvino.Core()


def found_devices(core: Any) -> list[str]:
    """The devices that are there.

    Looking for them, OpenVINO gives this thread a stack for signals that is gone together with
    the plug-in it belongs to: Ctrl-C would then end in a crash. So the thread gets its own back.
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
    """The device to compile for, out of those that are there.

    AUTO is a GPU if there is one, else the processor. OpenVINO's own AUTO starts on the processor
    and changes over while it runs: the self-test would have tested the wrong one. It takes no
    precision either. An NPU computes in half precision only, so it must be named.

    >>> pick_device("AUTO", ["CPU", "GPU.0", "GPU.1", "NPU"]), pick_device("GPU", ["CPU", "GPU"])
    ('GPU.0', 'GPU')
    """
    names = ["GPU", "CPU"] if wanted.upper() == "AUTO" else [wanted.upper()]
    for name in names:
        for device in (name, f"{name}.0"):  # numbered where there are several
            if device in found:
                return device
    raise EnvironmentMissingError(
        f"OpenVINO finds no device {wanted!r} here",
        hint=f"use {', '.join([*found, 'AUTO'])}; a GPU or NPU needs its driver installed",
    )


def options(device: str, threads: int = 0, cache: Path | None = None) -> dict[str, Any]:
    """How to compile: float32 unless the device has none, one picture as soon as possible.

    >>> options("CPU")["INFERENCE_PRECISION_HINT"]
    'f32'
    """
    chosen: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if not device.startswith("NPU"):
        # Left to itself it rounds to bf16 or f16 wherever the device can: other features than ours.
        chosen["INFERENCE_PRECISION_HINT"] = "f32"
    if device == "CPU":
        chosen["INFERENCE_NUM_THREADS"] = threads  # 0: all cores
    if cache is not None:
        chosen["CACHE_DIR"] = str(cache)
    return chosen


@contextlib.contextmanager
def kept_graphs(bundle: Bundle) -> Iterator[Path]:
    """The folder where OpenVINO keeps what it compiled from this bundle.

    It loads a damaged file without a word and computes nonsense with it, which a self-test passed
    earlier would hide. So hashes are noted when files are written, and others do not stay.
    """
    folder = cache_folder() / "openvino" / sha256_bytes(bundle.graph_identity().encode())[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for blob in folder.glob("*.blob"):
        noted = blob.with_suffix(".sha256")
        if not noted.is_file() or noted.read_text() != sha256_file(blob):
            blob.unlink(missing_ok=True)
            noted.unlink(missing_ok=True)
    yield folder
    for blob in folder.glob("*.blob"):
        if not blob.with_suffix(".sha256").is_file():
            write_atomic(blob.with_suffix(".sha256"), sha256_file(blob).encode())
