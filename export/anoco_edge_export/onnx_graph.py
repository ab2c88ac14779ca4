"""The torch module as an ONNX file that old and new runtimes load, and ONNX Runtime to run it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import BundleError, ParityError
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge_export.heavy import load

IR_VERSION = 10  # onnxruntime 1.23 (JetPack 6) loads it, and refuses what onnx writes by default
OPSET = 18
INPUT = "pixels"
OUTPUT = "features"
DATA_SUFFIX = ".data"
EXTERNAL_ABOVE = 2_000_000_000  # bytes; protobuf ends at 2 GB
_SMALL = 1024  # bytes of a weight that stays in the graph
_ALIGNED = 64  # a weight in the second file begins at a multiple of this, so that it can be mapped
FORBIDDEN = frozenset({"If", "Loop", "Scan", "NonZero"})  # TensorRT refuses or stumbles over them


def trace(
    module: Any, width: int, height: int, ends: Sequence[str], metadata: Mapping[str, str]
) -> Any:
    """`module` for pictures of this size as a ModelProto whose only output is the features.

    torch's newer exporter, because it folds batch norms and paddings: 69 nodes for
    EfficientNet-Lite0 where the older one leaves 470, which ONNX Runtime runs more slowly.
    `ends` are the names of the module's further outputs, the ends of its layers. They are traced
    as outputs so that these tensors keep their names inside the graph: see `run_ends`.
    """
    torch = load("torch")
    # Two pictures: a batch of one would be taken for a constant.
    example = torch.zeros((2, height, width, 3), dtype=torch.uint8)
    with _quiet():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT, *ends],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
    proto = program.model_proto
    del proto.graph.output[1:]
    _strip(proto)
    _share(proto)
    proto.ir_version = IR_VERSION
    proto.producer_name, proto.producer_version = "anoco-edge", ""
    load("onnx").helper.set_model_props(proto, dict(sorted(metadata.items())))
    return proto


def save(proto: Any, path: Path, limit: int = EXTERNAL_ABOVE) -> list[Path]:
    """Write the graph; weights go into a second file where protobuf could not hold them."""
    # Summed by hand: protobuf's own ByteSize fails above 2 GB.
    if sum(len(tensor.raw_data) for tensor in proto.graph.initializer) <= limit:
        path.write_bytes(proto.SerializeToString(deterministic=True))
        return [path]
    # By hand as well: onnx.save_model empties the graph it is given, and refuses when a file of
    # that name lies in the current folder.
    onnx = load("onnx")
    data = path.with_name(path.name + DATA_SUFFIX)
    light = frame(proto)
    light.graph.node.extend(proto.graph.node)
    light.graph.value_info.extend(proto.graph.value_info)
    with data.open("wb") as stream:
        for tensor in proto.graph.initializer:
            if len(tensor.raw_data) < _SMALL:  # shapes and the like are read while loading
                light.graph.initializer.append(tensor)
                continue
            stream.write(bytes(-stream.tell() % _ALIGNED))
            there = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type)
            there.dims.extend(tensor.dims)
            there.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": data.name, "offset": stream.tell(), "length": len(tensor.raw_data)}
            for key, value in place.items():
                there.external_data.add(key=key, value=str(value))
            stream.write(tensor.raw_data)
            light.graph.initializer.append(there)
    path.write_bytes(light.SerializeToString(deterministic=True))
    return [path, data]


def frame(proto: Any) -> Any:
    """The graph without nodes, weights and value_info, to be filled anew."""
    copy = load("onnx").ModelProto(ir_version=proto.ir_version)
    copy.opset_import.extend(proto.opset_import)
    copy.metadata_props.extend(proto.metadata_props)
    copy.producer_name, copy.producer_version = proto.producer_name, proto.producer_version
    copy.graph.name = proto.graph.name
    copy.graph.input.extend(proto.graph.input)
    copy.graph.output.extend(proto.graph.output)
    return copy


def check(path: Path, width: int, height: int, tokens: tuple[int, int]) -> None:
    """Raise unless the graph is valid, says what a bundle's backbone must, and loads."""
    onnx = load("onnx")
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise _bad(f"onnx's checker refuses it: {error}") from error
    proto = onnx.load(path, load_external_data=False)
    found = {n.op_type for n in proto.graph.node} & FORBIDDEN
    if found:
        raise _bad(f"it contains {', '.join(sorted(found))}")
    opsets = {o.domain: o.version for o in proto.opset_import}
    if proto.ir_version != IR_VERSION or opsets.get("") != OPSET or len(opsets) != 1:
        raise _bad(f"it has IR {proto.ir_version} and operators {opsets}")
    elem = onnx.TensorProto
    _check_value(proto.graph.input, INPUT, elem.UINT8, (height, width, 3))
    _check_value(proto.graph.output, OUTPUT, elem.FLOAT, tokens)
    try:
        open_session(path, "it")
    except BundleError as error:
        raise _bad(error.what) from error


def is_half(graph: Any) -> bool:
    """Does the graph compute in FP16?"""
    half = load("onnx").TensorProto.FLOAT16
    return any(tensor.data_type == half for tensor in graph.graph.initializer)


def run_onnx(path: Path, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What the exported graph says in ONNX Runtime: [batch, N, d].

    One picture at a time, as a camera would: memory stays that of one picture.
    """
    session = open_session(path, "the exported graph")
    features = [session.run([OUTPUT], {INPUT: picture[None]})[0] for picture in pixels]
    return np.asarray(np.concatenate(features), dtype=np.float32)


def run_ends(
    graph: Any, path: Path, picture: NDArray[np.uint8], ends: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """The inner tensors `ends` of the graph saved at `path`, for one picture."""
    onnx = load("onnx")
    opened = onnx.ModelProto()
    opened.CopyFrom(graph)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ends)
    files = save(opened, path.with_name("ends.onnx"))
    try:
        session = open_session(files[0], "the exported graph")
        values = session.run(list(ends), {INPUT: picture[None]})
    finally:
        for file in files:
            file.unlink()
    return dict(zip(ends, values, strict=True))


def _check_value(values: Any, name: str, dtype: int, fixed: tuple[int, ...]) -> None:
    """One value of this name; its first dimension is free and the others are `fixed`."""
    if [v.name for v in values] != [name]:
        raise _bad(f"it has {[v.name for v in values]} where {name!r} belongs")
    kind = values[0].type.tensor_type
    dims = kind.shape.dim
    shape = tuple(d.dim_value for d in dims[1:])
    if kind.elem_type != dtype or shape != fixed or dims[0].HasField("dim_value"):
        raise _bad(f"{name} has type {kind.elem_type} and shape {shape}, not batch x {fixed}")


def _bad(what: str) -> ParityError:
    return ParityError(
        f"the exported graph is not usable: {what}",
        hint="nothing was written; try the torch and onnx versions of the constraints file",
    )


def _share(proto: Any) -> None:
    """Keep one of several equal constants: every block brings the same rotary table."""
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    renamed: dict[str, str] = {}
    kept = []
    for tensor in proto.graph.initializer:
        key = (tensor.data_type, tuple(tensor.dims), hashlib.sha256(tensor.raw_data).digest())
        if tensor.raw_data and key in first:
            renamed[tensor.name] = first[key]
        else:
            first[key] = tensor.name
            kept.append(tensor)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    for node in proto.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)


def _strip(proto: Any) -> None:
    """Drop what the exporter notes about this machine: stack traces with paths, doc strings."""
    graph = proto.graph
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for thing in (graph, *graph.node, *values):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    proto.ClearField("metadata_props")
    proto.ClearField("doc_string")
    graph.name = "backbone"


@contextlib.contextmanager
def _quiet() -> Any:
    """The exporter chats on stdout and through warnings; stdout belongs to --json."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
