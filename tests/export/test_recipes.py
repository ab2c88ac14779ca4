"""Recipes are validated data, and their figures are true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anoco_edge.errors import AnocoError, UsageError
from anoco_edge_export import export_backbone, list_recipes, load_recipe
from anoco_edge_export.cost import cost
from anoco_edge_export.recipe import parse_recipe

ID = "efficientnet-lite0"
NAMED = {
    *("dinov3-s", "dinov3-splus", "dinov3-b", "dinov3-l", "dinov3-hplus"),
    *("dinov2-s", "dinov2-b", "dinov2-l", "dinov2-s-plain", "dinov2-b-plain", "dinov2-l-plain"),
    *("clip-b", "clip-b-plus", "winclip-b-plus", "wrn50"),
    *("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "mobilenetv2"),
}


def test_every_backbone_has_a_recipe_under_its_own_name() -> None:
    assert set(list_recipes()) == NAMED
    for name in list_recipes():
        assert load_recipe(name).id == name


def test_the_papers_backbone_is_set_up_as_the_paper_does() -> None:
    recipe = load_recipe("dinov3-l")
    taps = recipe.tapped()
    assert recipe.size == (768, 768) and recipe.taps == (18,) and len(recipe.layers) == 24
    assert (taps.name, taps.norm, taps.stride, taps.dim) == ("blocks.17", "model", 16, 1024)
    assert recipe.mean == (0.485, 0.456, 0.406) and recipe.std == (0.229, 0.224, 0.225)
    assert "DINOv3 License" in recipe.weights.terms


@pytest.mark.parametrize("name", sorted(NAMED))
def test_parameters_and_gflops_are_those_of_the_model(name: str) -> None:
    recipe = load_recipe(name)
    counted = cost(recipe, recipe.tapped(), *recipe.size)
    assert counted.parameters == recipe.parameters
    assert counted.gflops == pytest.approx(recipe.gflops, rel=1e-3)
    assert counted.kept_parameters < counted.parameters


@pytest.mark.parametrize("name", sorted(NAMED))
def test_precisions_have_limits_no_looser_than_the_plan(name: str) -> None:
    parity = load_recipe(name).parity
    assert parity["fp32"].min_cosine >= 0.9999
    assert parity["fp16"].min_cosine >= 0.999 and parity["fp16"].min_energy_spearman >= 0.999


@pytest.mark.parametrize("name", sorted(NAMED))
def test_what_tensorrt_gets_wrong_in_fp16_stays_fp32(name: str) -> None:
    recipe = load_recipe(name)
    if recipe.family in ("vit", "clip-windows"):
        assert {"softmax", "layernorm"} <= set(recipe.islands)
    if recipe.family == "vit":
        assert "logits" not in recipe.islands, "TensorRT then fuses no attention"
    if name.startswith("dinov3"):
        assert "rope" in recipe.islands


def test_taps_are_checked() -> None:
    recipe = load_recipe("dinov3-s")
    assert recipe.tapped([6, 9]).name == "blocks.5+blocks.8"
    assert recipe.tapped([6, 9]).dim == 768
    assert recipe.tapped([12], "none").norm == "none"
    for layers, says in (([0], "no layer 0"), ([13], "layers are 1 to 12"), ([9, 6], "ascending")):
        with pytest.raises(UsageError, match=says):
            recipe.tapped(layers)
    for norm in ("none", "layernorm", "model"):
        assert recipe.tapped(norm=norm).norm == norm
    with pytest.raises(UsageError, match="no tap norm 'model'; use none or layernorm"):
        load_recipe("wrn50").tapped(norm="model")


def test_two_strides_give_the_finer_grid_and_the_coarser_step() -> None:
    taps = load_recipe("wrn50").tapped()
    assert (taps.name, taps.stride, taps.step, taps.dim) == ("layer2+layer3", 8, 16, 1536)


def test_unknown_backbone_is_refused_and_near_names_are_shown() -> None:
    with pytest.raises(UsageError, match=r"unknown backbone 'dinov3-large'.*dinov3-l") as e:
        export_backbone("dinov3-large", Path())
    assert e.value.exit_code == 2
    with pytest.raises(UsageError, match="there is"):
        load_recipe("zzz")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('title = "', 'colour = "red"\ntitle = "', "colour: Extra inputs"),
        ("taps = [3, 5]", "taps = [8]", "no layer 8"),
        ("taps = [3, 5]", "taps = []", "taps: "),
        ("size = [256, 256]", "size = [256, 250]", "does not divide"),
        ('family = "efficientnet"', 'family = "swin"', "family 'swin'"),
        ('id = "efficientnet-lite0"', 'id = "other"', "file name and id"),
        ("parameters = ", "parameters = [", "not valid"),
        ("[weights.package]", "[weights.hub]\nrepository = 'a/b'\n[weights.package]", "either"),
        ("[parity.fp32]", "[parity.fp64]", "parity"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(old: str, new: str, says: str) -> None:
    folder = Path(sys.modules["anoco_edge_export"].__path__[0]) / "recipes"
    text = (folder / f"{ID}.toml").read_text()
    assert old in text
    with pytest.raises(AnocoError, match=says):
        parse_recipe(text.replace(old, new, 1), ID)
