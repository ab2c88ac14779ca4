"""A CLIP of two small blocks on each side: timm's model of it, a recipe, weights, a vocabulary."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from timm.models import register_model
from timm.models.vision_transformer import VisionTransformer

from anoco_edge_export import recipe as recipes
from anoco_edge_export.recipe import Recipe, TextTower, load_recipe
from anoco_edge_export.text import tokenizer

ROWS, COLS, PATCH, WIDTH, HEADS, EMBEDDING = 4, 5, 16, 32, 2, 12
SIZE = (COLS * PATCH, ROWS * PATCH)
ID = "winclip-tiny"
MERGES = [("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o</w>"), ("o", "f</w>"), ("n", "u")]
TEXT = {"width": 16, "heads": 4, "layers": 2, "context": 77, "vocabulary": 514 + len(MERGES)}
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ClipSizes:
    """The sizes of both sides of a CLIP; the patch is 16 pixels wide."""

    patches: int
    width: int
    layers: int
    embedding: int
    text: TextTower


TINY = ClipSizes(ROWS * COLS, WIDTH, 2, EMBEDDING, TextTower.model_validate(TEXT))


@register_model
def winclip_tiny(pretrained: bool = False, num_classes: int = 0, **_: Any) -> VisionTransformer:
    """Return the picture side, as timm builds that of CLIP."""
    assert not pretrained
    return VisionTransformer(
        img_size=(ROWS * PATCH, COLS * PATCH),
        patch_size=PATCH,
        embed_dim=WIDTH,
        depth=2,
        num_heads=HEADS,
        pre_norm=True,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-5),
        num_classes=num_classes,
    )


def tiny_recipe() -> Recipe:
    """Return WinCLIP's recipe with these sizes."""
    written = load_recipe("winclip-b-plus").model_dump()
    taps = ("blocks.1", "windows.2", "windows.3", "picture")
    dims = (WIDTH, EMBEDDING, EMBEDDING, EMBEDDING)
    layers = [{"tap": t, "stride": PATCH, "dim": d} for t, d in zip(taps, dims, strict=True)]
    written |= {"id": ID, "architecture": "winclip_tiny", "layers": layers, "size": SIZE}
    return Recipe.model_validate({**written, "embedding": EMBEDDING, "text": TEXT})


def install_tiny_clip(patch: pytest.MonkeyPatch, folder: Path) -> Recipe:
    """Add the recipe to the others, and put a vocabulary where that of open_clip would lie."""
    recipe, read, listed = tiny_recipe(), recipes._read, recipes.list_recipes
    patch.setattr(recipes, "_read", lambda name: recipe if name == ID else read(name))
    patch.setattr(recipes, "list_recipes", lambda: [*listed(), ID])
    install_vocabulary(patch, folder, MERGES)
    return recipe


def install_vocabulary(
    patch: pytest.MonkeyPatch, folder: Path, merges: Sequence[tuple[str, str]]
) -> None:
    """Put a vocabulary where that of open_clip would lie."""
    file = folder / "vocabulary.txt.gz"
    lines = ["a title", *(f"{a} {b}" for a, b in merges), "more than are needed"]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    patch.setattr(tokenizer, "vocabulary_file", lambda: file)


def draw_open_clip(seed: int = 0, sizes: ClipSizes = TINY) -> Arrays:
    """Draw both sides under the names of open_clip, at the scale of trained weights."""
    rng = np.random.default_rng(seed)
    text = sizes.text
    shapes: dict[str, tuple[int, ...]] = {
        "visual.class_embedding": (sizes.width,),
        "visual.positional_embedding": (1 + sizes.patches, sizes.width),
        "visual.conv1.weight": (sizes.width, 3, PATCH, PATCH),
        "visual.proj": (sizes.width, sizes.embedding),
        "token_embedding.weight": (text.vocabulary, text.width),
        "positional_embedding": (text.context, text.width),
        "text_projection": (text.width, sizes.embedding),
        "logit_scale": (),
    }
    norms = [("visual.ln_pre", sizes.width), ("visual.ln_post", sizes.width)]
    norms.append(("ln_final", text.width))
    blocks = [(f"visual.transformer.resblocks.{i}", sizes.width) for i in range(sizes.layers)]
    blocks += [(f"transformer.resblocks.{i}", text.width) for i in range(text.layers)]
    for block, width in blocks:
        norms += [(f"{block}.ln_1", width), (f"{block}.ln_2", width)]
        shapes |= {
            f"{block}.attn.in_proj_weight": (3 * width, width),
            f"{block}.attn.in_proj_bias": (3 * width,),
            f"{block}.attn.out_proj.weight": (width, width),
            f"{block}.attn.out_proj.bias": (width,),
            f"{block}.mlp.c_fc.weight": (4 * width, width),
            f"{block}.mlp.c_fc.bias": (4 * width,),
            f"{block}.mlp.c_proj.weight": (width, 4 * width),
            f"{block}.mlp.c_proj.bias": (width,),
        }
    shapes |= {f"{name}.{part}": (width,) for name, width in norms for part in ("weight", "bias")}
    drawn = {}
    for key, shape in shapes.items():
        size = 1.3 / np.sqrt(np.prod(shape[1:], initial=1)) if "weight" in key else 0.3
        mean = 1.0 if key.endswith(".weight") and "ln_" in key else 0.0
        spread = 0.2 if mean else size
        drawn[key] = rng.normal(mean, spread, shape).astype(np.float32)
    return drawn
