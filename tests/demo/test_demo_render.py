"""The demo's parts are repeatable, varied, and defective exactly where the mask says so."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageFilter

from anoco_edge.demo.contact_sheet import GROUND, MAX_WIDTH, VERDICTS, Cell, contact_sheet
from anoco_edge.demo.render import DEFECTS, MATERIALS, Part, _scene, render
from anoco_edge.errors import UsageError

SIZE = 160
KINDS = [(m, d) for m in MATERIALS for d in DEFECTS[m]]


def _difference(part: Part) -> np.ndarray:
    good = render(part.material, part.seed, size=SIZE)
    return np.abs(part.rgb.astype(int) - good.rgb.astype(int)).max(axis=2)


def _dilated(mask: np.ndarray, by: int) -> np.ndarray:
    picture = Image.fromarray(mask.astype(np.uint8) * 255)
    return np.asarray(picture.filter(ImageFilter.MaxFilter(2 * by + 1))) > 0


def test_every_material_has_at_least_four_defects() -> None:
    assert MATERIALS == ("washer", "cloth", "circuit")
    assert set(DEFECTS) == set(MATERIALS)
    assert all(len(set(DEFECTS[m])) >= 4 for m in MATERIALS)


@pytest.mark.parametrize("material", MATERIALS)
def test_same_arguments_same_bytes_and_another_seed_another_part(material: str) -> None:
    first, again, other = (render(material, s, size=SIZE) for s in (5, 5, 6))
    assert first.rgb.dtype == np.uint8
    assert first.rgb.shape == (SIZE, SIZE, 3)
    assert not first.mask.any()
    assert np.array_equal(first.rgb, again.rgb)
    assert np.abs(first.rgb.astype(int) - other.rgb.astype(int)).mean() > 1.0


def test_another_process_renders_the_same_and_needs_only_numpy_and_pillow() -> None:
    code = (
        "import hashlib, sys; from anoco_edge.demo.render import render;"
        "p = render('circuit', 3, 'corrosion', 96);"
        "print(hashlib.sha256(p.rgb.tobytes() + p.mask.tobytes()).hexdigest());"
        "print(*({'cv2', 'torch', 'onnx', 'onnxruntime', 'scipy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    digest, heavy = done.stdout.split("\n")[:2]
    part = render("circuit", 3, "corrosion", 96)
    assert digest == hashlib.sha256(part.rgb.tobytes() + part.mask.tobytes()).hexdigest()
    assert heavy == ""


@pytest.mark.parametrize(("material", "defect"), KINDS)
def test_a_defect_is_visible_inside_its_mask_and_nowhere_else(material: str, defect: str) -> None:
    places = set()
    for seed in (1, 2):
        part = render(material, seed, defect, size=SIZE)
        assert (part.material, part.seed, part.defect) == (material, seed, defect)
        assert 0.0015 <= part.mask.mean() <= 0.06
        change = _difference(part)
        assert change[part.mask].mean() > 15, "a careful eye must see it"
        assert change[~_dilated(part.mask, 5)].max() <= 3, "the rest of the part is the same"
        places.add(tuple(np.argwhere(part.mask).mean(axis=0).round()))
    assert len(places) == 2, "place and size follow the seed"


@pytest.mark.parametrize("material", MATERIALS)
def test_light_varies_gently(material: str) -> None:
    means = np.array([render(material, s, size=64).rgb.mean(axis=(0, 1)) for s in range(16)])
    level = means.mean(axis=1)
    assert 0.03 < np.ptp(level) / level.mean() < 0.30
    warmth = means[:, 0] / means[:, 2]
    assert 0.01 < np.ptp(warmth) / warmth.mean() < 0.15


def test_pose_varies_within_its_bounds() -> None:
    centres = []
    for seed in range(12):
        steel = render("washer", seed, size=SIZE).rgb.mean(axis=2) > 70
        rows, columns = np.nonzero(steel)
        centres.append((np.ptp(columns) / 2 + columns.min(), np.ptp(rows) / 2 + rows.min()))
        assert 0.78 * SIZE < np.ptp(columns) < 0.86 * SIZE
    shift = np.array(centres) - (SIZE - 1) / 2
    assert np.abs(shift).max() < 0.03 * SIZE
    assert np.ptp(shift, axis=0).min() > 0.01 * SIZE


def test_brushes_and_coordinates_agree_on_the_pose() -> None:
    scene = _scene("washer", 3, None, SIZE)
    for row, column in ((0, 0), (17, 301), (319, 100)):
        at = np.array([[scene.x[row, column], scene.y[row, column]]], float)
        assert np.allclose(scene.to_pixels(at), [[column, row]], atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("brick", 0), "use washer, cloth or circuit"),
        (("washer", 0, "moth"), "use scratch, dent, chip, rust or missing-hole"),
        (("washer", -1), "seed -1"),
        (("washer", 0, None, 8), "64 to 2048"),
    ],
)
def test_wrong_arguments_name_the_choices(arguments: tuple, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        render(*arguments)


def _cell(verdict: str = "good", correct: bool = True, shape: tuple = (40, 40, 3)) -> Cell:
    grey = np.full(shape, 90, np.uint8)
    return Cell(grey, grey + np.uint8(60), "scratch  3.1x", verdict, correct)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_frame_has_the_verdicts_colour(verdict: str) -> None:
    sheet = np.asarray(contact_sheet([("washer", [_cell(verdict)])], title="t", thumb=100))
    for name, colour in VERDICTS.items():
        # The legend does not fit on so narrow a sheet, so only the frame and its dot are drawn.
        assert ((sheet == colour).all(axis=2).sum() > 500) == (name == verdict)


def test_picture_stands_above_its_overlay_and_keeps_its_proportions() -> None:
    sheet = np.asarray(contact_sheet([("w", [_cell(shape=(20, 40, 3))])], title="t", thumb=100))
    picture, overlay = ((sheet == v).all(axis=2) for v in (90, 150))
    assert (picture.sum(), overlay.sum()) == (100 * 50, 100 * 50)
    assert np.nonzero(picture)[0].max() < np.nonzero(overlay)[0].min()


def test_a_wrong_verdict_is_marked() -> None:
    right, wrong = (
        np.asarray(contact_sheet([("w", [_cell(correct=c)])], title="t")) for c in (True, False)
    )
    white = [(sheet == 255).all(axis=2).sum() for sheet in (right, wrong)]
    assert white[0] == 0
    assert white[1] > 100


def test_long_rows_wrap_and_long_captions_are_cut() -> None:
    cell = Cell(*[np.zeros((9, 9, 3), np.uint8)] * 2, "broken-thread " * 9, "good", correct=True)
    one, many = (contact_sheet([("cloth", [cell] * n)], title="t" * 400) for n in (8, 20))
    assert one.width == many.width <= MAX_WIDTH
    assert many.height > 2 * one.height
    assert many.getpixel((many.width - 2, many.height // 2)) == GROUND


def test_a_sheet_refuses_what_it_cannot_show() -> None:
    with pytest.raises(UsageError, match="good, anomalous, uncalibrated"):
        contact_sheet([("w", [_cell("fine")])], title="t")
    with pytest.raises(UsageError, match="48 to"):
        contact_sheet([], title="t", thumb=5)
