"""Defines what "equal to the reference" means (DESIGN section 3) for the tests of all scorers."""

from __future__ import annotations

import numpy as np

from anoco_edge.scoring import Metric, Scores
from anoco_edge.scoring.types import Floats

EPS = 2e-6
"""Decisions closer than this may go either way in float32."""

RELATIVE, ABSOLUTE = 1e-4, 1e-9

# With floor 0 the weight of an edge is s itself, which float32 holds to 1e-7 absolute. E grows with
# the fourth power of the weight where lambda is large, so 1e-4 of E needs an s over 5e-3.
WEAK = 5e-3


def assert_agrees(
    got: Scores,
    expected: Scores,
    query: Floats,
    *,
    metric: Metric,
    floor: float = 0.05,
    eps: float = EPS,
    max_undecided: float = 0.0,
    reach: Floats | None = None,
) -> float:
    """Compare a scorer with the reference; print and return the share of undecided rows.

    `reach` is |f~ - q| of each row. Give it where references are much longer than queries: f~ is
    then as long as they are, and the rounding error of float32 follows the length of the sum, not
    that of q. The scale of the absolute tolerance is max(|q|, |f~|), which is |q| for features of
    one backbone.
    """
    assert expected.margin is not None
    assert got.anchor.dtype == got.neighbors.dtype == np.int64
    for values in (got.energy, got.anchor, got.similarity, got.neighbors):
        assert values.shape == (len(query),)
    # These hold in every row, decided or not: the largest similarity does not depend on which of
    # two equal references is the anchor, and no rounding may give NaN or a negative energy.
    assert np.isfinite(got.energy).all() and (got.energy >= 0).all()
    assert (got.neighbors >= 1).all()
    np.testing.assert_allclose(got.similarity, expected.similarity, rtol=0, atol=1e-6)

    decided = expected.margin > eps
    if floor == 0:
        decided &= np.abs(expected.similarity) > WEAK
    undecided = 1 - float(decided.mean()) if len(query) else 0.0
    print(f"undecided rows: {undecided:.2%} of {len(query)}")
    assert undecided <= max_undecided

    np.testing.assert_array_equal(got.anchor[decided], expected.anchor[decided])
    np.testing.assert_array_equal(got.neighbors[decided], expected.neighbors[decided])
    allowed = RELATIVE * expected.energy + ABSOLUTE * _scale(query, metric, reach)
    difference = np.abs(got.energy - expected.energy)
    worst = int(np.argmax(np.where(decided, difference / allowed, 0))) if decided.any() else 0
    assert (difference <= allowed)[decided].all(), (
        f"row {worst}: energy {got.energy[worst]!r}, the reference says {expected.energy[worst]!r}"
    )
    return undecided


def _scale(query: Floats, metric: Metric, reach: Floats | None) -> Floats:
    """Return the scale of the absolute tolerance of each row.

    An absolute tolerance is needed because float32 holds a drift much shorter than q to
    1e-7 |q|, not to 1e-7 of itself. `product` and `l2` are squared lengths, so the scale grows
    with |q|^2. `cosine` is the same error as an angle, so its scale is 1.
    """
    if metric == "cosine":
        return np.ones(len(query))
    norms = np.linalg.norm(query.astype(np.float64), axis=1)
    if reach is not None:
        norms = np.maximum(norms, reach)  # |f~| <= |q| + reach, so within a factor 2 of |f~|
    squares: Floats = norms**2
    return squares
