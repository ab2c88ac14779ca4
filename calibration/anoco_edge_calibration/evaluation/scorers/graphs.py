"""Scorers on other graphs of patches, which the paper's ablations and supplement compare with.

All use ANoCo's weights w = max(s, floor) alpha (Eq. 2) and energy (Eq. 10). The first two scorers
connect each query to the most similar 5 % of the bank instead of N(i).

`knn-bipartite`      ANoCo's closed form (Eq. 9) on those neighbors.
`knn-nonbipartite`   see `nonbipartite.py`.
`message-passing`    on ANoCo's own graph, see `MessagePassing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import missing
from anoco_edge.scoring.types import Floats, Parameters, Scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import Edges, NeighborCache

Matrix = NDArray[np.float64]
Sparse = Any  # a scipy.sparse.csr_matrix; scipy is imported late
MOST_ROUNDS = 5  # as in the paper


class GraphScorer:
    """What these scorers share: a bank, ANoCo's parameters, and scipy."""

    def __init__(self, cache: NeighborCache, parameters: Parameters) -> None:
        csr_matrix()  # raises here, and not at every picture, where scipy is missing
        self._cache = cache
        self._parameters = parameters


class KnnBipartite(GraphScorer):
    """ANoCo's energy on the most similar 5 % of the bank."""

    name = "knn-bipartite"

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        edges = self._cache.retrieved(query)
        q, r = query.astype(np.float64), float64_features(self._cache)
        weights = weigh(edges, q, r, self._parameters.floor)
        lam, degree = self._parameters.lam, row_sums(weights)[:, None]
        pulled = weights @ r
        drift = (pulled - degree * q) / (lam + degree)
        moved = (lam * q + pulled) / (lam + degree)
        return graph_scores(q, drift, moved, edges, self._parameters.metric)


class MessagePassing(GraphScorer):
    """Propagates features along the edges of ANoCo's graph for some rounds, then applies Eq. 10.

    The paper says that the weights are ANoCo's and that nothing is trained, but not what a round
    computes. Here a round is a graph convolution without learned weights (with the normalization of
    Kipf and Welling, whom the paper cites) on queries and references, in which lambda is the weight
    of the edge from a patch to itself:

        F <- D^-1/2 (W + lambda I) D^-1/2 F,   D the row sums of W + lambda I.

    With a normalization by rows, D^-1 (W + lambda I) F, one round would move a query to the place
    where ANoCo's closed form (Eq. 9) moves it, but the figures of the paper are far from ANoCo's.
    References that are no query's neighbor take no part, as in the paper's compact graph.
    """

    name = "message-passing"

    def __init__(self, cache: NeighborCache, parameters: Parameters, rounds: int) -> None:
        super().__init__(cache, parameters)
        self._rounds = rounds

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        edges = self._cache.conforming(query)
        q = query.astype(np.float64)
        key = f"message passing {self._parameters.lam} {self._parameters.floor}"
        states = self._cache.latest(key, query, lambda: self._states(q, edges))
        moved = states[self._rounds - 1]
        return graph_scores(q, moved - q, moved, edges, self._parameters.metric)

    def _states(self, q: Matrix, edges: Edges) -> list[Matrix]:
        """Return the queries after each round, up to the last round that any scorer uses."""
        weights = weigh(edges, q, float64_features(self._cache), self._parameters.floor)
        taking_part = np.unique(edges.columns)
        return propagate(
            weights[:, taking_part],
            q,
            float64_features(self._cache)[taking_part],
            self._parameters.lam,
            max(self._rounds, MOST_ROUNDS),
        )


def propagate(weights: Sparse, q: Matrix, r: Matrix, lam: float, rounds: int) -> list[Matrix]:
    """Run `rounds` of `MessagePassing` and return the queries after each."""
    from_queries = weights.T.tocsr()
    own_q, own_r = lam + row_sums(weights)[:, None], lam + row_sums(from_queries)[:, None]
    root_q, root_r = np.sqrt(own_q), np.sqrt(own_r)
    states = []
    for _ in range(rounds):
        q, r = (
            weights @ (r / root_r) / root_q + lam / own_q * q,
            from_queries @ (q / root_q) / root_r + lam / own_r * r,
        )
        states.append(q)
    return states


def float64_features(cache: NeighborCache) -> Matrix:
    """Return the bank in float64, in which graphs are computed."""
    return cache.once("float64", lambda: cache.features.astype(np.float64))


def weigh(edges: Edges, q: Matrix, r: Matrix, floor: float) -> Sparse:
    """Return Eq. 2, w = max(s, floor) alpha of every edge, as a sparse matrix."""
    rows = np.repeat(np.arange(len(q)), edges.counts)
    q_norm = np.linalg.norm(q, axis=1)[rows]
    r_norm = np.linalg.norm(r, axis=1)[edges.columns]
    alpha = 2 * q_norm * r_norm / (q_norm + r_norm)
    weights = np.maximum(edges.weights.astype(np.float64), floor) * alpha
    return csr_matrix()((weights, edges.columns, edges.starts), shape=(len(q), len(r)))


def csr_matrix() -> Any:
    """Import scipy's class of sparse matrices."""
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise missing("scipy", "eval", "for graphs of patches") from None
    return csr_matrix


def row_sums(matrix: Sparse) -> Matrix:
    """Return the sum of each row, which is the degree of a patch."""
    sums: Matrix = np.asarray(matrix.sum(axis=1)).ravel()
    return sums


def graph_scores(q: Matrix, drift: Matrix, moved: Matrix, edges: Edges, metric: str) -> Scores:
    """Return Eq. 10 or one of its factors, with the most similar neighbor as evidence."""
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    unit = np.divide(moved, length, out=np.zeros_like(moved), where=length > 0)
    turn = ((unit - q / np.linalg.norm(q, axis=1, keepdims=True)) ** 2).sum(axis=1) / 2
    turn[length[:, 0] == 0] = 1.0  # without a direction the cosine counts as 0, as in ANoCo
    squared = (drift**2).sum(axis=1)
    energy = {"product": squared * turn, "l2": squared, "cosine": turn}[metric]
    best = np.maximum.reduceat(edges.weights, edges.starts[:-1])
    rows = np.repeat(np.arange(len(q)), edges.counts)
    first = np.flatnonzero(edges.weights == best[rows])
    first = first[np.unique(rows[first], return_index=True)[1]]
    return Scores(
        energy=energy.astype(np.float32),
        anchor=edges.columns[first],
        similarity=best,
        neighbors=edges.counts,
    )
