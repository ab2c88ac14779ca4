"""Runs graphs with the versions that JetPack 6 has: Python 3.10, onnxruntime 1.23.2, numpy 2.2.6.

A folder holds NAME.onnx beside NAME.npz, whose arrays `in:INPUT` and `out:OUTPUT` are the inputs
and the expected outputs. This file is also the program that runs in the old environment, so its
first lines import nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

ONNXRUNTIME, NUMPY = "1.23.2", "2.2.6"
DEVICE = (
    "pillow",
    "pydantic",
    "rich",
    "safetensors",
    "simplejpeg",
    "typer",
)  # what anoco_edge itself needs


class NotAvailableError(Exception):
    """The old environment cannot be made on this machine, which says nothing about the graphs."""


@dataclass(frozen=True)
class OldRuntime:
    """An environment with the old versions, and how it differs from that of JetPack 6."""

    python: Path
    lacks: str = ""


def find_python310() -> Path | None:
    """Find a Python 3.10 that really starts.

    The one on the PATH may be a shim of pyenv with no Python 3.10 behind it.
    """
    uv = shutil.which("uv")
    candidates = [os.environ.get("ANOCO_PYTHON310"), shutil.which("python3.10")]
    if uv:
        found = subprocess.run([uv, "python", "find", "3.10"], capture_output=True, text=True)
        candidates.append(found.stdout.strip())
    ask = "import sys; print(*sys.version_info[:2], sys.executable)"
    for candidate in filter(None, candidates):
        try:
            ran = subprocess.run(
                [candidate, "-c", ask],
                capture_output=True,
                text=True,
                timeout=30,
                env={**os.environ, "PYENV_VERSION": "3.10"},
            )
        except OSError:
            continue
        if ran.returncode == 0 and ran.stdout.startswith("3 10 "):
            return Path(ran.stdout.split(maxsplit=2)[2].strip())
    return None


def make_old_runtime(folder: Path) -> OldRuntime:
    """Make the old environment in `folder`, with Python 3.10 if this machine has it."""
    python310 = find_python310()
    packages = (f"onnxruntime=={ONNXRUNTIME}", f"numpy=={NUMPY}", *DEVICE)
    _call(str(python310 or sys.executable), "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    _call(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    lacks = "" if python310 else f"Python 3.10 itself was not executed, {version} was"
    return OldRuntime(python, lacks)


def _call(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        raise NotAvailableError(f"{' '.join(command[1:4])}: {ran.stderr.strip()[-300:]}")


def expect(
    graph: Path, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> None:
    """Save the inputs and the expected outputs of a graph beside it."""
    import numpy as np

    arrays: dict[str, Any] = {f"in:{name}": value for name, value in inputs.items()}
    arrays |= {f"out:{name}": value for name, value in outputs.items()}
    np.savez(graph.with_suffix(".npz"), **arrays)


def run_graphs(runtime: OldRuntime, folder: Path) -> dict[str, dict[str, Any]]:
    """Run every graph of a folder in the old environment and return a report for each.

    The report holds the largest `error`, relative to the largest expected number, or `failed`.
    """
    ran = subprocess.run(
        [runtime.python, __file__, folder], capture_output=True, text=True, timeout=900
    )
    if ran.returncode:
        raise AssertionError(ran.stderr)
    report: dict[str, dict[str, Any]] = json.loads(ran.stdout)
    assert report.pop("versions") == {"onnxruntime": ONNXRUNTIME, "numpy": NUMPY}
    return report


def main(folder: Path) -> None:
    """Run every graph of the folder and print the report; the old environment calls this."""
    import numpy as np
    import onnxruntime

    versions = {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    report: dict[str, dict[str, Any]] = {"versions": versions}
    for graph in sorted(folder.glob("*.onnx")):
        try:
            report[graph.stem] = {"error": _error(graph)}
        except Exception as error:  # noqa: BLE001 (however it fails, that is the finding)
            report[graph.stem] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(report))


def _error(graph: Path) -> float:
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    worst = 0.0
    with np.load(graph.with_suffix(".npz")) as arrays:
        feeds = {k.removeprefix("in:"): arrays[k] for k in arrays if k.startswith("in:")}
        names = [k.removeprefix("out:") for k in arrays if k.startswith("out:")]
        for name, got in zip(names, session.run(names, feeds), strict=True):
            wanted = arrays[f"out:{name}"]
            if got.shape != wanted.shape or not np.isfinite(got).all():
                raise ValueError(f"{name} has shape {got.shape} instead of {wanted.shape}, or NaN")
            scale = max(float(np.abs(wanted).max()), 1e-30)
            off = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
            worst = max(worst, float(off) / scale)
    return worst


if __name__ == "__main__":
    main(Path(sys.argv[1]))
