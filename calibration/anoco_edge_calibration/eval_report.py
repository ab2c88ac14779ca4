"""`anoco-edge eval` as one self-contained HTML file: figures, curves, and what was judged worst."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from anoco_edge.bench.tables import facts
from anoco_edge.bundle.disk import write_atomic, writing
from anoco_edge.bundle.schema import InputContract
from anoco_edge.drawing.overlay import CONTOUR, HALO, PATCH, heat
from anoco_edge.errors import AnocoError, PictureError
from anoco_edge.maps import MapMaker, enlarge
from anoco_edge.pictures import read_picture
from anoco_edge.preprocess import Mask, patch_box
from anoco_edge_calibration.charts import PALETTE, Series, line_chart
from anoco_edge_calibration.dataset import read_mask
from anoco_edge_calibration.evaluation import Evaluation
from anoco_edge_calibration.measuring import Entrant, Found, PictureScore
from anoco_edge_calibration.metrics import Curve, pr_curve, roc_curve
from anoco_edge_calibration.scorers import ANOCO
from anoco_edge_calibration.tables import IMAGE_METRICS, MEAN, Row, Shots, rich_table
from anoco_edge_calibration.variants import Variant

MOST_SHOWN = 4  # misses of a category, and as many false alarms
PICTURE_BYTES = 9_000_000  # of all JPEGs: 12 MB in base64
SIDE, GAP = 360, 8  # pixels of a panel, and between the two
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


@dataclass(frozen=True)
class Shown:
    """A picture that was judged badly, with words on it; as JPEG, or why it is not drawn."""

    name: str
    words: str
    drawn: bytes | str


@dataclass(frozen=True)
class Worst:
    """The worst of one category: defects with the lowest scores, good parts with the highest."""

    scorer: str
    shots: Shots
    seed: int
    defects: int
    good: int
    misses: Sequence[Shown]
    alarms: Sequence[Shown]
    apart: bool
    """Every defect scores above every good part: what is shown are the closest calls."""


class Gallery:
    """Draws what the first ANoCo scorer, taught with the most shots, judges worst.

    Its `look` is for `measure`. Drawn pictures are all it keeps; misses and false alarms of every
    category have the same share of `PICTURE_BYTES`.
    """

    def __init__(
        self, variants: Sequence[Variant], shots: Sequence[Shots], categories: int
    ) -> None:
        anoco = [variant for variant in variants if variant.kind == ANOCO]
        self._variant = [*anoco, *variants][0]
        self._shots = max(shots, key=lambda n: math.inf if n == "full" else n)
        self._share = PICTURE_BYTES // (2 * categories)
        self.worst: dict[str, Worst] = {}

    def look(self, category: str, entrant: Entrant) -> None:
        """Draw the worst, once a category: of the lowest seed that could be taught."""
        wanted = (entrant.variant, entrant.shots) == (self._variant, self._shots)
        if not wanted or category in self.worst:
            return
        contract = entrant.reader.canvas.contract
        found = sorted(entrant.found, key=lambda one: one.score)
        defects = [one for one in found if one.picture.defect is not None]
        good = [one for one in found if one.picture.defect is None]
        self.worst[category] = Worst(
            entrant.variant.name,
            entrant.shots,
            entrant.seed,
            len(defects),
            len(good),
            self._show(defects[:MOST_SHOWN], "below", good, contract),
            self._show(good[::-1][:MOST_SHOWN], "above", defects, contract),
            apart=not (defects and good and defects[0].score < good[-1].score),
        )

    def _show(
        self, found: Sequence[Found], side: str, others: Sequence[Found], contract: InputContract
    ) -> list[Shown]:
        to_map, room, shown = MapMaker(contract), self._share, []
        for one in found:
            try:
                drawn: bytes | str = draw_panels(one, contract, to_map)
            except AnocoError as error:  # it was there minutes ago, and the figures matter more
                drawn = f"Not drawn: {error}"
            if isinstance(drawn, bytes) and len(drawn) > room:
                drawn = "Not drawn: the page would become too large."
            room -= len(drawn) if isinstance(drawn, bytes) else 0
            rank = _rank(one.score, side, [other.score for other in others])
            evidence = f"compared with {one.peak.reference}, similarity {one.peak.similarity:.3f}"
            name = f"{one.picture.path.parent.name}/{one.picture.path.name}"
            shown.append(Shown(name, f"score {one.score:.4g}, {rank}; {evidence}", drawn))
        return shown


def _rank(score: float, side: str, others: Sequence[float]) -> str:
    """How a score stands among those of the other kind.

    >>> _rank(2.0, "below", [1, 2, 3, 4]), _rank(0.5, "above", [1])
    ('scores below 2 of 4 good parts', 'scores above none of 1 defective parts')
    """
    kind = "good" if side == "below" else "defective"
    count = sum(other > score if side == "below" else other < score for other in others)
    if not others:
        return f"no {kind} part to compare with"
    return f"scores {side} {count or 'none'} of {len(others)} {kind} parts"


def draw_panels(found: Found, contract: InputContract, to_map: MapMaker) -> bytes:
    """The picture, and beside it its heat map, the outline of its mask and its strongest patch."""
    rgb = read_picture(found.picture.path)
    height, width = rgb.shape[:2]
    scale = SIDE / max(width, height)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    plain = Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR)
    small = replace(found.placement, picture_width=size[0], picture_height=size[1])
    energies = enlarge(to_map(found.energy, found.counted), small)
    hot = Image.fromarray(heat(np.asarray(plain), energies, None))
    if found.picture.mask is not None:
        with suppress(PictureError):  # which is among the problems of the evaluation already
            _outline(hot, read_mask(found.picture.mask, (width, height)))
    x0, y0, x1, y1 = small.to_picture(patch_box(contract, found.peak.row, found.peak.col))
    corners = (x0, y0, max(x1 - 1, x0), max(y1 - 1, y0))
    ImageDraw.Draw(hot).rectangle(corners, outline=PATCH, width=2)
    both = Image.new("RGB", (2 * size[0] + GAP, size[1]), "#ffffff")
    both.paste(plain, (0, 0))
    both.paste(hot, (size[0] + GAP, 0))
    held = io.BytesIO()
    both.save(held, "JPEG", quality=80, optimize=True)
    return held.getvalue()


def _outline(panel: Image.Image, mask: Mask) -> None:
    """Around the mask, not on it: a defect of a few pixels stays visible."""
    full = Image.fromarray(mask.astype(np.uint8) * 255)
    # Any coverage counts: shrinking a large picture must not lose a small defect.
    covered = full.resize(panel.size, Image.Resampling.BOX).point(lambda value: 255 * (value > 0))
    for reach, colour in ((7, HALO), (5, CONTOUR)):
        ring = ImageChops.subtract(covered.filter(ImageFilter.MaxFilter(reach)), covered)
        panel.paste(colour, (0, 0), ring)


def write_eval_report(
    path: Path,
    title: str,
    result: Evaluation,
    settings: Mapping[str, Any],
    worst: Mapping[str, Worst],
) -> None:
    """Write the page; `settings` are what the figures depend on, `worst` is a `Gallery`'s.

    >>> import tempfile
    >>> from anoco_edge_calibration.tables import METRICS, Row, mean_rows
    >>> rows = [Row("parts", "a<b", 1, 0, "anoco", dict.fromkeys(METRICS, 0.875))]
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
    told = _facts(settings)
    categories = list(dict.fromkeys(row.category for row in result.rows if row.category != MEAN))
    parts = {
        "TITLE": escape(title),
        "BANNER": _banner(result),
        "CARDS": _cards(told),
        "TABLE": _table(result.rows),
        "REMARKS": "".join(f'<p class="quiet">{escape(remark)}.</p>' for remark in result.remarks),
        "CONTENTS": " ".join(
            f'<a href="#c{number}">{escape(name)}</a>' for number, name in enumerate(categories)
        ),
        "LEFT": f" {left} scorers with the lowest mean AUROC are left out." if left else "",
        "CATEGORIES": "".join(
            _category(name, number, result, drawn, worst.get(name))
            for number, name in enumerate(categories)
        ),
        "SETTINGS": _settings(told),
    }
    template = resources.files("anoco_edge_calibration").joinpath("eval_report.html")
    # One pass, so that a title which looks like a placeholder stays a title.
    page = re.sub(r"\{\{([A-Z]+)\}\}", lambda f: parts[f[1]], template.read_text("utf-8"))
    with writing(str(path)):
        # errors="replace": a file name that is not UTF-8 must not cost the whole report.
        write_atomic(path, page.encode("utf-8", errors="replace"))


def _best(result: Evaluation, scorers: Sequence[str]) -> list[str]:
    """As many as there are colours: those with the highest mean image AUROC, in their order."""
    means = [row for row in result.rows if row.category == MEAN and row.seed == MEAN]

    def height(scorer: str) -> float:
        return sum(row.figures[IMAGE_METRICS[0]] or 0 for row in means if row.scorer == scorer)

    kept = set(sorted(scorers, key=height, reverse=True)[: len(PALETTE)])
    return [scorer for scorer in scorers if scorer in kept]


def _banner(result: Evaluation) -> str:
    count = len(result.problems)
    if not count:
        return ""
    lines = [f"<li>{escape(problem.what)}</li>" for problem in result.problems[:MOST_PROBLEMS]]
    if count > MOST_PROBLEMS:
        lines.append(f"<li>and {count - MOST_PROBLEMS} more: see results.json</li>")
    title = f"{count} thing{'s' * (count > 1)} could not be measured"
    return (
        f'<div class="banner" role="note"><strong>{title}</strong><ul>{"".join(lines)}</ul></div>'
    )


def _facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings by name, as people write them.

    >>> _facts({"shots": [1, "full"], "versions": {"numpy": "2.0"}})
    {'shots': '1, full', 'versions': 'numpy 2.0'}
    """
    flat = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in settings.items()}
    return dict(zip(flat, (line.partition(": ")[2] for line in facts(flat)), strict=True))


def _cards(told: Mapping[str, str]) -> str:
    return "".join(
        f'<div class="card"><dt>{word}</dt><dd>{escape(told[name])}</dd></div>'
        for name, word in _CARDS.items()
        if name in told
    )


def _table(rows: Sequence[Row]) -> str:
    """The terminal's table, cell by cell."""
    table = rich_table(rows, "")
    kinds = [' class="num"' if column.justify == "right" else "" for column in table.columns]
    names = [escape(str(column.header)) for column in table.columns]
    head = "".join(f'<th scope="col"{k}>{name}</th>' for k, name in zip(kinds, names, strict=True))
    lines = []
    cells = zip(*(column.cells for column in table.columns), strict=True)
    for row, texts in zip(table.rows, cells, strict=True):
        line = "".join(f"<td{k}>{_cell(text)}</td>" for k, text in zip(kinds, texts, strict=True))
        lines.append(f"<tr{' class=last' if row.end_section else ''}>{line}</tr>\n")
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody></table>"


def _cell(text: Any) -> str:
    words = escape(text.plain)
    return f"<b>{words}</b>" if text.style == "bold" else words


def _category(
    name: str, number: int, result: Evaluation, drawn: Sequence[str], worst: Worst | None
) -> str:
    pictures = [one for one in result.pictures if one.category == name and one.scorer in drawn]
    pairs = "".join(
        _pair(name, [one for one in pictures if one.shots == shots], drawn)
        for shots in dict.fromkeys(one.shots for one in pictures)
    )
    curves = f'<p class="legend">{_legend(drawn)}</p>\n<div class="pairs">{pairs}</div>'
    if not pairs:
        curves = '<p class="quiet">No curves: they need good and defective test parts.</p>'
    return (
        f'<section id="c{number}">\n<h2>{escape(name)}</h2>\n{curves}\n{_worst(worst)}</section>\n'
    )


def _legend(drawn: Sequence[str]) -> str:
    return "".join(
        '<span><svg viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect width="10" height="10" fill="{colour}"/></svg>{escape(name)}</span>'
        for name, colour in zip(drawn, PALETTE, strict=False)
    )


def _pair(category: str, pictures: Sequence[PictureScore], drawn: Sequence[str]) -> str:
    """ROC and PR curves of all scorers at one number of shots, of the lowest seed there is."""
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
        # An empty series keeps the colours of the scorers behind it.
        series = [
            Series("", *_thin(curve(*zip(*both[scorer], strict=True))))
            if scorer in both
            else Series("", [], [])
            for scorer in drawn
        ]
        chart = line_chart(
            series, x_label=x_label, y_label=y_label, title=title, width=CHART, height=CHART
        )
        said = f"{title} of {category}, {_taught(shots, seed)}: {', '.join(both)}"
        charts.append(replace(chart, title=said).svg())
    return f"<figure><figcaption>{_taught(shots, seed)}</figcaption>{''.join(charts)}</figure>"


def _thin(curve: Curve) -> list[list[float]]:
    """One point in each 1/400 of either axis: thousands of pictures make one small chart.

    >>> len(_thin((np.linspace(0, 1, 100_001), np.ones(100_001)))[0])
    402
    """
    points = np.stack(curve)
    _, first = np.unique(np.round(points * 400), axis=1, return_index=True)
    kept: list[list[float]] = points[:, np.union1d(first, points.shape[1] - 1)].tolist()
    return kept


def _taught(shots: Shots, seed: int) -> str:
    """A draw of references, in words.

    >>> _taught(1, 0), _taught("full", 0)
    ('1 shot, seed 0', 'full')
    """
    if shots == "full":
        return shots
    return f"{shots} shot{'s' * (shots > 1)}, seed {seed}"


def _worst(worst: Worst | None) -> str:
    if worst is None:
        return '<p class="quiet">No pictures: the largest number of shots was not taught.</p>\n'
    who = f"{escape(worst.scorer)}, {_taught(worst.shots, worst.seed)}"
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


def _figure(one: Shown) -> str:
    name = escape(one.name)
    if isinstance(one.drawn, str):
        image = f'<p class="lacking">{escape(one.drawn)}</p>'
    else:
        data = base64.b64encode(one.drawn).decode("ascii")
        image = f'<img src="data:image/jpeg;base64,{data}" alt="{name}, beside it its heat map">'
    words = f"<b>{name}</b> {escape(one.words)}"
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>\n"


def _settings(told: Mapping[str, str]) -> str:
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>\n'
        for name, value in told.items()
    )
    return f"<table><tbody>\n{''.join(rows)}</tbody></table>"
