"""One way to open an ONNX Runtime session on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anoco_edge.errors import BundleError, missing


def open_session(
    model: bytes | Path,
    name: str,
    *,
    threads: int = 0,
    arena: bool = True,
    patterns: bool = True,
    spin: bool = False,
) -> Any:
    """A session for a serialised graph, or for a file; `name` is what an error calls it.

    A graph whose weights lie in a file of their own must come as a path: they are found beside it.
    `arena` keeps memory between runs; `patterns` plans it ahead, at the price of about twice the
    peak. `spin` lets threads wait busily for the next operation of a run: a tenth faster for the
    hundreds of operations of a transformer, a fifth slower for a small CNN.
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
    # Engine, scorer and BLAS take turns on the same cores. Threads that spin while they wait for
    # their own turn keep the others from theirs: a frame took twice as long. So none spins between
    # two runs, and within one only where it was measured to pay.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
        raise BundleError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load {name}: {error}",
            hint="the bundle is damaged, or made for a newer version",
        ) from None
