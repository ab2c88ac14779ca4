"""anoco-edge info and verify: what is in a bundle, and is it whole."""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.schema import Backbone
from anoco_edge.cli.console import emit_json, out, plain, progress, warn
from anoco_edge.cli.options import BundleArgument, JsonOption, example
from anoco_edge.cli.views.parity import few_pictures, parity_remarks, parity_table
from anoco_edge.drift import promise, why_off
from anoco_edge.text.plain_text import plain_text


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("anoco-edge info line.anoco"))(info)
    app.command(epilog=example("anoco-edge verify line.anoco"))(verify)


def info(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Show backbone, input, parity report and products of a bundle."""
    opened = Bundle.open(bundle)
    products = [opened.product(name) for name in opened.products()]
    if json_:
        document = opened.manifest.model_dump(mode="json")
        emit_json({**document, "products": [product_report(product) for product in products]})
        return
    manifest, contract = opened.manifest, opened.manifest.input
    table = Table(show_header=False, title=plain(str(opened.path)))
    weights = manifest.backbone.weights
    table.add_row("backbone", plain(f"{manifest.backbone.id} ({manifest.backbone.architecture})"))
    table.add_row("tap", plain(_tap(manifest.backbone)))
    table.add_row("precision", plain(manifest.backbone.precision))
    table.add_row(
        "weights", ("[red]RANDOM[/red] " if weights.random else "") + plain(weights.source)
    )
    table.add_row("licence", plain(weights.license))
    table.add_row(
        "input",
        f"{contract.width}x{contract.height} ({contract.fit}), {contract.rows} x {contract.cols} "
        f"patches of {contract.stride} px, {contract.dim} numbers each",
    )
    for plan in manifest.plans:
        size = opened.file(plan.path).size / 1e6
        words = f"{plan.engine} {plan.version} for {plan.target}, {size:.1f} MB"
        table.add_row("plan", plain(words))
    made = f"{manifest.created} with anoco-edge {manifest.tools.get('anoco-edge')}"
    table.add_row("made", plain(made))
    table.add_row("size", f"{sum(f.size for f in manifest.files) / 1e6:.1f} MB")
    out.print(table)
    if manifest.parity.get("checks"):
        out.print(parity_table(manifest.parity))
        for remark in parity_remarks(manifest.parity):
            out.print(plain_text(remark), markup=False)
        few = few_pictures(manifest.parity)
        if few:
            warn(few)
    show_products(products)


def _tap(backbone: Backbone) -> str:
    scales = ", ".join(f"{scale:.4g}" for scale in backbone.tap_scales)
    scaled = f", scaled by {scales}" if scales else ""
    return f"{backbone.tap}, feature norm {backbone.feature_norm}{scaled}"


def verify(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Hash every file again; the first that is wrong is named (exit 4)."""
    opened = Bundle.open(bundle)
    with progress("verifying") as step:
        checked = []
        for path in opened.verify():
            checked.append(str(path.relative_to(opened.path)))
            step(path.name)
    strangers = [str(p.relative_to(opened.path)) for p in opened.strangers()]
    for name in strangers:
        warn(f"{name} does not belong to the bundle")
    if json_:
        emit_json({"bundle": str(opened.path), "verified": checked, "strangers": strangers})
    else:
        text = f"{opened.path}: {len(checked)} files, all as they were written"
        out.print(plain_text(text), soft_wrap=True, markup=False)


def product_report(product: Product) -> dict[str, Any]:
    """A product as JSON."""
    return product.model_dump(mode="json", by_alias=True)


def show_products(products: list[Product]) -> None:
    """Products as a table."""
    if not products:
        out.print("no products yet")
        return
    table = Table("product", "generation", "references", "threshold", "scoring", "looks at")
    for p in products:
        value = f"{p.threshold.kind} {p.threshold.value:.4g}" if p.threshold.value else "none"
        table.add_row(
            plain(p.name),
            str(p.generation),
            str(len(p.references)),
            value,
            plain(f"{p.metric}, lambda {p.lam:g}, {p.pooling}"),
            plain(_looks_at(p)),
        )
    out.print(table)
    for p in products:
        words = p.threshold.evidence.explanation
        if words:
            out.print(plain_text(f"{p.name}: {words}"), soft_wrap=True, markup=False)
        off = why_off(p, p.threshold.value)
        watch = f"off: {off}" if off else f"on; {promise(p)}"
        out.print(plain_text(f"{p.name}: drift watch {watch}"), soft_wrap=True, markup=False)


def _looks_at(product: Product) -> str:
    """What is unusual about how pictures are seen and scored."""
    tiles, coreset, baseline = product.tiles, product.coreset, product.baseline
    kept = min(coreset.max_patches, coreset.considered - coreset.duplicates) if coreset else 0
    parts = [
        f"a region of {len(product.region.points)} points" if product.region else "",
        "what the mask leaves" if product.mask else "",
        f"{len(tiles.columns)} x {len(tiles.rows)} tiles" if tiles else "",
        f"augmented views ({product.tta})" if product.tta != "none" else "",
        f"{kept:,} of {coreset.considered:,} patches" if coreset else "",
        f"excess over {baseline.sigmas:g} sigmas" if baseline else "",
    ]
    return ", ".join(part for part in parts if part) or "the whole picture"
