"""Plain-woven cloth: blue warp over and under natural weft, drawn yarn by yarn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.demo.scene import Scene

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

DEFECTS = ("hole", "stain", "broken-thread", "loose-thread", "pulled-weave")

YARNS = 34  # across the picture
REACH = 26  # yarns kept to either side of the center, enough for any pose
WARP = np.array([0.44, 0.53, 0.64], np.float32)
WEFT = np.array([0.66, 0.70, 0.74], np.float32)
BACKING = np.array([0.055, 0.055, 0.062], np.float32)


@dataclass(frozen=True)
class _Yarns:
    """The properties that differ from yarn to yarn, by the number of the yarn."""

    tone: Floats
    width: Floats
    phase: Floats

    @staticmethod
    def spin(rng: np.random.Generator) -> _Yarns:
        count = 2 * REACH
        return _Yarns(
            rng.normal(1.0, 0.025, count).astype(np.float32),
            rng.uniform(0.425, 0.465, count).astype(np.float32),
            rng.uniform(0.0, 2.0 * math.pi, count).astype(np.float32),
        )


def draw(scene: Scene) -> tuple[Floats, Floats | None]:
    """Draw the cloth; returns the canvas and the coverage of the defect, if there is one."""
    rng, flaw = scene.stream("texture"), scene.stream(f"defect/{scene.defect}")
    start = rng.uniform(0.0, 1.0, 2)
    u = scene.x * np.float32(YARNS) + np.float32(start[0]) + 0.10 * scene.noise(rng, 5)
    v = scene.y * np.float32(YARNS) + np.float32(start[1]) + 0.10 * scene.noise(rng, 5)
    mask: Floats | None = None
    gone: tuple[Bools, Bools] | None = None
    if scene.defect == "pulled-weave":
        u, v, mask = _pull(scene, flaw, u, v)
    elif scene.defect == "hole":
        gone, mask = _tear(scene, flaw, u, v)
    elif scene.defect == "broken-thread":
        gone, mask = _break(flaw, u, v)
    rgb = _weave(scene, rng, u, v, gone)
    if scene.defect == "stain":
        rgb, mask = _stain(scene, flaw, rgb)
    elif scene.defect == "loose-thread":
        rgb, mask = _loose(scene, flaw, rgb)
    elif scene.defect == "pulled-weave" and mask is not None:
        rgb = rgb * (1.0 - 0.20 * np.clip(mask, 0.0, 1.0))[:, :, None]
    return rgb, mask


def _weave(
    scene: Scene, rng: np.random.Generator, u: Floats, v: Floats, gone: tuple[Bools, Bools] | None
) -> Floats:
    """Draw the weave: both sets of yarns rise and fall as cosines, and every pixel shows the
    higher one."""
    i, j = np.floor(u), np.floor(v)
    fu, fv = u - i - 0.5, v - j - 0.5
    sign = np.where(((i + j).astype(np.int32) & 1) == 0, np.float32(1), np.float32(-1))
    warp, weft = _Yarns.spin(rng), _Yarns.spin(rng)
    a, b = _number(i), _number(j)
    pi = np.float32(math.pi)
    lx, ly = math.cos(scene.light), math.sin(scene.light)
    cu, cv = fu / warp.width[a], fv / weft.width[b]
    high_warp = 0.75 * np.sqrt(np.clip(1.0 - cu * cu, 0.0, 1.0)) + 0.45 * sign * np.cos(pi * fv)
    high_weft = 0.75 * np.sqrt(np.clip(1.0 - cv * cv, 0.0, 1.0)) - 0.45 * sign * np.cos(pi * fu)
    high_warp[np.abs(cu) >= 1.0] = -1.0
    high_weft[np.abs(cv) >= 1.0] = -1.0
    if gone is not None:
        high_warp[gone[0]] = -1.0
        high_weft[gone[1]] = -1.0
    on_top = high_warp >= high_weft
    across, along = np.where(on_top, cu, cv), np.where(on_top, fv, fu)
    rise = np.where(on_top, sign, -sign) * np.sin(pi * along)
    facing = np.where(on_top, lx * across + ly * rise, ly * across + lx * rise)
    height = np.maximum(high_warp, high_weft)
    shade = (0.42 + 0.50 * np.clip(height, -0.4, 1.2)) * (1.0 + 0.26 * facing)
    # Twisted fibers are slanted stripes along each yarn, with another phase in each yarn.
    length, phase = np.where(on_top, v, u), np.where(on_top, warp.phase[a], weft.phase[b])
    twist = np.sin(2 * pi * (3.0 * length + 0.9 * across) + phase)
    fuzz = scene.noise(rng, 260)
    shade *= (1.0 + 0.06 * twist + 0.09 * fuzz) * np.where(on_top, warp.tone[a], weft.tone[b])
    rgb = np.where(on_top[:, :, None], WARP, WEFT) * shade[:, :, None]
    rgb[height <= -0.99] = BACKING
    return np.asarray(rgb, np.float32)


def _place(rng: np.random.Generator, margin: float = 0.12) -> tuple[float, float]:
    x, y = rng.uniform(-0.5 + margin, 0.5 - margin, 2)
    return float(x), float(y)


def _number(position: Floats) -> NDArray[np.intp]:
    """Return the number of the yarn at a position, counted from the first yarn that is drawn."""
    return np.clip(np.floor(position).astype(np.intp) + REACH, 0, 2 * REACH - 1)


def _tear(
    scene: Scene, rng: np.random.Generator, u: Floats, v: Floats
) -> tuple[tuple[Bools, Bools], Floats]:
    """Tear a hole. Each yarn ends at another place on either side, so the edge is frayed."""
    x, y = (YARNS * c for c in _place(rng))
    radius = rng.uniform(1.5, 2.5)
    centers = np.arange(2 * REACH) - REACH + 0.5
    gone: list[Bools] = []
    for along, across, middle, row in ((v, u, y, x), (u, v, x, y)):
        # Half the chord of a circle at each yarn, made ragged; negative where it misses the hole.
        chord = np.sqrt(np.clip(radius**2 - (centers - row) ** 2, 0.0, None)) - 0.05
        ends = (chord * rng.uniform(0.55, 1.25, (2, 2 * REACH))).astype(np.float32)
        which = _number(across)
        offset = along - np.float32(middle) + 0.22 * scene.noise(rng, 220)  # fibers, not cuts
        gone.append((offset > -ends[0][which]) & (offset < ends[1][which]))
    warp, weft = gone
    return (warp, weft), (warp | weft).astype(np.float32)


def _break(rng: np.random.Generator, u: Floats, v: Floats) -> tuple[tuple[Bools, Bools], Floats]:
    """Remove two or three yarns over some length, as a broken thread does."""
    x, y = (YARNS * c for c in _place(rng, 0.2))
    lost, half = int(rng.integers(2, 4)), rng.uniform(3.0, 6.0, 3)
    weft_broke = rng.random() < 0.5
    along, across, middle, row = (u, v, x, y) if weft_broke else (v, u, y, x)
    number = np.floor(across) - math.floor(row)
    reach = half.astype(np.float32)[np.clip(number, 0, 2).astype(np.intp)]
    missing = (number >= 0) & (number < lost) & (np.abs(along - np.float32(middle)) < reach)
    kept = np.zeros_like(missing)
    gone = (kept, missing) if weft_broke else (missing, kept)
    return gone, missing.astype(np.float32)


def _pull(
    scene: Scene, rng: np.random.Generator, u: Floats, v: Floats
) -> tuple[Floats, Floats, Floats]:
    """Pull the yarns around a point to one side: they are dense there and sparse behind it."""
    x, y = _place(rng)
    radius, strength = rng.uniform(0.085, 0.12), rng.uniform(0.9, 1.3)
    direction = rng.uniform(0.0, 2.0 * math.pi)
    dx, dy = scene.x - np.float32(x), scene.y - np.float32(y)
    inside = np.clip(1.0 - (dx * dx + dy * dy) / np.float32(radius**2), 0.0, 1.0)
    drag = inside * inside * np.float32(strength)
    moved_u = np.asarray(u + drag * math.cos(direction), np.float32)
    moved_v = np.asarray(v + drag * math.sin(direction), np.float32)
    return moved_u, moved_v, np.clip(drag * 4.0, 0.0, 1.0)


def _stain(scene: Scene, rng: np.random.Generator, rgb: Floats) -> tuple[Floats, Floats]:
    """Draw an oil stain: darker and browner than the cloth, and darkest at its dried rim."""
    size = rng.uniform(0.045, 0.085)
    edge = scene.blob(rng, _place(rng), size, 0.28)
    soak = np.clip(0.5 - edge / np.float32(0.016), 0.0, 1.0)
    rim = np.clip(1.0 - np.abs(edge + np.float32(0.006)) / np.float32(0.010), 0.0, 1.0)
    depth = (soak * rng.uniform(0.60, 0.80) + 0.22 * rim * soak)[:, :, None]
    tint = np.array([0.52, 0.40, 0.26], np.float32)
    return np.asarray(rgb * (1.0 - depth * (1.0 - tint)), np.float32), soak


def _loose(scene: Scene, rng: np.random.Generator, rgb: Floats) -> tuple[Floats, Floats]:
    """Draw a loose thread that lies curled on the cloth, with its shadow."""
    t = np.linspace(0.0, 1.0, 40)
    x, y = _place(rng, 0.2)
    heading = rng.uniform(0.0, 2.0 * math.pi) + np.cumsum(rng.normal(0.0, 0.06, t.size))
    heading = heading + rng.uniform(1.2, 2.6) * np.sin(2.0 * math.pi * t + rng.uniform(0.0, 6.0))
    step = rng.uniform(0.24, 0.40) / t.size
    walk = np.stack([np.cumsum(np.cos(heading)), np.cumsum(np.sin(heading))], axis=1) * step
    points = walk - walk.mean(axis=0) + np.array([x, y])
    width = np.full(t.size, rng.uniform(0.0052, 0.0066))
    width[-4:] *= np.linspace(1.0, 0.4, 4)
    offset = -0.007 * np.array([math.cos(scene.light), math.sin(scene.light)])
    shadow, core = scene.stroke(points + offset, width * 1.1), scene.stroke(points, width)
    ridge = scene.stroke(points - 0.35 * offset, width * 0.45)
    color = (WARP if rng.random() < 0.35 else WEFT) * np.float32(1.15)
    rgb = rgb * (1.0 - 0.50 * shadow)[:, :, None]
    thread = color * (0.80 + 0.25 * ridge + 0.10 * scene.noise(rng, 200))[:, :, None]
    rgb = rgb + (thread - rgb) * core[:, :, None]
    return np.asarray(rgb, np.float32), np.maximum(shadow, core)
