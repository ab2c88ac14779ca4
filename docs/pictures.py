"""Makes the pictures of the site that come in light and dark.

    python docs/pictures.py --write

draws docs/assets/pipeline-light.svg and pipeline-dark.svg, and docs/calibration-dark.png from
calibration.png (which `anoco-edge calibrate` drew). A test holds the files to this script.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 960, 372
DARK_PAGE = (30, 33, 41)  # the page of the theme's dark scheme
WHITE = 255


@dataclass(frozen=True)
class Colors:
    """The colors of one scheme."""

    text: str
    faint: str
    line: str
    stage: str
    stored: str
    accent: str


SCHEMES = {
    "light": Colors("#1f2933", "#5f6c7b", "#90a4ae", "#e0f2f1", "#f5f5f5", "#d84315"),
    "dark": Colors("#e6e9ee", "#a3adba", "#6b7785", "#17403b", "#2b303b", "#ff8a65"),
}


def pipeline(colors: Colors) -> str:
    """Return the drawing of how a picture becomes a verdict with the help of the bundle."""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" '
            'font-size="15">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colors.line}"/>'
            "</marker></defs>",
            *_device(colors),
            *_bundle(colors),
            *_workstation(colors),
            "</svg>\n",
        )
    )


def _device(colors: Colors) -> Iterator[str]:
    stages = (
        ("picture", "camera, file"),
        ("preprocess", "size, colors"),
        ("engine", "patch features"),
        ("scorer", "energies"),
        ("map", "and regions"),
        ("verdict", "good or not"),
    )
    yield _text(20, 26, "on the device, without torch", colors.faint, "start")
    for k, (name, note) in enumerate(stages):
        left = 20 + k * 158
        edge = colors.accent if name in ("picture", "verdict") else colors.line
        yield _box(left, 42, 130, 62, colors.stage, edge)
        yield _text(left + 65, 68, name, colors.text, weight=600)
        yield _text(left + 65, 90, note, colors.faint, size=13)
        if k:
            yield _arrow(left - 28, 73, left - 3, 73, colors)


def _bundle(colors: Colors) -> Iterator[str]:
    yield _box(178, 172, 604, 86, colors.stored, colors.line)
    yield _text(480, 196, "NAME.anoco/, the bundle", colors.text, weight=600)
    parts = ("manifest", "graphs", "self-test", "bank", "threshold", "references")
    for k, part in enumerate(parts):
        yield _text(242 + k * 95, 232, part, colors.faint)
    yield _arrow(337, 172, 400, 107, colors)  # graphs to the engine
    yield _arrow(527, 172, 559, 107, colors)  # bank to the scorer
    yield _arrow(622, 172, 864, 107, colors)  # threshold to the verdict


def _workstation(colors: Colors) -> Iterator[str]:
    yield _text(20, 352, "once, before", colors.faint, "start")
    for left, width, name, note in (
        (178, 288, "export, on a workstation", "backbone to ONNX, compared with torch"),
        (494, 288, "enroll, calibrate", "good parts become bank and threshold"),
    ):
        yield _box(left, 300, width, 62, colors.stage, colors.line)
        yield _text(left + width / 2, 326, name, colors.text, weight=600)
        yield _text(left + width / 2, 348, note, colors.faint, size=13)
        yield _arrow(left + width / 2, 300, left + width / 2, 261, colors)


def _box(left: float, top: float, width: float, height: float, fill: str, edge: str) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{fill}" '
        f'stroke="{edge}" stroke-width="1.5"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    color: str,
    anchor: str = "middle",
    *,
    size: int = 15,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:g}" y="{y}" fill="{color}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}">{text}</text>'
    )


def _arrow(x0: float, y0: float, x1: float, y1: float, colors: Colors) -> str:
    return (
        f'<path d="M{x0:g} {y0:g} {x1:g} {y1:g}" stroke="{colors.line}" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )


def darkened(chart: Image.Image) -> Image.Image:
    """Return a chart on white as one on the dark page: lightness is turned round, hues stay."""
    rgb = np.asarray(chart.convert("RGB"), dtype=np.float64)
    lightness = (rgb.max(axis=2, keepdims=True) + rgb.min(axis=2, keepdims=True)) / 2
    turned = rgb + (WHITE - 2 * lightness)  # the same hue and chroma around the other lightness
    page = np.array(DARK_PAGE, dtype=np.float64)
    scaled = page + turned / WHITE * (WHITE - page)
    return Image.fromarray(np.clip(np.rint(scaled), 0, WHITE).astype(np.uint8))


def pictures() -> dict[Path, str | Image.Image]:
    """Return every picture by its path."""
    drawn: dict[Path, str | Image.Image] = {
        FOLDER / "assets" / f"pipeline-{name}.svg": pipeline(colors)
        for name, colors in SCHEMES.items()
    }
    with Image.open(FOLDER / "calibration.png") as chart:
        drawn[FOLDER / "calibration-dark.png"] = darkened(chart)
    return drawn


def main() -> None:
    """Write the pictures if asked to, and say which there are."""
    for path, picture in pictures().items():
        sys.stdout.write(f"{path.relative_to(FOLDER.parent)}\n")
        if "--write" not in sys.argv[1:]:
            continue
        if isinstance(picture, str):
            path.write_text(picture, encoding="utf-8")
        else:
            picture.save(path, optimize=True)


if __name__ == "__main__":
    main()
