"""Draw one picture that shows a verdict: heat map, regions, and the reference it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from anoco_edge.errors import UsageError
from anoco_edge.reporting.colormap import colors

Picture = npt.NDArray[np.uint8]
Box = tuple[float, float, float, float]
Color = tuple[int, int, int]
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MIN_SIDE = 384  # below this a defect of a few pixels cannot be pointed at
OPAQUE = 0.62

BACKGROUND: Color = (24, 26, 30)
TEXT: Color = (236, 238, 241)
FAINT: Color = (158, 164, 173)
CONTOUR: Color = (0, 229, 255)  # cyan is on no part of the color scale
REGION: Color = (255, 255, 255)
PATCH: Color = (124, 255, 92)  # the same in both panels: these two places were compared
HALO: Color = (0, 0, 0)
CHIPS: dict[str, Color] = {
    "good": (28, 124, 66),
    "anomalous": (200, 38, 48),
    "uncalibrated": (166, 110, 0),
}


@dataclass(frozen=True)
class Match:
    """The reference patch that was closest, and the patch of the inspected picture it belongs to.

    Boxes are `x0, y0, x1, y1` in pixels of the picture they lie in.
    """

    reference: Picture
    name: str
    box: Box
    similarity: float
    query_box: Box


@dataclass(frozen=True)
class OverlayLayout:
    """Where things lie in a finished overlay; boxes are `x0, y0, x1, y1`, the ends excluded."""

    size: tuple[int, int]
    picture: tuple[int, int, int, int]
    bar: tuple[int, int, int, int]
    reference: tuple[int, int, int, int] | None
    font_size: int


def _checked(rgb: Picture, energy_map: npt.NDArray[np.floating], threshold: float | None) -> None:
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise UsageError(
            f"a picture of shape {rgb.shape} and type {rgb.dtype} cannot be drawn on",
            hint="pass a uint8 RGB array of height x width x 3",
        )
    if energy_map.shape != rgb.shape[:2]:
        raise UsageError(
            f"the energy map is {energy_map.shape} but the picture is {rgb.shape[:2]}",
            hint="enlarge the map to the picture first",
        )
    if threshold is not None and not (np.isfinite(threshold) and threshold > 0):
        raise UsageError(
            f"the threshold {threshold} is not a positive number",
            hint="pass None where there is no threshold",
        )


def _scale_end(energy_map: npt.NDArray[np.floating], threshold: float | None) -> float:
    """Return the energy that gets the last color; 0 where neither threshold nor map give one."""
    if threshold is not None:
        return 2.0 * threshold
    finite = energy_map[np.isfinite(energy_map)]
    return max(float(finite.max()), 0.0) if finite.size else 0.0


def _blend(rgb: Picture, energy_map: npt.NDArray[np.floating], end: float) -> Picture:
    if end <= 0:
        return rgb.copy()
    energy = np.asarray(energy_map, dtype=np.float32)
    # Places that were not scored (NaN, outside the region of interest) stay clear.
    fraction = np.nan_to_num(np.clip(energy / np.float32(end), 0, 1), nan=0.0)
    # With a smoothstep the noise of good parts stays almost clear, and the threshold (0.5) is well
    # covered.
    t = np.minimum(fraction / 0.75, 1.0)
    alpha = (OPAQUE * t * t * (3 - 2 * t))[..., None]
    mixed: npt.NDArray[np.float32] = rgb * (1 - alpha) + colors(fraction) * alpha
    return np.rint(mixed).astype(np.uint8)


def heat(
    rgb: Picture, energy_map: npt.NDArray[np.floating], threshold: float | None
) -> npt.NDArray[np.uint8]:
    """Lay the heat map over the picture; color and opacity rise from 0 to twice the threshold.

    The threshold fixes the scale, so two pictures of one product can be compared by eye. Where
    there is none, the scale ends at the maximum of the map.

    >>> gray = np.full((2, 2, 3), 128, np.uint8)
    >>> heat(gray, np.array([[0, 0], [0, 9]], np.float32), threshold=1.0)[..., 0].tolist()
    [[128, 128], [128, 207]]
    """
    _checked(rgb, energy_map, threshold)
    return _blend(rgb, energy_map, _scale_end(energy_map, threshold))


def _fitted(width: int, height: int, side: int) -> tuple[int, int]:
    scale = side / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def plan_overlay(
    picture: tuple[int, int], reference: tuple[int, int] | None, max_side: int = 1024
) -> OverlayLayout:
    """Place the panels for pictures of these sizes (width, height).

    >>> plan_overlay((128, 128), None).picture
    (14, 70, 398, 454)
    """
    if max_side < 16:
        raise UsageError(f"max_side {max_side} is too small", hint="16 pixels are the least")
    side = min(max(*picture, MIN_SIDE), max_side)
    font_size = min(max(round(side / 44), 14), 22)
    gap = font_size
    panels = [_fitted(*size, side) for size in (picture, reference) if size is not None]
    # A thin panel is centered in a wider cell, so that captions and color bar keep their room.
    cells = [max(w, MIN_SIDE) for w, _ in panels]
    width = sum(cells) + gap * (len(cells) + 1)
    header_lines = 1 if width >= 42 * font_size else 2
    top = gap + header_lines * 2 * font_size
    bottom = top + max(h for _, h in panels)
    placed, left = [], gap
    for (w, h), cell in zip(panels, cells, strict=True):
        x = left + (cell - w) // 2
        placed.append((x, top, x + w, top + h))
        left += cell + gap
    bar_top = bottom + gap // 2
    return OverlayLayout(
        size=(width, bar_top + 3 * font_size + gap),
        picture=placed[0],
        bar=(gap, bar_top, gap + cells[0], bar_top + font_size),
        reference=placed[1] if reference is not None else None,
        font_size=font_size,
    )


def _resized(rgb: Picture, box: tuple[int, int, int, int]) -> Picture:
    size = (box[2] - box[0], box[3] - box[1])
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR))


def _resized_map(
    values: npt.NDArray[np.floating], box: tuple[int, int, int, int], end: float
) -> npt.NDArray[np.float32]:
    size = (box[2] - box[0], box[3] - box[1])
    # One NaN or infinity would spread over all pixels that the filter touches.
    clean = np.nan_to_num(np.clip(values.astype(np.float32), 0.0, end), nan=0.0)
    return np.asarray(Image.fromarray(clean).resize(size, Image.Resampling.BILINEAR))


def _neighbors(mask: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.bool_]]:
    padded = np.pad(mask, 1)
    h, w = mask.shape
    return [padded[dy : dy + h, dx : dx + w] for dy in range(3) for dx in range(3)]


def _contour(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a line of two pixels: the last one inside and the first one outside."""
    around = _neighbors(mask)
    grown = np.logical_or.reduce(around)
    shrunk = np.logical_and.reduce(around)
    return np.asarray(grown & ~shrunk, dtype=np.bool_)


def _draw_contour(
    panel: Picture, outline: npt.NDArray[np.bool_], box: tuple[int, int, int, int]
) -> None:
    size = (box[2] - box[0], box[3] - box[1])
    covered = Image.fromarray(outline.astype(np.uint8) * 255).resize(size, Image.Resampling.BOX)
    # Any coverage counts, so that shrinking a large picture does not lose a small region.
    line = _contour(np.asarray(covered) > 0)
    panel[np.logical_or.reduce(_neighbors(line)) & ~line] //= 3
    panel[line] = CONTOUR


def _to_canvas(box: Box, source: tuple[int, int], panel: tuple[int, int, int, int]) -> list[int]:
    """Return the corners, on the canvas, of a box in a picture of this width and height."""
    sx, sy = (panel[2] - panel[0]) / source[0], (panel[3] - panel[1]) / source[1]
    x0, x1 = sorted((box[0] * sx, box[2] * sx))
    y0, y1 = sorted((box[1] * sy, box[3] * sy))
    raw = (panel[0] + x0, panel[1] + y0, panel[0] + x1 - 1, panel[1] + y1 - 1)
    return [int(np.clip(round(v), panel[i % 2], panel[2 + i % 2] - 1)) for i, v in enumerate(raw)]


def _rectangle(draw: ImageDraw.ImageDraw, corners: list[int], color: Color, width: int) -> None:
    x0, y0 = corners[:2]
    x1, y1 = max(corners[2], x0), max(corners[3], y0)
    # A dark line on both sides keeps a bright box visible on a bright part.
    draw.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline=HALO, width=width + 2)
    draw.rectangle((x0, y0, x1, y1), outline=color, width=width)


def _shortened(text: str, font: _Font, width: float) -> str:
    """Cut a text in the middle, because the end of a file name tells more than its center."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    if font.getlength(clean) <= width:
        return clean
    for keep in range(len(clean) - 1, 1, -1):
        short = clean[: (keep + 1) // 2] + "..." + clean[len(clean) - keep // 2 :]
        if font.getlength(short) <= width:
            return short
    return "..."


def _draw_header(
    draw: ImageDraw.ImageDraw,
    layout: OverlayLayout,
    *,
    score: float,
    threshold: float | None,
    verdict: str,
    kind: str,
) -> None:
    size = layout.font_size
    font = ImageFont.load_default(size)
    chip = verdict.upper()
    x, middle = float(size), size * 1.75
    wide = font.getlength(chip) + size
    draw.rounded_rectangle(
        (x, middle - size * 0.85, x + wide, middle + size * 0.85),
        radius=size * 0.4,
        fill=CHIPS.get(verdict, FAINT),
    )
    draw.text((x + size / 2, middle), chip, fill=(255, 255, 255), font=font, anchor="lm")
    x += wide + size
    words = [(f"score {score:.4g}", TEXT)]
    if threshold is None:
        words.append(("no threshold", FAINT))
    else:
        words.append((f"ratio {score / threshold:.2f}x threshold", TEXT))
    if kind == "provisional":
        words.append(("(provisional threshold)", FAINT))
    for text, color in words:
        length = font.getlength(text)
        if x + length > layout.size[0] - size and x > size:
            x, middle = float(size), middle + 2 * size
        draw.text((x, middle), text, fill=color, font=font, anchor="lm")
        x += length + size


def _draw_bar(
    canvas: Image.Image, layout: OverlayLayout, end: float, threshold: float | None
) -> None:
    x0, y0, x1, y1 = layout.bar
    gray = np.full((y1 - y0, x1 - x0, 3), 128, np.uint8)
    ramp = np.broadcast_to(np.linspace(0.0, 1.0, x1 - x0), gray.shape[:2])
    # The bar is blended like the picture, so that equal energies look equal in both.
    canvas.paste(Image.fromarray(_blend(gray, ramp, 1.0 if end > 0 else 0.0)), (x0, y0))
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(max(layout.font_size - 2, 12))
    label_y = y1 + layout.font_size * 0.45
    ticks = [(x0, "0", "la")]
    if threshold is not None:
        ticks.append(((x0 + x1) // 2, f"threshold {threshold:.4g}", "ma"))
        ticks.append((x1 - 1, f"2x = {end:.4g}", "ra"))
    elif end > 0:
        ticks.append((x1 - 1, f"maximum {end:.4g}", "ra"))
    for x, text, anchor in ticks:
        draw.line((x, y0, x, y1 + layout.font_size // 4), fill=TEXT)
        draw.text((x, label_y), text, fill=FAINT, font=font, anchor=anchor)


def _draw_reference(
    canvas: Image.Image, layout: OverlayLayout, panel: tuple[int, int, int, int], match: Match
) -> None:
    canvas.paste(Image.fromarray(_resized(match.reference, panel)), panel[:2])
    draw = ImageDraw.Draw(canvas)
    height, width = match.reference.shape[:2]
    _rectangle(draw, _to_canvas(match.box, (width, height), panel), PATCH, 2)
    font = ImageFont.load_default(max(layout.font_size - 1, 12))
    left, right = layout.bar[2] + layout.font_size, layout.size[0] - layout.font_size
    name = _shortened(f"closest reference: {match.name}", font, right - left)
    draw.text((left, layout.bar[1]), name, fill=TEXT, font=font)
    similar = f"similarity {match.similarity:.3f}"
    draw.text((left, layout.bar[1] + layout.font_size * 1.45), similar, fill=FAINT, font=font)


def draw_overlay(
    rgb: Picture,
    energy_map: npt.NDArray[np.floating],
    *,
    score: float,
    threshold: float | None,
    verdict: str,
    kind: str,
    regions: Sequence[Box],
    outline: npt.NDArray[np.bool_] | None,
    match: Match | None,
    max_side: int = 1024,
) -> Image.Image:
    """Draw heat map, regions and color bar of one picture, and the closest reference beside it.

    >>> part = np.full((64, 96, 3), 90, np.uint8)
    >>> draw_overlay(part, np.zeros((64, 96), np.float32), score=0.2, threshold=1.0, verdict="good",
    ...              kind="manual", regions=[], outline=None, match=None).size
    (412, 389)
    """
    _checked(rgb, energy_map, threshold)
    if outline is not None and outline.shape != rgb.shape[:2]:
        raise UsageError(
            f"the outline is {outline.shape} but the picture is {rgb.shape[:2]}",
            hint="enlarge the mask to the picture first",
        )
    height, width = rgb.shape[:2]
    beside = None if match is None else (match.reference.shape[1], match.reference.shape[0])
    layout = plan_overlay((width, height), beside, max_side)
    canvas = Image.new("RGB", layout.size, BACKGROUND)
    # The picture is shrunk before it is colored, so that 20 megapixels cost no more than the panel.
    end = _scale_end(energy_map, threshold)
    energy = _resized_map(energy_map, layout.picture, end)
    panel = _blend(_resized(rgb, layout.picture), energy, end)
    if outline is not None and outline.any():
        _draw_contour(panel, outline, layout.picture)
    canvas.paste(Image.fromarray(panel), layout.picture[:2])
    draw = ImageDraw.Draw(canvas)
    for region in regions:
        _rectangle(draw, _to_canvas(region, (width, height), layout.picture), REGION, 1)
    if match is not None:
        patch = _to_canvas(match.query_box, (width, height), layout.picture)
        _rectangle(draw, patch, PATCH, 2)
    _draw_header(draw, layout, score=score, threshold=threshold, verdict=verdict, kind=kind)
    _draw_bar(canvas, layout, end, threshold)
    if match is not None and layout.reference is not None:
        _draw_reference(canvas, layout, layout.reference, match)
    return canvas
