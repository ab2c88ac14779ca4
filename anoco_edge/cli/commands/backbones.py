"""anoco-edge backbones: the backbones that can be exported."""

from __future__ import annotations

from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.backbones import show_backbones
from anoco_edge.errors import missing


def backbones(json_: JsonOption = False) -> None:
    """Show the backbones that `export` knows, what they cost and the licence of their weights."""
    try:
        from anoco_edge_export import list_recipes, load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to list the backbones") from None
    show_backbones([load_recipe(name) for name in list_recipes()], json_=json_)
