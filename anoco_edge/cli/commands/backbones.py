"""export --list: the backbones there are."""

from __future__ import annotations

from rich.table import Column, Table

from anoco_edge.cli.console import emit_json, out
from anoco_edge.errors import missing


def show_backbones(json_: bool) -> None:
    """Every recipe with what it costs and under which terms its weights come."""
    try:
        from anoco_edge_export import list_recipes, load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to list the backbones") from None
    recipes = [load_recipe(name) for name in list_recipes()]
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
            f"{','.join(map(str, recipe.taps))}/{len(recipe.layers)}",
            f"{recipe.gflops:.4g}",
            source.license,
            "PyPI" if source.package else "hub",
        )
    out.print(table)
    out.print("tap: layer of how many; GFLOPs of the graph cut there, at that size", markup=False)
