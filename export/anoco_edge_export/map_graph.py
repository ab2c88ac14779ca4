"""The parts of a single file around the scoring graph, as standard ONNX operators.

Before it, the inspected patches are chosen; after it, score, grid and map are computed. The
constants are fixed for one product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import InputContract
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.anomaly_map import axis_matrix
from anoco_edge.scoring.pooling import SMOOTH_WEIGHTS, Pooling, smooth_sums
from anoco_edge.scoring.types import NORM_RANGE
from anoco_edge_export.scoring_graph import Nodes

Constants = dict[str, NDArray[Any]]
GraphPart = tuple[Nodes, Constants]


def query_part(contract: InputContract, scored: Mask, features: str) -> GraphPart:
    """Turn `features` [batch, N, d] into `query`: one row for each inspected patch of the batch.

    >>> contract = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
    >>> nodes, constants = query_part(contract, np.array([[False, True]]), "features")
    >>> [op for op, *_ in nodes], constants["inspected_patches"].tolist()
    (['Gather', 'Reshape'], [1])
    """
    constants: Constants = {"row_shape": np.array([-1, contract.dim], np.int64)}
    if scored.all():
        return (("Reshape", (features, "row_shape"), "query", {}),), constants
    constants["inspected_patches"] = np.flatnonzero(scored)
    return (
        ("Gather", (features, "inspected_patches"), "inspected", {"axis": 1}),
        ("Reshape", ("inspected", "row_shape"), "query", {}),
    ), constants


def result_part(
    contract: InputContract, scored: Mask, pooling: Pooling, energies: str, norms: str
) -> GraphPart:
    """Turn the `energies` and `norms` of the query's rows into `score`, `energy` and `map`."""
    parts = (
        _sound(scored, energies, norms),
        _grid(contract, scored),
        _score(scored, pooling),
        _map(contract, scored),
    )
    nodes = tuple(node for part, _ in parts for node in part)
    return nodes, {name: value for _, part in parts for name, value in part.items()}


def _sound(scored: Mask, energies: str, norms: str) -> GraphPart:
    """Set the energy of a patch to NaN where a scorer would raise an error: NaN, or norm zero.

    A graph cannot raise. Runtimes differ in what Min, Max and Clip make of NaN, so this is checked
    explicitly: a patch of norm zero could otherwise get energy 0, which means a good part.
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
        "picture_shape": np.array([-1, int(scored.sum())], np.int64),
        "nan": np.array(np.nan, np.float32),
    }


def _score(scored: Mask, pooling: Pooling) -> GraphPart:
    """Pool the energies of the inspected patches into the score.

    Runtimes differ in what a maximum makes of NaN, so the graph looks for an unsound patch
    explicitly; one of them makes the score NaN.
    """
    constants: Constants = {
        "patch_axis": np.array([1], np.int64),
        "half": np.array(0.5, np.float32),
    }
    nodes: Nodes = (("ReduceMax", ("patch_energy", "patch_axis"), "pooled", {"keepdims": 0}),)
    if pooling == "smooth":
        nodes, smoothing = _smooth_maximum(scored)
        constants |= smoothing
    elif pooling == "top5":
        constants["pool_count"] = np.array([min(5, int(scored.sum()))], np.int64)
        nodes = (
            ("TopK", ("patch_energy", "pool_count"), "largest largest_at", {"axis": 1}),
            ("ReduceMean", ("largest", "patch_axis"), "pooled", {"keepdims": 0}),
        )
    return (
        *nodes,
        ("Cast", ("sound",), "sound_number", {"to": 1}),  # opset 18 reduces no booleans
        ("ReduceMin", ("sound_number", "patch_axis"), "all_sound_number", {"keepdims": 0}),
        ("Greater", ("all_sound_number", "half"), "all_sound", {}),
        ("Where", ("all_sound", "pooled", "nan"), "score", {}),
    ), constants


def _smooth_maximum(scored: Mask) -> GraphPart:
    """Take the largest energy of the grid after the 3x3 Gaussian over the inspected patches.

    The grid is 0 where a patch is not inspected, so one convolution gives the weighted sums; the
    sums of the weights depend on the mask alone, and are constants.
    """
    weights = smooth_sums(scored)
    scale = np.divide(1, weights, out=np.zeros_like(weights), where=scored)
    return (
        ("Reshape", ("energy", "plane_shape"), "energy_plane", {}),
        ("Conv", ("energy_plane", "smooth_weights"), "smooth_sums", {"pads": [1, 1, 1, 1]}),
        ("Mul", ("smooth_sums", "smooth_scale"), "smooth_plane", {}),
        ("ReduceMax", ("smooth_plane", "plane_axes"), "pooled", {"keepdims": 0}),
    ), {
        "plane_shape": np.array([-1, 1, *scored.shape], np.int64),
        "plane_axes": np.array([1, 2, 3], np.int64),
        "smooth_weights": np.array([[SMOOTH_WEIGHTS]], np.float32),
        "smooth_scale": scale.astype(np.float32),
    }


def _grid(contract: InputContract, scored: Mask) -> GraphPart:
    """Put the energies at their places in the grid, with 0 where a patch is not inspected."""
    constants: Constants = {"grid_shape": np.array([-1, contract.rows, contract.cols], np.int64)}
    if scored.all():
        return (("Reshape", ("patch_energy", "grid_shape"), "energy", {}),), constants
    flat = scored.reshape(-1)
    # For a patch that is not inspected any other one is fetched, and then replaced.
    constants["patch_column"] = np.where(flat, np.cumsum(flat) - 1, 0)
    constants["counted"] = flat
    constants["no_energy"] = np.array(0, np.float32)
    return (
        ("Gather", ("patch_energy", "patch_column"), "spread", {"axis": 1}),
        ("Where", ("counted", "spread", "no_energy"), "flat_energy", {}),
        ("Reshape", ("flat_energy", "grid_shape"), "energy", {}),
    ), constants


def _map(contract: InputContract, scored: Mask) -> GraphPart:
    """Compute the anomaly map as the detector does: one matrix for each axis.

    Patches that are not inspected carry no weight.
    """
    down = axis_matrix(contract.rows, contract.height)
    across = axis_matrix(contract.cols, contract.width)
    constants: Constants = {"down": down, "across": np.ascontiguousarray(across.T)}
    nodes: Nodes = (("MatMul", ("down", "energy"), "tall", {}),)
    if scored.all():
        return (*nodes, ("MatMul", ("tall", "across"), "map", {})), constants
    weight = down @ scored.astype(np.float32) @ across.T
    pixels = np.kron(scored, np.ones((contract.stride, contract.stride), np.bool_))
    shown = pixels & (weight > 0)
    constants["map_scale"] = np.divide(1, weight, out=np.zeros_like(weight), where=shown)
    return (
        *nodes,
        ("MatMul", ("tall", "across"), "raised", {}),
        ("Mul", ("raised", "map_scale"), "map", {}),
    ), constants
