"""Bad input and failing surroundings give one clear line and the right exit code; no data is lost.

Each test runs the command itself, on real files.
"""

from __future__ import annotations

import csv
import errno
import os
import resource
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from command_line import (
    Ran,
    environment,
    names,
    network_camera,
    ok,
    refused,
    rows_of,
    run_cli,
    run_process,
    tree,
)
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures


def png(width: int, height: int) -> bytes:
    """Return a PNG with a valid header and without its pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))


# --- pictures -------------------------------------------------------------------------------------


def spoil(kind: str, folder: Path) -> Path:
    path = folder / ("bad.jpg" if kind == "truncated" else "bad.png")
    if kind == "text":
        path.write_text("good morning\n")
    elif kind == "empty":
        path.touch()
    elif kind == "truncated":
        Image.fromarray(textured_picture(9)).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "1x1":
        Image.new("RGB", (1, 1)).save(path)
    elif kind == "huge":
        path.write_bytes(png(20_000, 20_000))
    elif kind == "shape":
        Image.fromarray(textured_picture(9, 80, 96)).save(path)
    return path


BROKEN = {
    "text": "not a picture",
    "empty": "is empty",
    "truncated": "damaged or incomplete",
    "1x1": "1x1 pixels, too small",
    "huge": "400 million pixels",
    "shape": "is 80x96, the references are 96x80",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_picture_is_not_enrolled(here: Path, kind: str) -> None:
    path = spoil(kind, here)
    more = write_good_pictures(here / "new", 1, seed=80)
    line = refused(1, "enroll", "line.anoco", *more, path)
    assert path.name in line and BROKEN[kind] in line and "; " in line


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_picture_among_good_ones_is_recorded_and_the_run_goes_on(
    here: Path, kind: str
) -> None:
    path = spoil(kind, here / "parts")  # "bad" sorts before the good pictures
    ran = run_cli("infer", "line.anoco", "parts", "--out", "out")
    assert ran.code == 1
    assert "1 of 4 pictures" in ran.complaint
    assert path.name in ran.complaint and BROKEN[kind] in ran.complaint
    rows = rows_of(Path("out"))
    assert [row["verdict"] for row in rows] == [None, "good", "good", "good"]
    assert path.name in rows[0]["error"] and BROKEN[kind] in rows[0]["error"]
    assert rows[0]["source"] == f"parts/{path.name}"
    assert "1 failed" in ran.out and path.name in Path("out/report.html").read_text()
    with Path("out/results.csv").open(newline="") as stream:
        assert [bool(row["error"]) for row in csv.DictReader(stream)] == [True, False, False, False]


def test_many_bad_pictures_are_all_named(here: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (here / "parts" / name).write_text("no picture")
    ran = run_cli("infer", "line.anoco", "parts")
    assert ran.code == 1 and "3 of 6 pictures" in ran.complaint
    assert all(f"failed: parts/{name}" in ran.err for name in ("a.png", "b.png", "c.png"))
    document = run_cli("infer", "line.anoco", "parts", "--json")
    assert document.code == 1 and document.json["summary"]["failed"] == 3
    assert "parts/a.png" in document.complaint


def test_a_picture_that_cannot_be_scored_does_not_take_its_batch_along(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.engines.ort import OnnxRuntimeEngine as Engine

    Image.new("RGB", (96, 80)).save(here / "parts" / "good1.png")
    features = Engine.features

    def nothing_in_black(self: Engine, pixels: np.ndarray) -> np.ndarray:
        given = features(self, pixels)
        return np.asarray(given * (pixels.reshape(len(pixels), -1).max(axis=1) > 0)[:, None, None])

    monkeypatch.setattr(Engine, "features", nothing_in_black)
    ran = run_cli("infer", "line.anoco", "parts", "--json")
    assert [row["verdict"] for row in ran.json["results"]] == ["good", None, "good"]
    assert ran.code == 1 and "parts/good1.png" in ran.complaint and "norm" in ran.complaint


def test_a_very_wide_picture_works(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "wide.anoco").path
    wide = [tmp_path / f"{k}.png" for k in range(2)]
    for k, path in enumerate(wide):
        tile = textured_picture(k, 400, 500)
        Image.fromarray(np.tile(tile, (1, 50, 1))).save(path, compress_level=1)
    ok("enroll", bundle, *wide)
    tile[100:300, 50:350] = 255
    Image.fromarray(np.hstack([tile, *[textured_picture(3, 400, 500)] * 49])).save(wide[0])
    ran = ok("infer", bundle, wide[0], "--out", tmp_path / "out", "--save", "all", "--json")
    (row,) = ran.json["results"]
    assert row["verdict"] == "anomalous" and row["regions"][0]["box"][2] <= 20_000
    assert (tmp_path / "out" / row["overlay"]).is_file()


def test_no_reference_pictures(here: Path) -> None:
    (here / "nothing").mkdir()
    assert "no reference pictures" in refused(2, "enroll", "line.anoco")
    assert "no pictures in nothing" in refused(2, "enroll", "line.anoco", "nothing")
    assert "no file fits" in refused(2, "enroll", "line.anoco", "nothing/*.png")
    assert "gone.png" in refused(2, "enroll", "line.anoco", "gone.png")


def test_references_that_are_there_already(here: Path) -> None:
    shutil.copy("good/good1.png", "copy.png")
    line = refused(1, "enroll", "line.anoco", "copy.png")
    assert "copy.png (same as good1.png)" in line
    new = write_good_pictures(here / "new", 1, seed=80)
    ran = ok("enroll", "line.anoco", "copy.png", *new, "--json")
    assert "warning" in ran.err and ran.json["added"] == ["good0-2.png"]
    assert ran.json["duplicates"] == ["copy.png (same as good1.png)"]


def test_a_video_is_not_enrolled(here: Path) -> None:
    Path("clip.avi").touch()
    assert "--teach" in refused(2, "enroll", "line.anoco", "clip.avi")


# --- sources --------------------------------------------------------------------------------------


def test_no_such_camera(here: Path) -> None:
    line = refused(3, "infer", "line.anoco", "--camera", "97", "--out", "out")
    assert "no camera 97" in line and "/dev/video" in line
    assert "not a camera" in refused(2, "infer", "line.anoco", "--camera", "²")
    assert "at once" in refused(2, "infer", "line.anoco", "parts", "--camera", "97")
    assert "nothing to inspect" in refused(2, "infer", "line.anoco")
    line = refused(3, "infer", "line.anoco", "http://127.0.0.1:9/live", "--timeout", "2")
    assert "no stream at" in line


def test_a_stream_that_dies_midway(here: Path) -> None:
    with network_camera(6, 0.05) as address:
        ran = run_cli("infer", "line.anoco", address, "--out", "out")
    assert ran.code == 1 and "stopped after 6 frames" in ran.complaint
    rows = rows_of(Path("out"))
    assert 1 <= len(rows) <= 6 and all(row["score"] > 0 for row in rows)
    assert f"{len(rows)} inspected" in ran.out
    page = Path("out/report.html").read_text()
    assert page.count("live.mjpg#") >= len(rows)


def test_a_dying_stream_with_rejects_still_says_so(here: Path) -> None:
    with network_camera(3, 0.05) as address:
        infer = ("infer", "line.anoco", address, "--fail-on-anomaly", "--threshold", "1e-9")
        ran = run_cli(*infer)
    assert ran.code == 10 and "warning: " in ran.err and "stopped after 3 frames" in ran.err


# --- writing --------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    for place in ("file", "file/out"):
        line = refused(1, "infer", "line.anoco", "parts", "--out", place)
        assert f"cannot write {place}" in line and "another --out" in line
    mkdir = os.mkdir

    def read_only(path: str, *args: int, **options: int) -> None:
        if Path(path).name == "ro":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        mkdir(path, *args, **options)

    monkeypatch.setattr(os, "mkdir", read_only)
    line = refused(1, "infer", "line.anoco", "parts", "--out", "ro")
    assert "Read-only file system" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(here: Path) -> None:
    Path("out").mkdir(mode=0o555)
    line = refused(1, "infer", "line.anoco", "parts", "--out", "out")
    assert "Permission denied" in line


def with_small_files(limit: int, *args: object) -> Ran:
    """Return the command prefix of a process whose files may not grow beyond `limit` bytes.

    To that process, the disk looks full.
    """
    return run_process(
        *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )


def test_a_full_disk_while_writing_results(here: Path) -> None:
    write_good_pictures(here / "parts", 12, seed=50)
    ok("infer", "line.anoco", "parts", "--limit", "1", "--out", "out")
    ran = with_small_files(4000, "infer", "line.anoco", "parts", "--out", "out")
    assert ran.code == 1 and "cannot write out: File too large" in ran.complaint
    assert "rows written before are kept" in ran.complaint
    rows = rows_of(Path("out"))
    assert 3 <= len(rows) <= 6 and [row["id"] for row in rows] == list(range(len(rows)))
    assert f"{len(rows)} inspected" in ran.out, "the verdicts so far are shown"
    with Path("out/results.csv").open(newline="") as stream:
        assert [row["verdict"] for row in csv.DictReader(stream)] == ["good"] * len(rows)
    assert len(rows_of(Path("out/runs/0001"))) == 1
    page = Path("out/runs/0001/report.html").read_text()
    assert page.rstrip().endswith("</html>"), "the old report; half a new one is not left"
    assert names("out") == ["results.csv", "results.jsonl", "runs"]


def test_a_full_disk_while_writing_the_report(here: Path) -> None:
    ran = with_small_files(4000, "infer", "line.anoco", "parts", "--out", "out", "--json")
    assert ran.code == 1
    assert "out/report.html" in ran.complaint and "File too large" in ran.complaint
    assert len(ran.json["results"]) == len(rows_of(Path("out"))) == 3
    assert not Path("out/report.html").exists()


def test_a_full_disk_while_enrolling(here: Path) -> None:
    new = write_good_pictures(here / "new", 1, seed=80)
    before = tree(Path("line.anoco"))
    ran = with_small_files(1000, "enroll", "line.anoco", *new)
    assert ran.code == 1 and "cannot write" in ran.complaint and "File too large" in ran.complaint
    assert "nothing was changed" in ran.complaint
    after = tree(Path("line.anoco"))
    assert {name: after[name] for name in before} == before
    assert ok("references", "list", "line.anoco", "--json").json["generation"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output(here: Path, unbuffered: str) -> None:
    """The error is the same whether Python writes at once or only when the command has ended."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "anoco_edge", "product", "list", "line.anoco", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), "PYTHONUNBUFFERED": unbuffered},
        )
    assert ran.returncode == 1
    says = "anoco-edge: cannot use the standard output: No space left on device; check that"
    assert ran.stderr.startswith(says) and ran.stderr.count("\n") == 1


def test_a_reader_that_has_gone_is_not_told(here: Path) -> None:
    gone, output = os.pipe()
    os.close(gone)
    ran = subprocess.run(
        [sys.executable, "-m", "anoco_edge", "product", "list", "line.anoco", "--json"],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "PYTHONUNBUFFERED": ""},
    )
    os.close(output)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_without_standard_output_an_error_is_one_line_too(here: Path) -> None:
    ran = run_process("info", "missing.anoco", preexec_fn=lambda: os.close(1))
    assert ran.code == 4 and "there is no bundle at missing.anoco" in ran.complaint


def test_no_room_for_temporary_files_is_not_taken_for_the_standard_output(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", full)
    line = refused(1, "export", "--bundle", "line.anoco", "--single-file", "out.onnx")
    assert line.startswith("anoco-edge: cannot go on: No usable temporary directory found in ")
    assert line.endswith("that the disk is not full")
