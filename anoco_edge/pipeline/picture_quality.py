"""Measures whether a picture can be judged: light, saturation, sharpness and likeness.

A detector gives every picture a score, also one that was taken in the dark or out of focus. A line
must not rely on such a score, so it compares these measures with the limits of the product first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.picture_limits import PictureLimits
from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Mask, place, resize_into
from anoco_edge.pipeline.patch_mask import PatchMask

Pixels = NDArray[np.uint8]
PictureProblem = Literal["too dark", "saturated", "blurred", "unlike the references"]

SATURATED = 250  # of 255: what the resize leaves of a channel that is at its end
# Factors between the worst good picture and the limit. Measured with the built-in backbone, four
# references, seven real sets (hazelnut, tile, screw, four of PIPED) and three draws: of 288 good
# and 315 defective pictures none was outside the limits; all good ones were that were blurred by
# two pixels of the input, or darkened to 0.4, or brightened to 2.5; of 252 pictures of other things
# 215 were, and the rest were granular surfaces of the same set as their references.
BRIGHTNESS = 0.5
MORE_SATURATED = 0.1  # of what is not saturated in any good picture
SHARPNESS = 0.6
DISTANCE = 2.0
LEAST_DISTANCE = 0.1  # references that are copies of each other say nothing about other parts


@dataclass(frozen=True)
class PictureMeasures:
    """The measures of one picture that need no backbone; see `PictureLimits`."""

    brightness: float
    saturated: float
    sharpness: float


class PictureGauge:
    """Measures pictures at the size and on the patches at which a product inspects them."""

    def __init__(self, contract: InputContract, patch_mask: PatchMask) -> None:
        """`contract` describes the input of all tiles together."""
        self._contract = contract
        self._patch_mask = patch_mask

    def measure(self, rgb: Pixels) -> PictureMeasures:
        """Measure a picture."""
        height, width = rgb.shape[:2]
        placement = place(self._contract, width, height)
        patches = self._patch_mask.scored(placement)
        # A picture that is much larger than the input is thinned first, to save time.
        step = max(min(width // placement.width, height // placement.height) // 2, 1)
        thinned = np.ascontiguousarray(rgb[::step, ::step])
        pixels = resize_into(thinned, self._contract, placement)
        gray = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.float32)
        slope = np.zeros_like(gray)
        slope[:, :-1] += np.diff(gray, axis=1) ** 2
        slope[:-1] += np.diff(gray, axis=0) ** 2
        level = float(self._by_patch(gray, patches).mean())
        ends = (pixels.max(axis=2) >= SATURATED).astype(np.float32)
        sharpness = float(np.median(self._by_patch(slope, patches))) / max(level, 1.0) ** 2
        return PictureMeasures(level, float(self._by_patch(ends, patches).mean()), sharpness)

    def _by_patch(self, values: NDArray[np.float32], patches: Mask) -> NDArray[np.float32]:
        """Return the mean of each inspected patch."""
        c = self._contract
        means = values.reshape(c.rows, c.stride, c.cols, c.stride).mean(axis=(1, 3))
        found: NDArray[np.float32] = means[patches]
        return found


def likeness(similarity: NDArray[np.float32], scored: Mask) -> float:
    """Return how much a picture is like the references: the median similarity of its patches.

    A defect changes some patches and hardly moves the median.

    >>> likeness(np.float32([[0.9, 0.8], [0.2, 0.0]]), np.array([[True, True], [True, False]]))
    0.8
    """
    return round(float(np.median(similarity[scored])), 6)


def limits_from(
    measures: Sequence[PictureMeasures], likenesses: Sequence[float] = ()
) -> PictureLimits:
    """Return the limits that follow from good pictures and from how like the others they are.

    >>> limits_from([PictureMeasures(120.0, 0.0, 0.01), PictureMeasures(100.0, 0.5, 0.02)], [0.9])
    PictureLimits(min_brightness=50.0, max_saturated=0.55, min_sharpness=0.006, min_likeness=0.8, \
pictures=2)
    """
    saturated = max(measure.saturated for measure in measures)
    distance = max((1 - like for like in likenesses), default=None)
    least = None
    if distance is not None:
        least = round(max(1 - max(DISTANCE * distance, LEAST_DISTANCE), -1.0), 6)
    return PictureLimits(
        min_brightness=BRIGHTNESS * min(measure.brightness for measure in measures),
        max_saturated=saturated + MORE_SATURATED * (1 - saturated),
        min_sharpness=SHARPNESS * min(measure.sharpness for measure in measures),
        min_likeness=least,
        pictures=len(measures),
    )


def measured_problem(measures: PictureMeasures, limits: PictureLimits) -> PictureProblem | None:
    """Say what is wrong with a picture before it is inspected; None if nothing is.

    >>> limits = limits_from([PictureMeasures(120.0, 0.0, 0.01)])
    >>> measured_problem(PictureMeasures(30.0, 0.0, 0.01), limits)
    'too dark'
    >>> measured_problem(PictureMeasures(120.0, 0.0, 0.002), limits)
    'blurred'
    """
    if measures.brightness < limits.min_brightness:
        return "too dark"
    if measures.saturated > limits.max_saturated:
        return "saturated"
    return "blurred" if measures.sharpness < limits.min_sharpness else None
