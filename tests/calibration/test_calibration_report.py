"""The report of a calibration shows the trade-off, charts and a page."""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.errors import ScoringError, StorageError, UsageError
from anoco_edge.reporting.charts import (
    DEFECT,
    GOOD,
    RIGHT,
    THRESHOLD,
    Chart,
    Marker,
    Series,
    histogram_chart,
    line_chart,
)
from anoco_edge.scoring.conformal import conformal_threshold, describe
from anoco_edge_calibration.thresholds.calibration_report import (
    score_histogram,
    write_calibration_report,
)
from anoco_edge_calibration.thresholds.tradeoff import tradeoff, tradeoff_chart


def test_the_trade_off_by_hand() -> None:
    found = tradeoff([1, 2, 2, 5], [2, 6], threshold=2)
    assert found.thresholds == (1, 2, 5, 6)
    assert found.false_rejects == (0.75, 0.25, 0, 0)  # a score equal to the threshold passes
    assert found.missed == (0, 0.5, 0.5, 1)
    assert (found.at, found.defects_missed, found.good_rejected) == (0.5, 1, 1)
    assert found.thresholds[found.lowest_for(0.25)] == 2
    assert found.thresholds[found.lowest_for(0.1)] == 5


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.floats(0, 10),
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_the_trade_off_by_counting(good: list[int], bad: list[int], chosen: float) -> None:
    found = tradeoff(good, bad, chosen)
    assert list(found.thresholds) == sorted({*good, *bad})
    for t, missed, rejects in zip(found.thresholds, found.missed, found.false_rejects, strict=True):
        assert missed == sum(s <= t for s in bad) / len(bad)
        assert rejects == sum(s > t for s in good) / len(good)
    assert found.at == sum(s <= chosen for s in bad) / len(bad)


def test_a_trade_off_needs_both_kinds_and_numbers() -> None:
    with pytest.raises(UsageError, match="2 good and 0 defective"):
        tradeoff([1, 2], [], 1)
    with pytest.raises(ScoringError):
        tradeoff([1, math.nan], [3], 1)


SVG = "{http://www.w3.org/2000/svg}"


def elements(chart: Chart | str, tag: str, **wanted: str) -> list[ET.Element]:
    root = ET.fromstring(chart if isinstance(chart, str) else chart.svg())
    return [e for e in root.iter(SVG + tag) if wanted.items() <= e.attrib.items()]


def ticks(chart: Chart) -> dict[float, float]:
    """Map each value to the x of its label under the x axis."""
    found = {}
    for text in elements(chart, "text", **{"text-anchor": "middle"}):
        if re.fullmatch(r"[0-9.e+-]+", text.text or ""):
            found[float(text.text or "")] = float(text.attrib["x"])
    return found


def threshold_x(chart: Chart) -> float:
    (line,) = elements(chart, "polyline", stroke=THRESHOLD)
    assert "stroke-dasharray" in line.attrib
    first, last = (pair.split(",") for pair in line.attrib["points"].split())
    assert first[0] == last[0], "upright"
    return float(first[0])


def test_the_threshold_stands_where_the_axis_says() -> None:
    chart = histogram_chart([1, 2, 3, 4, 9], threshold=6.5)
    at = ticks(chart)
    (v0, x0), *_, (v1, x1) = sorted(at.items())
    assert len(at) >= 4
    assert threshold_x(chart) == pytest.approx(x0 + (6.5 - v0) * (x1 - x0) / (v1 - v0), abs=0.02)
    assert any(t.text == "threshold 6.5" for t in elements(chart, "text", fill=THRESHOLD))


def test_scores_that_span_more_than_fifty_times_get_a_logarithmic_axis() -> None:
    chart = histogram_chart([0.0, 1, 2, 20], threshold=30, defects=[3000])
    at = ticks(chart)
    decade = at[100] - at[10]
    assert at[1000] - at[100] == pytest.approx(decade, abs=0.02)
    assert threshold_x(chart) == pytest.approx(at[10] + decade * math.log10(3), abs=0.02)
    assert any("logarithmic" in (t.text or "") for t in elements(chart, "text"))
    assert "logarithmic" not in histogram_chart([1, 2, 49], threshold=30).svg()


def test_bars_count_the_scores() -> None:
    chart = histogram_chart([1, 1, 1, 2, 5, 9], threshold=5, defects=[9, 9])
    bars = {
        colour: [float(e.attrib["height"]) for e in elements(chart, "rect", fill=colour)]
        for colour in (GOOD, DEFECT)
    }
    swatch = 10.0  # in the legend, beside the name
    unit = max(bars[GOOD]) / 3
    assert sorted(bars[GOOD]) == pytest.approx([swatch, unit, unit, unit, 3 * unit], abs=0.02)
    assert sorted(bars[DEFECT]) == pytest.approx([swatch, 2 * unit], abs=0.02)


@pytest.mark.parametrize("above", [8.0, math.inf])
def test_the_range_of_the_threshold_is_shaded(above: float) -> None:
    chart = histogram_chart([1, 2, 3, 4, 9], threshold=6.5, between=(4, above))
    (band,) = elements(chart, "rect", fill=THRESHOLD)
    left, wide = float(band.attrib["x"]), float(band.attrib["width"])
    at = ticks(chart)
    assert left == pytest.approx(at[4], abs=0.02)
    right = at[8] if above == 8 else chart.width - RIGHT
    assert left + wide == pytest.approx(right, abs=0.02)


@pytest.mark.parametrize("scores", [[0.0], [0.0, 0.0], [3.0, 3.0], [1e-9, 1e9], [5e-324, 1.0]])
def test_odd_scores_make_a_chart_too(scores: list[float]) -> None:
    chart = histogram_chart(scores, threshold=scores[0], between=(0.0, math.inf))
    assert ticks(chart) and "nan" not in chart.svg()
    assert Image.open(io.BytesIO(chart.png(1))).size == (chart.width, chart.height)
    with pytest.raises(ScoringError):
        histogram_chart([*scores, math.nan], threshold=1)


def near(picture: NDArray[np.int_], colour: str, opacity: float = 1.0) -> NDArray[np.bool_]:
    paint = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)])
    mixed = opacity * paint + (1 - opacity) * 255
    return np.asarray((np.abs(picture - mixed) <= 2).all(axis=2))


def test_the_png_shows_the_same() -> None:
    chart = histogram_chart([1, 2, 3, 4, 4, 4], threshold=6.5, defects=[8, 9, 9])
    picture = np.asarray(Image.open(io.BytesIO(chart.png(scale=2)))).astype(int)
    assert picture.shape == (2 * chart.height, 2 * chart.width, 3)
    blue, orange = (near(picture, colour, 0.75) for colour in (GOOD, DEFECT))
    assert blue.sum() > 5000 and orange.sum() > 2000
    assert np.nonzero(blue)[1].max() < 2 * threshold_x(chart) < np.nonzero(orange)[1].min()
    column = near(picture, THRESHOLD)[:, round(2 * threshold_x(chart))]
    dashes = np.diff(column.astype(int)) == 1
    assert 0.4 < column[130:580].mean() < 0.8 and dashes.sum() > 15
    # The title and the rotated label of the y axis are there.
    assert near(picture, "#1b1f26")[10:55, 128:500].any()
    assert (picture[300:400, 16:50].min(axis=2) < 150).any()


def test_a_line_chart_for_any_curves() -> None:
    curve = Series("ours <1>", [0, 0.5, 1], [0, 0.75, 1])
    svg = line_chart(
        [curve, Series("chance", [0, 1], [0, 1])],
        x_label="false alarms & more",
        y_label="found",
        title="ROC\x07",
        width=500,
        height=300,
        markers=[Marker(0.5, 0.75, "here")],
    ).svg()
    root = ET.fromstring(svg)
    assert root.attrib["viewBox"] == "0 0 500 300" and root.attrib["aria-label"] == r"ROC\x07"
    words = [t.text for t in elements(svg, "text")]
    for expected in ("ours <1>", "chance", "false alarms & more", "found", "here", "0.4", "1"):
        assert expected in words
    lines = [e for e in elements(svg, "polyline") if e.attrib["stroke-width"] == "2"]
    assert [e.attrib["stroke"] for e in lines] == [GOOD, DEFECT]
    points = [tuple(map(float, p.split(","))) for p in lines[0].attrib["points"].split()]
    (dot,) = elements(svg, "circle")
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == points[1]
    assert points[1][0] == pytest.approx((points[0][0] + points[2][0]) / 2)
    assert points[1][1] == pytest.approx(points[0][1] + 0.75 * (points[2][1] - points[0][1]))


def test_a_line_chart_refuses_what_has_no_place() -> None:
    for series in ([], [Series("a", [0.0], [math.nan])]):
        with pytest.raises(UsageError, match="lacks finite points"):
            line_chart(series, x_label="x", y_label="y")
    assert line_chart([Series("a", [0], [0])], x_label="x", y_label="y").png(1)


def test_the_trade_off_chart_marks_the_chosen_threshold() -> None:
    chart = tradeoff_chart(tradeoff([1, 2, 3, 4], [3, 5], threshold=2.0))
    at = ticks(chart)
    (dot,) = elements(chart, "circle")
    assert float(dot.attrib["cx"]) == pytest.approx(at[0] + 50 * (at[40] - at[0]) / 40, abs=0.02)
    assert any(t.text == "threshold 2" for t in elements(chart, "text"))


class Reader(HTMLParser):
    """Keeps text and attributes as a browser sees them; tags must be closed in their order."""

    VOID = frozenset({"meta", "wbr", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        assert not {"src", "href", "onerror", "style"} & {name for name, _ in attrs}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


PICTURES = [
    *((f"good/{k:02d}.png", f"part {k}", 1 + k / 10) for k in range(18)),
    ("<b>.png", "part <last>", 2.75),
    ("good/again.png", "part 3", 1.05),
]
DEFECTS = [("scratch/0.png", "d0", 9.5), ("scratch/1.png", "d1", 1.25)]


def written(folder: Path, **changes: Any) -> str:
    found = conformal_threshold([*(1 + k / 10 for k in range(18)), 2.75], 0.1)
    options: dict[str, Any] = {
        "title": "Line <3> {{WORDS}}",
        "product": "nut & bolt",
        "found": found,
        "words": describe(found, exact=True, groups=True),
        "exact": True,
        "pictures": PICTURES,
    }
    page = folder / "report.html"
    write_calibration_report(page, **{**options, **changes})
    assert [p.name for p in folder.iterdir()] == ["report.html"]
    return page.read_text(encoding="utf-8")


def test_the_page_says_what_was_promised_and_lists_every_picture(tmp_path: Path) -> None:
    text = written(tmp_path)
    page = Reader(text)
    words = " ".join(page.words)
    assert "19 good parts, held out, each judged by the highest score of its pictures." in words
    assert "Line <3> {{WORDS}}" in words and "nut & bolt" in words
    assert "<b>.png" in words and "b" not in page.tags and "part <last>" in words
    cards = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert cards == {
        "Threshold": "2.7",
        "Good parts rejected on average, at most": "10 %",
        "By this calibration (90 %)": "1.9 % to 22.6 %",
        "Good parts": "19",
        "Pictures of them": "20",
    }
    scores = re.findall(r'<td class="num">([0-9.]+)</td><td class="num">[0-9.]+</td></tr>', text)
    assert len(scores) == 20
    assert [float(s) for s in scores] == sorted((p[2] for p in PICTURES), reverse=True)
    assert re.findall(r'<tr class="over"><td class="name">(.*?)</td>', text) == ["&lt;b&gt;.png"]
    assert page.tags.count("svg") == 1 and "Missed defects" not in words


def test_the_page_shows_what_thresholds_miss(tmp_path: Path) -> None:
    page = Reader(written(tmp_path, defects=DEFECTS, warnings=["3 of 19 look <alike>"]))
    words = " ".join(page.words)
    assert page.tags.count("svg") == 2
    assert "3 of 19 look <alike>" in words
    table = words.partition("Rejecting at most")[2].partition("Counted on")[0]
    assert " ".join(table.partition("chosen threshold")[2].split()) == (
        "2.7 1 of 19 (5.3 %) 1 of 2 (50 %)"
    )
    assert re.search(r"0\.1 %\s+2\.75\s+0 of 19 \(0 %\)\s+1 of 2", table)
    assert words.index("scratch/ 1.png") < words.index("scratch/ 0.png"), "lowest first"


def test_the_page_promises_no_rate_for_references(tmp_path: Path) -> None:
    text = written(tmp_path, exact=False, words="no exact guarantee")
    assert "<dt>Guaranteed false-reject rate</dt><dd>none</dd>" in text
    assert "at most" not in text and "range of the threshold" not in text


def test_the_plot_is_the_pages_histogram(tmp_path: Path) -> None:
    found = conformal_threshold([1.0, 2.0, 3.0], 0.5)
    pictures = [(f"{k}.png", str(k), float(k)) for k in (1, 2, 3)]
    chart = score_histogram(found, pictures, exact=True)
    assert chart.svg() in written(tmp_path, found=found, pictures=pictures)
    assert Image.open(io.BytesIO(chart.png())).format == "PNG"


def test_file_names_that_are_not_unicode_do_not_cost_the_report(tmp_path: Path) -> None:
    assert r"bad\udcff.png" in written(tmp_path, pictures=[("bad\udcff.png", "p", 1.0), *PICTURES])


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    before = written(tmp_path)
    with pytest.raises(ScoringError):
        written(tmp_path, pictures=[("a.png", "a", math.nan)])
    with pytest.raises(StorageError, match="cannot write"):
        written(tmp_path / "missing")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
