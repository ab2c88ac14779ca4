"""All pages have one frame: its security policy, its colors, its paper."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import anoco_edge
import anoco_edge_calibration
from anoco_edge.reporting.charts import histogram_chart
from anoco_edge.reporting.html_shell import load_page

ROOTS = [Path(package.__file__ or "").parent for package in (anoco_edge, anoco_edge_calibration)]
PAGES = {
    "calibration_report": "anoco_edge_calibration.thresholds",
    "eval_report": "anoco_edge_calibration.evaluation",
    "index_page": "anoco_edge.demo",
    "report_page": "anoco_edge.results",
}


def test_every_page_is_the_body_of_the_shell() -> None:
    """The pages of a station are templates of its server, which has rules of its own."""
    pages = [page for root in ROOTS for page in root.rglob("*.html")]
    found = {page.stem: page for page in pages if page.parent.name != "templates"}
    shell = found.pop("html_shell")
    assert "<!DOCTYPE html>" in shell.read_text()
    assert set(found) == set(PAGES), "a new page belongs into the table of this test"
    for page in found.values():
        text = page.read_text()
        assert text.startswith("<main>") and not re.search("<style|<head|<body|<script", text)
    for module in (path for root in ROOTS for path in root.rglob("*.py")):
        assert "<!doctype" not in module.read_text(encoding="utf-8").lower(), module


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_follows_the_screen(name: str) -> None:
    page = load_page(PAGES[name], name, dark=True)
    policy = re.findall('Content-Security-Policy" content="(.*?)"', page)[0]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert ("script-src" in policy) == ("<script>" in page) == (name == "report_page")
    assert page.count("prefers-color-scheme: dark") == 1
    # A page's own style stands after the colors and before what paper overrides.
    style = resources.files(PAGES[name]).joinpath(f"{name}.css").read_text()
    dark, paper = page.index("prefers-color-scheme"), page.rindex("@media print")
    assert dark < page.index(style) < paper


def test_a_page_that_asks_for_no_dark_colors_stays_light() -> None:
    page = load_page("anoco_edge.results", "report_page")
    assert 'name="color-scheme" content="light"' in page and "prefers-color-scheme" not in page


def test_the_style_sheet_colors_every_class_of_a_chart() -> None:
    svg = histogram_chart([1, 2, 3], threshold=2, between=(1, 3)).svg()
    classes = set(re.findall('class="([a-z]+)"', svg)) - {"chart"}
    assert {"background", "title", "label", "grid", "axis", "threshold", "band"} <= classes
    page = load_page("anoco_edge.results", "report_page")
    assert {name for name in classes if f" .{name} {{ " not in page} == set()
