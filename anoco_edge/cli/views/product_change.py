"""What a change of a product's references or settings did, in words or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anoco_edge.cli.console import counted, emit_json, note, out, plain, warn
from anoco_edge.cli.views.dry_run import Effect, preview_report, show_preview
from anoco_edge.teaching import ProductChange


def tell(
    change: ProductChange, bundle: Path, effects: list[Effect] | None = None, *, json_: bool
) -> None:
    """The answer of a command; with `effects` (`--dry-run`) of what it would do."""
    if effects is not None:
        emit_json(preview_report(change, effects)) if json_ else show_preview(change, effects)
    elif json_:
        emit_json(change_report(change))
    else:
        show_change(change, bundle)


def change_report(change: ProductChange) -> dict[str, Any]:
    """A change as JSON."""
    product = change.product
    return {
        "product": product.name,
        "generation": product.generation,
        "added": list(change.added),
        "duplicates": list(change.duplicates),
        "references": [r.name for r in product.references],
        "dropped_patches": product.dropped_patches,
        "threshold": product.threshold.model_dump(),
        "notes": list(change.notes),
    }


def show_change(change: ProductChange, bundle: Path) -> None:
    """A change in words."""
    product, threshold = change.product, change.product.threshold
    out.print(
        f"product [bold]{plain(product.name)}[/bold], generation {product.generation}: "
        f"{counted(len(product.references), 'reference')}"
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
    if product.dropped_patches:
        warn(f"{product.dropped_patches} patches without any signal were left out")
    note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")
