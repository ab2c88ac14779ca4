"""timm's vision transformers (DINOv3, DINOv2, CLIP): a tap is the end of a block.

The exported form computes the same as timm's, but is written differently: positions are constant,
attention is written out with one fused projection, prefix tokens are added by a constant table so
that no shape depends on the batch, the patch embedding normalizes the pixels, and LayerScale and
the scale of the queries are folded into the weights before them. A bias of keys that softmax
cancels is left out, and for a GPU the bias of values is part of the projection behind attention.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from anoco_edge_export.families import StateDict, Tensor, vit_keys
from anoco_edge_export.lazy_import import lazy_import

convert = vit_keys.convert

# Above _LONG tokens, attention in FP32 is computed for at most _ROWS queries at a time. At 768 px
# all logits of a block would take 128 MB (ViT-S); these take 18 MB and stay in the cache, which is
# a tenth faster in ONNX Runtime on a CPU. Other precisions are for GPUs: TensorRT fuses attention
# that is whole, and then no logit leaves the chip.
_LONG, _ROWS = 1024, 384


def official(model: Any, taps: Sequence[str], norm: bool) -> Any:
    """Return a module that runs timm's own `forward_intermediates`, cut after the last tap."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    indices = [_index(tap) for tap in taps]

    class OfficialBackbone(base):  # type: ignore[misc]  # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> tuple[list[Tensor], StateDict]:
            ends: StateDict = {}
            hooks = [
                block.register_forward_hook(
                    lambda _module, _inputs, output, name=f"blocks.{i}": ends.update({name: output})
                )
                for i, block in enumerate(self.model.blocks[: indices[-1] + 1])
            ]
            try:
                tapped = self.model.forward_intermediates(
                    x,
                    indices=indices,
                    norm=norm,
                    stop_early=True,
                    output_fmt="NLC",
                    intermediates_only=True,
                )
            finally:
                for hook in hooks:
                    hook.remove()
            return tapped, ends

    return OfficialBackbone()


def rewritten(
    model: Any,
    taps: Sequence[str],
    norm: bool,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    whole: bool = False,
) -> Any:
    """Return a module that takes raw pixels; the model's blocks keep all but their attention."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    last = max(_index(tap) for tap in taps)
    rope = _rope(model)

    class RewrittenBackbone(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = _folded(model.patch_embed.proj, mean, std)
            self.register_buffer("table", _table(model))
            self.prefix = model.num_prefix_tokens
            self.norm_pre = model.norm_pre
            self.blocks = model.blocks[: last + 1]
            self.norm = model.norm if norm else torch.nn.Identity()
            for block in self.blocks:
                _fold_layer_scale(block)
                block.attn = _attention(block.attn, rope, self.table.shape[1], whole)
                if isinstance(block.mlp.act, torch.nn.GELU):
                    block.mlp.act = _gelu()

        def tokens(self, pixels: Any) -> Any:
            """Return the tokens that the first block gets, those of all pictures in one matrix."""
            x = self.embed(pixels).flatten(2).transpose(1, 2)
            # The padding makes room for the prefix tokens, which the table adds: no shape depends
            # on the batch.
            x = torch.nn.functional.pad(x, (0, 0, self.prefix, 0)) + self.table
            # All tokens form one matrix: a product then includes its bias. With three dimensions
            # runtimes pass over the memory once more to add it.
            return self.norm_pre(x.reshape(-1, self.table.shape[2]))

        def forward(self, pixels: Any) -> tuple[list[Tensor], StateDict]:
            _, tokens, dim = self.table.shape
            x = self.tokens(pixels)
            ends = {}
            for i, block in enumerate(self.blocks):
                ends[f"blocks.{i}"] = x = block(x)
            tapped = [self.norm(ends[tap]).reshape(-1, tokens, dim) for tap in taps]
            return [t[:, self.prefix :] for t in tapped], ends

    return RewrittenBackbone()


def for_sequences_of(blocks: Any, tokens: int) -> Any:
    """Return rewritten blocks with the same weights, for sequences of so many tokens."""
    torch = lazy_import("torch")
    resized = []
    for block in blocks:
        one = copy.copy(block)
        one._modules = dict(block._modules)
        one.attn = copy.copy(block.attn)
        one.attn.tokens = tokens
        resized.append(one)
    return torch.nn.ModuleList(resized)


def draw(state: StateDict, generator: Any) -> None:
    """Redraw weights at the scale of a trained model.

    timm initializes LayerScale with 1e-5, so that a block that computes nonsense changes the output
    by 1e-7, and attention so flat that its logits hardly matter. Neither would test anything.
    """
    torch = lazy_import("torch")

    def normal(value: Any, std: float, mean: float = 0.0) -> None:
        value.copy_(torch.empty_like(value).normal_(mean, std, generator=generator))

    for key, value in state.items():
        if "gamma" in key:
            value.copy_(torch.empty_like(value).uniform_(0.05, 0.5, generator=generator))
        elif key.endswith(("attn.qkv.weight", "mlp.fc1.weight", "fc1_g.weight", "fc1_x.weight")):
            normal(value, 1.3 / value.shape[1] ** 0.5)
        elif key.endswith(("attn.proj.weight", "mlp.fc2.weight")):
            normal(value, 0.7 / value.shape[1] ** 0.5)
        elif "norm" in key:
            normal(value, 0.2, 1.0 if key.endswith("weight") else 0.0)
        elif key.endswith("bias"):
            normal(value, 0.1)
        elif key in ("cls_token", "reg_token", "pos_embed"):
            normal(value, 0.3)
        elif key == "patch_embed.proj.weight":
            normal(value, 1.0 / value[0].numel() ** 0.5)


def _index(tap: str) -> int:
    return int(tap.removeprefix("blocks."))


def _folded(proj: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """Fold the normalization into the patch embedding; this is exact, because it does not pad."""
    torch = lazy_import("torch")
    weight = proj.weight.double()
    m = torch.tensor(mean, dtype=torch.float64).reshape(1, 3, 1, 1)
    s = torch.tensor(std, dtype=torch.float64).reshape(1, 3, 1, 1)
    bias = -(weight * (m / s)).sum(dim=(1, 2, 3))
    if proj.bias is not None:
        bias = bias + proj.bias.double()
    folded = torch.nn.Conv2d(
        proj.in_channels, proj.out_channels, proj.kernel_size, stride=proj.stride, bias=True
    )
    folded.weight.data = (weight / (255 * s)).float()
    folded.bias.data = bias.float()
    return folded


def _fold_layer_scale(block: Any) -> None:
    """Fold LayerScale into the product before it: it saves two passes over the tokens per block."""
    torch = lazy_import("torch")
    for index, linear in ((1, block.attn.proj), (2, block.mlp.fc2)):
        if hasattr(block, f"gamma_{index}"):  # timm's Eva, which is DINOv3
            gamma = getattr(block, f"gamma_{index}")
            setattr(block, f"gamma_{index}", None)
        else:
            gamma = getattr(getattr(block, f"ls{index}"), "gamma", None)
            setattr(block, f"ls{index}", torch.nn.Identity())
        if gamma is not None:
            _scale_rows(linear, gamma)


def _scale_rows(linear: Any, factors: Any) -> None:
    """Multiply each output of a Linear by its own factor."""
    factors = factors.detach().double()
    linear.weight.data = (linear.weight.double() * factors[:, None]).float()
    if linear.bias is not None:
        linear.bias.data = (linear.bias.double() * factors).float()


def _table(model: Any) -> Any:
    """Return positions and prefix tokens, [1, prefix + patches, d], to add to padded patches."""
    torch = lazy_import("torch")
    rows, cols = model.patch_embed.grid_size
    prefix = [t for t in (model.cls_token, model.reg_token) if t is not None]
    tokens = torch.cat([*prefix, torch.zeros(1, rows * cols, model.embed_dim)], dim=1)
    position = model.pos_embed
    if position is not None:
        missing = tokens.shape[1] - position.shape[1]
        if missing not in (0, model.num_prefix_tokens):
            raise ValueError(f"{position.shape[1]} positions for {tokens.shape[1]} tokens")
        tokens = tokens + torch.nn.functional.pad(position, (0, 0, missing, 0))
    return tokens.detach().clone()


def _rope(model: Any) -> Any:
    """Return sine and cosine of the rotary embedding, [2, prefix + patches, head], or None.

    The sine is signed for swapped halves. Prefix tokens are not rotated: sine 0, cosine 1.
    """
    rope = getattr(model, "rope", None)
    if rope is None:
        return None
    torch = lazy_import("torch")
    if not model.blocks[0].attn.rotate_half:
        raise ValueError("only rotary embeddings that swap halves are known")
    sin, cos = rope.get_embed(shape=model.patch_embed.grid_size).detach().chunk(2, dim=-1)
    half = sin.shape[-1] // 2
    signed = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
    pad = (0, 0, model.num_prefix_tokens, 0)
    functional = torch.nn.functional
    return torch.stack([functional.pad(signed, pad), functional.pad(cos, pad, value=1.0)])


def _gelu() -> Any:
    """Return GELU in the order of operations that ONNX Runtime and TensorRT fuse."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module

    class Gelu(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * (torch.erf(x / 2**0.5) + 1.0) * 0.5

    return Gelu()


def _attention(source: Any, rope: Any, tokens: int, whole: bool) -> Any:
    """Return timm's attention with one fused projection and a constant rotation."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    _plain(source)

    heads = source.num_heads

    class Attention(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = _scaled_qkv(source, rotated=rope is not None)
            self.proj = source.proj
            self.tokens = tokens
            if rope is not None:
                self.register_buffer("sin", rope[0])
                self.register_buffer("cos", rope[1])
            if whole:
                for name, bias in _moved_biases(self, heads).items():
                    self.register_buffer(name, bias)

        def rotated(self, x: Any) -> Any:
            if rope is None:
                return x
            first, second = x.chunk(2, dim=-1)
            return x * self.cos + torch.cat([second, first], dim=-1) * self.sin

        def forward(self, x: Any, **_unused: Any) -> Any:  # timm passes rope and masks
            dim, tokens = x.shape[-1], self.tokens
            qkv = self.qkv(x).reshape(-1, tokens, 3, heads, dim // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            if hasattr(self, "q_bias"):
                q, k = q + self.q_bias, k + self.k_bias if rope is not None else k
            # One after the other: together they do not fit the cache and take as long or longer.
            q, k = self.rotated(q), self.rotated(k).transpose(-2, -1)
            parts = q.chunk(-(-tokens // _ROWS), dim=2) if not whole and tokens > _LONG else (q,)
            mixed = [(part @ k).softmax(dim=-1) @ v for part in parts]
            joined = torch.cat(mixed, dim=2) if len(mixed) > 1 else mixed[0]
            return self.proj(joined.transpose(1, 2).reshape(-1, dim))

    return Attention()


def _scaled_qkv(source: Any, rotated: bool) -> Any:
    """Return the fused projection with the scale of the queries folded in.

    Unless keys are rotated, their bias b adds the same q b to all logits of a query, and softmax
    does not see it: it is left out. In FP16 it costs digits: on a trained DINOv2-S at 518 px the
    largest logit is 36 without it, and 321 with it.
    """
    torch = lazy_import("torch")
    qkv = torch.nn.Linear(1, 1)
    qkv.weight.data = source.qkv.weight.data
    qkv.bias = _qkv_bias(source)
    rows = qkv.weight.shape[0]
    factors = torch.ones(rows, dtype=torch.float64)
    factors[: rows // 3] = source.scale
    _scale_rows(qkv, factors)
    if qkv.bias is not None and not rotated:
        qkv.bias.data[rows // 3 : 2 * rows // 3] = 0
    return qkv


def _moved_biases(attention: Any, heads: int) -> StateDict:
    """Take the bias out of the fused projection; return those to add to queries and keys.

    The rows of a softmax add up to 1, so that the bias of the values passes through it, and the
    bias of the projection behind includes it from here on. TensorRT brings queries, keys and values
    into place in one kernel then; if the projection has a bias, it takes a kernel for each.
    """
    torch, (qkv, proj) = lazy_import("torch"), (attention.qkv, attention.proj)
    if qkv.bias is None:
        return {}
    queries, keys, values = qkv.bias.data.double().chunk(3)
    passed = proj.weight.double() @ values
    if proj.bias is not None:
        passed += proj.bias.double()
    proj.bias = torch.nn.Parameter(passed.float(), requires_grad=False)
    qkv.bias = None
    parts = {"q_bias": queries, "k_bias": keys}
    return {name: bias.float().reshape(heads, 1, -1) for name, bias in parts.items()}


def _qkv_bias(source: Any) -> Any:
    torch = lazy_import("torch")
    if getattr(source, "q_bias", None) is not None:
        return torch.nn.Parameter(torch.cat((source.q_bias, source.k_bias, source.v_bias)).detach())
    return source.qkv.bias


def _plain(source: Any) -> None:
    """Refuse an attention that the exported form does not cover."""
    torch = lazy_import("torch")
    for name in ("q_norm", "k_norm", "norm"):
        if not isinstance(getattr(source, name), torch.nn.Identity):
            raise ValueError(f"attention with {name} is not known")
    if source.gate is not None or source.qkv is None:
        raise ValueError("gated attention, or one without a fused projection, is not known")
