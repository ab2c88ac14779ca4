"""Converts an FP32 graph to a strongly typed FP16 or BF16 graph, with islands that stay FP32.

The graph itself states the precision, because today's TensorRT takes it from nowhere else. A Cast
stands exactly where the type changes, so neighbors inside an island pass FP32 to each other. Only
the result of the rotary embedding is FP16 for all its users, so that attention fuses in TensorRT.
"FP16" below stands for either 16-bit format; half_format.py has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.parity_report import Fp16Report
from anoco_edge.errors import AnocoError
from anoco_edge_export.fp32_islands import (
    FLOAT,
    MOVES,
    Graph,
    check_islands,
    find_island,
    int8_products,
    tensor_types,
)
from anoco_edge_export.half_format import FP16, HalfFormat
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import Initializers, empty_copy


@dataclass
class _WeightStatistics:
    """What rounding the weights to FP16 did to them."""

    format: HalfFormat
    largest: float = 0.0
    largest_name: str = ""
    rounded: int = 0
    flushed: int = 0
    subnormal: int = 0

    def add(self, name: str, exact: NDArray[np.float32], half: NDArray[Any]) -> None:
        """Add a weight, or refuse one that FP16 cannot hold; infinity is infinity in both types."""
        size = np.abs(exact)
        peak = float(size.max(initial=0.0, where=np.isfinite(size)))
        if peak > self.format.largest:
            raise AnocoError(
                f"weight {name} holds {peak:g}, and {self.format.title} ends at "
                f"{self.format.largest:g}",
                hint="export with `precision='fp32'`, or keep the operator that uses it in FP32",
            )
        if peak > self.largest:
            self.largest, self.largest_name = peak, name
        self.rounded += int(np.count_nonzero(exact))
        self.flushed += int(np.count_nonzero(exact) - np.count_nonzero(half))
        self.subnormal += int(np.count_nonzero((half != 0) & (np.abs(half) < self.format.tiny)))


def convert_to_half(
    model: Any, islands: Sequence[str], half: HalfFormat = FP16, *, quantized: bool = False
) -> tuple[Any, Fp16Report]:
    """Return `model` in `half` but for `islands`, and a report; `model` itself is not changed.

    ISLANDS has the names of islands. With `quantized`, the products of INT8 numbers stay FP32 too.
    Inputs and outputs of the graph keep their types, tensors keep their names.
    """
    check_islands(islands)
    graph = Graph(model)
    found = {name: find_island(graph, name) for name in islands}
    single = set().union(*found.values(), int8_products(graph) if quantized else ())
    narrowed = {i for i in found.get("rope", ()) if graph.op[i] in ("Add", "Sub")}
    precision = _assign(graph, single, narrowed, half)
    writer = _Writer(
        graph, half, {t for i in narrowed for t in graph.nodes[i].output} - graph.outputs
    )
    for node, kind in zip(graph.nodes, precision, strict=True):
        writer.node(node, kind or FLOAT)
    typed = empty_copy(model)
    typed.graph.node.extend(writer.nodes)
    typed.graph.initializer.extend(writer.weights.values())
    tensor_types(typed)  # raises unless the graph is valid
    statistics = writer.statistics
    return typed, Fp16Report(
        nodes={half.name: precision.count(half.kind), "fp32": precision.count(FLOAT)},
        islands={name: len(nodes) for name, nodes in found.items()},
        casts=len(writer.nodes) - len(graph.nodes),
        initializer_bytes=sum(t.ByteSize() for t in typed.graph.initializer),
        largest_weight=statistics.largest,
        largest_weight_name=statistics.largest_name,
        rounded=statistics.rounded,
        flushed=statistics.flushed,
        subnormal=statistics.subnormal,
    )


def _assign(g: Graph, islands: set[int], narrowed: set[int], half: HalfFormat) -> list[int | None]:
    """Choose FLOAT or 16 bits for every node that touches floats, and None for the others.

    The nodes of `narrowed` compute in FP32, and their results are cast to FP16.
    """
    touching = {i for i, n in enumerate(g.nodes) if g.floats((*n.input, *n.output))}
    single = {i for i in touching if i in islands or not _takes_half(g, i, half)}
    free = {i for i in touching - single if g.op[i] in MOVES or not g.floats(g.nodes[i].output)}
    # Numbers that depend on shapes and constants alone cost nothing in FP32.
    single |= {i for i in touching - free if not set(g.nodes[i].output) & g.live}
    # Nodes that move data between FP32 neighbors are FP32 too. This finds the largest such set.
    while dropped := {i for i in free if not _stays_single(g, i, single | free, narrowed)}:
        free -= dropped
    kinds = {i: FLOAT if i in single | free else half.kind for i in touching}
    return [kinds.get(i) for i in range(len(g.nodes))]


def _stays_single(g: Graph, i: int, single: set[int], narrowed: set[int]) -> bool:
    node = g.nodes[i]
    makers = [g.maker[t] for t in g.floats(node.input) if t in g.maker]
    users = [j for t in g.floats(node.output) for j in g.users.get(t, [])]
    wants = [j in single for j in users if g.floats(g.nodes[j].output)]
    wants += [True for t in node.output if t in g.outputs]
    if not set(node.output) & g.live and g.floats(node.output):
        return any(wants)  # a constant can be rounded later just as well
    return all(wants) and all(j in single - narrowed for j in makers)


def _takes_half(g: Graph, i: int, half: HalfFormat) -> bool:
    """Say whether the operator takes the 16-bit format at all."""
    node = g.nodes[i]
    slots = [_admits_half(g, node, k, half) for k, t in enumerate(node.input) if g.floats([t])]
    return any(slots) or not slots


def _admits_half(g: Graph, node: Any, slot: int, half: HalfFormat, side: str = "inputs") -> bool:
    """Say whether the operator's definition admits the 16-bit format in this slot.

    The scales of a Resize, for example, are always FP32.
    """
    schema = lazy_import("onnx").defs.get_schema(node.op_type, g.opset, node.domain)
    formal = getattr(schema, side)
    return half.tensor in formal[min(slot, len(formal) - 1)].types


class _Writer:
    """Writes the typed graph node by node, with a Cast where a tensor is needed in both types."""

    def __init__(self, g: Graph, half: HalfFormat, narrowed: set[str]) -> None:
        self.g, self.half, self.narrowed, self.onnx = g, half, narrowed, lazy_import("onnx")
        self.nodes: list[Any] = []
        self.weights: Initializers = {}
        self.statistics = _WeightStatistics(half)
        self.have = {t: {g.types[t]: t} for t in g.inputs}  # for each tensor its names by type

    def node(self, original: Any, precision: int) -> None:
        node = self.onnx.NodeProto.FromString(original.SerializeToString())
        for slot, name in enumerate(original.input):
            if name:
                node.input[slot] = self._wanted(name, self._type(node, name, slot, precision))
        for slot, name in enumerate(original.output):
            kind = self._type(node, name, slot, precision, "outputs") if name else FLOAT
            if kind == self.half.kind and name in self.g.outputs:  # an output keeps its type
                node.output[slot] = f"{name}/{self.half.name}"
            self.have[name] = {kind: node.output[slot]}
        for attribute in node.attribute:
            if (node.op_type, attribute.name, attribute.i) == ("Cast", "to", FLOAT):
                attribute.i = precision
        self.nodes.append(node)
        for name in self.g.outputs & set(original.output):
            self._wanted(name, self.g.types[name])
        for name in self.narrowed & set(original.output):
            self.have[name] = {self.half.kind: self._wanted(name, self.half.kind)}

    def _type(self, node: Any, name: str, slot: int, precision: int, side: str = "inputs") -> int:
        if self.g.types[name] == FLOAT and precision == self.half.kind:
            admitted = _admits_half(self.g, node, slot, self.half, side)
            return precision if admitted else FLOAT
        return self.g.types[name]

    def _wanted(self, name: str, kind: int) -> str:
        """Return the name of the tensor `name` in type `kind`; add a Cast where there is none."""
        made: dict[int, str] = self.have.setdefault(name, {})
        if kind not in made:
            taken = name in made.values() or name in self.narrowed
            suffix = self.half.name if kind == self.half.kind else "fp32"
            target = f"{name}/{suffix}" if taken else name
            if name not in self.g.weights:
                (source,) = made.values()
                cast = self.onnx.helper.make_node("Cast", [source], [target], target, to=kind)
                self.nodes.append(cast)
            else:
                self._weight(name, target, kind)
            made[kind] = target
        return made[kind]

    def _weight(self, name: str, target: str, kind: int) -> None:
        values = self.onnx.numpy_helper.to_array(self.g.weights[name])
        if kind == self.half.kind:
            with np.errstate(over="ignore"):
                half = values.astype(self.half.dtype)
            # The bound of a Clip may become infinite: it then limits as little as it did before.
            if any(self.g.op[i] != "Clip" for i in self.g.users[name]):
                self.statistics.add(name, values, half)
            values = half
        self.weights[target] = self.onnx.numpy_helper.from_array(values, target)
