"""Describes one product of every kind, and checks that two runtimes inspect it alike."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import textured_picture

from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.teaching import NewPicture, Settings
from anoco_edge.teaching.drafts import TileSettings

Pixels = NDArray[np.uint8]
WIDTH, HEIGHT = 96, 80


def mask_png() -> bytes:
    """Return a mask that leaves out a strip in the middle."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[:, 40:60] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return buffer.getvalue()


REGION = [(0, 5), (96, 5), (50, 80)]
PRODUCTS: dict[str, Settings] = {
    "plain": Settings({}),
    "top5": Settings({"pooling": "top5", "lambda": 3.0}),
    "smooth": Settings({"pooling": "smooth"}, region=REGION, mask=mask_png()),
    "relative": Settings({"lambda": 0.3, "lambda_kind": "relative"}),
    "l2": Settings({"metric": "l2"}),
    "cosine": Settings({"metric": "cosine", "bank_dtype": "float32", "floor": 0.2}),
    "region": Settings({}, region=REGION),
    "mask": Settings({"pooling": "top5"}, region=REGION, mask=mask_png()),
    "tiles": Settings({}, tiles=TileSettings(grid=(2, 2)), mask=mask_png()),
    "min-area": Settings({"min_area": 500.0}),
    "any-size": Settings({"any_size": True}),
    "manual": Settings({}, threshold=0.05),
    "uncalibrated": Settings({}),
    "baseline": Settings({}),
    "rotations": Settings({"tta": "rotations", "merge_distance": 0.0}),  # merged in the next ones
    "rotations-tiles": Settings(
        {"tta": "rotations", "rotations": 6}, tiles=TileSettings(grid=(2, 1)), region=REGION
    ),
    "flips": Settings({"flips": True}),
    "rotations-flips": Settings({"tta": "rotations", "rotations": 3, "flips": True}),
    "references": Settings({"tta": "references"}),
    "paper": Settings({"tta": "paper"}),
    "smooth-tiles": Settings(
        {"tta": "paper", "pooling": "smooth"}, tiles=TileSettings(grid=(2, 1))
    ),
    "paper-tiles": Settings({"tta": "paper"}, tiles=TileSettings(grid=(2, 1)), region=REGION),
}


def good_parts(*seeds: int) -> list[NewPicture]:
    """Return pictures of good parts, named by their seeds."""
    return [NewPicture.from_array(f"{s}.png", textured_picture(s)) for s in seeds]


def defective_part(seed: int, width: int = WIDTH, height: int = HEIGHT) -> Pixels:
    """Return a picture of a part with a red square."""
    rgb = textured_picture(seed, width, height)
    rgb[20:44, 24:48] = (250, 20, 20)
    return rgb


def assert_same_inspection(native: Inspection, python: Inspection) -> None:
    """Check that decisions are equal and that numbers differ only by rounding.

    Both inspections must come from the same features.
    """
    np.testing.assert_array_equal(native.scored, python.scored)
    np.testing.assert_array_equal(native.anchor, python.anchor)
    np.testing.assert_allclose(native.similarity, python.similarity, atol=1e-6)
    scale = max(float(python.energy.max()), 1e-6)
    np.testing.assert_allclose(native.energy, python.energy, rtol=1e-5, atol=1e-6 * scale)
    np.testing.assert_allclose(native.input_map, python.input_map, rtol=0, atol=1e-5 * scale)
    assert native.score == pytest.approx(python.score, rel=1e-5, abs=1e-6 * scale)
    for name in ("product", "generation", "threshold", "threshold_kind", "verdict", "placement"):
        assert getattr(native, name) == getattr(python, name)
    assert len(native.regions) == len(python.regions)
    for mine, other in zip(native.regions, python.regions, strict=True):
        assert (mine.row, mine.col) == (other.row, other.col)
        assert mine.box == pytest.approx(other.box) and mine.area == pytest.approx(other.area)
        assert mine.peak == pytest.approx(other.peak, rel=1e-5)
    assert (native.outline is None) == (python.outline is None)
    if native.outline is not None:
        np.testing.assert_array_equal(native.outline, python.outline)
    for array in (native.energy, native.anchor, native.similarity, native.input_map):
        assert array.flags.owndata and array.flags.writeable
    assert native.energy.dtype == native.input_map.dtype == np.float32
    assert native.scored.dtype == np.bool_ and native.anchor.dtype == np.int64
