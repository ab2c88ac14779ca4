"""Computes what a backbone costs: parameters, arithmetic of a picture, memory of an export."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.machine import available_memory_mb
from anoco_edge_export.backbone import create_model, official_backbone, set_size
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import Recipe, Taps


@dataclass(frozen=True)
class Cost:
    """The parameters of the whole model, those left after the cut, and the arithmetic of a picture.

    One multiply-add counts as two operations.
    """

    parameters: int
    kept_parameters: int
    gflops: float


def cost(recipe: Recipe, taps: Taps, width: int, height: int) -> Cost:
    """Count on tensors without content, so that a model of any size takes a second."""
    torch = lazy_import("torch")
    flop_counter = lazy_import("torch.utils.flop_counter")
    with torch.device("meta"):
        model = create_model(recipe)
        set_size(model, width, height)
        module = official_backbone(recipe, taps, model)
        pixels = torch.zeros((1, height, width, 3), dtype=torch.uint8)
        with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counter:
            used = _used(module, pixels)
    total = sum(p.numel() for p in model.parameters())
    return Cost(total, used, counter.get_total_flops() / 1e9)


def check_memory(recipe: Recipe, taps: Taps, width: int, height: int) -> None:
    """Raise before the start if the export does not fit into memory, and say how much it needs."""
    needed, available = memory_mb(recipe, taps, width, height), available_memory_mb()
    if needed > available:
        raise EnvironmentMissingError(
            f"exporting {recipe.id} at {width}x{height} takes about {needed / 1e3:.1f} GB of "
            f"memory, and {available / 1e3:.1f} GB are free",
            hint="stop what else runs, or choose a smaller backbone or size",
        )


def memory_mb(recipe: Recipe, taps: Taps, width: int, height: int) -> float:
    """Estimate the most memory that an export holds at once, as measured on five backbones.

    It is the sum of the libraries, of the weights (as read, in the graph, while the file is written
    and in ONNX Runtime) and, for a transformer, of the attention matrix of one block.
    """
    counted = cost(recipe, taps, width, height)
    tokens = (width // taps.stride) * (height // taps.stride)
    attention = 3 * (taps.layers[0].dim // 64) * tokens**2 if recipe.family == "vit" else 0
    floats = counted.parameters + 4 * counted.kept_parameters + attention + 40 * tokens * taps.dim
    return 1000 + 4 * floats / 1e6


def _used(module: object, pixels: object) -> int:
    """Count the parameters of the modules that run; the others are not in the exported graph."""
    seen: dict[int, int] = {}

    def note(part: object, *_: object) -> None:
        for parameter in part.parameters(recurse=False):  # type: ignore[attr-defined]
            seen[id(parameter)] = parameter.numel()

    hooks = [m.register_forward_pre_hook(note) for m in module.modules()]  # type: ignore[attr-defined]
    module(pixels)  # type: ignore[operator]
    for hook in hooks:
        hook.remove()
    return sum(seen.values())
