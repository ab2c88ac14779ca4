"""Every key layout of vision transformers gives the same tensors under timm's names."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch

from anoco_edge.errors import UsageError
from anoco_edge_export import load_recipe, weights
from anoco_edge_export.families.vit_keys import convert
from anoco_edge_export.recipe import Recipe

D, HIDDEN, DEPTH, PATCH = 4, 6, 2, 2
State = dict[str, torch.Tensor]


def _drawn(shapes: dict[str, tuple[int, ...]]) -> State:
    generator = torch.Generator().manual_seed(0)
    return {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}


def _block(i: int, swiglu: bool, scale: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    first = ("fc1_g", "fc1_x") if swiglu else ("fc1",)
    shapes: dict[str, tuple[int, ...]] = {"attn.qkv.weight": (3 * D, D), "attn.proj.weight": (D, D)}
    shapes |= {f"mlp.{name}.weight": (HIDDEN, D) for name in first}
    shapes |= {f"mlp.{name}.bias": (HIDDEN,) for name in first}
    shapes |= {"mlp.fc2.weight": (D, HIDDEN), "mlp.fc2.bias": (D,), "attn.proj.bias": (D,)}
    shapes |= {f"norm{n}.{leaf}": (D,) for n in (1, 2) for leaf in ("weight", "bias")}
    return {f"blocks.{i}.{k}": v for k, v in (shapes | dict.fromkeys(scale, (D,))).items()}


def _dinov3(swiglu: bool = False, biased: bool = False) -> State:
    """Name the tensors as timm's Eva does: gamma_1, and q_bias and v_bias or none."""
    shapes = {
        "cls_token": (1, 1, D),
        "reg_token": (1, 4, D),
        "norm.weight": (D,),
        "norm.bias": (D,),
    }
    shapes |= {"patch_embed.proj.weight": (D, 3, PATCH, PATCH), "patch_embed.proj.bias": (D,)}
    scale = ("gamma_1", "gamma_2") + (("attn.q_bias", "attn.v_bias") if biased else ())
    for i in range(DEPTH):
        shapes |= _block(i, swiglu, scale)
    return _drawn(shapes)


def _dinov2() -> State:
    shapes = {"cls_token": (1, 1, D), "reg_token": (1, 4, D), "pos_embed": (1, 9, D)}
    shapes |= {"norm.weight": (D,), "norm.bias": (D,)}
    shapes |= {"patch_embed.proj.weight": (D, 3, PATCH, PATCH), "patch_embed.proj.bias": (D,)}
    for i in range(DEPTH):
        shapes |= _block(i, False, ("ls1.gamma", "ls2.gamma"))
        shapes[f"blocks.{i}.attn.qkv.bias"] = (3 * D,)
    return _drawn(shapes)


def _dinov2_plain() -> State:
    """Name the tensors as timm does without registers: the class token has a position."""
    return _drawn({k: v.shape for k, v in _dinov2().items() if k != "reg_token"}) | {
        "pos_embed": torch.randn((1, 10, D), generator=torch.Generator().manual_seed(1))
    }


def _clip() -> State:
    shapes = {"cls_token": (1, 1, D), "pos_embed": (1, 10, D)}
    shapes |= {"patch_embed.proj.weight": (D, 3, PATCH, PATCH)}
    shapes |= {f"{n}.{leaf}": (D,) for n in ("norm_pre", "norm") for leaf in ("weight", "bias")}
    for i in range(DEPTH):
        shapes |= _block(i, False, ())
        shapes[f"blocks.{i}.attn.qkv.bias"] = (3 * D,)
    return _drawn(shapes)


def _respelled(state: State, words: list[tuple[str, str]]) -> State:
    out = {}
    for key, value in state.items():
        for timm, theirs in words:
            key = key.replace(timm, theirs)
        out[key] = value
    return out


def _last_norm(state: State, name: str) -> State:
    return {re.sub(r"^norm\.", f"{name}.", key): value for key, value in state.items()}


def _split(state: State, names: tuple[str, str, str], key_bias: bool = True) -> State:
    """Split query, key and value into three matrices."""
    out = {}
    for key, value in state.items():
        if ".attn.qkv." not in key:
            out[key] = value
            continue
        for name, part in zip(names, value.chunk(3), strict=True):
            out[key.replace("qkv", name)] = part
    return {k: v for k, v in out.items() if key_bias or not k.endswith(f"{names[1]}.bias")}


def _fused_bias(state: State, masked: float) -> State:
    """Make Meta's single bias with its mask; `masked` holds the values where the mask is zero."""
    out = {k: v for k, v in state.items() if not k.endswith(("q_bias", "v_bias"))}
    for i in range(DEPTH):
        q, v = (state.get(f"blocks.{i}.attn.{n}_bias", torch.zeros(D)) for n in "qv")
        out[f"blocks.{i}.attn.qkv.bias"] = torch.cat([q, torch.full((D,), masked), v])
        mask = torch.cat([torch.ones(D), torch.zeros(D), torch.ones(D)])
        out[f"blocks.{i}.attn.qkv.bias_mask"] = mask
    return out


META_V3 = [
    ("reg_token", "storage_tokens"),
    ("gamma_", "ls"),
    ("mlp.fc1_g", "mlp.w1"),
    ("mlp.fc1_x", "mlp.w2"),
]


def _meta_v3(state: State, masked: float = 7.0) -> State:
    swiglu = "blocks.0.mlp.fc1_g.weight" in state
    words = [*META_V3, ("mlp.fc2", "mlp.w3")] if swiglu else META_V3
    named = _respelled(_fused_bias(state, masked), words)
    return {k + ".gamma" if k.endswith(("ls1", "ls2")) else k: v for k, v in named.items()}


def _transformers_v3(state: State) -> State:
    out = _fused_bias(state, 0.0)
    out = {k: v for k, v in out.items() if not k.endswith("bias_mask")}
    up = "fc1_x" if "blocks.0.mlp.fc1_g.weight" in state else "fc1"
    return _respelled(
        _split(out, ("q_proj", "k_proj", "v_proj"), key_bias=False),
        [
            ("cls_token", "embeddings.cls_token"),
            ("reg_token", "embeddings.register_tokens"),
            ("patch_embed.proj", "embeddings.patch_embeddings"),
            ("blocks.", "layer."),
            ("attn.proj", "attention.o_proj"),
            ("attn.", "attention."),
            ("gamma_1", "layer_scale1.lambda1"),
            ("gamma_2", "layer_scale2.lambda1"),
            ("mlp.fc1_g", "mlp.gate_proj"),
            (f"mlp.{up}", "mlp.up_proj"),
            ("mlp.fc2", "mlp.down_proj"),
        ],
    )


def _with_class_position(state: State) -> State:
    """Store class token and position as Meta does; timm's class token is their sum."""
    position = torch.full((1, 1, D), 0.25)
    moved = {"cls_token": state["cls_token"] - position}
    return state | moved | {"pos_embed": torch.cat([position, state["pos_embed"]], dim=1)}


def _meta_v2(state: State) -> State:
    return _respelled(_with_class_position(state), [("reg_token", "register_tokens")])


def _transformers_v2(state: State) -> State:
    stored = _with_class_position(state) if "reg_token" in state else state
    return _respelled(
        _split(stored, ("query", "key", "value")),
        [
            ("cls_token", "embeddings.cls_token"),
            ("reg_token", "embeddings.register_tokens"),
            ("pos_embed", "embeddings.position_embeddings"),
            ("patch_embed.proj", "embeddings.patch_embeddings.projection"),
            ("blocks.", "encoder.layer."),
            ("attn.proj", "attention.output.dense"),
            ("attn.", "attention.attention."),
            ("ls1.gamma", "layer_scale1.lambda1"),
            ("ls2.gamma", "layer_scale2.lambda1"),
        ],
    ) | {"layernorm.weight": state["norm.weight"], "layernorm.bias": state["norm.bias"]}


def _transformers_clip(state: State, prefix: str) -> State:
    flat = state | {"cls_token": state["cls_token"][0, 0], "pos_embed": state["pos_embed"][0]}
    named = _respelled(
        _split(flat, ("q_proj", "k_proj", "v_proj")),
        [
            ("cls_token", "embeddings.class_embedding"),
            ("pos_embed", "embeddings.position_embedding.weight"),
            ("patch_embed.proj", "embeddings.patch_embedding"),
            ("norm_pre", "pre_layrnorm"),
            ("blocks.", "encoder.layers."),
            ("attn.proj", "self_attn.out_proj"),
            ("attn.", "self_attn."),
            ("self_self_", "self_"),
            (".norm1", ".layer_norm1"),
            (".norm2", ".layer_norm2"),
        ],
    )
    named = {
        k.replace("norm.", "post_layernorm.") if k[:5] == "norm." else k: named[k] for k in named
    }
    return {prefix + key: value for key, value in named.items()}


def _open_clip(state: State) -> State:
    flat = state | {"cls_token": state["cls_token"][0, 0], "pos_embed": state["pos_embed"][0]}
    named = _respelled(
        flat,
        [
            ("cls_token", "class_embedding"),
            ("pos_embed", "positional_embedding"),
            ("patch_embed.proj", "conv1"),
            ("norm_pre", "ln_pre"),
            ("blocks.", "transformer.resblocks."),
            ("attn.proj", "attn.out_proj"),
            ("attn.qkv.", "attn.in_proj_"),
            (".norm1", ".ln_1"),
            (".norm2", ".ln_2"),
            ("mlp.fc1", "mlp.c_fc"),
            ("mlp.fc2", "mlp.c_proj"),
        ],
    )
    named = _last_norm(named, "ln_post")
    return {"visual." + key: value for key, value in named.items()}


def _without_norm(state: State) -> State:
    return {k: v for k, v in state.items() if k not in ("norm.weight", "norm.bias")}


PLAIN, GATED, BIASED = _dinov3(), _dinov3(swiglu=True), _dinov3(biased=True)
CASES = {
    "timm": ("timm", PLAIN, PLAIN),
    "timm with a bias": ("timm", BIASED, BIASED),
    "Meta's DINOv3": ("meta", _meta_v3(PLAIN), PLAIN),
    "Meta's DINOv3 with SwiGLU": ("meta", _meta_v3(GATED), GATED),
    "Meta's DINOv3 with a bias": ("meta", _meta_v3(BIASED), BIASED),
    "Meta's DINOv2": ("meta", _meta_v2(_dinov2()), _dinov2()),
    "transformers' DINOv3": ("transformers", _transformers_v3(PLAIN), PLAIN),
    "transformers' DINOv3 with a gate": ("transformers", _transformers_v3(GATED), GATED),
    "transformers' DINOv3 with a bias": ("transformers", _transformers_v3(BIASED), BIASED),
    "transformers' DINOv2": ("transformers", _without_norm(_transformers_v2(_dinov2())), _dinov2()),
    "timm's plain DINOv2": ("timm", _dinov2_plain(), _dinov2_plain()),
    # Without registers Meta's names are timm's; its file has a mask token more.
    "Meta's plain DINOv2": ("timm", _dinov2_plain(), _dinov2_plain()),
    "transformers' plain DINOv2": (
        "transformers",
        _without_norm(_transformers_v2(_dinov2_plain())),
        _dinov2_plain(),
    ),
    "transformers' CLIP": ("transformers", _transformers_clip(_clip(), "vision_model."), _clip()),
    "its vision tower": ("transformers", _transformers_clip(_clip(), ""), _clip()),
    "open_clip": ("open_clip", _open_clip(_clip()), _clip()),
}


@pytest.mark.parametrize("case", CASES)
def test_every_layout_comes_back_as_the_same_tensors(case: str) -> None:
    layout, given, expected = CASES[case]
    if layout != "timm":
        assert given.keys() != expected.keys()  # the case changes something
    actual = convert(layout, given, list(expected))
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, msg=key)


MASK = {"mask_token": torch.zeros(1, D)}
PERIODS = {"rope_embed.periods": (100 ** (torch.arange(16) / 16)).bfloat16()}
THEIR_MASK = {"embeddings.mask_token": torch.zeros(1, 1, D)}
TEXT = {
    "logit_scale": torch.ones(()),
    "text_projection.weight": torch.zeros(D, D),
    "text_model.final_layer_norm.bias": torch.zeros(D),
    "vision_model.embeddings.position_ids": torch.arange(10),
}
OTHER_TEXT = {
    "logit_scale": torch.ones(()),
    "visual.proj": torch.zeros(D, D),
    "positional_embedding": torch.zeros(7, D),
    "transformer.resblocks.0.ln_1.bias": torch.zeros(D),
}
FILES = {
    "timm": ("dinov3-s", {}),
    "timm with a bias": ("dinov3-s", {}),
    "Meta's DINOv3": ("dinov3-s", MASK | PERIODS),
    "Meta's DINOv3 with SwiGLU": ("dinov3-splus", MASK | PERIODS),
    "Meta's DINOv3 with a bias": ("dinov3-s", MASK | PERIODS),
    "Meta's DINOv2": ("dinov2-s", MASK),
    "transformers' DINOv3": ("dinov3-s", THEIR_MASK),
    "transformers' DINOv3 with a gate": ("dinov3-splus", THEIR_MASK),
    "transformers' DINOv3 with a bias": ("dinov3-s", THEIR_MASK),
    "transformers' DINOv2": ("dinov2-s", THEIR_MASK),
    "timm's plain DINOv2": ("dinov2-s-plain", {}),
    "Meta's plain DINOv2": ("dinov2-s-plain", MASK),
    "transformers' plain DINOv2": ("dinov2-s-plain", THEIR_MASK),
    "transformers' CLIP": ("clip-b", TEXT),
    "its vision tower": ("clip-b", {}),
    "open_clip": ("clip-b", OTHER_TEXT),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_of_every_library_is_read_as_it_is_published(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format, layout and further contents are found out from the file alone."""
    _, given, expected = CASES[case]
    backbone, surplus = FILES[case]
    recipe = load_recipe(backbone)
    biased = "blocks.0.attn.q_bias" in expected

    def create(_: Recipe, architecture: str) -> Any:
        keeps = architecture.endswith("_qkvb")
        wanted = {
            k: v for k, v in expected.items() if keeps or not k.endswith(("q_bias", "v_bias"))
        }
        return SimpleNamespace(state_dict=lambda: wanted)

    monkeypatch.setattr(weights, "create_model", create)
    file = tmp_path / ("official.pth" if case.startswith("Meta") else "model.safetensors")
    write = torch.save if file.suffix == ".pth" else safetensors.torch.save_file
    write({k: v.clone() for k, v in (given | surplus).items()}, file)
    loaded = weights.load_weights(recipe, str(file))
    assert loaded.architecture == (recipe.variants["qkv-bias"] if biased else recipe.architecture)
    assert loaded.state.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(loaded.state[key], value, msg=key)
    write({k: v.clone() for k, v in (given | {"surprise": torch.zeros(1)}).items()}, file)
    with pytest.raises(UsageError, match=r"does not fit .*: 1 left over \(surprise\)"):
        weights.load_weights(recipe, str(file))


def test_names_as_the_libraries_write_them() -> None:
    """A few keys are written out, so that a mistake in this file's own tables would show."""
    assert "storage_tokens" in _meta_v3(PLAIN) and "blocks.1.ls2.gamma" in _meta_v3(PLAIN)
    assert "layer.1.attention.o_proj.weight" in _transformers_v3(PLAIN)
    assert "layer.0.attention.k_proj.bias" not in _transformers_v3(BIASED)
    assert "encoder.layer.1.attention.attention.query.bias" in _transformers_v2(_dinov2())
    clip = _transformers_clip(_clip(), "vision_model.")
    assert "vision_model.encoder.layers.0.self_attn.out_proj.bias" in clip
    assert {"vision_model.pre_layrnorm.bias", "vision_model.post_layernorm.bias"} <= clip.keys()
    assert "visual.transformer.resblocks.1.attn.in_proj_bias" in _open_clip(_clip())


def test_a_bias_that_is_not_zero_asks_for_the_model_that_has_one() -> None:
    for layout, given in (("meta", _meta_v3(BIASED)), ("transformers", _transformers_v3(BIASED))):
        extra = convert(layout, given, list(PLAIN)).keys() - PLAIN.keys()
        assert extra == {f"blocks.{i}.attn.{n}_bias" for i in range(DEPTH) for n in "qv"}
    zero = {k: torch.zeros_like(v) if k.endswith("_bias") else v for k, v in BIASED.items()}
    assert convert("timm", zero, list(PLAIN)).keys() == PLAIN.keys()
    assert convert("timm", zero, list(BIASED)).keys() == BIASED.keys()
    one = zero | {"blocks.1.attn.v_bias": BIASED["blocks.1.attn.v_bias"]}
    assert convert("timm", one, list(PLAIN)).keys() == BIASED.keys()  # all of the biases, or none


def test_the_mask_hides_the_keys_bias_and_nothing_else_does() -> None:
    masked = _meta_v3(BIASED, masked=7.0)
    bare = {k: v for k, v in masked.items() if not k.endswith("bias_mask")}
    with pytest.raises(UsageError, match=r"blocks.0.attn.qkv.bias has a part for the keys"):
        convert("meta", bare, list(BIASED))
    fresh = {k: v * math.nan if k.endswith("bias_mask") else v for k, v in masked.items()}
    for key, value in convert("meta", fresh, list(BIASED)).items():
        torch.testing.assert_close(value, BIASED[key], msg=key)


def test_a_missing_bias_stays_missing_where_the_model_wants_all_three() -> None:
    given = _transformers_clip(_clip(), "")
    del given["encoder.layers.1.self_attn.k_proj.bias"]
    actual = convert("transformers", given, list(_clip()))
    assert _clip().keys() - actual.keys() == {"blocks.1.attn.qkv.bias"}


def test_a_flat_patch_embedding_becomes_a_convolution() -> None:
    given = _meta_v3(PLAIN)
    given["patch_embed.proj.weight"] = given["patch_embed.proj.weight"].flatten(1)
    actual = convert("meta", given, list(PLAIN))["patch_embed.proj.weight"]
    assert torch.equal(actual, PLAIN["patch_embed.proj.weight"])


def test_half_precision_positions_are_added_in_full() -> None:
    given = {k: v.half() for k, v in _with_class_position(_dinov2()).items()}
    given["cls_token"] = torch.ones(1, 1, D).half()
    given["pos_embed"][:, 0] = 2.0**-12  # lost in a sum of float16 numbers
    token = convert("meta", given, list(_dinov2()))["cls_token"]
    assert torch.equal(token, torch.full((1, 1, D), 1 + 2.0**-12))


def test_surplus_keys_keep_a_name_the_recipe_can_know() -> None:
    given = _transformers_v3(PLAIN) | {"embeddings.mask_token": torch.zeros(1, 1, D)}
    assert convert("transformers", given, list(PLAIN)).keys() - PLAIN.keys() == {"mask_token"}
    text = "text_model.encoder.layers.0.self_attn.q_proj.weight"
    given = _transformers_clip(_clip(), "vision_model.") | {text: torch.zeros(2, 2)}
    assert convert("transformers", given, list(_clip())).keys() - _clip().keys() == {text}
    text = "transformer.resblocks.0.ln_1.weight"
    given = _open_clip(_clip()) | {text: torch.zeros(2), "visual.proj": torch.zeros(2, 2)}
    assert convert("open_clip", given, list(_clip())).keys() - _clip().keys() == {
        text,
        "visual.proj",
    }


def test_two_keys_of_one_meaning_are_refused() -> None:
    given = _meta_v3(PLAIN) | {"register_tokens": torch.zeros(1, 4, D)}
    with pytest.raises(UsageError, match="keys storage_tokens and register_tokens both are reg_t"):
        convert("meta", given, list(PLAIN))


def test_another_rotation_is_refused_and_a_rounded_one_is_not() -> None:
    periods = 100 ** (torch.arange(16) / 16)
    for given in (periods, periods.bfloat16()):
        convert("meta", _meta_v3(PLAIN) | {"rope_embed.periods": given}, list(PLAIN))
    other = 10000 ** (torch.arange(16) / 16)
    with pytest.raises(UsageError, match="not those of a rotation of base 100"):
        convert("meta", _meta_v3(PLAIN) | {"rope_embed.periods": other}, list(PLAIN))
