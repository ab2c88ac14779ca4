"""An FP32 graph as a strongly typed FP16 one, with named islands that stay FP32.

Precision lives in the graph, because today's TensorRT knows no other place for it. A Cast stands
exactly where the type changes, so neighbours inside an island hand FP32 to each other. Only what
the rotary embedding gives is FP16 for everyone: attention then still fuses in TensorRT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError
from anoco_edge_export.fp32_islands import (
    FLOAT,
    HALF,
    MOVES,
    Graph,
    check_islands,
    find,
    tensor_types,
)
from anoco_edge_export.lazy_import import load
from anoco_edge_export.onnx_graph import frame

HALF_MAX = 65504.0


@dataclass
class HalfReport:
    """What the conversion did; `islands` counts the nodes found for each name."""

    nodes: dict[str, int] = field(default_factory=dict)
    islands: dict[str, int] = field(default_factory=dict)
    casts: int = 0
    initializer_bytes: int = 0
    largest_weight: float = 0.0
    largest_weight_name: str = ""
    rounded: int = 0  # numbers other than 0 among the FP16 weights
    flushed: int = 0  # of these, how many became 0
    subnormal: int = 0  # of these, how many lost precision to being tiny

    @property
    def flushed_share(self) -> float:
        return self.flushed / max(1, self.rounded)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Islands that were asked for and that this graph does not have."""
        return tuple(name for name, count in self.islands.items() if not count)

    def count(self, name: str, exact: NDArray[np.float32], half: NDArray[np.float16]) -> None:
        """Add a weight, or refuse it; infinity is infinity in both types."""
        size = np.abs(exact)
        peak = float(size.max(initial=0.0, where=np.isfinite(size)))
        if peak > HALF_MAX:
            raise AnocoError(
                f"weight {name} holds {peak:g}, and FP16 ends at {HALF_MAX:g}",
                hint="export with --precision fp32, or put the operator that uses it on an island",
            )
        if peak > self.largest_weight:
            self.largest_weight, self.largest_weight_name = peak, name
        self.rounded += int(np.count_nonzero(exact))
        self.flushed += int(np.count_nonzero(exact) - np.count_nonzero(half))
        self.subnormal += int(
            np.count_nonzero((half != 0) & (np.abs(half) < np.finfo(np.float16).tiny))
        )


def convert(model: Any, islands: Sequence[str]) -> tuple[Any, HalfReport]:
    """`model` (untouched) in FP16 but for `islands`, and what was done; ISLANDS has their names.

    Graph inputs and outputs keep their types, tensors keep their names.
    """
    check_islands(islands)
    graph = Graph(model)
    found = {name: find(graph, name) for name in islands}
    narrowed = {i for i in found.get("rope", ()) if graph.op[i] in ("Add", "Sub")}
    precision = _assign(graph, set().union(*found.values()), narrowed)
    writer = _Writer(graph, {t for i in narrowed for t in graph.nodes[i].output} - graph.outputs)
    for node, kind in zip(graph.nodes, precision, strict=True):
        writer.node(node, kind or FLOAT)
    half = frame(model)
    half.graph.node.extend(writer.nodes)
    half.graph.initializer.extend(writer.weights.values())
    tensor_types(half)  # raises unless the graph is valid
    report = writer.report
    report.nodes = {"fp16": precision.count(HALF), "fp32": precision.count(FLOAT)}
    report.islands = {name: len(nodes) for name, nodes in found.items()}
    report.casts = len(writer.nodes) - len(graph.nodes)
    report.initializer_bytes = sum(t.ByteSize() for t in half.graph.initializer)
    return half, report


def _assign(g: Graph, islands: set[int], narrowed: set[int]) -> list[int | None]:
    """FLOAT or HALF for every node that touches floats, None for the others.

    The `narrowed` compute in FP32 and give FP16.
    """
    touching = {i for i, n in enumerate(g.nodes) if g.floats((*n.input, *n.output))}
    single = {i for i in touching if i in islands or not _may_be_half(g, i)}
    free = {i for i in touching - single if g.op[i] in MOVES or not g.floats(g.nodes[i].output)}
    # Numbers made of shapes and constants alone cost nothing in FP32.
    single |= {i for i in touching - free if not set(g.nodes[i].output) & g.live}
    # What moves data between FP32 neighbours is FP32 as well: the largest such set.
    while dropped := {i for i in free if not _stays_single(g, i, single | free, narrowed)}:
        free -= dropped
    kinds = {i: FLOAT if i in single | free else HALF for i in touching}
    return [kinds.get(i) for i in range(len(g.nodes))]


def _stays_single(g: Graph, i: int, single: set[int], narrowed: set[int]) -> bool:
    node = g.nodes[i]
    makers = [g.maker[t] for t in g.floats(node.input) if t in g.maker]
    users = [j for t in g.floats(node.output) for j in g.users.get(t, [])]
    wants = [j in single for j in users if g.floats(g.nodes[j].output)]
    wants += [True for t in node.output if t in g.outputs]
    if not set(node.output) & g.live and g.floats(node.output):
        return any(wants)  # constants: rounding them later is as good
    return all(wants) and all(j in single - narrowed for j in makers)


def _may_be_half(g: Graph, i: int) -> bool:
    """Whether the operator takes FP16 at all."""
    node = g.nodes[i]
    slots = [_admits_half(g, node, k) for k, t in enumerate(node.input) if g.floats([t])]
    return any(slots) or not slots


def _admits_half(g: Graph, node: Any, slot: int, side: str = "inputs") -> bool:
    """What the operator's definition says: Resize's scales, for one, are FP32 for ever."""
    schema = load("onnx").defs.get_schema(node.op_type, g.opset, node.domain)
    formal = getattr(schema, side)
    return "tensor(float16)" in formal[min(slot, len(formal) - 1)].types


class _Writer:
    """Writes the typed graph node by node, with a Cast where a tensor is wanted in both types."""

    def __init__(self, g: Graph, narrowed: set[str]) -> None:
        self.g, self.narrowed, self.onnx = g, narrowed, load("onnx")
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.report = HalfReport()
        self.have = {t: {g.types[t]: t} for t in g.inputs}  # the names of a tensor by type

    def node(self, original: Any, precision: int) -> None:
        node = self.onnx.NodeProto.FromString(original.SerializeToString())
        for slot, name in enumerate(original.input):
            if name:
                node.input[slot] = self._wanted(name, self._type(node, name, slot, precision))
        for slot, name in enumerate(original.output):
            kind = self._type(node, name, slot, precision, "outputs") if name else FLOAT
            if kind == HALF and name in self.g.outputs:  # it keeps its type, so its name too
                node.output[slot] = f"{name}/fp16"
            self.have[name] = {kind: node.output[slot]}
        for attribute in node.attribute:
            if (node.op_type, attribute.name, attribute.i) == ("Cast", "to", FLOAT):
                attribute.i = precision
        self.nodes.append(node)
        for name in self.g.outputs & set(original.output):
            self._wanted(name, self.g.types[name])
        for name in self.narrowed & set(original.output):
            self.have[name] = {HALF: self._wanted(name, HALF)}

    def _type(self, node: Any, name: str, slot: int, precision: int, side: str = "inputs") -> int:
        if self.g.types[name] == FLOAT and precision == HALF:
            return HALF if _admits_half(self.g, node, slot, side) else FLOAT
        return self.g.types[name]

    def _wanted(self, name: str, kind: int) -> str:
        """The name under which `name` is to be had in type `kind`."""
        made: dict[int, str] = self.have.setdefault(name, {})
        if kind not in made:
            taken = name in made.values() or name in self.narrowed
            target = f"{name}/{'fp16' if kind == HALF else 'fp32'}" if taken else name
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
        if kind == HALF:
            with np.errstate(over="ignore"):
                half = values.astype(np.float16)
            # A Clip's bound may become infinite: it then bounds as little as before.
            if any(self.g.op[i] != "Clip" for i in self.g.users[name]):
                self.report.count(name, values, half)
            values = half
        self.weights[target] = self.onnx.numpy_helper.from_array(values, target)
