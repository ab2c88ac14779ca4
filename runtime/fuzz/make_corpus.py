"""Makes runtime/fuzz/corpus: the files of a tiny bundle, and broken variants of them.

    PYTHONPATH=.:tests/support python runtime/fuzz/make_corpus.py

Files are named by the hash of their content, so running it again in the same environment changes
nothing. Another version of NumPy, Pillow or the tiny bundle gives other bytes, so that files are
added beside the old ones: delete those that they replace before you commit them. Inputs that once
broke the library are added by hand and stay. The first byte of an input says what the rest is, see
fuzz_bundle.cpp.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from graph_corpus import a_sparse_tensor, inner_graph, node, outside
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, tiny_backbone

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.checksum import seal
from anoco_edge.teaching import NewPicture, Settings, Teacher

CORPUS = Path(__file__).parent / "corpus"
READERS = (
    *("manifest", "product", "bank", "baseline", "selftest", "mask", "json", "safetensors"),
    "graph",
)


def documents(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    """Yield both documents, whole and with something wrong at each of their fields."""
    product = bundle.product_folder("part") / "product.json"
    full = {
        "tiles": {"width": 48, "height": 32, "columns": [0, 16], "rows": [0], "fit": "letterbox"},
        "region": {"points": [[0, 0], [1, 0], [0.5, 1]]},
        "views": [[1, 0.5, 0, -0.5, 1, 2]],
        "coreset": {"max_patches": 3, "seed": 1},
        "threshold": {"kind": "manual", "value": 0.5, "evidence": {"lost": "why"}},
        "calibration": {"false_reject": 0.01, "source": "references", "sigmas": 3},
    }
    for reader, file in (("manifest", bundle.path / "manifest.json"), ("product", product)):
        document = json.loads(file.read_bytes())
        document |= {key: "2026-01-01" for key in ("created", "changed") if key in document}
        raw = seal(document)
        yield reader, raw
        yield reader, raw[: len(raw) // 2]
        if reader == "product":
            document |= full
            yield reader, seal(document)
        for key in document:
            yield reader, seal({**document, key: None})
        yield reader, seal({**document, "schema_version": 2, "new": 1})


def tensors(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    folder = bundle.product_folder("part")
    grid = np.ones((2, 2), np.float32)
    for reader, raw in (
        ("bank", next(folder.glob("bank-*.safetensors")).read_bytes()),
        ("baseline", BaselineGrid(grid, grid, 3.0).to_bytes()),
        ("selftest", (bundle.path / "selftest.safetensors").read_bytes()),
    ):
        yield reader, raw
        yield reader, raw[:-1]
        yield reader, raw + b"\0"
        yield reader, raw.replace(b'"shape":[', b'"shape":[9', 1)
        yield reader, raw.replace(b"F32", b"F64", 1)
        yield reader, b"\xff" * 8 + raw[8:]
        yield "safetensors", raw


def masks() -> Iterator[tuple[str, bytes]]:
    """Yield every kind of PNG file that Pillow writes."""
    picture = Image.fromarray(textured_picture(3, 20, 18))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        for options in ({}, {"compress_level": 0}, {"optimize": True}):
            buffer = io.BytesIO()
            converted = picture.convert("L").convert("I;16") if mode == "I;16" else picture
            converted.convert(mode).save(buffer, "PNG", **options)
            yield "mask", buffer.getvalue()
    for bits in (1, 2, 4):
        buffer = io.BytesIO()
        picture.quantize(2**bits).save(buffer, "PNG", bits=bits)
        yield "mask", buffer.getvalue()
        yield "mask", buffer.getvalue()[:-20]


def texts() -> Iterator[tuple[str, bytes]]:
    for text in (
        '{"a": [1, -2.5e-3, true, false, null, "\\u00e9\\ud83d\\ude00\\n"], "b": {}}',
        '{"a": 1, "a": 2}',
        "[" * 70 + "]" * 70,
        '"\\ud800"',
        "1e999",
        "9223372036854775808",
        "NaN",
    ):
        yield "json", text.encode()


def graphs() -> Iterator[tuple[str, bytes]]:
    """Yield a backbone: whole, cut, with its weights outside, and with what is refused."""
    good = tiny_backbone(32, 32, 4)
    yield "graph", good
    yield "graph", good[: len(good) // 2]
    for change in (
        outside("backbone.onnx.data"),
        outside("/etc/passwd"),
        node("Loop", body=inner_graph()),
        node("Constant", sparse_value=a_sparse_tensor("backbone.onnx.data")),
        node("Gelu", "com.microsoft"),
    ):
        model = onnx.load_from_string(good)
        change(model)
        yield "graph", model.SerializeToString()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_tiny_bundle(Path(folder, "tiny.anoco"), size=(32, 32), dim=4)
        pictures = [NewPicture.from_array(f"{k}.png", textured_picture(k, 32, 32)) for k in (1, 2)]
        Teacher.open(bundle.path).enroll(pictures, "part", Settings({}))
        inputs = [*documents(bundle), *tensors(bundle), *masks(), *texts(), *graphs()]
    CORPUS.mkdir(exist_ok=True)
    for reader, data in inputs:
        name = f"{reader}-{hashlib.sha256(data).hexdigest()[:12]}"
        (CORPUS / name).write_bytes(bytes([READERS.index(reader)]) + data)


if __name__ == "__main__":
    main()
