"""The backbones that can be exported, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Column, Table

from anoco_edge.cli.console import emit_json, out

if TYPE_CHECKING:
    from anoco_edge_export import Recipe


def show_backbones(recipes: Sequence[Recipe], *, json_: bool) -> None:
    """Print every recipe with what it costs and under which terms its weights come."""
    if json_:
        emit_json([recipe.model_dump(mode="json") for recipe in recipes])
        return
    right = [Column(name, justify="right") for name in ("params", "patch", "size", "tap", "GFLOPs")]
    name = Column("backbone", no_wrap=True)
    table = Table(name, *right, "licence", "from", box=None, padding=(0, 2, 0, 0))
    for recipe in recipes:
        width, height = recipe.size
        source = recipe.weights
        table.add_row(
            recipe.id,
            f"{recipe.parameters / 1e6:.1f}M",
            f"{recipe.tapped().stride}",
            str(width) if width == height else f"{width}x{height}",
            f"{_layers(recipe.taps)}/{len(recipe.layers)}",
            f"{recipe.gflops:.4g}",
            source.license,
            "PyPI" if source.package else "hub",
        )
    out.print(table)
    out.print("tap: layer of how many; GFLOPs of the graph cut there, at that size", markup=False)


def _layers(taps: Sequence[int]) -> str:
    """Return the numbers of layers; more than two in a row as the first and the last."""
    if len(taps) > 2 and list(taps) == list(range(taps[0], taps[-1] + 1)):
        return f"{taps[0]}-{taps[-1]}"
    return ",".join(map(str, taps))
