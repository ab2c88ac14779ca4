"""The fusion gate: does TensorRT compute each attention block of a graph as one kernel?

Unfused, the logits of all patches go through the memory of the GPU several times, which costs a
multiple of the time of all other work. TensorRT fuses attention where the inputs of both products
are FP16, BF16 or INT8. TensorRT-RTX builds without a GPU and says what it fused, so no bundle
is written unless it fused everything. It stands for TensorRT here: what a device fuses, its own
inspector says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anoco_edge.bundle import InputContract
from anoco_edge.bundle.parity_report import FusionReport
from anoco_edge.errors import ParityError
from anoco_edge.plans.tensorrt_builder import backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import is_installed, title

TARGET = "sm86"  # the oldest generation with BF16 whose plans TensorRT-RTX builds for desktops
NOT_CHECKED = "not checked: install anoco-edge[rtx] and export again"


def attention_blocks(graph: Any) -> int:
    """Count the attention blocks of a graph; each has one softmax if it is whole."""
    return sum(node.op_type == "Softmax" for node in graph.graph.node)


def check_fusion(
    graph: Any,
    path: Path,
    contract: InputContract,
    allow_unfused: bool = False,
    target: str = TARGET,
) -> FusionReport:
    """Build the graph that was saved at `path` and report what TensorRT-RTX fused.

    Raise a ParityError if it did not fuse every attention block and that is not allowed. Where
    TensorRT-RTX is not installed, the report says so.
    """
    blocks = attention_blocks(graph)
    casts = sum(node.op_type == "Cast" for node in graph.graph.node)
    if not is_installed("tensorrt-rtx"):
        return FusionReport(NOT_CHECKED, blocks, casts)
    built = build_plan(
        path,
        backbone_profile(contract),
        plan_engine="tensorrt-rtx",
        targets=(target,),
        name="the exported graph",
        count_kernels=True,
    )
    builder = f"{title('tensorrt-rtx')} {built.version}, {target}"
    if built.kernels is None:
        return FusionReport(f"not checked: {builder} lists no kernels", blocks, casts)
    unfused = built.kernels.fused < blocks
    if unfused and not allow_unfused:
        raise ParityError(
            f"{builder} fuses {built.kernels.fused} of {blocks} attention blocks, and the others "
            "take several times as long",
            hint="no bundle was written; leave logits out of `islands`, or pass "
            "`allow_unfused=True` for a device on which speed does not matter",
        )
    return FusionReport(builder, blocks, casts, built.kernels, unfused)
