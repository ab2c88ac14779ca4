"""Wrong settings, wrong names and wrong bundles are refused in one line, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import (
    fails,
    ok,
    refused,
    rows_of,
    run_cli,
    run_process,
    tree,
)
from PIL import Image
from safetensors.numpy import load_file, save_file
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.storage.hashes import sha256_file

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
        ("--lambda", "0x"),
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
    assert "no bundle" in line and "anoco-edge enroll line.anoco" in line
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
    """Every checksum is right, as if a faulty program had written the bank."""
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


@pytest.mark.parametrize(
    "row",
    [
        {"picture": 7},
        {"source": ["a"]},
        {"score": "high"},
        {"score": True},
        {"id": "0"},
        {"error": {}},
    ],
)
def test_rows_of_another_kind_are_refused(here: Path, row: dict[str, object]) -> None:
    Path("odd.jsonl").write_text(json.dumps({"id": 0, "picture": "a.png", **row}) + "\n")
    line = refused(2, "enroll", "line.anoco", "--from-results", "odd.jsonl", "--id", "0")
    assert "line 1 of odd.jsonl is not a result" in line


def test_a_deep_row_is_refused(here: Path) -> None:
    Path("odd.jsonl").write_text("[" * 100_000 + "\n")
    line = refused(2, "enroll", "line.anoco", "--from-results", "odd.jsonl", "--id", "0")
    assert "line 1 of odd.jsonl is not a result" in line


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
        (["--backbone", "efficientnet-lite9"], "efficientnet-lite0"),
        (["--backbone", "dinov3-l", "--layer", "25"], "layers are 1 to 24"),
        (["--backbone", "dinov3-l", "--layers", "18,12"], "ascending"),
        (["--backbone", "dinov3-l", "--size", "770"], "width 770 is not a multiple of 16"),
        (["--backbone", "dinov2-b", "--size", "518x512"], "use 504 or 518"),
        (["--layer", "3", "--layers", "3,4"], "exclude each other"),
        (["--layers", "two"], "are not layers"),
        (["--tap-norm", "model"], "no tap norm 'model'"),
        (["--precision", "fp16", "--islands", "soft"], "unknown island 'soft'"),
        (["--islands", "softmax"], "--precision fp16"),
        (["--allow-unfused"], "--precision fp16, bf16 and int8"),
        (["--backbone", "wrn50", "--precision", "bf16"], "wrn50 has no BF16 recipe"),
        (["--engine", "tensorrt-rtx"], "pass --target"),
        (["--engine", "tensorrt-rtx", "--target", "sm87"], "anoco-edge build"),
        (["--target", "sm86"], "--engine tensorrt-rtx"),
        (["--single-file", "a.onnx"], "holds references"),
        (["--backbone", "wrn50", "--bundle", "line.anoco"], "leave out --backbone"),
        (["--weights", "good"], "good"),
        (["--backbone", "efficientnet-lite0", "--shots", "2"], "--shots needs --refs"),
        (["--refs", "good", "--shots", "9"], "--shots 9 of 4 pictures"),
        (["--refs", "nothing"], "no file or folder nothing"),
        (["--refs", "good", "--product", "a b"], "not a product name"),
        (["--size", "130"], "128 or 144"),
        (["--size", "16"], "too small"),
        (["--size", "big"], "'big' is not a size"),
        (["--size", "64x64x3"], "is not a size"),
        (["--out", "."], "is not a name for a bundle"),
        (["--out", "line.anoco"], "line.anoco exists already"),
        (["--out", "line"], "line.anoco exists already"),
        (["--weights", "gone.pth"], "gone.pth"),
    ],
)
def test_exports_that_cannot_begin(here: Path, args: list[str], words: str) -> None:
    backbone = [] if "--backbone" in args else ["--backbone", "efficientnet-lite0"]
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
