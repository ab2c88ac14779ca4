"""A bare printed circuit: green solder mask, gilded pads, traces, drilled vias, white print."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from anoco_edge.demo.scene import Scene

Floats = NDArray[np.float32]
Point = tuple[float, float]

DEFECTS = ("solder-bridge", "missing-pad", "cut-trace", "scratch", "corrosion", "misprint")

HALF = 0.405  # half the board's side
TRACE = 0.0055  # half a trace's width
CHIP_X = tuple(-0.1375 + 0.055 * k for k in range(6))
EDGE_X = tuple(-0.2125 + 0.085 * k for k in range(6))
CHIP_Y, FINGER_Y, HEADER_Y = 0.10, -0.322, 0.322
SIDE_Y = (-0.17, 0.0, 0.17)
SIDE_X = 0.298
MOUNTS: tuple[Point, ...] = ((-0.345, -0.345), (0.345, -0.345), (-0.345, 0.345), (0.345, 0.345))
LABELS: tuple[tuple[str, Point, float], ...] = (
    ("ANOCO-1", (0.0, -0.012), 0.058),
    ("REV B", (0.0, 0.036), 0.034),
    ("R1", (-0.298, -0.230), 0.034),
    ("R2", (-0.298, -0.060), 0.034),
    ("C1", (-0.298, 0.110), 0.034),
    ("R3", (0.298, -0.230), 0.034),
    ("R4", (0.298, -0.060), 0.034),
    ("C2", (0.298, 0.110), 0.034),
    ("J2", (-0.278, 0.322), 0.034),
)

SOLDER_MASK = np.array([0.045, 0.270, 0.150], np.float32)
COPPER_UNDER_MASK = np.array([0.100, 0.420, 0.225], np.float32)
GOLD = np.array([0.880, 0.715, 0.390], np.float32)
TIN = np.array([0.800, 0.815, 0.830], np.float32)
FIBER = np.array([0.600, 0.535, 0.340], np.float32)
PRINT = np.array([0.900, 0.905, 0.880], np.float32)
MAT = np.array([0.170, 0.180, 0.205], np.float32)


@dataclass(frozen=True)
class _Box:
    """A rectangular pad, given by its center and half of its sides."""

    x: float
    y: float
    w: float
    h: float


def _boxes() -> list[_Box]:
    chip = [_Box(x, side * CHIP_Y, 0.017, 0.031) for side in (-1, 1) for x in CHIP_X]
    fingers = [_Box(x, FINGER_Y, 0.024, 0.038) for x in EDGE_X]
    parts = [
        _Box(side * SIDE_X + end, y, 0.021, 0.026)
        for side in (-1, 1)
        for y in SIDE_Y
        for end in (-0.042, 0.042)
    ]
    return chip + fingers + parts


def _traces() -> list[list[Point]]:
    """Return the traces: a fan from the chip to the fingers and the header, and stubs."""
    lines: list[list[Point]] = []
    for a, b in zip(CHIP_X, EDGE_X, strict=True):
        bend = 0.205 + 0.5 * abs(b - a)
        for side, end in ((-1.0, FINGER_Y), (1.0, HEADER_Y)):
            knee = side * (bend - abs(b - a))
            lines.append([(a, side * CHIP_Y), (a, knee), (b, side * bend), (b, end)])
    for side in (-1.0, 1.0):
        inner = side * (SIDE_X - 0.042)
        outer = side * (SIDE_X + 0.042)
        lines.append([(inner, SIDE_Y[0]), (side * 0.222, SIDE_Y[0]), (side * 0.192, -0.14)])
        lines.append([(inner, SIDE_Y[1]), (side * 0.192, SIDE_Y[1])])
        lines.append([(inner, SIDE_Y[2]), (side * 0.222, SIDE_Y[2]), (side * 0.192, 0.14)])
        lines.append([(outer, y) for y in SIDE_Y])
    return lines


VIAS: tuple[Point, ...] = tuple(
    (side * 0.192, y) for side in (-1.0, 1.0) for y in (-0.14, 0.0, 0.14)
)


class _Layer:
    """One material of the board. It is drawn in the part's coordinates, then put into the scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.side = scene, scene.n * 3 // 2
        self.picture = Image.new("L", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.picture)

    def _at(self, x: float, y: float) -> Point:
        return (x + 0.5) * self.side, (y + 0.5) * self.side

    def box(self, b: _Box, corner: float = 0.005, fill: int = 255) -> None:
        corners = (*self._at(b.x - b.w, b.y - b.h), *self._at(b.x + b.w, b.y + b.h))
        self.pen.rounded_rectangle(corners, corner * self.side, fill=fill)

    def disc(self, at: Point, radius: float, fill: int = 255) -> None:
        x, y = at
        corners = (*self._at(x - radius, y - radius), *self._at(x + radius, y + radius))
        self.pen.ellipse(corners, fill=fill)

    def line(self, points: list[Point], half: float) -> None:
        self.pen.line([self._at(*p) for p in points], 255, max(1, round(2 * half * self.side)))
        for p in points:
            self.disc(p, half)

    def text(self, label: str, at: Point, height: float, fill: int = 255) -> None:
        font = ImageFont.load_default(size=max(4.0, height * self.side))
        self.pen.text(self._at(*at), label, fill=fill, font=font, anchor="mm", stroke_width=1)

    def coverage(self, dx: float = 0.0, dy: float = 0.0) -> Floats:
        """Return the coverage on the canvas.

        `dx` and `dy` say how far a print is out of register.
        """
        s = self.scene
        c = math.cos(s.angle) / s.scale * self.side / s.n
        k = math.sin(s.angle) / s.scale * self.side / s.n
        half, (sx, sy) = 0.5 * s.n, s.shift
        ox, oy = half + sx * s.n, half + sy * s.n
        x0 = -c * ox - k * oy + (0.5 - dx) * self.side
        y0 = k * ox - c * oy + (0.5 - dy) * self.side
        moved = self.picture.transform(
            (s.n, s.n), Image.Transform.AFFINE, (c, k, x0, -k, c, y0), Image.Resampling.BILINEAR
        )
        return np.asarray(moved, np.float32) / np.float32(255)


def draw(scene: Scene) -> tuple[Floats, Floats | None]:
    """Draw the board; returns the canvas and the coverage of the defect, if there is one."""
    flaw = scene.stream(f"defect/{scene.defect}")
    boxes, mask = _boxes(), None
    if scene.defect == "missing-pad":
        mask = _lost(scene, boxes.pop(int(flaw.integers(len(boxes)))))
    print_ = _print(scene)
    if scene.defect == "misprint":
        print_, mask = _misprint(scene, flaw, print_)
    pads = _pads(scene, boxes)
    rgb = _board(scene, pads, print_)
    if scene.defect == "solder-bridge":
        rgb, mask = _bridge(scene, flaw, rgb)
    elif scene.defect == "cut-trace":
        rgb, mask = _cut(scene, flaw, rgb)
    elif scene.defect == "scratch":
        rgb, mask = _scratch(scene, flaw, rgb)
    elif scene.defect == "corrosion":
        rgb, mask = _corrode(scene, flaw, rgb, pads)
    return rgb, mask


def _pads(scene: Scene, boxes: list[_Box]) -> Floats:
    layer = _Layer(scene)
    for box in boxes:
        layer.box(box)
    for x in EDGE_X:
        layer.disc((x, HEADER_Y), 0.029)
    for via in VIAS:
        layer.disc(via, 0.015)
    for mount in MOUNTS:
        layer.disc(mount, 0.040)
    return layer.coverage()


def _print(scene: Scene, labels: tuple[tuple[str, Point, float], ...] = LABELS) -> Floats:
    """Draw the white print: labels, the outline of the chip, and the frame of the header."""
    layer, thin = _Layer(scene), 0.0022
    for label, at, height in labels:
        layer.text(label, at, height)
    for x, y, w, h in ((0.0, 0.0, 0.165, 0.062), (0.0, HEADER_Y, 0.255, 0.042)):
        corners = [(x - w, y - h), (x + w, y - h), (x + w, y + h), (x - w, y + h), (x - w, y - h)]
        layer.line(corners, thin)
    layer.disc((-0.145, 0.042), 0.008)
    rng = scene.stream("register")
    dx, dy = (float(d) for d in rng.uniform(-0.0015, 0.0015, 2))
    return layer.coverage(dx, dy)


def _board(scene: Scene, pads: Floats, print_: Floats) -> Floats:
    rng = scene.stream("texture")
    copper, edge, drill = _Layer(scene), _Layer(scene), _Layer(scene)
    for line in _traces():
        copper.line(line, TRACE)
    edge.box(_Box(0.0, 0.0, HALF, HALF), corner=0.03)
    for x in EDGE_X:
        drill.disc((x, HEADER_Y), 0.014)
    for via in VIAS:
        drill.disc(via, 0.0068)
    for mount in MOUNTS:
        drill.disc(mount, 0.026)
    metal, board, holes = copper.coverage(), edge.coverage(), drill.coverage()
    fine = 1.0 + 0.035 * scene.noise(rng, 240) + 0.03 * scene.noise(rng, 9)
    rgb = _mix(SOLDER_MASK, COPPER_UNDER_MASK, metal)
    # The lacquer rises over the copper and is bright where it faces the light.
    rgb += (_relief(scene, metal) * 0.10)[:, :, None]
    ink = print_ * np.float32(0.94) * (1.0 - pads)
    rgb = _mix(rgb, PRINT, ink)
    shine = float(rng.uniform(0.94, 1.06))
    grain = shine * (0.93 + 0.04 * scene.noise(rng, 60) + 0.04 * scene.noise(rng, 200))
    rgb = _mix(rgb, np.asarray(GOLD * grain[:, :, None], np.float32), pads)
    rgb += (_relief(scene, pads) * 0.16)[:, :, None]
    rgb *= fine[:, :, None]
    ground = _mat(scene, board)
    rgb = _mix(ground, rgb, board)
    return _mix(rgb, MAT * np.float32(0.30), holes)


def _mix(below: Floats, above: Floats, cover: Floats) -> Floats:
    out = (above - below) * cover[:, :, None]
    out += below
    return out


def _relief(scene: Scene, layer: Floats) -> Floats:
    """Return how the edges of a raised layer face the light: +1 toward it, -1 away from it."""
    k = max(1, scene.n // 384)
    dx, dy = round(k * math.cos(scene.light) * 1.2), round(k * math.sin(scene.light) * 1.2)
    return np.asarray(layer - np.roll(layer, (dy, dx), axis=(0, 1)), np.float32)


def _mat(scene: Scene, board: Floats) -> Floats:
    """Draw an antistatic mat, on which the board has a soft shadow."""
    rng = scene.stream("mat")
    small = Image.fromarray((board * 255).astype(np.uint8)).reduce(4)
    blurred = small.filter(ImageFilter.GaussianBlur(scene.n / 380))
    wide = np.asarray(blurred.resize((scene.n, scene.n), Image.Resampling.BILINEAR), np.float32)
    k = round(0.018 * scene.n)
    dx, dy = round(-k * math.cos(scene.light)), round(-k * math.sin(scene.light))
    shadow = np.roll(wide, (dy, dx), axis=(0, 1)) / np.float32(255)
    grain = 1.0 + 0.05 * scene.noise(rng, 180)
    return np.asarray((grain * (1.0 - 0.6 * shadow))[:, :, None] * MAT, np.float32)


def _lost(scene: Scene, box: _Box) -> Floats:
    """Return the coverage of a pad that the etching removed."""
    layer = _Layer(scene)
    layer.box(box)
    return layer.coverage()


def _bridge(scene: Scene, rng: np.random.Generator, rgb: Floats) -> tuple[Floats, Floats]:
    """Draw solder that ran from one pin of the chip to the next."""
    k, side = int(rng.integers(5)), float(rng.choice([-1.0, 1.0]))
    y = side * (CHIP_Y + rng.uniform(-0.012, 0.018))
    points = np.array([[CHIP_X[k], y], [CHIP_X[k] + 0.0275, y + 0.003], [CHIP_X[k + 1], y]])
    size = rng.uniform(0.018, 0.025)
    waist = rng.uniform(0.7, 0.95)
    blob = scene.stroke(points, np.array([size, size * waist, size]))
    lift = 0.003 * np.array([math.cos(scene.light), math.sin(scene.light)])
    dome = scene.stroke(points + lift, np.array([0.70, 0.55, 0.70]) * size)
    glint = scene.stroke(points + 2.2 * lift, np.array([0.28, 0.20, 0.28]) * size)
    tone = 0.60 + 0.22 * dome + 0.24 * glint + 0.03 * scene.noise(rng, 90)
    return _mix(rgb, TIN * tone[:, :, None], blob), blob


def _cut(scene: Scene, rng: np.random.Generator, rgb: Floats) -> tuple[Floats, Floats]:
    """Draw a cut through a trace of the fan, down to the fiber."""
    line = _traces()[int(rng.integers(12))]
    (ax, ay), (bx, by) = line[1], line[2]
    t = rng.uniform(0.2, 0.8)
    size = rng.uniform(0.027, 0.037)
    edge = scene.blob(rng, (ax + t * (bx - ax), ay + t * (by - ay)), size, 0.25)
    cover = scene.cover(edge)
    weave = np.sin(scene.x * np.float32(620)) * np.sin(scene.y * np.float32(620))
    rim = np.clip(1.0 + edge / np.float32(0.008), 0.0, 1.0)
    tone = (0.92 + 0.12 * weave + 0.10 * scene.noise(rng, 90)) * (1.0 - 0.5 * rim)
    return _mix(rgb, FIBER * tone[:, :, None], cover), cover


def _scratch(scene: Scene, rng: np.random.Generator, rgb: Floats) -> tuple[Floats, Floats]:
    """Draw the scratch of a tool: pale lacquer, and bright copper where it crosses a trace."""
    t = np.linspace(0.0, 1.0, 20)
    x, y = rng.uniform(-0.20, 0.20, 2)
    heading, length = rng.uniform(0.0, math.pi), rng.uniform(0.26, 0.42)
    along = np.stack([np.cos(heading + 0.25 * (t - 0.5)), np.sin(heading + 0.25 * (t - 0.5))], 1)
    points = np.array([x, y]) + along * ((t - 0.5) * length)[:, None]
    width = rng.uniform(0.0046, 0.0062) * (0.45 + 0.55 * np.sin(math.pi * t) ** 0.5)
    cover = scene.stroke(points, width * rng.uniform(0.8, 1.2, t.size))
    pale = (
        np.array([0.66, 0.70, 0.60], np.float32) * (0.95 + 0.12 * scene.noise(rng, 200))[:, :, None]
    )
    return _mix(rgb, pale, cover * np.float32(rng.uniform(0.80, 0.95))), cover


def _corrode(
    scene: Scene, rng: np.random.Generator, rgb: Floats, pads: Floats
) -> tuple[Floats, Floats]:
    """Draw corrosion: dark brown pads, with a bluish crust on the lacquer around them."""
    boxes = _boxes()
    at = boxes[int(rng.integers(len(boxes)))]
    edge = scene.blob(rng, (at.x, at.y), rng.uniform(0.038, 0.06), 0.40)
    patch = np.clip(0.5 - edge / np.float32(0.012), 0.0, 1.0)
    mottle = np.clip(0.70 + 0.30 * scene.noise(rng, 80), 0.3, 1.0)
    crust = (
        np.array([0.42, 0.62, 0.56], np.float32) * (0.8 + 0.3 * scene.noise(rng, 120))[:, :, None]
    )
    brown = (
        np.array([0.33, 0.20, 0.11], np.float32) * (0.9 + 0.4 * scene.noise(rng, 120))[:, :, None]
    )
    color = _mix(crust, brown, pads)
    return _mix(rgb, color, patch * mottle * np.float32(rng.uniform(0.8, 0.95))), patch


def _misprint(scene: Scene, rng: np.random.Generator, good: Floats) -> tuple[Floats, Floats]:
    """Draw the name printed twice, or wiped while the ink was wet."""
    name, (x, y), height = LABELS[0]
    dx = float(rng.choice([-1.0, 1.0]) * rng.uniform(0.030, 0.055))
    dy = float(rng.choice([-1.0, 1.0]) * rng.uniform(0.028, 0.045))
    wiped = rng.random() < 0.5
    layer = _Layer(scene)
    # From the far, pale end back to the name, so that the fresher ink lies on top.
    for t in np.linspace(1.0, 0.08, 13) if wiped else (1.0,):
        fill = round(255 * (0.85 - 0.45 * float(t))) if wiped else 255
        layer.text(name, (x + float(t) * dx, y + float(t) * dy), height, fill)
    bad = np.maximum(good, layer.coverage())
    wrong = Image.fromarray(((bad - good > 0.2) * np.uint8(255)).astype(np.uint8))
    return bad, np.asarray(wrong.filter(ImageFilter.MaxFilter(5)), np.float32) / np.float32(255)
