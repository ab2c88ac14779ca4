"""The overlay has the right pixels: colour, place, scale, and shapes that could break layouts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from anoco_edge.errors import UsageError
from anoco_edge.reporting.colormap import colors, table
from anoco_edge.reporting.overlay import (
    BACKGROUND,
    CHIPS,
    CONTOUR,
    PATCH,
    REGION,
    TEXT,
    Match,
    draw_overlay,
    heat,
    plan_overlay,
)

Pixels = npt.NDArray[np.int64]


def grey(width: int, height: int, level: int = 120) -> npt.NDArray[np.uint8]:
    return np.full((height, width, 3), level, np.uint8)


def overlay(
    rgb: npt.NDArray[np.uint8],
    energy: npt.NDArray[np.float32] | None = None,
    *,
    threshold: float | None = 1.0,
    verdict: str = "anomalous",
    kind: str = "manual",
    regions: tuple[tuple[float, float, float, float], ...] = (),
    outline: npt.NDArray[np.bool_] | None = None,
    match: Match | None = None,
    max_side: int = 1024,
) -> Pixels:
    field = np.zeros(rgb.shape[:2], np.float32) if energy is None else energy
    image = draw_overlay(
        rgb,
        field,
        score=2.31,
        threshold=threshold,
        verdict=verdict,
        kind=kind,
        regions=regions,
        outline=outline,
        match=match,
        max_side=max_side,
    )
    assert isinstance(image, Image.Image)
    return np.asarray(image).astype(np.int64)


def redness(pixels: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    wide = pixels.astype(np.int64)
    return wide[..., 0] - wide[..., 2]


def has_colour(pixels: Pixels, colour: tuple[int, int, int]) -> bool:
    return bool((pixels == colour).all(axis=-1).any())


def test_colours_get_lighter_all_the_way() -> None:
    srgb = table() / 255.0
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    lightness = np.cbrt(linear @ [0.2126, 0.7152, 0.0722])
    assert np.diff(lightness).min() > -0.004  # no more than 8-bit rounding
    assert (lightness[32::32] > lightness[:-32:32] + 0.02).all()
    assert np.unique(table(), axis=0).shape == (256, 3)
    assert colors(np.array([-3.0, 7.0])).tolist() == [table()[0].tolist(), table()[255].tolist()]


def test_a_hot_spot_is_redder_than_the_rest() -> None:
    energy = np.zeros((64, 64), np.float32)
    energy[20:30, 40:50] = 1.0
    out = heat(grey(64, 64), energy, threshold=1.0)
    assert redness(out[20:30, 40:50]).min() > 40
    cold = energy == 0
    assert (out[cold] == 120).all(), "where nothing was found the picture stays as it is"


def test_opacity_rises_with_the_energy() -> None:
    white = grey(201, 1, 255)
    out = heat(white, np.linspace(0, 2, 201, dtype=np.float32)[None], threshold=1.0)
    away = np.abs(255 - out[0].astype(int)).sum(axis=1)
    assert away[0] == 0
    assert away[10] < 20, "the noise of a good part hardly shows"
    assert away[100] > 5 * away[30]


def test_the_threshold_fixes_the_scale() -> None:
    energy = np.zeros((4, 4), np.float32)
    energy[0, 0], energy[1, 1] = 1.0, 100.0
    with_other_peak = energy.copy()
    with_other_peak[1, 1] = 2.0
    picture = grey(4, 4)
    assert (heat(picture, energy, 1.0) == heat(picture, with_other_peak, 1.0)).all()
    assert (heat(picture, energy, None) != heat(picture, with_other_peak, None)).any()
    assert (heat(picture, energy * 7, None) == heat(picture, energy, None)).all()


def test_unscored_places_stay_clear() -> None:
    energy = np.full((4, 4), np.nan, np.float32)
    energy[0, 0], energy[3, 3] = np.inf, 2.0
    for threshold in (1.0, None):
        out = heat(grey(4, 4), energy, threshold)
        assert (out[1:3, 1:3] == 120).all()
        assert (out[0, 0] == out[3, 3]).all() and redness(out[0, 0]) > 40


def test_input_is_not_written_to() -> None:
    rgb, energy = grey(32, 32), np.ones((32, 32), np.float32)
    rgb.setflags(write=False)
    energy.setflags(write=False)
    overlay(rgb, energy, regions=((1, 1, 9, 9),), outline=np.eye(32, dtype=np.bool_))
    # the result is a new array, which the caller may change
    heat(rgb, np.zeros((32, 32), np.float32), None)[0, 0] = 1


def test_the_panel_shows_the_heat_where_it_is() -> None:
    energy = np.zeros((400, 800), np.float32)
    energy[40:80, 600:700] = 3.0
    pixels = overlay(grey(800, 400), energy)
    x, y, x1, y1 = plan_overlay((800, 400), None).picture
    assert (x1 - x, y1 - y) == (800, 400)
    assert redness(pixels[y + 45 : y + 75, x + 605 : x + 695]).min() > 40
    assert (pixels[y + 200 : y1, x:x1] == 120).all()
    assert (pixels[:, :x] == BACKGROUND).all()


def test_boxes_and_contour_lie_where_the_region_is() -> None:
    outline = np.zeros((400, 400), np.bool_)
    outline[100:200, 50:150] = True
    pixels = overlay(grey(400, 400), regions=((40.0, 90.0, 160.0, 210.0),), outline=outline)
    x, y, *_ = plan_overlay((400, 400), None).picture
    box = (pixels == REGION).all(axis=-1)
    box[: y - 2] = False  # leave out the header's white letters
    box[y + 400 :] = False
    rows, cols = np.where(box)
    assert (cols.min() - x, rows.min() - y) == (40, 90)
    assert (cols.max() - x, rows.max() - y) == (159, 209)
    assert box.sum() == 4 * 119, "one pixel thin"
    line = (pixels == CONTOUR).all(axis=-1)[y : y + 400, x : x + 400]
    assert np.where(line[:, 100])[0].tolist() == [99, 100, 199, 200]
    assert np.where(line[150])[0].tolist() == [49, 50, 149, 150]


def test_a_tiny_region_survives_shrinking() -> None:
    outline = np.zeros((3000, 3000), np.bool_)
    outline[1500, 1500] = True
    assert has_colour(overlay(grey(3000, 3000), outline=outline, max_side=400), CONTOUR)


def test_the_colour_bar_marks_the_threshold_in_its_middle() -> None:
    layout = plan_overlay((512, 512), None)
    x0, y0, x1, y1 = layout.bar
    for threshold, marks in ((1.0, [x0, (x0 + x1) // 2, x1 - 1]), (None, [x0])):
        pixels = overlay(grey(512, 512), threshold=threshold)
        row = (pixels[(y0 + y1) // 2, x0:x1] == TEXT).all(axis=-1)
        assert (np.where(row)[0] + x0).tolist() == marks
    energy = np.full((512, 512), 5.0, np.float32)
    pixels = overlay(grey(512, 512), energy, threshold=None)
    row = (pixels[(y0 + y1) // 2, x0:x1] == TEXT).all(axis=-1)
    assert (np.where(row)[0] + x0).tolist() == [x0, x1 - 1]


def test_the_bar_has_the_colours_of_the_picture() -> None:
    energy = np.full((512, 512), 1.5, np.float32)
    pixels = overlay(grey(512, 512, 128), energy)
    layout = plan_overlay((512, 512), None)
    x0, y0, x1, _ = layout.bar
    at = x0 + round(0.75 * (x1 - x0 - 1))
    in_picture = pixels[layout.picture[1] + 100, layout.picture[0] + 100]
    assert np.abs(pixels[y0 + 3, at] - in_picture).max() <= 3


def test_the_reference_stands_beside_with_its_patch_marked() -> None:
    reference = grey(200, 100, 60)
    match = Match(reference, "good/001.png", (20, 40, 30, 50), 0.87, (8, 4, 24, 20))
    pixels = overlay(grey(400, 400), match=match)
    layout = plan_overlay((400, 400), (200, 100))
    assert layout.reference is not None
    x0, y0, x1, y1 = layout.reference
    assert x0 > layout.picture[2] and (x1 - x0, y1 - y0) == (400, 200)
    assert (pixels[y1 - 1, x1 - 1] == 60).all()
    marked = (pixels == PATCH).all(axis=-1)
    rows, cols = np.where(marked[y0:y1, x0:x1])
    assert (cols.min(), rows.min(), cols.max(), rows.max()) == (40, 80, 59, 99)
    px, py, *_ = layout.picture
    rows, cols = np.where(marked[py : py + 400, px : px + 400])
    assert (cols.min(), rows.min(), cols.max(), rows.max()) == (8, 4, 23, 19)
    caption = pixels[layout.bar[1] :, layout.bar[2] + 2 :]
    assert (caption.sum(axis=-1) > 500).sum() > 200, "name and similarity are written"


@pytest.mark.parametrize("verdict", sorted(CHIPS))
def test_the_chip_has_the_colour_of_the_verdict(verdict: str) -> None:
    head = overlay(grey(300, 300), verdict=verdict)[:60]
    assert has_colour(head, CHIPS[verdict])
    assert not any(has_colour(head, c) for v, c in CHIPS.items() if v != verdict)


def test_a_provisional_threshold_is_said_so() -> None:
    firm = overlay(grey(800, 800), kind="conformal")[:44]
    provisional = overlay(grey(800, 800), kind="provisional")[:44]
    differs = np.where((firm != provisional).any(axis=(0, 2)))[0]
    assert differs.size and differs.min() > 300, "written after score and ratio"


@pytest.mark.parametrize(
    ("width", "height"), [(16, 16), (1, 1), (20000, 100), (100, 20000), (3, 1000), (1600, 1200)]
)
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_any_shape_can_be_drawn(width: int, height: int, threshold: float | None) -> None:
    match = Match(grey(16, 16), "näme\n" + "x" * 400, (-5, -5, 900, 2), 1.0, (0, 0, 1e6, 1e6))
    pixels = overlay(
        grey(width, height),
        threshold=threshold,
        verdict="uncalibrated",
        kind="none",
        regions=((0, 0, width, height), (-9, -9, 0, 0), (5, 5, 1, 1)),
        outline=np.ones((height, width), np.bool_),
        match=match,
    )
    x0, y0, x1, y1 = plan_overlay((width, height), (16, 16)).picture
    assert 384 <= max(x1 - x0, y1 - y0) <= 1024
    assert min(x1 - x0, y1 - y0) >= 1
    assert max(pixels.shape) < 2400


def test_max_side_bounds_the_panel() -> None:
    for side in (64, 500):
        x0, y0, x1, y1 = plan_overlay((4000, 3000), None, side).picture
        assert (x1 - x0, y1 - y0) == (side, side * 3 // 4)


def test_what_does_not_fit_is_refused_with_a_word() -> None:
    with pytest.raises(UsageError, match="enlarge the map"):
        heat(grey(8, 8), np.zeros((4, 4), np.float32), 1.0)
    with pytest.raises(UsageError, match="uint8 RGB"):
        heat(grey(8, 8)[..., 0], np.zeros((8, 8), np.float32), 1.0)
    with pytest.raises(UsageError, match="not a positive number"):
        heat(grey(8, 8), np.zeros((8, 8), np.float32), 0.0)
    with pytest.raises(UsageError, match="enlarge the mask"):
        overlay(grey(8, 8), outline=np.zeros((4, 4), np.bool_))
    with pytest.raises(UsageError, match="max_side"):
        overlay(grey(8, 8), max_side=0)
