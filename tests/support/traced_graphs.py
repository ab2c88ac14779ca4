"""Traces equal modules once: torch takes 5 s for the smallest backbone.

The graphs are kept in build/traces, where all processes and later runs of the tests find them. A
module is known by all that it consists of, its weights included; a change to the code that traces
it, or another version of a package that does, begins a new folder.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from paths import ROOT

from anoco_edge_export import export, onnx_graph

TRACERS = ("torch", "torchvision", "timm", "onnx", "onnxscript")
FOLDER = "ANOCO_EDGE_TEST_TRACES"
Trace = Callable[..., Any]


def traces_folder() -> Path:
    """Make the folder for graphs of this code, and remove those of other code."""
    content = hashlib.sha256(" ".join(map(version, TRACERS)).encode())
    for file in sorted((ROOT / "export").rglob("*.py")):
        content.update(file.read_bytes())
    folder = ROOT / "build" / "traces" / content.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


class _ModulePickler(pickle.Pickler):
    """Writes what a module consists of, to be compared and never to be read.

    Tensors are written by their contents. Classes and functions that were made inside of others
    are written by their names and the variables that they use, because torch is imported late.
    """

    def reducer_override(self, obj: Any) -> Any:
        import torch

        if isinstance(obj, torch.Tensor):
            content = obj.detach().contiguous().numpy()
            digest = hashlib.sha256(content.tobytes()).hexdigest()
            return str, (f"{content.dtype} {content.shape} {digest}",)
        if isinstance(obj, ModuleType):
            return str, (obj.__name__,)
        if isinstance(obj, type | FunctionType) and "<locals>" in obj.__qualname__:
            functions = [f for f in (obj, *vars(obj).values()) if isinstance(f, FunctionType)]
            return tuple, ((obj.__module__, obj.__qualname__, *map(_used_variables, functions)),)
        return NotImplemented


def _used_variables(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if name != "__class__"}


def share_traces() -> None:
    """Make `trace` look in the folder that the environment names."""
    onnx_graph.trace = export.trace = _shared(onnx_graph.trace)  # type: ignore[attr-defined]


def _shared(trace: Trace) -> Trace:
    def traced(module: Any, *rest: Any) -> Any:
        import onnx

        key = _key(module, *rest) if FOLDER in os.environ else None
        if key is None:
            return trace(module, *rest)
        path = Path(os.environ[FOLDER]) / f"{key}.onnx"
        if path.is_file():
            return onnx.load_from_string(path.read_bytes())
        graph = trace(module, *rest)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(graph.SerializeToString(deterministic=True))
        partial.rename(path)
        return graph

    return traced


def _key(*parts: Any) -> str | None:
    """Return a name for equal arguments; None for a module that cannot be pickled."""
    stream = io.BytesIO()
    try:
        _ModulePickler(stream).dump(parts)
    except (AttributeError, RecursionError, TypeError, pickle.PicklingError):
        return None
    return hashlib.sha256(stream.getvalue()).hexdigest()
