"""Thinning a bank to its most different patches by greedy k-center (farthest point) selection.

All arithmetic is on whole numbers that float64 holds exactly, so a sum is the same in any order.
The selection depends on the features and the seed, and not on threads, the BLAS or the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring.types import Floats

# Euclidean on raw features, as in PatchCore. Mean image AUROC of ANoCo on five sets with two
# backbones whose norms vary, banks of 10 / 5 / 1 %: 0.9989 / 0.9991 / 0.9994; on directions alone
# (cosine) 0.9989 / 0.9973 / 0.9940; random patches 0.9993 / 0.9992 / 0.9987. After a LayerNorm
# all norms are equal, and so are the two distances.

# Signs in 128 dimensions keep a distance within 1 / sqrt(2 * 128) = 6 % (one standard deviation).
DIMS = 128
# Bits of a coordinate. 128 squared differences of 15 bits sum to 37: far from float64's 53, and
# the step is at most 1 / 16384 of the reach, which is negligible beside the 6 % of the projection.
BITS = 14
BLOCK = 1024  # patches in float64 at a time
CENTERS = 128  # selected patches that a block is compared with at a time
ACTIVE = 1 << 15  # patches in a round, at most; in float64 they take 32 MB
TAKEN = -1.0  # the distance of a selected patch: below every other distance
MOST_REPORTS = 200

Points = NDArray[np.int16]
Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class CoresetSelection:
    """The patches that a thinned bank keeps."""

    rows: Rows
    """Ascending indices into the features."""
    duplicates: int
    """How many patches were left out first because an earlier patch has the same bytes."""
    radius: float
    """The largest distance from a patch that was left out to the nearest selected patch, measured
    in the projection in units of the features. It is 0 when only duplicates were left out."""


def thin(
    features: Floats,
    max_patches: int,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CoresetSelection:
    """Select the `max_patches` patches that differ most from each other.

    The seed draws the first patch. Each next one is the patch farthest from those selected so far,
    the one of lowest index on a tie. Patches of more than DIMS numbers are compared after a
    projection to DIMS dimensions, whose signs the seed draws too. Distances are Euclidean, on raw
    features.

    `features` may be a memory map, because it is read in blocks. For N patches of d numbers this
    takes at most N * (2 * min(d, DIMS) + 48) bytes, and 64 MB for blocks. `progress` is called at
    most MOST_REPORTS times, with the number of patches selected so far and the number of all that
    will be.

    >>> features = np.array([[0.0, 0.0], [0.125, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 3.0]])
    >>> thin(features, 3)
    CoresetSelection(rows=array([1, 2, 3]), duplicates=1, radius=0.125)
    """
    _check(features, max_patches, seed)
    low, high = _range(features)
    unique = unique_rows(features)
    duplicates = len(features) - len(unique)
    if max_patches >= len(unique):
        progress(len(unique), len(unique))
        return CoresetSelection(unique, duplicates, 0.0)
    rng = np.random.default_rng(seed)
    first = int(rng.integers(len(unique)))
    points, unit = _points(features, unique, low, high, rng)
    chosen, squared = _farthest(points, first, max_patches, progress)
    progress(max_patches, max_patches)
    chosen.sort()
    return CoresetSelection(unique[chosen], duplicates, float(np.sqrt(squared)) * unit)


def _check(features: Floats, max_patches: int, seed: int) -> None:
    if max_patches < 1:
        raise UsageError(f"max_patches is {max_patches}", hint="keep at least one patch")
    if seed < 0:
        raise UsageError(f"seed is {seed}", hint="use 0 or a positive whole number")
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating) or not features.size:
        raise ScoringError(
            f"the features to thin are {features.dtype} of shape {features.shape}",
            hint="pass floating-point numbers, one row a patch",
        )


def unique_rows(features: Floats) -> Rows:
    """Return the indices of all rows, without rows whose bytes are those of an earlier row.

    >>> unique_rows(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    array([0, 1])
    """
    keys = np.empty(len(features), np.int64)
    for start in range(0, len(features), BLOCK):
        whole = _bytes(features[start : start + BLOCK])
        keys[start : start + BLOCK] = [hash(row) for row in whole.tolist()]
    order = np.argsort(keys, kind="stable")  # of equal rows the lowest index comes first
    keys = keys[order]
    begins = np.r_[True, keys[1:] != keys[:-1]]
    followers = np.flatnonzero(~begins)
    leaders = order[np.flatnonzero(begins)[np.cumsum(begins)[followers] - 1]]
    followers = order[followers]
    keep = np.ones(len(features), np.bool_)
    for start in range(0, len(followers), BLOCK):  # rows may share a hash by chance
        a, b = followers[start : start + BLOCK], leaders[start : start + BLOCK]
        keep[a] = _bytes(features[a]) != _bytes(features[b])
    return np.flatnonzero(keep)


def _bytes(block: Floats) -> NDArray[np.void]:
    """View each row as one value of raw bytes."""
    block = np.ascontiguousarray(block)
    return block.view(np.dtype((np.void, block.itemsize * block.shape[1]))).ravel()


def _points(
    features: Floats, rows: Rows, low: Numbers, high: Numbers, rng: np.random.Generator
) -> tuple[Points, float]:
    """Convert the rows to whole numbers, projected if they are long; also returns the length of
    one unit.

    Scales are powers of two, so features that are whole numbers below 2**BITS stay exact.
    """
    dim = features.shape[1]
    middle = low / 2 + high / 2  # leaves distances alone and makes the largest value smallest
    # A sum of `dim` such numbers has 52 bits, and a float32 loses next to nothing.
    fine = 52 - dim.bit_length() - _exponent(float((high / 2 - low / 2).max()))
    signs = rng.integers(0, 2, (dim, DIMS)) * 2.0 - 1 if dim > DIMS else None

    def project(start: int) -> Numbers:
        block = features[rows[start : start + BLOCK]].astype(np.float64)
        block -= middle
        whole: Numbers = np.rint(np.ldexp(block, fine))
        return whole if signs is None else whole @ signs

    starts = range(0, len(rows), BLOCK)
    coarse = BITS - _exponent(max(float(np.abs(project(start)).max()) for start in starts))
    points = np.empty((len(rows), min(dim, DIMS)), np.int16)
    for start in starts:
        points[start : start + BLOCK] = np.rint(np.ldexp(project(start), coarse))
    unit = float(np.ldexp(1.0, -fine - coarse))
    return points, unit if signs is None else unit / DIMS**0.5


def _exponent(value: float) -> int:
    """The smallest e with value < 2**e."""
    return int(np.frexp(value)[1])


def _range(features: Floats) -> tuple[Numbers, Numbers]:
    """Find the least and the greatest value of each column; NaN and infinity are errors."""
    low = np.full(features.shape[1], np.inf)
    high = -low
    for start in range(0, len(features), BLOCK):
        block = features[start : start + BLOCK]
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            raise ScoringError(
                f"reference patch {start + int(np.argmin(finite))} contains NaN or infinity",
                hint="check the backbone and its input",
            )
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    return low, high


def _farthest(
    points: Points, first: int, count: int, progress: Callable[[int, int], None]
) -> tuple[Rows, float]:
    """Select `count` points; also returns the squared distance of the farthest point left out.

    The points are returned in the order of selection. They are the same as when the distance of
    every point is updated at every step, with less work: distances only shrink, so an old distance
    is an upper bound. A round takes the points with the largest bounds, and goes on until one of
    the others could be as far. Points that are early near to a selected one are hardly visited
    again, and most of the work becomes matrix products.
    """
    chosen = np.empty(count, np.int64)
    chosen[0], done = first, 1
    nearest = np.full(len(points), np.inf)
    nearest[first] = TAKEN
    seen = np.zeros(len(points), np.int32)  # how many selected points `nearest` accounts for
    limit = min(ACTIVE, -(-len(points) // 8))  # 1/4 to 1/16 take about as long
    every = -(-count // MOST_REPORTS)
    while True:
        rows, level, edge = _largest(nearest, limit)
        _catch_up(points, rows, chosen[:done], nearest, seen, level)
        rows = rows[nearest[rows] >= level]
        active = points[rows].astype(np.float64)
        norms = _squares(active)
        bound = nearest[rows]
        distance = np.empty_like(bound)
        while rows.size:
            at = int(np.argmax(bound))
            if bound[at] < level or (bound[at] == level and rows[at] > edge):
                break
            if done == count:
                return chosen, float(bound[at])
            chosen[done] = rows[at]
            done += 1
            if done % every == 0 and done < count:
                progress(done, count)
            np.dot(active, -2 * active[at], out=distance)
            distance += norms
            distance += norms[at]
            np.minimum(bound, distance, out=bound)
            bound[at] = TAKEN
        nearest[rows] = bound
        seen[rows] = done


def _largest(nearest: Numbers, limit: int) -> tuple[Rows, float, int]:
    """Find the `limit` rows with the largest bounds, in ascending order.

    Also returns `level` and `edge`: the rows left out have a bound below `level`, or equal to it
    and an index above `edge`.
    """
    level = float(np.partition(nearest, -limit)[-limit])
    rows = np.flatnonzero(nearest >= level)
    if len(rows) <= limit:
        return rows, level, len(nearest)
    tied = nearest[rows] == level
    over = len(rows) - int(tied.sum())
    edge = int(rows[tied][limit - over - 1])
    return rows[~tied | (rows <= edge)], level, edge


def _catch_up(
    points: Points,
    rows: Rows,
    chosen: Rows,
    nearest: Numbers,
    seen: NDArray[np.int32],
    level: float,
) -> None:
    """Update `nearest` of these rows with the points selected since, or until it is below `level`:
    such a row is not the farthest in this round."""
    rows = rows[seen[rows] < len(chosen)]
    rows = rows[np.argsort(seen[rows], kind="stable")]  # a block has about the same to catch up
    for start in range(0, len(rows), BLOCK):
        left = rows[start : start + BLOCK]
        block = points[left].astype(np.float64)
        norms = _squares(block)
        for begin in range(int(seen[left[0]]), len(chosen), CENTERS):
            centers = points[chosen[begin : begin + CENTERS]].astype(np.float64)
            product = block @ (-2 * centers).T
            product += _squares(centers)
            nearest[left] = np.minimum(nearest[left], product.min(axis=1) + norms)
            seen[left] = min(begin + CENTERS, len(chosen))
            still = nearest[left] >= level
            left, block, norms = left[still], block[still], norms[still]
            if not left.size:
                break


def _squares(block: Numbers) -> Numbers:
    squares: Numbers = np.einsum("ij,ij->i", block, block)
    return squares
