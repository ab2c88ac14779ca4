"""`anoco-edge export` lists backbones, asks to accept terms, and builds plans for absent GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import safetensors.torch
from command_line import Ran, ok

from anoco_edge.bundle import Bundle
from anoco_edge_export import load_recipe
from anoco_edge_export.weights import load_weights


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """Export a DINOv3 of one block in FP16 from a file of weights, with plans for two GPUs."""
    pytest.importorskip("tensorrt_rtx")
    folder = tmp_path_factory.mktemp("export")
    weights, bundle = folder / "mine.safetensors", folder / "small.anoco"
    state = load_weights(load_recipe("dinov3-s"), "random:0").state
    safetensors.torch.save_file(dict(state), weights)
    tap = ("--layer", "1", "--tap-norm", "none", "--size", "96x64", "--precision", "fp16")
    rtx = ("--engine", "tensorrt-rtx", "--target", "sm86,sm89")
    made = ok("export", "--backbone", "dinov3-s", "--weights", weights, *tap, *rtx, "-o", bundle)
    return bundle, made


def words(text: str) -> str:
    """Return the words of the output, wherever a terminal breaks its lines."""
    return " ".join(text.split())


def test_plans_are_built_and_told_with_what_they_cost(exported: tuple[Path, Ran]) -> None:
    bundle, ran = exported
    assert "cut after blocks.0 (1 of 12 layers), 96x64, 4 x 6 patches, fp16" in ran.out
    for target in ("sm86", "sm89"):
        told = rf"plan for {target}: [\d.]+ MB, [\d.]+ s, \d+ MB of memory, tensorrt-rtx "
        assert re.search(told, ran.out), ran.out
    shown = ok("info", bundle).out
    assert "blocks.0, feature norm none" in shown and "mine.safetensors" in shown
    assert "for sm86, " in shown and "for sm89, " in shown
    files = {file.path for file in Bundle.open(bundle).manifest.files}
    assert files > {"plans/backbone-sm86.plan", "plans/backbone-sm89.plan"}


def test_the_terms_of_dinov3_are_named(exported: tuple[Path, Ran]) -> None:
    bundle, ran = exported
    assert "only under that agreement and with a copy of it" in words(ran.err)
    assert "no copy of the licence lay beside the weights" in words(ran.err)
    assert "DINOv3 License" in (bundle / "LICENSES" / "NOTICE.txt").read_text()


def test_info_shows_how_far_from_torch_it_is(exported: tuple[Path, Ran]) -> None:
    bundle, ran = exported
    shown = ok("info", bundle).out
    rows = [line.split() for line in shown.splitlines()]
    assert ["check", "cos", "min", "cos", "mean", "norm", "rank", "top"] in rows
    assert ["limit", "0.999", "0.9999", "0.01", "0.999", "0.05"] in rows
    table = [row for row in rows if row in [line.split() for line in ran.out.splitlines()]]
    for check in ("ONNX Runtime, CPU", "every tensor rounded to FP16"):
        (row,) = (row for row in table if words(" ".join(row)).startswith(check[:12]))
        cos_min, cos_mean, norm, rank, top = map(float, row[-5:])
        assert min(cos_min, cos_mean, rank) >= 0.999 and norm <= 0.01 and top <= 0.05
    assert "parity with torch float32 on the CPU, fp16, 72 patches" in words(shown)
    assert "no check here has its arithmetic, the self-test does" in words(shown)
    assert "closest to overflow: " in words(shown)


def test_export_list() -> None:
    recipes = ok("export", "--list", "--json").json
    assert "efficientnet-lite0" in [recipe["id"] for recipe in recipes]
    rows = [line.split() for line in ok("export", "--list").out.splitlines()]
    heads = ["backbone", "params", "patch", "size", "tap", "GFLOPs", "licence", "from"]
    assert rows[0] == heads and len(rows) == 1 + len(recipes) + 1
    large = ["dinov3-l", "303.1M", "16", "768", "18/24", "1443", "DINOv3", "License", "hub"]
    assert large in rows
    assert ["wrn50", "66.8M", "8", "256", "2,3/4", "24", "BSD-3-Clause", "hub"] in rows
