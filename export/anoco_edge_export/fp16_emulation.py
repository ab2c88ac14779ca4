"""Emulates FP16 and BF16 without a GPU, to find out where such a graph drifts or overflows.

The CPU kernels of ONNX Runtime compute FP16 graphs in FP32 and round little, and they do not run
BF16 graphs at all. The emulation runs the graph in FP32 with a Cast to the 16-bit format and back
behind every node that computes such a tensor, so that each is rounded, and overflows to infinity.
Products still accumulate in FP32, as tensor cores do. This is stricter than a GPU that fuses nodes,
and it is not the GPU's own arithmetic. "FP16" below stands for either format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, UsageError
from anoco_edge_export.fp32_islands import FLOAT, MOVES, tensor_types
from anoco_edge_export.half_format import FP16, HALF_FORMATS, half_format
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import empty_copy

_HALVES = {half.kind: half.name for half in HALF_FORMATS.values()}
_PROBES = ("ReduceMax", "ReduceMin", "ReduceSum")  # the sum, because the others ignore NaN


@dataclass(frozen=True)
class EmulationResult:
    """Features [pictures, N, d], the watched tensors, and how large each FP16 tensor became.

    `peaks` is in graph order and holds NaN for a tensor that contained NaN.

    >>> emulated = EmulationResult(np.zeros((1, 1, 1), np.float32), {}, {"a": 2.0, "b": 32752.0})
    >>> emulated.closest, emulated.headroom, emulated.first_non_finite
    ('b', 2.0, None)
    """

    features: NDArray[np.float32]
    watched: Mapping[str, NDArray[np.float32]]
    peaks: Mapping[str, float]
    limit: float = FP16.largest

    @property
    def first_non_finite(self) -> str | None:
        """The first FP16 tensor, in graph order, with infinity or NaN in it."""
        return next((name for name, peak in self.peaks.items() if not np.isfinite(peak)), None)

    @property
    def closest(self) -> str | None:
        """The FP16 tensor that came closest to the limit, or the first that exceeded it."""
        largest = max(self.peaks, key=lambda name: self.peaks[name], default=None)
        return self.first_non_finite or largest

    @property
    def headroom(self) -> float:
        """How many times larger `closest` could be; 0 where a tensor overflowed."""
        if self.closest is None:
            return float("inf")
        peak = self.peaks[self.closest]
        return self.limit / max(peak, 2.0**-24) if np.isfinite(peak) else 0.0


def emulate_half(model: Any, pixels: NDArray[Any], watch: Sequence[str] = ()) -> EmulationResult:
    """Run the typed FP16 or BF16 `model` on `pixels` [pictures, ...], one picture at a time.

    `watch` names further tensors to return, such as the ends of blocks.
    """
    rounded, probed = emulation_graph(model, watch)
    session = _open(rounded)
    name = model.graph.input[0].name
    wanted = [model.graph.output[0].name, *watch]
    probes = [f"{tensor}:{probe}" for tensor in probed for probe in _PROBES]
    kept: list[list[NDArray[np.float32]]] = []
    peaks = np.zeros(len(probed))
    for picture in pixels:
        found = session.run([*wanted, *probes], {name: picture[None]})
        kept.append(found[: len(wanted)])
        high, low, total = np.array(found[len(wanted) :], np.float64).reshape(-1, 3).T
        # maximum() propagates NaN, so a tensor that was not finite once stays so.
        peaks = np.maximum(peaks, np.maximum(high, -low))
        peaks[np.isnan(total) & np.isfinite(peaks)] = np.nan
    features, *rest = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return EmulationResult(
        features=features,
        watched=dict(zip(watch, rest, strict=True)),
        peaks=dict(zip(probed, peaks.tolist(), strict=True)),
        limit=(half_format(model) or FP16).largest,
    )


def emulation_graph(model: Any, watch: Sequence[str] = ()) -> tuple[Any, list[str]]:
    """Return the graph that the emulation runs, and the FP16 tensors that it probes.

    A node that only moves the numbers of an FP16 tensor is neither rounded again nor probed.
    """
    types = tensor_types(model)
    made = {output for node in model.graph.node for output in node.output}
    strange = [
        name for name in watch if types.get(name) not in (FLOAT, *_HALVES) or name not in made
    ]
    if strange:
        raise UsageError(
            f"the graph computes no float tensor {strange[0]!r}", hint="name one that a node makes"
        )
    writer = _Writer(types)
    for tensor in model.graph.initializer:
        writer.weight(tensor)
    for node in model.graph.node:
        writer.node(node)
    return writer.graph(model, watch), writer.probed


class _Writer:
    """Writes the emulation graph: every tensor keeps its name and is FP32, rounded if FP16."""

    def __init__(self, types: Mapping[str, int]) -> None:
        self.types, self.onnx = types, lazy_import("onnx")
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.probed: list[str] = []

    def weight(self, tensor: Any) -> None:
        """Add a weight; an FP16 weight stays FP16 and is cast where it is used, to save memory."""
        self.weights.append(tensor)
        if half := _HALVES.get(tensor.data_type):
            self.weights[-1] = self.onnx.TensorProto()
            self.weights[-1].CopyFrom(tensor)
            self.weights[-1].name = f"{tensor.name}:{half}"
            self._add("Cast", f"{tensor.name}:{half}", tensor.name, to=FLOAT)

    def node(self, original: Any) -> None:
        node = self.onnx.NodeProto.FromString(original.SerializeToString())
        self.nodes.append(node)
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _HALVES:
                attribute.i = FLOAT  # rounded below, like every other result
            if attribute.t.data_type in _HALVES:
                value = self.onnx.numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(self.onnx.numpy_helper.from_array(value))
        if node.op_type in MOVES or node.op_type.startswith("Constant"):
            return
        for slot, name in enumerate(original.output):
            kind = self.types.get(name, FLOAT)
            if kind in _HALVES:
                rounded = f"{name}:{_HALVES[kind]}"
                node.output[slot] = f"{name}:exact"
                self._add("Cast", f"{name}:exact", rounded, to=kind)
                self._add("Cast", rounded, name, to=FLOAT)
                self.probed.append(name)
                for probe in _PROBES:
                    self._add(probe, name, f"{name}:{probe}", keepdims=0)

    def graph(self, model: Any, watch: Sequence[str]) -> Any:
        rounded = empty_copy(model)
        rounded.graph.node.extend(self.nodes)
        rounded.graph.initializer.extend(self.weights)
        info = self.onnx.helper.make_tensor_value_info
        probes = [f"{tensor}:{probe}" for tensor in self.probed for probe in _PROBES]
        for value in rounded.graph.output:
            value.type.tensor_type.elem_type = FLOAT
        given = {value.name for value in rounded.graph.output}
        rounded.graph.output.extend(info(t, FLOAT, None) for t in watch if t not in given)
        rounded.graph.output.extend(info(t, FLOAT, []) for t in probes)
        return rounded

    def _add(self, op: str, source: str, target: str, **attributes: int) -> None:
        self.nodes.append(self.onnx.helper.make_node(op, [source], [target], **attributes))


def _open(model: Any) -> Any:
    """Open a session without optimizations, because no Cast may be removed or moved."""
    ort = lazy_import("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Nodes run in file order. By default ONNX Runtime runs all probes last and keeps their inputs.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.enable_mem_pattern = False  # it would about double the peak memory
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
        raise AnocoError(
            f"ONNX Runtime {ort.__version__} cannot emulate 16 bits: {error}",
            hint="export with `precision='fp32'`",
        ) from None
