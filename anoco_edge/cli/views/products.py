"""Products of a bundle, as a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from anoco_edge.bundle import Product
from anoco_edge.cli.console import out, plain
from anoco_edge.drift import promise, why_off
from anoco_edge.text.plain_text import plain_text


def product_report(product: Product) -> dict[str, Any]:
    """Return a product as JSON."""
    return product.model_dump(mode="json", by_alias=True)


def show_products(products: Sequence[Product]) -> None:
    """Print a table of products, then the explanation of each threshold that has one."""
    if not products:
        out.print("no products yet")
        return
    table = Table("product", "generation", "references", "threshold", "scoring", "looks at")
    for p in products:
        table.add_row(
            plain(p.name),
            str(p.generation),
            str(len(p.references)),
            kind_and_threshold(p),
            plain(f"{p.metric}, lambda {p.lam:g}, {p.pooling}"),
            plain(inspected_area(p)),
        )
    out.print(table)
    for p in products:
        _show_threshold_notes(p)


def _show_threshold_notes(product: Product) -> None:
    words = product.threshold.evidence.explanation
    if words:
        out.print(plain_text(f"{product.name}: {words}"), soft_wrap=True, markup=False)
    off = why_off(product, product.threshold.value)
    watch = f"off: {off}" if off else f"on; {promise(product)}"
    out.print(plain_text(f"{product.name}: drift watch {watch}"), soft_wrap=True, markup=False)


def kind_and_threshold(product: Product) -> str:
    """Return the kind of a product's threshold and its value, or "none"."""
    threshold = product.threshold
    return f"{threshold.kind} {threshold.value:.4g}" if threshold.value else "none"


def inspected_area(product: Product) -> str:
    """Return what is unusual about how the pictures of a product are inspected and scored."""
    tiles, coreset, baseline = product.tiles, product.coreset, product.baseline
    kept = min(coreset.max_patches, coreset.considered - coreset.duplicates) if coreset else 0
    parts = [
        f"a region of {len(product.region.points)} points" if product.region else "",
        "what the mask leaves" if product.mask else "",
        f"{len(tiles.columns)} x {len(tiles.rows)} tiles" if tiles else "",
        _augmentation(product),
        f"{kept:,} of {coreset.considered:,} patches" if coreset else "",
        f"excess over {baseline.sigmas:g} sigmas" if baseline else "",
    ]
    return ", ".join(part for part in parts if part) or "the whole picture"


def _augmentation(product: Product) -> str:
    if product.rotations is not None:
        return f"references at {product.rotations} angles"
    return f"augmented views ({product.tta})" if product.tta != "none" else ""
