"""An exported bundle, in words or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anoco_edge.cli.console import note, out, plain, warn
from anoco_edge.cli.views.parity import few_pictures, parity_remarks, parity_table
from anoco_edge.cli.views.randomness import warn_if_random

if TYPE_CHECKING:
    from anoco_edge_export import ExportedBundle


def export_report(exported: ExportedBundle) -> dict[str, Any]:
    """Return what was exported as JSON."""
    manifest = exported.bundle.manifest
    return {
        "bundle": str(exported.bundle.path),
        "backbone": manifest.backbone.model_dump(),
        "input": manifest.input.model_dump(),
        "layers": list(exported.exported.layers),
        "parity": manifest.parity,
        "terms": exported.exported.terms,
        "plans": [
            {
                **plan.model_dump(),
                "size": exported.bundle.file(plan.path).size,
                "seconds": built.seconds,
                "peak_memory_mb": built.peak_memory_mb,
            }
            for plan, built in zip(manifest.plans, exported.plans, strict=True)
        ],
    }


def show_export(exported: ExportedBundle) -> None:
    """Print how the graph compares with torch, what was written, and what to know about it."""
    bundle = exported.bundle
    parity = bundle.manifest.parity
    out.print(parity_table(parity))
    for remark in parity_remarks(parity):
        note(remark)
    if few := few_pictures(parity):
        warn(few)
    _show_bundle(exported)
    if exported.exported.variant:
        note(exported.exported.variant)
    warn_if_random(bundle)
    half = exported.exported.parity.half
    for island in half.unmatched if half is not None else ():
        note(f"island {island}: this backbone has none")
    if exported.exported.terms:
        if not any(file.path.startswith("LICENSES/beside") for file in bundle.manifest.files):
            warn("no copy of the licence lay beside the weights: put LICENSE there, export again")
        warn(exported.exported.terms)


def _show_bundle(exported: ExportedBundle) -> None:
    bundle = exported.bundle
    contract, backbone = bundle.manifest.input, bundle.manifest.backbone
    kept, of = exported.exported.layers
    megabytes = sum(file.size for file in bundle.graph_files()) / 1e6
    out.print(
        f"[bold]{plain(bundle.path)}[/bold]: {plain(backbone.id)} cut after {plain(backbone.tap)} "
        f"({kept} of {of} layers), "
        f"{contract.width}x{contract.height}, {contract.rows} x {contract.cols} patches, "
        f"{backbone.precision}, {megabytes:.1f} MB; torch agrees within the limits",
        soft_wrap=True,
    )
    for plan, built in zip(bundle.manifest.plans, exported.plans, strict=True):
        out.print(
            f"plan for {plan.target}: {len(built.content) / 1e6:.1f} MB, {built.seconds:.1f} s, "
            f"{built.peak_memory_mb:.0f} MB of memory, {plan.engine} {plan.version}; not run here",
            soft_wrap=True,
            markup=False,
        )
