"""Pixel AUROC, PRO and F1-max over any number of anomaly maps, exactly and in bounded memory.

Floats that are not negative sort like their bit patterns, so pixels are kept as integers. Few
pixels are sorted in memory. Many are written to a file, one sorted run for each picture, and
counted afterwards in one table of bit patterns after the other.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, StorageError, UsageError
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import Map

Records = NDArray[np.unsignedinteger[Any]]
Counts = NDArray[np.int64]

# The upper ten bits of a pattern (sign, exponent, one bit of the mantissa) choose its table. A
# table covers half an octave, so that maps need a few dozen tables of 32 MB each.
GROUP_BITS = 10
PATTERNS = 1 << (32 - GROUP_BITS)
GROUPS = 1 << (GROUP_BITS - 1)  # the sign is never set
HELD = 8_000_000  # pixels kept in memory; sorting them takes no more memory than the tables
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
        self._place = str(folder or "the temporary folder")
        with _storing(self._place):
            # The file has no name, so that even a killed process leaves nothing behind.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._end = 0
        self._most_held = held
        self._held: list[tuple[Records, Records]] = []
        self._runs: dict[int, list[_Run]] = defaultdict(list)
        self._normal = self._defective = self._regions = 0

    def __enter__(self) -> PixelMetrics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, anomaly_map: Map, mask: Mask | None) -> None:
        """Add one picture; `mask` is true where it is defective, None stands for a good part."""
        self._check_open()
        if mask is None:
            mask = np.zeros(anomaly_map.shape, np.bool_)
        bits = _bits(anomaly_map, mask)
        labels = label_regions(mask)[mask]
        sizes = np.bincount(labels).astype(np.uint64)
        normal = bits[~mask]
        # The lower half holds the size of the region, which is all that PRO needs of it.
        defective = (bits[mask].astype(np.uint64) << np.uint64(32)) | sizes[labels]
        if self._end or self._normal + self._defective + bits.size > self._most_held:
            self._spill()
            self._write(np.sort(normal), np.sort(defective))
        else:
            self._held.append((normal, defective))
        self._normal += normal.size
        self._defective += defective.size
        self._regions += max(sizes.size - 1, 0)

    def result(self) -> PixelResult:
        """Return the figures over all pictures that were added so far."""
        self._check_open()
        if not self._defective or not self._normal:
            missing = "normal" if self._defective else "defective"
            raise UsageError(
                f"pixel metrics need normal and defective pixels, and there is no {missing} one",
                hint="add good and defective pictures, the latter with their masks",
            )
        limit = self._pro_limit * self._normal
        curves = _Curves(self._defective, limit)
        if self._held:
            curves.lower(*self._count_held())
        for group in sorted(self._runs, reverse=True):
            curves.lower(*self._count(group))
        return PixelResult(
            auroc=curves.pairs / (2 * self._defective * self._normal),
            pro=curves.pro / (limit * self._regions),
            f1_max=curves.f1,
            pixels=self._normal + self._defective,
            regions=self._regions,
        )

    def _check_open(self) -> None:
        if self._file.closed:
            raise UsageError(
                "these pixel metrics are closed", hint="add and ask inside the with block"
            )

    def _spill(self) -> None:
        """Write the pixels in memory to the file."""
        while self._held:
            normal, defective = self._held[-1]
            self._write(np.sort(normal), np.sort(defective))
            self._held.pop()  # after the write, so that a full disk loses nothing

    def _write(self, *parts: Records) -> None:
        """Append sorted records; they count only after all of them are written."""
        with _storing(self._place):
            self._file.seek(self._end)
            for records in parts:
                left = records.view(np.uint8).data
                while left:
                    left = left[self._file.write(left) :]
        for records in parts:
            for group, start, stop in _groups(records):
                offset = self._end + start * records.itemsize
                self._runs[group].append(_Run(offset, stop - start, records.dtype))
            self._end += records.nbytes

    def _read(self, run: _Run) -> Records:
        wanted = run.length * run.dtype.itemsize
        with _storing(self._place):
            data = os.pread(self._file.fileno(), wanted, run.offset)
            if len(data) != wanted:
                raise OSError(f"{len(data)} of {wanted} bytes could be read back")
        return np.frombuffer(data, run.dtype)

    def _count_held(self) -> tuple[Counts, Counts, NDArray[np.float64]]:
        """Count all pixels in memory as `_count` does.

        Normal pixels between two values of defective ones count as one value: the curves are
        straight along them, and F1 only falls.
        """
        normal = np.sort(np.concatenate([held for held, _ in self._held]))
        records = np.sort(np.concatenate([held for _, held in self._held]))
        bits = (records >> np.uint64(32)).astype(np.uint32)
        firsts = np.flatnonzero(np.concatenate([[True], bits[1:] != bits[:-1]]))
        values = bits[firsts]
        # In turns the numbers of normal pixels from each value on and above it; then differences.
        reached = np.empty(2 * values.size + 2, np.int64)
        reached[0], reached[-1] = normal.size, 0
        reached[1:-1:2] = normal.size - np.searchsorted(normal, values)
        reached[2:-1:2] = normal.size - np.searchsorted(normal, values, side="right")
        steps = reached[:-1] - reached[1:]
        defective, shares = np.zeros(steps.size, np.int64), np.zeros(steps.size)
        defective[1::2] = np.diff(firsts, append=bits.size)
        sizes = (records & np.uint64(0xFFFFFFFF)).astype(np.float64)
        shares[1::2] = np.add.reduceat(1 / sizes, firsts)
        return steps[::-1], defective[::-1], shares[::-1]

    def _count(self, group: int) -> tuple[Counts, Counts, NDArray[np.float64]]:
        """Count normal pixels, defective pixels and their shares of regions.

        There is one entry for each distinct value of a group, the highest first.
        """
        seen = np.zeros(PATTERNS, np.bool_)
        normal = np.zeros(PATTERNS, np.int64)
        defective = np.zeros(PATTERNS, np.int64)
        shares = np.zeros(PATTERNS, np.float64)
        for run in self._runs[group]:
            records = self._read(run)
            if records.itemsize == 4:
                values, firsts, counts = _distinct(records)
                normal[values] += counts
            else:
                values, firsts, counts = _distinct(records >> np.uint64(32))
                defective[values] += counts
                sizes = (records & np.uint64(0xFFFFFFFF)).astype(np.float64)
                shares[values] += np.add.reduceat(1 / sizes, firsts)
            seen[values] = True
        taken = np.flatnonzero(seen)[::-1]  # only the touched parts of the other tables take memory
        return normal[taken], defective[taken], shares[taken]


class _Run(NamedTuple):
    """The place in the file of the pixels of one picture and one group."""

    offset: int
    length: int
    dtype: np.dtype[Any]


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

    def lower(self, normal: Counts, defective: Counts, shares: NDArray[np.float64]) -> None:
        """Lower the threshold over the next distinct values."""
        found, rejected = np.cumsum(defective), np.cumsum(normal)
        self.pairs += int(normal @ (2 * found - defective)) + 2 * self.found * int(rejected[-1])
        found += self.found
        rejected += self.rejected
        self.f1 = max(self.f1, float((2 * found / (found + rejected + self.all_defective)).max()))
        overlap = self.overlap + np.cumsum(shares)
        # The area is a sum of trapezoids. `width` cuts the one that crosses the limit.
        width = np.clip(self.limit - (rejected - normal), 0, normal)
        start, slope = overlap - shares, shares / np.maximum(normal, 1)
        self.pro += float(width @ (start + slope * width / 2))
        self.found, self.rejected = int(found[-1]), int(rejected[-1])
        self.overlap = float(overlap[-1])


def label_regions(mask: Mask) -> NDArray[np.int64]:
    """Number the 8-connected regions of the mask from 1 by their first pixel; 0 is outside.

    >>> label_regions(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], np.bool_)).tolist()
    [[1, 0, 0, 2], [0, 1, 0, 2]]
    """
    labels = np.zeros(mask.shape, np.int64)
    # Horizontal runs are places in the concatenated rows. The empty columns on either side keep
    # runs of different rows apart, also those that touch at a corner.
    width = mask.shape[1] + 2
    steps = np.diff(np.pad(mask, ((0, 0), (1, 1))).ravel().astype(np.int8))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    # A run touches those of the row above that begin at most one column after its end, and that
    # end at most one column before its begin.
    low = np.searchsorted(ends, starts - width)
    touching = np.searchsorted(starts, ends - width, side="right") - low
    here = np.repeat(np.arange(starts.size), touching)
    above = np.arange(here.size) - np.repeat(np.cumsum(touching) - touching - low, touching)
    _, numbers = np.unique(_join(starts.size, here, above), return_inverse=True)
    labels[mask] = np.repeat(numbers + 1, ends - starts)
    return labels


def _join(count: int, here: Counts, above: Counts) -> Counts:
    """Join all pairs (here, above) into sets, and return the lowest member of each member's set."""
    root = np.arange(count)
    while True:
        one, other = root[here], root[above]
        if (one == other).all():
            return root
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while (root != root[root]).any():
            root = root[root]


def _bits(anomaly_map: Map, mask: Mask) -> NDArray[np.uint32]:
    """Return the map as integers in the same order; raise for values that are not energies."""
    if anomaly_map.ndim != 2 or anomaly_map.shape != mask.shape:
        raise UsageError(
            f"the map is {_size(anomaly_map)} and the mask {_size(mask)}",
            hint="bring both to the size of the picture",
        )
    if anomaly_map.dtype != np.float32 or mask.dtype != np.bool_:
        raise UsageError(
            f"the map is {anomaly_map.dtype} and the mask {mask.dtype}",
            hint="they have to be float32 and bool",
        )
    plain = anomaly_map + np.float32(0)  # turns -0 into 0
    bits: NDArray[np.uint32] = plain.view(np.uint32)
    wrong = bits >= INFINITY
    if wrong.any():
        raise ScoringError(
            f"the anomaly map holds {anomaly_map[wrong][0]}", hint="energies are finite, 0 or more"
        )
    return bits


def _size(array: NDArray[Any]) -> str:
    return " x ".join(str(n) for n in array.shape)


def _groups(records: Records) -> Iterator[tuple[int, int, int]]:
    """Yield group, start and stop of each stretch of sorted records that belongs to one table."""
    shift = records.dtype.type(8 * records.itemsize - GROUP_BITS)
    edges = np.searchsorted(records, np.arange(GROUPS + 1, dtype=records.dtype) << shift)
    for group in np.flatnonzero(np.diff(edges)):
        yield int(group), int(edges[group]), int(edges[group + 1])


def _distinct(bits: Records) -> tuple[Counts, Counts, Counts]:
    """Return the place in its table, first index and count of each distinct sorted pattern."""
    firsts = np.flatnonzero(np.concatenate([[True], bits[1:] != bits[:-1]]))
    values = bits[firsts].astype(np.int64) % PATTERNS
    return values, firsts, np.diff(firsts, append=bits.size)


@contextlib.contextmanager
def _storing(place: str) -> Iterator[None]:
    """Turn an operating-system error about the pixel file into a StorageError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(
            f"cannot keep pixels in {place}: {reason}",
            hint="free some space there or give another folder",
        ) from None
