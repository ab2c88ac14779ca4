"""`knn-nonbipartite`: the paper's ablation with edges among queries and among references.

Edges have ANoCo's weights (Eq. 2). They connect a query with the most similar 5 % of the bank, a
query with the most similar 5 % of the other queries of its picture, and a reference with the most
similar 5 % of the other references (either may choose the other). All features move:

    minimise  sum over edges w |f~_u - f~_v|^2  +  sum over nodes Lambda_v |f~_v - f_v|^2,
    that is   (L + Lambda) F~ = Lambda F,

with Lambda = lambda for queries. For references the paper mentions "strong penalties" without a
number. If they were frozen, edges between them would change nothing. Here their penalty is ten
times the sum of their own weights, so that a reference moves at most a tenth of the way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring.types import Floats, Parameters, Scores
from anoco_edge_calibration.evaluation.scorers.graphs import (
    GraphScorer,
    Matrix,
    Sparse,
    float64_features,
    graph_scores,
    row_sums,
    weigh,
)
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import (
    NeighborCache,
    most_similar,
    share_of,
)
from anoco_edge_calibration.evaluation.scorers.search import Rows, unit_rows

STRENGTH = 10.0
MOST_EDGES = 30_000_000  # between references; they take 0.4 GB, and a picture takes seconds
TOLERANCE = 1e-6  # of the residual, relative to the right-hand side
_MOST_STEPS = 500


class KnnNonBipartite(GraphScorer):
    """ANoCo's energy of the queries after the whole system is solved."""

    name = "knn-nonbipartite"

    def __init__(self, cache: NeighborCache, parameters: Parameters) -> None:
        super().__init__(cache, parameters)
        edges = len(cache.features) * share_of(max(len(cache.features) - 1, 0))
        if edges > MOST_EDGES:
            raise UsageError(
                f"knn-nonbipartite would connect {len(cache.features)} references by {edges} edges",
                hint="thin the bank to 20000 patches, or leave this scorer out",
            )

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`, the patches of one picture."""
        floor = self._parameters.floor
        edges = self._cache.retrieved(query)
        q, r = query.astype(np.float64), float64_features(self._cache)
        across = weigh(edges, q, r, floor)
        among_queries = self._cache.latest(f"own {floor}", query, lambda: own_edges(q, floor))
        among_references = self._cache.once(f"own {floor}", lambda: own_edges(r, floor))
        drift = solve_drift(across, among_queries, among_references, q, r, self._parameters.lam)
        return graph_scores(q, drift, q + drift, edges, self._parameters.metric)


def own_edges(features: Matrix, floor: float) -> Sparse:
    """Return the symmetric edges between patches of one kind, without edges to themselves."""
    units = unit_rows(features)
    k = share_of(len(features) - 1)
    edges = most_similar(units, units, k, same=True)
    weights = weigh(edges, features, features, floor)
    return weights.maximum(weights.T).tocsr()


def solve_drift(
    across: Sparse,
    among_queries: Sparse,
    among_references: Sparse,
    q: Matrix,
    r: Matrix,
    lam: float,
) -> Matrix:
    """Return the drift F~ - F of the queries from (L + Lambda) drift = -L F, without cancellation.

    Conjugate gradients solve it for all numbers of a patch at once. The matrix is symmetric and
    diagonally dominant; with its diagonal as preconditioner seven steps were enough on real
    features. They run in float32, of which the drift keeps six digits.
    """
    across, among_queries, among_references = (
        matrix.astype(np.float32) for matrix in (across, among_queries, among_references)
    )
    back = across.T.tocsr()
    degree_q = row_sums(across) + row_sums(among_queries)
    degree_r = row_sums(back) + row_sums(among_references)
    degree = np.concatenate([degree_q, degree_r]).astype(np.float32)[:, None]
    diagonal = np.concatenate([lam + degree_q, (1 + STRENGTH) * degree_r]).astype(np.float32)[
        :, None
    ]
    # A reference without edges does not move; its row must not divide by zero.
    diagonal[diagonal == 0] = 1.0
    count = len(q)

    def pull(nodes: Rows) -> Rows:
        queries, references = nodes[:count], nodes[count:]
        return np.concatenate(
            [
                across @ references + among_queries @ queries,
                back @ queries + among_references @ references,
            ]
        )

    features = np.concatenate([q, r]).astype(np.float32)
    residual = pull(features) - degree * features
    solved = _conjugate_gradients(lambda x: diagonal * x - pull(x), residual, diagonal)
    return solved[:count].astype(np.float64)


def _conjugate_gradients(multiply: Callable[[Rows], Rows], residual: Rows, diagonal: Rows) -> Rows:
    """Return the solution for each column of the right-hand side, which is `residual`."""
    enough = TOLERANCE * np.linalg.norm(residual, axis=0)
    solution = np.zeros_like(residual)
    scaled = residual / diagonal
    direction = scaled.copy()
    product = np.einsum("ij,ij->j", residual, scaled)
    for _ in range(_MOST_STEPS):
        open_ = np.linalg.norm(residual, axis=0) > enough
        if not open_.any():
            return solution
        image = multiply(direction)
        curvature = np.einsum("ij,ij->j", direction, image)
        step = np.where(open_, product / np.where(open_, curvature, 1), 0)
        solution += step * direction
        residual -= step * image
        scaled = residual / diagonal
        before, product = product, np.einsum("ij,ij->j", residual, scaled)
        direction = scaled + np.where(open_, product / np.where(open_, before, 1), 0) * direction
    raise ScoringError("the graph of knn-nonbipartite cannot be solved", hint="check the features")
