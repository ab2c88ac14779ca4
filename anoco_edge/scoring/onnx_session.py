"""Opens ONNX Runtime sessions on the processor and on a GPU, always in the same way."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anoco_edge.errors import AnocoError, BundleError, EnvironmentMissingError, missing
from anoco_edge.plugins.packages import import_package

_SOURCE_PLACE = re.compile(r"^/onnxruntime_src/.*?\) ")  # a path on the machine that built it


def load_onnxruntime() -> Any:
    """Import ONNX Runtime; an error says how to install it."""
    return import_package("onnxruntime", "cpu", "to run the backbone")


def open_session(
    model: bytes | Path,
    name: str,
    *,
    threads: int = 0,
    arena: bool = True,
    patterns: bool = True,
    spin: bool = False,
) -> Any:
    """Open a session for a serialized graph, or for a file; `name` is what an error calls it.

    A graph whose weights lie in a file of their own must come as a path, because they are found
    beside it. `arena` keeps memory between runs. `patterns` plans memory ahead, which takes about
    twice the peak. `spin` lets threads wait busily for the next operation of a run: that is a tenth
    faster for the hundreds of operations of a transformer, and a fifth slower for a small CNN.
    """
    try:
        import onnxruntime
    except ImportError:
        raise missing("onnxruntime", "cpu", f"to run {name}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = arena
    options.enable_mem_pattern = patterns
    options.log_severity_level = 3
    # Engine, scorer and BLAS take turns on the same cores. A thread that spins while it waits takes
    # a core from the others, and a frame took twice as long. So no thread spins between two runs,
    # and within a run only where measurements showed a gain.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Processors with AVX2 or AVX-512 and without VNNI add INT8 products in 16 bits and cut off what
    # does not fit. 1: exactly, as all others do.
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            options,
            providers=["CPUExecutionProvider"],
            enable_fallback=0,  # a fallback prints, and tries the same provider again
        )
    except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
        raise _cannot_load(onnxruntime.__version__, name, error) from None


def open_gpu_session(
    model: bytes | Path, name: str, providers: Sequence[tuple[str, dict[str, str]]]
) -> tuple[Any, str]:
    """Open a session whose first provider runs, never the processor instead; also the version."""
    try:
        import onnxruntime
    except ImportError:
        raise missing("onnxruntime", "gpu", f"to run {name}") from None
    wanted, version = providers[0][0], str(onnxruntime.__version__)
    if wanted not in onnxruntime.get_available_providers():
        raise EnvironmentMissingError(
            f"this ONNX Runtime ({version}) has no {wanted}",
            hint="install its GPU build: pip uninstall onnxruntime, then "
            "pip install 'anoco-edge[gpu]' (on a Jetson: NVIDIA's wheel for your JetPack)",
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)  # our own error says what does not start
    # ONNX Runtime prints and warns when a provider fails, and takes another; ours is an error.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(onnxruntime, "preload_dlls"):  # loads CUDA from pip's packages
            onnxruntime.preload_dlls()
        try:
            session = onnxruntime.InferenceSession(
                str(model) if isinstance(model, Path) else model,
                options,
                providers=list(providers),
                enable_fallback=0,
            )
        except RuntimeError as error:  # a provider failed to start; a bad graph raises others
            raise _does_not_start(version, wanted, str(error)) from None
        except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
            raise _cannot_load(version, name, error) from None
    if wanted not in session.get_providers():
        raise _does_not_start(version, wanted)
    return session, version


def _does_not_start(version: str, provider: str, why: str = "") -> EnvironmentMissingError:
    return EnvironmentMissingError(
        f"ONNX Runtime {version} lists {provider}, but it does not start here"
        + (f": {_SOURCE_PLACE.sub('', why)[:300]}" if why else ""),
        hint="install the NVIDIA driver and the CUDA, cuDNN or TensorRT that it was built for, or "
        "use another engine",
    )


def _cannot_load(version: str, name: str, error: Exception) -> AnocoError:
    return BundleError(
        f"ONNX Runtime {version} cannot load {name}: {error}",
        hint="the bundle is damaged, or made for a newer version",
    )
