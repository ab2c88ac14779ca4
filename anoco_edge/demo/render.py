"""Synthetic parts, good and defective, photographed under varying pose and light; all by seed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.demo import circuit, cloth, washer
from anoco_edge.errors import UsageError

Floats = NDArray[np.float32]

_DRAW = {"washer": washer.draw, "cloth": cloth.draw, "circuit": circuit.draw}
MATERIALS: tuple[str, ...] = tuple(_DRAW)
DEFECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"washer": washer.DEFECTS, "cloth": cloth.DEFECTS, "circuit": circuit.DEFECTS}
)

SUPERSAMPLING = 2
MIN_SIZE, MAX_SIZE = 64, 2048  # below, the weave is finer than a pixel; above, it costs gigabytes
# Washers and cloth come as they lie; boards sit in a fixture with a little play.
MAX_ROTATION = {"washer": 4.0, "cloth": 4.0, "circuit": 2.0}  # degrees
MAX_SHIFT = {"washer": 0.02, "cloth": 0.02, "circuit": 0.012}
MAX_SCALE = 0.015
MAX_BRIGHTNESS = 0.06
MAX_WARMTH = 0.02
SENSOR_NOISE = 0.006


@dataclass(frozen=True)
class Part:
    """A picture of one part, and where it is defective (nowhere, if it is good)."""

    material: str
    seed: int
    defect: str | None
    rgb: NDArray[np.uint8]
    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """Where the part lies under the camera, and the brushes that draw in its coordinates.

    A part's coordinates have their origin in its centre, y points down, and the picture is one
    unit wide; `x` and `y` hold them for every pixel of the enlarged canvas of side `n`.
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
        """Random numbers for one purpose, so that a defect cannot disturb the part under it."""
        key = zlib.crc32(f"{self.material}/{name}".encode())
        return np.random.default_rng([key, self.seed])

    def cover(self, distance: Floats) -> Floats:
        """Coverage of pixels by a shape, from the signed distance to its outline (inside < 0)."""
        return np.asarray(np.clip(0.5 - distance * self.n, 0.0, 1.0), np.float32)

    def noise(self, rng: np.random.Generator, cells: int, height: int | None = None) -> Floats:
        """Smooth noise in about [-1, 1] with `cells` bumps across and `height` bumps down."""
        grid = rng.uniform(-1.0, 1.0, (height or cells, cells)).astype(np.float32)
        picture = Image.fromarray(grid).resize((self.n, self.n), Image.Resampling.BICUBIC)
        return np.asarray(picture, np.float32)

    def blob(
        self, rng: np.random.Generator, centre: tuple[float, float], radius: float, rough: float
    ) -> Floats:
        """Signed distance to an irregular patch; `rough` is the wobble relative to its radius."""
        cells = max(4, round(1.0 / radius))
        squash, turn = rng.uniform(0.75, 1.0), rng.uniform(0.0, math.pi)
        dx, dy = self.x - np.float32(centre[0]), self.y - np.float32(centre[1])
        along = dx * np.float32(math.cos(turn)) + dy * np.float32(math.sin(turn))
        across = dy * np.float32(math.cos(turn)) - dx * np.float32(math.sin(turn))
        distance = np.hypot(along, across / np.float32(squash)) - np.float32(radius)
        wobble = self.noise(rng, cells) + 0.5 * self.noise(rng, 3 * cells)
        return np.asarray(distance + rough * radius * wobble, np.float32)

    def to_pixels(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tiling pixels of points given in the part's coordinates."""
        c, s = math.cos(self.angle) * self.scale, math.sin(self.angle) * self.scale
        turned = points @ np.array([[c, s], [-s, c]])
        return np.asarray((turned + np.array(self.shift) + 0.5) * self.n - 0.5)

    def stroke(self, points: NDArray[np.float64], radii: NDArray[np.float64]) -> Floats:
        """Coverage of a line through `points` whose half width follows `radii`."""
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


def render(material: str, seed: int, defect: str | None = None, size: int = 384) -> Part:
    """Render one part; the same arguments always give the same bytes.

    >>> part = render("washer", seed=7, defect="scratch", size=96)
    >>> part.rgb.shape, bool(part.mask.any()), bool(render("washer", 7, size=96).mask.any())
    ((96, 96, 3), True, False)
    """
    _check(material, seed, defect, size)
    scene = _scene(material, seed, defect, size)
    rgb, flaw = _DRAW[material](scene)
    mask = np.zeros((size, size), np.bool_) if flaw is None else _shrink(flaw) >= 0.25
    return Part(material, seed, defect, _photograph(scene, rgb, size), mask)


def _check(material: str, seed: int, defect: str | None, size: int) -> None:
    if material not in _DRAW:
        raise UsageError(f"unknown material {material!r}", hint=f"use {_either(MATERIALS)}")
    if defect is not None and defect not in DEFECTS[material]:
        raise UsageError(
            f"{material} has no defect {defect!r}",
            hint=f"use {_either(DEFECTS[material])}, or none for a good part",
        )
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", hint="use 0 or a positive number")
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(
            f"size {size} is out of range", hint=f"use {MIN_SIZE} to {MAX_SIZE} pixels"
        )


def _either(choices: tuple[str, ...]) -> str:
    return ", ".join(choices[:-1]) + " or " + choices[-1]


def _scene(material: str, seed: int, defect: str | None, size: int) -> Scene:
    rng = np.random.default_rng([zlib.crc32(f"{material}/pose".encode()), seed])
    angle = math.radians(float(rng.uniform(-1.0, 1.0)) * MAX_ROTATION[material])
    scale = 1.0 + float(rng.uniform(-MAX_SCALE, MAX_SCALE))
    sx, sy = (float(s) * MAX_SHIFT[material] for s in rng.uniform(-1.0, 1.0, 2))
    light = math.radians(-120.0 + float(rng.uniform(-15.0, 15.0)))
    n = size * SUPERSAMPLING
    axis = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n) - np.float32(0.5)
    px, py = (axis - np.float32(sx))[None, :], (axis - np.float32(sy))[:, None]
    c, s = np.float32(math.cos(angle) / scale), np.float32(math.sin(angle) / scale)
    x, y = c * px + s * py, c * py - s * px
    return Scene(material, seed, defect, n, angle, scale, (sx, sy), light, x, y)


def _shrink(canvas: Floats) -> Floats:
    """Average the canvas down to the picture."""
    top = canvas[0::2, 0::2] + canvas[0::2, 1::2]
    return np.asarray((top + canvas[1::2, 0::2] + canvas[1::2, 1::2]) * 0.25, np.float32)


def _photograph(scene: Scene, rgb: Floats, size: int) -> NDArray[np.uint8]:
    """Light falls off over the picture, has a brightness and a warmth; the sensor is noisy."""
    rng = scene.stream("light")
    brightness = 1.0 + rng.uniform(-MAX_BRIGHTNESS, MAX_BRIGHTNESS)
    warmth = rng.uniform(-MAX_WARMTH, MAX_WARMTH)
    slope, falloff = rng.uniform(0.02, 0.10), rng.uniform(0.10, 0.18)
    axis = np.linspace(-0.5, 0.5, size, dtype=np.float32)
    px, py = axis[None, :], axis[:, None]
    lamp = px * math.cos(scene.light) + py * math.sin(scene.light)
    field = (brightness * (1.0 + slope * lamp - falloff * (px * px + py * py))).astype(np.float32)
    gains = np.array([1.0 + warmth, 1.0, 1.0 - warmth], np.float32)
    picture = _shrink(rgb) * field[:, :, None] * gains
    noise = scene.stream("sensor").standard_normal(picture.shape, dtype=np.float32)
    # Photon noise grows with the signal, the electronics add a constant.
    picture += noise * (SENSOR_NOISE * (0.5 + picture))
    return np.asarray(np.clip(picture * 255.0 + 0.5, 0.0, 255.0), np.uint8)
