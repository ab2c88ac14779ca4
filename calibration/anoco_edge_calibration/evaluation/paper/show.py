"""Shows the published tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge_calibration.evaluation.paper import PublishedTable

if TYPE_CHECKING:
    from rich.table import Table

_SHORT = {
    "image_auroc": "AUROC",
    "image_aupr": "AUPR",
    "image_f1max": "F1-max",
    "pixel_auroc": "pixel AUROC",
    "pixel_pro": "PRO",
    "pixel_f1max": "pixel F1-max",
    "rival_ms": "rival",
    "anoco_ms": "ANoCo",
    "retrieval_ms": "of it retrieval",
    "optimisation_ms": "of it optimisation",
    "memory_gb": "GB",
}


def published_table(table: PublishedTable, dataset: str | None) -> Table:
    """Return one data set of a table as the paper prints it; a missing figure is a dash.

    `dataset` is None for a table without data sets.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = table.title if dataset is None else f"{table.title}: {dataset}"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for key in table.keys:
        shown.add_column(key, no_wrap=True)
    for metric in table.metrics:
        shown.add_column(_SHORT[metric], justify="right")
    start = len(table.keys)
    if dataset is not None:
        start += table.datasets.index(dataset) * len(table.metrics)
    for row in table.rows:
        figures = row[start : start + len(table.metrics)]
        cells = [*(str(cell) for cell in row[: len(table.keys)]), *map(_figure, figures)]
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def _figure(value: object) -> str:
    return "-" if value is None else f"{value:.1f}"
