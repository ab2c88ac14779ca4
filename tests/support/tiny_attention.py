"""Makes a graph with one attention block in half precision, as the exporter writes them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

TOKENS, HEADS, DIM = 64, 2, 64

Variant = Literal["exported", "scaled", "narrow", "fp32"]


def attention_graph(variant: Variant = "exported", dtype: str = "FLOAT16") -> bytes:
    """Return a graph from pixels [b, 64, 64, 3] to features [b, 64, 8].

    `exported` has an FP32 softmax between two Casts. In `scaled` the logits are multiplied by a
    number before that, `narrow` has no Cast at all, and `fp32` has no half precision.
    """
    from onnx import TensorProto, helper, numpy_helper

    half = TensorProto.FLOAT if variant == "fp32" else getattr(TensorProto, dtype)
    rng = np.random.default_rng(3)
    inside = HEADS * DIM
    shapes = {
        "tokens": [0, TOKENS, 192],
        "split": [0, TOKENS, 3, HEADS, DIM],
        "join": [0, TOKENS, inside],
    }
    weights = {"w_in": (192, 3 * inside), "w_out": (inside, 8), "scale": (1,)}
    constants = [
        *(numpy_helper.from_array(np.array(v, np.int64), k) for k, v in shapes.items()),
        *(numpy_helper.from_array(np.array(k, np.int64), f"i{k}") for k in range(3)),
        numpy_helper.from_array(np.float32(1 / 255), "to_one"),
        *(
            helper.make_tensor(name, half, shape, 0.1 * rng.normal(size=shape).reshape(-1))
            for name, shape in weights.items()
        ),
    ]

    def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(op, inputs.split(), [output], name=f"node_{output}", **attributes)

    nodes = [
        node("Cast", "pixels", "float", to=TensorProto.FLOAT),
        node("Mul", "float to_one", "scaled"),
        node("Cast", "scaled", "half", to=half),
        node("Reshape", "half tokens", "x"),
        node("MatMul", "x w_in", "qkv"),
        node("Reshape", "qkv split", "parts"),
        node("Transpose", "parts", "stacked", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"stacked i{k}", name, axis=0) for k, name in enumerate("qkv")),
        node("Transpose", "k", "k_t", perm=[0, 1, 3, 2]),
        node("MatMul", "q k_t", "logits"),
    ]
    last = "logits"
    if variant == "scaled":
        nodes.append(node("Mul", "logits scale", "multiplied"))
        last = "multiplied"
    if variant == "narrow":
        nodes.append(node("Softmax", last, "attention", axis=-1))
    else:
        nodes += [
            node("Cast", last, "wide", to=TensorProto.FLOAT),
            node("Softmax", "wide", "weights", axis=-1),
            node("Cast", "weights", "attention", to=half),
        ]
    nodes += [
        node("MatMul", "attention v", "mixed"),
        node("Transpose", "mixed", "rows", perm=[0, 2, 1, 3]),
        node("Reshape", "rows join", "joined"),
        node("MatMul", "joined w_out", "out"),
        node("Cast", "out", "features", to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["b", 64, 64, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["b", TOKENS, 8])],
        constants,
    )
    opsets = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=10
    ).SerializeToString()
    return content
