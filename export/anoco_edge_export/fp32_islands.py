"""Islands: parts of a graph that stay FP32 while the rest becomes FP16.

Each island has a name and a function that finds its nodes by their operators and connections, so
that the same name works for every backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from anoco_edge.errors import AnocoError, UsageError
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import empty_copy

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16  # the numbers that TensorProto gives these types
_SMALL = 1024  # bytes; an initializer up to this size may be a shape, which type inference reads
_STEEP = 4.0  # see _steep
_GEMM = frozenset({"Conv", "Einsum", "Gemm", "MatMul"})
# These operators only move numbers about. They are exact in either type, so they take the type of
# their neighbors.
MOVES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice"}
    | {"Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


def check_islands(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is neither in ISLANDS nor `op:` with an ONNX operator.

    >>> check_islands(["softmax", "op:Erf"])
    >>> check_islands(["sofmax"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: unknown island 'sofmax'; there is softmax, logits, ...
    """
    for name in names:
        known = (
            lazy_import("onnx").defs.has(name[3:]) if name.startswith("op:") else name in ISLANDS
        )
        if not known:
            hint = f"there is {', '.join(ISLANDS)}, and op:TYPE for an ONNX operator"
            raise UsageError(f"unknown island {name!r}", hint=hint)


def tensor_types(model: Any) -> dict[str, int]:
    """Return the element type of every tensor, of a graph that passes onnx's full check."""
    onnx = lazy_import("onnx")
    # The numbers of the weights are left out: with them a graph may exceed protobuf's 2 GB.
    bones = empty_copy(model)
    bones.graph.node.extend(model.graph.node)
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= _SMALL:
            bones.graph.initializer.append(tensor)
        else:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            bones.graph.input.append(value)
    try:
        onnx.checker.check_model(bones, full_check=True)
        graph = onnx.shape_inference.infer_shapes(bones, strict_mode=True).graph
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        hint = "export with `precision='fp32'`"
        raise AnocoError(f"the graph is not valid ONNX: {error}", hint=hint) from error
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {v.name: int(v.type.tensor_type.elem_type) for v in values}
    return types | {t.name: int(t.data_type) for t in model.graph.initializer}


class Graph:
    """An index of a graph: nodes by number, the maker and the users of each tensor.

    `live` holds the tensors whose values depend on the input.
    """

    def __init__(self, model: Any) -> None:
        graph = model.graph
        self.nodes = [n for n in graph.node if n.op_type != "Constant"]
        constants = [_constant(n) for n in graph.node if n.op_type == "Constant"]
        self.weights = {t.name: t for t in (*graph.initializer, *constants)}
        self.types = tensor_types(model)
        if {FLOAT16, BFLOAT16} & set(self.types.values()):
            raise UsageError("the graph already has 16-bit tensors", hint="convert the FP32 graph")
        self.inputs = [v.name for v in graph.input if v.name not in self.weights]
        self.outputs = {v.name for v in graph.output}
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        self.maker = {o: i for i, n in enumerate(self.nodes) for o in n.output if o}
        self.users: dict[str, list[int]] = {}
        self.live = set(self.inputs)
        for i, node in enumerate(self.nodes):
            for name in filter(None, node.input):
                self.users.setdefault(name, []).append(i)
            if node.op_type not in ("Shape", "Size") and self.live & set(node.input):
                self.live.update(node.output)
        self.op = [str(n.op_type) for n in self.nodes]
        self.before = [[self.maker[t] for t in n.input if t in self.maker] for n in self.nodes]
        self.after = [[u for t in n.output for u in self.users.get(t, [])] for n in self.nodes]
        self.alive = [[t for t in n.input if t in self.live] for n in self.nodes]
        # Nodes of which one operand depends on the input and the others are constant.
        self.affine = {i for i, names in enumerate(self.alive) if len(names) == 1}

    def back(self, starts: Iterable[int], through: Callable[[int], bool]) -> set[int]:
        """Return `starts` and the nodes before them, going on only behind nodes of `through`."""
        seen, todo = set[int](), list(starts)
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += self.before[i] if through(i) else []
        return seen

    def floats(self, names: Iterable[str]) -> list[str]:
        """Return those of the tensors that are FP32."""
        return [t for t in names if t and self.types[t] == FLOAT]


def _constant(node: Any) -> Any:
    """Return the value of a Constant node as an initializer."""
    onnx = lazy_import("onnx")
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    kind = {"value_float": np.float32, "value_floats": np.float32}.get(attribute.name)
    return onnx.numpy_helper.from_array(np.asarray(value, dtype=kind), node.output[0])


def _softmax(g: Graph) -> set[int]:
    """Find the softmax of every attention."""
    return {i for i, n in enumerate(g.nodes) if n.op_type in ("Softmax", "LogSoftmax")}


def _logits(g: Graph) -> set[int]:
    """Find the product q k^T before each softmax, with the scaling and masking between the two."""
    passed = MOVES | {"Add", "Cast", "Div", "Mul", "Sub", "Where"}
    found: set[int] = set()
    for i in _softmax(g):
        cone = g.back(g.before[i], lambda j: g.op[j] in passed)
        if any(g.op[j] in _GEMM for j in cone):
            found |= {j for j in cone if g.op[j] in passed | _GEMM}
    return found


def _layernorm(g: Graph) -> set[int]:
    """Find LayerNormalization, as one node or as the means, powers and roots it decomposes to."""
    found = {i for i, n in enumerate(g.nodes) if n.op_type == "LayerNormalization"}

    def inside(i: int) -> bool:  # a Mul is inside when it computes a square
        plain = g.op[i] in ("Add", "Mul") and len(set(g.alive[i])) == 1
        return plain or g.op[i] in ("Pow", "ReduceMean", "Sqrt")

    for root in (i for i, n in enumerate(g.nodes) if n.op_type == "Sqrt"):
        part = {i for i in g.back([root], inside) if inside(i) or g.op[i] == "Sub"}
        if not any(g.op[i] == "ReduceMean" for i in part):
            continue
        found |= part | {j for i in part for j in g.before[i] if g.op[j] == "ReduceMean"}
        ahead = [i for i in g.after[root] if g.op[i] in ("Div", "Reciprocal")]
        ahead += [j for i in ahead if g.op[i] == "Reciprocal" for j in g.after[i]]
        for i in ahead:  # the list grows during the loop: first by the scale, then by the bias
            ahead += [j for j in g.after[i] if g.op[j] in ("Add", "Mul") and j in g.affine]
        found.update(ahead)
    return found


def _embedding(g: Graph) -> set[int]:
    """Find everything from the pixels to the first product, where values of 0..255 cancel."""
    first = [i for i, n in enumerate(g.nodes) if n.op_type in _GEMM and g.alive[i]][:1]
    bias = {j for i in first for j in g.after[i] if g.op[j] == "Add" and j in g.affine}
    return g.back(first, lambda i: True) | bias


def _output(g: Graph) -> set[int]:
    """Find everything after the last tap: final norm, pooling, scaling.

    The search goes back from the output and ends at a product or a residual Add.
    """
    norms, ends = _layernorm(g), [g.maker[t] for t in g.outputs if t in g.maker]

    def passes(i: int) -> bool:
        joins = g.op[i] != "Concat" and len(g.alive[i]) > 1 and i not in norms
        return g.op[i] not in _GEMM and not joins

    return {i for i in g.back(ends, passes) if passes(i)}


def _rope(g: Graph) -> set[int]:
    """Find the rotary embedding, x cos + rotated(x) sin; its result is FP16 again."""
    found: set[int] = set()

    def turning(i: int) -> bool:
        return g.op[i] in MOVES or g.op[i] == "Neg"

    for i, node in enumerate(g.nodes):
        pair = [j for j in g.before[i] if g.op[j] == "Mul" and j in g.affine]
        if node.op_type not in ("Add", "Sub") or len(pair) != 2:
            continue
        cones = [g.back([g.maker.get(t, j) for t in g.alive[j]], turning) for j in pair]
        if not cones[0] & cones[1]:
            continue
        found |= {i, *pair}
        # The nodes that rotate x and that nothing else uses belong to the island: x is cast once.
        for j in sorted((j for j in cones[0] | cones[1] if turning(j)), reverse=True):
            if set(g.after[j]) <= found:
                found.add(j)
    return found


def _residual(g: Graph) -> set[int]:
    """Find the Adds that close a residual branch, with the Relu behind them."""
    found: set[int] = set()
    for i, node in enumerate(g.nodes):
        if node.op_type != "Add" or len(g.alive[i]) != 2 or len(g.before[i]) != 2:
            continue
        # Operands with a common origin and no product in between belong to a GELU or a RoPE.
        one, other = (g.back([j], lambda k: g.op[k] not in _GEMM) for j in g.before[i])
        if not {j for j in one & other if set(g.nodes[j].output) & g.live}:
            after = g.after[i]
            found |= {i, *(j for j in after if len(after) == 1 and g.op[j] == "Relu")}
    return found


def _steep(g: Graph) -> set[int]:
    """Find products with a weight or bias above 4: a folded batch norm whose numbers cancel.

    Measured: MobileNetV2 has one with a bias of 1974, and rounding it to FP16 moved the layer's
    output by 1.4 %, forty times more than the layers before it together.
    """
    numpy = lazy_import("onnx").numpy_helper
    found = set()
    for i, node in enumerate(g.nodes):
        weights = [g.weights[t] for t in node.input if t in g.weights]
        if g.op[i] in _GEMM and any(np.abs(numpy.to_array(w)).max() > _STEEP for w in weights):
            found.add(i)
    return found


def int8_products(g: Graph) -> set[int]:
    """Find the products of dequantized numbers, with their bias.

    Users cannot name this island; the INT8 export adds it, because a Cast before such a product
    would hide from every runtime that it is INT8.
    """
    products = {
        i
        for i, before in enumerate(g.before)
        if g.op[i] in _GEMM and any(g.op[j] == "DequantizeLinear" for j in before)
    }
    biases = {j for i in products for j in g.after[i] if g.op[j] == "Sub" and j in g.affine}
    return products | biases


ISLANDS: Mapping[str, Callable[[Graph], set[int]]] = {
    "softmax": _softmax,
    "logits": _logits,
    "layernorm": _layernorm,
    "embedding": _embedding,
    "output": _output,
    "rope": _rope,
    "residual": _residual,
    "steep": _steep,
}
"""The islands that can be asked for by name."""


def find_island(g: Graph, name: str) -> set[int]:
    """Return the nodes of an island, by its name in ISLANDS or by `op:` with an operator."""
    if name.startswith("op:"):
        return {i for i, n in enumerate(g.nodes) if n.op_type == name[3:]}
    return ISLANDS[name](g)
