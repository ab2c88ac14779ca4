"""Products of a bundle, as a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from anoco_edge.bundle import Bundle, Product
from anoco_edge.cli.console import out, plain, plural
from anoco_edge.drift import promise, why_off
from anoco_edge.scoring.lambdas import Lambda
from anoco_edge.text.plain_text import plain_text


def product_report(product: Product) -> dict[str, object]:
    """Return a product as JSON."""
    return product.model_dump(mode="json", by_alias=True)


def show_products(products: Sequence[Product]) -> None:
    """Print a table of products, then how settings were chosen and what each threshold rests on."""
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
            plain(f"{p.metric}, lambda {Lambda(p.lam, p.lambda_kind)}, {p.pooling}"),
            plain(inspected_area(p)),
        )
    out.print(table)
    for p in products:
        _show_notes(p)


def effective_lambda(bundle: Bundle, product: Product) -> float | None:
    """Return the number that a product's relative lambda stands for; None if it is absolute, or if
    there is no bank that it could be relative to."""
    if product.lambda_kind == "absolute" or product.bank is None:
        return None
    return product.parameters(bundle.bank(product).references).lam


def show_effective_lambda(bundle: Bundle, product: Product) -> None:
    """Print what a relative lambda of a product stands for."""
    lam = effective_lambda(bundle, product)
    if lam is not None:
        words = f"lambda {product.lam:g} x the bank's median norm of {lam / product.lam:.4g}"
        out.print(plain_text(f"{product.name}: {words} is {lam:.4g}"), soft_wrap=True, markup=False)


def _show_notes(product: Product) -> None:
    tuned, choice = product.tuning, product.augmentation_choice
    notes = (
        f"settings {tuned.words}" if tuned else "",
        choice.words if choice else "",
        product.threshold.evidence.explanation,
        picture_limits(product),
    )
    for words in filter(None, notes):
        out.print(plain_text(f"{product.name}: {words}"), soft_wrap=True, markup=False)
    out.print(
        plain_text(f"{product.name}: {picture_limits(product)}"), soft_wrap=True, markup=False
    )
    off = why_off(product, product.threshold.value)
    watch = f"off: {off}" if off else f"on; {promise(product)}"
    out.print(plain_text(f"{product.name}: drift watch {watch}"), soft_wrap=True, markup=False)


def picture_limits(product: Product) -> str:
    """Return what pictures must be like to get a verdict on a line."""
    limits = product.picture_limits
    if limits is None:
        return "no limits of picture quality: a line judges every picture"
    like = "" if limits.min_likeness is None else f", likeness from {limits.min_likeness:.3g}"
    return (
        f"on a line brightness from {limits.min_brightness:.3g}, at most "
        f"{limits.max_saturated:.1%} saturated, sharpness from {limits.min_sharpness:.3g}{like} "
        f"(learned from {plural(limits.pictures, 'picture')})"
    )


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
    mirrored = "mirrored too" if product.flips else ""
    if product.rotations is not None:
        return " and ".join(filter(None, (f"references at {product.rotations} angles", mirrored)))
    if product.tta != "none":
        return f"augmented views ({product.tta})"
    return f"references {mirrored}" if mirrored else ""
