"""The color scale that all heat maps share: dark violet, crimson, orange, yellow."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Lightness rises from stop to stop, so the order can be seen on a gray print and by color-blind
# people. The middle stop, where the threshold lies, is the first that looks red.
_STOPS = ((26, 12, 70), (112, 22, 122), (206, 36, 72), (247, 122, 24), (255, 208, 58))

# The scale is mixed in Björn Ottosson's OKLab (2020), because equal steps look equal there, and not
# in RGB.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _linear(srgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _encoded(linear: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    safe = np.clip(linear, 0.0, 1.0)
    return np.where(safe <= 0.0031308, safe * 12.92, 1.055 * safe ** (1 / 2.4) - 0.055)


@lru_cache(maxsize=1)
def table() -> npt.NDArray[np.uint8]:
    """Return the scale as 256 RGB rows, from an energy of 0 to twice the threshold.

    >>> table().shape, tuple(int(c) for c in table()[128])
    ((256, 3), (206, 37, 72))
    """
    stops = np.asarray(_STOPS, dtype=np.float64) / 255
    lab = np.cbrt(_linear(stops) @ _TO_CONES.T) @ _TO_LAB.T
    at = np.linspace(0, len(stops) - 1, 256)
    mixed = np.stack([np.interp(at, np.arange(len(stops)), lab[:, c]) for c in range(3)], axis=1)
    cones = (mixed @ np.linalg.inv(_TO_LAB).T) ** 3
    rgb = _encoded(cones @ np.linalg.inv(_TO_CONES).T)
    scale = np.rint(rgb * 255).astype(np.uint8)
    scale.setflags(write=False)  # all callers share one cached copy
    return scale


def colors(fraction: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Return the colors of numbers between 0 and 1; others take the color of the nearer end.

    >>> colors(np.array([-1.0, 0.0])).tolist()
    [[26, 12, 70], [26, 12, 70]]
    """
    index: npt.NDArray[np.intp] = np.rint(np.clip(fraction, 0.0, 1.0) * 255).astype(np.intp)
    return table()[index]
