"""The report of an evaluation as one HTML file: figures, curves, and the worst pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anoco_edge.diagnostics.bench.tables import facts
from anoco_edge.reporting.charts import PALETTE, Series, line_chart, paint_attributes
from anoco_edge.reporting.html_shell import fill, load_page, save_page
from anoco_edge.text.plain_text import html_text
from anoco_edge_calibration.evaluation.gallery import CategoryGallery, GalleryPicture
from anoco_edge_calibration.evaluation.metrics import Curve, pr_curve, roc_curve
from anoco_edge_calibration.evaluation.runner import Evaluation
from anoco_edge_calibration.evaluation.tables import (
    IMAGE_METRICS,
    MEAN,
    EvaluationRow,
    Shots,
    evaluation_table,
)
from anoco_edge_calibration.evaluation.unit import PictureScore

CHART = 320
MOST_PROBLEMS = 20
_CARDS = {
    "dataset": "Data set",
    "backbone": "Backbone",
    "size": "Input size",
    "precision": "Precision",
    "engine": "Engine",
    "shots": "Shots",
    "seeds": "Seeds",
    "cpu": "Machine",
}


def write_eval_report(
    path: Path,
    title: str,
    result: Evaluation,
    settings: Mapping[str, object],
    worst: Mapping[str, CategoryGallery],
) -> None:
    """Write the page.

    `settings` is everything that the figures depend on, and `worst` comes from a `Gallery`.

    >>> import tempfile
    >>> from anoco_edge_calibration.evaluation.tables import METRICS, EvaluationRow, mean_rows
    >>> rows = [EvaluationRow("parts", "a<b", 1, 0, "anoco", dict.fromkeys(METRICS, 0.875))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "report.html")
    ...     write_eval_report(page, "parts", Evaluation(rows + mean_rows(rows)), {}, {})
    ...     text = page.read_text(encoding="utf-8")
    >>> "a&lt;b" in text, "87.5" in text
    (True, True)
    """
    scorers = list(dict.fromkeys(row.scorer for row in result.rows))
    drawn = _best(result, scorers) if len(scorers) > len(PALETTE) else scorers
    left = len(scorers) - len(drawn)
    shown = _facts(settings)
    categories = list(dict.fromkeys(row.category for row in result.rows if row.category != MEAN))
    parts = {
        "TITLE": html_text(f"{title}: how well defects are found"),
        "BANNER": _banner(result),
        "CARDS": _cards(shown),
        "TABLE": _table(result.rows),
        "REMARKS": "".join(
            f'<p class="quiet">{html_text(remark)}.</p>' for remark in result.remarks
        ),
        "CONTENTS": " ".join(
            f'<a href="#c{number}">{html_text(name)}</a>' for number, name in enumerate(categories)
        ),
        "LEFT": f" {left} scorers with the lowest mean AUROC are left out." if left else "",
        "CATEGORIES": "".join(
            _category(name, number, result, drawn, worst.get(name))
            for number, name in enumerate(categories)
        ),
        "SETTINGS": _settings(shown),
    }
    page = load_page("anoco_edge_calibration.evaluation", "eval_report", dark=True)
    save_page(path, fill(page, parts))


def _best(result: Evaluation, scorers: Sequence[str]) -> list[str]:
    """Return as many scorers as there are colors: those with the highest mean image AUROC."""
    means = [row for row in result.rows if row.category == MEAN and row.seed == MEAN]

    def height(scorer: str) -> float:
        return sum(row.figures[IMAGE_METRICS[0]] or 0 for row in means if row.scorer == scorer)

    kept = set(sorted(scorers, key=height, reverse=True)[: len(PALETTE)])
    return [scorer for scorer in scorers if scorer in kept]


def _banner(result: Evaluation) -> str:
    count = len(result.problems)
    if not count:
        return ""
    lines = [f"<li>{html_text(problem.what)}</li>" for problem in result.problems[:MOST_PROBLEMS]]
    if count > MOST_PROBLEMS:
        lines.append(f"<li>and {count - MOST_PROBLEMS} more: see results.json</li>")
    title = f"{count} thing{'s' * (count > 1)} could not be measured"
    return (
        f'<div class="banner" role="note"><strong>{title}</strong><ul>{"".join(lines)}</ul></div>'
    )


def _facts(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings by name, each as text.

    >>> _facts({"shots": [1, "full"], "versions": {"numpy": "2.0"}})
    {'shots': '1, full', 'versions': 'numpy 2.0'}
    """
    flat = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in settings.items()}
    return dict(zip(flat, (line.partition(": ")[2] for line in facts(flat)), strict=True))


def _cards(shown: Mapping[str, str]) -> str:
    return "".join(
        f'<div class="card"><dt>{word}</dt><dd>{html_text(shown[name])}</dd></div>'
        for name, word in _CARDS.items()
        if name in shown
    )


def _table(rows: Sequence[EvaluationRow]) -> str:
    """Return the table of the terminal as HTML, cell by cell."""
    table = evaluation_table(rows, "")
    kinds = [' class="num"' if column.justify == "right" else "" for column in table.columns]
    names = [html_text(str(column.header)) for column in table.columns]
    head = "".join(f'<th scope="col"{k}>{name}</th>' for k, name in zip(kinds, names, strict=True))
    lines = []
    cells = zip(*(column.cells for column in table.columns), strict=True)
    for row, texts in zip(table.rows, cells, strict=True):
        line = "".join(f"<td{k}>{_cell(text)}</td>" for k, text in zip(kinds, texts, strict=True))
        lines.append(f"<tr{' class=last' if row.end_section else ''}>{line}</tr>\n")
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody></table>"


def _cell(text: Any) -> str:
    words = html_text(text.plain)
    return f"<b>{words}</b>" if text.style == "bold" else words


def _category(
    name: str, number: int, result: Evaluation, drawn: Sequence[str], worst: CategoryGallery | None
) -> str:
    pictures = [one for one in result.pictures if one.category == name and one.scorer in drawn]
    pairs = "".join(
        _pair(name, [one for one in pictures if one.shots == shots], drawn)
        for shots in dict.fromkeys(one.shots for one in pictures)
    )
    curves = f'<p class="legend">{_legend(drawn)}</p>\n<div class="pairs">{pairs}</div>'
    if not pairs:
        curves = '<p class="quiet">No curves: they need good and defective test parts.</p>'
    heading = f'<section id="c{number}">\n<h2>{html_text(name)}</h2>'
    return f"{heading}\n{curves}\n{_worst(worst)}</section>\n"


def _legend(drawn: Sequence[str]) -> str:
    return "".join(
        '<span><svg viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect width="10" height="10" {paint_attributes("fill", color)}/></svg>'
        f"{html_text(name)}</span>"
        for name, color in zip(drawn, PALETTE, strict=False)
    )


def _pair(category: str, pictures: Sequence[PictureScore], drawn: Sequence[str]) -> str:
    """Draw ROC and PR curves of all scorers for one number of shots and the lowest seed."""
    shots, seed = pictures[0].shots, min(one.seed for one in pictures)
    labelled = {
        scorer: [
            (one.score, one.defect is not None)
            for one in pictures
            if (one.seed, one.scorer) == (seed, scorer)
        ]
        for scorer in drawn
    }
    both = {k: v for k, v in labelled.items() if len({defect for _, defect in v}) == 2}
    if not both:
        return ""
    charts = []
    for title, curve, x_label, y_label in (
        ("ROC", roc_curve, "good parts rejected", "defects found"),
        ("Precision and recall", pr_curve, "defects found (recall)", "precision"),
    ):
        # An empty series keeps the colors of the scorers after it.
        series = [
            Series("", *_thin(curve(*zip(*both[scorer], strict=True))))
            if scorer in both
            else Series("", [], [])
            for scorer in drawn
        ]
        chart = line_chart(
            series, x_label=x_label, y_label=y_label, title=title, width=CHART, height=CHART
        )
        said = f"{title} of {category}, {_draw_name(shots, seed)}: {', '.join(both)}"
        charts.append(replace(chart, title=said).svg())
    return f"<figure><figcaption>{_draw_name(shots, seed)}</figcaption>{''.join(charts)}</figure>"


def _thin(curve: Curve) -> list[list[float]]:
    """Keep one point in each 1/400 of either axis, so that a chart stays small.

    >>> len(_thin((np.linspace(0, 1, 100_001), np.ones(100_001)))[0])
    402
    """
    points = np.stack(curve)
    _, first = np.unique(np.round(points * 400), axis=1, return_index=True)
    kept: list[list[float]] = points[:, np.union1d(first, points.shape[1] - 1)].tolist()
    return kept


def _draw_name(shots: Shots, seed: int) -> str:
    """Describe a draw of references in words.

    >>> _draw_name(1, 0), _draw_name("full", 0)
    ('1 shot, seed 0', 'full')
    """
    if shots == "full":
        return shots
    return f"{shots} shot{'s' * (shots > 1)}, seed {seed}"


def _worst(worst: CategoryGallery | None) -> str:
    if worst is None:
        return '<p class="quiet">No pictures: the largest number of shots was not taught.</p>\n'
    who = f"{html_text(worst.scorer)}, {_draw_name(worst.shots, worst.seed)}"
    html = ""
    for what, shown, of in (
        ("misses: defective parts with the lowest scores", worst.misses, worst.defects),
        ("false alarms: good parts with the highest scores", worst.alarms, worst.good),
    ):
        if shown:
            title = f"{'No' if worst.apart else 'Worst'} {what}"
            html += f"<h3>{title} <small>{who}; {len(shown)} of {of}</small></h3>\n"
            html += f'<div class="shown">{"".join(map(_figure, shown))}</div>\n'
    return html


def _figure(one: GalleryPicture) -> str:
    name = html_text(one.name)
    if isinstance(one.drawn, str):
        image = f'<p class="lacking">{html_text(one.drawn)}</p>'
    else:
        data = base64.b64encode(one.drawn).decode("ascii")
        image = f'<img src="data:image/jpeg;base64,{data}" alt="{name}, beside it its heat map">'
    words = f"<b>{name}</b> {html_text(one.words)}"
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>\n"


def _settings(shown: Mapping[str, str]) -> str:
    rows = (
        f'<tr><th scope="row">{html_text(name)}</th><td>{html_text(value)}</td></tr>\n'
        for name, value in shown.items()
    )
    return f"<table><tbody>\n{''.join(rows)}</tbody></table>"
