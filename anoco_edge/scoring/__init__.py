"""ANoCo scoring: features in, energies out.

`reference` is the specification in float64 NumPy; the others are measured against it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from anoco_edge.errors import UsageError
from anoco_edge.scoring.device_array import DeviceArray, OnDevice, device_array, on_device
from anoco_edge.scoring.pooling import POOLINGS, pool
from anoco_edge.scoring.types import (
    METRICS,
    DeviceScorer,
    Floats,
    Metric,
    Parameters,
    References,
    Scorer,
    Scores,
)

__all__ = [
    "METRICS",
    "POOLINGS",
    "SCORERS",
    "Metric",
    "Parameters",
    "References",
    "Scorer",
    "Scores",
    "choose_scorer",
    "open_scorer",
    "pool",
    "score_patches",
]

SCORERS = ("reference", "onnx", "native", "cuda")


def choose_scorer(name: str = "auto") -> tuple[str, str]:
    """The scorer that will run, and why. Asking by name never falls back.

    >>> choose_scorer("reference")
    ('reference', 'asked for')
    """
    if name == "auto":
        from importlib.util import find_spec

        from anoco_edge.native.library import find_library, why_not

        # Loading it takes a millisecond, and a library of another machine is no reason to fail.
        if find_library() is not None and why_not() is None:
            from anoco_edge.scoring import cuda

            there = cuda.describe()
            if there.usable and not there.simulated:
                return "cuda", f"there is a CUDA device: {there.name}"
            return "native", "the native library is present"
        if find_spec("onnxruntime") is not None:
            return "onnx", "onnxruntime is installed"
        return "reference", "onnxruntime is not installed"
    if name not in SCORERS:
        raise UsageError(
            f"unknown scorer {name!r}", hint=f"use auto or one of {', '.join(SCORERS)}"
        )
    return name, "asked for"


def open_scorer(
    name: str,
    bank: References,
    parameters: Parameters | None = None,
    *,
    threads: int = 0,
    memory_mb: int | None = None,
    half: bool = False,
) -> Scorer:
    """A scorer for one bank; `threads` and `memory_mb` do not concern the reference.

    `half` says that queries are computed in FP16: the cuda scorer then multiplies FP16 where the
    bank is, too.
    """
    parameters = parameters or Parameters()
    chosen, _ = choose_scorer(name)
    if chosen == "onnx":
        from anoco_edge.scoring.onnx_scorer import MEMORY_MB, OnnxScorer

        budget = MEMORY_MB if memory_mb is None else memory_mb
        return OnnxScorer(bank, parameters, threads=threads, memory_mb=budget)
    if chosen == "native":
        from anoco_edge.scoring import native

        budget = native.MEMORY_MB if memory_mb is None else memory_mb
        return native.NativeScorer(bank, parameters, threads=threads, memory_mb=budget)
    if chosen == "cuda":
        from anoco_edge.scoring import cuda

        budget = cuda.MEMORY_MB if memory_mb is None else memory_mb
        half = half and bank.features.dtype == np.float16
        return cuda.CudaScorer(bank, parameters, memory_mb=budget, half=half)
    from anoco_edge.scoring.reference import ReferenceScorer

    return ReferenceScorer(bank, parameters)


def score_patches(
    query: ArrayLike | OnDevice,
    references: ArrayLike,
    lam: float = 1.0,
    metric: Metric = "product",
    scorer: str = "auto",
    *,
    floor: float = 0.05,
) -> Scores:
    """Score query patches against reference patches, both raw features, one row a patch.

    Reference patches of zero norm are left out; `anchor` counts rows of `references`. With
    scorer="cuda" the query may be an array on the GPU (of torch, cupy, ...), and stays there.

    >>> s = score_patches([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 0.1]], scorer="reference")
    >>> s.anchor.tolist(), bool(s.energy[1] > s.energy[0])
    ([0, 1], True)
    """
    bank, kept = References.of(_features(references))
    parameters = Parameters(lam=lam, metric=metric, floor=floor)
    rows = device_array(query) if on_device(query) else _features(query)
    opened = open_scorer(scorer, bank, parameters, half=rows.dtype == np.float16)
    if isinstance(opened, DeviceScorer):
        scores = opened.score(rows)
    elif isinstance(rows, DeviceArray):
        raise UsageError(
            f"the query lies on a GPU, where the scorer {opened.name} does not reach",
            hint='use scorer="cuda", or copy it first: .cpu().numpy() in torch, .get() in cupy',
        )
    else:
        scores = opened.score(rows)
    return replace(scores, anchor=kept[scores.anchor])


def _features(values: ArrayLike | OnDevice) -> Floats:
    array = np.asarray(values)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
