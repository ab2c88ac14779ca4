"""Finding pictures that show the same part: bursts of one part, and copies of references.

Pictures are compared by small gray thumbnails, without their brightness and contrast, so that the
light does not matter. Two pictures show the same part when they differ no more than sensor noise
and JPEG compression make a picture differ from itself. How much that is, is measured on the
references. The spread of the set itself is not used: where one burst is the whole set, there is no
spread.

Features of the backbone were tried first and are worse. Noise moves all of them in the same
direction: with EfficientNet-Lite0, noise of 4 gray levels moved a rendered washer's features by
0.9 of the distance between two washers, and its thumbnail by 0.02 of that.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Thumbnail = NDArray[np.float32]
Rows = NDArray[np.float64]

SIDE = 32
# Pictures are the same part up to ALIKE times the distance that noise and JPEG make, and up to
# MOST_ALIKE (a correlation of 0.82), beyond which noise hides the part. Measured on seven real
# sets and three rendered ones, in units of that distance: frames of one part under noise of 8 gray
# levels, or less noise with JPEG 60 and other light, differ by at most 1.5; the two most similar of
# 34 to 81 independent parts by 2.8 (brg02), 3.0 (circuit), 3.9 (cloth), 4.8 (washer) and 8 or more
# (hazelnut, tile, screw, flr01, bdp01, gla01). In pictures of only 96 pixels, 1 pair of 1,200
# circuits came within 1.6; such parts count as one, so that the promised rate is too high rather
# than too low.
# 600 calibrations of 20 to 30 independent parts with 1, 2 and 4 references raised no false alarm.
ALIKE = 1.6
# The same where a reference is shifted or cropped by a pixel to fit: copies come within 1.3 (cloth)
# and mostly within 0.5, independent parts not below 2.3 (circuit; 1.5 at 96 pixels).
SHIFTED = 1.3
MOST_ALIKE = 0.6
NOISE = 4.0  # gray levels: a bright industrial camera has 1 to 2, with high gain up to 8
QUALITY = 60  # of JPEG; cameras are not set lower
LARGEST = 512  # longer side in pixels of a picture that gets noise; the figures above hold for it
MOST_PERTURBED = 4  # references that get noise; one camera has much the same noise in all pictures
FLATTEST = 0.25  # gray levels of contrast; less is rounding, which cannot be compared
# The median distance between pictures over the median distance to the references: 0.68 to 1.02
# for 20 to 30 independent parts, 0.04 to 0.5 for one part moved by up to 2 pixels (except for the
# rendered parts, of which different ones come as near to each other).
NARROW = 0.5
# Pixels that are removed from the two ends of a side: none, a crop, or a shift.
EDGES = ((0, 0), (1, 0), (0, 1), (1, 1), (1, -1), (-1, 1))
MOST_COMPARED = 256  # pictures whose distances are compared


def thumbnail(rgb: Pixels) -> Thumbnail:
    """Shrink a picture to SIDE x SIDE gray cells.

    >>> thumbnail(np.full((48, 64, 3), 7, np.uint8)).shape
    (32, 32)
    """
    # Pillow's bilinear filter averages over two cells, so the size of the picture does not matter.
    small = Image.fromarray(rgb).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    # The mean of three channels keeps fractions of a gray level, which 8-bit gray would lose.
    gray: Thumbnail = np.asarray(small, dtype=np.float32).mean(axis=2)
    return gray


def shifted_thumbnails(rgb: Pixels) -> list[Thumbnail]:
    """Make thumbnails of the picture shifted by a pixel, or cropped by one on any of its sides. The
    first one is of the picture itself.

    >>> len(shifted_thumbnails(np.zeros((20, 30, 3), np.uint8)))
    36
    """
    image = Image.fromarray(rgb)
    whole = max(image.size)
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.BOX)
    pixel = max(image.size) / whole
    padded = Image.fromarray(np.pad(np.asarray(image), ((1, 1), (1, 1), (0, 0)), "edge"))
    wide, high = (1 + side for side in image.size)
    boxes = [
        (1 + left * pixel, 1 + top * pixel, wide - right * pixel, high - bottom * pixel)
        for left, right in EDGES
        for top, bottom in EDGES
    ]
    small = (padded.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box) for box in boxes)
    return [np.asarray(one, dtype=np.float32).mean(axis=2) for one in small]


class PartMatcher:
    """Decides which pictures show the same part; the references give the scale of noise.

    `wanted` marks the thumbnail cells inside the region of interest. With `shifts`, copies of
    references that are shifted or cropped by a pixel are found too, which takes about 30 ms for
    each reference.

    >>> rng = np.random.default_rng(0)
    >>> def frames(part: int, count: int) -> list[Thumbnail]:
    ...     tile = np.random.default_rng(part).integers(40, 200, (6, 8, 3), dtype=np.uint8)
    ...     rgb = np.kron(tile, np.ones((16, 16, 1)))
    ...     noisy = (rgb + rng.normal(0, 2, rgb.shape) for _ in range(count))
    ...     return [thumbnail(frame.astype(np.uint8)) for frame in noisy]
    >>> reference = np.kron(rng.integers(40, 200, (6, 8, 3)), np.ones((16, 16, 1))).astype(np.uint8)
    >>> matcher = PartMatcher([reference])
    >>> matcher.parts([*frames(1, 3), *frames(2, 2)])
    [0, 0, 0, 3, 3]
    """

    def __init__(
        self, references: Iterable[Pixels], wanted: Mask | None = None, *, shifts: bool = True
    ) -> None:
        self._wanted = np.ones((SIDE, SIDE), np.bool_) if wanted is None else wanted
        if not self._wanted.any():  # the region is smaller than a cell
            self._wanted = np.ones((SIDE, SIDE), np.bool_)
        noise: list[float] = []
        rows: list[Rows] = []
        for rgb in references:  # one at a time, because those of a line camera are large
            rows.append(self._rows(shifted_thumbnails(rgb) if shifts else [thumbnail(rgb)]))
            if len(noise) < MOST_PERTURBED:
                noise.append(self._noise(rgb))
        self._views = np.array(rows, dtype=np.float32)  # per reference, the picture itself first
        self._references = np.array([views[0] for views in rows])
        noise.sort()
        # The lower median: one odd reference must not make all others look like copies.
        usual = noise[(len(noise) - 1) // 2] if noise else 0.0
        self._alike, self._shifted = (min(c * usual, MOST_ALIKE) for c in (ALIKE, SHIFTED))

    def copies(self, pictures: Sequence[Thumbnail]) -> dict[int, int]:
        """Find the pictures of parts that are references, each with the nearest reference."""
        found = {}
        for number, row in enumerate(self._rows(pictures) if len(self._views) else ()):
            plain = _distances(row, self._references)
            apart = np.array([_distances(row, views).min() for views in self._views])
            nearest = int(np.argmin(apart))
            if plain.min() <= self._alike or apart[nearest] <= self._shifted:
                found[number] = nearest
        return found

    def parts(
        self, pictures: Sequence[Thumbnail], groups: Sequence[Hashable] | None = None
    ) -> list[int]:
        """Find for every picture the first one of the same part.

        Pictures of equal `groups` are known to show one part. A chain of near pictures is one part
        as well, because the frames of a burst may move away from the first one.
        """
        rows = self._rows(pictures)
        codes = np.arange(len(rows))
        if groups is not None:
            numbers = {group: k for k, group in enumerate(dict.fromkeys(groups))}
            codes = np.array([numbers[group] for group in groups], dtype=np.intp)
        return self._connected(rows, codes)

    def references_are_one_part(self) -> bool:
        """Whether all references look like pictures of one part."""
        count = len(self._references)
        return count > 1 and not any(self._connected(self._references, np.arange(count)))

    def spread(self, pictures: Sequence[Thumbnail]) -> float | None:
        """The median difference between pictures over the median difference to the references.

        It is about 1 for good parts that differ as the references do. None where there are too few
        pictures to tell.
        """
        rows, known = self._rows(pictures), self._references
        if not len(known):
            return None
        if len(rows) > MOST_COMPARED:
            at = np.random.default_rng(0).choice(len(rows), MOST_COMPARED, replace=False)
            rows = rows[at]
        pairs = [_distances(row, rows[k + 1 :]) for k, row in enumerate(rows[:-1])]
        among = np.concatenate([*pairs, np.empty(0)])
        across = np.concatenate([*(_distances(row, known) for row in rows), np.empty(0)])
        among, across = among[np.isfinite(among)], across[np.isfinite(across)]
        if len(among) < 6 or not len(across) or not np.median(across):
            return None
        return float(np.median(among) / np.median(across))

    def _connected(self, rows: Rows, codes: NDArray[np.intp]) -> list[int]:
        """Find for every row the first row that a chain of near rows or equal codes reaches."""
        part = np.full(len(rows), -1)
        for first in range(len(rows)):
            waiting = [first] if part[first] < 0 else []
            part[waiting] = first
            while waiting:
                number = waiting.pop()
                near = _distances(rows[number], rows) <= self._alike
                found = np.flatnonzero((near | (codes == codes[number])) & (part < 0))
                part[found] = first
                waiting.extend(found.tolist())
        return [int(first) for first in part]

    def _noise(self, rgb: Pixels) -> float:
        """Measure how far two noisy copies of a picture are apart, of which one is a JPEG."""
        image = Image.fromarray(rgb)
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.BOX)
        small, rng = np.asarray(image), np.random.default_rng(0)

        def noisy() -> Pixels:
            moved = small + rng.normal(0, NOISE, small.shape)
            return moved.round().clip(0, 255).astype(np.uint8)

        packed = io.BytesIO()
        Image.fromarray(noisy()).save(packed, "JPEG", quality=QUALITY)
        with Image.open(packed) as opened:
            encoded = np.asarray(opened.convert("RGB"))
        rows = self._rows([thumbnail(encoded), thumbnail(noisy())])
        apart = _distances(rows[0], rows[1:])[0]
        return float(apart) if np.isfinite(apart) else 0.0

    def _rows(self, pictures: Sequence[Thumbnail]) -> Rows:
        """Turn each thumbnail into a row of mean 0 and length 1; into zeros without contrast."""
        if not len(pictures):
            return np.empty((0, int(self._wanted.sum())))
        rows = np.array([picture[self._wanted] for picture in pictures], dtype=np.float64)
        rows -= rows.mean(axis=1, keepdims=True)
        contrast = rows.std(axis=1, keepdims=True)
        scale = contrast * np.sqrt(rows.shape[1])
        plain = np.zeros_like(rows)
        np.divide(rows, scale, out=plain, where=contrast >= FLATTEST)
        return plain


def _distances(row: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
    """The Euclidean distances, from 0 to 2; infinite where one of the two has no contrast."""
    blank = ~rows.any(axis=1) | (not row.any())
    apart = np.sqrt(np.square(rows - row).sum(axis=1))
    return np.where(blank, np.inf, apart)
