"""The first page of the demo: the contact sheet, the figures, a link to each material's report."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from anoco_edge.demo.figures import MaterialFigures
from anoco_edge.reporting.html_shell import fill, load_page


def index_page(sheet: Image.Image, figures: Sequence[MaterialFigures]) -> str:
    """Return the page as HTML that needs no other file but the reports it links to."""
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    rows = "".join(
        f'<tr><td><a href="{f.material}/report.html">{f.material}</a></td>{_cells(f)}</tr>\n'
        for f in figures
    )
    sheet_text = base64.b64encode(buffer.getvalue()).decode()
    page = load_page("anoco_edge.demo", "index_page", dark=True)
    return fill(page, {"TITLE": "anoco-edge demo", "ROWS": rows, "SHEET": sheet_text})


def _cells(figures: MaterialFigures) -> str:
    counts = (
        figures.good_passed,
        figures.good_rejected,
        figures.defective_found,
        figures.defective_missed,
        f"{figures.image_auroc:.3f}",
    )
    return "".join(f'<td class="num">{count}</td>' for count in counts)
