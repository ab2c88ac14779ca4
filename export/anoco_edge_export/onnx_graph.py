"""Traces a torch module to an ONNX file that old and new runtimes load, and runs it."""

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
from anoco_edge.images.contract import PixelType
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge_export.half_format import BF16, half_format
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_version import IR_VERSION, OPSET

Initializers = dict[str, Any]
"""The weights of a graph, each a TensorProto, by their names; onnx is imported late."""
INPUT = "pixels"
OUTPUT = "features"
DATA_SUFFIX = ".data"
EXTERNAL_ABOVE = 2_000_000_000  # bytes; protobuf cannot hold more than 2 GB
_SMALL = 1024  # bytes; smaller weights stay in the graph
_ALIGNED = 64  # bytes; aligned weights in the second file can be memory-mapped
# TensorRT refuses these operators, or builds slow engines for them.
FORBIDDEN = frozenset({"If", "Loop", "Scan", "NonZero"})


def trace(
    module: Any, width: int, height: int, ends: Sequence[str], metadata: Mapping[str, str]
) -> Any:
    """Trace `module` for pictures of this size to a ModelProto whose only output is the features.

    torch's newer exporter folds batch norms and paddings: EfficientNet-Lite0 has 69 nodes, where
    the older exporter leaves 470, which ONNX Runtime runs more slowly. `ends` names the module's
    further outputs, the ends of its layers. They are traced as outputs so that these tensors keep
    their names inside the graph, where `run_ends` finds them.
    """
    torch = lazy_import("torch")
    # The example has two pictures, because a batch of one would be taken for a constant.
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
    lazy_import("onnx").helper.set_model_props(proto, dict(sorted(metadata.items())))
    return proto


def save_graph(proto: Any, path: Path, limit: int = EXTERNAL_ABOVE) -> list[Path]:
    """Write the graph, with the weights in a second file where protobuf could not hold them."""
    # The sizes are added here, because protobuf's own ByteSize fails above 2 GB.
    if sum(len(tensor.raw_data) for tensor in proto.graph.initializer) <= limit:
        path.write_bytes(proto.SerializeToString(deterministic=True))
        return [path]
    # onnx.save_model would empty the graph it is given, and fails when the current folder holds a
    # file of that name.
    onnx = lazy_import("onnx")
    data = path.with_name(path.name + DATA_SUFFIX)
    light = empty_copy(proto)
    light.graph.node.extend(proto.graph.node)
    light.graph.value_info.extend(proto.graph.value_info)
    with data.open("wb") as stream:
        for tensor in proto.graph.initializer:
            if len(tensor.raw_data) < _SMALL:  # runtimes read shapes while they load the graph
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


def empty_copy(proto: Any) -> Any:
    """Return a copy of the graph without nodes, weights and value_info."""
    copy = lazy_import("onnx").ModelProto(ir_version=proto.ir_version)
    copy.opset_import.extend(proto.opset_import)
    copy.metadata_props.extend(proto.metadata_props)
    copy.producer_name, copy.producer_version = proto.producer_name, proto.producer_version
    copy.graph.name = proto.graph.name
    copy.graph.input.extend(proto.graph.input)
    copy.graph.output.extend(proto.graph.output)
    return copy


def check_backbone_graph(
    path: Path, width: int, height: int, tokens: tuple[int, int], pixels: PixelType = "uint8"
) -> None:
    """Raise ParityError unless the graph is valid, loads, and has the right input and output."""
    onnx = lazy_import("onnx")
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
    if pixels == "uint8":
        _check_value(proto.graph.input, INPUT, elem.UINT8, (height, width, 3))
    else:
        _check_value(proto.graph.input, INPUT, elem.FLOAT, (3, height, width))
    _check_value(proto.graph.output, OUTPUT, elem.FLOAT, tokens)
    if half_format(proto) == BF16:
        return  # ONNX Runtime has no BF16 kernels for CPUs; TensorRT-RTX and the emulation judge it
    try:
        open_session(path, "it")
    except BundleError as error:
        raise _bad(error.what) from error


def run_onnx(path: Path, pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Run the exported graph in ONNX Runtime and return its features [batch, N, d].

    It runs on one picture at a time, as with a camera, so that memory holds one picture only.
    """
    session = open_session(path, "the exported graph")
    features = [session.run([OUTPUT], {INPUT: picture[None]})[0] for picture in pixels]
    return np.asarray(np.concatenate(features), dtype=np.float32)


def run_ends(
    graph: Any, path: Path, picture: NDArray[Any], ends: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the inner tensors `ends` of the graph saved at `path`, for one picture."""
    onnx = lazy_import("onnx")
    opened = onnx.ModelProto()
    opened.CopyFrom(graph)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ends)
    files = save_graph(opened, path.with_name("ends.onnx"))
    try:
        session = open_session(files[0], "the exported graph")
        values = session.run(list(ends), {INPUT: picture[None]})
    finally:
        for file in files:
            file.unlink()
    return dict(zip(ends, values, strict=True))


def _check_value(values: Any, name: str, dtype: int, fixed: tuple[int, ...]) -> None:
    """Raise unless there is one value of this name, of a free first dimension and `fixed`."""
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
    """Keep one of several equal constants: every block has the same rotary table."""
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
    """Remove what the exporter records about this machine: stack traces with paths, doc strings."""
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
    """Silence the exporter, which prints to stdout and warns; stdout belongs to the caller."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
