"""The code on a part becomes its part code; a part that shows another code has no verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import ok
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures
from virtual_line import VirtualLine, found

from anoco_edge import Detector
from anoco_edge.line.core.effects import JudgePicture, RecordPart
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.opinions import CaptureJudge
from anoco_edge.line.judge.part_codes import CodeReader, CodeSettings, Pixels
from anoco_edge.line.words.constants import Reason

PART = PreparedProduct(1, 1, 0)


def labelled(rgb: Pixels, text: str, left: int, top: int) -> Pixels:
    """The picture with a QR code on a white label."""
    zxing = pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    code = zxing.create_barcode(text, zxing.BarcodeFormat.QRCode)
    code = np.array(zxing.write_barcode_to_image(code, scale=4))
    side = code.shape[0]
    picture = rgb.copy()
    picture[top : top + side, left : left + side] = code[..., None]
    return picture


def test_one_code_is_read_and_two_are_none() -> None:
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    plain = textured_picture(1, 400, 300)
    one = labelled(plain, "W-00042", 20, 20)
    two = labelled(one, "W-00043", 220, 120)
    reader = CodeReader(CodeSettings())
    assert reader.read(plain) == "" and reader.read(one) == "W-00042" and reader.read(two) == ""
    assert CodeReader(CodeSettings((200, 100, 180, 180))).read(two) == "W-00043"
    assert CodeReader(CodeSettings((500, 100, 20, 20))).read(two) == ""
    assert reader.read(labelled(plain, "a code of more than 16", 20, 20)) == "a code of more t"


def test_a_part_without_the_code_that_it_needs_has_no_verdict(tmp_path: Path) -> None:
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    bundle = make_tiny_bundle(tmp_path / "line.anoco").path
    ok("enroll", bundle, *write_good_pictures(tmp_path / "good", 3, width=400, height=300))
    detector = Detector.open(bundle)
    good = textured_picture(9, 400, 300)
    for required, reason in ((True, Reason.PART_CODE), (False, Reason.NONE)):
        judge = CaptureJudge(detector, CaptureSpec("", None, None, CodeSettings(None, required)))
        assert judge.judge(good, PART, 0).reason is reason
    opinion = judge.judge(labelled(good, "W-7", 10, 10), PART, 0)
    assert opinion.part_code == "W-7" and opinion.verdict == "anomalous"


@pytest.mark.parametrize(
    ("triggered", "read", "recorded", "reason"),
    [
        ("", "W-7", "W-7", Reason.NONE),
        ("W-7", "W-7", "W-7", Reason.NONE),
        ("W-7", "", "W-7", Reason.NONE),
        ("W-7", "W-8", "W-7", Reason.PART_CODE),
    ],
)
def test_the_code_in_the_picture_and_that_of_the_trigger(
    triggered: str, read: str, recorded: str, reason: Reason
) -> None:
    line = VirtualLine().start()
    line.now += 1
    line.trigger(1, part_code=triggered)
    line.now += 10
    (order,) = found(line.picture(), JudgePicture)
    effects = line.judged(order, ratio=0.5, part_code=read)
    (record,) = [effect.record for effect in found(effects, RecordPart)]
    assert (record.part_code, record.reason) == (recorded, reason)
    assert record.verdict == ("no-verdict" if reason else "good")
