"""Key layouts of vision transformers: how files name tensors, and how they split them.

`transformers` is the layout of Hugging Face (DINOv3, DINOv2 with or without registers, CLIP with
or without its text tower), `meta` that of the official DINOv3 and DINOv2 files, `open_clip` that of
open_clip and OpenAI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from anoco_edge.errors import UsageError
from anoco_edge_export.families import StateDict, Tensor
from anoco_edge_export.lazy_import import lazy_import

# The gate of a SwiGLU goes through the SiLU. timm calls it fc1_g, Meta calls it w1.
_META = (
    (r"(?:storage|register)_tokens", "reg_token"),
    (r"blocks\.(\d+)\.mlp\.w1\.(\w+)", r"blocks.\1.mlp.fc1_g.\2"),
    (r"blocks\.(\d+)\.mlp\.w2\.(\w+)", r"blocks.\1.mlp.fc1_x.\2"),
    (r"blocks\.(\d+)\.mlp\.w3\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
)
_DINOV3 = (
    (r"embeddings\.(cls_token|mask_token)", r"\1"),
    (r"embeddings\.register_tokens", "reg_token"),
    (r"embeddings\.patch_embeddings\.(weight|bias)", r"patch_embed.proj.\1"),
    (r"layer\.(\d+)\.norm([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (r"layer\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"blocks.\1.attn.\2.\3"),
    (r"layer\.(\d+)\.attention\.o_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (r"layer\.(\d+)\.layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (r"layer\.(\d+)\.mlp\.gate_proj\.(\w+)", r"blocks.\1.mlp.fc1_g.\2"),
    (r"layer\.(\d+)\.mlp\.up_proj\.(\w+)", r"blocks.\1.mlp.{up}.\2"),
    (r"layer\.(\d+)\.mlp\.down_proj\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
)
_DINOV2 = (
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
    (r"encoder\.layer\.(\d+)\.norm([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (
        r"encoder\.layer\.(\d+)\.attention\.attention\.(q|k|v)(?:uery|ey|alue)\.(\w+)",
        r"blocks.\1.attn.\2.\3",
    ),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (r"encoder\.layer\.(\d+)\.layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (r"encoder\.layer\.(\d+)\.mlp\.(fc[12]\.\w+)", r"blocks.\1.mlp.\2"),
    (r"layernorm\.(\w+)", r"norm.\1"),
)
_TOWER = r"(?:vision_model\.)?"  # only older files of the vision tower have this prefix
_CLIP = (
    (_TOWER + r"embeddings\.class_embedding", "cls_token"),
    (_TOWER + r"embeddings\.position_embedding\.weight", "pos_embed"),
    (_TOWER + r"embeddings\.patch_embedding\.weight", "patch_embed.proj.weight"),
    (_TOWER + r"pre_layrnorm\.(\w+)", r"norm_pre.\1"),  # spelled so
    (_TOWER + r"post_layernorm\.(\w+)", r"norm.\1"),
    (_TOWER + r"encoder\.layers\.(\d+)\.layer_norm([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (_TOWER + r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"blocks.\1.attn.\2.\3"),
    (_TOWER + r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (_TOWER + r"encoder\.layers\.(\d+)\.mlp\.(fc[12]\.\w+)", r"blocks.\1.mlp.\2"),
)
_BLOCK = r"visual\.transformer\.resblocks\.(\d+)\."
_OPEN_CLIP = (
    (r"visual\.class_embedding", "cls_token"),
    (r"visual\.positional_embedding", "pos_embed"),
    (r"visual\.conv1\.weight", "patch_embed.proj.weight"),
    (r"visual\.ln_pre\.(\w+)", r"norm_pre.\1"),
    (r"visual\.ln_post\.(\w+)", r"norm.\1"),
    (_BLOCK + r"ln_([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (_BLOCK + r"attn\.in_proj_(weight|bias)", r"blocks.\1.attn.qkv.\2"),
    (_BLOCK + r"attn\.out_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (_BLOCK + r"mlp\.c_fc\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (_BLOCK + r"mlp\.c_proj\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
)
_ROPE_BASE = 100.0
_RULES = {"meta": _META, "transformers": _DINOV3 + _DINOV2 + _CLIP, "open_clip": _OPEN_CLIP}


def convert(layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
    """Return the tensors of a file in `layout` under timm's names and in timm's shapes.

    A key without a rule stays as it is. A bias of query and value that is zero throughout is left
    out when `wanted` has none.

    >>> list(convert("open_clip", {"visual.ln_pre.bias": 1, "ln_final.bias": 2}, []))
    ['norm_pre.bias', 'ln_final.bias']
    """
    names = set(wanted)
    separate = "blocks.0.attn.qkv.bias" not in names  # timm's Eva: q_bias and v_bias, or none
    out = renamed(state, _renamer(layout, state))
    if layout == "meta":
        _check_periods(out)
    if layout in ("meta", "transformers"):
        out = _joined(out, key_bias=not separate)
        if {"reg_token", "pos_embed"} <= names:
            out = _class_position_folded(out)
    if layout != "timm":
        out = _shaped(out)
    if separate and layout in ("meta", "transformers"):
        out = _separate_bias(out)
    if "blocks.0.gamma_1" in names:
        out = renamed(out, lambda k: re.sub(r"^(blocks\.\d+)\.ls([12])\.gamma$", r"\1.gamma_\2", k))
    return _without_zero_bias(out, names)


def renamed(state: Mapping[str, Tensor], rename: Callable[[str], str]) -> StateDict:
    """Return `state` under other names; raise UsageError if two keys would become one.

    >>> renamed({"a": 1, "b": 2}, lambda key: "c")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: keys a and b both are c; pass a file with one of them
    """
    origin: dict[str, str] = {}
    for key in state:
        name = rename(key)
        if name in origin:
            raise UsageError(
                f"keys {origin[name]} and {key} both are {name}",
                hint="pass a file with one of them",
            )
        origin[name] = key
    return {name: state[key] for name, key in origin.items()}


def _renamer(layout: str, state: Iterable[str]) -> Callable[[str], str]:
    # up_proj is the first of two layers; with a gate it is what the gate multiplies.
    gated = any(".mlp.gate_proj." in key for key in state)
    up = "fc1_x" if gated else "fc1"
    rules = [(re.compile(p), to.replace("{up}", up)) for p, to in _RULES.get(layout, ())]

    def rename(key: str) -> str:
        for pattern, to in rules:
            if match := pattern.fullmatch(key):
                return match.expand(to)
        return key

    return rename


def _check_periods(state: StateDict) -> None:
    """Check that the rotation is the published one.

    Meta stores its periods rounded to bfloat16; timm computes them from the published base.
    """
    periods = state.get("rope_embed.periods")
    if periods is None:
        return
    torch = lazy_import("torch")
    expected = _ROPE_BASE ** (torch.arange(periods.numel()) / periods.numel())
    if not torch.allclose(periods.float(), expected, rtol=0.01, atol=0.0):
        raise UsageError(
            f"rope_embed.periods are not those of a rotation of base {_ROPE_BASE:g}",
            hint="pass the published weights of this backbone",
        )


def _joined(state: StateDict, key_bias: bool) -> StateDict:
    """Join query, key and value into one matrix, as timm has them, and apply Meta's bias mask."""
    torch = lazy_import("torch")
    out = dict(state)
    for part in ("weight", "bias"):
        for block in [k[: -len(f".q.{part}")] for k in state if k.endswith(f".attn.q.{part}")]:
            keys = [f"{block}.{which}.{part}" for which in "qkv"]
            if part == "bias" and not key_bias and keys[1] not in out:
                out[keys[1]] = torch.zeros_like(out[keys[0]])  # DINOv3 has no bias for keys
            if all(key in out for key in keys):
                out[f"{block}.qkv.{part}"] = torch.cat([out.pop(key) for key in keys])
    for key in [k for k in state if k.endswith(".attn.qkv.bias_mask")]:
        bias = key.removesuffix("_mask")
        if bias in out:
            out[bias] = _masked(out[bias], out.pop(key))
    return out


def _masked(bias: Any, mask: Any) -> Any:
    """Return the bias that Meta's linear layer adds; a model never initialized has a NaN mask."""
    torch = lazy_import("torch")
    if bool(mask.isnan().all()):
        third = len(mask) // 3
        mask = torch.cat([torch.ones(third), torch.zeros(third), torch.ones(third)])
    return bias * mask.to(bias.dtype)


def _class_position_folded(state: StateDict) -> StateDict:
    """Add its position to the class token: with registers timm has positions of patches only."""
    if not {"pos_embed", "cls_token"} <= state.keys():
        return state
    position = state["pos_embed"]
    token = state["cls_token"].float() + position[:, :1].float()
    return state | {"cls_token": token, "pos_embed": position[:, 1:]}


def _shaped(state: StateDict) -> StateDict:
    """Add the leading dimensions that timm has, and shape the patch embedding as a convolution."""
    out = dict(state)
    for key, ndim in (("cls_token", 3), ("reg_token", 3), ("pos_embed", 3)):
        if key in out:
            out[key] = out[key].reshape((1,) * (ndim - out[key].ndim) + tuple(out[key].shape))
    patch = out.get("patch_embed.proj.weight")
    if patch is not None and patch.ndim == 2:
        side = round((patch.shape[1] / 3) ** 0.5)
        if 3 * side * side == patch.shape[1]:
            out["patch_embed.proj.weight"] = patch.reshape(-1, 3, side, side)
    return out


def _separate_bias(state: StateDict) -> StateDict:
    """Split the bias into those of query and value: timm's DINOv3 has none for the key."""
    out: StateDict = {}
    for key, value in state.items():
        if not key.endswith(".attn.qkv.bias") or value.ndim != 1 or len(value) % 3:
            out[key] = value
            continue
        q, k, v = value.chunk(3)
        if bool(k.any()):
            raise UsageError(
                f"{key} has a part for the keys that is not zero, which the model cannot hold",
                hint="pass the published weights of this backbone",
            )
        block = key.removesuffix("qkv.bias")
        out[f"{block}q_bias"], out[f"{block}v_bias"] = q, v
    return out


def _without_zero_bias(state: StateDict, wanted: set[str]) -> StateDict:
    extra = [k for k in state if k not in wanted and re.search(r"\.attn\.[qv]_bias$", k)]
    if any(bool(state[key].any()) for key in extra):
        return state
    return {key: value for key, value in state.items() if key not in extra}
