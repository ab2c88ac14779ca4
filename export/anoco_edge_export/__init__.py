"""Backbones to ONNX, checked against torch. Importing this loads neither torch nor onnx."""

from anoco_edge_export.export import ExportedBackbone, export_backbone
from anoco_edge_export.recipe import Recipe, list_recipes, load_recipe

__all__ = ["ExportedBackbone", "Recipe", "export_backbone", "list_recipes", "load_recipe"]
