"""The files of the pages: words in both languages, nothing inline, nothing from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import anoco_edge.station
from anoco_edge.line.words.table import REASONS, STATUS_BITS
from anoco_edge.reporting.colormap import table
from anoco_edge.station.web.page_text import LANGUAGES, choose_language, text, texts

STATION = Path(anoco_edge.station.__file__).parent / "web"
TEMPLATES = sorted((STATION / "templates").glob("*.html"))
MODULES = sorted((STATION / "static/js").rglob("*.js"))
STYLES = sorted((STATION / "static/css").glob("*.css"))
PLACE = re.compile(r"\{(\w+)\}")
PREFIX = re.compile(r"""["'`]([a-z-]+\.[a-z-]*)(?:\$\{|["']\s*~)""")


def source() -> str:
    return "\n".join(path.read_text() for path in [*TEMPLATES, *MODULES])


def test_both_languages_have_the_same_keys_and_places() -> None:
    english, german = texts("en"), texts("de")
    assert list(english) == list(german) == sorted(english)
    for key in english:
        assert english[key].strip() and german[key].strip(), key
        assert set(PLACE.findall(english[key])) == set(PLACE.findall(german[key])), key


def test_every_text_is_used_and_every_text_that_is_used_exists() -> None:
    code, known = source(), texts("en")
    prefixes = set(PREFIX.findall(code))
    unused = [
        key
        for key in known
        if not re.search(rf"[\"'`]{re.escape(key)}[\"'`]", code)
        and not any(key.startswith(prefix) for prefix in prefixes)
    ]
    assert unused == []
    used = set(re.findall(r"""\bt\(\s*["']([a-z-]+\.[a-z-]+)["']\s*[,)]""", code))
    used |= set(re.findall(r"""\b(?:key|bind)\("[^"]+", "([^"]+)\"""", code))
    assert len(used) > 150
    assert sorted(used - known.keys()) == []
    assert all(any(key.startswith(prefix) for key in known) for prefix in prefixes)


def test_every_reason_and_every_bit_has_its_place() -> None:
    for reason in REASONS[1:]:
        assert f"reason.{reason.name}" in texts("en")
    line = (STATION / "static/js/pages/line.js").read_text()
    named = json.loads(re.findall(r"STATUS = (\[.*?\])", line)[0])
    assert named == [bit.name for bit in STATUS_BITS]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_nothing_inline_and_nothing_unescaped(path: Path) -> None:
    page = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert not re.search(r"""(?:src|href|action)=["'](?!/|#|\{\{)""", page)
    # The only text that is not escaped are the icons, which stand in the same file.
    assert [
        line for line in page.splitlines() if "safe" in line and "icon | safe" not in line
    ] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_make_no_markup_from_text_and_fetch_nothing_from_elsewhere(path: Path) -> None:
    code = path.read_text()
    assert len(code.splitlines()) <= 400
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|srcdoc"
    assert not re.search(forbidden, code)
    assert not re.search(r"""setAttribute\(["'](?:style|on)""", code)
    addresses = re.findall(r"https?://[^\s\"'`$]+", code)
    assert [each for each in addresses if not each.startswith("http://www.w3.org/")] == []


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_styles_fetch_nothing(path: Path) -> None:
    assert not re.search(r"@import|url\((?!#)", path.read_text())


def test_both_color_schemes_name_the_same_colors() -> None:
    light, dark = (
        set(re.findall(r"(--[\w-]+):", (STATION / f"static/css/{name}.css").read_text()))
        for name in ("colors", "colors-dark")
    )
    used = {name for path in STYLES for name in re.findall(r"var\((--[\w-]+)\)", path.read_text())}
    assert light == dark and used <= light


def test_the_vendored_chart_is_what_it_was() -> None:
    folder = STATION / "static/vendor/uplot"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 3 and "MIT" in (folder / "LICENSE").read_text()
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_colors_of_the_heat_map_are_those_of_reports() -> None:
    code = (STATION / "static/js/colormap.js").read_text()
    digits = "".join(re.findall(r'^  "([0-9a-f]+)",$', code, re.MULTILINE))
    assert (
        np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(256, 3).tolist() == table().tolist()
    )


@pytest.mark.parametrize(
    ("accepted", "chosen", "expected"),
    [
        ("", "", "en"),
        ("de-DE,de;q=0.9,en;q=0.8", "", "de"),
        ("en-US,en;q=0.9,de;q=0.8", "", "en"),
        ("fr, de;q=0", "", "en"),
        ("de;q=nonsense, en;q=0.1", "", "en"),
        ("de", "en", "en"),
        ("en", "<script>", "en"),
    ],
)
def test_the_language_of_a_page(accepted: str, chosen: str, expected: str) -> None:
    assert choose_language(accepted, chosen) == expected


def test_a_value_of_a_text_is_not_filled_in_again() -> None:
    assert text("en", "menu.who", name="{role}", role="Admin") == "{role}, Admin"
    assert set(LANGUAGES) == {path.stem for path in (STATION / "i18n").glob("*.json")}
