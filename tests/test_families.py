"""Every recipe family, both precisions: exported, built for a GPU, run by every engine here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from exported_families import CASES, export_case

from anoco_edge.bundle import Bundle
from anoco_edge.engines import open_engine
from anoco_edge.plans.flavours import is_installed
from anoco_edge.selftest import check_engine
from anoco_edge_export.islands import tensor_types

TARGETS = ("sm86",) if is_installed("tensorrt-rtx") else ()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CASES)
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
    assert (onnx.TensorProto.FLOAT16 in kinds) == (precision == "fp16")


@pytest.mark.skipif(not TARGETS, reason="tensorrt_rtx is not installed")
def test_turing_has_no_fp32_products_and_the_way_out_works(tmp_path: Path) -> None:
    from anoco_edge.errors import AnocoError

    with pytest.raises(AnocoError, match=r"no FP32 matrix products for sm75.*--islands") as error:
        export_case("dinov3-s", tmp_path, "fp16", targets=("sm75",))
    islands = error.value.hint.split("--islands ")[1].split(",")
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
