"""Rotations: turned views of references, the bank that they make, and what turned parts score."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, ok, run_cli
from filled_bundle import FILL, SIZE, make_filled_bundle
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.builtin import create_builtin_bundle
from anoco_edge.bundle.generations import undo
from anoco_edge.bundle.schema import Affine
from anoco_edge.cli.views.products import inspected_area
from anoco_edge.demo.render import render
from anoco_edge.detector import Detector
from anoco_edge.engines import open_engine
from anoco_edge.errors import UsageError
from anoco_edge.images.contract import Fit, InputContract
from anoco_edge.images.preprocess import place, prepare
from anoco_edge.pipeline.augmentation import IDENTITY
from anoco_edge.pipeline.patch_mask import inspected_pixels
from anoco_edge.pipeline.rotations import (
    mirrored_views,
    rotation_views,
    turn,
    turned_patches,
)
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings
from anoco_edge.teaching.drafts import ProductFields
from anoco_edge.teaching.near_duplicates import MERGE_DISTANCE

Pixels = NDArray[np.uint8]
# Everything that the angles show is in the bank, but for copies.
WHOLE: ProductFields = {"tta": "rotations", "merge_distance": 0.0}
ROTATIONS = Settings(WHOLE)


def part(seed: int, width: int = SIZE, height: int = SIZE) -> NewPicture:
    return NewPicture.from_array(f"frame{seed}", textured_picture(seed, width, height))


def parts(*seeds: int) -> list[NewPicture]:
    return [part(seed) for seed in seeds]


def contract(fit: Fit = "stretch") -> InputContract:
    return InputContract(
        width=SIZE, height=SIZE, fit=fit, fill=FILL, stride=16, rows=6, cols=6, dim=8
    )


def bank_hash(product: Product) -> str:
    assert product.bank is not None
    return product.bank.sha256


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_filled_bundle(tmp_path / "line.anoco")


class Colour:
    """An engine with smooth functions of a patch's mean colour, so features turn with content."""

    name, fingerprint = "colour", "colour"

    def __init__(self) -> None:
        self.windows = 0

    def features(self, pixels: Pixels) -> NDArray[np.float32]:
        self.windows += len(pixels)
        batch, height, width, _ = pixels.shape
        blocks = pixels.reshape(batch, height // 16, 16, width // 16, 16, 3)
        r, g, b = np.moveaxis(blocks.mean(axis=(2, 4)) / 255, -1, 0)
        found = np.stack([np.ones_like(r), r, g, b, r * r, g * g, r * g, b * b], axis=-1)
        return found.reshape(batch, -1, 8).astype(np.float32)


# ---- turned views


@pytest.mark.parametrize("side", [SIZE // 2, SIZE, 250])
def test_a_quarter_turn_is_that_of_the_picture_itself(side: int) -> None:
    """Without interpolation, the view has the very pixels that a turned picture has."""
    rgb = textured_picture(1, side, side)
    c, placement = contract(), place(contract(), side, side)
    views = rotation_views(8, placement)
    for quarter in (1, 2, 3):
        expected, _ = prepare(np.ascontiguousarray(np.rot90(rgb, quarter)), c)
        np.testing.assert_array_equal(turn(rgb, views[2 * quarter - 1], c, placement), expected)


@pytest.mark.parametrize(("width", "height"), [(SIZE, SIZE), (240, 120), (60, 200)])
@pytest.mark.parametrize("count", [3, 8])
def test_a_view_turns_the_picture_in_its_own_pixels(width: int, height: int, count: int) -> None:
    """Distances from the centre stay, in pixels of the picture, however the input stretches it."""
    for fit in ("stretch", "letterbox"):
        placement = place(contract(fit), width, height)
        scale = np.array([width / placement.width, height / placement.height])
        corner = np.array([placement.left, placement.top])
        for number, (a, b, c, d, e, f) in enumerate(rotation_views(count, placement), 1):
            for at in ([placement.left, placement.top], [50.0, 31.0]):
                source = np.array([a * at[0] + b * at[1] + c, d * at[0] + e * at[1] + f])
                before, after = (
                    complex(*((np.array(p) - corner) * scale - (width / 2, height / 2)))
                    for p in (at, source)
                )
                angle = 2 * math.pi * number / count
                assert after == pytest.approx(before * complex(math.cos(angle), math.sin(angle)))


def test_beyond_the_picture_lies_its_reflection() -> None:
    rgb = textured_picture(1, SIZE, SIZE)
    c, placement = contract(), place(contract(), SIZE, SIZE)
    a, b, dx, d, e, dy = view = rotation_views(8, placement)[0]
    mirrored = np.pad(rgb, ((SIZE, SIZE), (SIZE, SIZE), (0, 0)), mode="symmetric").astype(float)
    got = turn(rgb, view, c, placement)
    for row, col in [(0, 0), (0, 95), (95, 3), (47, 47), (20, 70)]:
        x, y = col + 0.5, row + 0.5
        u, v = a * x + b * y + dx + SIZE - 0.5, d * x + e * y + dy + SIZE - 0.5
        left, top = math.floor(u), math.floor(v)
        across, down = u - left, v - top
        four = mirrored[top : top + 2, left : left + 2]
        weights = np.outer([1 - down, down], [1 - across, across])[..., None]
        assert np.abs(got[row, col] - (four * weights).sum(axis=(0, 1))).max() <= 0.51


def test_a_letterbox_stays_a_letterbox() -> None:
    """The bars of an inspected picture are where they were, and not filled by reflection."""
    rgb = textured_picture(1, 2 * SIZE, SIZE)
    c, placement = contract("letterbox"), place(contract("letterbox"), 2 * SIZE, SIZE)
    for view in rotation_views(8, placement):
        turned = turn(rgb, view, c, placement)
        bars = np.ones((SIZE, SIZE), np.bool_)
        bars[24:72] = False
        assert (turned[bars] == FILL).all() and not (turned[~bars] == FILL).all(axis=-1).any()


def touched_patches(view: Affine, width: int, height: int, c: InputContract) -> NDArray[np.bool_]:
    """Find with Pillow which patches take anything from beyond the picture, which is red there."""
    placement = place(c, width, height)
    wide, high = width / placement.width, height / placement.height
    a, b, _, d, e, _ = view
    linear = np.array([[a, b * wide / high], [d * high / wide, e]])
    centre = np.array([width / 2, height / 2])
    (xx, xy), (yx, yy) = linear.tolist()
    dx, dy = (centre - linear @ centre).tolist()
    turned = Image.new("RGB", (width, height)).transform(
        (width, height),
        Image.Transform.AFFINE,
        (xx, xy, dx, yx, yy, dy),
        Image.Resampling.BILINEAR,
        fillcolor=(255, 0, 0),
    )
    red = prepare(np.asarray(turned), c)[0][..., 0] > 0
    found: NDArray[np.bool_] = red.reshape(6, 16, 6, 16).any(axis=(1, 3))
    return found


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
@pytest.mark.parametrize(("width", "height"), [(SIZE, SIZE), (300, 300), (240, 120), (40, 70)])
def test_patches_that_touch_anything_from_beyond_are_left_out(
    fit: Fit, width: int, height: int
) -> None:
    c = contract(fit)
    placement = place(c, width, height)
    inside, wanted = inspected_pixels(c, placement)
    views = rotation_views(16, placement)
    fewest = 36
    for view in views:
        kept = turned_patches(c, placement, view, wanted)
        touched = touched_patches(view, width, height, c)
        touched |= ~inside.reshape(6, 16, 6, 16).all(axis=(1, 3))
        assert not (kept & touched).any()
        assert (~kept & ~touched).sum() <= 8  # those that take less than half a level from there
        fewest = min(fewest, int(kept.sum()))
    assert fewest < 30


# ---- mirrored views


@pytest.mark.parametrize(("width", "height"), [(SIZE, SIZE), (240, 120)])
def test_a_mirrored_view_is_the_mirrored_picture_at_every_angle(width: int, height: int) -> None:
    rgb = textured_picture(1, width, height)
    c, placement = contract(), place(contract(), width, height)
    mirror = np.ascontiguousarray(rgb[:, ::-1])
    turned = rotation_views(8, placement)
    first, *others = mirrored_views(turned, placement)
    np.testing.assert_array_equal(turn(rgb, first, c, placement), prepare(mirror, c)[0])
    everything = np.ones((SIZE, SIZE), np.bool_)
    assert turned_patches(c, placement, first, everything).all()
    for view, mirrored in zip(turned, others, strict=True):
        expected = turn(mirror, view, c, placement).astype(int)
        assert np.abs(turn(rgb, mirrored, c, placement) - expected).max() <= 1
        np.testing.assert_array_equal(
            turned_patches(c, placement, mirrored, everything),
            turned_patches(c, placement, view, everything),
        )


def test_a_mirrored_part_is_good_only_with_flips(bundle: Bundle) -> None:
    teacher = Teacher.open(bundle.path)
    mirror = np.ascontiguousarray(part(1).rgb[:, ::-1])
    scores = {}
    mirrored = Settings({"flips": True, "merge_distance": 0.0})
    for name, settings in (("plain", Settings({})), ("mirrored", mirrored)):
        product = teacher.enroll(parts(1, 2), name, settings).product
        assert [len(r.views) for r in product.references] == [int(settings is mirrored)] * 2
        scores[name] = Detector.open(bundle.path, name).inspect(mirror).score
    assert scores["mirrored"] < 1e-6 < scores["plain"]
    assert inspected_area(bundle.product("mirrored")) == "references mirrored too"
    found = Detector.open(bundle.path, "mirrored").inspect(mirror).evidence(0, 0)
    assert (found.reference, found.row, found.col) == ("frame1", 0, 5)
    both = teacher.enroll(parts(1), "both", Settings({**WHOLE, "flips": True})).product
    assert len(both.references[0].views) == 15 and bundle.bank(both).view.max() == 15
    assert inspected_area(both) == "references at 8 angles and mirrored too"
    back = teacher.configure(Settings({"flips": False}), "mirrored").product
    assert bank_hash(back) == bank_hash(bundle.product("plain"))
    with pytest.raises(UsageError, match="views of 'paper' are mirrored already"):
        teacher.configure(Settings({"tta": "paper"}), "both")


def test_a_product_without_flips_is_written_as_before(bundle: Bundle) -> None:
    Teacher.open(bundle.path).enroll(parts(1))
    written = json.loads((bundle.path / "products/default/product.json").read_bytes())
    later = {"rotations", "flips", "augmentation_choice", "merged_patches", "merge_distance"}
    assert not later & written.keys()


# ---- the bank


def test_the_bank_holds_each_reference_at_eight_angles(bundle: Bundle) -> None:
    pictures = [part(1), part(2, 120, 120)]
    product = Teacher.open(bundle.path).enroll(pictures, settings=ROTATIONS).product
    assert (product.tta, product.rotations, product.views) == ("rotations", 8, ())
    bank, engine = bundle.bank(product), open_engine("auto", bundle)
    c, rows = bundle.manifest.input, 0
    for number, picture in enumerate(pictures):
        pixels, placement = prepare(picture.rgb, c)
        views = product.references[number].views
        assert views == rotation_views(8, placement) and len(set(views)) == 7
        for k, view in enumerate((IDENTITY, *views)):
            mine = np.flatnonzero((bank.reference == number) & (bank.view == k))
            shown = turn(picture.rgb, view, c, placement) if k else pixels
            scored = np.ones((6, 6), np.bool_)
            if k:
                scored = turned_patches(c, placement, view, inspected_pixels(c, placement)[1])
            assert scored.sum() == (24 if k % 2 else 36)
            places = list(zip(bank.row[mine].tolist(), bank.col[mine].tolist(), strict=True))
            assert places == [(r, c) for r, c in np.argwhere(scored).tolist()]
            expected = engine.features(shown[None])[0][scored.reshape(-1)]
            np.testing.assert_array_equal(
                bank.references.features[mine], expected.astype(np.float16)
            )
            rows += len(mine)
    assert rows == len(bank) and product.dropped_patches == 0


def test_copies_among_the_angles_are_merged_and_those_of_the_picture_stay(bundle: Bundle) -> None:
    """A part of two equal halves has each patch twice at eight angles, an even one 36 times."""
    rgb = part(1).rgb.copy()
    symmetric = np.concatenate([rgb[: SIZE // 2], rgb[: SIZE // 2][::-1, ::-1]])
    even = np.full((SIZE, SIZE, 3), 90, np.uint8)
    pictures = [
        NewPicture.from_array(name, pixels)
        for name, pixels in (("symmetric", symmetric), ("even", even))
    ]
    settings = Settings({**WHOLE, "rotations": 4}, threshold=1.0)
    product = Teacher(bundle, Colour()).enroll(pictures, settings=settings).product
    bank = bundle.bank(product)
    counts = [
        [int(((bank.reference == n) & (bank.view == k)).sum()) for k in range(4)] for n in (0, 1)
    ]
    # Colour does not see how a patch lies, so quarter turns repeat all of them.
    assert counts == [[36, 0, 0, 0], [36, 0, 0, 0]]
    assert (product.dropped_patches, product.merged_patches) == (0, 2 * 3 * 36)
    turned = Teacher.open(bundle.path).enroll(pictures[:1], "turned", settings).product
    assert [int((bundle.bank(turned).view == k).sum()) for k in range(4)] == [36, 36, 0, 0]
    assert turned.merged_patches == 2 * 36
    both = Teacher.open(bundle.path).enroll(parts(4), "turned").product
    assert both.merged_patches == 2 * 36  # what was counted for known references stays counted


def test_near_duplicates_among_the_angles_are_merged_unless_a_product_is_older(
    bundle: Bundle,
) -> None:
    teacher = Teacher.open(bundle.path)
    whole = teacher.enroll(parts(1), "older", ROTATIONS).product
    product = teacher.enroll(parts(1), "new", Settings({"tta": "rotations"})).product
    assert (whole.merge_distance, product.merge_distance) == (0.0, MERGE_DISTANCE)
    every, kept = bundle.bank(whole), bundle.bank(product)
    assert product.merged_patches == len(every) - len(kept) > 0
    assert np.count_nonzero(kept.view == 0) == 36, "the picture's own patches stay"
    near = np.linalg.norm(
        every.references.features.astype(np.float64)[:, None]
        - kept.references.features.astype(np.float64)[None],
        axis=2,
    ).min(axis=1)
    assert (near <= MERGE_DISTANCE * every.references.norms * (1 + 1e-6)).all()
    # A product keeps its distance, and with it its scores, whatever else is taught.
    grown = teacher.enroll(parts(2), "older").product
    assert grown.merge_distance == 0.0 and grown.merged_patches == whole.merged_patches
    assert bundle.bank(grown).only([0]).to_bytes() == every.to_bytes()
    plain = teacher.configure(Settings({"tta": "none"}), "older").product
    assert plain.merge_distance == 0.0
    again = teacher.configure(Settings({"tta": "rotations"}), "older").product
    assert again.merge_distance == MERGE_DISTANCE
    with pytest.raises(UsageError, match=r"merge_distance is 0.2 and references are not turned"):
        teacher.enroll(parts(1), "straight", Settings({"merge_distance": 0.2}))


def test_the_same_pictures_give_the_same_bytes_in_any_order_of_changes(
    bundle: Bundle, tmp_path: Path
) -> None:
    teacher = Teacher.open(bundle.path)
    before = bundle.bank(teacher.enroll(parts(1, 2), settings=ROTATIONS).product)
    after = bundle.bank(teacher.enroll(parts(3)).product)
    assert after.only([0, 1]).to_bytes() == before.to_bytes()
    left = teacher.remove(["frame1"]).product
    fresh = make_filled_bundle(tmp_path / "fresh.anoco")
    again = Teacher.open(fresh.path).enroll(parts(2, 3), settings=ROTATIONS).product
    assert bank_hash(left) == bank_hash(again) and left.threshold == again.threshold
    assert [r.views for r in left.references] == [r.views for r in again.references]


def test_undo_and_other_numbers_of_angles(bundle: Bundle) -> None:
    teacher = Teacher.open(bundle.path)
    plain = teacher.enroll(parts(1, 2)).product
    eight = teacher.configure(ROTATIONS).product
    four = teacher.configure(Settings({"rotations": 4})).product
    assert (eight.rotations, four.rotations, four.tta) == (8, 4, "rotations")
    assert len({bank_hash(p) for p in (plain, eight, four)}) == 3
    assert bundle.bank(four).view.max() == 3
    # Another setting keeps the number, and nothing is computed again.
    assert bank_hash(teacher.configure(Settings({"metric": "l2"})).product) == bank_hash(four)
    undo(bundle, "default")
    back = undo(bundle, "default")
    assert (back.rotations, bank_hash(back)) == (8, bank_hash(eight))
    assert back.references == eight.references and back.threshold == eight.threshold
    none = teacher.configure(Settings({"tta": "none"})).product
    assert bank_hash(none) == bank_hash(plain) and none.threshold == plain.threshold
    assert none.references == plain.references and none.rotations is None


def test_known_references_are_taken_over_and_not_computed_again(bundle: Bundle) -> None:
    engine = Colour()
    teacher = Teacher(bundle, engine)
    teacher.enroll(parts(1, 2), settings=ROTATIONS)
    assert engine.windows == 2 * 8
    teacher.enroll(parts(3))
    assert engine.windows == 3 * 8
    teacher.remove(["frame2"])
    assert engine.windows == 3 * 8


def test_patches_without_signal_are_counted_once_each(bundle: Bundle) -> None:
    class Dark(Colour):
        def features(self, pixels: Pixels) -> NDArray[np.float32]:
            found = super().features(pixels)
            found[found[..., 1] < 0.1] = 0
            return found

    rgb = part(1).rgb.copy()
    rgb[:16, :32] = 0
    pictures = [NewPicture.from_array("dark", rgb)]
    for settings in (ROTATIONS, Settings(WHOLE, max_patches=20)):
        product = Teacher(bundle, Dark()).enroll(pictures, f"p{len(bundle.products())}", settings)
        assert product.product.dropped_patches == 2


def test_a_thinned_bank_of_turned_references(bundle: Bundle) -> None:
    settings = Settings(WHOLE, max_patches=40)
    product = Teacher.open(bundle.path).enroll(parts(1, 2), settings=settings).product
    bank = bundle.bank(product)
    assert len(bank) == 40 and len(np.unique(bank.view)) > 4
    assert product.coreset is not None and product.coreset.considered == 2 * (4 * 36 + 4 * 24)
    whole = bundle.bank(Teacher.open(bundle.path).enroll(parts(1, 2), "whole", ROTATIONS).product)
    rows = {row.tobytes() for row in whole.references.features}
    assert all(row.tobytes() in rows for row in bank.references.features)
    assert Detector.open(bundle.path, product.name).inspect(part(1).rgb).verdict == "good"


def test_with_tiles_a_region_and_a_picture_that_is_not_square(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "tiles.anoco")
    settings = Settings(
        {**WHOLE, "rotations": 6},
        region=[(30, 10), (220, 155)],
        tiles=TileSettings(grid=(2, 2), overlap=32),
    )
    good = [part(seed, 224, 160) for seed in (1, 2)]
    product = Teacher.open(bundle.path).enroll(good, settings=settings).product
    whole = bundle.manifest.input.tiled(product.tiles)
    placement = place(whole, 224, 160)
    assert product.references[1].views == rotation_views(6, placement)
    bank = bundle.bank(product)
    _, wanted = inspected_pixels(whole, placement, product.region)
    for k, view in enumerate(product.references[1].views, 1):
        found = np.zeros((whole.rows, whole.cols), np.bool_)
        mine = (bank.reference == 1) & (bank.view == k)
        found[bank.row[mine], bank.col[mine]] = True
        np.testing.assert_array_equal(found, turned_patches(whole, placement, view, wanted))
    detector = Detector.open(bundle.path)
    assert detector.inspect(good[0].rgb).verdict == "good"
    bad = textured_picture(5, 224, 160)
    bad[100:130, 120:160] = (250, 20, 20)
    assert detector.inspect(bad).verdict == "anomalous"


# ---- inspections


def turned_part(seed: int, degrees: float, defect: str | None = None) -> Pixels:
    """Render a washer and turn the picture as if the part and its light had been turned."""
    rgb = render("washer", seed, defect, size=256).rgb
    around = np.pad(rgb, ((128, 128), (128, 128), (0, 0)), mode="symmetric")
    image = Image.fromarray(around).rotate(degrees, Image.Resampling.BICUBIC)
    return np.asarray(image)[128:384, 128:384]


def test_turned_washers_score_like_upright_ones(tmp_path: Path) -> None:
    """One washer is taught; the corners, which a turned picture does not have, are left out."""
    bundle = create_builtin_bundle(tmp_path / "washers.anoco")
    octagon = [
        (128 + 118 * math.cos(k * math.pi / 4), 128 + 118 * math.sin(k * math.pi / 4))
        for k in range(8)
    ]
    teacher = Teacher.open(bundle.path)
    reference = [NewPicture.from_array("washer", render("washer", 1, size=256).rgb)]
    teacher.enroll(reference, "plain", Settings({}, region=octagon))
    teacher.enroll(reference, "turned", Settings({"tta": "rotations"}, region=octagon))
    scores = {
        name: {
            degrees: max(detector.inspect(turned_part(seed, degrees)).score for seed in (5, 6))
            for degrees in (0, 90, 45)
        }
        for name, detector in ((n, Detector.open(bundle.path, n)) for n in ("plain", "turned"))
    }
    for degrees in (90, 45):
        assert scores["turned"][degrees] < 1.3 * scores["turned"][0]
        assert scores["plain"][degrees] > 2 * scores["plain"][0]
    # A defect still stands out, however the part lies.
    detector = Detector.open(bundle.path, "turned")
    for degrees in (0, 45, 90):
        score = detector.inspect(turned_part(6, degrees, "scratch")).score
        assert score > 2 * scores["turned"][degrees]


def position_coded(width: int, height: int) -> Pixels:
    """Draw a picture whose red gives the column of a pixel and whose green gives the row."""
    y, x = np.mgrid[0:height, 0:width] + 0.5
    code = [55 + 180 * x / width, 55 + 180 * y / height, np.full(x.shape, 128)]
    return np.stack(code, axis=2).round().astype(np.uint8)


def test_evidence_points_at_the_place_in_the_reference_itself(tmp_path: Path) -> None:
    bundle = make_filled_bundle(tmp_path / "coded.anoco")
    width, height = 2 * SIZE, SIZE * 3
    reference = NewPicture.from_array("coded", position_coded(width, height))
    product = Teacher(bundle, Colour()).enroll([reference], settings=ROTATIONS).product
    detector = Detector.open(bundle.path)
    detector._pipeline.energies._engine = Colour()
    c, bank = bundle.manifest.input, bundle.bank(product)
    placement = place(c, width, height)
    _, wanted = inspected_pixels(c, placement)
    turned_anchors = 0
    for number in (1, 3, 6):
        view = product.references[0].views[number - 1]
        query = turn(reference.rgb, view, c, placement)
        large = np.asarray(Image.fromarray(query).resize((width, height), Image.Resampling.NEAREST))
        result = detector.inspect(large)
        for row, col in np.argwhere(turned_patches(c, placement, view, wanted)).tolist():
            evidence = result.evidence(row, col)
            red, green = query[16 * row : 16 * row + 16, 16 * col : 16 * col + 16].mean(
                axis=(0, 1)
            )[:2]
            x, y = (red - 55) / 180 * width, (green - 55) / 180 * height
            x0, y0, x1, y1 = evidence.box
            assert abs((x0 + x1) / 2 - x) < width / 18 and abs((y0 + y1) / 2 - y) < height / 18
            middle = (x0 + x1) / 2 / width * 6, (y0 + y1) / 2 / height * 6
            # A centre may lie on the border of two patches.
            assert abs(evidence.col + 0.5 - middle[0]) < 0.5 + 1e-6
            assert abs(evidence.row + 0.5 - middle[1]) < 0.5 + 1e-6
            turned_anchors += int(bank.view[result.anchor[row, col]]) == number
    assert turned_anchors > 10


# ---- documents and options


def test_a_product_without_rotations_is_written_as_before(bundle: Bundle) -> None:
    """Older versions know no such field; they refuse only products that have rotations."""
    teacher = Teacher.open(bundle.path)
    teacher.enroll(parts(1), "plain")
    teacher.enroll(parts(1), "turned", ROTATIONS)
    plain, turned = (
        json.loads((bundle.path / "products" / name / "product.json").read_bytes())
        for name in ("plain", "turned")
    )
    assert "rotations" not in plain and (turned["tta"], turned["rotations"]) == ("rotations", 8)
    assert turned.keys() - plain.keys() == {"rotations"}, "copies alone are the older way"
    for fields in ({"tta": "rotations"}, {"rotations": 8}, {"tta": "rotations", "rotations": 1}):
        with pytest.raises(ValueError, match="rotations"):
            Product.model_validate({**plain, **fields})


def test_the_options(here: Path) -> None:
    asked = ("product", "set", "line.anoco", "--augment", "rotations")
    ran = run_cli(*asked)
    assert ran.code == 2 and "accept it with --yes" in ran.complaint
    assert "8 views of each of 4 references make a bank of up to 512 patches" in " ".join(
        ran.err.split()
    )
    ok(*asked, "--yes")
    assert inspected_area(Bundle.open("line.anoco").product()) == "references at 8 angles"
    assert run_cli("product", "set", "line.anoco", "--rotations", 12).code == 2
    ok("product", "set", "line.anoco", "--tta", "rotations", "--rotations", 12, "-y")
    assert Bundle.open("line.anoco").product().rotations == 12
    ok("product", "set", "line.anoco", "--augment", "none")
    line = fails(2, "product", "set", "line.anoco", "--rotations", 12)
    assert "12 rotations of references that are not turned; give --augment rotations too" in line
    for wrong in (1, 65, "x"):
        ran = run_cli(*asked, "--rotations", wrong, "--yes")
        assert ran.code == 2 and "Traceback" not in ran.err
    with pytest.raises(UsageError, match="rotations: Input should be"):
        Teacher.open("line.anoco").configure(Settings({"tta": "rotations", "rotations": 0}))
