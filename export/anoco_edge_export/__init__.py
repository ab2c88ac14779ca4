"""Backbones to ONNX, checked against torch. Importing this loads neither torch nor onnx."""

from anoco_edge_export.bundle import ExportedBundle, export_bundle
from anoco_edge_export.export import ExportedBackbone, export_backbone
from anoco_edge_export.recipe import Recipe, list_recipes, load_recipe

__all__ = [
    "ExportedBackbone",
    "ExportedBundle",
    "Recipe",
    "export_backbone",
    "export_bundle",
    "list_recipes",
    "load_recipe",
]
