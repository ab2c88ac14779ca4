"""An exported bundle, in words or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.builtin import BUILTIN_LAYERS
from anoco_edge.cli.console import note, out, plain, warn
from anoco_edge.cli.views.parity import few_pictures, parity_remarks, parity_table, unfused_warning
from anoco_edge.cli.views.randomness import warn_if_random

if TYPE_CHECKING:
    from anoco_edge_export import ExportedBundle


def export_report(made: ExportedBundle | Bundle) -> dict[str, object]:
    """Return what was exported, or a bundle with the built-in backbone, as JSON."""
    if isinstance(made, Bundle):
        return _bundle_report(made, BUILTIN_LAYERS, terms="")
    report = _bundle_report(made.bundle, made.exported.layers, made.exported.terms)
    report["plans"] = [
        {
            **plan.model_dump(),
            "size": made.bundle.file(plan.path).size,
            "seconds": built.seconds,
            "peak_memory_mb": built.peak_memory_mb,
        }
        for plan, built in zip(made.bundle.manifest.plans, made.plans, strict=True)
    ]
    return report


def _bundle_report(bundle: Bundle, layers: tuple[int, int], terms: str) -> dict[str, object]:
    manifest = bundle.manifest
    return {
        "bundle": str(bundle.path),
        "backbone": manifest.backbone.model_dump(),
        "input": manifest.input.model_dump(),
        "layers": list(layers),
        "parity": manifest.parity,
        "terms": terms,
        "plans": [],
    }


def show_export(exported: ExportedBundle | Bundle) -> None:
    """Print how the graph compares with torch, what was written, and what to know about it.

    Of a bundle with the built-in backbone only what was written is new to the reader.
    """
    if isinstance(exported, Bundle):
        _show_bundle(exported, BUILTIN_LAYERS)
        return
    bundle = exported.bundle
    parity = bundle.manifest.parity
    out.print(parity_table(parity))
    for remark in parity_remarks(parity):
        note(remark)
    for warning in filter(None, (few_pictures(parity), unfused_warning(parity))):
        warn(warning)
    _show_bundle(bundle, exported.exported.layers)
    _show_plans(exported)
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


def _show_bundle(bundle: Bundle, layers: tuple[int, int]) -> None:
    contract, backbone = bundle.manifest.input, bundle.manifest.backbone
    kept, of = layers
    megabytes = sum(file.size for file in bundle.graph_files()) / 1e6
    out.print(
        f"[bold]{plain(bundle.path)}[/bold]: {plain(backbone.id)} cut after {plain(backbone.tap)} "
        f"({kept} of {of} layers), "
        f"{contract.width}x{contract.height}, {contract.rows} x {contract.cols} patches, "
        f"{backbone.precision}, {megabytes:.1f} MB; torch agrees within the limits",
        soft_wrap=True,
    )


def _show_plans(exported: ExportedBundle) -> None:
    for plan, built in zip(exported.bundle.manifest.plans, exported.plans, strict=True):
        out.print(
            f"plan for {plan.target}: {len(built.content) / 1e6:.1f} MB, {built.seconds:.1f} s, "
            f"{built.peak_memory_mb:.0f} MB of memory, {plan.engine} {plan.version}; not run here",
            soft_wrap=True,
            markup=False,
        )
