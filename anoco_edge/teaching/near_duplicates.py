"""Leaving out patches of turned views that hardly differ from another patch of their picture.

Eight angles of a picture repeat much of it: half of their patches lie within 30 % of another one
in the features of a convolutional network. The bank without them finds the same defects in half
the time.

Distances are computed in float64 from the features as they are stored. Its rounding is far below
any distance between two patches, so the same features leave out the same patches on any machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.scoring.types import Floats

Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64]

MERGE_DISTANCE = 0.3
"""The distance of new products, as a share of the norm of a patch."""

BLOCK = 1024  # patches in float64 at a time


def without_near_duplicates(features: Floats, fixed: Flags, distance: float) -> Flags:
    """Tell which rows stay: those in `fixed`, and each other one that no row that stays is near.

    A row is near another if their Euclidean distance is at most `distance` times its own norm. Rows
    are taken in their order. So every row that is left out has one that stays nearby, and two rows
    that stay are near each other only where one of them is fixed.

    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [0.3, 1.0]])
    >>> without_near_duplicates(rows, np.array([1, 1, 0, 0, 0], np.bool_), 0.15).tolist()
    [True, True, False, True, False]
    """
    stays = fixed.copy()
    known = [_Block.of(features[some]) for some in _blocks(np.flatnonzero(fixed))]
    for rows in _blocks(np.flatnonzero(~fixed)):
        block = _Block.of(features[rows])
        reach = distance**2 * block.squares
        far = np.arange(len(rows))
        for other in known:
            far = far[block.squared_distances(far, other).min(axis=1) > reach[far]]
            if not far.size:
                break
        taken = far[_greedy(block.squared_distances(far, block)[:, far], reach[far])]
        stays[rows[taken]] = True
        if taken.size:
            known.append(_Block(block.rows[taken], block.squares[taken]))
    return stays


def _blocks(rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]


def _greedy(squared: Numbers, reach: Numbers) -> Flags:
    """Take the rows in their order, without those that an earlier one that was taken is near."""
    taken = np.ones(len(reach), np.bool_)
    for row in range(len(reach)):
        if taken[row]:
            taken[row + 1 :] &= squared[row + 1 :, row] > reach[row + 1 :]
    return taken


class _Block:
    """Some rows in float64, with their squared norms."""

    def __init__(self, rows: Numbers, squares: Numbers) -> None:
        self.rows = rows
        self.squares = squares

    @staticmethod
    def of(features: Floats) -> _Block:
        rows = features.astype(np.float64)
        return _Block(rows, np.einsum("ij,ij->i", rows, rows))

    def squared_distances(self, some: NDArray[np.intp], other: _Block) -> Numbers:
        squared = self.rows[some] @ (-2 * other.rows.T)
        squared += other.squares
        squared += self.squares[some, None]
        return squared
