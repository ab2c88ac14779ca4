"""CLIP's text transformer in torch, with weights under open_clip's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError
from anoco_edge_export.families import StateDict, Tensor
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import TextTower

_NORM_EPS = 1e-5  # of open_clip's LayerNorm
_AT_ONCE = 64  # texts; their activations then take some ten megabytes


def text_shapes(tower: TextTower, embedding: int) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of the text side.

    >>> tower = TextTower(width=8, heads=2, layers=1, context=5, vocabulary=9)
    >>> text_shapes(tower, 4)["text_projection"]
    (8, 4)
    """
    width, hidden = tower.width, 4 * tower.width
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding.weight": (tower.vocabulary, width),
        "positional_embedding": (tower.context, width),
        "ln_final.weight": (width,),
        "ln_final.bias": (width,),
        "text_projection": (width, embedding),
    }
    for layer in range(tower.layers):
        block = f"transformer.resblocks.{layer}."
        shapes |= {f"{block}ln_{i}.{part}": (width,) for i in (1, 2) for part in ("weight", "bias")}
        for name, rows, cols in (
            ("attn.in_proj_", 3 * width, width),
            ("attn.out_proj.", width, width),
            ("mlp.c_fc.", hidden, width),
            ("mlp.c_proj.", width, hidden),
        ):
            shapes |= {f"{block}{name}weight": (rows, cols), f"{block}{name}bias": (rows,)}
    return shapes


def text_state(
    tower: TextTower, embedding: int, given: Mapping[str, Tensor], name: str
) -> StateDict:
    """Return the tensors of the text side from the file `name`, whose other tensors are ignored."""
    state: StateDict = {}
    for key, shape in text_shapes(tower, embedding).items():
        if key not in given:
            raise UsageError(
                f"{name} has no text side: {key} is missing",
                hint="pass the file of open_clip as `weights`, which holds both sides",
            )
        if tuple(given[key].shape) != shape:
            raise UsageError(
                f"{name} has {key} of shape {tuple(given[key].shape)}, expected {shape}",
                hint="pass the open_clip weights of this backbone",
            )
        state[key] = given[key].float()
        if not bool(state[key].isfinite().all()):
            raise UsageError(f"{name} has NaN or infinity in {key}", hint="fetch the file again")
    return state


def random_text_state(tower: TextTower, embedding: int, seed: int) -> StateDict:
    """Draw weights of the scale of a trained model; they serve tests and benchmarks only."""
    torch = lazy_import("torch")
    generator = torch.Generator().manual_seed(seed)
    state: StateDict = {}
    for key, shape in text_shapes(tower, embedding).items():
        norm = ".ln_" in key or key.startswith("ln_")
        std = 0.2 if norm else 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        mean = 1.0 if norm and key.endswith("weight") else 0.0
        state[key] = torch.empty(shape).normal_(mean, std, generator=generator)
    return state


def encode_texts(
    tower: TextTower, state: Mapping[str, Tensor], tokens: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the embedding of each row of tokens: what the last block gives at the text's end.

    A token sees those before it alone, so the rows are cut after the longest text.
    """
    torch = lazy_import("torch")
    ends = tokens.argmax(axis=1)  # the token that ends a text has the highest number
    shown = torch.from_numpy(np.ascontiguousarray(tokens[:, : int(ends.max()) + 1]))
    found = []
    with torch.no_grad():
        for start in range(0, len(tokens), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            x = _transformed(tower, state, shown[some])
            last = x[torch.arange(len(x)), torch.from_numpy(ends[some])]
            found.append((last @ state["text_projection"]).numpy())
    return np.concatenate(found).astype(np.float32)


def _transformed(tower: TextTower, state: Mapping[str, Tensor], tokens: Any) -> Any:
    functional = lazy_import("torch").nn.functional

    def normed(x: Any, name: str) -> Any:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        return functional.layer_norm(x, (tower.width,), weight, bias, _NORM_EPS)

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, state[f"{name}weight"], state[f"{name}bias"])

    length = tokens.shape[1]
    x = state["token_embedding.weight"][tokens] + state["positional_embedding"][:length]
    for layer in range(tower.layers):
        block = f"transformer.resblocks.{layer}."
        joined = linear(normed(x, f"{block}ln_1"), f"{block}attn.in_proj_")
        q, k, v = joined.unflatten(-1, (3, tower.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(mixed.transpose(1, 2).flatten(2), f"{block}attn.out_proj.")
        hidden = functional.gelu(linear(normed(x, f"{block}ln_2"), f"{block}mlp.c_fc."))
        x = x + linear(hidden, f"{block}mlp.c_proj.")
    return normed(x, "ln_final")
