"""`anoco-edge infer` writes the documented results for pictures, videos and a network camera."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import (
    Ran,
    defective_picture,
    fails,
    make_line,
    names,
    ok,
    rows_of,
    run_cli,
    run_process,
    write_video,
)
from PIL import Image
from result_rows import frame, result_row
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.engines import open_engine
from anoco_edge.results import RunInfo
from anoco_edge.results.row_reader import read_results
from anoco_edge.sinks.folder import ResultFolder

KEYS = {"source", "score", "threshold", "ratio", "verdict", "regions", "evidence", "timings"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write parts/ with three good parts and a defective one, which is second by name."""
    folder = make_line(tmp_path_factory.mktemp("template"))
    Image.fromarray(defective_picture()).save(folder / "parts" / "good0-scratched.png")
    return folder


# --- pictures -------------------------------------------------------------------------------------


def test_every_row_has_what_design_promises(here: Path) -> None:
    ran = ok("infer", "line.anoco", "parts", "--out", "out")
    rows = rows_of(Path("out"))
    assert all(row.keys() >= KEYS for row in rows)
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    verdicts = {Path(row["source"]).name: row["verdict"] for row in rows}
    assert verdicts.pop("good0-scratched.png") == "anomalous"
    assert set(verdicts.values()) == {"good"} and len(verdicts) == 3
    for row in rows:
        assert row["ratio"] == pytest.approx(row["score"] / row["threshold"])
        assert (row["verdict"] == "anomalous") == (row["ratio"] > 1) == bool(row["regions"])
        assert row["threshold_kind"] == "provisional"
        assert row["evidence"]["reference"] in {f"good{k}.png" for k in range(4)}
        stages = {k: v for k, v in row["timings"].items() if k != "total"}
        assert stages.keys() >= {"decode", "preprocess", "backbone", "scoring", "map"}
        assert row["timings"]["total"] == pytest.approx(sum(stages.values()), abs=0.01)
        assert row["picture"] == str(here / row["source"])
    x0, y0, x1, y1 = next(r for r in rows if r["regions"])["regions"][0]["box"]
    assert x0 < 45 < x1 and y0 < 42 < y1, "the region covers the planted defect"
    assert "4 inspected, 3 good, 1 anomalous" in ran.out
    table, _, last = ran.out.rstrip().rpartition("\n")
    assert "provisional" in ran.err and "provisional" in table and "provisional" in last


def test_the_csv_says_the_same(here: Path) -> None:
    ok("infer", "line.anoco", "parts", "--out", "out")
    with Path("out/results.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    for flat, row in zip(table, rows_of(Path("out")), strict=True):
        assert int(flat["id"]) == row["id"] and flat["source"] == row["source"]
        assert float(flat["score"]) == row["score"] and flat["verdict"] == row["verdict"]
        assert float(flat["threshold"]) == row["threshold"]
        assert float(flat["ratio"]) == row["ratio"]
        assert int(flat["regions"]) == len(row["regions"])
        assert flat["reference"] == row["evidence"]["reference"]
        assert float(flat["total_ms"]) == row["timings"]["total"]
        box = [float(flat[k]) for k in ("x0", "y0", "x1", "y1") if flat[k]]
        assert box == (row["regions"][0]["box"] if row["regions"] else [])


def test_the_report_shows_every_source(here: Path) -> None:
    ran = ok("infer", "line.anoco", "parts", "--out", "out")
    page = Path("out/report.html").read_text()
    assert all(name in page for name in names("parts"))
    assert "provisional" in page and "report: out/report.html" in ran.err


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("anomalous", [1]), ("all", [0, 1, 2, 3]), ("none", [])],
)
def test_overlays_by_policy(here: Path, policy: str, kept: list[int]) -> None:
    ok("infer", "line.anoco", "parts", "--out", "out", "--save", policy)
    rows = rows_of(Path("out"))
    kept_rows = [k for k, row in enumerate(rows) if "overlay" in row]
    if policy == "anomalous":
        kept = [k for k, row in enumerate(rows) if row["verdict"] == "anomalous"]
    assert kept_rows == kept
    assert names("out/overlays") == sorted(Path(rows[k]["overlay"]).name for k in kept)
    for k in kept:
        with Image.open(Path("out") / rows[k]["overlay"]) as overlay:
            assert overlay.format == "JPEG" and overlay.width >= 96
    assert not Path("out/frames").exists(), "a picture that is a file already is not copied"


def test_keep_deletes_the_oldest(here: Path) -> None:
    clip = write_video("clip.avi", [textured_picture(k) for k in range(5)])
    ok("infer", "line.anoco", clip, "--out", "out", "--save", "all", "--keep", "2")
    rows = rows_of(Path("out"))
    assert len(rows) == 5 and all("overlay" in row and "picture" in row for row in rows)
    assert names("out/overlays") == [Path(row["overlay"]).name for row in rows[-2:]]
    assert names("out/frames") == [Path(row["picture"]).name for row in rows[-2:]]


def test_earlier_results_are_kept(here: Path) -> None:
    infer = ("infer", "line.anoco", "--out", "out")
    ok(*infer, "parts/good0.png")
    first = {n: Path("out", n).read_bytes() for n in ("results.jsonl", "results.csv")}
    assert "the earlier run is kept in out/runs/0001" in ok(*infer, "parts/good1.png").err
    for name, content in first.items():
        assert Path("out/runs/0001", name).read_bytes() == content
    assert [row["source"] for row in rows_of(Path("out"))] == ["parts/good1.png"]


def test_a_run_without_rows_replaces_no_earlier_results(tmp_path: Path) -> None:
    row = result_row(0, source="part.png")
    for rows in ([row], [row], [], []):
        folder = ResultFolder(tmp_path)
        for row in rows:
            folder.write(row, frame(), None)
        folder.close()
    kept = sorted(tmp_path.glob("runs/*/results.*"))
    assert [path.read_text().count("part.png") for path in kept] == [1, 1, 1, 1]


def test_a_live_run_starts_new_files_when_they_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anoco_edge.sinks.folder.MAX_RESULTS_BYTES", 1500)
    folder = ResultFolder(tmp_path, RunInfo(live=True))
    for number in range(20):
        folder.write(result_row(number), frame(), None)
    folder.close()
    assert all(path.stat().st_size < 2100 for path in tmp_path.iterdir())
    segments = sorted(tmp_path.glob("results.0*.jsonl"))
    assert [path.name for path in segments[:2]] == ["results.0001.jsonl", "results.0002.jsonl"]
    files = [*segments, tmp_path / "results.jsonl"]
    rows = [row for path in files for row in read_results(path)]
    assert [row.id for row in rows] == list(range(20)), "no segment is ever overwritten"
    assert len(list(tmp_path.glob("results.0*.csv"))) == len(segments)


def test_json_is_one_document(here: Path) -> None:
    ran = run_process("infer", "line.anoco", "parts", "--json", "--out", "out")
    assert ran.code == 0
    assert ran.json["results"] == rows_of(Path("out"))
    summary = ran.json["summary"]
    assert (summary["pictures"], summary["good"], summary["anomalous"]) == (4, 3, 1)
    assert summary["lost"] is None and summary["interrupted"] is False
    assert "provisional" in ran.err and "report:" in ran.err, "people are told on stderr"


def test_exit_codes_for_a_line_controller(here: Path) -> None:
    infer = ("infer", "line.anoco", "--fail-on-anomaly")
    assert ok("infer", "line.anoco", "parts").code == 0, "a reject is no failure unless asked for"
    assert run_cli(*infer, "parts").code == 10
    assert ok(*infer, "parts/good1.png").code == 0
    Path("parts/z.png").write_text("broken")
    assert "z.png" in fails(1, *infer, "parts/good1.png", "parts/z.png")
    assert run_cli(*infer, "parts").code == 10, "a reject outweighs a broken picture"


def uncalibrated(path: Path) -> Path:
    """Enroll two identical references, which show no spread, so that there is no threshold."""
    bundle = make_tiny_bundle(path / "flat.anoco").path
    for name, shade in (("a", 100), ("b", 101)):
        Image.new("RGB", (96, 80), (shade, shade, shade)).save(path / f"{name}.png")
    ran = ok("enroll", bundle, path / "a.png", path / "b.png")
    assert "no threshold" in ran.err
    return bundle


def test_no_threshold_is_no_verdict(here: Path, tmp_path: Path) -> None:
    bundle = uncalibrated(tmp_path)
    ran = run_cli("infer", bundle, "parts", "--fail-on-anomaly", "--json", "--out", "out")
    assert ran.code == 11 and "warning" in ran.err and "uncalibrated" in ran.err
    assert {row["verdict"] for row in ran.json["results"]} == {"uncalibrated"}
    assert all(row["threshold"] is row["ratio"] is None for row in ran.json["results"])
    assert ok("infer", bundle, "parts").code == 0
    given = run_cli("infer", bundle, "parts", "--fail-on-anomaly", "--threshold", "0.01")
    assert given.code == 10


def test_a_threshold_given_for_one_run(here: Path) -> None:
    ran = ok("infer", "line.anoco", "parts", "--threshold", "1e9", "--json")
    assert {row["verdict"] for row in ran.json["results"]} == {"good"}
    assert {row["threshold"] for row in ran.json["results"]} == {1e9}
    assert {row["threshold_kind"] for row in ran.json["results"]} == {"manual"}
    assert "provisional" not in ran.err
    ran = ok("infer", "line.anoco", "parts", "--threshold", "1e-12", "--json")
    assert {row["verdict"] for row in ran.json["results"]} == {"anomalous"}


def sources(ran: Ran) -> list[str]:
    return [row["source"] for row in ran.json["results"]]


def test_which_pictures(here: Path) -> None:
    infer = ("infer", "line.anoco", "--json")
    order = sorted(f"parts/{name}" for name in names("parts"))
    assert sorted(sources(ok(*infer, "parts"))) == order
    assert len(sources(ok(*infer, "parts", "--limit", "3"))) == 3
    assert sources(ok(*infer, "parts/good[12].png")) == ["parts/good1.png", "parts/good2.png"]
    assert sources(ok(*infer, "parts/good1.png", "good")) == [
        "parts/good1.png",
        *(f"good/good{k}.png" for k in range(4)),
    ]


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_the_batch_changes_nothing(here: Path, batch: int) -> None:
    one = ok("infer", "line.anoco", "parts", "--json", "--batch", "4").json["results"]
    other = ok("infer", "line.anoco", "parts", "--json", "--batch", batch).json["results"]
    assert [r["source"] for r in one] == [r["source"] for r in other]
    assert [r["score"] for r in one] == pytest.approx([r["score"] for r in other], rel=1e-4)


def test_the_one_bundle_here_is_found(here: Path) -> None:
    assert len(ok("infer", "parts", "--json").json["results"]) == 4
    assert len(ok("infer", "line.anoco/", "parts", "--json").json["results"]) == 4


def test_engine_settings_arrive(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def listening(choice: Any, bundle: Any, settings: Any) -> Any:
        asked.append((choice.name, settings.threads, settings.arena))
        return open_engine(choice, bundle, settings)

    monkeypatch.setattr("anoco_edge.engines.opening.open_engine", listening)
    ok("infer", "parts", "--threads", "1", "--no-arena", "--engine", "onnxruntime")
    ok("infer", "parts", "--scorer", "reference")
    assert asked == [("onnxruntime", 1, False), ("onnxruntime", 0, True)]


# --- videos ---------------------------------------------------------------------------------------


def test_a_video(here: Path) -> None:
    clip = write_video(
        "clip.avi", [textured_picture(60), defective_picture(), textured_picture(61)]
    )
    ran = ok("infer", "line.anoco", clip, "--json", "--out", "out", "--threshold", "1")
    rows = ran.json["results"]
    assert [row["source"] for row in rows] == [f"clip.avi#{k}" for k in range(3)]
    assert [row["verdict"] for row in rows] == ["good", "anomalous", "good"]
    assert "picture" not in rows[0], "a frame is kept by the policy, like its overlay"
    with Image.open(Path("out") / rows[1]["picture"]) as frame:
        assert frame.size == (96, 80) and np.asarray(frame)[42, 45, 0] > 200


def test_teach_from_a_video_and_inspect_the_rest(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "new.anoco").path
    frames = [*(textured_picture(k) for k in range(5)), defective_picture()]
    clip = write_video(tmp_path / "clip.avi", frames)
    ran = ok("infer", bundle, clip, "--teach", "3", "--json")
    assert [row["source"] for row in ran.json["results"]] == [f"{clip}#{k}" for k in (3, 4, 5)]
    assert ran.json["results"][2]["verdict"] == "anomalous"
    assert "taught 3 references" in ran.err
    product = ok("product", "list", bundle, "--json").json[0]
    assert [r["name"] for r in product["references"]] == [f"{clip}#{k}" for k in range(3)]


def test_teaching_needs_enough_frames(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "new.anoco").path
    clip = write_video(tmp_path / "clip.avi", [textured_picture(k) for k in range(2)])
    assert "gave only 2 of 3 frames" in fails(1, "infer", bundle, clip, "--teach", "3")
    assert ok("product", "list", bundle, "--json").json == []


# --- this reject was good -------------------------------------------------------------------------


def test_a_rejected_picture_becomes_a_reference(here: Path) -> None:
    rows = ok("infer", "line.anoco", "parts", "--out", "out", "--json").json["results"]
    reject = next(row for row in rows if row["verdict"] == "anomalous")
    results = ("--from-results", "out/results.jsonl", "--id", reject["id"])
    ran = ok("enroll", "line.anoco", *results, "--json")
    assert ran.json["added"] == ["good0-scratched.png"] and ran.json["generation"] == 2
    again = ok("infer", "line.anoco", reject["source"], "--json").json["results"][0]
    assert again["verdict"] == "good" and again["score"] < reject["score"] / 100


def test_a_rejected_frame_becomes_a_reference(here: Path) -> None:
    clip = write_video("clip.avi", [textured_picture(60), defective_picture()])
    ok("infer", "line.anoco", clip, "--out", "out", "--threshold", "1")
    enroll = ("enroll", "line.anoco", "--from-results", "out/results.jsonl", "--id")
    line = fails(2, *enroll, "0")
    assert "frame of id 0 was not kept" in line and "--save all" in line
    ran = ok(*enroll, "1", "--json")
    assert ran.json["added"] == ["000001-clip.avi-1.png"]
    kept = next(Path("out/frames").iterdir())
    stored = list(Path("line.anoco/products/default/references").iterdir())
    assert kept.read_bytes() in [path.read_bytes() for path in stored]


def test_keep_counts_what_earlier_runs_left(here: Path) -> None:
    for run in range(2):
        for path in sorted(Path("parts").iterdir()):
            path.rename(path.with_name(f"run{run}-{path.name}"))
        ok("infer", "line.anoco", "parts", "--out", "out", "--save", "all", "--keep", "2")
    assert len(list(Path("out/overlays").iterdir())) == 2
    assert all("run1" in path.name for path in Path("out/overlays").iterdir())


def test_results_inside_the_inspected_folder_are_not_inspected(here: Path) -> None:
    counts = []
    for _ in range(2):
        ran = ok("infer", "line.anoco", "parts", "--out", "parts/out", "--save", "all", "--json")
        counts.append(ran.json["summary"]["pictures"])
    assert counts[0] == counts[1] > 0


def test_every_row_has_the_same_keys_failed_or_not(here: Path) -> None:
    Path("parts/broken.png").write_text("no picture")
    run_cli("infer", "line.anoco", "parts", "--out", "out")
    rows = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()]
    wanted = {"source", "score", "threshold", "ratio", "verdict", "regions", "evidence", "timings"}
    assert len(rows) > 1 and all(wanted <= row.keys() for row in rows)


def test_the_verdict_stands_when_its_overlay_cannot_be_drawn(here: Path) -> None:
    for path in Path("line.anoco/products/default/references").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    ok("infer", "line.anoco", "parts", "--out", "out", "--save", "all")
    rows = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()]
    assert rows and all(row["verdict"] is not None for row in rows)
    assert all("is not what was written" in row["overlay_error"] for row in rows)
