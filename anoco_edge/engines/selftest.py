"""The self-test of a bundle: does this engine on this machine compute what torch computed?

It runs when a bundle is first loaded on a device. That it passed is remembered in the user's cache,
under the graph's hash and the engine's fingerprint. A backbone that fails it is not used.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.engines.base import Engine, computed_in
from anoco_edge.engines.device_path import TraceableEngine, check_trace
from anoco_edge.engines.selftest_memory import SelfTestMemory
from anoco_edge.errors import BundleError, ParityError
from anoco_edge.scoring import Parameters, References, open_scorer
from anoco_edge.scoring.types import Floats

CPU_BF16 = "BF16 on a processor"  # beside the precisions of graphs
# Limits by the graph's precision, and for a processor that computes any graph in BF16:
# lowest cosine of a patch, largest relative error of its norm.
LIMITS = {
    "fp32": (0.9999, 1e-3),
    "fp16": (0.999, 1e-2),
    "bf16": (0.998, 1e-2),
    "int8": (0.97, 5e-2),
    CPU_BF16: (0.98, 2e-2),
}
# The largest error of an energy, relative to the largest energy.
ENERGY_LIMIT = {"fp32": 1e-2, "fp16": 5e-2, "bf16": 0.1, "int8": 0.25, CPU_BF16: 0.15}


class FeatureParityError(ParityError):
    """Features that differ from those of torch by more than their precision explains."""


_NUMBERS = ("min_cosine", "norm_error", "energy_error")


@dataclass(frozen=True)
class SelfTest:
    """What the self-test measured; `remembered` says that it ran earlier.

    `device_path` names what was compared bit for bit on a GPU.
    """

    min_cosine: float
    norm_error: float
    energy_error: float
    remembered: bool = False
    device_path: tuple[str, ...] = ()


def check_engine(bundle: Bundle, engine: Engine, *, force: bool = False) -> SelfTest:
    """Run the self-test, or find that it passed here before; raises ParityError if it fails.

    An engine that can show what happens on its device is looked at more closely: see `device_path`.
    """
    traced = isinstance(engine, TraceableEngine)
    memory = SelfTestMemory(bundle, engine.fingerprint + ("|device path 1" if traced else ""))
    if not force and (known := _remembered(memory)) is not None:
        return known
    compared: tuple[str, ...] = ()
    if isinstance(engine, TraceableEngine):
        pixels, _, _ = read_selftest(bundle)
        compared = check_trace(engine.name, engine.trace(pixels))
    result = replace(measure_parity(bundle, engine), device_path=compared)
    _check_limits(bundle, engine, result)
    memory.write(asdict(result))
    return result


def _remembered(memory: SelfTestMemory) -> SelfTest | None:
    found = memory.read()
    if found is None:
        return None
    try:
        cosine, norm, energy = (float(str(found[name])) for name in _NUMBERS)
    except (KeyError, ValueError):
        return None  # the file is damaged, so the test runs again
    compared = found.get("device_path")
    path = tuple(map(str, compared)) if isinstance(compared, list) else ()
    return SelfTest(cosine, norm, energy, remembered=True, device_path=path)


def measure_parity(bundle: Bundle, engine: Engine) -> SelfTest:
    """Compare features and energies with those that were stored at export."""
    pixels, features, expected_energies = read_selftest(bundle)
    expected = features.astype(np.float64)
    got = engine.features(pixels)[0].astype(np.float64)
    norms, wanted = np.linalg.norm(got, axis=1), np.linalg.norm(expected, axis=1)
    if not np.isfinite(norms).all() or norms.min() == 0:
        return SelfTest(-1.0, float("inf"), float("inf"))
    cosine = (got * expected).sum(axis=1) / np.maximum(norms * wanted, 1e-30)
    energies = selftest_energies(got.astype(np.float32))
    error = np.abs(energies - expected_energies).max() / expected_energies.max()
    return SelfTest(
        float(cosine.min()), float((np.abs(norms - wanted) / wanted).max()), float(error)
    )


def read_selftest(bundle: Bundle) -> tuple[NDArray[np.uint8], Floats, Floats]:
    """Read pixels, features and energies as export wrote them; raises if they are of no use."""
    path, contract = bundle.path / "selftest.safetensors", bundle.manifest.input
    data = bundle.read(bundle.file("selftest.safetensors"))
    tensors = read_tensors(data, f"{path} is not a self-test")
    patches = contract.rows * contract.cols
    wanted: dict[str, tuple[type, tuple[int, ...]]] = {
        "pixels": (np.uint8, (1, contract.height, contract.width, 3)),
        "features": (np.float32, (patches, contract.dim)),
        "energies": (np.float32, (patches // 2,)),
    }
    for name, (dtype, shape) in wanted.items():
        found = tensors.get(name)
        if found is None or found.shape != shape or found.dtype != dtype:
            raise BundleError(
                f"{path} holds no {name} of type {np.dtype(dtype)} and shape {shape}",
                hint="export it again",
            )
    features, energies = tensors["features"], tensors["energies"]
    # With NaN or a largest energy of zero, the test below would always pass.
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    usable = norms.min() > 0 and norms.max() <= np.finfo(np.float32).max
    if not (usable and np.isfinite(energies).all() and (energies > 0).any()):
        raise BundleError(
            f"{path} expects features or energies that are zero, NaN or infinite",
            hint="export it again",
        )
    return tensors["pixels"], features, energies


def selftest_energies(features: NDArray[np.float32]) -> NDArray[np.floating]:
    """Score the odd patches against the even ones, so that a picture is its own bank."""
    bank, _ = References.of(features[0::2])
    return open_scorer("reference", bank, Parameters()).score(features[1::2]).energy


def _check_limits(bundle: Bundle, engine: Engine, result: SelfTest) -> None:
    precision: str = bundle.manifest.backbone.precision
    if computed_in(engine) == "bf16":
        precision = CPU_BF16
    min_cosine, norm_limit = LIMITS[precision]
    passed = (
        result.min_cosine >= min_cosine
        and result.norm_error <= norm_limit
        and result.energy_error <= ENERGY_LIMIT[precision]
    )
    if not passed:
        raise FeatureParityError(
            f"{engine.name} computes other features {_how(precision)}than torch did at export: "
            f"worst cosine {result.min_cosine:.5f} (limit {min_cosine}), "
            f"norm off by {result.norm_error:.2%} "
            f"(limit {norm_limit:.2%}), energies off by {result.energy_error:.2%} "
            f"(limit {ENERGY_LIMIT[precision]:.0%})",
            hint=_WITHOUT_BF16 if precision == CPU_BF16 else _OTHER_ENGINE,
        )


_OTHER_ENGINE = "do not inspect with this combination: use another engine, or export again"
_WITHOUT_BF16 = "do not inspect in BF16 here: use `cpu_precision='fp32'`"


def _how(precision: str) -> str:
    return "in BF16 here " if precision == CPU_BF16 else "here "
