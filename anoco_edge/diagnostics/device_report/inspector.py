"""Asks TensorRT's engine inspector which kernels a plan consists of."""

from __future__ import annotations

import json
from typing import Any

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.parity_report import KernelCounts
from anoco_edge.errors import EngineError
from anoco_edge.plans.cache import PlanRecord, read_timing
from anoco_edge.plans.kernel_counts import read_kernel_counts
from anoco_edge.plans.tensorrt_builder import backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import collecting_log, load_module


def count_kernels(bundle: Bundle, plan: PlanRecord) -> KernelCounts:
    """Build the plan once more with details, which the one that inspects does not carry."""
    built = build_plan(
        bundle.graph(),
        backbone_profile(bundle.manifest.input, plan.max_batch),
        plan_engine=plan.plan_engine,
        targets=plan.targets,
        name=str(bundle.path / "backbone.onnx"),
        timing_cache=read_timing(plan.plan_engine, plan.fingerprint),
        count_kernels=True,
    )
    trt = load_module(plan.plan_engine)
    engine = trt.Runtime(collecting_log(trt)).deserialize_cuda_engine(built.content)
    if engine is None:
        raise EngineError("the plan with details does not load", hint="send this report in")
    said = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    counts = read_kernel_counts(
        [_listing(said), f"Total Activation Memory: {_memory(engine)} bytes"]
    )
    if counts is None or not counts.kernels:
        raise EngineError("the engine inspector lists no kernels", hint="send this report in")
    return counts


def _listing(text: str) -> str:
    """Write the inspector's JSON as the builder's log has it; a layer may be its name alone.

    >>> _listing('{"Layers": ["a_myl0_1", {"Name": "_gemm_mha_v2", "LayerType": "gemm"}]}')
    'Layers:\\nName: a_myl0_1, LayerType: unknown\\nName: _gemm_mha_v2, LayerType: gemm'
    """
    lines = []
    for layer in json.loads(text).get("Layers", []):
        known = layer if isinstance(layer, dict) else {"Name": layer}
        lines.append(f"Name: {known.get('Name')}, LayerType: {known.get('LayerType', 'unknown')}")
    return "\n".join(["Layers:", *lines])


def _memory(engine: Any) -> int:
    newer = getattr(engine, "device_memory_size_v2", None)
    return int(newer if newer is not None else engine.device_memory_size)
