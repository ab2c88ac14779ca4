"""CLIP's picture side with its head, on the whole picture and on windows of it: WinCLIP.

The taps are `blocks.N`, the patches of the whole picture at the end of the last block;
`windows.K`, the embedding of each window of K x K patches; and `picture`, the embedding of the
whole picture. The embedding of a window is that of the model which sees the class token and the
patches of this window alone: the others are left out before the first block, and positions stay.

Every tap has one row for each patch. The row of a patch holds the window whose upper left patch it
is. A patch at the right or lower border begins no window; its row repeats the nearest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anoco_edge_export.families import StateDict, Tensor, vit, vit_keys
from anoco_edge_export.lazy_import import lazy_import

PICTURE = "picture"
_WINDOWS = "windows."
_HEAD = "head.weight"


def official(model: Any, taps: Sequence[str], norm: bool) -> Any:
    """Return a module that runs timm's own modules, on all tokens and on those of each window."""
    _check(model, taps, norm)
    torch = lazy_import("torch")
    base: Any = torch.nn.Module

    class OfficialWindows(base):  # type: ignore[misc]  # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> tuple[list[Tensor], StateDict]:
            own = self.model
            first = own.norm_pre(own.patch_drop(own._pos_embed(own.patch_embed(x))))
            ends, end = {}, first
            for i, block in enumerate(own.blocks):
                ends[f"blocks.{i}"] = end = block(end)
            whole = own.norm(end)
            rows, cols = own.patch_embed.grid_size
            tapped = []
            for tap in taps:
                if tap == PICTURE:
                    tapped.append(own.head(whole[:, :1]).expand(-1, rows * cols, -1))
                elif tap.startswith(_WINDOWS):
                    tapped.append(self.windows(first, window_patches(rows, cols, _scale(tap))))
                else:
                    tapped.append(whole[:, 1:])
            return tapped, ends

        def windows(self, tokens: Any, windows: Sequence[tuple[int, ...]]) -> Any:
            distinct = sorted(set(windows))
            chosen = [[0, *(1 + patch for patch in window)] for window in distinct]
            seen = self.model.norm(self.model.blocks(tokens[:, chosen].flatten(0, 1)))
            embeddings = self.model.head(seen[:, 0]).unflatten(0, (-1, len(distinct)))
            return embeddings[:, [distinct.index(window) for window in windows]]

    return OfficialWindows()


def rewritten(
    model: Any,
    taps: Sequence[str],
    norm: bool,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    whole: bool = False,
) -> Any:
    """Return a module that takes raw pixels and runs all windows of one size as one batch."""
    _check(model, taps, norm)
    torch = lazy_import("torch")
    base: Any = torch.nn.Module
    rows, cols = model.patch_embed.grid_size
    last = f"blocks.{len(model.blocks) - 1}"

    class RewrittenWindows(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = model.head
            self.trunk = vit.rewritten(model, [last], True, mean, std, whole=whole)
            self.sizes = torch.nn.ModuleDict()
            self.register_buffer("everywhere", torch.zeros(rows * cols, dtype=torch.int64))
            for scale in (_scale(tap) for tap in taps if tap.startswith(_WINDOWS)):
                windows = window_patches(rows, cols, scale)
                distinct = sorted(set(windows))
                chosen = [t for window in distinct for t in (0, *(1 + p for p in window))]
                places = [distinct.index(window) for window in windows]
                self.register_buffer(f"tokens{scale}", torch.tensor(chosen))
                self.register_buffer(f"places{scale}", torch.tensor(places))
                count = 1 + scale * scale
                self.sizes[str(scale)] = vit.for_sequences_of(self.trunk.blocks, count)

        def forward(self, pixels: Any) -> tuple[list[Tensor], StateDict]:
            _, tokens, dim = self.trunk.table.shape
            first = self.trunk.tokens(pixels)
            ends, end = {}, first
            for i, block in enumerate(self.trunk.blocks):
                ends[f"blocks.{i}"] = end = block(end)
            whole = self.trunk.norm(end).reshape(-1, tokens, dim)
            found = []
            for tap in taps:
                if tap == PICTURE:
                    embedding = self.head(whole[:, :1])
                    found.append(embedding.index_select(1, self.everywhere))
                elif tap.startswith(_WINDOWS):
                    found.append(self.windows(first.reshape(-1, tokens, dim), _scale(tap)))
                else:
                    found.append(whole[:, 1:])
            return found, ends

        def windows(self, tokens: Any, scale: int) -> Any:
            chosen, places = getattr(self, f"tokens{scale}"), getattr(self, f"places{scale}")
            dim, count = tokens.shape[-1], 1 + scale * scale
            x = tokens.index_select(1, chosen).reshape(-1, dim)
            for block in self.sizes[str(scale)]:
                x = block(x)
            classes = self.trunk.norm(x.reshape(-1, count, dim)[:, 0])
            embeddings = self.head(classes)
            windows = len(chosen) // count
            return embeddings.reshape(-1, windows, embeddings.shape[-1]).index_select(1, places)

    return RewrittenWindows()


def window_patches(rows: int, cols: int, scale: int) -> list[tuple[int, ...]]:
    """Return for each patch of the grid the patches of its window, row by row.

    >>> window_patches(2, 3, 2)  # a grid of six patches has two windows of four
    [(0, 1, 3, 4), (1, 2, 4, 5), (1, 2, 4, 5), (0, 1, 3, 4), (1, 2, 4, 5), (1, 2, 4, 5)]
    """
    windows = []
    for row in range(rows):
        for col in range(cols):
            top, left = min(row, rows - scale), min(col, cols - scale)
            windows.append(
                tuple((top + i) * cols + left + j for i in range(scale) for j in range(scale))
            )
    return windows


def convert(layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
    """Return the tensors under timm's names, with the projection as timm's head without bias."""
    out = vit_keys.convert(layout, state, wanted)
    if layout == "open_clip" and "visual.proj" in out:
        projection = out.pop("visual.proj")
        out[_HEAD] = projection.T
        out["head.bias"] = lazy_import("torch").zeros(projection.shape[-1])
    return out


def draw(state: StateDict, generator: Any) -> None:
    """Redraw weights at the scale of a trained model; CLIP's projection has no bias."""
    vit.draw(state, generator)
    torch = lazy_import("torch")
    head = state[_HEAD]
    drawn = torch.empty_like(head).normal_(0.0, head.shape[1] ** -0.5, generator=generator)
    head.copy_(drawn)
    state["head.bias"].zero_()


def _scale(tap: str) -> int:
    return int(tap.removeprefix(_WINDOWS))


def _check(model: Any, taps: Sequence[str], norm: bool) -> None:
    """Refuse what a recipe of this family cannot mean."""
    blocks = [tap for tap in taps if tap.startswith("blocks.")]
    if not norm or any(tap != f"blocks.{len(model.blocks) - 1}" for tap in blocks):
        raise ValueError(f"windows are tapped after the last block and the norm, not at {taps}")
    if model.num_prefix_tokens != 1:
        raise ValueError("the model must have a class token and no other prefix token")
