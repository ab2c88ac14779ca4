"""Quantizes the products that have weights with explicit Q/DQ nodes.

TensorRT and ONNX Runtime read INT8 in this form. The quantization is symmetric, because TensorRT
supports no zero point; weights are quantized by channel, activations by tensor. Biases stay as they
are, because TensorRT-RTX refuses INT32 biases. Nothing else changes: the products inside attention,
the norms and everything in between have no weights and keep their precision.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from anoco_edge_export.fp32_islands import Graph, find_island, tensor_types
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import Initializers, empty_copy

SWITCHES = "int8_switches"
_PRODUCTS = ("Conv", "MatMul")
_SYMMETRIC = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "QuantizeBias": False,
    "OpTypesToExcludeOutputQuantization": list(_PRODUCTS),
}


def named_products(model: Any) -> Any:
    """Return a copy whose products are Conv and MatMul and carry the names of their layers.

    A Gemm becomes a MatMul from which the negative bias is subtracted. ONNX Runtime multiplies
    integers only in a product without bias, and it would merge a MatMul and an Add into a Gemm.
    """
    onnx = lazy_import("onnx")
    copy = empty_copy(model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    taken: set[str] = set()
    for original in model.graph.node:
        node = onnx.NodeProto.FromString(original.SerializeToString())
        if node.op_type in (*_PRODUCTS, "Gemm") and node.input[1] in weights:
            node.name = _layer_name(node.input[1], taken)
        for part in _without_gemm(node, weights):
            copy.graph.node.append(part)
    used = {name for node in copy.graph.node for name in node.input}
    copy.graph.initializer.extend(t for t in weights.values() if t.name in used)
    return copy


def _layer_name(weight: str, taken: set[str]) -> str:
    stem = re.sub(r"^(trunk\.)+|\.weight$", "", weight)
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return name


def _without_gemm(node: Any, weights: Initializers) -> list[Any]:
    onnx = lazy_import("onnx")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    if node.op_type != "Gemm" or any(attributes.get(k, v) != v for k, v in plain.items()):
        return [node]
    if not all(name in weights for name in node.input[1:]):
        return [node]
    source, weight, *bias = node.input
    if attributes.get("transB", 0):
        turned = f"{weight}/turned"
        if turned not in weights:
            values = onnx.numpy_helper.to_array(weights[weight]).T
            weights[turned] = onnx.numpy_helper.from_array(np.ascontiguousarray(values), turned)
        weight = turned
    (target,) = node.output
    product = f"{target}/product" if bias else target
    made = onnx.helper.make_node
    parts = [made("MatMul", [source, weight], [product], node.name)]
    if bias:
        negative = f"{bias[0]}/negative"
        if negative not in weights:
            values = -onnx.numpy_helper.to_array(weights[bias[0]])
            weights[negative] = onnx.numpy_helper.from_array(values, negative)
        parts.append(made("Sub", [product, negative], [target], f"{node.name}/bias"))
    return parts


def quantizable_layers(model: Any, keep: Sequence[str]) -> dict[str, str]:
    """Return for each layer the tensor that enters it, in the order of the graph.

    `model` comes from `named_products`. `keep` names the islands (fp32_islands.py) whose products
    stay as they are.
    """
    graph = Graph(model)
    kept = set().union(*(find_island(graph, name) for name in keep)) if keep else set()
    return {
        node.name: node.input[0]
        for index, node in enumerate(graph.nodes)
        if node.op_type in _PRODUCTS and node.input[1] in graph.weights and index not in kept
    }


def quantize(model: Any, layers: Collection[str], ranges: Mapping[str, float]) -> Any:
    """Return `model` with these layers in INT8; `model` itself is not changed.

    `ranges` holds the ranges of the tensors that enter the layers.
    """
    if not layers:
        return model
    quantization = lazy_import("onnxruntime.quantization")
    calibrate = lazy_import("onnxruntime.quantization.calibrate")
    span = {
        name: calibrate.TensorData(lowest=np.float32(-limit), highest=np.float32(limit))
        for name, limit in ranges.items()
    }
    worker = lazy_import("onnxruntime.quantization.qdq_quantizer").QDQQuantizer(
        _with_types(model),
        per_channel=True,
        reduce_range=False,
        weight_qType=quantization.QuantType.QInt8,
        activation_qType=quantization.QuantType.QInt8,
        tensors_range=calibrate.TensorsData(quantization.CalibrationMethod.MinMax, span),
        nodes_to_quantize=list(layers),
        nodes_to_exclude=[],
        op_types_to_quantize=list(_PRODUCTS),
        extra_options=dict(_SYMMETRIC),
    )
    worker.quantize_model()
    worker.model.topological_sort()  # new nodes are appended at the end
    result = empty_copy(model)
    result.graph.node.extend(worker.model.nodes())
    result.graph.initializer.extend(worker.model.initializer())
    return result


def add_switches(model: Any, layers: Mapping[str, str], ranges: Mapping[str, float]) -> Any:
    """Return a graph that holds all `layers` in both precisions.

    The boolean input SWITCHES has one element for each layer and chooses its precision. One session
    then serves every choice of layers; a graph for each choice would be written, read and optimized
    dozens of times.
    """
    onnx = lazy_import("onnx")
    both = quantize(model, list(layers), ranges)
    weights = {node.name: node.input[1] for node in model.graph.node if node.name in layers}
    copy, made = empty_copy(both), onnx.helper.make_node
    boolean = onnx.TensorProto.BOOL
    copy.graph.input.append(onnx.helper.make_tensor_value_info(SWITCHES, boolean, [len(layers)]))
    names = [f"{SWITCHES}/{index}" for index in range(len(layers))]
    if len(names) > 1:
        copy.graph.node.append(made("Split", [SWITCHES], names, num_outputs=len(names)))
    else:
        copy.graph.node.append(made("Identity", [SWITCHES], names))
    switch = dict(zip(layers, names, strict=True))
    for original in both.graph.node:
        node = onnx.NodeProto.FromString(original.SerializeToString())
        if node.name in layers:
            exact = (layers[node.name], weights[node.name])
            for slot, name in enumerate(exact):
                chosen = f"{node.name}/{slot}/chosen"
                inputs = [switch[node.name], node.input[slot], name]
                copy.graph.node.append(made("Where", inputs, [chosen]))
                node.input[slot] = chosen
        copy.graph.node.append(node)
    there = {tensor.name for tensor in both.graph.initializer}
    copy.graph.initializer.extend(both.graph.initializer)
    needed = set(weights.values()) - there
    copy.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    return copy


def _with_types(model: Any) -> Any:
    """Return a copy that states the type of every tensor.

    Its mark tells onnxruntime.quantization that it need not infer them.
    """
    onnx = lazy_import("onnx")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    given = {value.name for value in (*model.graph.input, *model.graph.output)}
    weights = {tensor.name for tensor in model.graph.initializer}
    info = onnx.helper.make_tensor_value_info
    types = tensor_types(model).items()
    found = [info(name, kind, None) for name, kind in types if name not in given | weights]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(found)
    copy.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")
    return copy
