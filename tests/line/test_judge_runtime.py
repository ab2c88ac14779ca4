"""The judge runs in the native library where that can run the bundle, with the same opinions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge import Bundle
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.line.capture_check import check_capture
from anoco_edge.line.config.station_config import CaptureTable
from anoco_edge.line.core.events import Opinion, PreparedProduct
from anoco_edge.line.judge.alignment import AlignmentSettings, Pixels
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.opinions import CaptureJudge, open_detector
from anoco_edge.line.replay import TOLERANCE
from anoco_edge.line.words.constants import Reason
from anoco_edge.pipeline.base import RUNTIMES
from anoco_edge.pipeline.native import OPENVINO_VARIABLE
from anoco_edge.pipeline.runtime_choice import choose_runtime
from anoco_edge.teaching import NewPicture, Settings, Teacher

pytestmark = pytest.mark.usefixtures("use_native")

PART = PreparedProduct(1, 1, 0)
ALIGN = AlignmentSettings(((90, 90, 40, 40),), search=8, min_score=0.9)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    made = make_tiny_bundle(tmp_path_factory.mktemp("runtime") / "line.anoco", size=(128, 128))
    teacher = Teacher.open(made)
    good = [NewPicture.from_array(f"part{n}", textured_picture(n, 160, 160)) for n in range(3)]
    # Within its region of interest a part may move.
    region = ((16, 16), (144, 16), (144, 144), (16, 144))
    teacher.enroll(good, "default", Settings({}, region=region))
    return Bundle.open(made.path)


def pictures() -> dict[str, Pixels]:
    """Pictures with every kind of opinion."""
    good = textured_picture(0, 160, 160)
    spoilt = good.copy()
    spoilt[60:90, 50:100] = 20
    rng = np.random.default_rng(3)
    return {
        "good": good,
        "another good one": textured_picture(9, 160, 160),
        "spoilt": spoilt,
        "moved": np.roll(spoilt, (3, -4), (0, 1)),
        "dark": (good * 0.3).astype(np.uint8),
        "saturated": np.minimum(good.astype(int) * 2, 255).astype(np.uint8),
        "blurred": np.asarray(Image.fromarray(good).filter(ImageFilter.GaussianBlur(4))),
        "noise": rng.integers(0, 256, good.shape, np.uint8),
        "tiny": good[:9, :9].copy(),
    }


def judges(bundle: Bundle, align: AlignmentSettings | None) -> list[CaptureJudge]:
    """Return a judge for each runtime."""
    spec = CaptureSpec(str(bundle.path), None, align)
    made = []
    for name in RUNTIMES:
        detector, (said, *_) = open_detector(bundle, "default", runtime=name)
        assert detector.runtime == name and f"runtime {name} (asked for)" in said
        made.append(CaptureJudge(detector, spec))
    return made


@pytest.mark.parametrize("align", [None, ALIGN], ids=["as it lies", "aligned"])
def test_both_runtimes_have_the_same_opinions(
    bundle: Bundle, align: AlignmentSettings | None
) -> None:
    python, native = judges(bundle, align)
    found: dict[str, Opinion] = {}
    for name, picture in pictures().items():
        ours, theirs = (judge.judge(picture, PART, 0) for judge in (python, native))
        assert (ours.verdict, ours.reason) == (theirs.verdict, theirs.reason), name
        assert theirs.ratio == pytest.approx(ours.ratio, rel=TOLERANCE, abs=1e-6), name
        assert len(ours.regions) == len(theirs.regions), name
        for mine, other in zip(ours.regions, theirs.regions, strict=True):
            corners = [(each.left, each.top, each.right, each.bottom) for each in (mine, other)]
            assert corners[0] == pytest.approx(corners[1], abs=1), name
            assert mine.peak == pytest.approx(other.peak, rel=1e-3), name
        found[name] = theirs
    reasons = {opinion.reason for opinion in found.values()}
    assert found["good"].verdict == "good" and found["spoilt"].verdict == "anomalous"
    assert reasons >= {Reason.TOO_DARK, Reason.SATURATED, Reason.BLURRED}
    if align is None:
        assert found["noise"].reason is Reason.UNLIKE_REFERENCES
    else:
        assert found["noise"].reason is Reason.NOT_FOUND
        assert found["moved"].verdict == "anomalous", "its regions are in pixels of the camera"


def test_auto_takes_the_native_runtime_where_it_can(bundle: Bundle) -> None:
    assert choose_runtime(bundle) == ("native", "it runs here")
    detector, (said, *_) = open_detector(bundle, "default")
    assert detector.runtime == "native"
    assert said == (
        "line.anoco, default: runtime native (it runs here), engine openvino, scorer native"
    )


@pytest.mark.parametrize(
    ("variable", "why"),
    [("ANOCO_EDGE_LIBRARY", "cannot be loaded"), (OPENVINO_VARIABLE, "OpenVINO's C library")],
)
def test_auto_says_why_it_takes_python(
    bundle: Bundle, variable: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    capture = CaptureTable(camera="top", bundle=bundle.path, product="default")
    assert "runtime native (it runs here)" in check_capture(capture, tmp_path, "c0ffee")
    monkeypatch.setenv(variable, str(tmp_path / "gone.so"))
    detector, (said, *_) = open_detector(bundle, "default")
    assert detector.runtime == "python" and why in said, said
    assert why in check_capture(capture, tmp_path, "c0ffee")
    with pytest.raises(EnvironmentMissingError, match=why):
        check_capture(capture, tmp_path, "c0ffee", "native")


def test_an_old_generation_is_for_python(tmp_path: Path, bundle: Bundle) -> None:
    shutil.copytree(bundle.path, tmp_path / "line.anoco")
    copy = Bundle.open(tmp_path / "line.anoco")
    old = copy.product("default")
    Teacher.open(copy).enroll([NewPicture.from_array("more", textured_picture(7, 160, 160))])
    detector, (said, *_) = open_detector(copy, old)
    assert detector.product.generation == 1 and detector.runtime == "python"
    assert "the native runtime opens generation 2" in said and "this is generation 1" in said
    opinion = CaptureJudge(detector, CaptureSpec("")).judge(pictures()["good"], PART, 0)
    assert opinion.verdict == "good"


def test_an_engine_that_the_library_has_not_takes_python(bundle: Bundle) -> None:
    name, why = choose_runtime(bundle, engine="onnxruntime")
    assert name == "python" and "the native runtime has openvino and tensorrt alone" in why
    with pytest.raises(UsageError, match="unknown runtime 'rust'"):
        choose_runtime(bundle, "rust")
