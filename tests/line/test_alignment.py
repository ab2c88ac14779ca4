"""A part that has moved is found and judged in its place; what is not found has no verdict."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from command_line import ok, run_cli
from PIL import Image
from tiny_bundle import make_tiny_bundle

from anoco_edge import Bundle, Detector
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.line.config.station_config import EXAMPLE
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.judge.alignment import Aligner, AlignmentSettings, Method, Pixels
from anoco_edge.line.judge.opinions import judge_picture
from anoco_edge.line.words.constants import Reason

BOX = (60, 50, 40, 40)
MARKS = ((30, 30, 24, 24), (200, 28, 24, 24), (28, 150, 24, 24), (204, 152, 24, 24))
PART = PreparedProduct(1, 1, 0)


def scene(seed: int = 1) -> Pixels:
    """A part with structure everywhere, so that each place looks like no other."""
    rng = np.random.default_rng(seed)
    rough = rng.uniform(40, 210, (26, 33, 3)).astype(np.float32)
    smooth = cv2.resize(rough, (256, 200), interpolation=cv2.INTER_CUBIC)
    return smooth.clip(0, 255).astype(np.uint8)


def moved(rgb: Pixels, matrix: np.ndarray) -> Pixels:
    """The picture after everything in it has moved."""
    height, width = rgb.shape[:2]
    edge = cv2.BORDER_REFLECT
    return np.asarray(cv2.warpPerspective(rgb, matrix, (width, height), borderMode=edge))


def shift(dx: float, dy: float) -> np.ndarray:
    return np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1.0]])


@pytest.mark.parametrize("method", ["template", "phase"])
@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (7, -5), (-12, 3), (15, 15)])
def test_a_shifted_part_is_moved_back_pixel_by_pixel(method: Method, dx: int, dy: int) -> None:
    reference = scene()
    aligner = Aligner(AlignmentSettings((BOX,), method, search=16), reference)
    picture = moved(reference, shift(dx, dy))
    found = aligner.align((picture * 0.8).astype(np.uint8))  # the light does not matter
    assert found is not None and found.score > 0.95
    back = aligner.align(picture)
    assert back is not None
    assert (back.pixels[back.seen] == reference[back.seen]).all() and back.seen[60:90, 60:90].all()
    assert back.seen.sum() == (256 - abs(dx)) * (200 - abs(dy))
    assert back.in_camera((60.0, 50.0, 100.0, 90.0)) == (60 + dx, 50 + dy, 100 + dx, 90 + dy)


def test_marks_undo_rotation_and_perspective() -> None:
    reference = scene()
    settings = AlignmentSettings(MARKS, "marks", search=16, min_score=0.6)
    turn = np.vstack([cv2.getRotationMatrix2D((128, 100), 2.0, 1.01), [0, 0, 1]])
    turn[2, 0] = 1e-5
    found = Aligner(settings, reference).align(moved(reference, turn))
    assert found is not None
    inner = (slice(30, 170), slice(30, 225))
    difference = np.abs(found.pixels[inner].astype(int) - reference[inner].astype(int))
    assert difference.mean() < 3 < np.abs(
        moved(reference, turn)[inner].astype(int) - reference[inner].astype(int)
    ).mean()  # fmt: skip
    box = found.in_camera((100.0, 80.0, 120.0, 100.0))
    x, y, z = turn @ np.array([110.0, 90.0, 1.0])
    assert abs((box[0] + box[2]) / 2 - x / z) < 1.5 and abs((box[1] + box[3]) / 2 - y / z) < 1.5
    # Marks that disagree are no part: one of five has another place.
    five = AlignmentSettings((*MARKS, (110, 90, 24, 24)), "marks", search=16, min_score=0.0)
    spoilt = reference.copy()
    spoilt[80:124, 100:144] = np.roll(reference, (9, 9), (0, 1))[80:124, 100:144]
    assert Aligner(five, reference).align(spoilt) is None


@pytest.mark.parametrize("method", ["template", "phase", "marks"])
def test_what_is_not_found(method: Method) -> None:
    boxes = MARKS if method == "marks" else (BOX,)
    aligner = Aligner(AlignmentSettings(boxes, method, search=16, min_score=0.6), scene(1))
    assert aligner.align(scene(2)) is None
    assert aligner.align(np.full_like(scene(1), 128)) is None
    assert aligner.align(moved(scene(1), shift(40, 0))) is None, "it is outside the search window"
    with pytest.raises(PictureError, match="the picture is 100x200"):
        aligner.align(scene(1)[:, :100])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AlignmentSettings(((240, 10, 30, 30),)), "does not lie in the reference"),
        (AlignmentSettings(((10, 10, 30, 4),)), "at least 8 pixels"),
        (AlignmentSettings((BOX, BOX)), "template with 2 boxes"),
        (AlignmentSettings((BOX,), "marks"), "marks with 1 boxes"),
    ],
)
def test_boxes_that_cannot_be_searched_for(settings: AlignmentSettings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Aligner(settings, scene())
    with pytest.raises(UsageError, match="has no detail"):
        Aligner(AlignmentSettings((BOX,)), np.full_like(scene(), 90))


def test_a_line_judges_a_moved_part_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = make_tiny_bundle(tmp_path / "line.anoco", size=(128, 96))
    files = []
    for number in range(3):
        noise = np.random.default_rng(number).normal(0, 3, scene().shape)
        files.append(tmp_path / f"{number}.png")
        Image.fromarray((scene() + noise).clip(0, 255).astype(np.uint8)).save(files[-1])
    text = EXAMPLE.replace(
        'bundle = "line.anoco" }',
        'bundle = "line.anoco", align = { boxes = [[60, 50, 40, 40]], search = 16 } }',
    )
    Path("station.toml").write_text(text)
    ok("enroll", bundle.path, *files)
    ran = run_cli("station", "check", "station.toml")
    assert ran.code == 3 and "moved by 16 pixels is not seen whole" in " ".join(ran.out.split())
    ok("product", "set", bundle.path, "--roi", "40,36,170,120")
    said = " ".join(ok("station", "check", "station.toml").out.split())
    assert "aligned by template within 16 pixels" in said

    detector = Detector.open(Bundle.open(bundle.path))
    aligner = Aligner(AlignmentSettings((BOX,), search=16), detector.first_reference())
    spoilt = scene()
    spoilt[100:140, 150:190] = 255 - spoilt[100:140, 150:190]
    for dx, dy in ((0, 0), (12, -9)):
        good = judge_picture(detector, moved(scene(), shift(dx, dy)), PART, 0, aligner)
        assert good.verdict == "good"
        bad = judge_picture(detector, moved(spoilt, shift(dx, dy)), PART, 0, aligner)
        assert bad.verdict == "anomalous"
        region = bad.regions[0]
        assert region.left < 170 + dx < region.right and region.top < 120 + dy < region.bottom
    lost = judge_picture(detector, moved(scene(), shift(60, 0)), PART, 0, aligner)
    assert (lost.verdict, lost.reason) == ("no-verdict", Reason.NOT_FOUND)
    # A part that is found, and of which the camera did not see all.
    wide = Aligner(AlignmentSettings((BOX,), search=60), detector.first_reference())
    cut = judge_picture(detector, moved(scene(), shift(-50, 0)), PART, 0, wide)
    assert cut.reason is Reason.NOT_FOUND
