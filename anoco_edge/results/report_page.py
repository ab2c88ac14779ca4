"""Results as one self-contained HTML file. Whatever comes from a row is text, never markup."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from anoco_edge.errors import StorageError
from anoco_edge.storage.beneath import sweep_temporaries, temporary_name
from anoco_edge.text.plain_text import html_text

# Verdict as written in a row -> word for a person; "failed" stands for a row with an error.
VERDICTS = {
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
FIRST_ROWS = 300  # the template's script says the same: more are shown on request


@dataclass(frozen=True)
class Entry:
    """One picture: its object of results.jsonl, and what to show of it.

    `overlay` is the path of the overlay file relative to the report, with forward slashes and not
    percent-encoded; `overlay_bytes` (JPEG) is embedded instead when given.
    """

    row: Mapping[str, object]
    thumbnail: bytes | None = None
    overlay: str | None = None
    overlay_bytes: bytes | None = None


@dataclass
class _Tally:
    """What the page says above the table; gathered while the rows go by."""

    verdicts: Counter[str] = field(default_factory=Counter)
    scores: list[tuple[float, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def thumbnail(image: Image.Image | npt.NDArray[np.uint8], side: int = 160) -> bytes:
    """A small JPEG whose larger side is at most `side`.

    >>> thumbnail(np.zeros((300, 600, 3), np.uint8))[:2]
    b'\\xff\\xd8'
    """
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    small = ImageOps.contain(picture.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    held = io.BytesIO()
    small.save(held, format="JPEG", quality=80, optimize=True)
    return held.getvalue()


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _total_ms(row: Mapping[str, object]) -> float | None:
    timings = row.get("timings")
    if not isinstance(timings, Mapping):
        return None
    return _number(timings.get("total"))


def _closest(row: Mapping[str, object]) -> tuple[str, float | None]:
    """Name and similarity of the reference behind the row's highest score."""
    evidence = row.get("evidence")
    if isinstance(evidence, (list, tuple)):
        evidence = evidence[0] if evidence else None
    if not isinstance(evidence, Mapping):
        return "", None
    return str(evidence.get("reference", "")), _number(evidence.get("similarity"))


def _verdict(row: Mapping[str, object]) -> str:
    if row.get("error"):
        return "failed"
    verdict = str(row.get("verdict", ""))
    return verdict if verdict in VERDICTS else "uncalibrated"


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
        # "./" and an encoded colon: a name such as "javascript:..." stays a file name.
        target = "./" + quote(entry.overlay, errors="surrogateescape")
    else:
        return f'<td class="pic">{image}</td>'
    label = html_text(f"Show {name} larger")
    return f'<td class="pic"><a class="open" href="{target}" aria-label="{label}">{image}</a></td>'


def _breakable(path: str) -> str:
    return html_text(path).replace("/", "/<wbr>")


def _cell(value: float | str | None, text: str, kind: str = "") -> str:
    """A cell with the value it is sorted by; rows without one come last in either direction."""
    key = "" if value is None else html_text(str(value))
    css = f' class="{kind}"' if kind else ""
    return f'<td{css} data-v="{key}">{text}</td>'


def _row(entry: Entry, position: int, tally: _Tally) -> str:
    """One line of the table; the cells stand in the order of the template's headings."""
    row = entry.row
    verdict, score, ratio = _verdict(row), _number(row.get("score")), _number(row.get("ratio"))
    time, (reference, similarity) = _total_ms(row), _closest(row)
    regions = row.get("regions")
    count = len(regions) if isinstance(regions, (list, tuple)) else None
    name = str(row.get("source", ""))
    tally.verdicts[verdict] += 1
    if score is not None:
        tally.scores.append((score, verdict))
    if time is not None:
        tally.times.append(time)
    number = _number(row.get("id"))
    shown_id = str(row.get("id", position))
    error = f'<p class="error">{html_text(str(row["error"]))}</p>' if row.get("error") else ""
    similar = "" if similarity is None else f" <small>{similarity:.2f} similar</small>"
    cells = [
        _picture_cell(entry, name),
        _cell(position if number is None else number, html_text(shown_id), "num"),
        _cell(name, f"{_breakable(name)}{error}", "name"),
        _cell(VERDICTS[verdict], f'<span class="chip {verdict}">{VERDICTS[verdict]}</span>'),
        _cell(score, "" if score is None else f"{score:.4g}", "num"),
        _cell(ratio, "" if ratio is None else f"{ratio:.2f}", "num"),
        _cell(count, "" if count is None else str(count), "num"),
        _cell(reference or None, f"{_breakable(reference)}{similar}", "name"),
        _cell(time, "" if time is None else f"{time:.1f}", "num"),
    ]
    more = ' class="more"' if position > FIRST_ROWS else ""
    return f'<tr data-verdict="{verdict}"{more}>{"".join(cells)}</tr>\n'


def _axis(scores: list[float], threshold: float | None) -> tuple[float, float, bool]:
    """Range of the histogram; logarithmic where one huge score would flatten all others."""
    values = [*scores, threshold] if threshold is not None else scores
    low, high = min(values), max(values)
    usual = float(np.percentile(values, 25))
    if 0 < 20 * usual < high:
        # What lies far below the usual (0 has no logarithm) is counted in the first bar.
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
                words.append(f"{column[i]} {VERDICTS[verdict].lower()}")
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
    """Scores as a bar chart (SVG), coloured by verdict, with the threshold as a line.

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
        f'<span class="{verdict}">{VERDICTS[verdict]}</span>'
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


def _shown(value: object) -> str:
    number = _number(value)
    if isinstance(value, int) or number is None:
        return html_text("-" if value is None else str(value))
    return f"{number:.1f}" if abs(number) >= 1 else f"{number:.3g}"


def _cards(tally: _Tally, summary: Mapping[str, object]) -> str:
    """Counts and times from the rows; the caller's own figures after them, or instead of them."""
    values: dict[str, object] = {"pictures": tally.verdicts.total()}
    for verdict in ("good", "anomalous", "uncalibrated", "failed"):
        if verdict != "uncalibrated" or tally.verdicts[verdict]:
            values[verdict] = tally.verdicts[verdict]
    if tally.times:
        values["median_ms"] = float(np.median(tally.times))
        values["p95_ms"] = float(np.percentile(tally.times, 95))
    values.setdefault("skipped", 0)
    values.update(summary)
    words = {**VERDICTS, **SUMMARY_WORDS}
    return "".join(
        f'<div class="card {key if key in VERDICTS else ""}">'
        f"<dt>{html_text(words.get(key) or key.replace('_', ' ').capitalize())}</dt>"
        f"<dd{' class=words' if isinstance(value, str) else ''}>{_shown(value)}</dd></div>"
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
    shown += [(v, word, tally.verdicts[v]) for v, word in VERDICTS.items() if tally.verdicts[v]]
    return "".join(
        f'<button type="button" data-show="{key}" aria-pressed="{str(key == "all").lower()}">'
        f"{word} <b>{count}</b></button>"
        for key, word, count in shown
    )


def _template() -> tuple[str, str]:
    """The page before and after the rows; its one script is allowed by hash, no other ever runs."""
    text = resources.files("anoco_edge.results").joinpath("report_template.html").read_text("utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    head, tail = text.replace("{{SCRIPT_HASH}}", f"sha256-{digest}").split("{{ROWS}}")
    return head, tail


def _save(path: Path, head: str, rows: TextIO, tail: str) -> None:
    """All or nothing: a reader sees the old report or the new one, never half of it."""
    sweep_temporaries(path.parent, path.name)
    temporary = path.with_name(temporary_name(path.name))
    try:
        # errors="replace": a file name that is not UTF-8 must not cost the whole report.
        with temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as out:
            out.write(head)
            shutil.copyfileobj(rows, out)
            out.write(tail)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_report(
    path: Path,
    entries: Iterable[Entry],
    *,
    title: str,
    product: str,
    threshold: float | None,
    threshold_kind: str,
    summary: Mapping[str, object],
    warning: str = "",
) -> None:
    """Write the page; entries are taken one by one, so embedded overlays do not pile up in memory.

    `summary` adds cards (`skipped`, ...) and overrides the computed ones (`pictures`, `median_ms`,
    `p95_ms`); `warning` stands above them. The page honours `#sort=score-desc&show=anomalous` in
    its address.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "report.html")
    ...     write_report(page, [Entry({"source": "a<b.png", "score": 0.5, "verdict": "good"})],
    ...                  title="Line 3", product="nut", threshold=1.0, threshold_kind="manual",
    ...                  summary={"skipped": 2})
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
                "TITLE": html_text(title),
                "PRODUCT": html_text(product),
                "THRESHOLD": _threshold(threshold, threshold_kind),
                "BANNER": _warning(warning) + _banner(threshold_kind),
                "CARDS": _cards(tally, summary),
                "HISTOGRAM": histogram(tally.scores, threshold),
                "FILTERS": _filters(tally),
                "EMPTY": "" if tally.verdicts else '<p class="quiet">No pictures yet.</p>',
            }
            head, tail = (
                # One pass, so that a title which looks like a placeholder stays a title.
                re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], text)
                for text in _template()
            )
            _save(path, head, rows, tail)
    except OSError as error:
        raise StorageError(
            f"the report {path} could not be written: {error}",
            hint="free some space, or choose another `folder`",
        ) from error
