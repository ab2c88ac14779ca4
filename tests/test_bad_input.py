"""What users do wrong and what breaks around them: one clear line, the right exit code, nothing
lost. A check in front of the real thing every time: the command itself, on real files."""

from __future__ import annotations

import csv
import errno
import json
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
    fails,
    network_camera,
    ok,
    rows_of,
    run_cli,
    run_process,
    tree,
)
from PIL import Image
from safetensors.numpy import load_file, save_file
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.checksum import sha256_file
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.bundle.store import sealed_document


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that was taught four good parts, and a folder of three others."""
    folder = tmp_path_factory.mktemp("template")
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", folder / "line.anoco", *write_good_pictures(folder / "good", 4))
    write_good_pictures(folder / "parts", 3, seed=50)
    return folder


@pytest.fixture
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current directory."""
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def refused(code: int, *args: object) -> str:
    """`fails`, and no file in the current directory has changed."""
    before = tree(Path())
    line = fails(code, *args)
    assert tree(Path()) == before
    return line


def png(width: int, height: int) -> bytes:
    """A valid header, and pixels that never come."""

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
    path = spoil(kind, here / "parts")  # "bad" sorts before the good ones
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
        return given * pixels.any(axis=(1, 2, 3))[:, None, None]

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
    assert "warning" in ran.err and ran.json["added"] == ["good0.png"]
    assert ran.json["duplicates"] == ["copy.png (same as good1.png)"]


def test_a_video_is_not_enrolled(here: Path) -> None:
    Path("clip.avi").touch()
    assert "--teach" in refused(2, "enroll", "line.anoco", "clip.avi")


# --- region, mask and other settings --------------------------------------------------------------


def test_masks_that_do_not_fit(here: Path) -> None:
    Image.new("L", (64, 64)).save("small.png")
    Image.new("L", (96, 80), 255).save("all.png")
    Path("text.png").write_text("white")
    settings = ("product", "set", "line.anoco", "--mask")
    line = refused(1, *settings, "small.png")
    assert "the mask is 64x64" in line and "96x80" in line
    assert "no patch" in refused(2, *settings, "all.png")
    assert "not a picture" in refused(1, *settings, "text.png")
    assert "no mask gone.png" in refused(2, *settings, "gone.png")
    new = write_good_pictures(here / "new", 1, seed=80)
    line = refused(1, "enroll", "line.anoco", *new, "--mask", "small.png")
    assert "the mask is 64x64" in line


@pytest.mark.parametrize(
    ("roi", "words"),
    [
        ("10,20", "not a region"),
        ("a,b,c,d", "not a region"),
        ("1,2 3,4", "not a region"),
        ("", "not a region"),
        ("0,0,500,10", "leaves the picture, which is 96x80"),
        ("-5,0,10,10", "leaves the picture"),
        ("nan,0,10,10", "leaves the picture"),
        ("10,10,0,10", "no area"),
    ],
)
def test_wrong_regions(here: Path, roi: str, words: str) -> None:
    assert words in refused(2, "product", "set", "line.anoco", f"--roi={roi}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--threshold", "-1"),
        ("--threshold", "nan"),
        ("--threshold", "inf"),
        ("--lambda", "0"),
        ("--lambda", "nan"),
        ("--floor", "1"),
        ("--min-area", "inf"),
    ],
)
def test_settings_out_of_range(here: Path, option: str, value: str) -> None:
    assert option.strip("-") in refused(2, "product", "set", "line.anoco", option, value)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_thresholds_that_are_none(here: Path, value: str) -> None:
    assert "threshold is" in refused(2, "infer", "line.anoco", "parts", "--threshold", value)


# --- bundles --------------------------------------------------------------------------------------


def test_no_bundle_two_bundles_not_a_bundle(here: Path) -> None:
    shutil.copytree("line.anoco", "other.anoco")
    assert "line.anoco, other.anoco" in refused(2, "infer", "parts")
    shutil.rmtree("line.anoco")
    assert "missing.anoco" in refused(4, "infer", "missing.anoco", "parts")
    shutil.rmtree("other.anoco")
    line = refused(2, "infer", "parts")
    assert "no bundle" in line and "anoco-edge export" in line
    Path("empty.anoco").mkdir()
    for command in (["infer", "empty.anoco", "parts"], ["enroll", "empty.anoco", "parts"]):
        assert "empty.anoco has no manifest.json" in refused(4, *command)
    for command in (["info"], ["verify"], ["references", "list"], ["product", "list"]):
        assert "parts has no manifest.json" in refused(4, *command, "parts")


@pytest.mark.parametrize("name", ["manifest.json", "products/default/product.json"])
def test_a_bundle_of_a_newer_schema(here: Path, name: str) -> None:
    path = Path("line.anoco") / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    for command in (["infer", "line.anoco", "parts"], ["info", "line.anoco"]):
        line = refused(4, *command)
        assert path.name in line and "schema version 2" in line and "update anoco-edge" in line
    new = write_good_pictures(here / "new", 1, seed=80)
    assert "schema version 2" in refused(4, "enroll", "line.anoco", *new)


def test_a_changed_byte_is_named(here: Path) -> None:
    path = Path("line.anoco/backbone.onnx")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "backbone.onnx" in refused(4, "verify", "line.anoco")
    assert "backbone.onnx" in refused(4, "infer", "line.anoco", "parts")
    path.unlink()
    assert "backbone.onnx is missing" in refused(4, "info", "line.anoco")


def test_nan_in_the_bank(here: Path) -> None:
    """With every checksum right, as a broken writer would leave it."""
    bundle = Bundle.open("line.anoco")
    product, folder = bundle.product(), bundle.product_folder("default")
    assert product.bank is not None
    path = folder / product.bank.path
    tensors = load_file(path)
    tensors["features"] = tensors["features"].copy()
    tensors["features"][3, 2] = np.nan
    save_file(tensors, path)
    size = path.stat().st_size
    record = FileRecord(path=product.bank.path, sha256=sha256_file(path), size=size)
    changed = product.model_copy(update={"bank": record})
    (folder / "product.json").write_bytes(sealed_document(changed))
    for command in (["infer", "line.anoco", "parts", "--out", "out"], ["verify", "line.anoco"]):
        line = refused(4, *command)
        assert path.name in line and "enrol" in line


def test_names_that_are_not_there(here: Path) -> None:
    infer = ("infer", "line.anoco", "parts")
    assert "no product 'nut'; it has: default" in refused(2, *infer, "--product", "nut")
    assert "onnxruntime" in refused(2, *infer, "--engine", "abacus")
    assert "onnx" in refused(2, *infer, "--scorer", "dice")
    new = write_good_pictures(here / "new", 1, seed=80)
    assert "not a product name" in refused(2, "enroll", "line.anoco", *new, "-p", "../nut")
    assert "onnxruntime" in refused(2, "enroll", "line.anoco", *new, "--engine", "abacus")
    remove = ("references", "remove", "line.anoco")
    line = refused(2, *remove, "good1.png", "gone.png")
    assert "no reference gone.png" in line and "good3.png" in line
    assert "first generation" in refused(2, "references", "undo", "line.anoco")
    for command in (["references", "list"], ["product", "set", "--min-area", "3"]):
        assert "no product 'nut'" in refused(2, *command, "line.anoco", "--product", "nut")


def test_several_products_need_a_name(here: Path) -> None:
    ok("enroll", "line.anoco", "good", "--product", "bolt")
    line = refused(2, "infer", "line.anoco", "parts")
    assert "bolt, default" in line and "--product" in line


def test_a_bundle_without_references_says_how_to_teach(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "new.anoco").path
    (picture,) = write_good_pictures(tmp_path / "good", 1)
    line = fails(4, "infer", bundle, "--camera", "97")
    assert f"anoco-edge infer {bundle} --camera 97 --teach 4" in line
    assert "--teach" in fails(4, "infer", bundle, picture)
    assert "anoco-edge enroll" in fails(4, "references", "list", bundle)


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
    """A process whose files may not grow beyond `limit` bytes: to it the disk is full."""
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
    assert len(Path("out/results.1.jsonl").read_text().splitlines()) == 1
    page = Path("out/report.html").read_text()
    assert page.rstrip().endswith("</html>"), "the old report, not half a new one"
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "report.html",
        "results.1.csv",
        "results.1.jsonl",
        "results.csv",
        "results.jsonl",
    ]


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
def test_a_full_disk_behind_standard_output(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "anoco_edge", "info", "line.anoco", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
    assert ran.returncode == 1
    assert "No space left" in Ran(1, "", ran.stderr).complaint


# --- earlier results ------------------------------------------------------------------------------


def test_from_results_with_nothing_to_find(here: Path) -> None:
    (here / "parts" / "z.png").write_text("broken")
    run_cli("infer", "line.anoco", "parts", "--out", "out")
    enroll = ("enroll", "line.anoco")
    results = ("--from-results", "out/results.jsonl")
    assert "has no id 99" in refused(2, *enroll, *results, "--id", "99")
    assert "id 3 could not be inspected" in refused(2, *enroll, *results, "--id", "3")
    assert "needs --id" in refused(2, *enroll, *results)
    assert "needs --from-results" in refused(2, *enroll, "--id", "1")
    assert "together" in refused(2, *enroll, "parts", *results, "--id", "1")
    gone = ("--from-results", "gone.jsonl", "--id", "0")
    assert "there is no gone.jsonl" in refused(2, *enroll, *gone)
    Path("parts/good0.png").unlink()
    line = refused(2, *enroll, *results, "--id", "0")
    assert "good0.png, the picture of id 0, is no longer there" in line


@pytest.mark.parametrize("content", [b"not json\n", b"[1, 2]\n", b'{"source": "a"}\n', b"\xff\n"])
def test_from_results_that_are_none(here: Path, content: bytes) -> None:
    Path("odd.jsonl").write_bytes(b"\n" + content)
    line = refused(2, "enroll", "line.anoco", "--from-results", "odd.jsonl", "--id", "0")
    assert "line 2 of odd.jsonl is not a result" in line


# --- the command line itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["infer", "--colour"], "--colour"),
        (["enroll"], "bundle"),
        (["frobnicate"], "frobnicate"),
        (["infer", "line.anoco", "parts", "--limit", "0"], "limit"),
        (["infer", "line.anoco", "parts", "--save", "some"], "save"),
        (["infer", "line.anoco", "parts", "--timeout", "inf"], "timeout"),
        (["infer", "line.anoco", "parts", "--teach", "two"], "teach"),
        (["product", "set", "line.anoco", "--min-area", "nan"], "min-area"),
        (["product", "set", "line.anoco", "--metric", "l3"], "metric"),
        (["demo", "--size", "0"], "size"),
        (["export", "--seed", "-1"], "seed"),
    ],
)
def test_usage_errors_are_exit_2_without_a_traceback(
    here: Path, args: list[str], words: str
) -> None:
    before = tree(Path())
    ran = run_cli(*args)
    assert ran.code == 2 and words in ran.err and "Traceback" not in ran.err
    assert ran.out == "" and tree(Path()) == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "--list"),
        (["--backbone", "efficientnet-lite9"], "efficientnet-lite0"),
        (["--backbone", "efficientnet-lite0", "--shots", "2"], "--shots needs --refs"),
        (["--refs", "good", "--shots", "9"], "--shots 9 of 4 pictures"),
        (["--refs", "nothing"], "no file or folder nothing"),
        (["--refs", "good", "--product", "a b"], "not a product name"),
        (["--size", "130"], "128 or 144"),
        (["--size", "16"], "too small"),
        (["--size", "big"], "'big' is not a size"),
        (["--size", "64x64x3"], "is not a size"),
        (["--out", "."], "no name for a bundle"),
        (["--out", "line.anoco"], "line.anoco exists already"),
        (["--out", "line"], "line.anoco exists already"),
        (["--weights", "gone.pth"], "gone.pth"),
    ],
)
def test_exports_that_cannot_begin(here: Path, args: list[str], words: str) -> None:
    backbone = [] if not args or "--backbone" in args else ["--backbone", "efficientnet-lite0"]
    assert words in refused(2, "export", *backbone, *args)


def test_file_names_need_not_be_utf8(here: Path) -> None:
    name = os.fsdecode(b"parts/k\xe9se[red].png")
    shutil.copy("parts/good0.png", name)
    ran = run_process("infer", "line.anoco", "parts", "--out", "out", "--save", "all")
    assert ran.code == 0 and "4 good" in ran.out, ran.err
    row = next(row for row in rows_of(Path("out")) if "se[red]" in row["source"])
    assert row["source"] == r"parts/k\udce9se[red].png"
    assert Path(row["picture"]).is_file(), "and the path leads to the file"
    document = run_process("infer", "line.anoco", "parts", "--json")
    assert row["picture"] in [r["picture"] for r in document.json["results"]]


def test_a_bug_of_ours_is_one_line_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundle, "products", lambda self: 1 / 0)
    ran = run_cli("info", "line.anoco")
    assert ran.code == 1 and len(ran.err.splitlines()) == 1
    assert ran.err.startswith("anoco-edge: internal error: ZeroDivisionError")
    monkeypatch.setenv("ANOCO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run_cli("info", "line.anoco")
