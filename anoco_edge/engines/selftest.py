"""The self-test of a bundle: does this engine on this machine compute what torch computed?

It runs on the first load on a device and is remembered in the user's cache, keyed by the graph's
hash and the engine's fingerprint. A backbone that fails it refuses to serve.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.engines import Engine
from anoco_edge.errors import BundleError, ParityError
from anoco_edge.machine import cache_folder
from anoco_edge.scoring import Parameters, References, open_scorer
from anoco_edge.scoring.types import Floats
from anoco_edge.storage.atomic_files import write_atomic
from anoco_edge.storage.hashes import sha256_bytes

# Limits by precision of the graph: worst cosine of a patch, worst relative error of its norm.
LIMITS = {"fp32": (0.9999, 1e-3), "fp16": (0.999, 1e-2), "int8": (0.97, 5e-2)}
# Energies are compared where they are large: relative to the largest one.
ENERGY_LIMIT = {"fp32": 1e-2, "fp16": 5e-2, "int8": 0.25}


@dataclass(frozen=True)
class SelfTest:
    """What the self-test measured."""

    min_cosine: float
    norm_error: float
    energy_error: float
    remembered: bool = False


def check_engine(bundle: Bundle, engine: Engine, *, force: bool = False) -> SelfTest:
    """Run the self-test, or recall that it passed here; raises ParityError when it fails."""
    record = bundle.file("selftest.safetensors")
    key = f"{bundle.graph_identity()}|{record.sha256}|{engine.fingerprint}"
    remembered = cache_folder() / "selftest" / f"{sha256_bytes(key.encode())}.json"
    if not force and remembered.is_file():
        try:
            return SelfTest(**{**json.loads(remembered.read_bytes()), "remembered": True})
        except (OSError, ValueError, TypeError):
            pass  # an unreadable memory is no memory: test again
    result = measure(bundle, engine)
    _judge(bundle, engine, result)
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(remembered, json.dumps(asdict(result)).encode())
    except OSError:
        pass  # nowhere to remember it: the test runs again next time
    return result


def measure(bundle: Bundle, engine: Engine) -> SelfTest:
    """Compare features and energies with those stored at export."""
    pixels, features, expected_energies = _stored(bundle)
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


def _stored(bundle: Bundle) -> tuple[NDArray[np.uint8], Floats, Floats]:
    """Pixels, features and energies as export wrote them; what cannot be compared is refused."""
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
    # NaN compares with nothing and nothing exceeds a zero scale: such a test would always pass.
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    usable = norms.min() > 0 and norms.max() <= np.finfo(np.float32).max
    if not (usable and np.isfinite(energies).all() and (energies > 0).any()):
        raise BundleError(f"{path} expects features or energies that mean nothing")
    return tensors["pixels"], features, energies


def selftest_energies(features: NDArray[np.float32]) -> NDArray[np.floating]:
    """Odd patches scored against even ones: a bank that every picture brings along."""
    bank, _ = References.of(features[0::2])
    return open_scorer("reference", bank, Parameters()).score(features[1::2]).energy


def _judge(bundle: Bundle, engine: Engine, result: SelfTest) -> None:
    precision = bundle.manifest.backbone.precision
    min_cosine, norm_limit = LIMITS[precision]
    passed = (
        result.min_cosine >= min_cosine
        and result.norm_error <= norm_limit
        and result.energy_error <= ENERGY_LIMIT[precision]
    )
    if not passed:
        raise ParityError(
            f"{engine.name} computes other features here than torch did at export: worst cosine "
            f"{result.min_cosine:.5f} (limit {min_cosine}), norm off by {result.norm_error:.2%} "
            f"(limit {norm_limit:.2%}), energies off by {result.energy_error:.2%} "
            f"(limit {ENERGY_LIMIT[precision]:.0%})",
            hint="do not inspect with this combination: use another engine, or export again",
        )
