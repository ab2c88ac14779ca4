"""Pixel AUROC, PRO and F1-max over any number of anomaly maps, exactly and in bounded memory.

The figures need, for every value that a defective pixel has, the number of normal pixels above it.
Floats that are not negative sort like their bit patterns, so pixels are kept as integers. Only the
defective ones, which are few, are sorted; the normal ones are counted between their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge_calibration.evaluation.defect_regions import DefectRegions
from anoco_edge_calibration.evaluation.pixel_store import Defective, PixelStore
from anoco_edge_calibration.evaluation.threshold_counter import ThresholdCounter

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

HELD = 16_000_000  # pixels kept in memory: 64 MB if all are normal
# So many defective pixels are counted at once, in tables of 100 MB. If there are more, all pixels
# are gone through again for each part of their values.
MOST_VALUES = 1_000_000
_AT_ONCE = 1 << 15  # values, so that what is computed of them stays in the cache
SAMPLED = 64  # one of so many defective pixels is looked at to find these parts
INFINITY = 0x7F800000  # bits of float32 infinity; those of NaN and of negatives are above


@dataclass(frozen=True)
class PixelResult:
    """The three pixel figures of the paper, and the numbers of pixels and defects behind them."""

    auroc: float
    pro: float
    f1_max: float
    pixels: int
    regions: int


class PixelMetrics:
    """Collects maps with their masks and computes the pixel figures.

    A normal pixel takes 4 bytes and a defective one 8, in memory while there are few, then on disk.

    >>> with PixelMetrics() as metrics:
    ...     metrics.add(np.float32([[0.1, 0.9], [0.2, 0.2]]), np.array([[0, 1], [0, 0]], np.bool_))
    ...     metrics.add(np.float32([[0.3, 0.1]]), None)
    ...     metrics.result()
    PixelResult(auroc=1.0, pro=1.0, f1_max=1.0, pixels=6, regions=1)
    """

    def __init__(
        self, folder: Path | None = None, pro_limit: float = 0.3, held: int = HELD
    ) -> None:
        """Start without pixels.

        More pixels than `held` are kept in a file in `folder` (None: the temporary folder). PRO is
        integrated up to the false-positive rate `pro_limit`.
        """
        if not 0 < pro_limit <= 1:
            raise UsageError(
                f"pro_limit is {pro_limit}", hint="it is a rate: above 0 and at most 1"
            )
        self._pro_limit = pro_limit
        self._store = PixelStore(folder, held)
        self._regions = 0

    def __enter__(self) -> PixelMetrics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    def add(self, anomaly_map: Map, mask: Mask | DefectRegions | None) -> None:
        """Add one picture; `mask` is true where it is defective, None stands for a good part.

        The regions of a mask may be given in its place, so that they are found once for many maps.
        """
        self._check_open()
        bits = _bits(anomaly_map, mask)
        if isinstance(mask, np.ndarray):
            mask = DefectRegions.from_mask(mask)
        if mask is None or not mask.count:
            self._store.add(bits, np.zeros(0, np.uint64))
            return
        pixels = mask.pixels
        # The lower half holds the size of the region, which is all that PRO needs of it.
        defective = bits[pixels].astype(np.uint64) << np.uint64(32)
        defective |= mask.sizes.astype(np.uint64)
        is_normal = np.ones(bits.size, np.bool_)
        is_normal[pixels] = False
        self._store.add(bits[is_normal], defective)
        self._regions += mask.count

    def result(self) -> PixelResult:
        """Return the figures over all pictures that were added so far."""
        self._check_open()
        normal, defective = self._store.normal, self._store.defective
        if not defective or not normal:
            missing = "normal" if defective else "defective"
            raise UsageError(
                f"pixel metrics need normal and defective pixels, and there is no {missing} one",
                hint="add good and defective pictures, the latter with their masks",
            )
        limit = self._pro_limit * normal
        curves = _Curves(defective, limit)
        for low, high in self._parts():
            curves.lower(*self._count(low, high))
        return PixelResult(
            auroc=curves.pairs / (2 * defective * normal),
            pro=curves.pro / (limit * self._regions),
            f1_max=curves.f1,
            pixels=normal + defective,
            regions=self._regions,
        )

    def _check_open(self) -> None:
        if self._store.closed:
            raise UsageError(
                "these pixel metrics are closed", hint="add and ask inside the with block"
            )

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of bit patterns, the highest first, with a bounded number of values each."""
        count = -(-self._store.defective // MOST_VALUES)
        edges = [0, INFINITY]
        if count > 1:
            some = [records[::SAMPLED] for records in self._store.defective_pixels()]
            sample = np.sort(np.concatenate(some) >> np.uint64(32))
            edges += sample[np.arange(1, count) * sample.size // count].tolist()
        edges = sorted(set(edges), reverse=True)
        yield from zip(edges[1:], edges[:-1], strict=True)

    def _count(self, low: int, high: int) -> tuple[Counts, Counts, Shares]:
        """Count normal pixels, defective pixels and their shares of regions, from `high` to `low`.

        Normal pixels between two values of defective ones count as one value: the curves are
        straight along them, and F1 only falls. So there are in turns the entries of pixels between
        values and at a value.
        """
        values = self._defective_values(low, high)
        if not values.size:
            inside = sum(_inside(p, low, high).size for p in self._store.normal_pixels())
            return np.array([inside]), np.zeros(1, np.int64), np.zeros(1)
        counter = ThresholdCounter(values)
        for pixels in self._store.normal_pixels():
            counter.add(_inside(pixels, low, high))
        size = 2 * values.size + 1
        normal, defective = np.zeros((2, size), np.int64)
        shares = np.zeros(size)
        normal[::2], normal[1::2] = counter.between(), counter.equal()
        for some in _batches(self._defective(low, high)):
            places = counter.places((some >> np.uint64(32)).astype(np.uint32))
            part = 1 / (some & np.uint64(0xFFFFFFFF)).astype(np.float64)
            defective[1::2] += np.bincount(places, minlength=values.size)
            shares[1::2] += np.bincount(places, part, minlength=values.size)
        return normal[::-1], defective[::-1], shares[::-1]

    def _defective(self, low: int, high: int) -> Iterator[Defective]:
        """Yield the defective pixels of a range, picture by picture."""
        edges = np.array([low, high], np.uint64) << np.uint64(32)
        for records in self._store.defective_pixels():
            yield records[(records >= edges[0]) & (records < edges[1])]

    def _defective_values(self, low: int, high: int) -> NDArray[np.uint32]:
        """Return the distinct values of defective pixels in a range, ascending."""
        found = [
            _distinct((some >> np.uint64(32)).astype(np.uint32))
            for some in _batches(self._defective(low, high))
        ]
        return found[0] if len(found) == 1 else _distinct(np.concatenate(found))


def _batches(pieces: Iterable[Defective]) -> Iterator[Defective]:
    """Join pieces until they are many pixels; yields at least one batch, which may be empty."""
    waiting: list[Defective] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.size
        if size > MOST_VALUES:  # more than planned, where many have the same value
            yield np.concatenate(waiting)
            waiting, size = [], 0
    yield np.concatenate([np.zeros(0, np.uint64), *waiting])


def _distinct(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Sort values and leave copies out; np.unique hashes them first, which takes longer."""
    ordered = np.sort(bits)
    first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    distinct: NDArray[np.uint32] = ordered[first]
    return distinct


def _inside(pixels: NDArray[np.uint32], low: int, high: int) -> NDArray[np.uint32]:
    """Return the pixels from `low` to below `high`."""
    if (low, high) == (0, INFINITY):
        return pixels
    return pixels[(pixels >= np.uint32(low)) & (pixels < np.uint32(high))]


@dataclass
class _Curves:
    """The state of all curves while the threshold is lowered; `limit` is in pixels."""

    all_defective: int
    limit: float
    found: int = 0
    rejected: int = 0
    overlap: float = 0.0
    pairs: int = 0  # twice the area under the ROC curve, in pixels squared
    pro: float = 0.0  # area up to the limit under the sum over regions of their overlap
    f1: float = 0.0

    def lower(self, normal: Counts, defective: Counts, shares: Shares) -> None:
        """Lower the threshold over the next distinct values."""
        for start in range(0, normal.size, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            self._lower(normal[some], defective[some], shares[some])

    def _lower(self, normal: Counts, defective: Counts, shares: Shares) -> None:
        found, rejected = np.cumsum(defective), np.cumsum(normal)
        self.pairs += int(normal @ (2 * found - defective)) + 2 * self.found * int(rejected[-1])
        found += self.found
        rejected += self.rejected
        self.f1 = max(self.f1, float((2 * found / (found + rejected + self.all_defective)).max()))
        overlap = self.overlap + np.cumsum(shares)
        # The area is a sum of trapezoids. `width` cuts the one that crosses the limit.
        width = np.clip(self.limit - (rejected - normal), 0, normal)
        start, slope = overlap - shares, shares / np.maximum(normal, 1)
        self.pro += float((width * (start + slope * width / 2)).sum())
        self.found, self.rejected = int(found[-1]), int(rejected[-1])
        self.overlap = float(overlap[-1])


def _bits(anomaly_map: Map, mask: Mask | DefectRegions | None) -> NDArray[np.uint32]:
    """Return the pixels as integers in the same order; raise for values that are not energies."""
    shape = anomaly_map.shape if mask is None else mask.shape
    if anomaly_map.ndim != 2 or anomaly_map.shape != shape:
        raise UsageError(
            f"the map is {_size(anomaly_map.shape)} and the mask {_size(shape)}",
            hint="bring both to the size of the picture",
        )
    mask_type = mask.dtype if isinstance(mask, np.ndarray) else np.dtype(np.bool_)
    if anomaly_map.dtype != np.float32 or mask_type != np.bool_:
        raise UsageError(
            f"the map is {anomaly_map.dtype} and the mask {mask_type}",
            hint="they have to be float32 and bool",
        )
    plain = anomaly_map.ravel() + np.float32(0)  # a copy, in which -0 is 0
    bits: NDArray[np.uint32] = plain.view(np.uint32)
    if bits.size and bits.max() >= INFINITY:
        wrong = plain[bits >= INFINITY][0]
        raise ScoringError(f"the anomaly map holds {wrong}", hint="energies are finite, 0 or more")
    return bits


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
