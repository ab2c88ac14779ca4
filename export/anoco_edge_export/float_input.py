"""Gives a backbone an input of float32 NCHW, as DeepStream's stock elements fill it.

The first nodes of an exported graph cast bytes to float32 and bring them to NCHW. Numbers from 0 to
255 are exact in both forms, so a graph without these nodes computes the same bits.
"""

from __future__ import annotations

from typing import Any

from anoco_edge.errors import ParityError
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import INPUT

_TO_NCHW = [0, 3, 1, 2]


def take_float_pixels(graph: Any) -> Any:
    """Return a copy of an exported graph that takes float32 [batch, 3, height, width]."""
    onnx = lazy_import("onnx")
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    nodes = copy.graph.node
    cast = _only_reader(nodes, INPUT, "Cast")
    transpose = _only_reader(nodes, cast.output[0], "Transpose")
    (perm,) = (list(a.ints) for a in transpose.attribute if a.name == "perm")
    if perm != _TO_NCHW:
        raise _unexpected(f"its pixels are transposed by {perm}")
    (kind,) = (a.i for a in cast.attribute if a.name == "to")
    made = transpose.output[0]
    nodes.remove(transpose)
    if kind == onnx.TensorProto.FLOAT:
        nodes.remove(cast)
        _rename(nodes, made, INPUT)
    else:  # the first layer is not FP32: the Cast stays, from float32 now
        _rename(nodes, made, cast.output[0])
    _make_float(copy.graph.input[0], onnx)
    stale = {cast.output[0], made}
    kept = [value for value in copy.graph.value_info if value.name not in stale]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(kept)
    return copy


def _make_float(value: Any, onnx: Any) -> None:
    kind = value.type.tensor_type
    batch, height, width, channels = (onnx.TensorShapeProto.Dimension() for _ in range(4))
    for new, old in zip((batch, height, width, channels), kind.shape.dim, strict=True):
        new.CopyFrom(old)
    kind.elem_type = onnx.TensorProto.FLOAT
    del kind.shape.dim[:]
    kind.shape.dim.extend((batch, channels, height, width))


def _only_reader(nodes: Any, tensor: str, kind: str) -> Any:
    readers = [node for node in nodes if tensor in node.input]
    if [node.op_type for node in readers] != [kind]:
        found = ", ".join(node.op_type for node in readers) or "nothing"
        raise _unexpected(f"{tensor} is read by {found} in place of one {kind}")
    return readers[0]


def _rename(nodes: Any, old: str, new: str) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def _unexpected(what: str) -> ParityError:
    return ParityError(
        f"the exported graph does not begin as expected: {what}",
        hint="nothing was written; try the torch and onnx versions of the constraints file",
    )
