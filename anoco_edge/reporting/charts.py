"""Charts without a plotting library: a few shapes, as SVG for pages and as PNG for files."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from anoco_edge.errors import UsageError
from anoco_edge.scoring.conformal import checked_scores
from anoco_edge.text.plain_text import html_text

# The colors of Okabe and Ito can be told apart with any kind of color vision.
GOOD, DEFECT, THRESHOLD = "#0072b2", "#e69f00", "#8b0000"
PALETTE = (GOOD, DEFECT, "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
INK, QUIET, GRID, AXIS = "#1b1f26", "#565f6b", "#e6e9ee", "#8a929e"
BACKGROUND, BAND = "#ffffff", "#f3e5e5"
# A page draws these colors as its own style sheet says (html_shell.css), light or dark. They are
# told apart by the class of a shape; elsewhere a chart has the colors above.
_CLASSES = {
    GOOD: "blue",
    INK: "title",
    QUIET: "label",
    GRID: "grid",
    AXIS: "axis",
    THRESHOLD: "threshold",
    BACKGROUND: "background",
    BAND: "band",
}
FONT_SIZE = 12
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 64, 48  # the margins around the plot
DASH, GAP = 6, 4
LOG_FROM = 50  # scores that span a larger factor have a logarithmic axis


class Line(NamedTuple):
    """A polyline; only a line with two points may be `dashed`."""

    points: tuple[tuple[float, float], ...]
    color: str
    width: float = 1.0
    dashed: bool = False


class Box(NamedTuple):
    """A filled rectangle; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    color: str
    opacity: float = 1.0


class Dot(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    radius: float
    color: str


class Text(NamedTuple):
    """A short text; y is the middle of the line, `anchor` is start, middle or end."""

    x: float
    y: float
    words: str
    anchor: str = "start"
    color: str = QUIET
    size: int = FONT_SIZE
    turned: bool = False  # rotated by 90 degrees to the left


Shape = Line | Box | Dot | Text


class Series(NamedTuple):
    """A curve and its name in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Marker(NamedTuple):
    """A single point with a label."""

    x: float
    y: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Shapes on a white background, in the order in which they are drawn."""

    width: int
    height: int
    shapes: tuple[Shape, ...]
    title: str

    def svg(self) -> str:
        """Return the chart as an SVG element, which a page may color by its style sheet."""
        title, background = html_text(self.title), paint_attributes("fill", BACKGROUND)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'class="chart" role="img" aria-label="{title}" '
            "font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\">"
            f'<rect width="{self.width}" height="{self.height}" {background}/>'
            f"{''.join(_as_svg(shape) for shape in self.shapes)}</svg>"
        )

    def png(self, scale: int = 2) -> bytes:
        """Return the chart as a PNG file with `scale` pixels for each unit."""
        # Pillow draws lines with hard edges. Drawing at twice the size and averaging smooths them.
        fine = 2 * scale
        image = Image.new("RGB", (self.width * fine, self.height * fine), BACKGROUND)
        draw = ImageDraw.Draw(image, "RGBA")
        for shape in self.shapes:
            _paint(image, draw, shape, fine)
        held = io.BytesIO()
        image.reduce(2).save(held, format="PNG", optimize=True)
        return held.getvalue()


def paint_attributes(attribute: str, color: str) -> str:
    """Return the SVG attribute that paints a shape, and the class by which a page repaints it.

    >>> paint_attributes("fill", DEFECT), paint_attributes("stroke", GRID)
    ('fill="#e69f00"', 'stroke="#e6e9ee" class="grid"')
    """
    name = _CLASSES.get(color)
    return f'{attribute}="{color}"' + (f' class="{name}"' if name else "")


def _as_svg(shape: Shape) -> str:
    if isinstance(shape, Line):
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
        dashes = f' stroke-dasharray="{DASH} {GAP}"' if shape.dashed else ""
        return (
            f'<polyline points="{points}" fill="none" {paint_attributes("stroke", shape.color)} '
            f'stroke-width="{shape.width}" stroke-linejoin="round"{dashes}/>'
        )
    if isinstance(shape, Box):
        return (
            f'<rect x="{shape.x:.2f}" y="{shape.y:.2f}" width="{shape.width:.2f}" '
            f'height="{shape.height:.2f}" {paint_attributes("fill", shape.color)} '
            f'fill-opacity="{shape.opacity}"/>'
        )
    if isinstance(shape, Dot):
        x, y, radius, color = shape
        return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius}" {paint_attributes("fill", color)}/>'
    turn = f' transform="rotate(-90 {shape.x:.2f} {shape.y:.2f})"' if shape.turned else ""
    return (
        f'<text x="{shape.x:.2f}" y="{shape.y:.2f}" text-anchor="{shape.anchor}" dy="0.35em" '
        f'{paint_attributes("fill", shape.color)} font-size="{shape.size}"{turn}>'
        f"{html_text(shape.words)}</text>"
    )


def _paint(image: Image.Image, draw: ImageDraw.ImageDraw, shape: Shape, scale: int) -> None:
    if isinstance(shape, Line):
        width = max(round(shape.width * scale), 1)
        for piece in _dashes(shape) if shape.dashed else [shape.points]:
            draw.line([(x * scale, y * scale) for x, y in piece], shape.color, width, "curve")
    elif isinstance(shape, Box):
        right, lower = (shape.x + shape.width) * scale, (shape.y + shape.height) * scale
        # Pillow also paints the last row and column.
        box = (shape.x * scale, shape.y * scale, right - 1, lower - 1)
        if box[2] >= box[0] and box[3] >= box[1]:
            draw.rectangle(box, f"{shape.color}{round(255 * shape.opacity):02x}")
    elif isinstance(shape, Dot):
        x, y, r = shape.x * scale, shape.y * scale, shape.radius * scale
        draw.ellipse((x - r, y - r, x + r, y + r), shape.color)
    else:
        _write(image, draw, shape, scale)


def _dashes(line: Line) -> list[tuple[tuple[float, float], ...]]:
    (x0, y0), (x1, y1) = line.points
    length = math.hypot(x1 - x0, y1 - y0)
    pieces: list[tuple[tuple[float, float], ...]] = []
    for start in np.arange(0, length, DASH + GAP):
        ends = (start / length, min(start + DASH, length) / length)
        pieces.append(tuple((x0 + t * (x1 - x0), y0 + t * (y1 - y0)) for t in ends))
    return pieces


def _write(image: Image.Image, draw: ImageDraw.ImageDraw, text: Text, scale: int) -> None:
    font = ImageFont.load_default(text.size * scale)
    x, y = text.x * scale, text.y * scale
    if not text.turned:
        anchor = {"start": "lm", "middle": "mm", "end": "rm"}[text.anchor]
        draw.text((x, y), text.words, text.color, font, anchor)
        return
    long, high = math.ceil(font.getlength(text.words)), 2 * text.size * scale
    stencil = Image.new("L", (long, high))
    ImageDraw.Draw(stencil).text((0, high / 2), text.words, 255, font, "lm")
    stencil = stencil.transpose(Image.Transpose.ROTATE_90)
    lift = {"start": 1.0, "middle": 0.5, "end": 0.0}[text.anchor] * long
    image.paste(text.color, (round(x - high / 2), round(y - lift)), stencil)


@dataclass(frozen=True)
class _Scale:
    """Maps values to places along one axis."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        if not self.log:
            return _round_steps(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = range(first, last + 1, max((last - first) // 6, 1))
        digits = (1, 2, 5) if last - first <= 4 else (1,)
        values = [float(f"{d}e{k}") for k in decades for d in digits]
        return [v for v in values if self.low <= v <= self.high]


def _round_steps(low: float, high: float) -> list[float]:
    """Return about six round numbers between two others."""
    rough = (high - low) / 6
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(d for d in (1, 2, 5, 10) if d * unit >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _frame(
    x: _Scale, y: _Scale, x_label: str, y_label: str, title: str, legend: Sequence[tuple[str, str]]
) -> list[Shape]:
    """Draw grid, axes, ticks, labels, title, and a legend of (name, color) under the title."""
    shapes: list[Shape] = []
    for value in x.ticks():
        shapes.append(Line(((x(value), y.start), (x(value), y.stop)), GRID))
        shapes.append(Text(x(value), y.start + 14, f"{value:.6g}", "middle"))
    for value in y.ticks():
        shapes.append(Line(((x.start, y(value)), (x.stop, y(value))), GRID))
        shapes.append(Text(x.start - 8, y(value), f"{value:.6g}", "end"))
    shapes.append(Line(((x.start, y.stop), (x.start, y.start), (x.stop, y.start)), AXIS))
    shapes.append(Text((x.start + x.stop) / 2, y.start + 34, x_label, "middle"))
    shapes.append(Text(16, (y.start + y.stop) / 2, y_label, "middle", turned=True))
    shapes.append(Text(x.start, 16, title, color=INK, size=FONT_SIZE + 2))
    place = x.start
    for name, color in legend:
        shapes.append(Box(place, 32, 10, 10, color))
        shapes.append(Text(place + 15, 37, name))
        place += 36 + 0.58 * FONT_SIZE * len(name)  # the mean width of a letter
    return shapes


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the span from 0 (or below) to the largest value; it is never empty."""
    low, high = min(0.0, *values), max(0.0, *values)
    return low, high if high > low else low + 1


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    width: int = 560,
    height: int = 360,
    markers: Sequence[Marker] = (),
) -> Chart:
    """Chart several curves; the axes reach from 0 (or below) to the largest value.

    >>> chart = line_chart([Series("a", [0, 1], [0, 1])], x_label="x", y_label="y", title="t")
    >>> chart.width, chart.svg().count("<polyline ")
    (560, 14)
    """
    points = [(x, y) for s in series for x, y in zip(s.x, s.y, strict=True)]
    points += [(m.x, m.y) for m in markers]
    if not points or not np.isfinite(points).all():
        raise UsageError(f"chart {title!r} lacks finite points", hint="give x and y as numbers")
    across, up = zip(*points, strict=True)
    x = _Scale(*_span(across), LEFT, width - RIGHT)
    y = _Scale(*_span(up), height - BOTTOM, TOP)
    colors = [PALETTE[k % len(PALETTE)] for k in range(len(series))]
    legend = [(s.name, c) for s, c in zip(series, colors, strict=True) if s.name]
    shapes = _frame(x, y, x_label, y_label, title, legend)
    for one, color in zip(series, colors, strict=True):
        places = tuple((x(a), y(b)) for a, b in zip(one.x, one.y, strict=True))
        shapes.append(Line(places, color, 2))
    for marker in markers:
        at = (x(marker.x), y(marker.y))
        shapes.append(Dot(*at, 4.5, THRESHOLD))
        shapes.append(_beside(at[0], at[1] - 11, marker.label, width))
    return Chart(width, height, tuple(shapes), title)


def _beside(x: float, y: float, words: str, width: int) -> Text:
    """Put a label to the right of a point, or to the left where there is no room."""
    if x > width * 0.6:
        return Text(x - 9, y, words, "end", THRESHOLD)
    return Text(x + 9, y, words, "start", THRESHOLD)


def histogram_chart(
    good: Sequence[float],
    *,
    threshold: float,
    between: tuple[float, float] | None = None,
    defects: Sequence[float] = (),
    title: str = "Scores of good parts",
    width: int = 760,
    height: int = 340,
) -> Chart:
    """Chart the distribution of scores and the threshold.

    `between` is shaded: the range within which the threshold is known to lie, as
    `anoco_edge.scoring.conformal.score_range` gives it; an infinite end reaches the chart's edge.

    >>> "threshold 3" in histogram_chart([1, 2, 3, 4], threshold=3, between=(2, 4)).svg()
    True
    """
    low, high, log = _score_axis(checked_scores([*good, *defects, threshold]).tolist())
    bins = min(max(math.ceil(2 * math.sqrt(len(good) + len(defects))), 10), 40)
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    groups = [("good", GOOD, good)] + ([("defective", DEFECT, defects)] if len(defects) else [])
    counts = [np.histogram(np.clip(scores, low, high), edges)[0] for _, _, scores in groups]
    x = _Scale(low, high, LEFT, width - RIGHT, log)
    y = _Scale(0, 1.08 * max(int(np.max(counts)), 1), height - BOTTOM, TOP)
    legend = [(f"{name} ({len(scores)})", color) for name, color, scores in groups]
    shapes: list[Shape] = []
    if between is not None:
        left, right = x(between[0]), x(between[1])
        shapes.append(Box(left, y.stop, right - left, y.start - y.stop, THRESHOLD, 0.1))
        legend.append(("range of the threshold (90 %)", BAND))
    shapes += _frame(x, y, "score (logarithmic)" if log else "score", "parts", title, legend)
    for (_, color, _), column in zip(groups, counts, strict=True):
        for count, a, b in zip(column.tolist(), edges[:-1], edges[1:], strict=True):
            if count:
                box = Box(x(a) + 0.5, y(count), x(b) - x(a) - 1, y.start - y(count), color, 0.75)
                shapes.append(box)
    at = x(threshold)
    shapes.append(Line(((at, y.start), (at, y.stop - 12)), THRESHOLD, 1.5, dashed=True))
    shapes.append(_beside(at, y.stop - 7, f"threshold {threshold:.4g}", width))
    return Chart(width, height, tuple(shapes), title)


def _score_axis(scores: Sequence[float]) -> tuple[float, float, bool]:
    """Return the range of the scores, and whether a logarithmic axis shows it better."""
    high = max(scores)
    # Scores a million times below the highest, and 0, count in the first bar.
    low = max(min((s for s in scores if s > 0), default=0.0), high * 1e-6)
    if low > 0 and high > LOG_FROM * low:
        return low / 1.1, high * 1.1, True
    margin = 0.05 * (high - min(scores)) or 0.05 * high or 1.0
    return max(min(scores) - margin, 0.0), high + margin, False
