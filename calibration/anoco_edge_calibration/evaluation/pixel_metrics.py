"""Pixel AUROC, PRO and F1-max over any number of anomaly maps, exactly and in bounded memory.

The figures need, for every value that a defective pixel has, the number of normal pixels above it.
Floats that are not negative sort like their bit patterns, so pixels are kept as integers. Only the
defective ones, which are few, are sorted. All pixels are counted between their values, and the
defective ones taken off again, which is less work than telling the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import Map
from anoco_edge_calibration.evaluation.defect_regions import DefectRegions
from anoco_edge_calibration.evaluation.pixel_store import Defective, PixelStore
from anoco_edge_calibration.evaluation.threshold_counter import open_counter

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)

HELD = 16_000_000  # pixels kept in memory: 64 MB, and 8 bytes more for a defective one
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

    A pixel takes 4 bytes, and a defective one 12, in memory while there are few, then on disk.

    >>> with PixelMetrics() as metrics:
    ...     metrics.add(np.float32([[0.1, 0.9], [0.2, 0.2]]), np.array([[0, 1], [0, 0]], np.bool_))
    ...     metrics.add(np.float32([[0.3, 0.1]]), None)
    ...     metrics.result()
    PixelResult(auroc=1.0, pro=1.0, f1_max=1.0, pixels=6, regions=1)
    """

    def __init__(
        self,
        folder: Path | None = None,
        pro_limit: float = 0.3,
        held: int = HELD,
        most_values: int | None = None,
    ) -> None:
        """Start without pixels.

        More pixels than `held` are kept in a file in `folder` (None: the temporary folder), and
        `most_values` defective ones (None: a million) are counted at once. More of both take more
        memory and less time. PRO is integrated up to the false-positive rate `pro_limit`.
        """
        if not 0 < pro_limit <= 1:
            raise UsageError(
                f"pro_limit is {pro_limit}", hint="it is a rate: above 0 and at most 1"
            )
        self._pro_limit = pro_limit
        self._store = PixelStore(folder, held)
        self._most_values = MOST_VALUES if most_values is None else most_values
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
        The map is not copied, so do not change it afterwards.
        """
        self._check_open()
        bits = _bits(anomaly_map, mask)
        if isinstance(mask, np.ndarray):
            mask = DefectRegions.from_mask(mask)
        if mask is None or not mask.count:
            self._store.add(bits, np.zeros(0, np.uint64))
            return
        # The lower half holds the size of the region, which is all that PRO needs of it.
        defective = mask.of(bits).astype(np.uint64)
        defective <<= np.uint64(32)
        defective |= mask.sizes
        self._store.add(bits, defective)
        self._regions += mask.count

    def result(self) -> PixelResult:
        """Return the figures over all pictures that were added so far."""
        self._check_open()
        defective = self._store.defective
        normal = self._store.pixels - defective
        if not defective or not normal:
            missing = "normal" if defective else "defective"
            raise UsageError(
                f"pixel metrics need normal and defective pixels, and there is no {missing} one",
                hint="add good and defective pictures, the latter with their masks",
            )
        limit = self._pro_limit * normal
        curves = _Curves(defective, limit)
        for low, high in self._parts():
            curves.lower(self._count(low, high))
        return PixelResult(
            auroc=curves.pairs / (2 * defective * normal),
            pro=curves.pro / (limit * self._regions),
            f1_max=curves.f1,
            pixels=self._store.pixels,
            regions=self._regions,
        )

    def _check_open(self) -> None:
        if self._store.closed:
            raise UsageError(
                "these pixel metrics are closed", hint="add and ask inside the with block"
            )

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of bit patterns, the highest first, with a bounded number of values each."""
        count = -(-self._store.defective // self._most_values)
        edges = [0, INFINITY]
        if count > 1:
            some = [records[::SAMPLED] for records in self._store.defective_pixels()]
            sample = np.sort(np.concatenate(some) >> np.uint64(32))
            edges += sample[np.arange(1, count) * sample.size // count].tolist()
        edges = sorted(set(edges), reverse=True)
        yield from zip(edges[1:], edges[:-1], strict=True)

    def _count(self, low: int, high: int) -> _Step:
        """Count the pixels from `low` to below `high`."""
        values = self._defective_values(low, high)
        if not values.bits.size:
            inside = sum(_inside(pixels, low, high).size for pixels in self._store.all_pixels())
            return _Step(np.array([inside]), np.zeros(0, np.int64), values.counts, values.shares)
        counter = open_counter(values.bits)
        for pixels in self._store.all_pixels():
            counter.add(_inside(pixels, low, high))
        between, equal = counter.counts()
        equal -= values.counts
        return _Step(between[::-1], equal[::-1], values.counts[::-1], values.shares[::-1])

    def _defective_values(self, low: int, high: int) -> _Values:
        """Return the distinct values of defective pixels in a range."""
        edges = np.array([low, high], np.uint64) << np.uint64(32)
        inside = (
            records
            if (low, high) == (0, INFINITY)
            else records[(records >= edges[0]) & (records < edges[1])]
            for records in self._store.defective_pixels()
        )
        return _joined([_Values.of(some) for some in _batches(inside, self._most_values)])


@dataclass(frozen=True)
class _Values:
    """Distinct values of defective pixels, ascending."""

    bits: NDArray[np.uint32]
    counts: Counts
    """How many defective pixels have each value."""
    shares: Shares
    """The sum over these pixels of the share that each has in its region."""

    @staticmethod
    def of(records: Defective) -> _Values:
        """Find the values of some pixels, which are sorted in their place."""
        records.sort()
        bits = (records >> np.uint64(32)).astype(np.uint32)
        shares = records.astype(np.uint32).astype(np.float64)  # sizes, from the lower half
        np.reciprocal(shares, out=shares)
        starts = _firsts(bits)
        counts = np.diff(starts, append=bits.size)
        if starts.size != bits.size:
            bits = bits[starts]
        return _Values(bits, counts, _sums(shares, starts))


def _joined(parts: Sequence[_Values]) -> _Values:
    """Add up the counts and shares of values that are in several parts."""
    if len(parts) == 1:
        return parts[0]
    bits, counts, shares = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("bits", "counts", "shares")
    )
    order = np.argsort(bits, kind="stable")
    bits = bits[order]
    starts = _firsts(bits)
    return _Values(bits[starts], _sums(counts[order], starts), _sums(shares[order], starts))


def _firsts(bits: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return where each distinct value begins in ascending ones."""
    first = np.ones(bits.size, np.bool_)
    np.not_equal(bits[1:], bits[:-1], out=first[1:])
    return np.flatnonzero(first)


def _sums(numbers: NDArray[_Number], starts: NDArray[np.intp]) -> NDArray[_Number]:
    """Return the sums of the numbers from each start to the next one."""
    return numbers if starts.size == numbers.size else np.add.reduceat(numbers, starts)


def _batches(pieces: Iterable[Defective], most: int) -> Iterator[Defective]:
    """Join pieces until they are over `most` pixels; yields at least one batch, maybe empty."""
    waiting: list[Defective] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.size
        if size > most:  # more than planned, where many have the same value
            yield np.concatenate(waiting)
            waiting, size = [], 0
    yield np.concatenate([np.zeros(0, np.uint64), *waiting])


def _inside(pixels: NDArray[np.uint32], low: int, high: int) -> NDArray[np.uint32]:
    """Return the pixels from `low` to below `high`."""
    if (low, high) == (0, INFINITY):
        return pixels
    return pixels[(pixels >= np.uint32(low)) & (pixels < np.uint32(high))]


@dataclass(frozen=True)
class _Step:
    """What the threshold passes on its way down over the next values of defective pixels.

    There are in turns `between`, normal pixels between two values, and at a value `equal`, normal
    ones, `defective` ones, and their `shares` of regions; at last normal ones once more.
    """

    between: Counts
    equal: Counts
    defective: Counts
    shares: Shares


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

    def lower(self, step: _Step) -> None:
        """Lower the threshold over the next values."""
        last = step.between.size - 1
        for start in range(0, last, _AT_ONCE):
            some = slice(start, min(start + _AT_ONCE, last))
            # Copies, because NumPy goes through reversed views at half the speed.
            self._lower(
                step.between[some].copy(),
                step.equal[some].copy(),
                step.defective[some].copy(),
                step.shares[some].copy(),
            )
        self._reject(int(step.between[last]))

    def _lower(self, between: Counts, equal: Counts, defective: Counts, shares: Shares) -> None:
        """Pass so many times normal pixels that lie between values, and then the next value."""
        # Before the tie at a value: how many are found and rejected, and what overlaps.
        passed = between + equal
        found, rejected, overlap = np.cumsum(defective), np.cumsum(passed), np.cumsum(shares)
        found += self.found - defective
        rejected += self.rejected - equal
        overlap += self.overlap - shares
        self.pairs += 2 * int((found * passed).sum())
        ties = np.flatnonzero(equal)
        if ties.size:
            self.pairs += int((defective[ties] * equal[ties]).sum())
            self.pro += self._area_of_ties(equal[ties], rejected[ties], overlap[ties], shares[ties])
        # Along normal pixels alone the curves are straight and F1 only falls.
        after, wrong = found + defective, rejected + equal
        self.f1 = max(self.f1, float((2 * after / (after + wrong + self.all_defective)).max()))
        self.pro += self._area(between, rejected, overlap)
        self.found, self.rejected = int(after[-1]), int(wrong[-1])
        self.overlap = float(overlap[-1] + shares[-1])

    def _reject(self, normal: int) -> None:
        """Pass normal pixels alone."""
        self.pairs += 2 * self.found * normal
        self.pro += self.overlap * min(max(self.limit - self.rejected, 0), normal)
        self.rejected += normal

    def _area(self, between: Counts, rejected: Counts, overlap: Shares) -> float:
        """Return the area under level pieces of the curve, `rejected` at their ends."""
        whole = int(np.searchsorted(rejected, self.limit, side="right"))
        area = float((between[:whole] * overlap[:whole]).sum())
        if whole < between.size:  # the piece that crosses the limit, or the first one beyond it
            left = self.limit - float(rejected[whole] - between[whole])
            area += max(left, 0.0) * float(overlap[whole])
        return area

    def _area_of_ties(
        self, equal: Counts, rejected: Counts, overlap: Shares, shares: Shares
    ) -> float:
        """Return the area under slopes of the curve, `rejected` and `overlap` at their starts."""
        width = np.clip(self.limit - rejected, 0, equal)
        return float((width * (overlap + shares / equal * width / 2)).sum())


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
    plain = anomaly_map.ravel()
    bits: NDArray[np.uint32] = plain.view(np.uint32)
    if bits.size and bits.max() >= INFINITY:
        plain = plain + np.float32(0)  # a copy, in which -0 is 0
        bits = plain.view(np.uint32)
        if bits.max() >= INFINITY:
            wrong = plain[bits >= INFINITY][0]
            hint = "energies are finite, 0 or more"
            raise ScoringError(f"the anomaly map holds {wrong}", hint=hint)
    return bits


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
