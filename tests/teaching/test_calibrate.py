"""Calibration sets a threshold with a guarantee, and later changes keep or drop it correctly."""

from __future__ import annotations

import io
import math
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from command_line import tree
from other_process import commit_and_die
from PIL import Image
from tiny_bundle import make_tiny_bundle, noisy_frame, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.demo.render import render
from anoco_edge.detector import Detector
from anoco_edge.engines import open_engine
from anoco_edge.errors import BundleError, PictureError, ScoringError, StorageError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.scoring import pool, score_patches
from anoco_edge.scoring.conformal import conformal_threshold
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings

GOOD = tuple(range(100, 109))  # nine held-out parts; with a rate of 0.2 the 8th score is taken
RATE = 0.2


def frames(*seeds: int, size: tuple[int, int] = (96, 80)) -> list[NewPicture]:
    return [NewPicture.from_array(f"frame{s}", textured_picture(s, *size)) for s in seeds]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_tiny_bundle(tmp_path_factory.mktemp("template") / "line.anoco").path
    Teacher.open(path).enroll(frames(1, 2, 3))
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """Write a bundle with three references."""
    return Path(shutil.copytree(template, tmp_path / "line.anoco"))


@pytest.fixture
def teacher(path: Path) -> Teacher:
    return Teacher.open(path)


def calibrate(teacher: Teacher, *seeds: int, rate: float = RATE, **options: object) -> Product:
    pictures = frames(*(seeds or GOOD))
    return teacher.calibrate(pictures, false_reject=rate, **options).product  # type: ignore[arg-type]


def scores_of(path: Path, *seeds: int) -> list[float]:
    """Return the scores that the line would give these parts."""
    detector = Detector.open(path)
    return [detector.inspect(textured_picture(seed)).score for seed in seeds]


def stored_scores(product: Product) -> list[float | None]:
    assert product.calibration is not None
    return [p.score for p in product.calibration.pictures]


def generations(teacher: Teacher) -> list[int]:
    return [g.generation for g in teacher.bundle.generations("default")]


# ---- the threshold


@pytest.mark.parametrize(
    "settings",
    [
        Settings({}),
        Settings({"pooling": "top5"}),
        Settings({"metric": "cosine", "lambda": 2.0}),
        Settings({}, region=[(0, 0), (60, 80)]),
        Settings({}, tiles=TileSettings(grid=(2, 1))),
        Settings({}, max_patches=20),
        Settings({"tta": "references"}),
        Settings({"tta": "paper"}),
        Settings({"tta": "rotations"}),
    ],
    ids=[
        *("plain", "top5", "cosine", "region", "tiles", "coreset"),
        *("tta-references", "tta-paper", "rotations"),
    ],
)
def test_the_threshold_is_the_kth_smallest_score_that_the_detector_gives(
    teacher: Teacher, settings: Settings
) -> None:
    if settings != Settings({}):
        teacher.configure(settings)
    product = calibrate(teacher)
    found = scores_of(teacher.bundle.path, *GOOD)
    assert stored_scores(product) == found and len(set(found)) == 9
    assert product.threshold.kind == "conformal"
    assert product.threshold.value == sorted(found)[8 - 1]
    # The part on the threshold is good; only the one above it is not.
    detector = Detector.open(teacher.bundle.path)
    for seed, score in zip(GOOD, found, strict=True):
        expected = "anomalous" if score == max(found) else "good"
        result = detector.inspect(textured_picture(seed))
        assert (result.verdict, result.threshold_kind) == (expected, "conformal")
        assert bool(result.regions) == (expected == "anomalous")


def test_the_evidence_says_in_words_what_is_promised(teacher: Teacher) -> None:
    evidence = calibrate(teacher).threshold.evidence
    assert evidence.exact is True and evidence.method == "held-out pictures"
    assert (evidence.asked, evidence.false_reject) == (0.2, 0.2)
    assert (evidence.parts, evidence.order) == (9, 8)
    low, high = evidence.interval  # quantiles of Beta(2, 8), by scipy
    assert (round(low, 4), round(high, 4)) == (0.0410, 0.4291)
    words = evidence.words
    assert "At most 20 % of good parts are rejected on average" in words and "(2 of 10)" in words
    assert "between 4.1 % and 42.9 %" in words
    assert teacher.bundle.product().threshold.evidence == evidence


def test_without_pictures_each_reference_meets_the_others(teacher: Teacher) -> None:
    product = teacher.calibrate([], false_reject=0.25).product
    bank = teacher.bundle.bank(product)
    features, expected = bank.references.features.astype(np.float64), []
    for number in range(3):
        own = bank.reference == number
        expected.append(pool(score_patches(features[own], features[~own]).energy))
    evidence = product.threshold.evidence
    np.testing.assert_allclose(evidence.scores, expected, rtol=1e-4)
    assert product.threshold.value == max(evidence.scores)
    assert evidence.exact is False and "no exact guarantee" in evidence.words
    assert product.calibration is not None and product.calibration.pictures == ()
    # One reference alone has no other to be compared with, so there is no verdict.
    change = teacher.remove(["frame1", "frame2"])
    assert change.product.threshold.kind == "none"
    assert "a single reference cannot be held out" in change.notes[0]
    with pytest.raises(UsageError, match="a single reference cannot be held out"):
        teacher.calibrate([], accept_fewer=True)


def test_too_few_pictures_change_nothing_unless_told_to(teacher: Teacher) -> None:
    before = tree(teacher.bundle.path)
    with pytest.raises(UsageError, match="9 pictures support a false-reject rate of 10 % at best"):
        calibrate(teacher, rate=0.05)
    assert tree(teacher.bundle.path) == before
    threshold = calibrate(teacher, rate=0.05, accept_fewer=True).threshold
    assert threshold.value == max(scores_of(teacher.bundle.path, *GOOD))
    assert threshold.evidence.words.startswith("Only 9 good parts, held out: that supports 10 %")
    assert (threshold.evidence.asked, threshold.evidence.false_reject) == (0.05, 0.1)


def test_pictures_of_one_part_count_once_by_the_highest(teacher: Teacher) -> None:
    groups = ["a", "b", "c", "a", "b", "c", "a", "b", "d"]
    product = calibrate(teacher, groups=groups)
    found = scores_of(teacher.bundle.path, *GOOD)
    highest = [max(s for s, g in zip(found, groups, strict=True) if g == name) for name in "abcd"]
    # With four parts and 20 %, it is the largest of the four.
    assert product.threshold.value == max(highest)
    assert (product.threshold.evidence.parts, product.threshold.evidence.order) == (4, 4)
    assert "each judged by the highest score of its pictures" in product.threshold.evidence.words
    with pytest.raises(UsageError, match="4 parts support a false-reject rate of 20 % at best"):
        calibrate(teacher, rate=0.1, groups=groups)
    with pytest.raises(UsageError, match="2 groups for 9 pictures"):
        calibrate(teacher, groups=["a", "b"])


def test_good_parts_without_any_difference_get_a_threshold_above_rounding(path: Path) -> None:
    """With a threshold of 0, rounding errors would decide the verdict."""
    teacher = Teacher(Bundle.open(path), _Constant(Bundle.open(path)))
    teacher.enroll(frames(4), "same")
    product = teacher.calibrate(frames(*GOOD), "same", false_reject=RATE).product
    assert product.threshold.value is not None and 0 < product.threshold.value < 1e-9


class _Constant:
    """An engine that gives the same features for all pictures."""

    name, fingerprint = "constant", "constant"

    def __init__(self, bundle: Bundle) -> None:
        self._engine = open_engine("auto", bundle)

    def features(self, pixels: np.ndarray) -> np.ndarray:
        features = self._engine.features(pixels)
        features[:] = np.arange(1, features.shape[-1] + 1)
        return features


# ---- pictures of one part


def frames_of(seed: int, count: int, sigma: float = 3.0) -> list[NewPicture]:
    """Draw several pictures of one part, as a camera that takes a burst does."""
    rgb = textured_picture(seed)
    noisy = (noisy_frame(rgb, 1000 * seed + k, sigma) for k in range(count))
    return [NewPicture.from_array(f"part{seed}-{k}", frame) for k, frame in enumerate(noisy)]


def encoded(picture: NewPicture, name: str, quality: int = 80) -> NewPicture:
    """Return the same picture in another file format, with differences nobody can see."""
    packed = io.BytesIO()
    Image.fromarray(picture.rgb).save(packed, "JPEG", quality=quality)
    return NewPicture.from_array(name, decode_picture(packed.getvalue(), name))


def test_thirty_frames_of_one_part_promise_nothing_about_thirty_parts(teacher: Teacher) -> None:
    """30 frames once gave "30 good parts ... at most 3.3 %", and 27 of 34 were rejected."""
    before, burst = tree(teacher.bundle.path), frames_of(200, 30)
    with pytest.raises(UsageError, match=r"30 pictures look like 1 part: 1 part supports .* 50 %"):
        teacher.calibrate(burst, false_reject=0.05)
    assert tree(teacher.bundle.path) == before
    change = teacher.calibrate(burst, false_reject=0.05, accept_fewer=True)
    evidence = change.product.threshold.evidence
    assert (evidence.parts, evidence.parts_found, evidence.pictures) == (1, 1, 30)
    assert evidence.false_reject == 0.5 and "3.3 %" not in evidence.words
    assert "(30 pictures look like 1 part)" in evidence.words
    assert change.notes[0].startswith("30 pictures look like 1 part (for example part200-0 and")
    # The guarantee must hold for other good parts.
    value = change.product.threshold.value
    assert value is not None
    rejected = np.mean([s > value for s in scores_of(teacher.bundle.path, *range(300, 334))])
    assert rejected <= evidence.interval[1]


def test_ten_frames_of_three_parts_are_three_parts(teacher: Teacher) -> None:
    pictures = [p for seed in (200, 201, 202) for p in frames_of(seed, 10)]
    product = teacher.calibrate(pictures, false_reject=0.25).product
    assert product.threshold.evidence.parts == 3
    assert product.calibration is not None
    assert {p.group for p in product.calibration.pictures} == {
        f"part{k}-0" for k in (200, 201, 202)
    }
    with pytest.raises(UsageError, match="30 pictures look like 3 parts: 3 parts support"):
        teacher.calibrate(pictures, false_reject=0.1)


def test_stated_groups_that_look_like_one_part_are_used_but_promise_nothing(
    teacher: Teacher,
) -> None:
    burst = frames_of(200, 9)
    groups = [p.name for p in burst]
    change = teacher.calibrate(burst, false_reject=RATE, groups=groups, keep=False)
    evidence = change.product.threshold.evidence
    assert (evidence.parts, evidence.parts_found, evidence.exact) == (9, 1, False)
    assert evidence.doubts == ("they look like 1 (part200-0 and part200-1 for example)",)
    assert change.notes == (f"no rate is promised: {evidence.doubts[0]}",)
    words = evidence.words
    assert words.startswith("9 good parts, held out, but they look like 1 (part200-0 and part200-1")
    assert "There is no guarantee" in words and "At most" not in words
    # The doubt survives a threshold set by hand, and the way back from it.
    teacher.configure(Settings({}, threshold=5.0))
    assert teacher.configure(Settings({}, threshold=0)).product.threshold.evidence == evidence


def test_copies_of_references_in_other_files_do_not_calibrate(teacher: Teacher) -> None:
    before, (first, second) = tree(teacher.bundle.path), frames(1, 2)
    small = Image.fromarray(second.rgb).resize((72, 60), Image.Resampling.BICUBIC)
    copies = [encoded(first, "copy.jpg"), NewPicture.from_array("small.png", np.asarray(small))]
    with pytest.raises(
        PictureError,
        match=r"2 of 11 .* look like copies of references: copy.jpg \(like frame1\), small",
    ):
        teacher.calibrate([*frames(*GOOD), *copies], false_reject=RATE)
    assert tree(teacher.bundle.path) == before


def test_a_copy_of_a_calibration_picture_that_becomes_a_reference_sets_it_aside(
    teacher: Teacher,
) -> None:
    calibrate(teacher)
    change = teacher.enroll([encoded(frames(103)[0], "copy.jpg")])
    assert change.notes == ("frame103 is a reference now and no longer calibrates",)
    evidence = change.product.threshold.evidence
    assert evidence.parts == 8 and "became reference since" in evidence.words
    assert change.product.calibration is not None
    assert change.product.calibration.pictures[3].score is None
    teacher.configure(Settings({}, threshold=5.0))
    assert teacher.configure(Settings({}, threshold=0)).product.threshold.evidence == evidence


def test_parts_that_score_far_below_the_references_are_pointed_out(teacher: Teacher) -> None:
    """The references have nothing in common, and the parts are like one of them."""
    strange = np.random.default_rng(5).integers(0, 255, (80, 96, 3), dtype=np.uint8)
    teacher.enroll([*frames(1), NewPicture.from_array("strange", strange)], "mixed")
    change = teacher.calibrate(frames(*GOOD), "mixed", false_reject=RATE)
    assert change.product.threshold.evidence.exact is False
    assert any("score far below the references among each other" in note for note in change.notes)


def test_frames_of_a_shaken_camera_are_doubted(teacher: Teacher) -> None:
    """No two are as close as copies, but all are closer than the references."""

    def blocks(seed: int, shift: int = 0) -> np.ndarray:
        tile = np.random.default_rng(seed).integers(30, 220, (5, 6, 3), dtype=np.uint8)
        rgb = np.kron(tile, np.ones((16, 16, 1), np.uint8))
        return np.roll(rgb, (2 * (shift // 3), 2 * (shift % 3)), (0, 1))

    teacher.enroll([NewPicture.from_array(f"r{k}", blocks(k)) for k in range(2)], "blocks")
    shaken = [NewPicture.from_array(f"s{k}", blocks(7, k)) for k in range(9)]
    change = teacher.calibrate(shaken, "blocks", false_reject=RATE)
    evidence = change.product.threshold.evidence
    assert (evidence.parts, evidence.exact) == (9, False)
    assert "of what they differ from the references" in evidence.words
    apart = [NewPicture.from_array(f"p{k}", blocks(20 + k)) for k in range(9)]
    assert teacher.calibrate(apart, "blocks", false_reject=RATE).notes == ()


def test_references_that_are_frames_of_one_part_are_pointed_out(teacher: Teacher) -> None:
    """`infer --teach 4` takes such references of a part that does not move."""
    change = teacher.enroll(frames_of(200, 4), "still")
    (note,) = change.notes
    assert note.startswith("the 4 references look like one part: the provisional threshold rests")
    assert "far too low for other good parts" in note
    assert change.product.threshold.kind == "provisional"
    assert change.product.threshold.evidence.words == note
    change = teacher.calibrate([], "still", false_reject=RATE)
    assert change.notes == ("no rate is promised: the 4 references look like one part",)
    words = change.product.threshold.evidence.words
    assert "but the 4 references look like one part. There is no exact guarantee" in words
    assert teacher.enroll(frames(210), "still").notes == ()


def test_pictures_of_mixed_sizes(teacher: Teacher) -> None:
    """The same shape in other sizes calibrates, but other shapes only where all are allowed."""
    sizes = [(96, 80), (192, 160), (48, 40), (97, 80), (300, 250)]

    def mixed(*more: tuple[int, int]) -> list[NewPicture]:
        made = []
        for k, size in enumerate([*sizes, *sizes, *more]):
            rgb = Image.fromarray(textured_picture(100 + k)).resize(size)
            made.append(NewPicture.from_array(f"p{k}", np.asarray(rgb)))
        return made

    assert teacher.calibrate(mixed(), false_reject=RATE).product.threshold.evidence.parts == 10
    before = tree(teacher.bundle.path)
    with pytest.raises(PictureError, match="p10 is 80x96, the references are 96x80"):
        teacher.calibrate(mixed((80, 96), (500, 20)), false_reject=RATE)
    assert tree(teacher.bundle.path) == before
    teacher.configure(Settings({"any_size": True}))
    change = teacher.calibrate(mixed((80, 96), (500, 20), (16, 16)), false_reject=RATE)
    assert change.product.threshold.evidence.parts == 13
    copy = Image.fromarray(textured_picture(1)).resize((160, 40))
    with pytest.raises(PictureError, match=r"look like copies of references: c \(like frame1\)"):
        teacher.calibrate(
            [*mixed(), NewPicture.from_array("c", np.asarray(copy))], false_reject=RATE
        )


# ---- what is refused


def test_references_and_copies_do_not_calibrate(teacher: Teacher) -> None:
    before = tree(teacher.bundle.path)
    with pytest.raises(
        PictureError, match=r"2 of 11 .* are references: frame1 \(same as frame1\), fr"
    ):
        calibrate(teacher, *GOOD, 1, 2)
    with pytest.raises(PictureError, match=r"1 of 10 .* are copies: frame100 \(same as frame100\)"):
        calibrate(teacher, *GOOD, 100)
    assert tree(teacher.bundle.path) == before


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_an_impossible_rate_is_refused(teacher: Teacher, rate: float) -> None:
    with pytest.raises(UsageError, match="is not possible"):
        calibrate(teacher, rate=rate)
    assert teacher.bundle.product().generation == 1


@pytest.mark.parametrize("sigmas", [-1.0, math.nan, math.inf])
def test_an_impossible_baseline_is_refused(teacher: Teacher, sigmas: float) -> None:
    with pytest.raises(UsageError, match="a baseline of"):
        calibrate(teacher, sigmas=sigmas)
    assert teacher.bundle.product().generation == 1


def test_another_shape_is_refused_by_name(teacher: Teacher) -> None:
    with pytest.raises(PictureError, match="frame7 is 80x96, the references are 96x80"):
        teacher.calibrate([*frames(*GOOD), *frames(7, size=(80, 96))], false_reject=RATE)
    assert teacher.bundle.product().generation == 1


class _Blind(_Constant):
    """An engine that gives zero features for dark pictures."""

    def features(self, pixels: np.ndarray) -> np.ndarray:
        features = self._engine.features(pixels)
        features[pixels.mean(axis=(1, 2, 3)) < 20] = 0
        return features


def test_a_picture_that_cannot_be_scored_is_named(path: Path) -> None:
    teacher = Teacher(Bundle.open(path), _Blind(Bundle.open(path)))
    dark = NewPicture.from_array("night.png", np.zeros((80, 96, 3), np.uint8))
    with pytest.raises(ScoringError, match=r"night\.png cannot be scored"):
        teacher.calibrate([*frames(*GOOD), dark], false_reject=RATE)
    assert teacher.bundle.product().generation == 1


def test_a_product_without_references_cannot_be_calibrated(teacher: Teacher) -> None:
    teacher.remove(["frame1", "frame2", "frame3"])
    with pytest.raises(BundleError, match="has no references; teach it with"):
        calibrate(teacher)
    with pytest.raises(UsageError, match="no product 'other'"):
        calibrate(teacher, product="other")
    assert not teacher.bundle.product_folder("other").exists()


# ---- teaching goes on


@pytest.mark.parametrize("sigmas", [None, 1.0], ids=["plain", "baseline"])
def test_new_references_bring_the_threshold_of_a_fresh_calibration(
    teacher: Teacher, template: Path, tmp_path: Path, sigmas: float | None
) -> None:
    calibrate(teacher, sigmas=sigmas)
    change = teacher.enroll(frames(4, 5))
    after = change.product
    assert (after.generation, after.parent) == (3, 2) and change.notes == ()
    assert generations(teacher) == [1, 2, 3], "bank and threshold are one generation"
    fresh = Teacher.open(shutil.copytree(template, tmp_path / "fresh.anoco"))
    fresh.enroll(frames(4, 5))
    anew = calibrate(fresh, sigmas=sigmas)
    assert after.threshold == anew.threshold and after.threshold.kind == "conformal"
    assert after.calibration == anew.calibration
    assert (after.baseline is None) == (sigmas is None)
    assert stored_scores(after) != stored_scores(teacher.bundle.generations("default")[1])
    # Removing them again restores the old state.
    back = teacher.remove(["frame4", "frame5"]).product
    first = teacher.bundle.generations("default")[1]
    assert (back.threshold, back.calibration) == (first.threshold, first.calibration)


def test_a_detector_goes_on_serving_while_the_product_is_taught(teacher: Teacher) -> None:
    calibrate(teacher)
    part = textured_picture(40)
    detector = Detector.open(teacher.bundle.path)
    before = detector.inspect(part)
    teacher.enroll(frames(4, 5))
    after = detector.inspect(part)
    assert (after.score, after.threshold, after.generation) == (before.score, before.threshold, 2)
    assert Detector.open(teacher.bundle.path).inspect(part).generation == 3


def test_pictures_that_were_not_kept_leave_the_product_uncalibrated(teacher: Teacher) -> None:
    product = calibrate(teacher, keep=False)
    assert not (teacher.bundle.product_folder("default") / "calibration").exists()
    assert product.calibration is not None
    assert all(p.file is None and p.score is not None for p in product.calibration.pictures)
    change = teacher.enroll(frames(4))
    assert change.product.threshold.kind == "none" and change.product.calibration is None
    (note,) = change.notes
    assert note.startswith("verdicts will be 'uncalibrated': its calibration pictures were not kep")
    assert change.product.threshold.evidence.lost in note
    assert Detector.open(teacher.bundle.path).inspect(textured_picture(40)).verdict == (
        "uncalibrated"
    )


def test_a_calibration_picture_that_becomes_a_reference_no_longer_calibrates(
    teacher: Teacher,
) -> None:
    calibrate(teacher)
    change = teacher.enroll(frames(104))
    assert change.notes == ("frame104 is a reference now and no longer calibrates",)
    left = [seed for seed in GOOD if seed != 104]
    stored = [score for score in stored_scores(change.product) if score is not None]
    assert stored == scores_of(teacher.bundle.path, *left)
    evidence = change.product.threshold.evidence
    assert evidence.parts == 8
    # Which part became a reference was a choice, so those left are no longer a fair sample.
    assert evidence.exact is False and "no longer holds exactly" in evidence.words


def test_too_few_left_wait_for_the_references_to_go_again(teacher: Teacher) -> None:
    before = calibrate(teacher)
    change = teacher.enroll(frames(*GOOD[:6]))
    assert change.product.threshold.kind == "none"
    assert "3 pictures support a false-reject rate of 25 % at best" in change.notes[-1]
    assert "frame100 is a reference now" in change.notes[0]
    # A later change does not silently replace it by a provisional threshold.
    change = teacher.enroll(frames(4))
    assert change.product.threshold.kind == "none" and "uncalibrated" in change.notes[-1]
    change = teacher.remove([f"frame{seed}" for seed in (4, *GOOD[:6])])
    assert change.product.threshold == before.threshold


def test_a_lost_calibration_stays_lost_until_told_otherwise(teacher: Teacher) -> None:
    calibrate(teacher, keep=False)
    assert teacher.enroll(frames(4)).product.threshold.kind == "none"
    again = teacher.enroll(frames(5))
    assert again.product.threshold.kind == "none" and "not kept" in again.notes[0]
    anew = teacher.configure(Settings({}, threshold=0)).product.threshold
    assert anew.kind == "provisional"


def test_the_other_pictures_of_a_part_that_became_a_reference_are_set_aside(
    teacher: Teacher,
) -> None:
    seeds = range(100, 112)
    groups = [f"part{seed // 2}" for seed in seeds]
    teacher.calibrate(frames(*seeds), false_reject=0.2, groups=groups)
    product = teacher.enroll(frames(104)).product
    assert product.calibration is not None
    unscored = [p.name for p in product.calibration.pictures if p.score is None]
    assert unscored == ["frame104", "frame105"]
    assert product.threshold.evidence.parts == 5


def test_a_threshold_set_by_hand_is_not_for_other_tiles(teacher: Teacher) -> None:
    teacher.configure(Settings({}, threshold=7.0))
    with pytest.raises(UsageError, match="was set by hand for other scores"):
        teacher.configure(Settings({}, tiles=TileSettings(grid=(2, 1))))


def test_a_thinned_bank_is_not_made_anew_for_a_setting_that_does_not_concern_it(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher.configure(Settings({}, max_patches=20))
    before = calibrate(teacher, keep=False)
    monkeypatch.setattr(teacher, "engine", None)  # it would be asked for features
    after = teacher.configure(Settings({"min_area": 30.0})).product
    assert (after.threshold, after.coreset) == (before.threshold, before.coreset)


def test_no_calibration_picture_left(teacher: Teacher) -> None:
    calibrate(teacher, 100, rate=0.5)
    change = teacher.enroll(frames(100))
    assert change.product.threshold.kind == "none"
    assert "no calibration picture is left" in change.notes[-1]


def test_a_wrong_scorer_does_not_cost_the_calibration(teacher: Teacher) -> None:
    """Only errors of the calibration itself end it; other errors refuse the change."""
    before = calibrate(teacher)
    with pytest.raises(UsageError, match="unknown scorer 'typo'"):
        Teacher.open(teacher.bundle.path, scorer="typo").enroll(frames(4))
    assert teacher.bundle.product() == before


# ---- settings


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "scores-only"])
def test_a_setting_that_leaves_the_scores_alone_leaves_the_calibration_alone(
    path: Path, keep: bool
) -> None:
    worked_on: list[str] = []
    teacher = Teacher.open(path, progress=worked_on.append)
    before = calibrate(teacher, keep=keep)
    worked_on.clear()
    after = teacher.configure(Settings({"min_area": 30.0, "any_size": True}))
    assert worked_on == [] and after.notes == ()
    assert (after.product.threshold, after.product.calibration) == (
        before.threshold,
        before.calibration,
    )
    # A setting that changes the scores: they are computed again, or dropped.
    after = teacher.configure(Settings({"lambda": 3.0}))
    if keep:
        assert worked_on == ["threshold", *(f"frame{seed}" for seed in GOOD)]
        assert stored_scores(after.product) == scores_of(path, *GOOD)
        assert after.product.threshold.value != before.threshold.value
    else:
        assert after.product.threshold.kind == "none" and after.notes


@pytest.mark.parametrize("sigmas", [None, 0.5], ids=["plain", "baseline"])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "scores-only"])
def test_a_threshold_set_by_hand_stands_above_the_calibrated_one(
    teacher: Teacher, keep: bool, sigmas: float | None
) -> None:
    calibrated = calibrate(teacher, keep=keep, sigmas=sigmas)
    manual = teacher.configure(Settings({}, threshold=7.0)).product
    assert (manual.threshold.kind, manual.threshold.value) == ("manual", 7.0)
    assert (manual.calibration, manual.baseline) == (calibrated.calibration, calibrated.baseline)
    detector = Detector.open(teacher.bundle.path)
    assert detector.threshold == 7.0 and detector.inspect(textured_picture(100)).verdict == "good"
    back = teacher.configure(Settings({}, threshold=0)).product
    assert back.threshold == calibrated.threshold, "0 goes back, also from the scores alone"
    assert (back.calibration, back.baseline) == (calibrated.calibration, calibrated.baseline)


def test_a_threshold_set_by_hand_survives_new_references(teacher: Teacher) -> None:
    calibrate(teacher)
    teacher.configure(Settings({}, threshold=7.0))
    change = teacher.enroll(frames(4))
    assert change.product.threshold.value == 7.0
    assert stored_scores(change.product) == scores_of(teacher.bundle.path, *GOOD)
    back = teacher.configure(Settings({}, threshold=0)).product.threshold
    assert back.value == sorted(scores_of(teacher.bundle.path, *GOOD))[7]
    # Where the calibration cannot be repeated, it is dropped, and the threshold set by hand stays.
    calibrate(teacher, keep=False)
    teacher.configure(Settings({}, threshold=7.0))
    change = teacher.enroll(frames(5))
    assert (change.product.threshold.value, change.product.calibration) == (7.0, None)
    assert "cannot be repeated" in change.notes[0] and "set by hand" in change.notes[1]
    # Calibrating replaces the threshold set by hand.
    assert calibrate(teacher).threshold.kind == "conformal"


# ---- generations


def test_undo_brings_the_earlier_calibration_back(teacher: Teacher) -> None:
    first = calibrate(teacher)
    second = calibrate(teacher, *GOOD[:4])
    assert first.threshold != second.threshold and second.generation == 3
    assert undo(teacher.bundle, "default") == first
    found = Detector.open(teacher.bundle.path)
    assert found.threshold == first.threshold.value
    assert undo(teacher.bundle, "default").threshold.kind == "provisional"


def test_prune_keeps_the_pictures_that_still_calibrate(teacher: Teacher) -> None:
    calibrate(teacher, *range(200, 204))
    product = calibrate(teacher, sigmas=1.0)
    folder = teacher.bundle.product_folder("default")
    assert len(list((folder / "calibration").iterdir())) == 13
    deleted = [p.relative_to(folder).parts[0] for p in prune(teacher.bundle, "default")]
    assert deleted.count("calibration") == 4
    assert product.calibration is not None
    kept = {p.file.path for p in product.calibration.pictures if p.file}
    left = {p.relative_to(folder).as_posix() for p in (folder / "calibration").iterdir()}
    assert left == kept and (folder / "baseline-3.safetensors").exists()
    assert teacher.bundle.strangers() == []
    assert teacher.enroll(frames(4)).product.threshold.kind == "conformal"


def test_verify_looks_at_calibration_pictures_and_baseline(teacher: Teacher) -> None:
    product = calibrate(teacher, sigmas=1.0)
    assert product.calibration is not None and product.baseline is not None
    picture = product.calibration.pictures[0].file
    assert picture is not None
    seen = {p.name for p in teacher.bundle.verify()}
    folder = teacher.bundle.product_folder("default")
    for record in (picture, product.baseline.file):
        place = folder / record.path
        assert place.name in seen
        data = place.read_bytes()
        place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(BundleError, match=f"{place.name} is not what was written"):
            list(teacher.bundle.verify())
        place.unlink()
        with pytest.raises(BundleError, match=f"{place.name} is missing"):
            list(teacher.bundle.verify())
        place.write_bytes(data)
    list(teacher.bundle.verify())


def test_a_lost_calibration_picture_stops_teaching_but_not_the_line(teacher: Teacher) -> None:
    product = calibrate(teacher)
    assert product.calibration is not None and product.calibration.pictures[0].file is not None
    folder = teacher.bundle.product_folder("default")
    (folder / product.calibration.pictures[0].file.path).unlink()
    assert Detector.open(teacher.bundle.path).inspect(textured_picture(100)).verdict == "good"
    with pytest.raises(BundleError, match="is missing"):
        teacher.enroll(frames(4))
    assert teacher.bundle.product() == product
    assert calibrate(teacher).generation == 3, "calibrating again is the way out"


def test_removing_all_references_keeps_what_calibrates(teacher: Teacher) -> None:
    before = calibrate(teacher, sigmas=1.0)
    change = teacher.remove(["frame1", "frame2", "frame3"])
    assert change.product.threshold.kind == "none" and change.product.bank is None
    assert set(stored_scores(change.product)) == {None}, "there is nothing to score against"
    assert "no reference is left" in change.notes[0] and "calibrated again" in change.notes[0]
    list(teacher.bundle.verify())
    back = teacher.enroll(frames(1, 2, 3)).product
    assert (back.threshold, back.calibration) == (before.threshold, before.calibration)
    # The pictures cannot be used for parts of another shape.
    teacher.remove(["frame1", "frame2", "frame3"])
    change = teacher.enroll(frames(4, 5, size=(80, 96)))
    assert change.product.threshold.kind == "none" and change.product.baseline is None
    assert "frame100 is 96x80, the references are 80x96" in change.notes[0]


def test_removing_all_references_ends_a_calibration_of_scores_only(teacher: Teacher) -> None:
    calibrate(teacher, keep=False)
    change = teacher.remove(["frame1", "frame2", "frame3"])
    assert change.product.calibration is None
    assert "the calibration is gone: its pictures were not kept" in change.notes[0]
    assert teacher.enroll(frames(1, 2)).product.threshold.kind == "provisional"


# ---- a baseline


def test_only_the_excess_over_the_baseline_counts(teacher: Teacher) -> None:
    plain = Detector.open(teacher.bundle.path)
    raw = {s: plain.inspect(textured_picture(s)).energy.astype(np.float64) for s in (*GOOD, 40)}
    product = calibrate(teacher, sigmas=1.5)
    assert product.calibration is not None and product.baseline is not None
    fitting = [s for s in GOOD if s % 2 == 0]  # every second picture: 100, 102, ...
    roles = {p.name: p.role for p in product.calibration.pictures}
    assert [name for name, role in roles.items() if role == "baseline"] == [
        f"frame{s}" for s in fitting
    ]
    assert (product.baseline.pictures, product.baseline.sigmas) == (5, 1.5)
    stack = np.stack([raw[s] for s in fitting])
    usual = stack.mean(axis=0) + 1.5 * stack.std(axis=0, ddof=1)
    detector = Detector.open(teacher.bundle.path)
    for seed, energy in raw.items():
        found = detector.inspect(textured_picture(seed))
        np.testing.assert_allclose(found.energy, np.maximum(energy - usual, 0), atol=1e-6)
        assert found.score == found.energy.max()
    scores = [detector.inspect(textured_picture(s)).score for s in GOOD if s % 2]
    assert [s for s in stored_scores(product) if s is not None] == scores
    # With four scores and 20 %, it is the largest.
    assert product.threshold.value == max(scores) > 0


def test_a_part_either_fits_the_baseline_or_sets_the_threshold(teacher: Teacher) -> None:
    groups = [*"aabbccdda"]
    product = calibrate(teacher, sigmas=1.0, groups=groups, accept_fewer=True)
    assert product.calibration is not None
    roles = {(p.group, p.role) for p in product.calibration.pictures}
    assert roles == {(g, "baseline") for g in "ac"} | {(g, "threshold") for g in "bd"}
    assert product.threshold.evidence.parts == 2


def test_a_baseline_needs_its_own_pictures(teacher: Teacher) -> None:
    with pytest.raises(UsageError, match="2 pictures are too few for a baseline and a threshold"):
        calibrate(teacher, 100, 101, rate=0.5, sigmas=1.0)
    with pytest.raises(UsageError, match="are too few for a baseline"):
        calibrate(teacher, sigmas=1.0, groups=["one"] * 9)
    with pytest.raises(UsageError, match="a baseline needs pictures"):
        teacher.calibrate([], sigmas=1.0, accept_fewer=True)
    with pytest.raises(
        UsageError,
        match=r"half of the pictures fit the baseline; the other 4 pictures support a false-reject "
        r"rate of 20 % at best, 15 % was asked; give at least 12 good pictures, or accept 20 %",
    ):
        calibrate(teacher, rate=0.15, sigmas=1.0)
    assert teacher.bundle.product().generation == 1
    assert calibrate(teacher, 100, 101, 102, rate=0.5, sigmas=1.0).baseline is not None


def test_a_baseline_is_fitted_again_for_new_references(teacher: Teacher) -> None:
    calibrate(teacher, sigmas=1.0)
    first = teacher.bundle.baseline(teacher.bundle.product())
    product = teacher.enroll(frames(4, 5)).product
    second = teacher.bundle.baseline(product)
    assert first is not None and second is not None and product.baseline is not None
    assert product.baseline.file.path == "baseline-3.safetensors"
    assert not np.array_equal(first.mean, second.mean)
    # Tiles change the grid, and the baseline is computed for the new one.
    product = teacher.configure(Settings({}, tiles=TileSettings(grid=(2, 1)))).product
    third = teacher.bundle.baseline(product)
    assert third is not None and third.mean.shape != second.mean.shape
    assert Detector.open(teacher.bundle.path).inspect(textured_picture(100)).verdict == "good"


def test_without_its_pictures_a_baseline_and_a_threshold_over_it_are_given_up(
    teacher: Teacher,
) -> None:
    """A threshold for the excess over a baseline would pass nearly every raw energy, or none."""
    calibrate(teacher, sigmas=1.0, keep=False)
    teacher.configure(Settings({}, threshold=0.5))
    change = teacher.enroll(frames(4))
    assert (change.product.threshold.kind, change.product.baseline) == ("none", None)
    assert "uncalibrated" in change.notes[0]


@pytest.mark.parametrize("fault", ["missing", "damaged", "swapped"])
def test_a_baseline_that_is_not_right_refuses_to_serve(teacher: Teacher, fault: str) -> None:
    calibrate(teacher, sigmas=1.0)
    place = teacher.bundle.product_folder("default") / "baseline-2.safetensors"
    data = place.read_bytes()
    if fault == "missing":
        place.unlink()
    elif fault == "damaged":
        place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        place.write_bytes(data[::-1])
    with pytest.raises(BundleError, match=r"baseline-2\.safetensors") as caught:
        Detector.open(teacher.bundle.path)
    assert caught.value.exit_code == 4


# ---- faults


def test_a_kill_at_any_rename_leaves_bank_and_threshold_of_one_generation(
    path: Path, tmp_path: Path
) -> None:
    teacher = Teacher.open(path)
    old = calibrate(teacher, sigmas=1.0)
    draft = teacher.enroll(frames(4), commit=False).draft
    assert draft is not None
    new, seen = draft.product, []
    for step in range(6):
        copy = Path(shutil.copytree(path, tmp_path / f"{step}.anoco"))
        bundle = Bundle.open(copy)
        status = commit_and_die(bundle, new, dict(draft.files), step, "before")
        product = Bundle.open(copy).product()
        list(bundle.verify())
        detector = Detector.open(copy)
        assert detector.threshold == (old if product.generation == 2 else new).threshold.value
        seen.append((os.waitstatus_to_exitcode(status), product.generation))
        assert Teacher.open(copy).enroll(frames(5)).product.threshold.kind == "conformal"
    # The renames are picture, bank, baseline, history, product.json; the last run has no sixth one.
    assert seen == [(-signal.SIGKILL, 2)] * 5 + [(0, 3)]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Limit the size of files, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_calibration(teacher: Teacher) -> None:
    before = tree(teacher.bundle.path)
    largest = max(len(p.data) for p in frames(*GOOD))
    for size in (0, 100, 600, largest - 1):
        with files_up_to(size), pytest.raises(StorageError, match=r"cannot write .*File too large"):
            calibrate(teacher, sigmas=1.0)
        assert tree(teacher.bundle.path) == before, size
    product = calibrate(teacher, sigmas=1.0)
    before = tree(teacher.bundle.path)
    with files_up_to(1000), pytest.raises(StorageError):
        teacher.enroll(frames(4))
    assert tree(teacher.bundle.path) == before and teacher.bundle.product() == product


# ---- does it hold?


@pytest.mark.full
def test_the_stated_rate_is_the_realised_one_on_rendered_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random splits of one pool are exchangeable, so the mean rate is exact.

    The mean of twenty splits varies by chance.
    """
    size, parts, rate = 160, 39, 0.05
    pictures = [
        NewPicture.from_array(f"part{k}", render("cloth", seed=k, size=128).rgb)
        for k in range(size + 3)
    ]
    path = make_tiny_bundle(tmp_path / "cloth.anoco", size=(128, 128), dim=16).path
    teacher = Teacher.open(path)
    teacher.enroll(pictures[size:])
    detector = Detector.open(path)
    scores = np.array([detector.inspect(p.rgb).score for p in pictures[:size]])
    rng, realised = np.random.default_rng(0), []
    for split in range(2000):
        order = rng.permutation(size)
        chosen, rest = order[:parts], order[parts:]
        value = conformal_threshold(scores[chosen], rate).threshold
        realised.append(float((scores[rest] > value).mean()))
        if split < 20:
            given = [pictures[k] for k in chosen]
            found = teacher.calibrate(given, false_reject=rate, commit=False).product.threshold
            assert found.value == value
    stated, (low, high) = found.evidence.false_reject, found.evidence.interval
    inside = np.mean([low <= rate <= high for rate in realised])
    with capsys.disabled():
        print(
            f"\nfalse rejects: stated {stated:.2%}, realised {np.mean(realised[:20]):.2%} over 20 "
            f"splits, {np.mean(realised):.2%} over 2000; {inside:.0%} of them in the 90 % interval"
        )
    assert stated == 0.05 and abs(float(np.mean(realised)) - stated) < 0.005
    # The rate on 121 parts varies more than the true rate, whose interval this is.
    assert inside > 0.7
