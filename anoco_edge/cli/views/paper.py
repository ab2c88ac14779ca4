"""The tables of the paper, as published."""

from __future__ import annotations

from pathlib import Path

from anoco_edge.cli.console import emit_json, out
from anoco_edge.errors import UsageError


def show_paper(dataset: Path | None, *, json_: bool) -> None:
    """Print all published tables; a data set beside --paper-only is refused."""
    from anoco_edge_calibration.evaluation.paper import load_paper
    from anoco_edge_calibration.evaluation.paper.show import published_table

    if dataset is not None:
        raise UsageError("--paper-only measures nothing", hint="leave out the data set")
    paper = load_paper()
    if json_:
        emit_json([row for table in paper.tables for row in table.flat()])
        return
    out.print(f"{paper.paper}\nPercent, as published; ANoCo with {paper.backbone}.\n")
    for table in paper.tables:
        for name in table.datasets or (None,):
            out.print(published_table(table, name))
