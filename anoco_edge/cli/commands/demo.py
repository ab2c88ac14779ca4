"""anoco-edge demo: the whole road on rendered parts, with nothing but this package."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from anoco_edge.cli.console import emit_json, out, plain, progress
from anoco_edge.cli.options import JsonOption, example
from anoco_edge.errors import missing

if TYPE_CHECKING:
    from PIL import Image

    from anoco_edge.bundle import Bundle
    from anoco_edge.demo.line import Shift

GOOD_PARTS, DEFECTIVE_PARTS = 12, 16


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("anoco-edge demo --out demo-out"))(demo)


def demo(
    out_: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for bundle, pictures and reports.")
    ] = Path("demo-out"),
    backbone: Annotated[str, typer.Option(help="Backbone to export.")] = "efficientnet-lite0",
    size: Annotated[int, typer.Option(min=64, help="Input size of the backbone.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Other parts: another seed.")] = 3,
    json_: JsonOption = False,
) -> None:
    """Render parts, export, teach four good ones each, inspect the rest, show the result."""
    try:
        from anoco_edge_calibration.evaluation.metrics import auroc
    except ImportError:
        raise missing("anoco_edge_calibration", "demo", "to measure the demo") from None
    from anoco_edge.cli.commands.export import export_bundle
    from anoco_edge.demo.contact_sheet import contact_sheet
    from anoco_edge.demo.line import REFERENCES, make_parts, run_shift, save_parts, teach
    from anoco_edge.demo.render import MATERIALS
    from anoco_edge.storage.atomic_files import writing

    per_material = GOOD_PARTS + DEFECTIVE_PARTS
    bundle = out_ / "demo.anoco"
    shifts: list[Shift] = []
    with progress("rendering", len(MATERIALS) * (per_material + REFERENCES)) as step:
        parts = {m: make_parts(m, GOOD_PARTS, DEFECTIVE_PARTS, seed, step) for m in MATERIALS}
    for material, (references, line) in parts.items():
        save_parts(out_ / "parts" / material, references, line)

    def teach_all(new: Bundle) -> None:
        for material, (references, _) in parts.items():
            teach(new.path, material, references)

    export_bundle(backbone, bundle, size=(size, size), overwrite=True, prepare=teach_all)
    with progress("inspecting", len(MATERIALS) * per_material) as step:
        for material, (_, line) in parts.items():
            shifts.append(run_shift(bundle, material, line, out_ / material, step))
    figures = [_figures(shift, auroc) for shift in shifts]
    sheet = contact_sheet(
        [(shift.material, shift.cells) for shift in shifts],
        title=f"anoco-edge: {REFERENCES} good parts each, no training, provisional thresholds",
    )
    with writing(str(out_)):
        sheet.save(out_ / "contact_sheet.png", optimize=True)
        (out_ / "report.html").write_text(_index(sheet, figures), encoding="utf-8")
    if json_:
        emit_json({"out": str(out_), "bundle": str(bundle), "materials": figures})
    else:
        _show(shifts, figures, out_)


def _figures(shift: Shift, auroc: Any) -> dict[str, Any]:
    labels = [part.defect is not None for part in shift.parts]
    return {
        "material": shift.material,
        "image_auroc": auroc([row.score for row in shift.rows], labels),
        "good_passed": shift.count(defective=False, verdict="good"),
        "good_rejected": shift.count(defective=False, verdict="anomalous"),
        "defective_found": shift.count(defective=True, verdict="anomalous"),
        "defective_missed": shift.count(defective=True, verdict="good"),
    }


def _show(shifts: list[Shift], figures: list[dict[str, Any]], folder: Path) -> None:
    verdicts = Table(
        Column("part", no_wrap=True), "provisional verdict", "ratio", "closest reference"
    )
    for shift in shifts:
        for part, row in zip(shift.parts, shift.rows, strict=True):
            right = (row.verdict == "anomalous") == (part.defect is not None)
            color = "green" if row.verdict == "good" else "red"
            verdicts.add_row(
                row.source,
                f"[{color}]{row.verdict}[/]" + ("" if right else "  [yellow]wrong[/]"),
                "-" if row.ratio is None else f"{row.ratio:.2f}",
                row.evidence.reference if row.evidence else "-",
            )
    out.print(verdicts)
    table = Table("material", "good: passed", "rejected", "defective: found", "missed", "AUROC")
    for f in figures:
        table.add_row(
            f["material"],
            str(f["good_passed"]),
            str(f["good_rejected"]),
            str(f["defective_found"]),
            str(f["defective_missed"]),
            f"{f['image_auroc']:.3f}",
        )
    out.print(table)
    out.print(
        f"look at {plain(folder / 'contact_sheet.png')} and {plain(folder / 'report.html')}\n\n"
        "now with your own parts:\n"
        "  anoco-edge export --backbone efficientnet-lite0 --refs GOOD_PICTURES/ --out my.anoco\n"
        "  anoco-edge infer my.anoco PICTURES_TO_INSPECT/ --out out\n"
        "or with a camera:\n"
        "  anoco-edge infer my.anoco --camera 0",
        soft_wrap=True,
    )


def _index(sheet: Image.Image, figures: list[dict[str, Any]]) -> str:
    """A page with the contact sheet, the figures and a link to each material's report."""
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    picture = base64.b64encode(buffer.getvalue()).decode()
    rows = "".join(
        f'<tr><td><a href="{f["material"]}/report.html">{f["material"]}</a></td>'
        f"<td>{f['good_passed']}</td><td>{f['good_rejected']}</td><td>{f['defective_found']}</td>"
        f"<td>{f['defective_missed']}</td><td>{f['image_auroc']:.3f}</td></tr>"
        for f in figures
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>anoco-edge demo</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px;
        padding: 0 1rem; background: #11141a; color: #ecf0f5 }}
 a {{ color: #7ab7ff }} img {{ max-width: 100% }}
 table {{ border-collapse: collapse; margin: 1rem 0 }}
 td, th {{ padding: .3rem 1rem; text-align: right; border-bottom: 1px solid #333a46 }}
 td:first-child, th:first-child {{ text-align: left }}
</style>
<h1>anoco-edge demo</h1>
<p>Rendered parts, four good ones taught for each material; verdicts by provisional thresholds.
Each name opens its full report.</p>
<table><tr><th>material</th><th>good passed</th><th>good rejected</th><th>defective found</th>
<th>defective missed</th><th>image AUROC</th></tr>{rows}</table>
<img alt="contact sheet of the run" src="data:image/png;base64,{picture}">
</html>
"""
