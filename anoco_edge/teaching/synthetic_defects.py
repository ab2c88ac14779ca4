"""Draws defects on pictures of good parts: pieces in the wrong place, scratches, stains.

They stand in for defects that nobody has photographed yet. They show whether a setting sees that a
good part was changed at some place. They do not show what the defects of a line look like: a part
that is bent, turned, or lacks a piece is none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from anoco_edge.errors import PictureError

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Weights = NDArray[np.float32]
DefectKind: TypeAlias = Literal["cut-paste", "scratch", "stain"]
DEFECT_KINDS: tuple[DefectKind, ...] = get_args(DefectKind)

# Diameters, as shares of the shorter side of a picture. A patch of the built-in backbone is 1/16.
SIZES = (1 / 24, 1 / 12, 1 / 6)
DEFECTS: tuple[tuple[DefectKind, float], ...] = tuple(
    (kind, size) for kind in DEFECT_KINDS for size in SIZES
)
"""What is drawn, one after the other."""
# Of so many random places the one with the most structure is taken, because a part has more of it
# than an even background, where hardly any defect of a part lies.
_PLACES = 4
_TRIES = 8  # draws of a defect that is hardly visible, before it is taken as it is
_VISIBLE = 6.0  # gray levels that a defect changes its pixels by, in the mean
_SMOOTH = 4  # pixels of a scratch's drawing for each pixel of the picture, along each side
_LEAST_SIDE = 8  # pixels of a picture


@dataclass(frozen=True)
class SyntheticDefect:
    """A good part with a defect drawn on it."""

    kind: DefectKind
    size: float
    """The diameter, as a share of the shorter side of the picture."""
    rgb: Pixels


def synthetic_defects(
    rgb: Pixels, seed: tuple[int, ...], wanted: Mask | None = None
) -> Iterator[SyntheticDefect]:
    """Draw one defect of each kind and size on a picture; `seed` decides where and how.

    `wanted` marks the cells, in a grid over the picture, that defects may lie in: those inside the
    region of interest.

    >>> part = np.random.default_rng(0).integers(60, 200, (48, 64, 3), dtype=np.uint8)
    >>> drawn = list(synthetic_defects(part, (1,)))
    >>> len(drawn), drawn[0].kind, bool((drawn[0].rgb != part).any())
    (9, 'cut-paste', True)
    """
    height, width = rgb.shape[:2]
    if min(height, width) < _LEAST_SIDE:
        raise PictureError(
            f"a picture of {width}x{height} is too small to draw defects on",
            hint=f"give pictures of at least {_LEAST_SIDE} pixels each way",
        )
    structure = _structure(rgb)
    for number, (kind, size) in enumerate(DEFECTS):
        rng = np.random.default_rng((*seed, number))
        yield SyntheticDefect(kind, size, _draw(rgb, kind, size, rng, structure, wanted))


def _draw(
    rgb: Pixels,
    kind: DefectKind,
    size: float,
    rng: np.random.Generator,
    structure: Weights,
    wanted: Mask | None,
) -> Pixels:
    side = max(2, round(size * min(rgb.shape[:2])))
    changed = rgb
    for _ in range(_TRIES):
        x, y = _place(rgb, side, rng, structure, wanted)
        changed = _DRAWINGS[kind](rgb, x, y, side, rng)
        apart = np.abs(changed.astype(np.int16) - rgb).mean(axis=2)
        if (apart > 0).any() and apart[apart > 0].mean() >= _VISIBLE:
            break
    return changed


def _structure(rgb: Pixels) -> Weights:
    """How much neighboring pixels differ, in gray levels, averaged over the surroundings."""
    gray = np.asarray(Image.fromarray(rgb).convert("L"), np.float32)
    edges = np.zeros_like(gray)
    edges[:, 1:] += np.abs(np.diff(gray, axis=1))
    edges[1:] += np.abs(np.diff(gray, axis=0))
    radius = min(gray.shape) / 32
    blurred = Image.fromarray(edges.clip(0, 255).astype(np.uint8)).filter(
        ImageFilter.BoxBlur(radius)
    )
    return np.asarray(blurred, np.float32)


def _place(
    rgb: Pixels,
    side: int,
    rng: np.random.Generator,
    structure: Weights,
    wanted: Mask | None,
) -> tuple[int, int]:
    """The upper left corner of a square of this side, whose center lies in a wanted cell."""
    height, width = rgb.shape[:2]
    cells = np.argwhere(wanted if wanted is not None and wanted.any() else np.ones((1, 1)))
    rows, cols = wanted.shape if wanted is not None and wanted.any() else (1, 1)
    best, found = -1.0, (0, 0)
    for _ in range(_PLACES):
        row, col = cells[rng.integers(len(cells))] + rng.random(2)
        x = int(np.clip(col / cols * width - side / 2, 0, width - side))
        y = int(np.clip(row / rows * height - side / 2, 0, height - side))
        here = float(structure[y : y + side, x : x + side].mean())
        if here > best:
            best, found = here, (x, y)
    return found


def _cut_paste(rgb: Pixels, x: int, y: int, side: int, rng: np.random.Generator) -> Pixels:
    """Cover a rectangle by another piece of the same picture, turned by a quarter or a half."""
    height, width = rgb.shape[:2]
    ratio = rng.uniform(0.5, 1.0)
    wide, high = (side, max(2, round(side * ratio)))
    if rng.random() < 0.5:
        wide, high = high, wide
    turns = int(rng.integers(4))
    cut = (wide, high) if turns % 2 == 0 else (high, wide)
    left, top = (int(rng.integers(0, s - c + 1)) for s, c in zip((width, height), cut, strict=True))
    piece = np.rot90(rgb[top : top + cut[1], left : left + cut[0]], turns)
    changed = rgb.copy()
    changed[y : y + high, x : x + wide] = piece
    return changed


def _scratch(rgb: Pixels, x: int, y: int, side: int, rng: np.random.Generator) -> Pixels:
    """Draw a thin bent line, brighter or darker than what it crosses."""
    large = Image.new("L", (side * _SMOOTH, side * _SMOOTH))
    angle, center = rng.uniform(0, np.pi), side * _SMOOTH / 2
    along = np.linspace(-0.5, 0.5, 5) * side * _SMOOTH * 0.95
    across = np.cumsum(rng.normal(0, side * _SMOOTH / 24, 5))
    across -= across.mean()
    points = [
        (
            center + a * np.cos(angle) - b * np.sin(angle),
            center + a * np.sin(angle) + b * np.cos(angle),
        )
        for a, b in zip(along, across, strict=True)
    ]
    thick = max(_SMOOTH, round(side * _SMOOTH * rng.uniform(0.04, 0.1)))
    ImageDraw.Draw(large).line(points, fill=255, width=thick, joint="curve")
    small = large.resize((side, side), Image.Resampling.BOX)
    levels = rng.uniform(30, 90) * rng.choice([-1, 1]) * rng.uniform(0.8, 1.0, 3)
    weight: Weights = np.asarray(small, np.float32) / np.float32(255)
    return _blend(rgb, x, y, weight, lambda piece: piece + levels)


def _stain(rgb: Pixels, x: int, y: int, side: int, rng: np.random.Generator) -> Pixels:
    """Tint a soft, irregular spot."""
    rows, cols = (np.mgrid[0:side, 0:side] + 0.5) / side * 2 - 1
    angle = np.arctan2(rows, cols)
    edge = 0.75 + sum(
        rng.uniform(0, 0.08) * np.cos(k * angle + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 5)
    )
    weight = np.clip((edge - np.hypot(rows, cols)) * 4, 0, 1) * rng.uniform(0.3, 0.7)
    tint = rng.uniform(20, 235) * rng.uniform(0.8, 1.2, 3)
    return _blend(rgb, x, y, weight.astype(np.float32), lambda _: tint)


def _blend(
    rgb: Pixels,
    x: int,
    y: int,
    weight: Weights,
    paint: Callable[[NDArray[np.float32]], NDArray[np.float64]],
) -> Pixels:
    high, wide = weight.shape
    changed = rgb.copy()
    piece = rgb[y : y + high, x : x + wide].astype(np.float32)
    mixed = piece + weight[..., None] * (paint(piece) - piece)
    changed[y : y + high, x : x + wide] = mixed.round().clip(0, 255).astype(np.uint8)
    return changed


_DRAWINGS: dict[DefectKind, Callable[[Pixels, int, int, int, np.random.Generator], Pixels]] = {
    "cut-paste": _cut_paste,
    "scratch": _scratch,
    "stain": _stain,
}
