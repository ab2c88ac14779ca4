"""The plain values that scorers take and return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring.device_array import DeviceArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Metric: TypeAlias = Literal["product", "l2", "cosine"]
METRICS: tuple[str, ...] = get_args(Metric)

# Outside this range the squares of norms do not fit in float32, so no scorer takes them. A zero
# norm is below it: such a patch has no direction, hence no similarity to anything.
NORM_RANGE = (1e-10, 1e10)
LAMBDA_RANGE = (1e-24, 1e24)  # the product lambda q must fit in float32, too


@dataclass(frozen=True)
class Parameters:
    """The settings of the method that a product records."""

    lam: float = 1.0
    metric: Metric = "product"
    floor: float = 0.05

    def __post_init__(self) -> None:
        low, high = LAMBDA_RANGE
        if not low <= self.lam <= high:
            raise UsageError(
                f"lambda is {self.lam}", hint=f"it must be a number from {low:g} to {high:g}"
            )
        if self.metric not in METRICS:
            raise UsageError(f"unknown metric {self.metric!r}", hint=f"use {', '.join(METRICS)}")
        if not 0 <= self.floor < 1:
            raise UsageError(f"floor is {self.floor}", hint="it must lie in [0, 1)")


@dataclass(frozen=True)
class ScorerOptions:
    """How a scorer runs; each one uses what concerns it.

    `threads` is their number; 0 uses all cores. `memory_mb` limits what is taken beside the bank;
    None leaves it to the scorer. `half` says that queries are computed in FP16. `once` says that
    one picture will be scored, so that nothing is prepared that pays only for many.
    """

    threads: int = 0
    memory_mb: int | None = None
    half: bool = False
    once: bool = False


@dataclass(frozen=True)
class Scores:
    """What a scorer found for each query patch; every array has length N_q."""

    energy: Floats
    anchor: NDArray[np.int64]
    similarity: Floats
    neighbors: NDArray[np.int64]
    margin: Floats | None = None
    """How far the row's closest decision is from flipping; only the reference computes it."""
    retrieval: float = 0.0
    """The share of the time that anchors and neighbors took, as the paper splits it."""
    picture: float | None = None
    """The score of the whole picture, where the scorer has a rule of its own (PatchCore has); None
    if energies are pooled."""


class Scorer(Protocol):
    """Scores query patches against the one bank it was made for."""

    name: str

    def score(self, query: Floats) -> Scores: ...


@runtime_checkable
class DeviceScorer(Scorer, Protocol):
    """A scorer that also reads queries that lie on a GPU."""

    def score(self, query: Floats | DeviceArray) -> Scores: ...

    def score_rows(self, query: Floats | DeviceArray, rows: NDArray[np.int64]) -> Scores: ...

    def device_mb(self) -> float: ...


@dataclass(frozen=True)
class References:
    """A bank to score against: all numbers are finite, and no patch has a zero norm."""

    features: Floats
    norms: NDArray[np.float32]

    @property
    def median_norm(self) -> float:
        """The norm in the middle; of an even number of patches, the mean of the middle two."""
        return float(np.median(self.norms.astype(np.float64)))

    @staticmethod
    def of(features: Floats) -> tuple[References, NDArray[np.int64]]:
        """Check raw features and drop zero-norm patches. Also returns which rows are kept.

        >>> bank, kept = References.of(np.array([[0.0, 0.0], [3.0, 4.0]]))
        >>> bank.norms.tolist(), kept.tolist()
        ([5.0], [1])
        """
        norms = finite_norms(features, "reference")
        kept = np.flatnonzero(norms > 0)
        if kept.size == 0:
            raise ScoringError(
                "there is no reference patch to score against", hint="enroll at least one good part"
            )
        if kept.size < len(norms):
            features, norms = features[kept], norms[kept]
        _check_norms(norms, "reference")
        return References(features, norms.astype(np.float32)), kept


def check_query(query: Floats, dim: int) -> None:
    """Raise unless every query patch can be scored."""
    if query.ndim != 2 or query.shape[1] != dim:
        raise ScoringError(
            f"query features have shape {query.shape}, the bank has {dim} features per patch",
            hint="query and bank must come from the same backbone",
        )
    _check_norms(finite_norms(query, "query"), "query")


def finite_norms(features: Floats, what: str) -> NDArray[np.float64]:
    """Compute the Euclidean norms of the rows in float64; NaN and infinity are errors."""
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
        raise ScoringError(
            f"{what} features are {features.dtype} of shape {features.shape}",
            hint="pass floating-point numbers, one row per patch",
        )
    squares = np.empty(len(features))
    for start in range(0, len(features), 1024):  # so that float64 temporaries stay small
        block = features[start : start + 1024].astype(np.float64)
        np.einsum("ij,ij->i", block, block, out=squares[start : start + 1024])
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise ScoringError(
            f"{what} patch {row} contains NaN or infinity", hint="check the backbone and its input"
        )
    return np.sqrt(squares)


def _check_norms(norms: NDArray[np.float64], what: str) -> None:
    low, high = NORM_RANGE
    bad = np.flatnonzero((norms < low) | (norms > high))
    if bad.size:
        value = norms[bad[0]]
        kind = "a zero norm" if value == 0 else f"norm {value:.3g}, outside {low:g} to {high:g}"
        raise ScoringError(
            f"{what} patch {bad[0]} has {kind}, so it cannot be scored",
            hint="scale the features, or check the backbone and its input",
        )
