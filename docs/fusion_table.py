"""Prints what TensorRT-RTX fuses in transformers with random weights, as a Markdown table.

    python docs/fusion_table.py dinov3-s clip-b --precision fp16 --precision int8

It needs anoco-edge[export,rtx] and no GPU. Nothing is compared with torch, as an export does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from anoco_edge.bundle.parity_report import FusionReport
from anoco_edge_export.fusion import TARGET
from anoco_edge_export.fusion_trial import (
    TRANSFORMERS,
    count_fusion,
    random_graph,
    shortened,
    typed_graph,
)
from anoco_edge_export.recipe import Precision, Recipe, list_recipes, load_recipe

HEAD = "| backbone | size | precision | fused | kernels | only copy | activations | casts |"
BEFORE = " fused before | kernels | only copy | activations |"
PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "int8")
_NEW = "bf16"  # graphs with FP32 logits and attention in pieces never had this precision


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each backbone and each of its precisions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backbones", nargs="*", help="all transformers, if you name none")
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--blocks", type=int, help="so many in place of the recipe's")
    parser.add_argument("--size", type=int, help="side of the input in place of the recipe's")
    parser.add_argument("--target", default=TARGET, help="a generation of GPUs, such as sm89")
    parser.add_argument(
        "--before", action="store_true", help="also with FP32 logits and attention in pieces"
    )
    options = parser.parse_args(arguments)
    head = HEAD + (BEFORE if options.before else "")
    sys.stdout.write(f"{head}\n{'|---' * (head.count('|') - 1)}|\n")
    for name in options.backbones or transformers():
        recipe = load_recipe(name)
        recipe = shortened(recipe, options.blocks) if options.blocks else recipe
        size = (options.size, options.size) if options.size else recipe.size
        precisions = [p for p in options.precision or PRECISIONS if p in recipe.parity]
        after = reports(recipe, size, precisions, options.target)
        old = [p for p in precisions if p != _NEW] if options.before else []
        before = reports(recipe, size, old, options.target, before=True)
        for precision in precisions:
            row = f"| {name} | {size[0]} | {precision} | {_cells(after[precision])}"
            row += f" | {after[precision].casts} |"
            if options.before:
                row += f" {_cells(before[precision])} |" if precision in before else " | | | |"
            sys.stdout.write(f"{row}\n")
        sys.stdout.flush()


def transformers() -> list[str]:
    """Return the names of all recipes that have attention."""
    return [name for name in list_recipes() if load_recipe(name).family in TRANSFORMERS]


def reports(
    recipe: Recipe,
    size: tuple[int, int],
    precisions: Sequence[Precision],
    target: str = TARGET,
    *,
    before: bool = False,
) -> dict[Precision, FusionReport]:
    """Build the backbone in each precision; the graph is traced once."""
    if not precisions:
        return {}
    graph = random_graph(recipe, size, whole=not before)
    islands = (*recipe.islands, "logits") if before else recipe.islands
    found = {}
    for precision in precisions:
        typed = typed_graph(graph, recipe, precision, islands)
        found[precision] = count_fusion(typed, recipe, size, target)
    return found


def _cells(report: FusionReport) -> str:
    counts = report.counts
    if counts is None:
        return f"{report.checked} | | |"
    return (
        f"{counts.fused} of {report.blocks} | {counts.kernels} | {counts.copies} | "
        f"{counts.activation_bytes / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
