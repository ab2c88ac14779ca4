"""What lies around the scoring graph in a single file, as standard ONNX operators: which patches
are inspected before it; score, grid and map after it. The constants are baked for one product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import InputContract
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import axis_matrix
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import NORM_RANGE
from anoco_edge_export.scoring_graph import Nodes

Constants = dict[str, NDArray[Any]]
Part = tuple[Nodes, Constants]


def query_part(contract: InputContract, counted: Mask, features: str) -> Part:
    """`features` [batch, N, d] to `query`: the inspected patches of all pictures, one a row.

    >>> contract = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
    >>> nodes, constants = query_part(contract, np.array([[False, True]]), "features")
    >>> [op for op, *_ in nodes], constants["inspected_patches"].tolist()
    (['Gather', 'Reshape'], [1])
    """
    constants: Constants = {"row_shape": np.array([-1, contract.dim], np.int64)}
    if counted.all():
        return (("Reshape", (features, "row_shape"), "query", {}),), constants
    constants["inspected_patches"] = np.flatnonzero(counted)
    return (
        ("Gather", (features, "inspected_patches"), "inspected", {"axis": 1}),
        ("Reshape", ("inspected", "row_shape"), "query", {}),
    ), constants


def result_part(
    contract: InputContract, counted: Mask, pooling: Pooling, energies: str, norms: str
) -> Part:
    """`energies` and `norms` of the query's rows to `score`, `energy` and `map`."""
    parts = (
        _sound(counted, energies, norms),
        _score(counted, pooling),
        _grid(contract, counted),
        _map(contract, counted),
    )
    nodes = tuple(node for part, _ in parts for node in part)
    return nodes, {name: value for _, part in parts for name, value in part.items()}


def _sound(counted: Mask, energies: str, norms: str) -> Part:
    """A graph cannot raise: where a scorer would refuse a patch (NaN, no length), it says NaN.

    Runtimes differ in what Min, Max and Clip make of NaN, so it may not be left to them: a patch
    of length zero could come out with energy 0, which is a good part.
    """
    low, high = NORM_RANGE
    return (
        ("GreaterOrEqual", (norms, "norm_low"), "long_enough", {}),
        ("LessOrEqual", (norms, "norm_high"), "short_enough", {}),
        ("And", ("long_enough", "short_enough"), "sound_rows", {}),
        ("Reshape", ("sound_rows", "picture_shape"), "sound", {}),
        ("Reshape", (energies, "picture_shape"), "raw_energy", {}),
        ("Where", ("sound", "raw_energy", "nan"), "patch_energy", {}),
    ), {
        "norm_low": np.array(low, np.float32),
        "norm_high": np.array(high, np.float32),
        "picture_shape": np.array([-1, int(counted.sum())], np.int64),
        "nan": np.array(np.nan, np.float32),
    }


def _score(counted: Mask, pooling: Pooling) -> Part:
    """Pooling over the inspected patches; runtimes differ in what a maximum makes of NaN, so one
    unsound patch is looked for and makes the score NaN."""
    constants: Constants = {
        "patch_axis": np.array([1], np.int64),
        "half": np.array(0.5, np.float32),
    }
    nodes: Nodes = (("ReduceMax", ("patch_energy", "patch_axis"), "pooled", {"keepdims": 0}),)
    if pooling == "top5":
        constants["pool_count"] = np.array([min(5, int(counted.sum()))], np.int64)
        nodes = (
            ("TopK", ("patch_energy", "pool_count"), "largest largest_at", {"axis": 1}),
            ("ReduceMean", ("largest", "patch_axis"), "pooled", {"keepdims": 0}),
        )
    return (
        *nodes,
        ("Cast", ("sound",), "sound_number", {"to": 1}),  # FLOAT; opset 18 reduces no booleans
        ("ReduceMin", ("sound_number", "patch_axis"), "all_sound_number", {"keepdims": 0}),
        ("Greater", ("all_sound_number", "half"), "all_sound", {}),
        ("Where", ("all_sound", "pooled", "nan"), "score", {}),
    ), constants


def _grid(contract: InputContract, counted: Mask) -> Part:
    """Energies at their place in the grid, 0 where a patch does not count."""
    constants: Constants = {"grid_shape": np.array([-1, contract.rows, contract.cols], np.int64)}
    if counted.all():
        return (("Reshape", ("patch_energy", "grid_shape"), "energy", {}),), constants
    flat = counted.reshape(-1)
    # Where a patch does not count any other one is fetched, and not used.
    constants["patch_column"] = np.where(flat, np.cumsum(flat) - 1, 0)
    constants["counted"] = flat
    constants["no_energy"] = np.array(0, np.float32)
    return (
        ("Gather", ("patch_energy", "patch_column"), "spread", {"axis": 1}),
        ("Where", ("counted", "spread", "no_energy"), "flat_energy", {}),
        ("Reshape", ("flat_energy", "grid_shape"), "energy", {}),
    ), constants


def _map(contract: InputContract, counted: Mask) -> Part:
    """The graph of anoco_edge.pipeline.anomaly_map: one matrix for each axis.

    Patches that are not scored carry no weight.
    """
    down = axis_matrix(contract.rows, contract.height)
    across = axis_matrix(contract.cols, contract.width)
    constants: Constants = {"down": down, "across": np.ascontiguousarray(across.T)}
    nodes: Nodes = (("MatMul", ("down", "energy"), "tall", {}),)
    if counted.all():
        return (*nodes, ("MatMul", ("tall", "across"), "map", {})), constants
    weight = down @ counted.astype(np.float32) @ across.T
    pixels = np.kron(counted, np.ones((contract.stride, contract.stride), np.bool_))
    shown = pixels & (weight > 0)
    constants["map_scale"] = np.divide(1, weight, out=np.zeros_like(weight), where=shown)
    return (
        *nodes,
        ("MatMul", ("tall", "across"), "raised", {}),
        ("Mul", ("raised", "map_scale"), "map", {}),
    ), constants
