"""What a change of a product's references or settings did, in words or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anoco_edge.bundle import Product
from anoco_edge.cli.console import emit_json, note, out, plain, plural, warn
from anoco_edge.cli.flags import with_flags
from anoco_edge.cli.views.dry_run import dry_run_report, show_dry_run
from anoco_edge.teaching import Effect, ProductChange


def report_change(
    change: ProductChange, bundle: Path, effects: Sequence[Effect] | None = None, *, json_: bool
) -> None:
    """Print what a command changed, or with `effects` (`--dry-run`) what it would change."""
    if effects is not None:
        emit_json(dry_run_report(change, effects)) if json_ else show_dry_run(change, effects)
    elif json_:
        emit_json(change_report(change))
    else:
        show_change(change, bundle)


def warn_of_duplicates(change: ProductChange) -> None:
    """Warn of every picture that was not enrolled, because it is a reference already."""
    for name in change.duplicates:
        warn(f"refused a picture that is there already: {name}")


def change_report(change: ProductChange) -> dict[str, object]:
    """Return a change as JSON."""
    product = change.product
    return {
        "product": product.name,
        "generation": product.generation,
        "added": list(change.added),
        "duplicates": list(change.duplicates),
        "references": [r.name for r in product.references],
        "dropped_patches": product.dropped_patches,
        "merged_patches": product.merged_patches,
        "augmentation": augmentation_report(product),
        "threshold": product.threshold.model_dump(),
        "notes": [with_flags(text) for text in change.notes],
    }


def augmentation_report(product: Product) -> dict[str, object]:
    """Return the augmentation of a product as JSON, with the evidence where `auto` chose it."""
    choice = product.augmentation_choice
    return {
        "level": product.tta,
        "rotations": product.rotations,
        "flips": product.flips,
        "merge_distance": product.merge_distance,
        "auto": None if choice is None else choice.model_dump(mode="json"),
    }


def show_change(change: ProductChange, bundle: Path) -> None:
    """Print a change in words, and how to undo it."""
    product, threshold = change.product, change.product.threshold
    out.print(
        f"product [bold]{plain(product.name)}[/bold], generation {product.generation}: "
        f"{plural(len(product.references), 'reference')}"
        + (f" ({len(change.added)} new)" if change.added else "")
    )
    for text in change.notes:
        warn(text)
    if threshold.value is not None:
        out.print(f"{threshold.kind} threshold {threshold.value:.4g}")
    elif not change.notes:
        warn("there is no threshold: verdicts will be 'uncalibrated'")
    if (coreset := product.coreset) is not None and change.added:
        kept = min(coreset.max_patches, coreset.considered - coreset.duplicates)
        out.print(f"{kept:,} of {coreset.considered:,} patches kept, {coreset.duplicates} copies")
    if product.merged_patches:
        out.print(
            f"{product.merged_patches:,} patches of turned or mirrored views are like another and "
            "were left out"
        )
    if product.dropped_patches:
        warn(f"{product.dropped_patches} patches without any signal were left out")
    note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")
