"""A brushed steel washer with three locating holes, lying on a dark conveyor belt."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anoco_edge.demo.scene import Scene

Floats = NDArray[np.float32]

DEFECTS = ("scratch", "dent", "chip", "rust", "missing-hole")

OUTER, INNER = 0.41, 0.155
HOLE_AT, HOLE = 0.285, 0.034
HOLES = tuple(math.radians(a) for a in (-90.0, 30.0, 150.0))
BEVEL = 0.016
STEEL = np.array([0.965, 0.985, 1.0], np.float32)
BELT = np.array([0.130, 0.136, 0.148], np.float32)


def draw(scene: Scene) -> tuple[Floats, Floats | None]:
    """Draw the washer; returns the canvas and the coverage of the defect, if there is one."""
    flaw = scene.stream(f"defect/{scene.defect}")
    radius, phi = np.hypot(scene.x, scene.y), np.arctan2(scene.y, scene.x)
    holes = list(HOLES)
    mask: Floats | None = None
    if scene.defect == "missing-hole":
        gone = holes.pop(int(flaw.integers(len(holes))))
        mask = scene.cover(_hole(scene, gone))
    outline = _outline(scene, radius, holes)
    steel = _brushed(scene, radius, phi)
    steel += _bevel(scene, radius, phi, holes)
    if scene.defect == "chip":
        bite = _bite(scene, flaw)
        mask = scene.cover(np.maximum(outline, bite))
        # The fracture is a bright, rough edge just outside the missing piece.
        lip = np.clip(1.0 - np.abs(bite - np.float32(0.006)) / np.float32(0.007), 0.0, 1.0)
        steel += lip * (0.10 + 0.14 * scene.noise(flaw, 90))
        outline = np.maximum(outline, -bite)
    body = scene.cover(outline)
    if scene.defect in ("scratch", "dent"):
        shade, mask = (_scratch if scene.defect == "scratch" else _dent)(scene, flaw)
        steel = steel * shade
        mask = mask * body
    metal = np.clip(steel, 0.03, 1.0)[:, :, None] * STEEL
    if scene.defect == "rust":
        metal, mask = _rust(scene, flaw, metal)
        mask = mask * body
    belt = _belt(scene, holes)[:, :, None] * BELT
    return np.asarray(belt + (metal - belt) * body[:, :, None], np.float32), mask


def _hole(scene: Scene, angle: float) -> Floats:
    """Return the signed distance to a locating hole."""
    dx = scene.x - np.float32(HOLE_AT * math.cos(angle))
    dy = scene.y - np.float32(HOLE_AT * math.sin(angle))
    return np.asarray(np.hypot(dx, dy) - np.float32(HOLE), np.float32)


def _outline(scene: Scene, radius: Floats, holes: list[float]) -> Floats:
    """Return the signed distance to the edge of the steel."""
    distance: Floats = np.maximum(radius - np.float32(OUTER), np.float32(INNER) - radius)
    for angle in holes:
        np.maximum(distance, -_hole(scene, angle), out=distance)
    return distance


def _brushed(scene: Scene, radius: Floats, phi: Floats) -> Floats:
    """Draw circular brushing: arcs of differing brightness, and the two bright sectors that they
    make."""
    rng = scene.stream("texture")
    # 420 grooves over the radius; blurred along the angle, so that each is an arc and not a speck.
    grooves = rng.standard_normal((420, 128)).astype(np.float32)
    grooves = sum((np.roll(grooves, k, axis=1) for k in range(1, 12)), grooves) / np.float32(3.5)
    ring = rng.standard_normal((420, 1)).astype(np.float32)
    table = 0.030 * grooves + 0.022 * ring
    rows = np.clip(radius * np.float32(420 / 0.46), 0, 419).astype(np.int32)
    turn = (phi * np.float32(64 / math.pi) + 128.0) % 128.0
    left = turn.astype(np.int32) % 128
    part = turn - np.floor(turn)
    flat, base = table.ravel(), rows * 128
    low, high = flat[base + left], flat[base + (left + 1) % 128]
    streaks = low + (high - low) * part
    facing = np.cos(phi - np.float32(scene.light))
    square = facing * facing
    fan = 0.16 * square + 0.16 * square**4
    return np.asarray((0.50 + fan) * (1.0 + streaks), np.float32)


def _bevel(scene: Scene, radius: Floats, phi: Floats, holes: list[float]) -> Floats:
    """Shade the chamfers: bright where they face the light, and dark where they do not."""
    lx, ly = np.float32(math.cos(scene.light)), np.float32(math.sin(scene.light))
    facing = np.cos(phi - np.float32(scene.light))
    bevel = np.float32(BEVEL)
    rim = np.clip(1.0 + (radius - np.float32(OUTER)) / bevel, 0.0, 1.0)
    bore = np.clip(1.0 + (np.float32(INNER) - radius) / bevel, 0.0, 1.0)
    shade = 0.26 * facing * (np.sqrt(rim) - np.sqrt(bore))
    for angle in holes:
        x0, y0 = HOLE_AT * math.cos(angle), HOLE_AT * math.sin(angle)
        ring = np.clip(1.0 - _hole(scene, angle) / np.float32(0.010), 0.0, 1.0)
        toward = (scene.x - np.float32(x0)) * lx + (scene.y - np.float32(y0)) * ly
        shade -= ring * toward * np.float32(0.26 / HOLE)
    return np.asarray(shade, np.float32)


def _belt(scene: Scene, holes: list[float]) -> Floats:
    """Draw the belt of woven rubber, which moves under the part, with the soft shadow of the
    washer."""
    rng = scene.stream("belt")
    phase = rng.uniform(0.0, 2.0 * math.pi, 2)
    k = np.float32(2.0 * math.pi * 46)
    weave = np.sin(k * (scene.x + scene.y) + np.float32(phase[0]))
    weave *= np.sin(k * (scene.x - scene.y) + np.float32(phase[1]))
    dust = scene.noise(rng, 96)
    rubber = 1.0 + 0.22 * weave + 0.12 * dust
    away = (-0.028 * math.cos(scene.light), -0.028 * math.sin(scene.light))
    dx, dy = scene.x - np.float32(away[0]), scene.y - np.float32(away[1])
    r = np.hypot(dx, dy)
    far = np.maximum(r - np.float32(OUTER), np.float32(INNER) - r)
    shadow = np.clip(0.5 - far / np.float32(0.05), 0.0, 1.0)
    return np.asarray(rubber * (1.0 - 0.62 * shadow), np.float32)


def _scratch(scene: Scene, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw a scratch across the brushing: a dark groove with a bright burr on one side."""
    t = np.linspace(0.0, 1.0, 22)
    sweep = rng.uniform(0.35, 0.75) * rng.choice([-1.0, 1.0])
    inside, outside = rng.uniform(0.20, 0.235), rng.uniform(0.33, 0.375)
    r = inside + (outside - inside) * t + rng.uniform(-0.02, 0.02) * np.sin(math.pi * t)
    angle = _between_holes(rng) + sweep * (t - 0.5)
    points = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
    width = rng.uniform(0.0046, 0.0060) * (0.45 + 0.55 * np.sin(math.pi * t) ** 0.5)
    width = width * rng.uniform(0.85, 1.15, t.size)
    groove = scene.stroke(points, width)
    burr = scene.stroke(points + rng.choice([-1.0, 1.0]) * 0.0060, width * 0.6)
    strength = rng.uniform(0.45, 0.65)
    shade = (1.0 + 0.40 * burr) * (1.0 - strength * groove)
    return np.asarray(shade, np.float32), np.maximum(groove, burr)


def _dent(scene: Scene, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw a dent: the far side of the hollow is bright, and the near side is dark."""
    angle, r = _between_holes(rng), rng.uniform(0.25, 0.32)
    size = rng.uniform(0.034, 0.05)
    center = (r * math.cos(angle), r * math.sin(angle))
    away = scene.blob(rng, center, size, 0.12) / np.float32(size)  # -1 in the center, 0 at the rim
    depth = np.clip(-away, 0.0, 1.0)
    dx, dy = scene.x - np.float32(center[0]), scene.y - np.float32(center[1])
    toward = (dx * math.cos(scene.light) + dy * math.sin(scene.light)) / np.float32(size)
    slope = np.sqrt(depth) * np.clip(-1.6 * toward, -1.0, 1.0)
    shade = 1.0 + rng.uniform(0.40, 0.55) * slope - 0.18 * np.sqrt(depth)
    return np.asarray(shade, np.float32), scene.cover(away * np.float32(size))


def _bite(scene: Scene, rng: np.random.Generator) -> Floats:
    """Return the signed distance to the piece that has broken off the rim."""
    angle, size = rng.uniform(0.0, 2.0 * math.pi), rng.uniform(0.034, 0.055)
    r = OUTER - 0.25 * size
    return scene.blob(rng, (r * math.cos(angle), r * math.sin(angle)), size, 0.22)


def _rust(scene: Scene, rng: np.random.Generator, metal: Floats) -> tuple[Floats, Floats]:
    """Draw rust: a mottled brown patch with specks around it."""
    angle, r = _between_holes(rng), rng.uniform(0.24, 0.33)
    size = rng.uniform(0.04, 0.07)
    edge = scene.blob(rng, (r * math.cos(angle), r * math.sin(angle)), size, 0.40)
    patch = np.clip(0.5 - edge / np.float32(0.012), 0.0, 1.0)
    mottle = 0.72 + 0.24 * scene.noise(rng, 70) + 0.14 * scene.noise(rng, 160)
    alpha = (patch * np.clip(mottle, 0.35, 1.0) * rng.uniform(0.75, 0.95))[:, :, None]
    rust = np.clip(0.75 + 0.35 * scene.noise(rng, 110), 0.3, 1.2)[:, :, None]
    color = rust * np.array([0.50, 0.25, 0.11], np.float32)
    return np.asarray(metal + (color - metal) * alpha, np.float32), patch


def _between_holes(rng: np.random.Generator) -> float:
    """Draw an angle at which a patch lies on steel and not over a locating hole."""
    return float(HOLES[int(rng.integers(3))] + rng.uniform(0.45, 2 * math.pi / 3 - 0.45))
