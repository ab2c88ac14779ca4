"""anoco-edge backbones: the backbones that can be exported."""

from __future__ import annotations

from anoco_edge.bundle.builtin import BUILTIN_BACKBONE
from anoco_edge.cli.builtin import missing_export_package
from anoco_edge.cli.console import note
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
    if not json_ and (package := missing_export_package()):
        note(
            f"{package} is not installed: only {BUILTIN_BACKBONE} can be used, with default "
            "options; pip install 'anoco-edge[export]' exports them all"
        )
