"""The first page of the demo: the contact sheet, the figures, a link to each material's report."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from anoco_edge.demo.figures import MaterialFigures

_PAGE = """<!doctype html>
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


def index_page(sheet: Image.Image, figures: Sequence[MaterialFigures]) -> str:
    """Return the page as HTML that needs no other file but the reports it links to."""
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    rows = "".join(
        f'<tr><td><a href="{f.material}/report.html">{f.material}</a></td>'
        f"<td>{f.good_passed}</td><td>{f.good_rejected}</td><td>{f.defective_found}</td>"
        f"<td>{f.defective_missed}</td><td>{f.image_auroc:.3f}</td></tr>"
        for f in figures
    )
    return _PAGE.format(rows=rows, picture=base64.b64encode(buffer.getvalue()).decode())
