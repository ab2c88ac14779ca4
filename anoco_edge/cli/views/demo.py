"""The verdicts of the demo, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column, Table

from anoco_edge.cli.console import out, plain

if TYPE_CHECKING:
    from anoco_edge.demo.figures import MaterialFigures
    from anoco_edge.demo.line import Shift

_NEXT_STEPS = """
now with your own parts:
  anoco-edge enroll my.anoco GOOD_PICTURES/
  anoco-edge infer my.anoco PICTURES_TO_INSPECT/ --out out
or with a camera, which sees four good parts first:
  anoco-edge infer my.anoco --camera 0 --teach 4"""


def show_demo(shifts: Sequence[Shift], figures: Sequence[MaterialFigures], folder: Path) -> None:
    """Print every verdict, the figures of each material, and how to go on."""
    out.print(_verdict_table(shifts))
    table = Table("material", "good: passed", "rejected", "defective: found", "missed", "AUROC")
    for f in figures:
        table.add_row(
            f.material,
            str(f.good_passed),
            str(f.good_rejected),
            str(f.defective_found),
            str(f.defective_missed),
            f"{f.image_auroc:.3f}",
        )
    out.print(table)
    out.print(
        f"look at {plain(folder / 'contact_sheet.png')} and {plain(folder / 'report.html')}\n"
        f"{_NEXT_STEPS}",
        soft_wrap=True,
    )


def _verdict_table(shifts: Sequence[Shift]) -> Table:
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
                f"{row.ratio or 0:.2f}",
                row.evidence.reference if row.evidence else "-",
            )
    return verdicts
