"""References are added and removed, settings and generations change, and thresholds follow."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_edits import edit_document
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.detector import Detector
from anoco_edge.engines import open_engine
from anoco_edge.errors import BundleError, PictureError, ScoringError, UsageError
from anoco_edge.images.preprocess import prepare
from anoco_edge.scoring import pool, score_patches
from anoco_edge.teaching import NewPicture, Settings, Teacher
from anoco_edge.teaching.provisional_threshold import MARGIN, MOST_HELD_OUT, mild_augmentations

Pictures = Callable[[int], list[Path]]


@pytest.fixture
def teacher(tiny_bundle: Bundle) -> Teacher:
    return Teacher.open(tiny_bundle.path)


def frame(seed: int, width: int = 96, height: int = 80) -> NewPicture:
    return NewPicture.from_array(f"frame{seed}", textured_picture(seed, width, height))


def frames(*seeds: int) -> list[NewPicture]:
    return [frame(seed) for seed in seeds]


def png(mask: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return buffer.getvalue()


def set_to(**fields: Any) -> Settings:
    return Settings(fields)


def names(product: Product) -> list[str]:
    return [r.name for r in product.references]


def places(bundle: Bundle, product: Product) -> set[tuple[int, int]]:
    bank = bundle.bank(product)
    return set(zip(bank.row.tolist(), bank.col.tolist(), strict=True))


def features_of(bundle: Bundle, rgb: np.ndarray) -> np.ndarray:
    """Compute features with preprocessing and engine alone, in float16 like the bank."""
    pixels, _ = prepare(rgb, bundle.manifest.input)
    features: np.ndarray = open_engine("auto", bundle).features(pixels[None])[0]
    return features.astype(np.float16)


# ---- references


def test_a_new_product_takes_the_pooling_of_the_bundle_unless_asked(tiny_bundle: Bundle) -> None:
    manifest = tiny_bundle.path / "manifest.json"
    assert b"image_pooling" not in manifest.read_bytes()  # older versions read the bundle
    edit_document(manifest, lambda d: d["backbone"].update(image_pooling="smooth"))
    teacher = Teacher.open(tiny_bundle.path)
    assert teacher.enroll(frames(1, 2), "new").product.pooling == "smooth"
    assert teacher.enroll(frames(1), "asked", set_to(pooling="max")).product.pooling == "max"
    assert teacher.enroll(frames(2), "asked").product.pooling == "max"


def test_enroll_keeps_the_pictures_and_says_where_each_patch_came_from(
    teacher: Teacher, good_pictures: Pictures
) -> None:
    paths = good_pictures(3)
    change = teacher.enroll([NewPicture.from_file(p) for p in paths])
    product, bundle = change.product, teacher.bundle
    assert change.added == tuple(p.name for p in paths) and change.duplicates == ()
    assert (product.name, product.generation, product.parent) == ("default", 1, None)
    assert bundle.product() == product
    folder = bundle.product_folder("default")
    for path, reference in zip(paths, product.references, strict=True):
        assert (folder / reference.file.path).read_bytes() == path.read_bytes()
        assert (reference.width, reference.height) == (96, 80)
    bank = bundle.bank(product)
    assert bank.references.features.dtype == np.float16 and len(bank) == 3 * 16
    for k, path in enumerate(paths):
        expected = features_of(bundle, np.asarray(Image.open(path)))
        mine = bank.reference == k
        patch = bank.row[mine].astype(int) * 4 + bank.col[mine]
        assert sorted(patch) == list(range(16))
        np.testing.assert_array_equal(bank.references.features[mine], expected[patch])


def test_enroll_more_and_remove_give_the_bank_of_a_fresh_start(
    teacher: Teacher, tmp_path: Path
) -> None:
    teacher.enroll(frames(1, 2, 3))
    teacher.enroll(frames(4, 5))
    product = teacher.remove(["frame2", "frame4"]).product
    assert names(product) == ["frame1", "frame3", "frame5"]
    assert (product.generation, product.parent) == (3, 2)
    fresh = Teacher.open(make_tiny_bundle(tmp_path / "fresh.anoco").path)
    anew = fresh.enroll(frames(1, 3, 5)).product
    assert product.bank is not None and anew.bank is not None
    # Features copied from an old bank have exactly the bytes that computing them gives.
    assert product.bank.sha256 == anew.bank.sha256
    assert product.threshold == anew.threshold


def test_features_of_known_pictures_are_not_computed_again(
    tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_on: list[str] = []
    teacher = Teacher.open(tiny_bundle.path, progress=worked_on.append)
    teacher.enroll(frames(1, 2))
    teacher.enroll(frames(3))
    teacher.remove(["frame1"])
    teacher.configure(set_to(metric="l2"))
    assert [name for name in worked_on if name != "threshold"] == ["frame1", "frame2", "frame3"]
    worked_on.clear()
    teacher.configure(set_to(bank_dtype="float32"))
    assert worked_on == ["frame2", "frame3", "threshold"]


def test_duplicates_are_refused_by_word(teacher: Teacher, tmp_path: Path) -> None:
    (original,) = write_good_pictures(tmp_path / "in", 1)
    copy = tmp_path / "copy.png"
    copy.write_bytes(original.read_bytes())
    bitmap = tmp_path / "same.bmp"
    Image.open(original).save(bitmap)
    change = teacher.enroll([NewPicture.from_file(p) for p in (original, copy, bitmap)])
    assert change.added == ("good0.png",)
    assert change.duplicates == ("copy.png (same as good0.png)", "same.bmp (same as good0.png)")
    assert names(change.product) == ["good0.png"]
    with pytest.raises(PictureError, match=r"nothing new: same.bmp \(same as good0.png\)"):
        teacher.enroll([NewPicture.from_file(bitmap)])
    assert teacher.bundle.product().generation == 1
    # Of a mixture, only the new ones are enrolled.
    change = teacher.enroll([NewPicture.from_file(copy), frame(9)])
    assert names(change.product) == ["good0.png", "frame9"]


def test_no_pictures_and_unknown_names_are_usage_errors(teacher: Teacher) -> None:
    with pytest.raises(UsageError, match="there are no reference pictures"):
        teacher.enroll([])
    teacher.enroll(frames(1))
    with pytest.raises(UsageError, match=r"no reference nut; it has: frame1"):
        teacher.remove(["nut"])
    for call in (teacher.remove, lambda _, product: teacher.configure(set_to(), product)):
        with pytest.raises(UsageError, match="no product 'other'"):
            call(["x"], "other")
    assert not teacher.bundle.product_folder("other").exists()
    for name in ("../x", "a/b", ".hidden", "", "a b"):
        with pytest.raises(UsageError, match="is not a product name"):
            teacher.enroll(frames(1), name)
    assert sorted(p.name for p in (teacher.bundle.path / "products").iterdir()) == ["default"]


def test_another_shape_is_refused_unless_allowed(teacher: Teacher) -> None:
    teacher.enroll([frame(1)])
    for width, height in ((80, 96), (96, 72), (106, 80)):
        with pytest.raises(PictureError, match=f"frame2 is {width}x{height}, the references are"):
            teacher.enroll([frame(2, width, height)])
    assert teacher.bundle.product().generation == 1
    # The same shape in another size, or cropped by hand, is the same scene.
    product = teacher.enroll([frame(3, 192, 160), frame(4, 98, 80)]).product
    assert names(product) == ["frame1", "frame3", "frame4"]
    product = teacher.enroll([frame(2, 80, 96)], settings=set_to(any_size=True)).product
    assert product.any_size and len(product.references) == 4
    with pytest.raises(PictureError, match="80x96"):
        teacher.configure(set_to(any_size=False))


def test_the_first_enrolment_of_mixed_shapes_is_refused(teacher: Teacher) -> None:
    with pytest.raises(PictureError, match="frame2 is 64x80"):
        teacher.enroll([frame(1), frame(2, 64, 80)])
    assert teacher.bundle.products() == []
    assert teacher.bundle.strangers() == []


def test_removing_all_leaves_a_product_without_bank_and_threshold(teacher: Teacher) -> None:
    teacher.enroll(frames(1, 2))
    product = teacher.remove(["frame1", "frame2"]).product
    assert product.bank is None and product.threshold.kind == "none"
    assert product.dropped_patches == 0
    with pytest.raises(BundleError, match="has no references"):
        Detector.open(teacher.bundle.path)
    list(teacher.bundle.verify())
    with pytest.raises(UsageError, match="needs a reference picture"):
        teacher.configure(Settings({}, region=[(0, 0), (9, 9)]))
    with pytest.raises(UsageError, match="needs a reference picture"):
        teacher.configure(Settings({}, threshold=1.0))
    assert names(teacher.enroll(frames(3, 4)).product) == ["frame3", "frame4"]


class _BlankCorner:
    """An engine whose first patches are zero, as a dead sensor corner may cause."""

    name, fingerprint = "blank", "blank"

    def __init__(self, bundle: Bundle, blank: int) -> None:
        self._engine, self._blank = open_engine("auto", bundle), blank

    def features(self, pixels: np.ndarray) -> np.ndarray:
        features = self._engine.features(pixels)
        features[:, : self._blank] = 0
        return features


def test_patches_of_zero_norm_are_dropped_and_counted(tiny_bundle: Bundle) -> None:
    teacher = Teacher(tiny_bundle, _BlankCorner(tiny_bundle, 2))
    product = teacher.enroll(frames(1, 2)).product
    assert product.dropped_patches == 4 and len(tiny_bundle.bank(product)) == 28
    everything = {(row, col) for row in range(4) for col in range(4)}
    assert places(tiny_bundle, product) == everything - {(0, 0), (0, 1)}
    assert teacher.enroll(frames(3)).product.dropped_patches == 6
    assert teacher.remove(["frame1", "frame2"]).product.dropped_patches == 2
    assert teacher.configure(set_to(bank_dtype="float32")).product.dropped_patches == 2
    blind = Teacher(tiny_bundle, _BlankCorner(tiny_bundle, 16))
    with pytest.raises(ScoringError, match="frame7 cannot be a reference"):
        blind.enroll(frames(7))


class _Loud(_BlankCorner):
    """An engine with features beyond float16's 65504."""

    def features(self, pixels: np.ndarray) -> np.ndarray:
        return self._engine.features(pixels) * np.float32(1e5)


def test_features_too_large_for_float16_ask_for_float32(tiny_bundle: Bundle) -> None:
    teacher = Teacher(tiny_bundle, _Loud(tiny_bundle, 0))
    with pytest.raises(ScoringError, match=r"frame1 do not fit into float16.*float32"):
        teacher.enroll(frames(1))
    product = teacher.enroll(frames(1), settings=set_to(bank_dtype="float32")).product
    assert tiny_bundle.bank(product).references.features.dtype == np.float32


# ---- settings


def test_every_setting_is_recorded_and_changes_what_it_should(teacher: Teacher) -> None:
    teacher.enroll(frames(1, 2, 3))
    picture = textured_picture(20)
    seen = {Detector.open(teacher.bundle.path).inspect(picture).score}
    thresholds = {teacher.bundle.product().threshold.value}
    for fields in (
        {"lambda": 3.0},
        {"lambda": 1.0, "metric": "l2"},
        {"metric": "cosine"},
        {"metric": "product", "pooling": "top5"},
        {"pooling": "max", "bank_dtype": "float32"},
    ):
        product = teacher.configure(Settings(fields)).product
        assert {k: v for k, v in product.model_dump(by_alias=True).items() if k in fields} == fields
        seen.add(Detector.open(teacher.bundle.path).inspect(picture).score)
        thresholds.add(product.threshold.value)
    assert len(seen) == len(thresholds) == 6
    product = teacher.configure(set_to(floor=0.9, min_area=12.5)).product
    assert (product.floor, product.min_area, product.generation) == (0.9, 12.5, 7)
    assert teacher.bundle.product() == product


@pytest.mark.parametrize(
    "fields",
    [
        {"lambda": 0},
        {"lambda": math.nan},
        {"lambda": math.inf},
        {"floor": 1.0},
        {"floor": -0.1},
        {"metric": "manhattan"},
        {"pooling": "mean"},
        {"bank_dtype": "int8"},
        {"min_area": -1},
        {"min_area": math.nan},
        {"invented": 1},
    ],
)
def test_a_setting_out_of_range_changes_nothing(teacher: Teacher, fields: dict[str, Any]) -> None:
    before = teacher.enroll(frames(1)).product
    with pytest.raises(UsageError, match=next(iter(fields))):
        teacher.configure(Settings(fields))
    assert teacher.bundle.product() == before


def test_thresholds_none_manual_and_back_to_provisional(teacher: Teacher) -> None:
    provisional = teacher.enroll(frames(1, 2)).product.threshold
    assert provisional.kind == "provisional"
    manual = teacher.configure(Settings({}, threshold=0.5)).product.threshold
    assert (manual.kind, manual.value) == ("manual", 0.5)
    # A threshold set by hand stays, whatever else changes, until the user removes it.
    assert teacher.enroll(frames(3)).product.threshold == manual
    teacher.remove(["frame3"])
    # It is removed where it would be compared with another kind of score, as every defect would
    # pass.
    for change in ({"metric": "l2"}, {"lambda": 2.0}, {"floor": 0.1}, {"pooling": "top5"}):
        with pytest.raises(UsageError, match="was set by hand for other scores"):
            teacher.configure(Settings(change))
    both = teacher.configure(Settings({"metric": "l2"}, threshold=0.7)).product
    assert (both.metric, both.threshold.value) == ("l2", 0.7)
    with pytest.raises(UsageError, match="nothing to change"):
        teacher.configure(Settings({}))
    teacher.configure(Settings({"metric": "product"}, threshold=0.5))
    assert teacher.configure(Settings({}, threshold=0)).product.threshold == provisional
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="threshold is"):
            teacher.configure(Settings({}, threshold=wrong))


# ---- region and mask


def test_only_patches_of_the_region_are_enrolled_and_scored(teacher: Teacher) -> None:
    # 96 x 80 pixels in 4 x 4 patches of 24 x 20; the region is the right half without its lowest
    # row.
    settings = Settings({}, region=[(48, 0), (96, 60)])
    product = teacher.enroll(frames(1, 2), settings=settings).product
    wanted = {(row, col) for row in range(3) for col in (2, 3)}
    assert places(teacher.bundle, product) == wanted
    bank = teacher.bundle.bank(product)
    expected = features_of(teacher.bundle, textured_picture(2))
    mine = bank.reference == 1
    patch = bank.row[mine].astype(int) * 4 + bank.col[mine]
    np.testing.assert_array_equal(bank.references.features[mine], expected[patch])

    detector = Detector.open(teacher.bundle.path)
    good = textured_picture(30)
    before = detector.inspect(good)
    assert set(zip(*map(list, np.nonzero(before.scored)), strict=True)) == wanted
    outside, inside = good.copy(), good.copy()
    outside[:, :45] = 255  # resizing blends across the border, by less than 3 pixels
    outside[63:] = 0
    inside[20:40, 72:96] = 255
    spoilt = detector.inspect(outside)
    assert spoilt.score == before.score and spoilt.verdict == before.verdict == "good"
    np.testing.assert_array_equal(spoilt.energy, before.energy)
    np.testing.assert_array_equal(spoilt.map, before.map)
    assert (spoilt.energy[~spoilt.scored] == 0).all()
    # Enlarging blends across one input pixel, which is 1.5 pixels of the picture, and no further.
    assert (spoilt.map[:, :46] == 0).all() and (spoilt.map[62:] == 0).all()
    found = detector.inspect(inside)
    assert found.score > 100 * before.score and found.verdict == "anomalous"
    assert found.peak == (1, 3)
    assert all(r.box[0] >= 48 and r.box[3] <= 60 for r in found.regions)
    with pytest.raises(UsageError, match="was not inspected"):
        found.evidence(0, 0)
    with pytest.raises(UsageError, match="outside the grid"):
        found.evidence(4, 0)


def test_what_is_masked_is_neither_enrolled_nor_scored(teacher: Teacher) -> None:
    mask = np.zeros((80, 96), np.uint8)
    mask[20:40, 24:48] = 255
    product = teacher.enroll(frames(1, 2), settings=Settings({}, mask=png(mask))).product
    everything = {(row, col) for row in range(4) for col in range(4)}
    assert places(teacher.bundle, product) == everything - {(1, 1)}
    detector = Detector.open(teacher.bundle.path)
    good = textured_picture(30)
    spoilt, bad = good.copy(), good.copy()
    spoilt[23:37, 27:45] = 255
    bad[40:60, 24:48] = 255
    assert detector.inspect(spoilt).score == detector.inspect(good).score
    assert detector.inspect(bad).verdict == "anomalous"
    product = teacher.configure(Settings({}, mask=b"")).product
    assert product.mask is None and places(teacher.bundle, product) == everything
    assert Detector.open(teacher.bundle.path).inspect(spoilt).verdict == "anomalous"


def test_a_region_is_taken_away_by_an_empty_one(teacher: Teacher) -> None:
    full = teacher.enroll(frames(1, 2)).product
    triangle = teacher.configure(Settings({}, region=[(0, 0), (96, 0), (0, 80)])).product
    assert (0, 0) in places(teacher.bundle, triangle)
    assert (3, 3) not in places(teacher.bundle, triangle)
    again = teacher.configure(Settings({}, region=[])).product
    assert full.bank is not None and again.bank is not None
    assert again.region is None and again.bank.sha256 == full.bank.sha256
    assert again.threshold == full.threshold


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([(0, 0), (97, 50)], "leaves the picture, which is 96x80"),
        ([(-1, 0), (50, 50)], "leaves the picture"),
        ([(0, 0), (math.nan, 50)], "leaves the picture"),
        ([(10, 10), (10, 60)], "has no area"),
        ([(10, 10)], "has no area"),
        ([(10, 10), (14, 14)], "leave no patch to inspect"),
    ],
)
def test_a_region_that_cannot_be_is_refused(
    teacher: Teacher, points: list[tuple[float, float]], says: str
) -> None:
    before = teacher.enroll(frames(1)).product
    with pytest.raises(UsageError, match=says):
        teacher.configure(Settings({}, region=points))
    assert teacher.bundle.product() == before


@pytest.mark.parametrize(("mode", "format"), [("RGBA", "PNG"), ("P", "GIF"), ("RGB", "BMP")])
def test_a_mask_of_any_format_is_kept_as_a_plain_png(
    teacher: Teacher, mode: str, format: str
) -> None:
    mask = np.zeros((80, 96), np.uint8)
    mask[20:40, 24:48] = 200
    mask[50:, 50:] = 100  # not white, so it is scored
    buffer = io.BytesIO()
    Image.fromarray(mask).convert(mode).save(buffer, format)
    product = teacher.enroll(frames(1), settings=Settings({}, mask=buffer.getvalue())).product
    assert product.mask is not None and product.mask.path.endswith(".png")
    kept = teacher.bundle.read(product.mask, teacher.bundle.product_folder(product.name))
    with Image.open(io.BytesIO(kept)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "L")
        assert np.array_equal(np.asarray(picture), np.where(mask > 127, 255, 0))


def test_a_mask_that_does_not_fit_is_refused(teacher: Teacher) -> None:
    before = teacher.enroll(frames(1)).product
    for data, error, says in (
        (png(np.zeros((96, 80), np.uint8)), PictureError, "the mask is 80x96, the references are"),
        (png(np.zeros((160, 192), np.uint8)), PictureError, "the mask is 192x160"),
        (b"no picture", PictureError, "the mask is not a picture"),
        (png(np.full((80, 96), 255, np.uint8)), UsageError, "leave no patch"),
    ):
        with pytest.raises(error, match=says):
            teacher.configure(Settings({}, mask=data))
    assert teacher.bundle.product() == before


def test_a_mask_does_not_outlive_the_shape_it_was_drawn_on(teacher: Teacher) -> None:
    mask = np.zeros((80, 96), np.uint8)
    mask[20:40, 24:48] = 255
    teacher.enroll(frames(1), settings=Settings({}, mask=png(mask)))
    teacher.remove(["frame1"])
    with pytest.raises(PictureError, match="the mask is 96x80, the references are 80x96"):
        teacher.enroll([frame(2, 80, 96)])
    assert teacher.enroll([frame(2, 192, 160)]).product.mask is not None


# ---- generations


def test_undo_goes_back_step_by_step_to_the_first(teacher: Teacher) -> None:
    bundle = teacher.bundle
    states = [
        teacher.enroll(frames(1, 2)).product,
        teacher.enroll(frames(3)).product,
        teacher.configure(set_to(metric="l2")).product,
        teacher.remove(["frame1"]).product,
    ]
    scores = []
    for expected in reversed(states):
        assert bundle.product() == expected
        scores.append(Detector.open(bundle.path).inspect(textured_picture(5)).score)
        list(bundle.verify())
        if expected.parent is not None:
            undo(bundle, "default")
    assert len(set(scores)) == 4
    with pytest.raises(UsageError, match="at its first generation; there is nothing to undo"):
        undo(bundle, "default")
    # A new change branches off here: it gets a number of its own, and undo leads back to 1.
    branch = teacher.enroll(frames(8)).product
    assert (branch.generation, branch.parent) == (5, 1)
    assert [g.generation for g in bundle.generations("default")] == [1, 2, 3, 4, 5]
    assert undo(bundle, "default") == states[0]


def test_a_generation_without_a_bank_keeps_its_number(teacher: Teacher) -> None:
    first = teacher.enroll(frames(1)).product
    assert teacher.remove(["frame1"]).product.generation == 2
    assert undo(teacher.bundle, "default") == first
    assert teacher.enroll(frames(2)).product.generation == 3
    assert [g.change for g in teacher.bundle.generations("default")][1] == "remove 1"


def test_prune_deletes_only_what_nobody_needs(teacher: Teacher) -> None:
    bundle = teacher.bundle
    black = png(np.pad(np.full((20, 24), 255, np.uint8), ((0, 60), (0, 72))))
    teacher.enroll(frames(1, 2), settings=Settings({}, mask=black))
    teacher.remove(["frame1"])
    product = teacher.configure(Settings({}, mask=b"")).product
    folder = bundle.product_folder("default")
    theirs = [
        folder / name
        for name in (
            "notes.txt",
            "bank-mine.safetensors",
            "mask-backup.png",
            "references/readme.txt",
            "references/frame1.png",
            "history/product-old.json",
            "calibration/scores.json",
            "history/deep/product-1.json",
        )
    ]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (folder / ".tmp-left-by-a-kill").write_text("half")
    deleted = {p.relative_to(folder).as_posix() for p in prune(bundle, "default")}
    kept = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert sorted(kept) == sorted(
        {
            ".lock",
            "product.json",
            "history/product-3.json",
            "bank-3.safetensors",
            product.references[0].file.path,
            *(p.relative_to(folder).as_posix() for p in theirs),
        }
    )
    assert {"bank-1.safetensors", "history/product-1.json", ".tmp-left-by-a-kill"} <= deleted
    assert sum(name.startswith("mask-") for name in deleted) == 1
    assert sum(name.startswith("references/") for name in deleted) == 1
    list(bundle.verify())
    assert bundle.product() == product
    with pytest.raises(UsageError, match="generation 2 of 'default' was pruned: no way back"):
        undo(bundle, "default")
    assert bundle.product() == product
    assert teacher.enroll(frames(7)).product.generation == 4
    assert undo(bundle, "default") == product
    assert prune(bundle, "default") != [] and prune(bundle, "default") == []


def test_undo_to_a_generation_whose_files_are_gone_is_refused(teacher: Teacher) -> None:
    teacher.enroll(frames(1, 2))
    product = teacher.enroll(frames(3)).product
    (teacher.bundle.product_folder("default") / "bank-1.safetensors").unlink()
    with pytest.raises(BundleError, match=r"bank-1.safetensors is missing"):
        undo(teacher.bundle, "default")
    assert teacher.bundle.product() == product


# ---- the provisional threshold


@pytest.mark.parametrize("pooling", ["max", "top5", "smooth"])
@pytest.mark.parametrize("metric", ["product", "l2", "cosine"])
def test_leave_one_picture_out_is_what_it_says(teacher: Teacher, metric: str, pooling: str) -> None:
    settings = Settings({"metric": metric, "pooling": pooling, "lambda": 2.0, "floor": 0.9})
    spotted = textured_picture(3)
    spotted[20:40, 24:48] = 255  # resembles no reference, so the floor applies
    rgb = [textured_picture(1), textured_picture(2), spotted]
    pictures = [NewPicture.from_array(str(k), picture) for k, picture in enumerate(rgb)]
    product = teacher.enroll(pictures, settings=settings).product
    features = [features_of(teacher.bundle, picture) for picture in rgb]
    shape = (teacher.bundle.manifest.input.rows, teacher.bundle.manifest.input.cols)
    scores = []
    for k in range(3):
        others = np.concatenate([f for j, f in enumerate(features) if j != k])
        found = score_patches(features[k], others, 2.0, metric, "reference", floor=0.9)  # type: ignore[arg-type]
        scores.append(pool(found.energy.reshape(shape), pooling))
    threshold = product.threshold
    assert threshold.kind == "provisional"
    assert threshold.evidence.method == "leave-one-picture-out"
    np.testing.assert_allclose(threshold.evidence.scores, scores, rtol=1e-3, atol=1e-9)
    assert threshold.value == pytest.approx(MARGIN * max(threshold.evidence.scores))
    assert len({round(s, 9) for s in scores}) == 3


def test_leaving_out_covers_first_and_last_of_many_pictures(teacher: Teacher) -> None:
    odd = textured_picture(0)
    odd[20:60, 24:72] = 255
    pictures = [*frames(*range(1, MOST_HELD_OUT + 8)), NewPicture.from_array("odd", odd)]
    threshold = teacher.enroll(pictures).product.threshold
    scores = threshold.evidence.scores
    assert len(scores) == MOST_HELD_OUT and scores[-1] > 10 * scores[0]
    assert threshold.value == MARGIN * scores[-1]


def test_one_reference_is_compared_with_its_gentle_variations(
    teacher: Teacher, tmp_path: Path
) -> None:
    product = teacher.enroll(frames(1)).product
    bank = features_of(teacher.bundle, textured_picture(1))
    pixels = [
        prepare(v, teacher.bundle.manifest.input)[0] for v in mild_augmentations(frame(1).rgb)
    ]
    views = open_engine("auto", teacher.bundle).features(np.stack(pixels))
    scores = [score_patches(view, bank, scorer="reference").energy.max() for view in views]
    threshold = product.threshold
    assert threshold.kind == "provisional" and threshold.value == pytest.approx(
        MARGIN * max(scores), rel=1e-3
    )
    assert "only reference" in threshold.evidence.method
    again = Teacher.open(make_tiny_bundle(tmp_path / "again.anoco").path).enroll(frames(1))
    assert again.product.threshold == threshold
    # The picture read from the bundle gives the same threshold as the original pixels.
    teacher.enroll(frames(2))
    assert teacher.remove(["frame2"]).product.threshold == threshold


def test_mild_augmentations_are_gentle_seeded_and_all_different() -> None:
    picture = textured_picture(1)
    views, again = mild_augmentations(picture), mild_augmentations(picture)
    assert len({v.tobytes() for v in views} | {picture.tobytes()}) == len(views) + 1
    for view, same in zip(views, again, strict=True):
        np.testing.assert_array_equal(view, same)
        assert view.shape == picture.shape and view.dtype == np.uint8


def test_mild_augmentations_move_a_corner_by_pixels_and_the_light_by_percents() -> None:
    picture = np.zeros((80, 96, 3), np.uint8)
    picture[8:14, 8:14] = 200
    y, x = np.mgrid[0:80, 0:96]
    moved, light = [], []
    for view in mild_augmentations(picture):
        weight = view[..., 0].astype(float)
        centre = (weight * x).sum() / weight.sum(), (weight * y).sum() / weight.sum()
        moved.append(np.hypot(centre[0] - 10.5, centre[1] - 10.5))
        light.append(weight.sum() / (36 * 200))
    # That is 2 degrees at 48 pixels from the middle, and 1 % of the width.
    assert 0.5 < max(moved) < 3.5
    assert max(light) - min(light) > 0.02 and max(abs(v - 1) for v in light) < 0.07


@pytest.mark.parametrize("metric", ["product", "l2", "cosine"])
@pytest.mark.parametrize("scorer", ["onnx", "reference"])
def test_pictures_without_any_spread_give_no_threshold(
    tiny_bundle: Bundle, metric: str, scorer: str
) -> None:
    """Two pictures that look the same to the backbone say nothing about good parts.

    Their rounding differences do not make a threshold.
    """
    first = textured_picture(1, 64, 64)
    second = first.copy()
    second[0, 0, 0] ^= 1
    pictures = [NewPicture.from_array("a", first), NewPicture.from_array("b", second)]
    teacher = Teacher.open(tiny_bundle.path, scorer=scorer)
    settings = Settings({"metric": metric}, region=[(16, 16), (64, 64)])  # without that pixel
    product = teacher.enroll(pictures, settings=settings).product
    assert product.threshold.kind == "none" and product.threshold.value is None
    assert len(product.threshold.evidence.scores) == 2
    result = Detector.open(tiny_bundle.path).inspect(textured_picture(5, 64, 64))
    assert result.verdict == "uncalibrated" and result.ratio is None and result.regions == ()
