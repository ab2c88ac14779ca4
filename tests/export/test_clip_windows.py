"""CLIP on windows: timm's modules and the exported form both equal a literal implementation."""

from __future__ import annotations

from pathlib import Path

import literal_winclip as literal
import numpy as np
import onnx
import pytest
import safetensors.numpy
import torch
from tiny_clip import (
    COLS,
    EMBEDDING,
    HEADS,
    ROWS,
    SIZE,
    WIDTH,
    draw_open_clip,
    install_tiny_clip,
)

from anoco_edge.engines import open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import UsageError
from anoco_edge.plans.tensorrt_modules import is_installed
from anoco_edge_export import ExportOptions, export_bundle
from anoco_edge_export.backbone import (
    exported_backbone,
    filled_model,
    official_backbone,
    run_torch,
    set_size,
)
from anoco_edge_export.families import clip_windows
from anoco_edge_export.recipe import Precision, Recipe, load_recipe
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.weights import load_weights, match_keys


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    return install_tiny_clip(monkeypatch, tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "open_clip_model.safetensors"
    safetensors.numpy.save_file(draw_open_clip(), path)
    return path


def expected_taps(pixels: np.ndarray) -> list[np.ndarray]:
    """Compute all taps literally; a patch at the border repeats the nearest window."""
    seen = literal.encode_picture(draw_open_clip(), HEADS, pixels)
    places = [(row, col) for row in range(ROWS) for col in range(COLS)]
    taps = [seen.patches]
    for scale, windows in seen.windows.items():
        clamped = [(min(r, ROWS - scale), min(c, COLS - scale)) for r, c in places]
        taps.append(np.stack([windows[place] for place in clamped]))
    return [*taps, np.tile(seen.picture, (ROWS * COLS, 1))]


def test_windows_are_pictures_of_their_own_tokens(recipe: Recipe, file: Path) -> None:
    loaded = load_weights(recipe, str(file))
    model = filled_model(recipe, loaded.architecture, loaded.state)
    set_size(model, *SIZE)
    pixels = np.stack([synthetic_picture(*SIZE, seed) for seed in (3, 4)])
    expected = [expected_taps(picture) for picture in pixels]
    tokens, ends = run_torch(official_backbone(recipe, recipe.tapped(), model), pixels)
    for tap, found in enumerate(tokens):
        wanted = np.stack([taps[tap] for taps in expected])
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
    some, _ = run_torch(official_backbone(recipe, recipe.tapped([2, 4]), model), pixels)
    assert len(some) == 2 and torch.equal(some[0], tokens[1]) and torch.equal(some[1], tokens[3])
    scales = (1.0, 2.0, 3.0, 4.0)
    ours, *blocks = run_torch(exported_backbone(recipe, recipe.tapped(), model, scales), pixels)
    joined = torch.cat([t * s for t, s in zip(tokens, scales, strict=True)], dim=-1)
    assert ours.shape == (2, ROWS * COLS, recipe.tapped().dim)
    torch.testing.assert_close(ours, joined, rtol=1e-4, atol=1e-4)
    assert list(ends) == ["blocks.0", "blocks.1"]
    for block, end in zip(blocks, ends.values(), strict=True):
        torch.testing.assert_close(block.reshape(end.shape), end, rtol=1e-4, atol=1e-4)


def test_a_file_without_the_projection_is_refused(recipe: Recipe, file: Path) -> None:
    weights = draw_open_clip()
    del weights["visual.proj"]
    safetensors.numpy.save_file(weights, file)
    with pytest.raises(UsageError, match=r"2 missing \(head\.weight, head\.bias\)"):
        load_weights(recipe, str(file))


def test_random_weights_have_a_projection_without_bias(recipe: Recipe) -> None:
    state = load_weights(recipe, "random:3").state
    assert state["head.weight"].shape == (EMBEDDING, WIDTH) and not state["head.bias"].any()
    assert 0.7 < state["head.weight"].std() * WIDTH**0.5 < 1.3


def test_taps_that_a_recipe_cannot_mean_are_refused(recipe: Recipe) -> None:
    model = filled_model(recipe, recipe.architecture, load_weights(recipe, "random:0").state)
    for taps, norm in ((["blocks.0"], True), (["windows.2"], False)):
        with pytest.raises(ValueError, match="after the last block and the norm"):
            clip_windows.official(model, taps, norm)
    model.num_prefix_tokens = 2
    with pytest.raises(ValueError, match="no other prefix token"):
        clip_windows.official(model, ["windows.2"], norm=True)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_windows_are_exported_built_and_run(
    recipe: Recipe, precision: Precision, tmp_path: Path
) -> None:
    targets = ("sm86",) if is_installed("tensorrt-rtx") else ()
    options = ExportOptions(weights="random:0", precision=precision)
    bundle = export_bundle(recipe.id, tmp_path / "line.anoco", options, targets=targets).bundle
    for engine in ("onnxruntime", "openvino"):
        found = check_engine(bundle, open_engine(engine, bundle), force=True)
        assert found.min_cosine > 0.999
    graph = onnx.load(bundle.path / "backbone.onnx")
    ops = {node.op_type for node in graph.graph.node}
    assert not ops & {"If", "Loop", "Scan", "NonZero", "Tile", "Expand"}
    fused = [t for t in graph.graph.initializer if sorted(t.dims) == [WIDTH, 3 * WIDTH]]
    assert len(fused) == 2, "windows of all sizes share the weights of a block"


@pytest.mark.full
def test_the_real_model_sees_what_open_clip_sees() -> None:
    """Compare patches, the picture and windows of ViT-B/16+, with random weights."""
    open_clip = pytest.importorskip("open_clip")
    recipe = load_recipe("winclip-b-plus")
    theirs = open_clip.create_model("ViT-B-16-plus-240", pretrained=None).eval()
    wanted = load_weights(recipe, "random:0").state
    state = match_keys(recipe, wanted, theirs.state_dict(), "open_clip")
    ours = filled_model(recipe, recipe.architecture, state)
    picture = synthetic_picture(240, 240, 3)
    module = official_backbone(recipe, recipe.tapped(), ours)
    (patches, small, middle, whole), _ = run_torch(module, picture[None])
    normalized = (picture / 255 - literal.MEAN) / literal.STD
    pixels = torch.from_numpy(normalized.transpose(2, 0, 1)[None].astype(np.float32))
    visual, first = theirs.visual, []
    visual.output_tokens = True
    visual.ln_pre.register_forward_hook(lambda _module, _inputs, output: first.append(output))
    with torch.no_grad():
        embedding, tokens = visual(pixels)
        for scale, found in ((2, small), (3, middle)):
            for row, col in ((0, 0), (7, 3), (15 - scale, 15 - scale)):
                chosen = [0]
                for down in range(scale):
                    chosen += [1 + (row + down) * 15 + col + right for right in range(scale)]
                seen = visual.ln_post(visual.transformer(first[0][:, chosen]))[:, 0] @ visual.proj
                torch.testing.assert_close(found[:, row * 15 + col], seen, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(whole[:, 7], embedding, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(patches, tokens, rtol=1e-3, atol=1e-4)
