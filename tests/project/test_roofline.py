"""docs/roofline.md holds what docs/roofline.py computes, and it counts as the recipe does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

from anoco_edge_export.recipe import load_recipe


@pytest.fixture(scope="module")
def roofline() -> ModuleType:
    spec = importlib.util.spec_from_file_location("roofline", ROOT / "docs/roofline.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["roofline"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(roofline: ModuleType) -> None:
    page = (ROOT / "docs/roofline.md").read_text()
    assert page == roofline.page(), "run: python docs/roofline.py --write"
    assert "no machine that wrote this had a GPU" in page


def test_the_backbone_is_the_recipes(roofline: ModuleType) -> None:
    recipe = load_recipe("dinov3-l")
    assert recipe.size == (roofline.SIDE, roofline.SIDE) and recipe.taps == (roofline.BLOCKS,)
    assert recipe.tapped().step == roofline.STRIDE and recipe.tapped().dim == roofline.DIM
    flops = sum(operation.tensor for operation in roofline.backbone())
    assert flops / 1e9 == pytest.approx(recipe.gflops, rel=0.01)


def test_a_larger_bank_costs_more_and_a_faster_device_less(roofline: ModuleType) -> None:
    for device in roofline.DEVICES:
        times = [roofline.milliseconds(roofline.scoring(n), device) for n in (2304, 9216, 100_000)]
        assert times == sorted(times) and times[0] > 0
    nano, agx = roofline.DEVICES[:2]
    assert roofline.milliseconds(roofline.backbone(), agx) < roofline.milliseconds(
        roofline.backbone(), nano
    )


def test_the_budget_is_the_librarys(roofline: ModuleType) -> None:
    header = Path(ROOT / "runtime/include/anoco_cuda.h").read_text()
    assert f"0: {roofline.BUDGET >> 20};" in header
