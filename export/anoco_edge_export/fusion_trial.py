"""Counts what TensorRT-RTX fuses in a transformer with random weights, without a whole export.

Nothing is compared with torch and no bundle is written, so that it takes seconds. The kernels do
not depend on the numbers in the weights. docs/fusion_table.py makes a table of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anoco_edge.bundle.parity_report import FusionReport
from anoco_edge.errors import UsageError
from anoco_edge.images.contract import InputContract
from anoco_edge_export.backbone import create_model, exported_backbone, set_size
from anoco_edge_export.families import family
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.fusion import TARGET, check_fusion
from anoco_edge_export.half_format import HALF_FORMATS
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.onnx_graph import save_graph, trace
from anoco_edge_export.qdq import named_products, quantizable_layers, quantize
from anoco_edge_export.recipe import Precision, Recipe

TRANSFORMERS = ("vit", "clip-windows")
"""The families whose graphs have attention."""
_BLOCK = "blocks."
_RANGE = 8.0  # of every INT8 tensor; the kernels do not depend on it


def shortened(recipe: Recipe, blocks: int) -> Recipe:
    """Return the recipe with a tap at the end of so many blocks, for a trial that takes less time.

    >>> from anoco_edge_export import load_recipe
    >>> shortened(load_recipe("dinov3-l"), 2).tapped().name
    'blocks.1'
    """
    if recipe.family == "vit":
        return recipe.model_copy(update={"taps": (blocks,)})
    first, *windows = recipe.layers
    first = first.model_copy(update={"tap": f"{_BLOCK}{blocks - 1}"})
    return recipe.model_copy(update={"layers": (first, *windows)})


def random_model(recipe: Recipe, blocks: int, size: tuple[int, int]) -> Any:
    """Create the first blocks of timm's model with random weights.

    The biases are drawn too: timm's are zero, and a builder may leave out such a sum.
    """
    torch, model = lazy_import("torch"), create_model(recipe, depth=blocks)
    with torch.no_grad():
        family(recipe.family).draw(model.state_dict(), torch.Generator().manual_seed(0))
    set_size(model, *size)
    return model


def random_graph(recipe: Recipe, size: tuple[int, int], *, whole: bool = True) -> Any:
    """Trace a transformer with random weights, up to its last tap, to an FP32 graph."""
    if recipe.family not in TRANSFORMERS:
        raise UsageError(f"{recipe.id} has no attention", hint="name a transformer")
    taps = recipe.tapped()
    names = [layer.tap for layer in taps.layers if layer.tap.startswith(_BLOCK)]
    blocks = 1 + max(int(name.removeprefix(_BLOCK)) for name in names)
    model = random_model(recipe, blocks, size)
    scales = (1.0,) * len(taps.layers)
    module = exported_backbone(recipe, taps, model, scales, whole=whole)
    return trace(module, *size, [f"{_BLOCK}{k}" for k in range(blocks)], {})


def typed_graph(
    graph: Any, recipe: Recipe, precision: Precision, islands: Sequence[str] | None = None
) -> Any:
    """Return an FP32 graph in the types of an export in this precision."""
    islands = recipe.islands if islands is None else islands
    if half := HALF_FORMATS.get(precision):
        return convert_to_half(graph, islands, half)[0]
    if precision == "fp32" or recipe.int8 is None:
        return graph
    plain = named_products(graph)
    layers = quantizable_layers(plain, recipe.int8.keep)
    quantized = quantize(plain, list(layers), dict.fromkeys(layers.values(), _RANGE))
    if recipe.int8.rest == "fp32":
        return quantized
    return convert_to_half(quantized, islands, quantized=True)[0]


def count_fusion(
    graph: Any, recipe: Recipe, size: tuple[int, int], target: str = TARGET
) -> FusionReport:
    """Build a typed graph and report what was fused; nothing is refused."""
    taps, (width, height) = recipe.tapped(), size
    contract = InputContract(
        width=width,
        height=height,
        stride=taps.stride,
        rows=height // taps.stride,
        cols=width // taps.stride,
        dim=taps.dim,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = save_graph(graph, Path(folder) / "backbone.onnx")[0]
        return check_fusion(graph, path, contract, allow_unfused=True, target=target)
