"""The parity gate: the exported graph is compared with torch, patch by patch.

No bundle is written unless the graph passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.parity_report import (
    EnergyFigures,
    OverflowMargin,
    ParityCheck,
    ParityFigures,
    ParityReport,
    WorstPatches,
)
from anoco_edge.errors import AnocoError, ParityError
from anoco_edge_export.fp16_emulation import emulate_half
from anoco_edge_export.half_format import BF16, HalfFormat, half_format
from anoco_edge_export.onnx_graph import run_ends, run_onnx
from anoco_edge_export.recipe import ParityLimits, Precision
from anoco_edge_export.torch_reference import TorchReference

Features = NDArray[np.float32]
Doubles = NDArray[np.float64]

# A patch whose neighbors are decided by less than this margin may rightly decide otherwise, and its
# energy then jumps (DESIGN section 3). It does not count among the errors of the largest energies.
_MARGIN = 1e-5
_TOP = 0.01  # the share of patches whose energies count as the largest
ORT = "ONNX Runtime, CPU"


@dataclass(frozen=True)
class Gate:
    """What a graph must pass: torch's answers for `pixels`, and how far it may be from them.

    `pixels` are pictures as the graph takes them. `names` are those of the pictures and `cols` is
    the number of patches in a row; both serve to say where the graph differs.
    """

    reference: TorchReference
    pixels: NDArray[Any]
    limits: ParityLimits
    names: Sequence[str]
    cols: int

    def checks(self, graph: Any, path: Path) -> tuple[ParityCheck, ...]:
        """Compare the graph that was saved at `path` with torch; raise DiffersError if it fails.

        ONNX Runtime computes an FP16 graph in FP32 on a CPU, so such a graph runs a second time
        with every tensor rounded to FP16. It does not run a BF16 graph at all, so such a graph
        runs in this second way only. Neither is the arithmetic of a GPU; the self-test of the
        bundle, which runs on the device, is.
        """
        half, checks = half_format(graph), []
        if half != BF16:
            figures, worst = self._compared(ORT, run_onnx(path, self.pixels))
            checks.append(ParityCheck(ORT, figures, worst))
        if half is not None:
            runtime = emulation(half)
            emulated = emulate_half(graph, self.pixels)
            figures, worst = self._compared(runtime, emulated.features)
            if emulated.first_non_finite is not None:
                what = f"{emulated.first_non_finite} overflows {half.title}"
                raise DiffersError(what, runtime)
            largest = OverflowMargin(emulated.closest, emulated.headroom)
            checks.append(ParityCheck(runtime, figures, worst, largest))
        return tuple(checks)

    def _compared(self, runtime: str, actual: Features) -> tuple[ParityFigures, WorstPatches]:
        try:
            return compare_features(
                self.reference.features, actual, self.limits, self.names, self.cols
            )
        except DiffersError as difference:
            raise DiffersError(difference.what, runtime) from None


def emulation(half: HalfFormat) -> str:
    """Return what reports call the run in which every 16-bit tensor is rounded.

    >>> emulation(BF16)
    'every tensor rounded to BF16'
    """
    return f"every tensor rounded to {half.title}"


def check_parity(gate: Gate, graph: Any, path: Path, precision: Precision) -> ParityReport:
    """Return the report of the graph that was saved at `path`.

    Raise a ParityError that names the first layer that drifts if the graph does not pass.
    """
    try:
        checks = gate.checks(graph, path)
    except DiffersError as difference:
        where = _where(gate, graph, path, difference.runtime)
        raise _failed(difference, where, half_format(graph) is not None) from None
    return ParityReport(
        precision=precision,
        passed=True,
        against="torch float32 on the CPU",
        pictures=tuple(gate.names),
        patches=int(gate.reference.features[..., 0].size),
        limits=gate.limits.model_dump(),
        checks=checks,
        device="not run; no check here has its arithmetic, the self-test does at the first load",
    )


class DiffersError(Exception):
    """Features break a limit: it says which limit, where, and in which runtime."""

    def __init__(self, what: str, runtime: str = ORT) -> None:
        super().__init__(what)
        self.what, self.runtime = what, runtime


def compare_features(
    expected: Features, actual: Features, limits: ParityLimits, names: Sequence[str], cols: int
) -> tuple[ParityFigures, WorstPatches]:
    """Compare features [pictures, N, d] of torch and the graph; raise DiffersError at a limit."""
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
    worst = WorstPatches(
        min_cosine=_place(cosine == cosine.min(), names, cols),
        max_norm_error=_place(norm_error == norm_error.max(), names, cols),
    )
    _enforce(measured, limits, asdict(worst))
    # The energies come last: those of features that are far off add nothing, and may not exist.
    energies = asdict(energy_figures(expected, actual))
    _enforce(energies, limits, {})
    return ParityFigures(**measured, **energies), worst


def first_drift(
    expected: Mapping[str, Features], actual: Mapping[str, Features], limits: ParityLimits
) -> str:
    """Return the first layer whose output differs from torch, or "" when none does.

    `actual` may have an extra dimension for the one picture, or tokens and pictures in one.
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
    """Return the cosine and the relative norm error of every patch, [pictures, N]."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    norm_e, norm_a = np.linalg.norm(e, axis=2), np.linalg.norm(a, axis=2)
    tiny = np.finfo(np.float64).tiny
    cosine = np.einsum("pnd,pnd->pn", e, a) / np.maximum(norm_e * norm_a, tiny)
    return np.minimum(cosine, 1.0), np.abs(norm_a - norm_e) / np.maximum(norm_e, tiny)


def energy_figures(expected: Features, actual: Features) -> EnergyFigures:
    """Compare the ANoCo energies of both sides.

    The first picture is the bank, and the others are inspected.
    """
    from anoco_edge.scoring import score_patches

    sides = []
    for features in (expected, actual):
        query = features[1:].reshape(-1, features.shape[2])
        sides.append((query, score_patches(query, features[0], scorer="reference")))
    (query, torch_side), (_, onnx_side) = sides
    # Below this share of |q|^2 an energy is nothing but rounding (DESIGN section 3).
    floor = 1e-9 * np.einsum("nd,nd->n", query, query, dtype=np.float64)
    e = np.maximum(np.asarray(torch_side.energy, dtype=np.float64), floor)
    a = np.maximum(np.asarray(onnx_side.energy, dtype=np.float64), floor)
    if torch_side.margin is None:
        raise AnocoError("the reference scorer gave no margins", hint="reinstall anoco-edge")
    decided = np.asarray(torch_side.margin) > _MARGIN
    top = e >= np.quantile(e, 1 - _TOP)
    errors = (np.abs(a - e) / e)[top & decided]
    return EnergyFigures(
        energy_spearman=spearman(e, a),
        top_energy_error=float(errors.max(initial=0.0)),
        undecided_share=float(1 - decided.mean()),
    )


def _enforce(measured: Mapping[str, float], limits: ParityLimits, worst: Mapping[str, str]) -> None:
    """Raise DiffersError with every limit that is broken.

    The comparisons are written as `not >=` and `not <=`, so that NaN breaks a limit too.
    """
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
    """Say which layer drifts first; this runs the graph once more on one picture."""
    ends = gate.reference.ends
    one = gate.pixels[gate.reference.picture]
    try:
        if runtime != ORT:
            found = dict(emulate_half(graph, one[None], list(ends)).watched)
        else:
            found = run_ends(graph, path, one, list(ends))
    except OSError as error:  # the difference is reported even where the disk fails now
        return f"the layer that drifts could not be looked for: {error.strerror or error}"
    layer = first_drift(ends, found, gate.limits)
    return f"the first layer that drifts is {layer}" if layer else "no single layer drifts"


def _failed(difference: DiffersError, where: str, half: bool) -> ParityError:
    versions = "try the torch, onnx and onnxruntime versions of the constraints file"
    other = "use `precision='fp32'`, or keep more in FP32 with `islands=NAMES`"
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
