"""Exports backbones to ONNX, checked against torch; importing it loads neither torch nor onnx."""

from anoco_edge_export.bundle import ExportedBundle, export_bundle
from anoco_edge_export.export import ExportedBackbone, export_backbone
from anoco_edge_export.options import ExportOptions
from anoco_edge_export.recipe import Recipe, list_recipes, load_recipe

__all__ = [
    "ExportOptions",
    "ExportedBackbone",
    "ExportedBundle",
    "Recipe",
    "export_backbone",
    "export_bundle",
    "list_recipes",
    "load_recipe",
]
