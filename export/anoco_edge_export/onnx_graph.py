"""The torch module as an ONNX file that old and new runtimes load, and ONNX Runtime to run it."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import BundleError, ParityError
from anoco_edge.onnx_session import open_session
from anoco_edge_export.heavy import load

IR_VERSION = 10  # onnxruntime 1.23 (JetPack 6) loads it, and refuses what onnx writes by default
OPSET = 18
INPUT = "pixels"
OUTPUT = "features"
FORBIDDEN = frozenset({"If", "Loop", "Scan", "NonZero"})  # TensorRT refuses or stumbles over them


def export_onnx(
    module: Any, width: int, height: int, tokens: tuple[int, int], metadata: Mapping[str, str]
) -> bytes:
    """Trace `module` for this picture size; `tokens` is the (N, d) it must give.

    torch's newer exporter, because it folds batch norms and paddings: 69 nodes for
    EfficientNet-Lite0 where the older one leaves 470, which ONNX Runtime runs more slowly.
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
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
    proto = program.model_proto
    _strip(proto)
    proto.ir_version = IR_VERSION
    proto.producer_name, proto.producer_version = "anoco-edge", ""
    load("onnx").helper.set_model_props(proto, dict(sorted(metadata.items())))
    content: bytes = proto.SerializeToString(deterministic=True)
    check_onnx(content, width, height, tokens)
    return content


def check_onnx(content: bytes, width: int, height: int, tokens: tuple[int, int]) -> None:
    """Raise unless the graph is valid, says what a bundle's backbone must, and loads."""
    onnx = load("onnx")
    proto = onnx.load_from_string(content)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise _bad(f"onnx's checker refuses it: {error}") from error
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
        open_session(content, "it")
    except BundleError as error:
        raise _bad(error.what) from error


def onnx_features(content: bytes, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What the exported graph says in ONNX Runtime: [batch, N, d]."""
    session = open_session(content, "the exported graph")
    return np.asarray(session.run([OUTPUT], {INPUT: pixels})[0], dtype=np.float32)


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
