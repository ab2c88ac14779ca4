"""anoco-edge tune: the table, what is set, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fails, ok, refused, tree
from PIL import Image
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.errors import StorageError
from anoco_edge.scoring import POOLINGS


@pytest.fixture
def line(here: Path) -> Path:
    """Write twenty more good parts beside line.anoco."""
    write_good_pictures(here / "more-good", 20, seed=100)
    return here


def test_a_dry_run_shows_the_table_and_changes_nothing(line: Path) -> None:
    before = tree(line)
    ran = ok("tune", "line.anoco", "more-good", "--dry-run")
    assert tree(line) == before
    for word in ("augment", "pooling", "separation", "rotations", *POOLINGS, "ms"):
        assert word in ran.out
    assert " stays " in ran.out and "line.anoco: 64x64, features" in ran.out
    assert "drawn defects show whether" in ran.err and "nothing was changed" in ran.err


def test_json_has_every_setting_and_calibrate_leaves_out_what_chose(line: Path) -> None:
    report = ok("tune", "line.anoco", "more-good", "--json").json
    assert (report["parts"], report["parts_left"], report["generation"]) == (10, 10, 2)
    assert len(report["tried"]) == 2 * len(POOLINGS)
    assert sum(row["chosen"] for row in report["tried"]) == 1
    assert {row["ms"] > 0 for row in report["tried"]} == {True}
    assert set(report["tried"][0]["by_kind"]) == {"cut-paste", "scratch", "stain"}
    ran = ok("calibrate", "line.anoco", "more-good", "--false-reject", "0.1")
    assert "10 of 20 pictures chose the settings (tune) and do not calibrate" in ran.err
    assert "10 parts chose" in ok("tune", "line.anoco", "more-good").err
    assert "default: settings chosen among" in ok("info", "line.anoco").out
    ok("references", "undo", "line.anoco")
    assert "tune" in ok("references", "list", "line.anoco").out


def test_a_better_bundle_is_shown_with_its_input_and_tap(line: Path) -> None:
    make_tiny_bundle(line / "large.anoco", size=(256, 256), dim=24)
    ran = ok("tune", "line.anoco", "more-good", "--also", "large.anoco", "--dry-run")
    assert "large.anoco: 256x256, features" in ran.out
    assert "large.anoco with augmentation " in ran.out and "It was not changed" in ran.out


def test_bad_input_is_one_line_and_changes_nothing(line: Path) -> None:
    make_tiny_bundle(line / "empty.anoco")
    assert "at least 16 good parts" in refused(2, "tune", "line.anoco", "parts")
    assert "are references: good0.png" in refused(1, "tune", "line.anoco", "more-good", "good")
    assert "has no references yet" in refused(4, "tune", "empty.anoco", "more-good")
    assert "has no product 'x'" in refused(2, "tune", "line.anoco", "more-good", "-p", "x")
    assert "no file or folder nowhere" in refused(2, "tune", "line.anoco", "nowhere")
    (line / "more-good" / "cut.png").write_bytes((line / "good/good0.png").read_bytes()[:900])
    assert "cut.png" in refused(1, "tune", "line.anoco", "more-good")
    (line / "more-good" / "cut.png").unlink()
    Image.new("RGB", (200, 60)).save(line / "more-good" / "wide.png")
    assert "wide.png is 200x60" in refused(1, "tune", "line.anoco", "more-good")


def test_a_threshold_set_by_hand_names_the_option(line: Path) -> None:
    ok("product", "set", "line.anoco", "--threshold", "0.5")
    complaint = refused(2, "tune", "line.anoco", "more-good")
    assert "anoco-edge product set BUNDLE --threshold 0" in complaint


def test_a_bundle_that_cannot_be_written_is_refused_before_the_work(
    line: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("cannot write line.anoco: no permission", hint="copy it")

    monkeypatch.setattr("anoco_edge.storage.beneath.Directory.open_lock", refuse)
    monkeypatch.setattr("anoco_edge.teaching.tuning.BundleTrial", None)  # fails if it is used
    assert "no permission" in fails(1, "tune", "line.anoco", "more-good")
