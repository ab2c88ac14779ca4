"""ANoCo scoring as a graph of standard ONNX operators, the bank an input.

FP32 only: rounding the similarities further changes neighbour sets. No Sort, TopK, NonZero,
Loop or If, so that TensorRT builds it. Written with onnx.helper so that its bytes depend on
nothing but this file.
"""

from __future__ import annotations

from typing import Any

OPSET = 18
IR_VERSION = 10

# The anchor is exempt from the consistency test (a_ij* = 1 by definition). The graph computes it
# like any other entry, which is cheaper than masking it out: its value is 1 within 3e-7, so it
# can fail the test only where s* is within rounding of 1, and then t = s*, `Solo` holds and the
# neighbour set is the anchor alone.
_NODES: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    # Section 3.2: similarities, anchors. `s` holds s_ij / 4, see `violators` (exact: a power of 2)
    ("ReduceL2", ("query", "axis1"), "q_norm", {"keepdims": 1}),
    ("Div", ("query", "q_norm"), "q_unit", {}),
    ("Unsqueeze", ("reference_norms", "axis0"), "r_norm", {}),
    ("Reciprocal", ("r_norm",), "r_inverse", {}),
    ("Mul", ("r_inverse", "quarter"), "r_scale", {}),
    ("Gemm", ("q_unit", "references"), "s_raw", {"transB": 1}),
    ("Mul", ("s_raw", "r_scale"), "s", {}),
    ("ArgMax", ("s",), "anchor_column", {"axis": 1, "keepdims": 1, "select_last_index": 0}),
    ("GatherElements", ("s", "anchor_column"), "s_best", {"axis": 1}),
    ("Squeeze", ("anchor_column", "axis1"), "anchor", {}),
    # a_ij = cos(r_j*, r_j), violators, t_i. Taking 1 off s_ij / 4 puts what is consistent below
    # every violator; it is what Where(consistent, -inf, s) says, at a third of its price.
    ("Gather", ("references", "anchor"), "r_anchor", {"axis": 0}),
    ("Gather", ("reference_norms", "anchor"), "r_anchor_flat", {"axis": 0}),
    ("Unsqueeze", ("r_anchor_flat", "axis1"), "r_anchor_norm", {}),
    ("Div", ("r_anchor", "r_anchor_norm"), "r_anchor_unit", {}),
    ("Gemm", ("r_anchor_unit", "references"), "a_raw", {"transB": 1}),
    ("Mul", ("a_raw", "r_scale"), "a", {}),
    ("Greater", ("a", "s_best"), "consistent", {}),
    ("Cast", ("consistent",), "consistent_number", {"to": 1}),
    ("Sub", ("s", "consistent_number"), "violators", {}),
    ("ReduceMax", ("violators", "axis1"), "t", {"keepdims": 1}),
    ("GreaterOrEqual", ("t", "s_best"), "solo", {}),
    # Eq. 2: w_ij = max(s_ij, floor) 2 / (1/|q| + 1/|r|); `w` is w_ij / 8
    ("Greater", ("s", "t"), "neighbour", {}),
    ("Cast", ("neighbour",), "neighbour_number", {"to": 1}),
    ("Mul", ("floor", "quarter"), "s_floor", {}),
    ("Clip", ("s", "s_floor"), "s_floored", {}),  # Max, but vectorised in ONNX Runtime
    ("Mul", ("s_floored", "neighbour_number"), "s_near", {}),
    ("Reciprocal", ("q_norm",), "q_inverse", {}),
    ("Add", ("q_inverse", "r_inverse"), "inverse_sum", {}),
    ("Div", ("s_near", "inverse_sum"), "w", {}),
    ("ReduceSum", ("w", "axis1"), "w_sum", {"keepdims": 1}),
    ("MatMul", ("w", "references"), "w_pull", {}),
    # Where only the anchor is left
    ("Max", ("s_best", "s_floor"), "s_best_floored", {}),
    ("Reciprocal", ("r_anchor_norm",), "r_anchor_inverse", {}),
    ("Add", ("q_inverse", "r_anchor_inverse"), "anchor_inverse_sum", {}),
    ("Div", ("s_best_floored", "anchor_inverse_sum"), "w_anchor", {}),
    ("Mul", ("w_anchor", "r_anchor"), "pull_anchor", {}),
    ("Where", ("solo", "w_anchor", "w_sum"), "degree_eighth", {}),
    ("Where", ("solo", "pull_anchor", "w_pull"), "pull_eighth", {}),
    ("Mul", ("degree_eighth", "eight"), "degree", {}),
    ("Mul", ("pull_eighth", "eight"), "pull", {}),
    # Eq. 9: drift and f~
    ("Add", ("lambda", "degree"), "stiffness", {}),
    ("Mul", ("degree", "query"), "held", {}),
    ("Sub", ("pull", "held"), "force", {}),
    ("Div", ("force", "stiffness"), "drift", {}),
    ("Mul", ("lambda", "query"), "kept", {}),
    ("Add", ("kept", "pull"), "moved_scaled", {}),
    ("Div", ("moved_scaled", "stiffness"), "moved", {}),
    # Eq. 10; an f~ of length zero has no direction: then 1 - cos is 1
    ("ReduceSumSquare", ("drift", "axis1"), "l2", {"keepdims": 0}),
    ("ReduceL2", ("moved", "axis1"), "moved_norm", {"keepdims": 1}),
    ("Max", ("moved_norm", "tiny"), "moved_norm_safe", {}),
    ("Div", ("moved", "moved_norm_safe"), "moved_unit", {}),
    ("Sub", ("moved_unit", "q_unit"), "chord", {}),
    ("ReduceSumSquare", ("chord", "axis1"), "chord_square", {"keepdims": 0}),
    ("Mul", ("chord_square", "half"), "turn", {}),
    ("Squeeze", ("moved_norm", "axis1"), "moved_norm_flat", {}),
    ("Equal", ("moved_norm_flat", "zero"), "vanished", {}),
    ("Where", ("vanished", "one", "turn"), "cosine", {}),
    ("Mul", ("l2", "cosine"), "product", {}),
    # What else is known of each patch
    ("Squeeze", ("s_best", "axis1"), "s_best_flat", {}),
    ("Mul", ("s_best_flat", "four"), "similarity", {}),
    ("ReduceSum", ("neighbour_number", "axis1"), "neighbour_count", {"keepdims": 0}),
    ("Max", ("neighbour_count", "one"), "neighbour_count_solo", {}),
    ("Cast", ("neighbour_count_solo",), "neighbors", {"to": 7}),
)

_CONSTANTS: dict[str, float] = {
    "zero": 0.0,
    "quarter": 0.25,
    "half": 0.5,
    "one": 1.0,
    "four": 4.0,
    "eight": 8.0,
    "tiny": 1e-30,
}


def scoring_graph() -> bytes:
    """The serialised model.

    >>> len(scoring_graph()) < 10_000
    True
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: int, *shape: str) -> Any:
        return helper.make_tensor_value_info(name, kind, list(shape))

    fp32, int64 = TensorProto.FLOAT, TensorProto.INT64
    inputs = [
        value("query", fp32, "patches", "dim"),
        value("references", fp32, "bank", "dim"),
        value("reference_norms", fp32, "bank"),
        value("lambda", fp32),
        value("floor", fp32),
    ]
    outputs = [
        value("product", fp32, "patches"),
        value("l2", fp32, "patches"),
        value("cosine", fp32, "patches"),
        value("anchor", int64, "patches"),
        value("similarity", fp32, "patches"),
        value("neighbors", int64, "patches"),
    ]
    constants = [
        *(numpy_helper.from_array(np.float32(v), name) for name, v in _CONSTANTS.items()),
        *(numpy_helper.from_array(np.array([k], np.int64), f"axis{k}") for k in (0, 1)),
    ]
    nodes = [
        helper.make_node(op, list(sources), [target], name=target, **attributes)
        for op, sources, target, attributes in _NODES
    ]
    graph = helper.make_graph(nodes, "anoco_scoring", inputs, outputs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="anoco-edge"
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data
