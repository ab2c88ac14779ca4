"""There is one strict definition of a bundle's JSON and tensors, and of what the CLI shows of them.

tests/attack/bundles.py holds the native reader to the same verdicts.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import time
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_edits import edit_document, write_and_record
from command_line import fails, ok
from make_golden import CURRENT
from paths import RUNTIME
from safetensors.numpy import save

from anoco_edge.bundle import Bundle, InputContract, Product
from anoco_edge.bundle import documents as documents_module
from anoco_edge.bundle.checksum import seal
from anoco_edge.bundle.documents import MOST_BYTES, parse_json, read_document, sealed_document
from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.errors import BundleError, StorageError, UsageError
from anoco_edge.images.contract import MOST_PIXELS, Tiles
from anoco_edge.images.decode import MAX_PIXELS
from anoco_edge.pipeline.tiling import plan_tiles
from tests.attack.odd_json import reseal, with_fragment, with_key

PART = {"name": "part", "generation": 1, "changed": "today", "change": "made"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Copy a golden bundle that has one product."""
    return Path(shutil.copytree(CURRENT / "plain_anoco", tmp_path / "plain.anoco"))


# ---- JSON


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b" \t\r\n{} \n", {}),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"-0", 0),
        (b"0e999", 0.0),
        (b"5e-324", 5e-324),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\x7f\\u0000"', "\x7f\0"),
        (b"[" * 64 + b"1" + b"]" * 64, None),
    ],
)
def test_what_is_json_is_read(raw: bytes, value: Any) -> None:
    found = parse_json(raw, "a.json")
    assert value is None or (found == value and type(found) is type(value))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"a": 1, "a": 1}', "the key 'a' comes twice"),
        (b'{"b": {"a": 1, "\\u0061": 2}}', "the key 'a' comes twice"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("{}".encode("utf-16"), "not UTF-8"),
        ("{}".encode("utf-16-le"), "is not JSON"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"NaN", "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b"1e999", "a double does not hold"),
        (b"-1e-999", "a double does not hold"),
        (b"9223372036854775808", "64 bits do not hold"),
        (b"-9223372036854775809", "64 bits do not hold"),
        (b"1" * 100_000, "64 bits do not hold"),
        (b'"\\ud800"', "half a surrogate pair"),
        (b'{"\\udc00": 1}', "half a surrogate pair"),
        (b"[" * 65 + b"]" * 65, "nested too deeply"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nested too deeply"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b"{} {}", "Extra data"),
        (b"{}\0", "Extra data"),
        (b'"\n"', "Invalid control character"),
        (b"", "Expecting value"),
        (b"01", "Extra data"),
    ],
)
def test_what_is_no_json_or_left_open_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(BundleError, match=r"a\.json is not JSON") as caught:
        parse_json(raw, "a.json")
    assert says in caught.value.what and len(caught.value.what) < 200


@pytest.mark.parametrize(
    ("field", "fragment"),
    [
        ("generation", b"true"),
        ("generation", b'"1"'),
        ("generation", b"1.0"),
        ("schema_version", b"true"),
        ("schema_version", b"1.0"),
        ("lambda", b"true"),
        ("lambda", b'"1"'),
        ("any_size", b"1"),
        ("any_size", b'"yes"'),
        ("change", b"1"),
        ("views", b"{}"),
        ("parent", b"0"),
        ("dropped_patches", b"-1"),
        ("name", b'"a\\u00a0b"'),
    ],
)
def test_a_value_of_another_kind_is_refused(field: str, fragment: bytes) -> None:
    raw = sealed_document(Product.model_validate(PART))
    assert read_document(raw, Product, "product.json").name == "part"
    with pytest.raises(BundleError, match=f"product.json is invalid at {field}"):
        read_document(with_fragment(raw, (field,), fragment), Product, "product.json")


def test_an_integer_may_stand_for_a_number_and_lists_are_read() -> None:
    raw = sealed_document(Product.model_validate(PART))
    raw = with_fragment(with_fragment(raw, ("lambda",), b"2"), ("views",), b"[[1,0,0,0,1,0]]")
    product = read_document(raw, Product, "product.json")
    assert product.lam == 2.0 and product.views == ((1, 0, 0, 0, 1, 0),)


def test_a_field_has_one_name_only() -> None:
    raw = with_key(sealed_document(Product.model_validate(PART)), ("lambda",), "lam")
    with pytest.raises(BundleError, match="invalid at lam"):
        read_document(raw, Product, "product.json")


def test_a_document_has_a_size_that_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = sealed_document(Product.model_validate(PART))
    padded = reseal(raw + b" " * (MOST_BYTES - len(raw)))
    assert read_document(padded, Product, "product.json").name == "part"
    with pytest.raises(BundleError, match=f"more than {MOST_BYTES} bytes"):
        read_document(reseal(padded + b" "), Product, "product.json")
    monkeypatch.setattr(documents_module, "MOST_BYTES", len(raw) - 1)
    with pytest.raises(StorageError, match="is too large"):
        sealed_document(Product.model_validate(PART))


def test_the_native_reader_knows_the_same_letters() -> None:
    """The table in runtime/src/bundle/unicode.cpp equals what Python computes for Unicode 14."""
    if unicodedata.unidata_version != "14.0.0":
        pytest.skip(f"this Python knows Unicode {unicodedata.unidata_version}, the table 14.0.0")
    text = (RUNTIME / "src/bundle/unicode.cpp").read_text()
    pairs = re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+)\}", text)
    table = {point for first, last in pairs for point in range(int(first, 16), int(last, 16) + 1)}
    assert table == {point for point in range(0x80, 0x110000) if chr(point).isalnum()}


# ---- tiles


def tiles_of(columns: int, rows: int, side: int = 64) -> Tiles:
    return Tiles(
        width=columns * side,
        height=rows * side,
        columns=tuple(range(0, columns * side, side)),
        rows=tuple(range(0, rows * side, side)),
    )


def contract(side: int = 64, stride: int = 16) -> InputContract:
    patches = side // stride
    return InputContract(width=side, height=side, stride=stride, rows=patches, cols=patches, dim=8)


@pytest.mark.parametrize(
    ("window", "tiles", "says"),
    [
        (contract(), tiles_of(1000, 1000), "1000 x 1000 tiles are more than 1024"),
        (
            contract(1024),
            tiles_of(10, 10, 1024),
            "10240x10240 pixels together: at most 100 million",
        ),
        (contract(64, 1), tiles_of(513, 1), "make more than 32768 patches one way"),
    ],
)
def test_tiles_that_no_memory_holds_are_refused_before_any_is_taken(
    bundle: Path, window: InputContract, tiles: Tiles, says: str
) -> None:
    tracemalloc.start()
    try:
        started = time.monotonic()
        with pytest.raises(BundleError, match=says) as caught:
            window.tiled(tiles)
        assert time.monotonic() - started < 1 and tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
    assert caught.value.hint == "set the `tiles` of the product again: anoco-edge product set"


def test_an_input_and_a_plan_of_tiles_have_the_limit_of_a_picture() -> None:
    assert MOST_PIXELS == MAX_PIXELS
    with pytest.raises(ValueError, match="more than 100 million pixels"):
        contract(10_016)
    assert contract(9_984).width == 9_984
    with pytest.raises(UsageError, match=r"30 x 30 tiles make \d+ million pixels, at most 100"):
        plan_tiles(contract(512), (20_000, 20_000), grid=(30, 30), overlap=0)


# ---- tensors


def header_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    return found


def with_header(data: bytes, text: bytes) -> bytes:
    """Return the same tensor data behind another header."""
    numbers = data[8 + struct.unpack("<Q", data[:8])[0] :]
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + numbers


TENSORS = save({"a": np.arange(4, dtype=np.float32), "b": np.arange(2, dtype=np.float32)})
HEADER = json.dumps(header_of(TENSORS)).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (TENSORS[:7], "ends before its header"),
        (b"\xff" * 8 + TENSORS[8:], "header is too large"),
        (with_header(TENSORS, HEADER + b" " * 2**20), "header is too large"),
        (with_header(TENSORS, b"\xef\xbb\xbf" + HEADER), "BOM"),
        (with_header(TENSORS, b"[" * 100_000), "nested too deeply"),
        (with_header(TENSORS, HEADER[:-1] + b"," + HEADER[1:]), "comes twice"),
        (with_header(TENSORS, b"[]"), "header is not an object"),
        (with_header(TENSORS, HEADER[:-1] + b', "__metadata__": {"a": 1}}'), "more than texts"),
        (with_header(TENSORS, HEADER.replace(b'"F32"', b'"BF16"', 1)), "not read here: 'BF16'"),
        (with_header(TENSORS, HEADER.replace(b'"F32"', b'"F64"', 1)), "not read here: 'F64'"),
        (with_header(TENSORS, HEADER.replace(b"[4]", b"[5]")), "another size than its shape"),
        (with_header(TENSORS, HEADER.replace(b"[4]", b"[4.0]")), "holds no sizes"),
        (with_header(TENSORS, HEADER.replace(b"[4]", b"[true]")), "holds no sizes"),
        (with_header(TENSORS, HEADER.replace(b"[16, 24]", b"[0, 8]")), "overlap or leave gaps"),
        (TENSORS + b"\0", "something follows its tensors"),
        (TENSORS[:-4], "lies outside the file"),
    ],
)
def test_tensors_that_are_not_as_they_should_be_are_refused(data: bytes, says: str) -> None:
    assert read_tensors(TENSORS, "x")["a"].tolist() == [0, 1, 2, 3]
    with pytest.raises(BundleError, match=r"t\.safetensors is odd") as caught:
        read_tensors(data, "t.safetensors is odd")
    assert says in caught.value.what


@pytest.mark.parametrize("dtype", ["BF16", "F64", "F8_E4M3", "BOOL"])
def test_a_bank_of_another_type_is_refused_in_one_line(bundle: Path, dtype: str) -> None:
    folder = bundle / "products/part"
    bank = next(folder.glob("bank-*"))
    data = bank.read_bytes()
    header = header_of(data)
    header["features"]["dtype"] = dtype
    new = write_and_record(bank, with_header(data, json.dumps(header).encode()))
    edit_document(folder / "product.json", lambda d: d.update(bank=new))
    line = fails(4, "references", "list", bundle)
    assert f"{bank.name} is not a reference bank" in line and dtype in line


# ---- what the command line shows


def say(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = bundle / "manifest.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(seal(document))


def test_markup_in_a_manifest_is_shown_as_it_stands(bundle: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["created"] = document["tools"]["anoco-edge"] = "[/red]"
        document["backbone"].update(id="[/red]", architecture="[b]", tap="[/red]")
        document["backbone"]["weights"].update(source="[/red]", license="[/red]")
        document["parity"] = {"against": "[/red]", "checks": [{"runtime": "[/red]"}]}

    say(bundle, change)
    edit_document(
        bundle / "products/part/history/product-1.json", lambda d: d.update(change="[/red]")
    )
    assert ok("info", bundle).out.count("[/red]") >= 6
    assert "[/red]" in ok("references", "list", bundle).out


ODD: tuple[Any, ...] = (None, True, 3, -1.5, "x", "[/red]", [], {}, [1], [[]], {"a": {}}, [None])
PARITY = {
    "against": "torch",
    "precision": "int8",
    "patches": 3,
    "device": "here",
    "checks": [{"runtime": "x", "measured": {"min_cosine": 1.0}, "largest": {"tensor": "t"}}],
    "limits": {"min_cosine": 0.9},
    "int8": {
        "pictures": [{}],
        "enough_pictures": 32,
        "layers": {"conv": 0.1},
        "left_out": ["head"],
        "halves": {"top_energy_error": 0.1, "energy_spearman": 0.9},
        "rest": "fp16",
        "method": "max",
        "most_left_out": 3,
        "arithmetic": "exact",
    },
    "fusion": {
        "checked": "here",
        "blocks": 2,
        "casts": 3,
        "counts": {"fused": 2, "kernels": 20, "copies": 1, "activation_bytes": 512},
        "unfused": True,
    },
}


def test_whatever_stands_under_parity_is_survived(bundle: Path) -> None:
    from rich.console import Console

    from anoco_edge.cli.views.parity import (
        few_pictures,
        parity_remarks,
        parity_table,
        unfused_warning,
    )
    from tests.attack.odd_json import places

    console = Console(quiet=True)
    for place in [(), *places(PARITY)]:
        for odd in ODD:
            report = json.loads(json.dumps(PARITY))
            owner = report
            for part in place[:-1]:
                owner = owner[part]
            if place:
                owner[place[-1]] = odd
            console.print(parity_table(report))
            assert all(isinstance(line, str) for line in parity_remarks(report))
            assert isinstance(few_pictures(report), str)
            assert isinstance(unfused_warning(report), str)
    for odd in ({}, {"checks": 3}, {"checks": [3]}, {"checks": {"a": 1}}, {"checks": "x"}):
        say(bundle, lambda d, odd=odd: d.update(parity=odd))
        assert "backbone" in ok("info", bundle).out


def test_deep_json_is_one_clear_line(bundle: Path) -> None:
    path = bundle / "manifest.json"
    right = path.read_bytes()
    for levels in (65, 100_000):
        path.write_bytes(with_fragment(right, ("parity",), b"[" * levels + b"]" * levels))
        assert "manifest.json is not JSON: it is nested too deeply" in fails(4, "info", bundle)
    path.write_bytes(right)
    assert Bundle.open(bundle).manifest.backbone.id == "tiny"
