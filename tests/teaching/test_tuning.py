"""Good parts choose settings of a product, and do not calibrate it afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import tree
from product_kinds import mask_png
from tiny_bundle import make_tiny_bundle, noisy_frame, textured_picture

from anoco_edge.bundle import Bundle, Product, create_builtin_bundle
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.generations import undo
from anoco_edge.bundle.schema import LATER_FIELDS
from anoco_edge.demo.render import render
from anoco_edge.detector import Detector
from anoco_edge.errors import BundleError, PictureError, UsageError
from anoco_edge.scoring import POOLINGS
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings
from anoco_edge.teaching.synthetic_defects import synthetic_defects
from anoco_edge.teaching.tuning import TuningOutcome, tune
from anoco_edge.teaching.tuning_pictures import LEAST_PARTS, MOST_PARTS

GOOD = tuple(range(100, 120))


def frames(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"frame{s}", textured_picture(s)) for s in seeds]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_tiny_bundle(tmp_path_factory.mktemp("template") / "line.anoco").path
    Teacher.open(path).enroll(frames(1, 2, 3))
    return path


@pytest.fixture
def teacher(template: Path, tmp_path: Path) -> Teacher:
    """Open a bundle with three references."""
    return Teacher.open(Path(shutil.copytree(template, tmp_path / "line.anoco")))


def chose(outcome: TuningOutcome) -> set[str]:
    return {picture.name for picture in outcome.pictures.scored}


def calibrated(product: Product) -> set[str]:
    assert product.calibration is not None
    return {picture.name for picture in product.calibration.pictures}


# ---- the choice


def test_turned_washers_get_rotations_and_undo_takes_them_away(tmp_path: Path) -> None:
    """The built-in backbone, and washers that lie at any quarter turn."""
    path = create_builtin_bundle(tmp_path / "line.anoco").path
    teacher = Teacher.open(path)

    def washer(seed: int, turns: int) -> NewPicture:
        turned = np.rot90(render("washer", seed, size=128).rgb, turns)
        return NewPicture.from_array(f"{seed}", np.ascontiguousarray(turned))

    before = teacher.enroll([washer(0, 0)]).product
    outcome = tune(teacher, [washer(100 + k, k) for k in range(3 * LEAST_PARTS)])
    assert (outcome.present.tta, outcome.chosen.tta) == ("none", "rotations")
    assert outcome.chosen.gain > outcome.chosen.noise > 0
    product = teacher.bundle.product()
    assert (product.tta, product.rotations, product.generation) == ("rotations", 8, 2)
    assert product.change == "tune" and product.tuning is not None
    assert "rotations" in product.tuning.words and "12 good parts" in product.tuning.words
    assert undo(teacher.bundle, product.name) == before
    assert teacher.bundle.product().tuning is None


def test_every_tried_score_is_the_one_that_the_detector_would_give(teacher: Teacher) -> None:
    outcome = tune(teacher, frames(*GOOD), seed=3, commit=False)
    assert [(one.tta, one.pooling) for one in outcome.tried] == [
        (tta, pooling) for tta in ("none", "rotations") for pooling in POOLINGS
    ]
    part = outcome.pictures.scored[0]
    drawn = synthetic_defects(part.rgb, (3, int(part.pixels[:8], 16)), np.ones((32, 32), np.bool_))
    pictures = [part.rgb, *(defect.rgb for defect in drawn)]
    for one in outcome.tried:
        if not one.is_setting_of(teacher.bundle.product()):
            teacher.configure(Settings(one.fields))
        detector = Detector.open(teacher.bundle)
        found = [one.scores.good[0], *one.scores.defective[0]]
        np.testing.assert_allclose(found, [detector.inspect(p).score for p in pictures], rtol=1e-6)
        assert one.patches == len(teacher.bundle.bank(teacher.bundle.product())) and one.ms > 0


def test_where_nothing_is_better_the_setting_stays_and_the_pictures_are_recorded(
    teacher: Teacher,
) -> None:
    before = teacher.bundle.product()
    outcome = tune(teacher, frames(*GOOD))
    after = teacher.bundle.product()
    assert outcome.chosen is outcome.present
    assert (after.tta, after.pooling) == (before.tta, before.pooling)
    assert after.threshold == before.threshold and after.generation == 2
    assert after.tuning is not None and after.tuning.pictures == outcome.pictures.choosing
    assert len(after.tuning.pictures) == 10 and outcome.pictures.left == 10


def test_the_same_seed_repeats_everything_whatever_the_order(teacher: Teacher) -> None:
    first = tune(teacher, frames(*GOOD), seed=5, commit=False)
    again = tune(teacher, frames(*reversed(GOOD)), seed=5, commit=False)
    other = tune(teacher, frames(*GOOD), seed=6, commit=False)
    assert chose(first) == chose(again) != chose(other)
    assert [one.separation for one in first.tried] == [one.separation for one in again.tried]


def test_a_dry_run_changes_nothing(teacher: Teacher) -> None:
    before = tree(teacher.bundle.path)
    outcome = tune(teacher, frames(*GOOD), commit=False)
    assert tree(teacher.bundle.path) == before
    assert outcome.change.product.tuning is not None


def test_a_setting_of_the_product_itself_is_tried_too(teacher: Teacher) -> None:
    teacher.configure(Settings({"tta": "rotations", "rotations": 4}))
    outcome = tune(teacher, frames(*GOOD), commit=False)
    assert {one.augmentation for one in outcome.tried} == {"none", "rotations 4"}
    teacher.configure(Settings({"tta": "references"}, region=[(0, 0), (60, 80)]))
    outcome = tune(teacher, frames(*GOOD), commit=False)
    assert outcome.present.tta == "references"


# ---- which pictures choose


def test_pictures_of_one_part_choose_together_and_one_of_them_is_scored(teacher: Teacher) -> None:
    pictures = frames(*GOOD)
    pictures += [
        NewPicture.from_array(f"again{s}", noisy_frame(textured_picture(s), s)) for s in GOOD
    ]
    divided = tune(teacher, pictures, commit=False).pictures
    assert (len(divided.scored), len(divided.choosing), divided.left) == (10, 20, 10)
    names = {p.pixels: p.name for p in pictures}
    parts = [names[pixels][-3:] for pixels in divided.choosing]
    assert all(parts.count(part) == 2 for part in parts)
    groups = [f"{k % 4}" for k in range(len(pictures))]
    with pytest.raises(UsageError, match="40 pictures of 4 parts: too few to choose"):
        tune(teacher, pictures, groups=groups, commit=False)


def test_many_parts_leave_most_for_the_calibration(teacher: Teacher) -> None:
    divided = tune(teacher, frames(*range(100, 180)), commit=False).pictures
    assert (len(divided.scored), divided.left) == (MOST_PARTS, 80 - MOST_PARTS)


def test_calibrate_leaves_out_the_parts_that_chose(teacher: Teacher) -> None:
    outcome = tune(teacher, frames(*GOOD))
    change = teacher.calibrate(frames(*GOOD), false_reject=0.1)
    assert calibrated(change.product) == {f"frame{s}" for s in GOOD} - chose(outcome)
    assert change.notes[0].startswith("10 of 20 pictures chose the settings (tune) and do not")
    # Another frame of a part that chose resembles it too much.
    name = outcome.pictures.scored[0].name
    frame = noisy_frame(textured_picture(int(name[5:])), 1)
    change = teacher.calibrate(
        [*frames(*GOOD), NewPicture.from_array("burst", frame)], false_reject=0.1
    )
    assert "11 of 21 pictures chose" in change.notes[0] and "burst" not in calibrated(
        change.product
    )
    # Stated groups count as well.
    groups = ["together" if f"frame{s}" == name or s == GOOD[0] else f"{s}" for s in GOOD]
    change = teacher.calibrate(frames(*GOOD), false_reject=0.2, groups=groups)
    assert f"frame{GOOD[0]}" not in calibrated(change.product)


def test_calibrate_says_what_is_missing_without_the_parts_that_chose(teacher: Teacher) -> None:
    outcome = tune(teacher, frames(*GOOD))
    with pytest.raises(
        UsageError, match=r"10 of 20 pictures chose .*; 10 pictures support a false"
    ):
        teacher.calibrate(frames(*GOOD), false_reject=0.05)
    with pytest.raises(PictureError, match="all 10 calibration pictures chose the settings"):
        teacher.calibrate(list(outcome.pictures.scored), false_reject=0.2)
    # Without the choice they calibrate.
    undo(teacher.bundle, "default")
    assert len(calibrated(teacher.calibrate(frames(*GOOD), false_reject=0.05).product)) == 20


def test_pictures_that_calibrate_do_not_choose(teacher: Teacher) -> None:
    teacher.calibrate(frames(*GOOD[:10]), false_reject=0.1)
    outcome = tune(teacher, frames(*GOOD))
    assert chose(outcome) == {f"frame{s}" for s in GOOD[10:]}
    product = teacher.bundle.product()
    assert product.threshold.kind == "conformal" and len(calibrated(product)) == 10
    with pytest.raises(UsageError, match="17 pictures, of which 10 calibrate the product: too few"):
        tune(teacher, frames(*GOOD[:17]))


def test_parts_that_chose_before_choose_again(teacher: Teacher) -> None:
    first = tune(teacher, frames(*GOOD), seed=0)
    second = tune(teacher, frames(*GOOD), seed=1)
    assert chose(first) == chose(second)
    third = tune(teacher, frames(*range(200, 220)), seed=1)
    record = teacher.bundle.product().tuning
    assert record is not None and record.seed == 1
    assert set(record.pictures) == {*first.pictures.choosing, *third.pictures.choosing}
    # Other changes keep the record, because the settings stay.
    assert teacher.enroll(frames(300)).product.tuning == record


# ---- other bundles


def test_a_better_bundle_is_named_and_not_changed(teacher: Teacher, tmp_path: Path) -> None:
    """The same filters on 16 times the patches see what the small input averages away."""
    other = make_tiny_bundle(tmp_path / "large.anoco", size=(256, 256), dim=24)
    before = tree(other.path)
    teacher.configure(Settings({}, region=[(0, 0), (90, 80)], mask=mask_png()))
    outcome = tune(teacher, frames(*GOOD), also=[Teacher.open(other)])
    assert tree(other.path) == before
    assert [one.size for one in outcome.tried] == [
        size for size in ((64, 64), (256, 256)) for _ in range(2 * len(POOLINGS))
    ]
    assert outcome.chosen.bundle == teacher.bundle.path
    assert outcome.better_elsewhere is not None
    assert outcome.better_elsewhere.bundle == other.path


def test_a_bundle_is_not_compared_with_itself(teacher: Teacher) -> None:
    with pytest.raises(UsageError, match="is compared with itself"):
        tune(teacher, frames(*GOOD), also=[Teacher.open(teacher.bundle.path)])


def test_tiles_fit_one_backbone(teacher: Teacher, tmp_path: Path) -> None:
    other = Teacher.open(make_tiny_bundle(tmp_path / "large.anoco", size=(128, 128)))
    teacher.configure(Settings({}, tiles=TileSettings(grid=(2, 1))))
    assert tune(teacher, frames(*GOOD), commit=False).tried
    with pytest.raises(UsageError, match="tiles of product 'default' are planned for"):
        tune(teacher, frames(*GOOD), also=[other])


# ---- what is refused


def test_what_cannot_choose_is_refused_and_nothing_changes(teacher: Teacher) -> None:
    before = tree(teacher.bundle.path)
    with pytest.raises(UsageError, match=r"15 pictures: too few .* at least 16 good parts"):
        tune(teacher, frames(*range(100, 115)))
    with pytest.raises(PictureError, match="1 of 21 pictures to tune with are references: frame1 "):
        tune(teacher, frames(*GOOD, 1))
    with pytest.raises(PictureError, match="1 of 21 pictures to tune with are copies"):
        tune(teacher, frames(*GOOD, GOOD[0]))
    copy = NewPicture.from_array("copy", noisy_frame(textured_picture(1), 3))
    with pytest.raises(PictureError, match=r"look like copies of references: copy \(like frame1\)"):
        tune(teacher, [*frames(*GOOD), copy])
    wide = NewPicture.from_array("wide", textured_picture(7, 200, 80))
    with pytest.raises(PictureError, match="wide is 200x80, the references are 96x80"):
        tune(teacher, [*frames(*GOOD), wide])
    with pytest.raises(UsageError, match="2 groups for 20 pictures"):
        tune(teacher, frames(*GOOD), groups=["a", "b"])
    assert tree(teacher.bundle.path) == before


def test_a_threshold_set_by_hand_must_be_computed_first(teacher: Teacher) -> None:
    teacher.configure(Settings({}, threshold=0.5))
    with pytest.raises(UsageError, match=r"0\.5 was set by hand for the present settings"):
        tune(teacher, frames(*GOOD))
    assert tune(teacher, frames(*GOOD), commit=False).tried


def test_a_product_needs_references(teacher: Teacher, tmp_path: Path) -> None:
    teacher.remove(["frame1", "frame2", "frame3"])
    with pytest.raises(UsageError, match="product 'default' has no references"):
        tune(teacher, frames(*GOOD))
    empty = Teacher.open(make_tiny_bundle(tmp_path / "empty.anoco"))
    with pytest.raises(BundleError, match="has no references yet"):
        tune(empty, frames(*GOOD))


# ---- the record


def test_a_product_without_a_choice_is_written_as_before(teacher: Teacher) -> None:
    assert "tuning" in LATER_FIELDS
    assert b"tuning" not in sealed_document(teacher.bundle.product())
    tune(teacher, frames(*GOOD))
    product = Bundle.open(teacher.bundle.path).product()
    assert b"tuning" in sealed_document(product) and product.tuning is not None
