"""TensorRT-RTX fuses the attention of every transformer; a graph that it does not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_families import CASES, export_case

from anoco_edge.bundle.parity_report import FusionReport, KernelCounts
from anoco_edge.cli.views.parity import parity_remarks, unfused_warning
from anoco_edge.engines import open_engine
from anoco_edge.engines.registry import choose_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import EnvironmentMissingError, ParityError, UsageError
from anoco_edge.images.contract import InputContract
from anoco_edge.machine import available_memory_mb
from anoco_edge.plans.kernel_counts import read_kernel_counts
from anoco_edge.plans.tensorrt_modules import is_installed
from anoco_edge_export import fusion, load_recipe
from anoco_edge_export.backbone import exported_backbone, official_backbone, run_torch
from anoco_edge_export.fusion_trial import (
    count_fusion,
    random_graph,
    random_model,
    shortened,
    typed_graph,
)
from anoco_edge_export.onnx_graph import save_graph
from anoco_edge_export.recipe import Recipe
from anoco_edge_export.synthetic import synthetic_picture
from docs import fusion_table

SIZE = (96, 64)
CONTRACT = InputContract(width=96, height=64, stride=16, rows=4, cols=6, dim=384)
# Kernels, and those that only copy: at most so many for a block, and so many for all the rest. A
# new version of TensorRT-RTX may change them; look at what grew before you change them here.
PER_BLOCK = {"fp16": (8, 0), "bf16": (8, 0), "int8": (10, 1)}
REST = (4, 1)
GATED = (9, 0)  # the sides of a gated MLP are multiplied in a kernel of their own

rtx = pytest.mark.skipif(not is_installed("tensorrt-rtx"), reason="tensorrt_rtx is not installed")


def small_size(recipe: Recipe) -> tuple[int, int]:
    return SIZE if recipe.layers[0].stride == 16 else (84, 56)


def short_recipe(name: str) -> Recipe:
    """Return a recipe of two blocks; a name with `+bias` has one in the fused projection."""
    recipe = shortened(load_recipe(name.removesuffix("+bias")), 2)
    if name.endswith("+bias"):
        return recipe.model_copy(update={"architecture": recipe.variants["qkv-bias"]})
    return recipe


@cache
def two_blocks(name: str) -> tuple[Recipe, Any]:
    recipe = short_recipe(name)
    return recipe, random_graph(recipe, small_size(recipe))


def fusion_of(name: str, precision: Any) -> FusionReport:
    recipe, graph = two_blocks(name)
    return count_fusion(typed_graph(graph, recipe, precision), recipe, small_size(recipe))


def _case(name: str, precision: str, quick: Sequence[str]) -> Any:
    return pytest.param(name, precision, marks=() if name in quick else (pytest.mark.full,))


@rtx
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        _case(name, precision, ("dinov3-s", "dinov3-splus", "dinov2-s", "clip-b"))
        for name in (
            *("dinov3-s", "dinov3-s+bias", "dinov3-splus", "dinov2-s", "dinov2-s-plain"),
            *("clip-b", "clip-b-plus"),
        )
        for precision in ("fp16", "bf16", "int8")
    ]
    + [_case("dinov3-hplus", precision, ()) for precision in ("fp16", "bf16")],
)
def test_every_block_is_fused(name: str, precision: str) -> None:
    report = fusion_of(name, precision)
    assert report.counts is not None
    assert (report.blocks, report.counts.fused, report.unfused) == (2, 2, False)
    gated = name in ("dinov3-splus", "dinov3-hplus") and precision != "int8"
    block = GATED if gated else PER_BLOCK[precision]
    kernels, copies = (2 * n + rest for n, rest in zip(block, REST, strict=True))
    assert report.counts.kernels <= kernels and report.counts.copies <= copies
    assert report.counts.activation_bytes > 100_000 and report.casts > 0


@pytest.mark.parametrize("name", ["dinov3-s+bias", "dinov2-s", "clip-b"])
def test_biases_that_move_change_nothing(name: str) -> None:
    """For a GPU, the biases of queries, keys and values are added where timm does not."""
    recipe, size = short_recipe(name), small_size(short_recipe(name))
    pixels = np.stack([synthetic_picture(*size, seed) for seed in (3, 4)])
    model = random_model(recipe, 2, size)
    (expected,), _ = run_torch(official_backbone(recipe, recipe.tapped(), model), pixels)
    module = exported_backbone(recipe, recipe.tapped(), model, (1.0,), whole=True)
    assert all(block.attn.qkv.bias is None for block in module.trunk.blocks)
    found, *_ = run_torch(module, pixels)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@rtx
def test_windows_of_a_few_tokens_are_fused() -> None:
    """Three sequences pass through each block: the picture, and windows of 5 and 10 tokens."""
    report = fusion_of("winclip-b-plus", "fp16")
    assert report.counts is not None and (report.blocks, report.counts.fused) == (6, 6)
    assert report.counts.kernels <= 6 * 8 + 10 and report.counts.copies <= 1


@rtx
@pytest.mark.full
@pytest.mark.parametrize("name", fusion_table.transformers())
def test_every_transformer_is_fused_at_its_own_size(name: str) -> None:
    recipe = load_recipe(name)
    if recipe.parameters > 5e8 and available_memory_mb() < 16_000:
        pytest.skip(f"{name} needs 16 GB of free memory")
    precisions = [p for p in fusion_table.PRECISIONS if p in recipe.parity]
    blocks = recipe.taps[-1] if recipe.family == "vit" else 3 * 12
    for report in fusion_table.reports(recipe, recipe.size, precisions).values():
        assert report.counts is not None
        assert (report.blocks, report.counts.fused) == (blocks, blocks)
        assert report.counts.kernels <= 10 * blocks + 12


@rtx
@pytest.mark.full
def test_the_table_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--blocks", "2", "--size", "96", "--before", "--precision")
    fusion_table.main(["dinov3-s", *options, "fp16"])
    head, line, row = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == row.count("|") == 13
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[1:6] == ["dinov3-s", "96", "fp16", "2 of 2", "20"] and cells[9] == "0 of 2"
    with pytest.raises(UsageError, match="wrn50 has no attention"):
        fusion_table.main(["wrn50"])


@rtx
def test_fp32_logits_are_refused_unless_allowed(tmp_path: Path) -> None:
    recipe, plain = two_blocks("dinov3-s")
    graph = typed_graph(plain, recipe, "fp16", [*recipe.islands, "logits"])
    path = save_graph(graph, tmp_path / "backbone.onnx")[0]
    with pytest.raises(ParityError, match=r"fuses 0 of 2 attention blocks.*`allow_unfused=True`"):
        fusion.check_fusion(graph, path, CONTRACT)
    report = fusion.check_fusion(graph, path, CONTRACT, allow_unfused=True)
    assert report.unfused and report.counts is not None and report.counts.fused == 0


def test_without_tensorrt_rtx_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fusion, "is_installed", lambda _: False)
    recipe, plain = two_blocks("dinov3-s")
    graph = typed_graph(plain, recipe, "fp16")
    report = fusion.check_fusion(graph, tmp_path / "not-built.onnx", CONTRACT)
    assert (report.blocks, report.counts, report.unfused) == (2, None, False)
    assert report.summary == "not checked: install anoco-edge[rtx] and export again"


@rtx
@pytest.mark.full
def test_an_export_is_refused_or_says_everywhere_that_it_is_not_fused(tmp_path: Path) -> None:
    islands = [*load_recipe("dinov3-s").islands, "logits"]
    with pytest.raises(ParityError, match="fuses 0 of 2 attention blocks"):
        export_case("dinov3-s", tmp_path, "fp16", islands=islands)
    assert list(tmp_path.iterdir()) == []
    made = export_case("dinov3-s", tmp_path, "fp16", islands=islands, allow_unfused=True)
    parity = made.bundle.manifest.parity
    assert parity["fusion"]["unfused"] is True and "not fused" in unfused_warning(parity)


@rtx
@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if load_recipe(name).family == "vit"])
def test_bf16_is_exported(name: str, tmp_path: Path) -> None:
    """ONNX Runtime cannot run it on a CPU, so that the emulation alone is compared with torch."""
    bundle = export_case(name, tmp_path, "bf16", targets=("sm86",)).bundle
    manifest = bundle.manifest
    assert manifest.backbone.precision == "bf16"
    (check,) = manifest.parity["checks"]
    assert check["runtime"] == "every tensor rounded to BF16"
    assert manifest.parity["fusion"]["counts"]["fused"] == manifest.parity["fusion"]["blocks"]
    assert choose_engine("auto", bundle).name == "openvino"
    check_engine(bundle, open_engine("openvino", bundle), force=True)
    with pytest.raises(EnvironmentMissingError, match="no BF16 arithmetic on a CPU"):
        open_engine("onnxruntime", bundle)


def test_a_build_that_lists_no_kernels_is_not_counted() -> None:
    assert read_kernel_counts(["Total Activation Memory: 512 bytes"]) is None


def test_streams_that_wait_are_no_kernels() -> None:
    listing = (
        "Layers:\nName: _gemm_mha_v2_myl0_5, LayerType: kgen, Inputs: []\n"
        "Name: __mye16063_myl0_35, LayerType: wait, Inputs: []\n\n"
        "I/O Tensors:\n Name: pixels, LayerType: none"
    )
    assert read_kernel_counts([listing]) == KernelCounts(1, 1, 0, 0)


def test_the_report_is_shown() -> None:
    counts = {"fused": 0, "kernels": 32, "copies": 9, "activation_bytes": 10_000_000}
    report = {"checked": "TensorRT-RTX 1", "blocks": 2, "casts": 3, "counts": counts}
    (line,) = (line for line in parity_remarks({"fusion": report}) if line.startswith("TensorRT"))
    assert line == (
        "TensorRT: 0 of 2 attention blocks fused, 32 kernels (9 only copy), 10 MB (TensorRT-RTX 1)"
    )
    assert unfused_warning({"fusion": report}) == ""
    assert "not fused" in unfused_warning({"fusion": {**report, "unfused": True}})
