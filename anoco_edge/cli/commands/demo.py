"""anoco-edge demo: everything from references to verdicts, on rendered parts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli.builtin import beyond_builtin, check_can_make
from anoco_edge.cli.console import emit_json, progress
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.demo import show_demo
from anoco_edge.cli.views.export_progress import export_bundle
from anoco_edge.errors import missing

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle

GOOD_PARTS, DEFECTIVE_PARTS = 12, 16


def demo(
    out_: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for bundle, pictures and reports.")
    ] = Path("demo-out"),
    backbone: Annotated[
        str, typer.Option(help="Backbone; one that is not built in is exported first.")
    ] = "efficientnet-lite0",
    size: Annotated[int, typer.Option(min=64, help="Input size; 256 is built in.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Other parts: another seed.")] = 3,
    json_: JsonOption = False,
) -> None:
    """Render parts, teach four good ones each, inspect the rest, show the result."""
    try:
        from anoco_edge_calibration.evaluation.metrics import auroc
    except ImportError:
        raise missing("anoco_edge_calibration", "demo", "to measure the demo") from None
    from anoco_edge.bundle import create_builtin_bundle
    from anoco_edge.demo.contact_sheet import contact_sheet
    from anoco_edge.demo.figures import material_figures
    from anoco_edge.demo.index_page import index_page
    from anoco_edge.demo.line import REFERENCES, make_parts, run_shift, save_parts, teach
    from anoco_edge.demo.render import MATERIALS
    from anoco_edge.storage.atomic_files import writing

    sides = (size, size)
    check_can_make(backbone, {"size": sides})
    per_material = GOOD_PARTS + DEFECTIVE_PARTS
    with progress("rendering", len(MATERIALS) * (per_material + REFERENCES)) as step:
        parts = {m: make_parts(m, GOOD_PARTS, DEFECTIVE_PARTS, seed, step) for m in MATERIALS}
    for material, (references, line) in parts.items():
        save_parts(out_ / "parts" / material, references, line)

    def teach_all(new: Bundle) -> None:
        for material, (references, _) in parts.items():
            teach(new, material, references)

    path = out_ / "demo.anoco"
    if beyond_builtin(backbone, {"size": sides}):
        exported = export_bundle(backbone, path, size=sides, overwrite=True, prepare=teach_all)
        bundle = exported.bundle
    else:
        bundle = create_builtin_bundle(path, overwrite=True, prepare=teach_all)
    with progress("inspecting", len(MATERIALS) * per_material) as step:
        shifts = [
            run_shift(bundle, material, line, out_ / material, step)
            for material, (_, line) in parts.items()
        ]
    figures = [material_figures(shift, auroc) for shift in shifts]
    sheet = contact_sheet(
        [(shift.material, shift.cells) for shift in shifts],
        title=f"anoco-edge: {REFERENCES} good parts each, no training, provisional thresholds",
    )
    with writing(str(out_)):
        sheet.save(out_ / "contact_sheet.png", optimize=True)
        (out_ / "report.html").write_text(index_page(sheet, figures), encoding="utf-8")
    if json_:
        materials = [asdict(one) for one in figures]
        emit_json({"out": str(out_), "bundle": str(path), "materials": materials})
    else:
        show_demo(shifts, figures, out_)
