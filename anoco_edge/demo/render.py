"""Renders synthetic parts, good and defective, with poses and light drawn by a seed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from anoco_edge.demo import circuit, cloth, washer
from anoco_edge.demo.scene import Scene
from anoco_edge.errors import UsageError

Floats = NDArray[np.float32]

_DRAW = {"washer": washer.draw, "cloth": cloth.draw, "circuit": circuit.draw}
MATERIALS: tuple[str, ...] = tuple(_DRAW)
DEFECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"washer": washer.DEFECTS, "cloth": cloth.DEFECTS, "circuit": circuit.DEFECTS}
)

SUPERSAMPLING = 2
MIN_SIZE, MAX_SIZE = 64, 2048  # a smaller weave is finer than a pixel; a larger one takes gigabytes
# Washers and cloth come as they lie; boards sit in a fixture with a little play.
MAX_ROTATION = {"washer": 4.0, "cloth": 4.0, "circuit": 2.0}  # degrees
MAX_SHIFT = {"washer": 0.02, "cloth": 0.02, "circuit": 0.012}
MAX_SCALE = 0.015
MAX_BRIGHTNESS = 0.06
MAX_WARMTH = 0.02
SENSOR_NOISE = 0.006


@dataclass(frozen=True)
class Part:
    """A picture of one part, and a mask of its defect, which is empty for a good part."""

    material: str
    seed: int
    defect: str | None
    rgb: NDArray[np.uint8]
    mask: NDArray[np.bool_]


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
    """Average the enlarged canvas down to the size of the picture."""
    top = canvas[0::2, 0::2] + canvas[0::2, 1::2]
    return np.asarray((top + canvas[1::2, 0::2] + canvas[1::2, 1::2]) * 0.25, np.float32)


def _photograph(scene: Scene, rgb: Floats, size: int) -> NDArray[np.uint8]:
    """Light the canvas and take the picture: light falls off over it and has a brightness and a
    warmth, and the sensor adds noise."""
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
