"""docs/roofline.md holds what docs/roofline.py computes, and it counts as the recipe does."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

from anoco_edge_export.recipe import load_recipe


@pytest.fixture(scope="module")
def roofline() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("roofline")


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
        for own in (False, True):
            banks = [roofline.Scoring(n, device.memory, own) for n in (2304, 9216, 100_000)]
            for each in (roofline.Scoring.usual, roofline.Scoring.wrong_part):
                times = [roofline.milliseconds(each(bank), device) for bank in banks]
                assert times == sorted(times) and times[0] > 0
    nano, agx = roofline.DEVICES[:2]
    assert roofline.milliseconds(roofline.backbone(), agx) < roofline.milliseconds(
        roofline.backbone(), nano
    )


def test_the_budget_is_the_librarys(roofline: ModuleType) -> None:
    header = Path(ROOT / "runtime/include/anoco_cuda.h").read_text()
    assert roofline.SHARE == 16 and "a sixteenth of the device's memory" in header
    kernels = Path(ROOT / "runtime/cuda/gpu_kernels.h").read_text()
    assert f"ANOCO_GPU_GROUP = {roofline.GROUP}," in kernels
    assert f"ANOCO_GPU_PRODUCT_TILE = {roofline.TILE}," in kernels
    assert f"ANOCO_GPU_TILE_ROWS = {roofline.ROWS}," in kernels
    tile = Path(ROOT / "runtime/cuda/weighted_tile.cuh").read_text()
    assert f"kWeightedColumns = {roofline.COLUMNS}," in tile
