"""The graph that engines are probed with is valid ONNX and detects wrong results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from anoco_edge.engines.probe_graph import PROBE_GRAPH, check_probe, probe_input
from anoco_edge.errors import EnvironmentMissingError


def test_the_bytes_are_a_graph_that_old_runtimes_load() -> None:
    model = onnx.load_from_string(PROBE_GRAPH)
    onnx.checker.check_model(model)
    assert model.ir_version == 10 and model.opset_import[0].version == 18
    assert [node.op_type for node in model.graph.node] == ["Add"]


def test_onnxruntime_computes_what_is_expected() -> None:
    session = onnxruntime.InferenceSession(PROBE_GRAPH, providers=["CPUExecutionProvider"])
    (output,) = session.run(["y"], probe_input())
    check_probe("ONNX Runtime", output)
    with pytest.raises(EnvironmentMissingError, match="ONNX Runtime computes nonsense here"):
        check_probe("ONNX Runtime", np.zeros_like(output))
