"""`anoco-edge calibrate` prints words, JSON, a report and errors that an operator understands."""

from __future__ import annotations

import json
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from command_line import defective_picture, fails, ok, refused, run_cli, tree
from PIL import Image
from tiny_bundle import make_tiny_bundle, noisy_frame, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.cli.views.products import inspected_area
from anoco_edge.detector import Detector
from anoco_edge.errors import BundleError, ScoringError, StorageError
from anoco_edge.scoring.conformal import conformal_threshold
from anoco_edge.teaching import Teacher

LINE = "line.anoco"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write line.anoco with three references, nine held-out good parts and three defective ones."""
    folder = tmp_path_factory.mktemp("template")
    make_tiny_bundle(folder / LINE)
    ok("enroll", folder / LINE, *write_good_pictures(folder / "references", 3))
    write_good_pictures(folder / "parts", 9, seed=100)
    (folder / "bad").mkdir()
    for k in range(3):
        Image.fromarray(defective_picture(70 + k)).save(folder / "bad" / f"bad{k}.png")
    return folder


def calibrate(*options: object, rate: float = 0.2) -> str:
    return ok("calibrate", LINE, "parts", "--false-reject", rate, *options).out


def scores(folder: str = "parts") -> list[float]:
    detector = Detector.open(LINE)
    return [detector.inspect(path).score for path in sorted(Path(folder).iterdir())]


# ---- what it says


def test_it_says_what_the_threshold_promises_and_stores_it(here: Path) -> None:
    ran = ok("calibrate", LINE, "parts", "--false-reject", 0.2)
    threshold = sorted(scores())[7]
    assert f"generation 2: threshold {threshold:.4g} (was" in ran.out and "provisional" in ran.out
    assert "9 good parts, held out. At most 20 % of good parts are rejected on average" in ran.out
    assert "lies with 90 % probability between 4.1 % and 42.9 %" in ran.out
    worst = sorted(Path("parts").iterdir())[int(np.argmax(scores()))].name
    assert f"highest scores: {worst} {max(scores()):.4g}" in ran.out
    assert "9 pictures are kept" in ran.err and "references undo line.anoco" in ran.err
    # The same words appear later, in the output of other commands.
    assert "At most 20 % of good parts" in ok("info", LINE).out
    (product,) = ok("info", LINE, "--json").json["products"]
    assert product["threshold"]["value"] == threshold
    assert "At most 20 % of good parts" in product["threshold"]["evidence"]["words"]


def test_infer_judges_by_it_unless_told_otherwise(here: Path) -> None:
    calibrate()
    rows = ok("infer", LINE, "parts", "bad", "--json").json["results"]
    over = [row["source"] for row in rows if row["verdict"] == "anomalous"]
    worst = sorted(Path("parts").iterdir())[int(np.argmax(scores()))]
    assert over == [str(worst), "bad/bad0.png", "bad/bad1.png", "bad/bad2.png"]
    assert {row["threshold_kind"] for row in rows} == {"conformal"}
    rows = ok("infer", LINE, "parts", "bad", "--json", "--threshold", 1e6).json["results"]
    assert {row["verdict"] for row in rows} == {"good"}
    assert {(row["threshold"], row["threshold_kind"]) for row in rows} == {(1e6, "manual")}
    assert Bundle.open(LINE).product().threshold.kind == "conformal"


def test_too_few_say_what_they_support_and_that_is_used_only_when_told_to(here: Path) -> None:
    line = refused(2, "calibrate", LINE, "parts")
    assert "9 pictures support a false-reject rate of 10 % at best, 1 % was asked" in line
    assert "give at least 99 good pictures, or accept 10 % with --accept-fewer" in line
    out = calibrate("--accept-fewer", rate=0.01)
    assert "Only 9 good parts, held out: that supports 10 % at best, 1 % was asked" in out
    assert Bundle.open(LINE).product().threshold.value == max(scores())


def test_without_pictures_it_says_that_nothing_is_guaranteed(here: Path) -> None:
    out = ok("calibrate", LINE, "--false-reject", 0.25).out
    assert "3 references, scored against each other. There is no exact guarantee" in out
    ran = ok("calibrate", LINE, "--false-reject", 0.25, "--json", "--out", "report").json
    assert [row["picture"] for row in ran["scores"]] == ["good0.png", "good1.png", "good2.png"]
    assert "Guaranteed false-reject rate</dt><dd>none" in Path("report/report.html").read_text()


def test_json_has_everything(here: Path) -> None:
    ran = ok("calibrate", LINE, "parts", "--false-reject", 0.2, "--with-defects", "bad", "--json")
    report = ran.json
    assert (report["product"], report["generation"], report["dry_run"]) == ("default", 2, False)
    assert report["threshold"]["value"] == sorted(scores())[7]
    assert report["threshold_before"]["kind"] == "provisional"
    assert [row["score"] for row in report["scores"]] == scores()
    assert [row["score"] for row in report["defects"]] == scores("bad")
    assert report["tradeoff"]["defects_missed"] == 0 and report["notes"] == []


def test_groups_by_folder_and_by_pattern(here: Path) -> None:
    for k in range(9):
        folder = Path("by-part") / f"part{k // 2}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"parts/good{k}.png", folder / f"nut{k // 2}_frame{k}.png")
    maxima = [max(scores()[k : k + 2]) for k in range(0, 9, 2)]
    expected = conformal_threshold(maxima, 0.4).threshold
    for group in ("folder", "(.*)_frame", "nut[0-9]"):
        options = ("--group", group, "--false-reject", 0.4, "--json")
        report = ok("calibrate", LINE, "by-part/*/*.png", *options).json
        assert report["threshold"]["value"] == expected, group
        assert report["threshold"]["evidence"]["parts"] == 5
        assert len({row["part"] for row in report["scores"]}) == 5


def write_burst(folder: str, parts: int, frames: int) -> None:
    """Write every part several times, as a camera that takes a burst of pictures does."""
    Path(folder).mkdir()
    for part in range(parts):
        for frame in range(frames):
            rgb = noisy_frame(textured_picture(300 + part), 10 * part + frame)
            Image.fromarray(rgb).save(f"{folder}/{part}-{frame}.png")


def test_pictures_of_one_part_count_once_and_that_is_said(here: Path) -> None:
    write_burst("burst", 4, 3)
    command = ("calibrate", LINE, "burst", "--false-reject", 0.2)
    ran = ok(*command, "--out", "report")
    said = "12 pictures look like 4 parts (for example 0-0.png and 0-1.png)"
    assert f"warning: {said}: pictures of one part count once" in ran.err
    assert "4 good parts, held out, each judged by the highest score of its pictures" in ran.out
    assert "(12 pictures look like 4 parts)" in ran.out and "At most 20 %" in ran.out
    assert said in Path("report/report.html").read_text()
    report = ok(*command, "--json").json
    assert said in report["notes"][0]
    evidence = report["threshold"]["evidence"]
    assert (evidence["pictures"], evidence["parts"], evidence["parts_found"]) == (12, 4, 4)
    assert len({row["part"] for row in report["scores"]}) == 4
    # If the stated groups agree with the detected bursts, no warning is needed.
    assert "look like" not in ok(*command, "--group", "(.*)-").err


def test_thirty_frames_of_one_part_are_no_thirty_parts(here: Path) -> None:
    write_burst("burst", 1, 30)
    command = ("calibrate", LINE, "burst", "--false-reject", 0.05)
    line = refused(2, *command)
    assert "30 pictures look like 1 part: 1 part supports a false-reject rate of 50 %" in line
    ran = ok(*command, "--accept-fewer")
    assert "Only 1 good part, held out" in ran.out and "3.3 %" not in ran.out
    # A user who insists that these are thirty parts gets a threshold, but no guarantee.
    ran = ok(*command, "--group", ".*", "--json")
    assert "warning: no rate is promised: they look like 1 (0-0.png and 0-1.png" in ran.err
    evidence = ran.json["threshold"]["evidence"]
    assert evidence["exact"] is False and evidence["parts_found"] == 1
    assert "There is no guarantee" in evidence["words"]


def test_copies_of_references_in_other_files_are_refused_by_name(here: Path) -> None:
    with Image.open("references/good1.png") as reference:
        reference.save("other.jpg", quality=70)
        reference.resize((144, 120), Image.Resampling.BICUBIC).save("large.png")
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2)
    line = refused(1, *command, "other.jpg", "large.png")
    assert "2 of 11 calibration pictures look like copies of references" in line
    assert "other.jpg (like good1.png), large.png (like good1.png)" in line


def test_defects_show_what_would_be_missed(here: Path) -> None:
    assert "0 of 3 defective parts would be missed (0 %)" in calibrate("--with-defects", "bad")
    Image.fromarray(textured_picture(200)).save("bad/looks-good.png")
    out = calibrate("--with-defects", "bad", "--out", "report")
    assert "1 of 4 defective parts would be missed (25 %): bad/looks-good.png" in out
    page = Path("report/report.html").read_text()
    assert "Missed defects against false rejects" in page and "looks-good.png" in page


def test_the_report_is_a_page_and_a_picture(here: Path) -> None:
    ran = ok("calibrate", LINE, "parts", "--false-reject", 0.2, "--out", "deep/report")
    assert "report: deep/report/report.html" in ran.err
    page = Path("deep/report/report.html").read_text()
    assert "At most 20 % of good parts" in page and "<svg" in page and "good8.png" in page
    assert "Missed defects" not in page
    with Image.open("deep/report/scores.png") as chart:
        assert chart.format == "PNG" and chart.width > 300


def test_a_baseline_is_named(here: Path) -> None:
    out = calibrate("--baseline", 1)
    assert "energy over what is usual at its place by 1 sigmas, learnt from 5 more pictures" in out
    assert "4 good parts, held out" in out
    (product,) = ok("info", LINE, "--json").json["products"]
    assert (product["baseline"]["sigmas"], product["baseline"]["pictures"]) == (1, 5)


def test_a_baseline_that_no_good_part_exceeds_is_pointed_out(here: Path) -> None:
    """Every score is then 0, so the scores say nothing about the baseline."""
    warning = "no good part exceeds the baseline: lower --baseline"
    ran = ok("calibrate", LINE, "parts", "--false-reject", 0.2, "--baseline", 100, "--json")
    assert {row["score"] for row in ran.json["scores"]} == {0}
    assert f"warning: {warning}" in ran.err and ran.json["notes"] == [warning]
    ran = ok("calibrate", LINE, "parts", "--false-reject", 0.2, "--baseline", 0, "--json")
    assert ran.json["notes"] == []


def test_the_help_promises_an_average_and_names_the_way_round_it(here: Path) -> None:
    text = ok("calibrate", "--help").out
    assert "on average at most a stated share" in text and "no more" not in text
    assert "infer --threshold" in text


def test_info_shows_the_patches_there_are_not_the_limit(here: Path) -> None:
    for limit, shown in ((5000, "48 of 48 patches"), (20, "20 of 48 patches")):
        ok("product", "set", LINE, "--max-patches", limit)
        assert inspected_area(Bundle.open(LINE).product()) == shown


def test_new_references_say_what_became_of_the_threshold(here: Path) -> None:
    calibrate("--scores-only")
    Image.fromarray(textured_picture(30)).save("new.png")
    ran = ok("enroll", LINE, "new.png")
    assert "warning: verdicts will be 'uncalibrated': its calibration pictures were not" in ran.err
    assert "run: anoco-edge calibrate" in ran.err
    ran = run_cli("infer", LINE, "parts", "--fail-on-anomaly")
    assert ran.code == 11 and "every verdict is 'uncalibrated'" in ran.err
    assert "its calibration pictures were not kept" in ok("info", LINE).out
    calibrate()
    ran = ok("enroll", LINE, "parts/good3.png", "--json")
    assert ran.json["notes"] == ["good3.png is a reference now and no longer calibrates"]
    assert ran.json["threshold"]["evidence"]["parts"] == 8
    ran = ok("references", "remove", LINE, "good0.png", "good1.png", "good2.png", "new.png")
    assert "conformal threshold" in ran.out
    ran = ok("references", "remove", LINE, "good3.png")
    assert "warning: no reference is left" in ran.err


def test_a_threshold_by_hand_and_back(here: Path) -> None:
    calibrate("--scores-only")
    assert "manual threshold 5" in ok("product", "set", LINE, "--threshold", 5).out
    assert "manual threshold 5" in ok("product", "set", LINE, "--min-area", 20).out
    ran = ok("product", "set", LINE, "--threshold", 0)
    assert f"conformal threshold {sorted(scores())[7]:.4g}" in ran.out and "warning" not in ran.err


# ---- what it refuses: one line, the documented code, nothing changed


@pytest.mark.parametrize("rate", [0, 1, -1, "nan", "inf", 2])
def test_an_impossible_rate(here: Path, rate: object) -> None:
    line = refused(2, "calibrate", LINE, "parts", "--false-reject", rate)
    if rate in ("nan", "inf"):  # every option that takes a number refuses these
        assert f"--false-reject is {rate}; give a number between" in line
    else:
        assert "is not possible; give a number between 0 and 1" in line


def test_pictures_that_cannot_calibrate(here: Path) -> None:
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2)
    assert "1 of 10 calibration pictures are references: good0.png (same as good0.png)" in refused(
        1, *command, "references/good0.png"
    )
    shutil.copy("parts/good0.png", "copy.png")
    assert "copies: copy.png (same as good0.png)" in refused(1, *command, "copy.png")
    Path("broken.png").write_bytes(b"\x89PNG")
    assert "broken.png" in refused(1, *command, "broken.png")
    Image.fromarray(textured_picture(3, 80, 96)).save("tall.png")
    assert "tall.png is 80x96, the references are 96x80" in refused(1, *command, "tall.png")
    Path("film.mp4").write_bytes(b"")
    assert "film.mp4 is a video" in refused(2, *command, "film.mp4")
    assert "nothing*.png" in refused(2, *command, "nothing*.png")
    Path("empty").mkdir()
    assert "empty" in refused(2, *command, "empty")


def test_defects_that_cannot_be_used_change_nothing(here: Path) -> None:
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2, "--with-defects", "bad")
    for name, content in (("bad/broken.png", b"\x89PNG"), ("bad/empty.png", b"")):
        Path(name).write_bytes(content)
        assert name in refused(1, *command)
        Path(name).unlink()
    Image.fromarray(textured_picture(3, 80, 96)).save("bad/tall.png")
    assert "bad/tall.png is 80x96" in refused(1, *command)
    Path("bad/tall.png").unlink()
    shutil.copy("parts/good4.png", "bad/both.png")
    assert "bad/both.png is given as defective, and as good (good4.png)" in refused(1, *command)
    shutil.copy("references/good1.png", "bad/both.png")
    line = refused(1, *command)
    assert "bad/both.png is given as defective, and is a reference (good1.png)" in line


def test_a_glob_that_the_shell_expanded_does_not_make_good_parts_of_defects(here: Path) -> None:
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2, "--dry-run", "--with-defects")
    first, *others = sorted(map(str, Path("bad").iterdir()))
    line = refused(2, *command, first, *others)
    assert "bad/bad1.png counts as a good part, but lies beside bad/bad0.png of" in line
    assert "quote the glob, or give the folder: --with-defects bad/" in line
    assert "counts as a good part" in refused(2, *command, first, (here / others[1]).resolve())
    for instead in ("bad/*.png", "bad/", first):
        assert "defective parts would be missed" in ok(*command, instead).out


def test_groups_that_do_not_fit(here: Path) -> None:
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2, "--group")
    assert "'(oops' is not a valid pattern" in refused(2, *command, "(oops")
    assert "does not fit 9 of 9 pictures, parts/good0.png for one" in refused(2, *command, "nut")
    assert "does not fit 8 of 9 pictures" in refused(2, *command, "good3")
    # The name of a group that took no part in the match identifies no part.
    assert "does not fit 8 of 9 pictures" in refused(2, *command, "good(3)?")
    assert "--group is for pictures" in refused(2, "calibrate", LINE, "--group", "folder")


def test_a_baseline_that_cannot_be(here: Path) -> None:
    command = ("calibrate", LINE, "--false-reject", 0.2)
    before = tree(here)
    for sigmas in ("inf", "nan", 101, -1):
        ran = run_cli(*command, "parts", "--baseline", sigmas)
        assert ran.code == 2 and "baseline" in ran.err and "Traceback" not in ran.err
    assert tree(here) == before
    assert "too few for a baseline" in refused(2, *command, "parts/good[01].png", "--baseline", 3)
    assert "a baseline needs pictures" in refused(2, *command, "--baseline", 3)


def test_a_baseline_that_would_swallow_every_defect_is_no_baseline() -> None:
    """No score exceeds infinity, so an infinite baseline is refused."""
    grids = [np.full((1, 1), value, np.float32) for value in (1.0, 3.0)]
    for sigmas in (1e39, 1e308):
        with pytest.raises(ScoringError, match="sigmas over these energies is not finite"):
            BaselineGrid.fit(grids, sigmas)
    with pytest.raises(ScoringError, match="is not finite"):
        BaselineGrid.fit([*grids, np.full((1, 1), np.nan, np.float32)], 3.0)
    data = BaselineGrid.fit(grids, 3.0).to_bytes()
    with pytest.raises(BundleError, match="does not fit the product"):
        BaselineGrid.from_bytes(data, 1e39, (1, 1), "baseline-2.safetensors")


def test_a_missing_part_of_the_package_is_told_the_same_everywhere(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("thresholds.calibration_report", "evaluation"):
        monkeypatch.setitem(sys.modules, f"anoco_edge_calibration.{module}", None)
    calibrate = ("calibrate", LINE, "parts")
    commands = (
        (*calibrate, "--out", "o"),
        (*calibrate, "--with-defects", "bad"),
        ("eval", "parts"),
    )
    said = {refused(3, *command) for command in commands}
    assert said == {
        "anoco-edge: anoco_edge_calibration, a part of anoco-edge, is missing; reinstall anoco-edge"
    }


def test_products_and_bundles_that_are_not_there(here: Path) -> None:
    assert "no product 'nut'" in refused(2, "calibrate", LINE, "parts", "--product", "nut")
    assert not Path(LINE, "products", "nut").exists()
    assert "no bundle at" in refused(4, "calibrate", "other.anoco", "parts")
    make_tiny_bundle(Path("new.anoco"))
    assert "has no references yet" in refused(4, "calibrate", "new.anoco", "parts")
    ok("references", "remove", LINE, "good0.png", "good1.png", "good2.png")
    assert "has no references" in refused(4, "calibrate", LINE, "parts", "--false-reject", 0.2)


def test_a_damaged_baseline_is_exit_4(here: Path) -> None:
    calibrate("--baseline", 1)
    Path(LINE, "products/default/baseline-2.safetensors").write_bytes(b"")
    assert "baseline-2.safetensors" in fails(4, "infer", LINE, "parts")
    assert "baseline-2.safetensors" in fails(4, "verify", LINE)


def test_a_report_that_has_no_place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file")
    command = ("calibrate", LINE, "parts", "--false-reject", 0.2)
    assert "cannot write taken" in refused(1, *command, "--out", "taken")
    # If the disk fills up after the threshold was set, the message says that it was set.
    from anoco_edge_calibration.thresholds import calibration_report

    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write report.html: No space left", hint="nothing was changed")

    monkeypatch.setattr(calibration_report, "write_calibration_report", full)
    line = fails(1, *command, "--out", "report")
    assert "the threshold is set, only the report is not" in line and "nothing was ch" not in line
    assert Bundle.open(LINE).product().threshold.kind == "conformal"


def test_a_second_teacher_is_waited_for_and_named(here: Path) -> None:
    from anoco_edge.storage.locks import locked

    before = tree(here)
    with locked(Path(LINE, "products/default"), 0, lambda _: None):
        ran = run_cli("calibrate", LINE, "parts", "--false-reject", 0.2, "--wait", 0.1)
    assert ran.code == 1 and "another process is changing" in ran.complaint
    assert "waiting for another process" in ran.err and tree(here) == before


# ---- memory


def test_large_pictures_are_decoded_one_at_a_time(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, count = (1500, 1250), 12
    Path("large").mkdir()
    for k in range(count):
        large = Image.fromarray(textured_picture(300 + k)).resize(size)
        large.save(f"large/{k}.jpg")
    Teacher.open(LINE)  # memory that is loaded only once is not counted
    tracemalloc.start()
    try:
        ok("calibrate", LINE, "large", "--false-reject", 0.2, "--with-defects", "bad", "--json")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    decoded = size[0] * size[1] * 3
    assert peak < count / 2 * decoded, f"{peak / decoded:.1f} pictures at once"


def test_scores_are_stored_as_json_reads_them_back(here: Path) -> None:
    """A threshold is compared with scores, so both must keep every bit when written and read."""
    calibrate()
    document = json.loads(Path(LINE, "products/default/product.json").read_text())
    assert [p["score"] for p in document["calibration"]["pictures"]] == scores()
