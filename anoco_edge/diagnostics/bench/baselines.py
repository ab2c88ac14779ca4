"""Other implementations of the same task, called rivals in options and reports, for comparison."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.diagnostics.bench.features import Features
from anoco_edge.errors import UsageError, missing
from anoco_edge.machine import cores
from anoco_edge.scoring import SCORERS

Run = Callable[[], "NDArray[np.float32] | None"]
"""One measured call; it returns energies if the rival computes them."""

YARDSTICK = "numpy-sgemm"
_ROWS = 256  # of a chunk in torch-sort, because sorting keeps four N_r-wide matrices alive
_FLOOR, _LAMBDA = 0.05, 1.0
# Threads of the library that ran before spin for a while and would slow down the next one.
SETTLE_SECONDS = 0.1


def numpy_sgemm(query: Features, references: Features) -> Run:
    """Compute one bare float32 Q R^T, the least that any exact comparison of all pairs costs."""

    def run() -> None:
        query @ references.T

    return run


def torch_sort(query: Features, references: Features) -> Run:
    """Compute sections 3.2 to 3.4 of the paper in torch in the direct way, with the sort."""
    torch = _load("torch", "rivals", "for the rival torch-sort")
    q, r = torch.from_numpy(query), torch.from_numpy(references)
    r_norm = r.norm(dim=1)
    r_unit = r / r_norm[:, None]

    def chunk(part: Any) -> Any:
        norm = part.norm(dim=1, keepdim=True)
        s = (part / norm) @ r_unit.T
        ordered, order = s.sort(dim=1, descending=True, stable=True)
        anchor = order[:, 0]
        a = (r_unit[anchor] @ r_unit.T).gather(1, order)
        consistent = (a > ordered[:, :1]).to(torch.uint8)
        consistent[:, 0] = 1
        prefix = consistent.cumprod(dim=1, dtype=torch.uint8)
        alpha = 2 * norm * r_norm / (norm + r_norm)
        w = s.clamp(min=_FLOOR) * alpha * torch.zeros_like(s).scatter_(1, order, prefix.to(s.dtype))
        degree = w.sum(dim=1, keepdim=True)
        pull = w @ r
        drift = (pull - degree * part) / (_LAMBDA + degree)
        moved = _LAMBDA * part + pull
        chord = moved / moved.norm(dim=1, keepdim=True) - part / norm
        return drift.square().sum(dim=1) * chord.square().sum(dim=1) / 2

    def run() -> NDArray[np.float32]:
        with torch.inference_mode():
            energies: NDArray[np.float32] = torch.cat([chunk(p) for p in q.split(_ROWS)]).numpy()
        return energies

    return run


def faiss_flat(query: Features, references: Features) -> Run:
    """Find the nearest reference of each query and no more, which is PatchCore's search."""
    faiss = _load("faiss", "rivals", "for the rival faiss")
    unit = references / np.linalg.norm(references, axis=1)[:, None]
    index = faiss.IndexFlatIP(references.shape[1])
    index.add(unit)

    def run() -> None:
        index.search(query / np.linalg.norm(query, axis=1)[:, None], 1)

    return run


RIVALS: dict[str, Callable[[Features, Features], Run]] = {
    YARDSTICK: numpy_sgemm,
    "torch-sort": torch_sort,
    "faiss": faiss_flat,
}


def parse_rivals(text: str) -> list[str]:
    """Read names of rivals, which may be other scorers of ours; the yardstick always runs first.

    >>> parse_rivals("faiss, onnx")
    ['numpy-sgemm', 'faiss', 'onnx']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [*RIVALS, *SCORERS.names()]
    for name in names:
        if name not in known:
            raise UsageError(f"unknown rival {name!r}", hint=f"use {', '.join(known)}")
    return list(dict.fromkeys([YARDSTICK, *names]))


@contextmanager
def same_threads(threads: int, rivals: list[str]) -> Iterator[list[str]]:
    """Give every library this many threads; yields remarks on those where that is not possible."""
    remarks: list[str] = []
    control = _find("threadpoolctl")
    if control is not None:
        _same_kernels(control)
    for name, module, setter in (
        ("torch-sort", "torch", "set_num_threads"),
        ("faiss", "faiss", "omp_set_num_threads"),
    ):
        library = _find(module) if name in rivals else None
        if library is not None:
            getattr(library, setter)(threads)
    if control is not None:
        remarks += _other_kernels(control)
        # After the imports above, because it limits the libraries that are loaded by now.
        with control.threadpool_limits(limits=threads, user_api="blas"):
            yield remarks
        return
    if threads != cores():
        remarks.append(
            f"numpy's BLAS may use other than {threads} threads: install threadpoolctl, "
            f"or set OPENBLAS_NUM_THREADS={threads}"
        )
    yield remarks


def blas_kernels(control: Any) -> list[str]:
    """List the processor families that loaded OpenBLAS libraries compute for, numpy's first."""
    found = [i for i in control.threadpool_info() if i["internal_api"] == "openblas"]
    found.sort(key=lambda info: "numpy" not in info["filepath"])
    return [str(info["architecture"]) for info in found]


def _same_kernels(control: Any) -> None:
    """Let faiss use the same kernels as numpy, before it loads.

    faiss ships an OpenBLAS of 2021 that takes newer processors for a Prescott of 2004, which makes
    it 4 times slower than it need be.
    """
    kernels = blas_kernels(control)
    if kernels:
        os.environ.setdefault("OPENBLAS_CORETYPE", kernels[0])


def _other_kernels(control: Any) -> list[str]:
    kernels = blas_kernels(control)
    if len(set(kernels)) < 2:
        return []
    return [
        f"the OpenBLAS libraries of numpy and its rivals run kernels for {', '.join(kernels)}: "
        f"the comparison is unfair (start with OPENBLAS_CORETYPE={kernels[0]})"
    ]


def settle() -> None:
    """Wait until idle threads of the library that ran last sleep."""
    time.sleep(SETTLE_SECONDS)


def _load(module: str, extra: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing(module, extra, why) from None


def _find(module: str) -> Any | None:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
