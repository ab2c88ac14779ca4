"""ANoCo scoring as a graph of standard ONNX operators; the bank is an input.

The graph is FP32 throughout, because rounding the similarities further changes neighbor sets. It
uses no Sort, TopK, NonZero, Loop or If, so that TensorRT builds it. It is written with onnx.helper
so that its bytes depend on nothing but this file.

The same nodes also come in two halves, retrieval (section 3.2) and solve (3.3 and 3.4). Between
them a runtime that can look at data drops the references that are no patch's neighbor, usually
nine in ten. The third matrix product then costs next to nothing, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anoco_edge_export.onnx_version import IR_VERSION, OPSET

# The anchor is exempt from the consistency test (a_ij* = 1 by definition). The graph computes it
# like any other entry, which is cheaper than masking it out: its value is 1 within 3e-7, so it
# can fail the test only where s* is within rounding of 1, and then t = s*, `solo` holds and the
# neighbor set is the anchor alone.
#
# Beside three matrix products every pass over a patches x bank matrix costs time. Greater, Cast and
# Where would take three passes; powers of two, which round nothing, do the same in two:
#  - `slack` = 2^60 (s* + ulp - a) is far above every similarity where a <= s*, and far below
#    where a is greater by more than an ulp. The smaller of it and s is s for a violator, and lower
#    than any similarity for what is consistent.
#  - `mark` = s - t, cut to 0 .. 2^-30, is 2^-30 for every neighbor (two similarities that differ
#    by less are a tie to float32, see DESIGN section 3) and 0 for the rest.
Attributes = Mapping[str, int | float | list[int]]
Nodes = tuple[tuple[str, tuple[str, ...], str, Attributes], ...]
"""Operator, inputs, output and attributes of each node."""

_QUERY: Nodes = (
    ("ReduceL2", ("query", "axis1"), "q_norm", {"keepdims": 1}),
    ("Div", ("query", "q_norm"), "q_unit", {}),
)
_SIMILARITY: Nodes = (  # section 3.2: similarities, anchors
    ("Gemm", ("q_unit", "reference_units"), "s", {"transB": 1}),
    ("ArgMax", ("s",), "anchor_column", {"axis": 1, "keepdims": 1, "select_last_index": 0}),
    ("GatherElements", ("s", "anchor_column"), "s_best", {"axis": 1}),
    ("Squeeze", ("anchor_column", "axis1"), "anchor", {}),
)
_ANCHOR: Nodes = (("Gather", ("reference_units", "anchor"), "anchor_unit", {"axis": 0}),)
_NEIGHBORS: Nodes = (  # a_ij = cos(r_j*, r_j) times 2^60; violators; t_i
    ("Gemm", ("anchor_unit", "reference_units"), "a", {"transB": 1, "alpha": 2.0**60}),
    ("Abs", ("s_best",), "s_best_size", {}),
    ("Mul", ("s_best_size", "ulp"), "s_best_ulp", {}),
    ("Add", ("s_best", "s_best_ulp"), "s_best_up", {}),
    ("Mul", ("s_best_up", "two60"), "bar", {}),
    ("Sub", ("bar", "a"), "slack", {}),
    ("Min", ("s", "slack"), "violators", {}),
    ("ReduceMax", ("violators", "axis1"), "t", {"keepdims": 1}),
)
_SOLVE: Nodes = (
    ("GreaterOrEqual", ("t", "s_best"), "solo", {}),
    ("Sub", ("s", "t"), "over", {}),
    ("Clip", ("over", "zero", "two_30"), "mark", {}),
    # Eq. 2: w_ij = max(s_ij, floor) 2 / (1/|q| + 1/|r|). The references come as directions, so
    # `w` holds 2^-31 w_ij |r_j|; its product with 1/|r_j| gives the degree.
    ("Clip", ("s", "floor"), "s_floored", {}),
    ("Mul", ("s_floored", "mark"), "s_near", {}),
    ("Reciprocal", ("q_norm",), "q_inverse", {}),
    ("Unsqueeze", ("reference_norms", "axis0"), "r_norm", {}),
    ("Reciprocal", ("r_norm",), "r_inverse", {}),
    ("Mul", ("r_inverse", "r_inverse"), "r_inverse_square", {}),
    ("Gemm", ("q_inverse", "r_inverse", "r_inverse_square"), "inverse_sum", {}),
    ("Div", ("s_near", "inverse_sum"), "w", {}),
    ("Transpose", ("r_inverse",), "r_inverse_column", {"perm": [1, 0]}),
    ("MatMul", ("w", "r_inverse_column"), "w_degree", {}),
    ("Mul", ("w_degree", "two31"), "degree_all", {}),
    ("MatMul", ("w", "reference_units"), "w_pull", {}),
    ("Mul", ("w_pull", "two31"), "pull_all", {}),
    # The case in which the anchor is the only neighbor
    ("Gather", ("reference_norms", "anchor"), "anchor_norm_flat", {"axis": 0}),
    ("Unsqueeze", ("anchor_norm_flat", "axis1"), "anchor_norm", {}),
    ("Mul", ("anchor_unit", "anchor_norm"), "r_anchor", {}),
    ("Max", ("s_best", "floor"), "s_best_floored", {}),
    ("Mul", ("s_best_floored", "two"), "s_best_twice", {}),
    ("Reciprocal", ("anchor_norm",), "anchor_inverse", {}),
    ("Add", ("q_inverse", "anchor_inverse"), "anchor_inverse_sum", {}),
    ("Div", ("s_best_twice", "anchor_inverse_sum"), "w_anchor", {}),
    ("Mul", ("w_anchor", "r_anchor"), "pull_anchor", {}),
    ("Where", ("solo", "w_anchor", "degree_all"), "degree", {}),
    ("Where", ("solo", "pull_anchor", "pull_all"), "pull", {}),
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
    # The evidence of each patch
    ("Squeeze", ("s_best", "axis1"), "similarity", {}),
    ("ReduceSum", ("mark", "axis1"), "mark_sum", {"keepdims": 0}),
    ("Mul", ("mark_sum", "two30"), "neighbour_count", {}),
    ("Max", ("neighbour_count", "one"), "neighbour_count_solo", {}),
    ("Cast", ("neighbour_count_solo",), "neighbors", {"to": 7}),
)

_CONSTANTS: dict[str, float] = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "two": 2.0,
    "two30": 2.0**30,
    "two31": 2.0**31,
    "two60": 2.0**60,
    "two_30": 2.0**-30,
    "ulp": 2.0**-23,
    "tiny": 1e-30,
}


def scoring_graph() -> bytes:
    """Return the whole method: it takes query and bank, and gives energies and their evidence.

    >>> len(scoring_graph()) < 10_000
    True
    """
    nodes = (*_QUERY, *_SIMILARITY, *_ANCHOR, *_NEIGHBORS, *_SOLVE)
    return _model("anoco_scoring", nodes, ("query", *_BANK, *_SETTINGS), (*_RESULTS, "anchor"))


def retrieval_graph() -> bytes:
    """Return the first half: similarities, anchors, and the similarity t_i of the first violator.

    >>> len(retrieval_graph()) < len(scoring_graph())
    True
    """
    nodes = (*_QUERY, *_SIMILARITY, *_ANCHOR, *_NEIGHBORS)
    return _model("anoco_retrieval", nodes, ("query", "reference_units"), _FOUND)


def solve_graph() -> bytes:
    """Return the second half.

    Its bank, `s` and `anchor` may be about any choice of references that includes every anchor and
    every neighbor.

    >>> len(solve_graph()) < len(scoring_graph())
    True
    """
    nodes = (*_QUERY, *_ANCHOR, *_SOLVE)
    return _model("anoco_solve", nodes, ("query", *_BANK, *_SETTINGS, *_FOUND), _RESULTS)


_BANK = ("reference_units", "reference_norms")
_SETTINGS = ("lambda", "floor")
_FOUND = ("s", "t", "s_best", "anchor")
_RESULTS = ("product", "l2", "cosine", "similarity", "neighbors")
_SHAPES: dict[str, tuple[str | int, ...]] = {
    "query": ("patches", "dim"),
    "reference_units": ("bank", "dim"),
    "reference_norms": ("bank",),
    "lambda": (),
    "floor": (),
    "s": ("patches", "bank"),
    "t": ("patches", 1),
    "s_best": ("patches", 1),
}


def _model(name: str, steps: Nodes, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bytes:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str) -> Any:
        kind = TensorProto.INT64 if name in ("anchor", "neighbors") else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, list(_SHAPES.get(name, ("patches",))))

    used = {source for _, sources, _, _ in steps for source in sources}
    constants = [
        numpy_helper.from_array(constant, name)
        for name, constant in {
            **{name: np.float32(v) for name, v in _CONSTANTS.items()},
            **{f"axis{k}": np.array([k], np.int64) for k in (0, 1)},
        }.items()
        if name in used
    ]
    nodes = [
        helper.make_node(op, list(sources), [target], name=target, **attributes)
        for op, sources, target, attributes in steps
    ]
    ends = [[value(name) for name in names] for names in (inputs, outputs)]
    model = helper.make_model(
        helper.make_graph(nodes, name, *ends, constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="anoco-edge",
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data
