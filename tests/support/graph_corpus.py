"""Makes graphs that a bundle may hold and graphs that it may not, for both readers and all engines.

Each takes the place of the backbone of `tiny_bundle`, which reads 64 x 64 pixels and returns 16
patches of 8 numbers. Weights may lie in backbone.onnx.data, which has DATA_SIZE bytes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from tiny_bundle import tiny_backbone

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.graph_file import check_graph
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.errors import BundleError
from anoco_edge.images.contract import InputContract
from anoco_edge.storage.hashes import sha256_bytes

DATA = "backbone.onnx.data"
DATA_SIZE = 4096
CONTRACT = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
FILTERS = 8 * 3 * 4 * 4 * 4  # bytes of the tensor that `outside` moves out of the graph
Change = Callable[[onnx.ModelProto], None]


def changed(change: Change) -> bytes:
    """Return the tiny backbone after a change."""
    model = onnx.load_from_string(tiny_backbone(64, 64, 8))
    change(model)
    content: bytes = model.SerializeToString()
    return content


def filters(model: onnx.ModelProto) -> TensorProto:
    """Return the largest weights of the tiny backbone."""
    return next(tensor for tensor in model.graph.initializer if tensor.name == "filters")


def outside(location: str | None, **more: object) -> Change:
    """Return a change that takes the filters from the file at `location`.

    `more` replaces or adds entries of the external data; None removes an entry.
    """

    def change(model: onnx.ModelProto) -> None:
        point_outside(filters(model), location, **more)

    return change


def point_outside(tensor: TensorProto, location: str | None, **more: object) -> None:
    """Replace what a tensor holds by a reference to external data."""
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": 0, "length": length, **more}
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))


def node(operator: str, domain: str = "", **attributes: object) -> Change:
    """Return a change that adds a node whose output nothing uses."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node.append(
            helper.make_node(operator, ["scale"], ["more"], domain=domain, **attributes)
        )

    return change


def a_tensor(location: str) -> TensorProto:
    """Return a tensor of four numbers that lie in another file."""
    tensor = onnx.numpy_helper.from_array(np.zeros(4, np.float32), "four")
    point_outside(tensor, location)
    return tensor


def a_sparse_tensor(location: str) -> onnx.SparseTensorProto:
    """Return a sparse tensor whose four values lie in another file."""
    indices = onnx.numpy_helper.from_array(np.arange(4), "places")
    return helper.make_sparse_tensor(a_tensor(location), indices, [9])


def inner_graph() -> onnx.GraphProto:
    """Return a graph such as an attribute of a node holds."""
    value = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1])
    return helper.make_graph([helper.make_node("Neg", ["scale"], ["inner"])], "in", [], [value])


def _function(model: onnx.ModelProto) -> None:
    opset = [helper.make_opsetid("", 18)]
    body = [helper.make_node("Neg", ["x"], ["y"])]
    model.functions.append(helper.make_function("own", "Twice", ["x"], ["y"], body, opset))


def _setting(path: str, value: object) -> Change:
    """Return a change that sets one field, named by its path, such as `graph.input.0.name`."""

    def change(model: onnx.ModelProto) -> None:
        *steps, last = path.split(".")
        place = model
        for step in steps:
            place = place[int(step)] if step.isdigit() else getattr(place, step)
        setattr(place, last, value)

    return change


def _both(*changes: Change) -> Change:
    def change(model: onnx.ModelProto) -> None:
        for one in changes:
            one(model)

    return change


def _sparse_initializer(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.append(a_sparse_tensor("/etc/passwd"))


def _twice(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def _entry_twice(model: onnx.ModelProto) -> None:
    outside(DATA)(model)
    filters(model).external_data.add(key="location", value="/etc/passwd")


def _data_in_two_places(model: onnx.ModelProto) -> None:
    outside(DATA)(model)
    filters(model).raw_data = b"1234"


def _unused_entries(model: onnx.ModelProto) -> None:
    filters(model).external_data.add(key="location", value="/etc/passwd")


def _free_patches(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "patches"


_OUTPUT = "graph.output.0.type.tensor_type"
_INPUT = "graph.input.0.type.tensor_type"
NO_FILE = "is not a weights file of the manifest"
INSIDE = "contains a graph inside a node"
BROKEN = "is not an ONNX graph, or only a part of one"

ACCEPTED: dict[str, Change] = {
    "as it is": lambda model: None,
    "listed": outside(DATA),
    "listed, further in": outside(DATA, offset=DATA_SIZE - FILTERS),
    "listed, with a checksum": outside(DATA, checksum="0" * 40),
    "listed, without an offset": outside(DATA, offset=None),
    "the standard domain by its name": node("Neg", "ai.onnx"),
    "a constant": node("Constant", value=onnx.numpy_helper.from_array(np.ones(3, np.float32))),
    "another producer": _setting("producer_name", "somebody"),
}

REFUSED: dict[str, tuple[Change, str]] = {
    "relative": (outside("weights.bin"), NO_FILE),
    "absolute": (outside("/etc/passwd"), NO_FILE),
    "upwards": (outside(f"../{DATA}"), NO_FILE),
    "down and up": (outside(f"x/../{DATA}"), NO_FILE),
    "in a folder": (outside(f"weights/{DATA}"), NO_FILE),
    "with a dot": (outside(f"./{DATA}"), NO_FILE),
    "with a NUL": (outside(f"{DATA}\0x"), NO_FILE),
    "with other letters": (outside(DATA.upper()), NO_FILE),
    "the manifest": (outside("manifest.json"), NO_FILE),
    "the graph itself": (outside("backbone.onnx"), NO_FILE),
    "nowhere": (outside(""), NO_FILE),
    "without a location": (outside(None), NO_FILE),
    "beyond the end": (outside(DATA, offset=DATA_SIZE - FILTERS + 1), "from beyond the end of"),
    "far beyond": (outside(DATA, offset=10**17), "from beyond the end of"),
    "a negative offset": (outside(DATA, offset=-1), "external data at '-1'"),
    "an offset of many digits": (outside(DATA, offset=10**20), "external data at '1000"),
    "an offset in words": (outside(DATA, offset="0x10"), "external data at '0x10'"),
    "without a length": (outside(DATA, length=None), "external data at ''"),
    "another length": (outside(DATA, length=FILTERS + 4), "its shape asks for others"),
    "a huge shape": (
        _both(outside(DATA), lambda m: filters(m).dims.extend([2**62, 2**62])),
        "its shape asks for others",
    ),
    "text outside": (
        _both(outside(DATA), lambda m: setattr(filters(m), "data_type", TensorProto.STRING)),
        "external data of type 8",
    ),
    "an unknown entry": (outside(DATA, basepath="/etc"), "external data with 'basepath'"),
    "an entry twice": (_entry_twice, "external data with 'location'"),
    "data in two places": (_data_in_two_places, "data in two places"),
    "entries without a location": (_unused_entries, "data in two places"),
    "in a constant": (node("Constant", value=a_tensor("/etc/passwd")), NO_FILE),
    "in a sparse constant": (
        node("Constant", sparse_value=a_sparse_tensor("/etc/passwd")),
        NO_FILE,
    ),
    "in a list of constants": (node("Neg", many=[a_tensor("/etc/passwd")]), NO_FILE),
    "in a sparse initializer": (_sparse_initializer, NO_FILE),
    "Loop": (node("Loop"), "contains the operator 'Loop'"),
    "If": (node("If"), "contains the operator 'If'"),
    "Scan": (node("Scan"), "contains the operator 'Scan'"),
    "Loop with its body": (node("Loop", body=inner_graph()), "contains the operator 'Loop'"),
    "a graph in another node": (node("SequenceMap", body=inner_graph()), INSIDE),
    "graphs in another node": (node("Neg", bodies=[inner_graph()]), INSIDE),
    "a function": (_function, "defines functions"),
    "training": (lambda model: model.training_info.add(), "instructions for training"),
    "Microsoft's operators": (node("Gelu", "com.microsoft"), "operators of 'com.microsoft'"),
    "machine learning's operators": (node("Scaler", "ai.onnx.ml"), "operators of 'ai.onnx.ml'"),
    "somebody's operators imported": (
        lambda model: model.opset_import.append(helper.make_opsetid("mine", 1)),
        "operators of 'mine'",
    ),
    "control characters in a domain": (node("Neg", "\x1b[31m\n"), "operators of '\\x1b[31m"),
    "another number of patches": (
        _setting(f"{_OUTPUT}.shape.dim.1.dim_value", 9),
        "gives features of shape (9, 8), the manifest says (16, 8)",
    ),
    "patches left open": (_free_patches, "gives features of shape (?, 8)"),
    "another rank": (
        lambda model: model.graph.output[0].type.tensor_type.shape.dim.pop(),
        "gives features of shape (16), the manifest says",
    ),
    "no shape": (
        lambda model: model.graph.output[0].type.tensor_type.ClearField("shape"),
        "gives features of shape (), the manifest says",
    ),
    "a fixed batch": (
        _setting(f"{_INPUT}.shape.dim.0.dim_value", 4),
        "takes pixels of shape (64, 64, 3) in batches of 4",
    ),
    "another size": (
        _setting(f"{_INPUT}.shape.dim.2.dim_value", 65),
        "takes pixels of shape (64, 65, 3), the manifest says (64, 64, 3)",
    ),
    "floating-point pixels": (_setting(f"{_INPUT}.elem_type", 1), "pixels of type 1, not 2"),
    "features in half precision": (_setting(f"{_OUTPUT}.elem_type", 10), "of type 10, not 1"),
    "another input": (_setting("graph.input.0.name", "image"), "takes 'image', not pixels"),
    "two outputs": (_twice, "gives 2 values, not features alone"),
    "no input": (lambda model: model.graph.ClearField("input"), "takes 0 values"),
    "no operator set": (
        lambda model: model.ClearField("opset_import"),
        "it names no operator set",
    ),
    "no graph": (lambda model: model.ClearField("graph"), "it holds no graph"),
    "a name of megabytes": (_setting("graph.node.0.op_type", "x" * 10**6), "more than 4096 bytes"),
}


def field(number: int, wire: int, value: bytes = b"") -> bytes:
    """Encode a protobuf field with a small number and a short value."""
    tag = bytes([number << 3 | wire]) if number < 16 else bytes([number << 3 & 0x7F | 0x80, 1])
    return tag + (bytes([len(value)]) if wire == 2 else b"") + value


def broken_bytes() -> dict[str, bytes]:
    """Return files that are not valid graphs; most of them are a good graph with some damage."""
    good = tiny_backbone(64, 64, 8)
    return {
        "nothing": b"",
        "text": b"not a graph",
        "zeros": bytes(64),
        "cut": good[: len(good) // 2],
        "one byte short": good[:-1],
        "one byte more": good + b"\0",
        "a group": good + field(9, 3),
        "an end of a group": good + field(9, 4),
        "kind 7": good + field(9, 7),
        "an absurd length": good + b"\x4a" + b"\xff" * 9 + b"\x01",
        "a number without an end": good + b"\x48" + b"\xff" * 20,
        "65 bits": good + b"\x48" + b"\xff" * 9 + b"\x02",
        "a field number of 33 bits": good + b"\x88\x80\x80\x80\x80\x01\x00",
        "the graph twice": good + field(7, 2),
        "the graph as a number": field(7, 0, b"\x01"),
        "XML": b"<?xml version='1.0'?><net/>",
        "XML after a blank line": b"\n<?xml version='1.0'?>",
        "ONNX Runtime's format": field(2, 2, b"xxORTM") + good,
        "many small fields": good + field(9, 0, b"\x01") * 1_000_000,
    }


def corpus() -> Iterator[tuple[str, bytes, str]]:
    """Yield name, content and what the error says, which is empty for an accepted graph."""
    for name, change in ACCEPTED.items():
        yield name, changed(change), ""
    for name, (change, text) in REFUSED.items():
        yield name, changed(change), text
    for name, content in broken_bytes().items():
        yield name, content, BROKEN


def mutations(rng: np.random.Generator, count: int) -> Iterator[bytes]:
    """Yield good and bad graphs in which some bytes are changed, cut out or doubled."""
    good = [changed(change) for change in ACCEPTED.values()]
    bad = [content for _, content, said in corpus() if said and 0 < len(content) < 10_000]
    for _ in range(count):
        seeds = good if rng.random() < 0.7 else bad
        content = bytearray(seeds[rng.integers(len(seeds))])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(content) + 1))
            end = min(len(content), at + int(rng.integers(1, 9)))
            kind = rng.integers(8)
            if kind == 0:
                content[at:end] = rng.bytes(end - at)
            elif kind == 1:
                del content[at:end]
            elif kind == 2:
                content[at:at] = content[at:end]
            elif kind < 6:
                content[at : at + 1] = rng.bytes(1) if at < len(content) else b""
            else:
                content[at : at + 1] = bytes([int(rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF]))])
        yield bytes(content)


def replace_files(bundle: Bundle, files: dict[str, bytes]) -> Bundle:
    """Replace or add files of a bundle, with a manifest that lists their correct hashes."""
    for name, content in files.items():
        (bundle.path / name).write_bytes(content)
    kept = tuple(record for record in bundle.manifest.files if record.path not in files)
    new = tuple(
        FileRecord(path=name, sha256=sha256_bytes(content), size=len(content))
        for name, content in files.items()
    )
    manifest = bundle.manifest.model_copy(update={"files": (*kept, *new)})
    (bundle.path / "manifest.json").write_bytes(sealed_document(manifest))
    return Bundle.open(bundle.path)


def python_verdict(content: bytes | Path, name: str) -> str:
    """Return `accepted`, or why the Python reader refuses a graph.

    Only BundleError counts as a refusal; the caller sees any other exception.
    """
    try:
        check_graph(content, name, CONTRACT, {DATA: DATA_SIZE})
    except BundleError as error:
        return str(error)
    return "accepted"


def native_verdicts(program: Path, folder: Path) -> dict[str, str]:
    """Return what the native reader says of every graph in a folder, as `python_verdict` does."""
    done = subprocess.run([program, "graphs", folder], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    verdicts: dict[str, str] = json.loads(done.stdout)
    return verdicts
