"""The contact sheet: one picture of a whole run, with every part above its heat map in a frame of
the color of its verdict."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from anoco_edge.errors import UsageError

Color = tuple[int, int, int]

MAX_WIDTH = 1600
MIN_THUMB = 48
MARGIN, GAP, FRAME = 28, 14, 3
TITLE, HEAD, CAPTION = 58, 40, 30  # heights of the title, a row's name and a cell's caption

GROUND: Color = (17, 20, 26)
TILE: Color = (28, 33, 42)
INK: Color = (236, 240, 245)
PALE: Color = (140, 150, 165)
VERDICTS: dict[str, Color] = {
    "good": (52, 199, 123),
    "anomalous": (240, 82, 82),
    "uncalibrated": (245, 166, 35),
}


@dataclass(frozen=True)
class Cell:
    """One inspected part."""

    picture: NDArray[np.uint8]
    overlay: NDArray[np.uint8]
    caption: str
    verdict: str
    correct: bool


def contact_sheet(
    rows: Sequence[tuple[str, Sequence[Cell]]], *, title: str, thumb: int = 168
) -> Image.Image:
    """Lay out the parts, each group under its name, on a sheet that is at most 1600 pixels wide.

    >>> gray = np.full((32, 32, 3), 128, np.uint8)
    >>> cell = Cell(gray, gray, "scratch  3.1x", "anomalous", correct=True)
    >>> contact_sheet([("washer", [cell] * 4)], title="demo", thumb=100).size
    (522, 376)
    """
    widest = (MAX_WIDTH - 2 * MARGIN - GAP) // 2 - 2 * FRAME  # at least two cells side by side
    if not MIN_THUMB <= thumb <= widest:
        raise UsageError(
            f"a thumbnail of {thumb} pixels does not fit a sheet",
            hint=f"use {MIN_THUMB} to {widest}",
        )
    cell_w, cell_h = thumb + 2 * FRAME, 2 * thumb + 2 * FRAME + CAPTION
    fit = (MAX_WIDTH - 2 * MARGIN + GAP) // (cell_w + GAP)
    across = max(1, min(fit, max((len(cells) for _, cells in rows), default=1)))
    lines = [max(1, -(-len(cells) // across)) for _, cells in rows]
    width = 2 * MARGIN + across * (cell_w + GAP) - GAP
    height = TITLE + sum(HEAD + n * (cell_h + GAP) for n in lines) + MARGIN
    sheet = Image.new("RGB", (width, height), GROUND)
    _heading(sheet, title)
    top = TITLE + GAP
    for (name, cells), n in zip(rows, lines, strict=True):
        _row_name(sheet, name, cells, top)
        for k, cell in enumerate(cells):
            left = MARGIN + (k % across) * (cell_w + GAP)
            _draw_cell(sheet, cell, (left, top + HEAD + (k // across) * (cell_h + GAP)), thumb)
        top += HEAD + n * (cell_h + GAP)
    return sheet


@functools.cache  # fitting a caption needs the same few sizes many times
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


def _fitted(pen: ImageDraw.ImageDraw, text: str, size: int, room: float) -> tuple[str, int]:
    """Fit a text into the room, first with smaller letters and then with fewer; returns the text
    and the font size."""
    while size > 10 and pen.textlength(text, _font(size)) > room:
        size -= 1
    while len(text) > 4 and pen.textlength(text, _font(size)) > room:
        text = text[:-4].rstrip(" .") + "..."
    return text, size


def _heading(sheet: Image.Image, title: str) -> None:
    """Draw the title on the left, and on the right the legend of the colors, where it fits."""
    pen = ImageDraw.Draw(sheet)
    text, size = _fitted(pen, title, 24, sheet.width - 2 * MARGIN)
    pen.text((MARGIN, 38), text, INK, _font(size), anchor="lm")
    taken = MARGIN + pen.textlength(text, _font(size))
    font, right = _font(14), float(sheet.width - MARGIN)
    legend: list[tuple[float, str, Color]] = []
    for name, color in reversed(VERDICTS.items()):
        right -= pen.textlength(name, font)
        legend.append((right, name, color))
        right -= 36
    if right < taken:
        return
    for x, name, color in legend:
        pen.text((x, 38), name, PALE, font, anchor="lm")
        pen.rounded_rectangle((x - 18, 32, x - 6, 44), 3, fill=color)


def _row_name(sheet: Image.Image, name: str, cells: Sequence[Cell], top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    right = sum(cell.correct for cell in cells)
    tally = f"{right} of {len(cells)} right"
    room = sheet.width - 2 * MARGIN - pen.textlength(tally, _font(14)) - 16
    text, size = _fitted(pen, name, 19, room)
    pen.text((MARGIN, top + 18), text, INK, _font(size), anchor="lm")
    pen.text((sheet.width - MARGIN, top + 18), tally, PALE, _font(14), anchor="rm")


def _draw_cell(sheet: Image.Image, cell: Cell, at: tuple[int, int], thumb: int) -> None:
    """Draw the part above its overlay and the caption, in a frame of the verdict's color."""
    pen, (x, y) = ImageDraw.Draw(sheet), at
    color = VERDICTS.get(cell.verdict)
    if color is None:
        raise UsageError(f"unknown verdict {cell.verdict!r}", hint=f"use {', '.join(VERDICTS)}")
    w, h = thumb + 2 * FRAME, 2 * thumb + 2 * FRAME + CAPTION
    pen.rounded_rectangle((x, y, x + w - 1, y + h - 1), 7, fill=TILE, outline=color, width=FRAME)
    sheet.paste(_thumbnail(cell.picture, thumb), (x + FRAME, y + FRAME))
    sheet.paste(_thumbnail(cell.overlay, thumb), (x + FRAME, y + FRAME + thumb))
    pen.line((x + FRAME, y + FRAME + thumb, x + w - FRAME - 1, y + FRAME + thumb), GROUND, 2)
    middle = y + FRAME + 2 * thumb + CAPTION // 2
    pen.ellipse((x + 11, middle - 5, x + 21, middle + 5), fill=color)
    text, size = _fitted(pen, cell.caption, 15, w - 28 - 10)
    pen.text((x + 28, middle), text, INK, _font(size), anchor="lm")
    if not cell.correct:
        _wrong_mark(pen, x + w - FRAME - 16, y + FRAME + 16)


def _wrong_mark(pen: ImageDraw.ImageDraw, x: int, y: int) -> None:
    """Draw a cross in a white disc, so that a wrong verdict is found without reading."""
    pen.ellipse((x - 11, y - 11, x + 11, y + 11), fill=(255, 255, 255))
    for sign in (-1, 1):
        pen.line((x - 5, y - 5 * sign, x + 5, y + 5 * sign), fill=(200, 30, 30), width=3)


def _thumbnail(rgb: NDArray[np.uint8], side: int) -> Image.Image:
    """Fit the picture into a square without changing its proportions."""
    picture = Image.fromarray(rgb)
    factor = side / max(picture.size)
    w, h = (max(1, round(factor * s)) for s in picture.size)
    square = Image.new("RGB", (side, side), TILE)
    small = picture.resize((w, h), Image.Resampling.LANCZOS)
    square.paste(small, ((side - w) // 2, (side - h) // 2))
    return square
