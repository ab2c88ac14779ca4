"""Thinning a bank to its most different patches: greedy k-centre (farthest point) selection.

All arithmetic is on whole numbers that float64 holds exactly, so sums come out the same in any
order: the choice depends on features and seed, not on threads, the BLAS or the machine.
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
# the step is at most 1 / 16384 of the reach, nothing beside the 6 % of the projection.
BITS = 14
BLOCK = 1024  # patches in float64 at a time
CENTRES = 128  # chosen patches that a block is compared with at a time
ACTIVE = 1 << 15  # patches in a round, at most; in float64 they take 32 MB
TAKEN = -1.0  # below every distance
MOST_REPORTS = 200

Points = NDArray[np.int16]
Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """Which patches stay."""

    rows: Rows
    """Ascending indices into the features."""
    duplicates: int
    """Patches that were left out first, because an earlier one has the same bytes."""
    radius: float
    """No patch left out is farther than this from the nearest chosen one, as the projection sees
    it (in units of the features); 0 when only duplicates were left out."""


def thin(
    features: Floats,
    max_patches: int,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Chosen:
    """Choose the `max_patches` patches that differ most from each other.

    The first is drawn by the seed; each next one is the patch farthest from those chosen so far,
    the lowest index on a tie. Patches of more than DIMS numbers are compared after a projection
    to DIMS dimensions, whose signs the seed draws too. Distances are Euclidean, on raw features.

    `features` may be a memory map, it is read in blocks. For N patches of d numbers this takes at
    most N * (2 * min(d, DIMS) + 48) bytes, and 64 MB for blocks. `progress` is told how many
    patches are chosen and how many will be, at most MOST_REPORTS times.

    >>> features = np.array([[0.0, 0.0], [0.125, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 3.0]])
    >>> thin(features, 3)
    Chosen(rows=array([1, 2, 3]), duplicates=1, radius=0.125)
    """
    _check(features, max_patches, seed)
    low, high = _range(features)
    unique = _unique(features)
    duplicates = len(features) - len(unique)
    if max_patches >= len(unique):
        progress(len(unique), len(unique))
        return Chosen(unique, duplicates, 0.0)
    rng = np.random.default_rng(seed)
    first = int(rng.integers(len(unique)))
    points, unit = _points(features, unique, low, high, rng)
    chosen, squared = _farthest(points, first, max_patches, progress)
    progress(max_patches, max_patches)
    chosen.sort()
    return Chosen(unique[chosen], duplicates, float(np.sqrt(squared)) * unit)


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


def _unique(features: Floats) -> Rows:
    """The rows without those whose bytes an earlier row has, too."""
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
    for start in range(0, len(followers), BLOCK):  # equal hashes may be chance, so look
        a, b = followers[start : start + BLOCK], leaders[start : start + BLOCK]
        keep[a] = _bytes(features[a]) != _bytes(features[b])
    return np.flatnonzero(keep)


def _bytes(block: Floats) -> NDArray[np.void]:
    """Each row as one value."""
    block = np.ascontiguousarray(block)
    return block.view(np.dtype((np.void, block.itemsize * block.shape[1]))).ravel()


def _points(
    features: Floats, rows: Rows, low: Numbers, high: Numbers, rng: np.random.Generator
) -> tuple[Points, float]:
    """The rows as whole numbers, projected if they are long, and the length of one unit.

    Scales are powers of two, so features that are whole numbers below 2**BITS stay exact.
    """
    dim = features.shape[1]
    middle = low / 2 + high / 2  # distances do not mind, and the reach becomes smallest
    # A sum of `dim` such numbers has 52 bits, and next to nothing of a float32 is lost.
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
    """The least and the greatest value of each column."""
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
    """`count` points in the order of choice, and the squared distance of the farthest other one.

    The same points as when every point's distance is updated at every step, with less work:
    distances only shrink, so an old one is an upper bound. A round takes the points with the
    largest bounds, and goes on until one of the others could be as far. Points that are near to a
    chosen one early are hardly looked at again, and most of the work becomes matrix products.
    """
    chosen = np.empty(count, np.int64)
    chosen[0], done = first, 1
    nearest = np.full(len(points), np.inf)
    nearest[first] = TAKEN
    seen = np.zeros(len(points), np.int32)  # how many of the chosen `nearest` accounts for
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
    """The `limit` rows of largest bounds, ascending; those left out are below `level`, or equal
    to it and come after row `edge`."""
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
    """Bring `nearest` of these rows up to date, or below `level`, which says enough."""
    rows = rows[seen[rows] < len(chosen)]
    rows = rows[np.argsort(seen[rows], kind="stable")]  # a block has about the same to catch up
    for start in range(0, len(rows), BLOCK):
        left = rows[start : start + BLOCK]
        block = points[left].astype(np.float64)
        norms = _squares(block)
        for begin in range(int(seen[left[0]]), len(chosen), CENTRES):
            centres = points[chosen[begin : begin + CENTRES]].astype(np.float64)
            product = block @ (-2 * centres).T
            product += _squares(centres)
            nearest[left] = np.minimum(nearest[left], product.min(axis=1) + norms)
            seen[left] = min(begin + CENTRES, len(chosen))
            still = nearest[left] >= level
            left, block, norms = left[still], block[still], norms[still]
            if not left.size:
                break


def _squares(block: Numbers) -> Numbers:
    squares: Numbers = np.einsum("ij,ij->i", block, block)
    return squares
