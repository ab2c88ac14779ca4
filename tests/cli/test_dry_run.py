"""`--dry-run` reports what a change would do to the threshold and to known verdicts.

It changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import defective_picture, environment, ok, refused, rows_of, tree
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle

LINE = "line.anoco"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a calibrated line.anoco, nine good and two defective parts, and the results of a run
    over all.
    """
    folder = tmp_path_factory.mktemp("template")
    line = make_tiny_bundle(folder / LINE).path
    ok("enroll", line, *write_good_pictures(folder / "references", 3))
    write_good_pictures(folder / "parts", 9, seed=100)
    (folder / "bad").mkdir()
    for k in range(2):
        Image.fromarray(defective_picture(70 + k)).save(folder / "bad" / f"bad{k}.png")
    Image.fromarray(textured_picture(30)).save(folder / "new.png")
    ok("calibrate", line, folder / "parts", "--false-reject", 0.2)
    return folder


def dry(*command: object) -> dict[str, Any]:
    """Return the JSON of a dry run, and check that it leaves every file as it is."""
    before = tree(Path())
    report: dict[str, Any] = ok(*command, "--dry-run", "--json").json
    assert tree(Path()) == before and report["dry_run"] is True
    return report


def by_picture(report: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {e["picture"]: e for e in report["effects"] if e["kind"] == kind}


def same(said: dict[str, Any], done: dict[str, Any]) -> bool:
    return all(said[k] == done[k] for k in ("threshold", "references", "added", "notes"))


# ---- it says what would happen


def test_enroll_shows_thresholds_and_scores_as_they_would_be(here: Path) -> None:
    before = Bundle.open(LINE).product()
    said = dry("enroll", LINE, "new.png")
    done = ok("enroll", LINE, "new.png", "--json").json
    assert same(said, done) and said["added"] == ["new.png"]
    assert said["threshold_before"] == before.threshold.model_dump()
    after = Bundle.open(LINE).product()
    assert before.calibration is not None and after.calibration is not None
    effects = by_picture(said, "calibration")
    for old, new in zip(before.calibration.pictures, after.calibration.pictures, strict=True):
        effect = effects[old.name]
        assert (effect["score"], effect["new_score"]) == (old.score, new.score)
        for score, product, verdict in (
            (old.score, before, effect["verdict"]),
            (new.score, after, effect["new_verdict"]),
        ):
            assert score is not None and product.threshold.value is not None
            assert verdict == ("anomalous" if score > product.threshold.value else "good")
        assert effect["flips"] == (effect["verdict"] != effect["new_verdict"])
    assert said["flips"] == sum(e["flips"] for e in said["effects"])


def test_references_remove_shows_the_same(here: Path) -> None:
    said = dry("references", "remove", LINE, "good1.png")
    assert said["references"] == ["good0.png", "good2.png"] and len(said["effects"]) == 9
    done = ok("references", "remove", LINE, "good1.png", "--json").json
    assert same(said, done) and said["threshold"] != said["threshold_before"]


def test_calibrate_shows_the_threshold_it_would_set(here: Path) -> None:
    command = ("calibrate", LINE, "parts", "--false-reject", 0.5)
    said = dry(*command)
    out = ok(*command, "--dry-run").out
    assert "generation" not in out and f"threshold {said['threshold']['value']:.4g} (was" in out
    assert Bundle.open(LINE).product().generation == 2
    done = ok(*command, "--json").json
    assert (said["threshold"], said["scores"]) == (done["threshold"], done["scores"])


def test_a_product_that_is_not_there_yet(here: Path) -> None:
    said = dry("enroll", LINE, "new.png", "--product", "nut")
    assert said["threshold_before"] is None and said["effects"] == []
    assert said["threshold"]["kind"] == "provisional"
    assert not Path(LINE, "products", "nut").exists()
    assert "product nut would have 1 reference" in (
        ok("enroll", LINE, "new.png", "--product", "nut", "--dry-run").out
    )


def test_what_ends_the_calibration_is_said_before_it_happens(here: Path) -> None:
    ok("calibrate", LINE, "parts", "--false-reject", 0.2, "--scores-only")
    said = dry("enroll", LINE, "new.png")
    assert said["threshold"]["kind"] == "none" and "uncalibrated" in said["notes"][0]
    assert {e["new_verdict"] for e in said["effects"]} == {"uncalibrated"} and said["flips"] == 9
    ran = ok("enroll", LINE, "new.png", "--dry-run")
    assert "warning: verdicts will be 'uncalibrated'" in ran.err and "-> none" in ran.out


def test_a_calibration_picture_that_would_become_a_reference(here: Path) -> None:
    said = dry("enroll", LINE, "parts/good4.png")
    assert said["notes"] == ["good4.png is a reference now and no longer calibrates"]
    effect = by_picture(said, "calibration")["good4.png"]
    assert (effect["new_score"], effect["new_verdict"]) == (None, "not scored")
    assert not effect["flips"], "it has no new verdict"


def test_removing_the_last_references(here: Path) -> None:
    said = dry("references", "remove", LINE, "good0.png", "good1.png", "good2.png")
    assert said["references"] == [] and "no reference is left" in said["notes"][0]
    assert {e["new_verdict"] for e in said["effects"]} == {"uncalibrated"}


# ---- past verdicts


def test_past_verdicts_that_would_flip_are_counted(here: Path) -> None:
    ok("infer", LINE, "parts", "bad", "--out", "run", "--save", "none")
    before = {Path(row["source"]).name: row for row in rows_of(Path("run"))}
    said = dry("enroll", LINE, "bad/bad0.png", "--past", "run/results.jsonl")
    past = by_picture(said, "past")
    assert set(past) == set(before)
    shown = ok("enroll", LINE, "bad/bad0.png", "--dry-run", "--past", "run/results.jsonl").out
    ok("enroll", LINE, "bad/bad0.png")
    ok("infer", LINE, "parts", "bad", "--out", "run2", "--save", "none")
    flips = 0
    for row in rows_of(Path("run2")):
        name = Path(row["source"]).name
        effect = past[name]
        assert (effect["score"], effect["verdict"]) == (
            before[name]["score"],
            before[name]["verdict"],
        )
        assert (effect["new_score"], effect["new_verdict"]) == (row["score"], row["verdict"])
        flips += row["verdict"] != before[name]["verdict"]
    assert sum(e["flips"] for e in past.values()) == flips
    # Teaching a defect lets similar defects pass, and the user must see this.
    assert past["bad1.png"]["new_verdict"] == "good" and flips >= 2
    assert f"{flips} of 11 past verdicts would flip" in shown and "from anomalous to good" in shown
    assert "of 9 calibration pictures would flip" in shown


def test_a_minimum_area_counts_for_past_verdicts(here: Path) -> None:
    ok("infer", LINE, "bad", "--out", "run", "--save", "none")
    command = ("enroll", LINE, "new.png", "--past", "run/results.jsonl")
    assert {e["new_verdict"] for e in by_picture(dry(*command), "past").values()} == {"anomalous"}
    vast = by_picture(dry(*command, "--min-area", 5000), "past")
    assert {e["new_verdict"] for e in vast.values()} == {"good"}


def test_past_pictures_that_cannot_be_scored_are_left_out_by_name(here: Path) -> None:
    ok("infer", LINE, "parts", "--out", "run", "--save", "none")
    rows = rows_of(Path("run"))
    rows[0]["picture"] = "gone.png"
    del rows[1]["picture"]
    rows[2]["product"] = "nut"
    rows[3] = {"id": 3, "source": "x.png", "error": "could not be read"}
    Image.fromarray(textured_picture(3, 80, 96)).save("tall.png")
    rows[4]["picture"] = str(Path("tall.png").absolute())
    text = "".join(json.dumps(row) + "\n" for row in rows)
    Path("run/results.jsonl").write_text(text)
    ran = ok("enroll", LINE, "new.png", "--dry-run", "--past", "run/results.jsonl", "--json")
    assert set(by_picture(ran.json, "past")) == {f"good{k}.png" for k in range(5, 9)}
    assert "id 0 is left out" in ran.err and "gone.png" in ran.err
    assert "id 4 is left out" in ran.err and "80x96" in ran.err
    assert "left out of run/results.jsonl: 1 not kept (--save all keeps them)" in ran.err
    assert "left out of run/results.jsonl: 1 of another product" in ran.err


def test_a_past_that_is_none(here: Path) -> None:
    command = ("enroll", LINE, "new.png")
    assert "--past is for --dry-run" in refused(2, *command, "--past", "x.jsonl")
    assert "there is no x.jsonl" in refused(2, *command, "--dry-run", "--past", "x.jsonl")
    Path("odd.jsonl").write_text("not a result\n")
    assert "line 1 of odd.jsonl is not a result" in refused(
        2, *command, "--dry-run", "--past", "odd.jsonl"
    )


# ---- it changes nothing


def test_a_dry_run_refuses_what_the_real_one_refuses(here: Path) -> None:
    assert "nothing new" in refused(1, "enroll", LINE, "references/good0.png", "--dry-run")
    assert "no reference x" in refused(2, "references", "remove", LINE, "x", "--dry-run")
    assert "support a false-reject" in refused(2, "calibrate", LINE, "parts", "--dry-run")


def test_a_dry_run_needs_no_lock(here: Path) -> None:
    from anoco_edge.storage.locks import locked

    with locked(Path(LINE, "products/default"), 0, lambda _: None):
        dry("enroll", LINE, "new.png", "--wait", 0)
        dry("references", "remove", LINE, "good1.png")
        dry("calibrate", LINE, "parts", "--false-reject", 0.2, "--wait", 0)


@contextmanager
def read_only(folder: Path) -> Iterator[tuple[str, ...]]:
    """Remove the permission to write, and return a command prefix under which root obeys it."""
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
        if not shutil.which("setpriv") or subprocess.run([*prefix, "true"]).returncode:
            pytest.skip("setpriv may not drop capabilities here")
    subprocess.run(["chmod", "-R", "a-w", str(folder)], check=True)
    try:
        yield prefix
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)


def test_a_dry_run_works_on_a_read_only_bundle(here: Path) -> None:
    expected, before = dry("enroll", LINE, "new.png"), tree(here)
    with read_only(here / LINE) as prefix:
        command = [*prefix, sys.executable, "-m", "anoco_edge", "enroll", LINE, "new.png", "--json"]
        options: Any = {"capture_output": True, "text": True, "env": environment()}
        real = subprocess.run(command, **options)
        tried = subprocess.run([*command, "--dry-run"], **options)
    assert real.returncode == 1 and "no permission to write" in real.stderr
    assert tried.returncode == 0, tried.stderr
    assert json.loads(tried.stdout) == expected and tree(here) == before
