"""Writes results as one self-contained HTML file.

Whatever comes from a row is put into the page as text and never as markup.
"""

from __future__ import annotations

import base64
import io
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from anoco_edge.errors import StorageError
from anoco_edge.reporting.html_shell import breakable, fill, load_page
from anoco_edge.results.rows import FailedRow, ResultRow, Row
from anoco_edge.results.sink import RunInfo
from anoco_edge.results.storage_errors import ANOTHER_FOLDER
from anoco_edge.storage.beneath import sweep_temporaries, temporary_name
from anoco_edge.text.plain_text import html_text

# The word for each verdict; "failed" stands for a row with an error.
VERDICT_WORDS = {
    "anomalous": "Anomalous",
    "good": "Good",
    "uncalibrated": "No verdict",
    "failed": "Failed",
}
BANNERS = {
    "provisional": (
        "Verdicts are provisional",
        "The threshold was estimated from the reference pictures alone. For one with a stated "
        "false-reject rate, collect more pictures of good parts and run",
    ),
    "none": (
        "There is no threshold yet",
        "Scores can be compared with each other, but no picture has a verdict. Collect more "
        "pictures of good parts and run",
    ),
}
SUMMARY_WORDS = {
    "median_ms": "Median time (ms)",
    "p95_ms": "95 % are faster than (ms)",
    "skipped": "Skipped frames",
    "drift": "Drift watch",
}
BINS = 40
FIRST_ROWS = 300  # report_page.js has the same number; further rows are shown on request


@dataclass(frozen=True)
class Entry:
    """One picture: its row, and what the page shows of it.

    `overlay` is the path of the overlay file relative to the report, with forward slashes and not
    percent-encoded; `overlay_bytes` (JPEG) is embedded instead when given.
    """

    row: Row
    thumbnail: bytes | None = None
    overlay: str | None = None
    overlay_bytes: bytes | None = None


@dataclass
class _Tally:
    """What the page says above the table; it is gathered while the rows are written."""

    verdicts: Counter[str] = field(default_factory=Counter)
    scores: list[tuple[float, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def thumbnail(image: Image.Image | npt.NDArray[np.uint8], side: int = 160) -> bytes:
    """Make a small JPEG whose larger side is at most `side`.

    >>> thumbnail(np.zeros((300, 600, 3), np.uint8))[:2]
    b'\\xff\\xd8'
    """
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    small = ImageOps.contain(picture.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=80, optimize=True)
    return buffer.getvalue()


def _jpeg_uri(data: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(data).decode("ascii")


def _picture_cell(entry: Entry, name: str) -> str:
    if entry.thumbnail is None:
        image = '<span class="none" aria-hidden="true"></span>'
    else:
        image = f'<img src="{_jpeg_uri(entry.thumbnail)}" alt="" loading="lazy" decoding="async">'
    if entry.overlay_bytes is not None:
        target = _jpeg_uri(entry.overlay_bytes)
    elif entry.overlay is not None:
        # With "./" before it and its colon encoded, a name such as "javascript:..." stays the name
        # of a file.
        target = "./" + quote(entry.overlay, errors="surrogateescape")
    else:
        return f'<td class="pic">{image}</td>'
    label = html_text(f"Show {name} larger")
    return f'<td class="pic"><a class="open" href="{target}" aria-label="{label}">{image}</a></td>'


def _cell(value: float | str | None, text: str, kind: str = "") -> str:
    """Make a cell with the value that it is sorted by; rows without a value come last."""
    key = "" if value is None else html_text(str(value))
    css = f' class="{kind}"' if kind else ""
    return f'<td{css} data-v="{key}">{text}</td>'


def _row(entry: Entry, position: int, tally: _Tally) -> str:
    """Make one line of the table; the cells stand in the order of the headings in the template."""
    row = entry.row
    verdict = row.verdict or "failed"
    tally.verdicts[verdict] += 1
    chip = f'<span class="chip {verdict}">{VERDICT_WORDS[verdict]}</span>'
    error = f'<p class="error">{html_text(row.error)}</p>' if isinstance(row, FailedRow) else ""
    cells = [
        _picture_cell(entry, row.source),
        _cell(row.id, str(row.id), "num"),
        _cell(row.source, f"{breakable(row.source)}{error}", "name"),
        _cell(VERDICT_WORDS[verdict], chip),
        *(_figures(row, tally) if isinstance(row, ResultRow) else _NO_FIGURES),
    ]
    more = ' class="more"' if position > FIRST_ROWS else ""
    return f'<tr data-verdict="{verdict}"{more}>{"".join(cells)}</tr>\n'


def _figures(row: ResultRow, tally: _Tally) -> list[str]:
    """Make the cells that only a picture that was inspected has."""
    tally.scores.append((row.score, row.verdict))
    time = row.total_ms
    if time is not None:
        tally.times.append(time)
    reference, similar = "", ""
    if row.evidence is not None:
        reference = row.evidence.reference
        similar = f" <small>{row.evidence.similarity:.2f} similar</small>"
    return [
        _cell(row.score, f"{row.score:.4g}", "num"),
        _cell(row.ratio, "" if row.ratio is None else f"{row.ratio:.2f}", "num"),
        _cell(len(row.regions), str(len(row.regions)), "num"),
        _cell(reference or None, f"{breakable(reference)}{similar}", "name"),
        _cell(time, "" if time is None else f"{time:.1f}", "num"),
    ]


_NO_FIGURES = [
    _cell(None, "", "num"),
    _cell(None, "", "num"),
    _cell(0, "0", "num"),
    _cell(None, "", "name"),
    _cell(None, "", "num"),
]


def _axis(scores: list[float], threshold: float | None) -> tuple[float, float, bool]:
    """Return the range of the histogram, which is logarithmic where one huge score would flatten
    all others."""
    values = [*scores, threshold] if threshold is not None else scores
    low, high = min(values), max(values)
    usual = float(np.percentile(values, 25))
    if 0 < 20 * usual < high:
        # Scores far below the usual ones are counted in the first bar (0 has no logarithm).
        lowest = max(low, min(usual / 10, threshold or usual))
        return math.log10(lowest) - 0.03, math.log10(high) + 0.03, True
    start = min(low, 0.0)
    return start, max(high * 1.04, start + 1e-12), False


def _bars(counts: Mapping[str, npt.NDArray[np.intp]], edges: list[float], tallest: int) -> str:
    shapes = []
    for i in range(BINS):
        top, words = 150.0, []
        for verdict, column in counts.items():
            if column[i]:
                height = 130.0 * float(column[i]) / tallest
                top -= height
                words.append(f"{column[i]} {VERDICT_WORDS[verdict].lower()}")
                place = f'x="{40 + i * 18 + 1}" y="{top:.2f}" width="16" height="{height:.2f}"'
                shapes.append(f'<rect class="{verdict}" {place}/>')
        if words:
            tip = f"{edges[i]:.4g} to {edges[i + 1]:.4g}: {', '.join(words)}"
            shapes.append(
                f'<rect class="hit" x="{40 + i * 18}" y="20" width="18" height="130">'
                f"<title>{tip}</title></rect>"
            )
    return "".join(shapes)


def histogram(scores: list[tuple[float, str]], threshold: float | None) -> str:
    """Draw scores as a bar chart (SVG), colored by verdict, with the threshold as a line.

    >>> histogram([(0.5, "good"), (2.5, "anomalous")], 1.0).count('<rect class="anomalous"')
    1
    """
    if not scores:
        return '<p class="quiet">No scores to show.</p>'
    start, stop, log = _axis([s for s, _ in scores], threshold)
    raw = np.linspace(start, stop, BINS + 1)
    edges = [float(10**e if log else e) for e in raw]
    counts = {}
    for verdict in ("good", "uncalibrated", "anomalous"):
        own = np.array([s for s, v in scores if v == verdict], dtype=np.float64)
        placed = np.log10(np.maximum(own, edges[0])) if log else own
        counts[verdict] = np.histogram(np.clip(placed, start, stop), bins=raw)[0]
    tallest = max(int(np.sum(list(counts.values()), axis=0).max()), 1)
    words = [_bars(counts, edges, tallest)]
    words += [
        f'<text x="{40 + i * 18}" y="168" text-anchor="middle">{edges[i]:.3g}</text>'
        for i in range(0, BINS + 1, BINS // 4)
    ]
    if threshold is not None:
        at = (math.log10(threshold) if log else threshold) - start
        x = 40 + 720 * at / (stop - start)
        anchor, shift = ("end", -6) if x > 600 else ("start", 6)
        words.append(
            f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="150"/>'
            f'<text class="threshold" x="{x + shift:.1f}" y="14" text-anchor="{anchor}">'
            f"threshold {threshold:.4g}</text>"
        )
    scale = "score, logarithmic" if log else "score"
    legend = "".join(
        f'<span class="{verdict}">{VERDICT_WORDS[verdict]}</span>'
        for verdict, column in counts.items()
        if column.any()
    )
    return (
        '<svg viewBox="0 0 800 188" role="img" aria-label="How many pictures have which score">'
        '<line class="axis" x1="40" x2="760" y1="150" y2="150"/>'
        f'<text x="34" y="24" text-anchor="end">{tallest}</text>'
        '<text x="34" y="154" text-anchor="end">0</text>'
        f'{"".join(words)}<text x="400" y="184" text-anchor="middle">{scale}</text></svg>'
        f'<p class="legend">{legend}</p>'
    )


def _card_text(value: float | str) -> str:
    if isinstance(value, str):
        return html_text(value)
    if isinstance(value, int):
        return str(value)
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def _cards(tally: _Tally, figures: Mapping[str, float | str]) -> str:
    """Show counts and times from the rows, and the figures of the caller after or in place of
    them."""
    values: dict[str, float | str] = {"pictures": tally.verdicts.total()}
    for verdict in ("good", "anomalous", "uncalibrated", "failed"):
        if verdict != "uncalibrated" or tally.verdicts[verdict]:
            values[verdict] = tally.verdicts[verdict]
    if tally.times:
        values["median_ms"] = float(np.median(tally.times))
        values["p95_ms"] = float(np.percentile(tally.times, 95))
    values.setdefault("skipped", 0)
    values.update(figures)
    words = {**VERDICT_WORDS, **SUMMARY_WORDS}
    return "".join(
        f'<div class="card {key if key in VERDICT_WORDS else ""}">'
        f"<dt>{html_text(words.get(key) or key.replace('_', ' ').capitalize())}</dt>"
        f"<dd{' class=words' if isinstance(value, str) else ''}>{_card_text(value)}</dd></div>"
        for key, value in values.items()
    )


def _banner(kind: str) -> str:
    if kind not in BANNERS:
        return ""
    title, text = BANNERS[kind]
    return (
        f'<p class="banner" role="note"><strong>{title}:</strong> '
        f"{text} <code>anoco-edge calibrate</code>.</p>"
    )


def _warning(text: str) -> str:
    if not text:
        return ""
    return f'<p class="banner" role="alert"><strong>Warning:</strong> {html_text(text)}.</p>'


def _threshold(threshold: float | None, kind: str) -> str:
    return "no threshold" if threshold is None else f"threshold {threshold:.4g} ({html_text(kind)})"


def _filters(tally: _Tally) -> str:
    shown = [("all", "All", tally.verdicts.total())]
    shown += [
        (v, word, tally.verdicts[v]) for v, word in VERDICT_WORDS.items() if tally.verdicts[v]
    ]
    return "".join(
        f'<button type="button" data-show="{key}" aria-pressed="{str(key == "all").lower()}">'
        f"{word} <b>{count}</b></button>"
        for key, word, count in shown
    )


def _save(path: Path, head: str, rows: TextIO, tail: str) -> None:
    """Write the file so that a reader sees the old report or the new one, never half of it."""
    sweep_temporaries(path.parent, path.name)
    temporary = path.with_name(temporary_name(path.name))
    try:
        # With errors="replace" the name of a file that is not UTF-8 does not cost the whole report.
        with temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as out:
            out.write(head)
            shutil.copyfileobj(rows, out)
            out.write(tail)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_report_page(
    path: Path,
    entries: Iterable[Entry],
    run: RunInfo,
    figures: Mapping[str, float | str],
    warning: str = "",
) -> None:
    """Write the page; entries are taken one by one, so embedded overlays do not pile up in memory.

    `figures` adds cards (`skipped`, ...) and overrides the computed ones (`pictures`, `median_ms`,
    `p95_ms`); `warning` stands above them. The page understands `#sort=score-desc&show=anomalous`
    in its address.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "report.html")
    ...     row = FailedRow(0, "a<b.png", "a<b.png is empty")
    ...     write_report_page(page, [Entry(row)], RunInfo("Line 3", "nut"), {"skipped": 2})
    ...     "a&lt;b.png" in page.read_text()
    True
    """
    tally = _Tally()
    try:
        with tempfile.TemporaryFile(
            "w+", dir=path.parent, encoding="utf-8", errors="replace", newline="\n"
        ) as rows:
            for position, entry in enumerate(entries, start=1):
                rows.write(_row(entry, position, tally))
            rows.seek(0)
            parts = {
                "TITLE": html_text(run.title),
                "PRODUCT": html_text(run.product),
                "THRESHOLD": _threshold(run.threshold, run.threshold_kind),
                "BANNER": _warning(warning) + _banner(run.threshold_kind),
                "CARDS": _cards(tally, figures),
                "HISTOGRAM": histogram(tally.scores, run.threshold),
                "FILTERS": _filters(tally),
                "EMPTY": "" if tally.verdicts else '<p class="quiet">No pictures yet.</p>',
            }
            page = load_page("anoco_edge.results", "report_page", dark=True, local_images=True)
            head, tail = (fill(text, parts) for text in page.split("{{ROWS}}"))
            _save(path, head, rows, tail)
    except OSError as error:
        raise StorageError(
            f"the report {path} could not be written: {error}",
            hint=f"free some space, or {ANOTHER_FOLDER}",
        ) from error
