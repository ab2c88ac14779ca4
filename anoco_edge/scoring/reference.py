"""The specification: ANoCo in float64 NumPy, beside the equations of the paper.

Every other scorer is compared with this one. Where the paper is silent or prints something that
cannot be computed as it stands, the comment says what is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import (
    Floats,
    Parameters,
    References,
    ScorerOptions,
    Scores,
    check_query,
)

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

# f~ = (lambda q + sum w r) / (lambda + d) may cancel when a reference opposes the query. Its
# direction, and so the energy, is then rounding noise in float32. A row counts as undecided
# once less than 2 % of the summed lengths is left (2 % times this is 2e-6, float32's eps).
_CANCELLATION = 1e-4


@dataclass(frozen=True)
class Retrieval:
    """Section 3.2 for a block of queries: similarities, anchors, neighbors and margins."""

    similarity: Matrix
    anchor: NDArray[np.int64]
    neighbors: Mask
    margin: Matrix


def open_scorer(
    bank: References, parameters: Parameters, options: ScorerOptions
) -> ReferenceScorer:
    """Make a scorer for one bank; no option concerns it."""
    return ReferenceScorer(bank, parameters)


class ReferenceScorer:
    """Scores exactly in float64; it is written to be read, and slow."""

    name = "reference"

    def __init__(self, bank: References, parameters: Parameters) -> None:
        self._features = bank.features.astype(np.float64)
        self._norms = np.linalg.norm(self._features, axis=1)
        self._units = self._features / self._norms[:, None]
        self._parameters = parameters

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        check_query(query, self._features.shape[1])
        block = max(1, 4_000_000 // len(self._features))
        parts = [self._score_block(query[i : i + block]) for i in range(0, len(query), block)]
        if not parts:
            parts = [self._score_block(query)]
        return Scores(
            energy=np.concatenate([p.energy for p in parts]),
            anchor=np.concatenate([p.anchor for p in parts]),
            similarity=np.concatenate([p.similarity for p in parts]),
            neighbors=np.concatenate([p.neighbors for p in parts]),
            margin=np.concatenate([p.margin for p in parts if p.margin is not None]),
            retrieval=float(np.mean([p.retrieval for p in parts])),
        )

    def _score_block(self, query: Floats) -> Scores:
        start = time.perf_counter()
        q = query.astype(np.float64)
        norms = np.linalg.norm(q, axis=1)
        found = retrieve(q / norms[:, None], self._units)
        retrieved = time.perf_counter()
        solved = [self._conform(q[i], norms[i], found, i) for i in range(len(q))]
        condition = np.array([c for _, c in solved])
        return Scores(
            energy=np.array([e for e, _ in solved]),
            anchor=found.anchor,
            similarity=found.similarity[np.arange(len(q)), found.anchor],
            neighbors=found.neighbors.sum(axis=1),
            margin=np.minimum(found.margin, _CANCELLATION * condition),
            retrieval=(retrieved - start) / (time.perf_counter() - start),
        )

    def _conform(self, q: Matrix, norm: float, found: Retrieval, i: int) -> tuple[float, float]:
        """Eq. 2 to 10 for one query patch: its energy, and how well f~ is conditioned."""
        near = np.flatnonzero(found.neighbors[i])
        s, r, r_norm = found.similarity[i, near], self._features[near], self._norms[near]
        drift, moved = solve(q, norm, s, r, r_norm, self._parameters)
        energy = non_conformity(q, drift, moved, self._parameters.metric)
        weights = edge_weights(norm, s, r_norm, self._parameters.floor)
        lam = self._parameters.lam
        lengths = (lam * norm + weights @ r_norm) / (lam + weights.sum())
        return energy, float(np.linalg.norm(moved) / lengths)


def retrieve(query_units: Matrix, reference_units: Matrix) -> Retrieval:
    """Section 3.2 without a sort: anchors, anchor-consistent neighbors, and the margins."""
    rows = np.arange(len(query_units))
    s = query_units @ reference_units.T  # s_ij = cos(q_i, r_j)
    anchor = s.argmax(axis=1)  # the lowest index on a tie
    best = s[rows, anchor]  # s*
    a = reference_units[anchor] @ reference_units.T  # a_ij = cos(r_j*, r_j)
    consistent = a > best[:, None]
    consistent[rows, anchor] = True  # a_ij* = 1 by definition, not computed

    # The longest prefix of the descending order whose members are all consistent ends before
    # the most similar violator: t_i is its similarity, and what ties with it is left out.
    t = np.where(consistent, -np.inf, s).max(axis=1)  # Eq. 1
    neighbors = s > t[:, None]
    neighbors[rows, anchor] = True
    return Retrieval(s, anchor, neighbors, _margin(s, a, anchor, consistent, t))


def _margin(s: Matrix, a: Matrix, anchor: NDArray[np.int64], consistent: Mask, t: Matrix) -> Matrix:
    """Distance of each row's closest decision from going the other way."""
    rows = np.arange(len(s))
    best = s[rows, anchor]
    others = s.copy()
    others[rows, anchor] = -np.inf
    runner_up = best - others.max(axis=1, initial=-np.inf)

    decides = s >= t[:, None]  # only these can shorten or lengthen the prefix
    decides[rows, anchor] = False
    consistency = np.where(decides, np.abs(a - best[:, None]), np.inf).min(axis=1)

    # A consistent reference near the first violator, on either side of it, may change sides.
    consistent = consistent.copy()
    consistent[rows, anchor] = False
    with np.errstate(invalid="ignore"):  # no violator: t is -inf and nothing can change sides
        order = np.where(consistent, np.abs(s - t[:, None]), np.inf).min(axis=1)
    margin: Matrix = np.minimum(np.minimum(runner_up, consistency), order)
    return margin


def edge_weights(q_norm: float, s: Matrix, r_norm: Matrix, floor: float) -> Matrix:
    """Eq. 2, w_ij = s_ij alpha_ij over the neighbors.

    The floor under s is ours: without it a patch that resembles nothing is pulled by nothing
    and scores as good, and a negative cosine gives a negative weight.
    """
    alpha = 2 * q_norm * r_norm / (q_norm + r_norm)
    weights: Matrix = np.maximum(s, floor) * alpha
    return weights


def solve(
    q: Matrix, q_norm: float, s: Matrix, r: Matrix, r_norm: Matrix, parameters: Parameters
) -> tuple[Matrix, Matrix]:
    """Eq. 9 for one patch: the drift f~ - q, and f~ itself.

    Written as differences the drift does not cancel; written as a mean, f~ does not.
    """
    w = edge_weights(q_norm, s, r_norm, parameters.floor)
    stiffness = parameters.lam + w.sum()
    return w @ (r - q) / stiffness, (parameters.lam * q + w @ r) / stiffness


def non_conformity(q: Matrix, drift: Matrix, moved: Matrix, metric: str) -> float:
    """Eq. 10, E = |drift|^2 (1 - cos(f~, q)), or one of its factors.

    1 - cos(u, v) = | u/|u| - v/|v| |^2 / 2 keeps its digits for small angles. An f~ of length
    zero has no direction; its cosine is taken as 0.
    """
    length = np.linalg.norm(moved)
    turn = 1.0 if length == 0 else ((moved / length - q / np.linalg.norm(q)) ** 2).sum() / 2
    factors = {"product": (drift @ drift) * turn, "l2": drift @ drift, "cosine": turn}
    return float(factors[metric])
