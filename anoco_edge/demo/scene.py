"""The scene of a rendered picture: the pose of the part, and brushes in the part's coordinates."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """The pose of the part under the camera, and brushes that draw in its coordinates.

    The coordinates of a part have their origin in its center, y points down, and the picture is one
    unit wide. `x` and `y` hold the coordinates of every pixel of the enlarged canvas of side `n`.
    """

    material: str
    seed: int
    defect: str | None
    n: int
    angle: float
    scale: float
    shift: tuple[float, float]
    light: float  # the direction the light comes from, in radians
    x: Floats
    y: Floats

    def stream(self, name: str) -> np.random.Generator:
        """Return random numbers for one purpose, so a defect does not change the part under it."""
        key = zlib.crc32(f"{self.material}/{name}".encode())
        return np.random.default_rng([key, self.seed])

    def cover(self, distance: Floats) -> Floats:
        """Return the coverage of pixels by a shape, from the signed distance to it (inside < 0)."""
        return np.asarray(np.clip(0.5 - distance * self.n, 0.0, 1.0), np.float32)

    def noise(self, rng: np.random.Generator, cells: int, height: int | None = None) -> Floats:
        """Return smooth noise in about [-1, 1] with `cells` bumps across and `height` down."""
        grid = rng.uniform(-1.0, 1.0, (height or cells, cells)).astype(np.float32)
        picture = Image.fromarray(grid).resize((self.n, self.n), Image.Resampling.BICUBIC)
        return np.asarray(picture, np.float32)

    def blob(
        self, rng: np.random.Generator, center: tuple[float, float], radius: float, rough: float
    ) -> Floats:
        """Return the signed distance to an irregular patch.

        `rough` is its wobble over its radius.
        """
        cells = max(4, round(1.0 / radius))
        squash, turn = rng.uniform(0.75, 1.0), rng.uniform(0.0, math.pi)
        dx, dy = self.x - np.float32(center[0]), self.y - np.float32(center[1])
        along = dx * np.float32(math.cos(turn)) + dy * np.float32(math.sin(turn))
        across = dy * np.float32(math.cos(turn)) - dx * np.float32(math.sin(turn))
        distance = np.hypot(along, across / np.float32(squash)) - np.float32(radius)
        wobble = self.noise(rng, cells) + 0.5 * self.noise(rng, 3 * cells)
        return np.asarray(distance + rough * radius * wobble, np.float32)

    def to_pixels(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert points from the part's coordinates to pixels of the canvas."""
        c, s = math.cos(self.angle) * self.scale, math.sin(self.angle) * self.scale
        turned = points @ np.array([[c, s], [-s, c]])
        return np.asarray((turned + np.array(self.shift) + 0.5) * self.n - 0.5)

    def stroke(self, points: NDArray[np.float64], radii: NDArray[np.float64]) -> Floats:
        """Return the coverage of a line through `points` whose half width follows `radii`."""
        out = np.zeros((self.n, self.n), np.float32)
        at, width = self.to_pixels(points), radii * self.n * self.scale
        for a, b, ra, rb in zip(at[:-1], at[1:], width[:-1], width[1:], strict=True):
            reach = max(ra, rb) + 1.0
            x0, y0 = np.maximum(np.floor(np.minimum(a, b) - reach).astype(int), 0)
            x1, y1 = np.minimum(np.ceil(np.maximum(a, b) + reach).astype(int) + 1, self.n)
            if x0 >= x1 or y0 >= y1:
                continue
            gx = np.arange(x0, x1)[None, :] - a[0]
            gy = np.arange(y0, y1)[:, None] - a[1]
            step = b - a
            t = np.clip((gx * step[0] + gy * step[1]) / max(float(step @ step), 1e-9), 0.0, 1.0)
            distance = np.hypot(gx - t * step[0], gy - t * step[1])
            cover = np.clip(ra + t * (rb - ra) - distance + 0.5, 0.0, 1.0)
            window = out[y0:y1, x0:x1]
            np.maximum(window, cover.astype(np.float32), out=window)
        return out
