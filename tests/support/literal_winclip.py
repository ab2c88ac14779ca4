"""WinCLIP written out literally in float64, window by window, from the weights of open_clip.

Nothing here is shared with the package: pixels and token numbers go in, scores come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

Matrix = np.ndarray
Weights = Mapping[str, Matrix]
Associate = Callable[[Matrix, Matrix], Matrix]
"""Gives the score of each row against the references of one scale."""

MEAN = np.array([0.48145466, 0.4578275, 0.40821073])
STD = np.array([0.26862954, 0.26130258, 0.27577711])
SCALES = (2, 3)


@dataclass
class EncodedPicture:
    """What CLIP sees of a picture; windows have a scale and the place of their upper left patch."""

    patches: Matrix
    windows: dict[int, dict[tuple[int, int], Matrix]]
    picture: Matrix


def encode_picture(weights: Weights, heads: int, pixels: Matrix) -> EncodedPicture:
    """Run CLIP on a prepared picture, then once for each window with its tokens alone."""
    conv = weights["visual.conv1.weight"].astype(np.float64)
    side = conv.shape[-1]
    normalized = (pixels.astype(np.float64) / 255 - MEAN) / STD
    rows, cols = pixels.shape[0] // side, pixels.shape[1] // side
    tokens = [weights["visual.class_embedding"].astype(np.float64)]
    for row in range(rows):
        for col in range(cols):
            patch = normalized[row * side : (row + 1) * side, col * side : (col + 1) * side]
            tokens.append(np.einsum("dchw,hwc->d", conv, patch))
    first = np.stack(tokens) + weights["visual.positional_embedding"]
    first = layer_norm(weights, "visual.ln_pre", first)

    def run(chosen: Sequence[int]) -> Matrix:
        x = first[list(chosen)]
        x = transformer(weights, "visual.transformer", heads, x, causal=False)
        return layer_norm(weights, "visual.ln_post", x)

    whole = run(range(1 + rows * cols))
    windows: dict[int, dict[tuple[int, int], Matrix]] = {}
    for scale in SCALES:
        windows[scale] = {}
        for top in range(rows - scale + 1):
            for left in range(cols - scale + 1):
                inside = [
                    1 + row * cols + col
                    for row in range(top, top + scale)
                    for col in range(left, left + scale)
                ]
                windows[scale][top, left] = run([0, *inside])[0] @ weights["visual.proj"]
    return EncodedPicture(whole[1:], windows, whole[0] @ weights["visual.proj"])


def read_text(weights: Weights, heads: int, tokens: Sequence[int]) -> Matrix:
    """Run the text side on one text, with all of its zeros."""
    x = weights["token_embedding.weight"].astype(np.float64)[list(tokens)]
    x = x + weights["positional_embedding"]
    x = transformer(weights, "transformer", heads, x, causal=True)
    return layer_norm(weights, "ln_final", x)[int(np.argmax(tokens))] @ weights["text_projection"]


def mean_text(weights: Weights, heads: int, texts: Sequence[Sequence[int]]) -> Matrix:
    """Average the directions of several texts."""
    return unit(sum(unit(read_text(weights, heads, text)) for text in texts))


def half_of_one_minus_cosine(rows: Matrix, references: Matrix) -> Matrix:
    """Compare with every reference, and take the nearest."""
    return np.array([min((1 - unit(q) @ unit(r)) / 2 for r in references) for q in rows])


def score(
    query: EncodedPicture,
    references: Sequence[EncodedPicture],
    text: tuple[Matrix, Matrix],
    shape: tuple[int, int],
    temperature: float = 0.07,
    associate: Associate = half_of_one_minus_cosine,
) -> tuple[Matrix, float]:
    """Return the map of patches and the score of the picture; `text` is good, then damaged."""
    rows, cols = shape

    def damaged(row: Matrix) -> float:
        good, bad = (math.exp(unit(row) @ unit(t) / temperature) for t in text)
        return bad / (good + bad)

    whole = damaged(query.picture)
    prompted = [np.full(shape, whole)]
    patches = associate(query.patches, np.concatenate([r.patches for r in references]))
    associated = [patches.reshape(shape)]
    for scale in SCALES:
        places = list(query.windows[scale])
        own = np.stack([query.windows[scale][place] for place in places])
        others = np.stack([w for r in references for w in r.windows[scale].values()])
        by_prompt = dict(zip(places, map(damaged, own), strict=True))
        by_window = dict(zip(places, associate(own, others), strict=True))
        for found, maps in ((by_prompt, prompted), (by_window, associated)):
            one = np.empty(shape)
            for row in range(rows):
                for col in range(cols):
                    covering = [
                        value
                        for (top, left), value in found.items()
                        if 0 <= row - top < scale and 0 <= col - left < scale
                    ]
                    one[row, col] = harmonic(covering)
            maps.append(one)
    zero_shot = np.array([harmonic(values) for values in np.stack(prompted).reshape(3, -1).T])
    few_shot = sum(associated) / 3
    grid = (zero_shot.reshape(shape) + few_shot) / 2
    return grid, float((whole + few_shot.max()) / 2)


def harmonic(values: Sequence[float]) -> float:
    """Return the harmonic mean, which is 0 if one value is."""
    if min(values) <= 0:
        return 0.0
    return len(values) / sum(1 / value for value in values)


def transformer(weights: Weights, name: str, heads: int, x: Matrix, *, causal: bool) -> Matrix:
    """Run all blocks, head by head."""
    layers = 1 + max(int(k.split(".resblocks.")[1].split(".")[0]) for k in weights if in_(k, name))
    for layer in range(layers):
        block = f"{name}.resblocks.{layer}"
        y = layer_norm(weights, f"{block}.ln_1", x)
        y = y @ weights[f"{block}.attn.in_proj_weight"].T + weights[f"{block}.attn.in_proj_bias"]
        width = x.shape[1] // heads
        mixed = []
        for head in range(heads):
            q, k, v = (y[:, part * x.shape[1] + head * width :][:, :width] for part in range(3))
            logits = q @ k.T / math.sqrt(width)
            if causal:
                logits[np.triu_indices(len(logits), 1)] = -np.inf
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            mixed.append(shares / shares.sum(axis=1, keepdims=True) @ v)
        out = f"{block}.attn.out_proj"
        x = x + np.concatenate(mixed, axis=1) @ weights[f"{out}.weight"].T + weights[f"{out}.bias"]
        y = layer_norm(weights, f"{block}.ln_2", x)
        y = y @ weights[f"{block}.mlp.c_fc.weight"].T + weights[f"{block}.mlp.c_fc.bias"]
        y = y * (1 + erf(y / math.sqrt(2))) / 2
        x = x + y @ weights[f"{block}.mlp.c_proj.weight"].T + weights[f"{block}.mlp.c_proj.bias"]
    return x


def in_(key: str, name: str) -> bool:
    """Say whether a key belongs to the blocks of this transformer."""
    return key.startswith(f"{name}.resblocks.")


def layer_norm(weights: Weights, name: str, x: Matrix) -> Matrix:
    """Normalize each row, then scale and shift."""
    centred = x - x.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def unit(row: Matrix) -> Matrix:
    """Return the direction of a vector."""
    return row / np.linalg.norm(row)
