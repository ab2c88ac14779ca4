"""Backbone, input and parity report of a bundle, as a table."""

from __future__ import annotations

from rich.table import Table

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.schema import Backbone
from anoco_edge.cli.console import out, plain, warn
from anoco_edge.cli.views.parity import few_pictures, parity_remarks, parity_table, unfused_warning
from anoco_edge.text.plain_text import plain_text


def show_bundle(bundle: Bundle) -> None:
    """Print what the manifest says, without the products."""
    out.print(_manifest_table(bundle))
    parity = bundle.manifest.parity
    if not parity.get("checks"):
        return
    out.print(parity_table(parity))
    for remark in parity_remarks(parity):
        out.print(plain_text(remark), markup=False)
    for warning in filter(None, (few_pictures(parity), unfused_warning(parity))):
        warn(warning)


def _manifest_table(bundle: Bundle) -> Table:
    manifest, contract = bundle.manifest, bundle.manifest.input
    weights = manifest.backbone.weights
    table = Table(show_header=False, title=plain(str(bundle.path)))
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
        f"patches of {contract.stride} px, {contract.dim} numbers each"
        + ("" if contract.pixels == "uint8" else "; float32 pixels, for DeepStream"),
    )
    for plan in manifest.plans:
        size = bundle.file(plan.path).size / 1e6
        words = f"{plan.engine} {plan.version} for {plan.target}, {size:.1f} MB"
        table.add_row("plan", plain(words))
    made = f"{manifest.created} with anoco-edge {manifest.tools.get('anoco-edge')}"
    table.add_row("made", plain(made))
    table.add_row("size", f"{sum(f.size for f in manifest.files) / 1e6:.1f} MB")
    return table


def _tap(backbone: Backbone) -> str:
    scales = ", ".join(f"{scale:.4g}" for scale in backbone.tap_scales)
    scaled = f", scaled by {scales}" if scales else ""
    return f"{backbone.tap}, feature norm {backbone.feature_norm}{scaled}"
