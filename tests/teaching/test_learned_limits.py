"""Limits of picture quality are learned from good pictures, and a line judges only within them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import ok
from PIL import Image, ImageFilter
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge import Bundle, Detector
from anoco_edge.bundle.picture_limits import PictureLimits
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.judge.opinions import judge_picture
from anoco_edge.line.words.constants import Reason
from anoco_edge.pipeline.picture_quality import Pixels
from anoco_edge.teaching import NewPicture, Settings, Teacher

PART = PreparedProduct(1, 1, 0)


def pictures(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"part{seed}", textured_picture(seed)) for seed in seeds]


def limits(bundle: Bundle) -> PictureLimits:
    found = bundle.product().picture_limits
    assert found is not None
    return found


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    made = make_tiny_bundle(tmp_path / "line.anoco", size=(128, 128))
    Teacher.open(made).enroll(pictures(0, 1, 2))
    return made


def blurred(rgb: Pixels) -> Pixels:
    return np.asarray(Image.fromarray(rgb).filter(ImageFilter.GaussianBlur(4)))


def test_a_picture_that_cannot_be_judged_has_its_reason(bundle: Bundle) -> None:
    detector = Detector.open(bundle)
    good = textured_picture(9)
    rng = np.random.default_rng(3)
    bad = {
        Reason.TOO_DARK: (good * 0.3).astype(np.uint8),
        Reason.SATURATED: np.minimum(good.astype(int) * 2, 255).astype(np.uint8),
        Reason.BLURRED: blurred(good),
        Reason.UNLIKE_REFERENCES: rng.integers(0, 256, good.shape, np.uint8),
    }
    assert judge_picture(detector, good, PART, 0).reason is Reason.NONE
    for reason, rgb in bad.items():
        opinion = judge_picture(detector, rgb, PART, 0)
        assert (opinion.verdict, opinion.reason) == ("no-verdict", reason)
    # A defect is judged, also a large one.
    spoilt = good.copy()
    spoilt[20:50, 30:70] = rng.integers(0, 256, (30, 40, 3), np.uint8)
    assert judge_picture(detector, spoilt, PART, 0).verdict == "anomalous"
    # Scores are those of a product without limits.
    score = detector.inspect(good).score
    Teacher.open(bundle).configure(Settings({}, picture_limits="none"))
    plain = Detector.open(bundle)
    assert plain.product.picture_limits is None and plain.inspect(good).score == score
    assert judge_picture(plain, bad[Reason.TOO_DARK], PART, 0).verdict != "no-verdict"


def test_only_the_region_of_interest_is_measured(bundle: Bundle) -> None:
    region = [(0.0, 0.0), (48.0, 80.0)]
    Teacher.open(bundle).configure(Settings({}, region=region))
    detector = Detector.open(bundle)
    rgb = textured_picture(9)
    rgb[:, 50:] = 255
    assert judge_picture(detector, rgb, PART, 0).reason is Reason.NONE
    rgb[:, :50] //= 4
    assert judge_picture(detector, rgb, PART, 0).reason is Reason.TOO_DARK


def test_limits_follow_the_references(bundle: Bundle) -> None:
    first = limits(bundle)
    assert first.pictures == 3 and first.min_likeness is not None
    teacher = Teacher.open(bundle)
    dark = NewPicture.from_array("dark", (textured_picture(5) * 0.5).astype(np.uint8))
    teacher.enroll([dark])
    assert limits(bundle).min_brightness < 0.7 * first.min_brightness
    teacher.remove(["dark"])
    assert limits(bundle) == first
    teacher.configure(Settings({}, threshold=1.0))
    assert limits(bundle) == first
    teacher.remove(["part1", "part2"])
    assert limits(bundle).min_likeness is None, "one reference is like no other"


def test_good_pictures_that_calibrate_widen_the_limits(bundle: Bundle) -> None:
    first = limits(bundle)
    dim = [(textured_picture(seed) * 0.7).astype(np.uint8) for seed in range(20, 26)]
    teacher = Teacher.open(bundle)
    more = [NewPicture.from_array(f"dim{n}", rgb) for n, rgb in enumerate(dim)]
    teacher.calibrate(more, false_reject=0.2)
    wider = limits(bundle)
    assert wider.min_brightness == pytest.approx(0.7 * first.min_brightness, rel=0.1)
    assert wider.pictures == 9
    assert wider.min_likeness is not None and first.min_likeness is not None
    assert wider.min_likeness <= first.min_likeness
    teacher.enroll(pictures(30))
    assert limits(bundle).min_brightness == wider.min_brightness, "the calibration still counts"


def test_a_product_of_an_earlier_version_gets_limits_only_when_asked(bundle: Bundle) -> None:
    teacher = Teacher.open(bundle)
    teacher.configure(Settings({}, picture_limits="none"))
    path = bundle.product_folder("default") / "product.json"
    assert "picture_limits" not in json.loads(path.read_bytes()), "written as before"
    teacher.enroll(pictures(7))
    assert bundle.product().picture_limits is None
    ok("product", "set", bundle.path, "--picture-limits", "learn")
    assert limits(bundle).pictures == 4
    assert "learned from 4 pictures" in ok("product", "list", bundle.path).out


def test_tiles_and_a_thinned_bank_have_limits_too(tmp_path: Path) -> None:
    made = make_tiny_bundle(tmp_path / "line.anoco", size=(64, 64))
    files = write_good_pictures(tmp_path / "good", 3, width=300, height=200)
    ok("enroll", made.path, *files, "--tiles", "2x2", "--max-patches", "30", "--yes")
    found = limits(made)
    assert found.min_likeness is not None and found.min_likeness > 0.5
    detector = Detector.open(made)
    good = textured_picture(8, 300, 200)
    assert judge_picture(detector, good, PART, 0).reason is Reason.NONE
    assert judge_picture(detector, good // 4, PART, 0).reason is Reason.TOO_DARK
