"""The report of a calibration as one self-contained HTML file, to print or to archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anoco_edge.reporting.charts import Chart, histogram_chart
from anoco_edge.reporting.html_shell import breakable, fill, load_page, save_page
from anoco_edge.scoring.conformal import Conformal, group_maxima, percent, score_range
from anoco_edge.text.plain_text import html_text
from anoco_edge_calibration.thresholds.tradeoff import Tradeoff, tradeoff, tradeoff_chart

RATES = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)  # the table shows a threshold for each
Scored = tuple[str, str, float]  # the name of a picture, its part (its group), its score


def score_histogram(
    found: Conformal, pictures: Sequence[Scored], defects: Sequence[Scored] = (), *, exact: bool
) -> Chart:
    """Return a chart of the scores of parts and the threshold, which the page shows.

    The range of the threshold is shaded if the parts were held out of the references (`exact`).

    >>> from anoco_edge.scoring.conformal import conformal_threshold
    >>> parts = [("a.png", "a", 1.0), ("b.png", "b", 2.0)]
    >>> score_histogram(conformal_threshold([1, 2], 0.5), parts, exact=True).png()[1:4]
    b'PNG'
    """
    good, bad = _parts(pictures), _parts(defects)
    return histogram_chart(
        good,
        threshold=found.threshold,
        between=score_range(good, found) if exact else None,
        defects=bad,
        title="Scores of good and defective parts" if bad else "Scores of good parts",
    )


def write_calibration_report(
    path: Path,
    *,
    title: str,
    product: str,
    found: Conformal,
    words: str,
    exact: bool,
    pictures: Sequence[Scored],
    defects: Sequence[Scored] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Write the page: what the threshold promises, the charts, and every picture with its score.

    `words` come from `anoco_edge.scoring.conformal.describe`, which was called with `exact`.
    Pictures that share a group show one part. With scores of defective parts the page shows what
    each threshold would miss. `warnings` stand above everything else.

    >>> import tempfile
    >>> from anoco_edge.scoring.conformal import conformal_threshold, describe
    >>> found = conformal_threshold([1.0, 2.0], 0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "report.html")
    ...     write_calibration_report(
    ...         page, title="Line 3", product="nut", found=found,
    ...         words=describe(found, exact=True), exact=True,
    ...         pictures=[("a<b.png", "a", 1.0), ("c.png", "c", 2.0)])
    ...     "a&lt;b.png" in page.read_text(encoding="utf-8")
    True
    """
    parts = {
        "TITLE": html_text(title),
        "PRODUCT": html_text(product),
        "BANNERS": "".join(f'<p class="banner" role="note">{html_text(w)}</p>' for w in warnings),
        "WORDS": html_text(words),
        "CARDS": _cards(found, exact, len(pictures), len(defects)),
        "HISTOGRAM": score_histogram(found, pictures, defects, exact=exact).svg(),
        "TRADEOFF": "",
        "PICTURES": _scores(sorted(pictures, key=lambda p: -p[2]), found.threshold),
    }
    if defects:
        curve = tradeoff(_parts(pictures), _parts(defects), found.threshold)
        parts["TRADEOFF"] = _tradeoff_section(curve, defects)
    page = load_page("anoco_edge_calibration.thresholds", "calibration_report", dark=True)
    save_page(path, fill(page, parts))


def _parts(pictures: Sequence[Scored]) -> list[float]:
    """Return one score for each part: the highest of its pictures."""
    return group_maxima([score for _, _, score in pictures], [group for _, group, _ in pictures])


def _cards(found: Conformal, exact: bool, pictures: int, defects: int) -> str:
    low, high = found.interval
    values = {"Threshold": f"{found.threshold:.4g}"}
    if exact:
        values["Good parts rejected on average, at most"] = percent(found.false_reject, up=True)
        values["By this calibration (90 %)"] = f"{percent(low)} to {percent(high)}"
    else:
        values["Guaranteed false-reject rate"] = "none"
    values["Good parts"] = str(found.parts)
    values["Pictures of them"] = str(pictures)
    if defects:
        values["Pictures of defects"] = str(defects)
    return "".join(
        f'<div class="card"><dt>{word}</dt><dd>{value}</dd></div>' for word, value in values.items()
    )


def _tradeoff_section(curve: Tradeoff, defects: Sequence[Scored]) -> str:
    rows = []
    for rate in RATES:
        i = curve.lowest_for(rate)
        rejected, missed = curve.false_rejects[i] * curve.good, curve.missed[i] * curve.defects
        cells = _costs(curve, curve.thresholds[i], round(rejected), round(missed))
        rows.append(f"<tr><td>{percent(rate)}</td>{cells}</tr>")
    cells = _costs(curve, curve.threshold, curve.good_rejected, curve.defects_missed)
    rows.append(f'<tr class="chosen"><td>chosen threshold</td>{cells}</tr>')
    headings = ("Rejecting at most", "#Threshold", "#Good parts rejected", "#Defects missed")
    return (
        "<section>\n<h2>Missed defects against false rejects</h2>\n"
        f"{tradeoff_chart(curve).svg()}\n{_table(headings, rows)}\n"
        '<p class="quiet">Counted on the pictures given here: a threshold picked from this table '
        "promises nothing exact about parts to come.</p>\n</section>\n"
        "<section>\n<h2>Defective parts, lowest score first</h2>\n"
        f"{_scores(sorted(defects, key=lambda p: p[2]), curve.threshold)}\n</section>"
    )


def _costs(curve: Tradeoff, threshold: float, rejected: int, missed: int) -> str:
    return (
        f'<td class="num">{threshold:.4g}</td>'
        f'<td class="num">{rejected} of {curve.good} ({percent(rejected / curve.good)})</td>'
        f'<td class="num">{missed} of {curve.defects} ({percent(missed / curve.defects)})</td>'
    )


def _scores(pictures: Sequence[Scored], threshold: float) -> str:
    rows = []
    for name, group, score in pictures:
        css = ' class="over"' if score > threshold else ""
        ratio = f"{score / threshold:.2f}" if threshold > 0 else ""
        rows.append(
            f'<tr{css}><td class="name">{breakable(name)}</td>'
            f'<td class="name">{breakable(group)}</td>'
            f'<td class="num">{score:.4g}</td><td class="num">{ratio}</td></tr>'
        )
    return _table(("Picture", "Part", "#Score", "#Times threshold"), rows)


def _table(headings: Sequence[str], rows: Sequence[str]) -> str:
    """Return an HTML table; a column whose heading begins with # holds numbers."""
    cells = (
        f'<th scope="col"{" class=num" if word[0] == "#" else ""}>{word.lstrip("#")}</th>'
        for word in headings
    )
    head = f"<thead><tr>{''.join(cells)}</tr></thead>"
    return f"<table>{head}\n<tbody>\n{chr(10).join(rows)}\n</tbody></table>"
