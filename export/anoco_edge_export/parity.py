"""Does the exported graph say what torch says? Compared patch by patch, before anything is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ParityError
from anoco_edge_export.fp16_emulation import rounding_walk
from anoco_edge_export.onnx_graph import is_half, run_ends, run_onnx
from anoco_edge_export.recipe import ParityLimits
from anoco_edge_export.torch_reference import Expected

Features = NDArray[np.float32]
Doubles = NDArray[np.float64]

# A patch whose neighbours are decided by less than this may rightly decide otherwise, and its
# energy then jumps (DESIGN section 3): it does not count among the errors of the top.
_MARGIN = 1e-5
_TOP = 0.01
ORT = "ONNX Runtime, CPU"
WALK = "every tensor rounded to FP16"


@dataclass(frozen=True)
class Gate:
    """What a graph must pass: torch's answers for `pixels`, and how far it may be from them.

    `names` are those of the pictures and `cols` the patches in a row, to say where it differs.
    """

    expected: Expected
    pixels: NDArray[np.uint8]
    limits: ParityLimits
    names: Sequence[str]
    cols: int

    def checks(self, graph: Any, path: Path) -> list[dict[str, Any]]:
        """Compare the graph that was saved at `path` with torch; DiffersError where it fails.

        ONNX Runtime computes a half-precision graph in FP32 on a CPU, so such a graph is walked a
        second time, every tensor rounded. Neither is the arithmetic of a GPU: the self-test is.
        """
        checks = [{"runtime": ORT, **self._compared(ORT, run_onnx(path, self.pixels))}]
        if is_half(graph):
            walk = rounding_walk(graph, self.pixels)
            check = self._compared(WALK, walk.features)
            if walk.first_non_finite is not None:
                raise DiffersError(f"{walk.first_non_finite} overflows FP16", WALK)
            largest = {"tensor": walk.closest, "times_to_overflow": walk.headroom}
            checks.append({"runtime": WALK, **check, "largest": largest})
        return checks

    def _compared(self, runtime: str, actual: Features) -> dict[str, Any]:
        try:
            return compare(self.expected.features, actual, self.limits, self.names, self.cols)
        except DiffersError as difference:
            raise DiffersError(difference.what, runtime) from None


def check_parity(gate: Gate, graph: Any, path: Path) -> dict[str, Any]:
    """The report of the graph that was saved at `path`, or a ParityError that names a layer."""
    try:
        checks = gate.checks(graph, path)
    except DiffersError as difference:
        where = _where(gate, graph, path, difference.runtime)
        raise _failed(difference, where, is_half(graph)) from None
    return {
        "passed": True,
        "against": "torch float32 on the CPU",
        "pictures": list(gate.names),
        "patches": int(gate.expected.features[..., 0].size),
        "limits": gate.limits.model_dump(),
        "checks": checks,
        "device": "not run; no check here has its arithmetic, the self-test does at the first load",
    }


class DiffersError(Exception):
    """Features that break a limit: which and where, and in which runtime."""

    def __init__(self, what: str, runtime: str = ORT) -> None:
        super().__init__(what)
        self.what, self.runtime = what, runtime


def compare(
    expected: Features, actual: Features, limits: ParityLimits, names: Sequence[str], cols: int
) -> dict[str, Any]:
    """Features [pictures, N, d] of torch and of the graph, against the limits."""
    if actual.shape != expected.shape:
        raise DiffersError(f"features have shape {actual.shape}, torch gives {expected.shape}")
    wild = np.asarray(~np.isfinite(actual)).any(axis=2)
    if wild.any():
        raise DiffersError(f"NaN or infinity at {_place(np.asarray(wild), names, cols)}")
    cosine, norm_error = _per_patch(expected, actual)
    measured = {
        "min_cosine": float(cosine.min()),
        "mean_cosine": float(cosine.mean()),
        "max_norm_error": float(norm_error.max()),
    }
    worst = {
        "min_cosine": _place(cosine == cosine.min(), names, cols),
        "max_norm_error": _place(norm_error == norm_error.max(), names, cols),
    }
    _enforce(measured, limits, worst)
    # Only now: energies of features that are far off say nothing more, and may not exist.
    energies = energy_figures(expected, actual)
    _enforce(energies, limits, worst)
    return {"measured": {**measured, **energies}, "worst": worst}


def first_drift(
    expected: Mapping[str, Features], actual: Mapping[str, Features], limits: ParityLimits
) -> str:
    """The first layer whose end is not torch's; empty when every one is.

    `actual` may have a dimension of one picture, or tokens and pictures as one.
    """
    for name, end in expected.items():
        if actual[name].size != end.size or not np.isfinite(actual[name]).all():
            return name
        got = actual[name].reshape(end.shape).astype(np.float32)
        channels = end.ndim == 3  # [d, rows, cols] of a CNN, [tokens, d] of a ViT
        flat = [x.reshape(len(x), -1).T if channels else x for x in (end, got)]
        cosine, norm_error = _per_patch(flat[0][None], flat[1][None])
        if not (cosine.min() >= limits.min_cosine and norm_error.max() <= limits.max_norm_error):
            return name
    return ""


def spearman(a: Doubles, b: Doubles) -> float:
    """Rank correlation, ties sharing their mean rank; 1 where neither side has an order.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    ranks = [_ranks(a), _ranks(b)]
    x, y = (r - r.mean() for r in ranks)
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale == 0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(x @ y) / scale


def _per_patch(expected: Features, actual: Features) -> tuple[Doubles, Doubles]:
    """Cosine and relative norm error of every patch, [pictures, N]."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    norm_e, norm_a = np.linalg.norm(e, axis=2), np.linalg.norm(a, axis=2)
    tiny = np.finfo(np.float64).tiny
    cosine = np.einsum("pnd,pnd->pn", e, a) / np.maximum(norm_e * norm_a, tiny)
    return np.minimum(cosine, 1.0), np.abs(norm_a - norm_e) / np.maximum(norm_e, tiny)


def energy_figures(expected: Features, actual: Features) -> dict[str, float]:
    """ANoCo energies of both sides: the first picture is the bank, the others are inspected."""
    from anoco_edge.scoring import score_patches

    sides = []
    for features in (expected, actual):
        query = features[1:].reshape(-1, features.shape[2])
        sides.append((query, score_patches(query, features[0], scorer="reference")))
    (query, torch_side), (_, onnx_side) = sides
    # Below this share of |q|^2 an energy is rounding (DESIGN section 3).
    floor = 1e-9 * np.einsum("nd,nd->n", query, query, dtype=np.float64)
    e = np.maximum(np.asarray(torch_side.energy, dtype=np.float64), floor)
    a = np.maximum(np.asarray(onnx_side.energy, dtype=np.float64), floor)
    assert torch_side.margin is not None  # the reference scorer always gives it
    decided = np.asarray(torch_side.margin) > _MARGIN
    top = e >= np.quantile(e, 1 - _TOP)
    errors = (np.abs(a - e) / e)[top & decided]
    return {
        "energy_spearman": spearman(e, a),
        "top_energy_error": float(errors.max(initial=0.0)),
        "undecided_share": float(1 - decided.mean()),
    }


def _enforce(measured: dict[str, float], limits: ParityLimits, worst: dict[str, str]) -> None:
    """Raise with every limit that is broken; `not >=` and `not <=` so that NaN breaks too."""
    at_least = {
        "min_cosine": limits.min_cosine,
        "mean_cosine": limits.mean_cosine,
        "energy_spearman": limits.min_energy_spearman,
    }
    at_most = {
        "max_norm_error": limits.max_norm_error,
        "top_energy_error": limits.max_top_energy_error,
    }
    broken = []
    for name, value in measured.items():
        where = f" at {worst[name]}" if name in worst else ""
        label = name.replace("_", " ")
        if name in at_least and not value >= at_least[name]:
            broken.append(f"{label} is {value:.6g}{where}, at least {at_least[name]:g} is asked")
        if name in at_most and not value <= at_most[name]:
            broken.append(f"{label} is {value:.3g}{where}, at most {at_most[name]:g} is allowed")
    if broken:
        raise DiffersError(", and ".join(broken))


def _where(gate: Gate, graph: Any, path: Path, runtime: str) -> str:
    """The first layer that drifts, in words; one picture more is run for it."""
    ends = gate.expected.ends
    one = gate.pixels[gate.expected.picture]
    try:
        if runtime == WALK:
            found = dict(rounding_walk(graph, one[None], list(ends)).watched)
        else:
            found = run_ends(graph, path, one, list(ends))
    except OSError as error:  # it needs the disk once more; what was found counts all the same
        return f"the layer that drifts could not be looked for: {error.strerror or error}"
    layer = first_drift(ends, found, gate.limits)
    return f"the first layer that drifts is {layer}" if layer else "no single layer drifts"


def _failed(difference: DiffersError, where: str, half: bool) -> ParityError:
    versions = "try the torch, onnx and onnxruntime versions of the constraints file"
    other = "use --precision fp32, or keep more in FP32 with --islands"
    return ParityError(
        f"the exported graph differs from torch ({difference.runtime}): {difference}; {where}",
        hint=f"no bundle was written; {other if half else versions}",
    )


def _place(mask: NDArray[np.bool_], names: Sequence[str], cols: int) -> str:
    picture, patch = np.argwhere(mask)[0]
    return f"{names[picture]} row {patch // cols} column {patch % cols}"


def _ranks(values: Doubles) -> Doubles:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    return np.asarray((upto - (counts - 1) / 2)[inverse], dtype=np.float64)
