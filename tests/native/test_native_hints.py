"""Python and the native library give the same advice about a damaged bundle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bundle_edits import edit_document, write_and_record
from make_golden import CURRENT
from safetensors.numpy import load, save

from anoco_edge.bundle import Bundle
from anoco_edge.errors import BundleError
from anoco_edge.native import interface
from anoco_edge.native.handles import WarningLog, open_bundle, open_detector
from anoco_edge.native.library import load_library
from anoco_edge.pipeline.native import find_openvino


def only_product(bundle: Path) -> Path:
    (folder,) = (bundle / "products").iterdir()
    return folder


def replace_bank(bundle: Path, data: bytes) -> None:
    folder = only_product(bundle)
    (bank,) = folder.glob("bank-*.safetensors")
    record = write_and_record(bank, data)
    edit_document(folder / "product.json", lambda product: product.update(bank=record))


def cut_manifest(bundle: Path) -> None:
    (bundle / "manifest.json").write_text("{")


def edit_without_checksum(bundle: Path) -> None:
    product = only_product(bundle) / "product.json"
    product.write_text(product.read_text().replace('"change": "', '"change": "more '))


def change_type(bundle: Path) -> None:
    product = only_product(bundle) / "product.json"
    edit_document(product, lambda document: document.update(generation="1"))


def cut_bank(bundle: Path) -> None:
    replace_bank(bundle, b"half")


def take_column_away(bundle: Path) -> None:
    (bank,) = only_product(bundle).glob("bank-*.safetensors")
    tensors = load(bank.read_bytes())
    del tensors["col"]
    replace_bank(bundle, save({name: np.ascontiguousarray(t) for name, t in tensors.items()}))


def lengthen_graph(bundle: Path) -> None:
    with (bundle / "backbone.onnx").open("ab") as graph:
        graph.write(b"x")


DAMAGED = "the bundle is damaged or was edited: copy or make it again"


@pytest.mark.parametrize(
    ("damage", "hint"),
    [
        (cut_manifest, DAMAGED),
        (edit_without_checksum, DAMAGED),
        (change_type, DAMAGED),
        (cut_bank, DAMAGED),
        (take_column_away, "enroll the references again"),
        (lengthen_graph, DAMAGED),
    ],
)
def test_both_readers_say_what_to_do(
    damage: Callable[[Path], None], hint: str, use_native: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(CURRENT / "plain_anoco", tmp_path / "plain.anoco"))
    damage(bundle)
    with pytest.raises(BundleError) as by_python:
        read_by_python(bundle)
    with pytest.raises(BundleError) as by_library:
        read_by_library(bundle)
    assert by_python.value.hint == by_library.value.hint == hint


def test_both_readers_take_the_bundle_as_it_was(use_native: Path) -> None:
    read_by_python(CURRENT / "plain_anoco")
    read_by_library(CURRENT / "plain_anoco")


def read_by_python(path: Path) -> None:
    bundle = Bundle.open(path)
    bundle.graph()
    bundle.bank(bundle.product())


def read_by_library(path: Path) -> None:
    library, log = load_library(), WarningLog()
    openvino = find_openvino()
    options = interface.DetectorOptions(
        backend=b"openvino",
        library=openvino and os.fsencode(openvino),
        allow_random=1,
        log=log.function,
    )
    open_detector(library, open_bundle(library, path), options, log)
