"""Every recipe family is exported in both precisions, built for a GPU and run by all engines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported_families import CASES, export_case

from anoco_edge.bundle import Bundle
from anoco_edge.engines import open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.plans.tensorrt_modules import is_installed
from anoco_edge_export import load_recipe
from anoco_edge_export.fp32_islands import FLOAT, FLOAT16, tensor_types

TARGETS = ("sm86",) if is_installed("tensorrt-rtx") else ()


QUICK = {
    ("dinov3-s", "fp16"),
    ("dinov3-splus", "fp32"),
    ("dinov2-s", "fp16"),
    ("dinov2-s-plain", "fp16"),
    ("clip-b", "fp16"),
    ("mobilenetv2", "fp32"),
}
"""What `make test` exports: every kind of graph once, and both precisions. The rest is slow."""


def _family(name: str, precision: str) -> Any:
    slow = () if (name, precision) in QUICK else (pytest.mark.full,)
    return pytest.param(name, precision, marks=slow)


@pytest.mark.parametrize(
    ("name", "precision"), [_family(name, kind) for name in CASES for kind in ("fp32", "fp16")]
)
def test_exported_built_and_run(name: str, precision: str, tmp_path: Path) -> None:
    if not TARGETS:
        pytest.skip("tensorrt_rtx is not installed, so no plan is built")
    exported = export_case(name, tmp_path, precision, targets=TARGETS)
    bundle = Bundle.open(exported.bundle.path)
    (plan,) = bundle.manifest.plans
    assert (plan.target, plan.engine) == ("sm86", "tensorrt-rtx")
    assert bundle.file(plan.path).size > 10_000 and not bundle.strangers()
    checks = bundle.manifest.parity["checks"]
    assert len(checks) == (2 if precision == "fp16" else 1)
    for engine in ("onnxruntime", "openvino"):
        found = check_engine(bundle, open_engine(engine, bundle), force=True)
        assert found.min_cosine > 0.999
    graph = onnx.load(bundle.path / "backbone.onnx")
    kinds = set(tensor_types(graph).values())
    assert (FLOAT16 in kinds) == (precision == "fp16")
    assert graph.ir_version == 10 and [o.version for o in graph.opset_import] == [18]
    assert not {node.op_type for node in graph.graph.node} & {"If", "Loop", "Scan", "NonZero"}
    if load_recipe(name).family == "vit":
        _check_transformer(graph, bundle, precision)


def _check_transformer(graph: Any, bundle: Bundle, precision: str) -> None:
    """Check that norms are one operator each, and queries, keys and values one product.

    Pixels are normalized by the patch embedding, and in FP16 the sensitive nodes have the right
    types.
    """
    backbone = bundle.manifest.backbone
    taps = backbone.tap.split("+")
    blocks = int(taps[-1].removeprefix("blocks.")) + 1
    norms = 2 * blocks + len(taps) * (backbone.feature_norm != "none")
    ops = Counter(node.op_type for node in graph.graph.node)
    # CLIP has one norm before all blocks.
    assert ops["LayerNormalization"] == norms + backbone.id.startswith("clip")
    assert not ops.keys() & {"ReduceMean", "Sqrt", "Pow", "Sin", "Cos", "Tile", "Shape", "Sub"}
    dim = bundle.manifest.input.dim // len(taps)
    fused = [t for t in graph.graph.initializer if sorted(t.dims) == [dim, 3 * dim]]
    assert len(fused) == blocks, "a block has one projection for all three"
    types = tensor_types(graph)
    wide = [n for n in graph.graph.node if n.op_type in ("LayerNormalization", "Softmax")]
    by_output = {output: node for node in graph.graph.node for output in node.output}
    logits = [by_output[n.input[0]] for n in wide if n.op_type == "Softmax"]
    if precision == "fp16":  # the product is FP16, and only the softmax is FP32
        assert {node.op_type for node in logits} == {"Cast"}
        logits = [by_output[node.input[0]] for node in logits]
        assert {types[name] for node in logits for name in node.input} == {FLOAT16}
    assert {node.op_type for node in logits} == {"MatMul"}
    for node in wide:
        assert types[node.output[0]] == types[node.input[0]] == FLOAT
    if precision == "fp16":
        assert all(t.data_type == FLOAT16 for t in fused)
        report = bundle.manifest.parity["fusion"]
        assert report["counts"]["fused"] == report["blocks"] == blocks
    if precision == "fp16" and backbone.id.startswith("dinov3"):
        _check_rotation(graph, types)


def _check_rotation(graph: Any, types: dict[str, int]) -> None:
    """Check that queries and keys are rotated in FP32, and that the result is used in FP16."""

    def users(name: str) -> list[Any]:
        return [node for node in graph.graph.node if name in node.input]

    scaled = [node for node in graph.graph.node if "cos" in "".join(node.input)]
    turned = [user for node in scaled for user in users(node.output[0])]
    assert len(turned) == len(scaled) > 0 and {node.op_type for node in turned} == {"Add"}
    for node in turned:
        assert types[node.output[0]] == FLOAT
        (cast,) = users(node.output[0])
        assert cast.op_type == "Cast" and types[cast.output[0]] == FLOAT16


@pytest.mark.full
@pytest.mark.skipif(not TARGETS, reason="tensorrt_rtx is not installed")
def test_turing_has_no_fp32_products_and_the_way_out_works(tmp_path: Path) -> None:
    from anoco_edge.errors import AnocoError

    unfused = {"islands": [*load_recipe("dinov3-s").islands, "logits"], "allow_unfused": True}
    with pytest.raises(AnocoError, match=r"no FP32 matrix products for sm75.*`islands=") as error:
        export_case("dinov3-s", tmp_path, "fp16", targets=("sm75",), **unfused)
    islands = error.value.hint.split("`islands='")[1].split("'")[0].split(",")
    exported = export_case("dinov3-s", tmp_path, "fp16", targets=("sm75",), islands=islands)
    assert exported.bundle.manifest.plans[0].target == "sm75"


def test_two_pictures_at_once_are_two_pictures(tmp_path: Path) -> None:
    bundle = export_case("dinov2-s", tmp_path, "fp32").bundle
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(2, 56, 84, 3), dtype=np.uint8)
    engine = open_engine("onnxruntime", bundle)
    together = engine.features(pixels)
    for one, both in zip(pixels, together, strict=True):
        np.testing.assert_allclose(engine.features(one[None])[0], both, atol=1e-4)
