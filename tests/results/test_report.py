"""The report is correct HTML and, where Chromium is installed, works in a real browser."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import CHROMIUM, QUIET, Browser, needs_chromium, needs_driver, started_browser
from PIL import Image
from result_rows import EVIDENCE, result_row

from anoco_edge.errors import StorageError
from anoco_edge.results import RunInfo
from anoco_edge.results.report_page import (
    FIRST_ROWS,
    Entry,
    histogram,
    thumbnail,
    write_report_page,
)
from anoco_edge.results.rows import FailedRow

SCRIPT = "document.title='owned'"
EVIL = f'</script><img src=x onerror="{SCRIPT}">"\'><script>{SCRIPT}</script>'


class Reader(HTMLParser):
    """Counts tags and keeps attributes and text, as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def jpeg(colour: tuple[int, int, int], size: tuple[int, int] = (64, 48)) -> bytes:
    held = io.BytesIO()
    Image.new("RGB", size, colour).save(held, format="JPEG")
    return held.getvalue()


def some_entries() -> list[Entry]:
    return [
        Entry(
            result_row(1, 0.9), thumbnail(np.zeros((40, 80, 3), np.uint8)), None, jpeg((255, 0, 0))
        ),
        Entry(result_row(2, 10.5, "anomalous"), jpeg((9, 9, 9)), "overlays/2 #50%?.jpg", None),
        Entry(result_row(10, 9.25, "anomalous"), None, None, jpeg((0, 0, 255))),
        Entry(FailedRow(11, "torn.jpg", "torn.jpg ends in the middle")),
        Entry(result_row(12, 0.25)),
    ]


def written(folder: Path, entries: Iterable[Entry], **changes: Any) -> Path:
    figures = changes.pop("figures", {})
    run = replace(RunInfo("Line 3", "nut", 1.0, "conformal"), **changes)
    page = folder / "report.html"
    write_report_page(page, entries, run, figures)
    return page


def test_a_row_for_every_picture_with_its_figures(tmp_path: Path) -> None:
    text = written(tmp_path, some_entries()).read_text()
    rows = re.findall(r'<tr data-verdict="(\w+)"', text)
    assert rows == ["good", "anomalous", "anomalous", "failed", "good"]
    words = " ".join(Reader(text).text)
    for expected in ("part10.png", "9.25", "good/", "0.80 similar", "torn.jpg ends in the middle"):
        assert expected in words


def test_cards_count_and_take_figures_of_the_caller(tmp_path: Path) -> None:
    text = written(tmp_path, some_entries(), figures={"skipped": 7, "engine": "on<nx"}).read_text()
    cards = dict(re.findall(r"<dt>(.*?)</dt><dd.*?>(.*?)</dd>", text))
    assert cards == {
        "Pictures": "5",
        "Good": "2",
        "Anomalous": "2",
        "Failed": "1",
        "Median time (ms)": "60.0",
        "95 % are faster than (ms)": "117.0",
        "Skipped frames": "7",
        "Engine": "on&lt;nx",
    }


def test_nothing_is_fetched_from_elsewhere(tmp_path: Path) -> None:
    page = Reader(written(tmp_path, some_entries()).read_text())
    assert not page.all("link") and not page.all("iframe")
    assert [a.get("src") for a in page.all("script")] == [None]
    for attrs in page.all("img"):
        assert (attrs.get("src") or "data:").startswith("data:")
    targets = [a["href"] or "" for a in page.all("a")]
    assert [t[:22] for t in targets if t.startswith("data:")] == ["data:image/jpeg;base64"] * 2
    assert [t for t in targets if not t.startswith("data:")] == ["./overlays/2%20%2350%25%3F.jpg"]


@pytest.mark.parametrize("kind", ["provisional", "none", "conformal", "manual"])
def test_the_banner_says_what_verdicts_are_worth(tmp_path: Path, kind: str) -> None:
    value = None if kind == "none" else 1.0
    text = written(tmp_path, some_entries(), threshold=value, threshold_kind=kind).read_text()
    banner = re.search(r'<p class="banner".*?</p>', text)
    if kind in ("conformal", "manual"):
        assert banner is None
    else:
        assert banner is not None and "anoco-edge calibrate" in banner[0]
        assert ("Verdicts are provisional:" in banner[0]) == (kind == "provisional")


def evil_entries() -> list[Entry]:
    evidence = replace(EVIDENCE, reference=EVIL, similarity=0.5)
    return [
        Entry(
            result_row(1, source=EVIL, evidence=evidence),
            jpeg((1, 2, 3)),
            "javascript:document.title='owned'//" + EVIL,
        ),
        Entry(FailedRow(2, EVIL, EVIL)),
        Entry(result_row(3, source="{{ROWS}}{{TITLE}}", ratio=None, evidence=None, timings={})),
    ]


def evil_page(folder: Path) -> Path:
    words = dict.fromkeys(("title", "product", "threshold_kind"), EVIL + "{{CARDS}}")
    return written(folder, evil_entries(), **words, figures={EVIL: EVIL, "skipped": EVIL})


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    text = evil_page(tmp_path).read_text()
    page = Reader(text)
    assert len(page.all("script")) == 1
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert len(page.all("img")) == 2  # one thumbnail, and the empty image of the larger view
    assert [str(a["href"])[:16] for a in page.all("a")] == ["./javascript%3Ad"]
    assert "{{ROWS}}{{TITLE}}" in text and EVIL in "".join(page.text)


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    text = written(tmp_path, [Entry(result_row(1, 0.5, source=name), None, name)]).read_text(
        "utf-8"
    )
    assert r"caf\udce9.png" in text and 'href="./caf%E9.png"' in text


def test_no_entries_and_many(tmp_path: Path) -> None:
    empty = written(tmp_path, [], threshold=None, threshold_kind="none", figures={}).read_text()
    assert "No pictures yet" in empty and "No scores to show" in empty
    small = thumbnail(np.zeros((8, 8, 3), np.uint8))
    text = written(
        tmp_path, (Entry(result_row(i, i / 1000), small) for i in range(5000))
    ).read_text()
    assert text.count("<tr data-verdict=") == 5000
    assert text.count('class="more"') == 5000 - FIRST_ROWS
    assert f"FIRST = {FIRST_ROWS};" in text


def test_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(tmp_path, some_entries())
    before = page.read_bytes()

    def breaks() -> Iterator[Entry]:
        yield from some_entries()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, breaks())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr("os.fsync", full)
        written(tmp_path, [])
    assert page.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    plain = tmp_path / "plain"
    plain.touch()
    assert page.stat().st_mode == plain.stat().st_mode, "whoever may read the folder may read it"
    with pytest.raises(StorageError, match="choose another `folder`"):
        written(tmp_path / "missing", [])


def _attributes(svg: str, selector: str, name: str) -> list[float]:
    return [float(re.findall(rf' {name}="([\d.]+)"', t)[0]) for t in re.findall(selector, svg)]


def test_histogram_has_the_threshold_between_good_and_anomalous() -> None:
    svg = histogram([(0.2, "good"), (0.8, "good"), (1.3, "anomalous"), (3.0, "anomalous")], 1.0)
    (line,) = _attributes(svg, r'<line class="threshold".*?>', "x1")
    good = _attributes(svg, r'<rect class="good".*?>', "x")
    bad = _attributes(svg, r'<rect class="anomalous".*?>', "x")
    assert len(good) == len(bad) == 2
    assert max(good) < line < min(bad)
    assert 40 < line < 760 and "threshold 1<" in svg


def test_histogram_stands_one_huge_score_and_odd_ones() -> None:
    scores = [(0.1 + i / 100, "good") for i in range(50)]
    svg = histogram([*scores, (5000.0, "anomalous"), (0.0, "good")], 0.9)
    assert "logarithmic" in svg
    assert len(_attributes(svg, r'<rect class="good".*?>', "x")) > 3, "good scores stay apart"
    heights = _attributes(svg, r'<rect class="good".*?>', "height")
    assert sum(heights) / min(heights) == pytest.approx(51, rel=0.02), "none is lost"
    for odd in ([(0.0, "good")], [(0.0, "good")] * 3, [(-1.0, "uncalibrated"), (2.0, "good")]):
        assert "<rect" in histogram(odd, None)


def test_thumbnail_is_small_and_keeps_its_shape() -> None:
    for picture in (np.zeros((300, 600, 3), np.uint8), Image.new("RGBA", (600, 300))):
        with Image.open(io.BytesIO(thumbnail(picture, side=100))) as small:
            assert (small.format, small.size) == ("JPEG", (100, 50))


def dom_of(page: Path, fragment: str) -> str:
    profile = f"--user-data-dir={page.parent / 'profile'}"
    address = f"{page.as_uri()}{fragment}"
    command = [str(CHROMIUM), *QUIET, profile, "--virtual-time-budget=3000", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def sources(dom: str) -> list[str]:
    """Return the names in the order of the table, without rows that are filtered out."""
    rows = re.findall(r"<tr data-verdict.*?</tr>", dom, re.DOTALL)
    shown = [r for r in rows if not re.match(r"<tr[^>]* hidden", r)]
    return [re.findall(r'class="name" data-v="(.*?)"', r)[0] for r in shown]


@needs_chromium
@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("#sort=score-desc", ["part2", "part10", "part1", "part12", "torn"]),
        ("#sort=score-asc", ["part12", "part1", "part10", "part2", "torn"]),
        ("#sort=source-asc&show=anomalous", ["part2", "part10"]),
        ("#sort=nonsense&show=nonsense", ["part1", "part2", "part10", "torn", "part12"]),
    ],
)
def test_the_address_sorts_and_filters(tmp_path: Path, fragment: str, expected: list[str]) -> None:
    dom = dom_of(written(tmp_path, some_entries()), fragment)
    assert [Path(s).stem for s in sources(dom)] == expected
    arrows = re.findall(r'data-key="(\w+)"[^>]*aria-sort="(\w+ending)"', dom)
    key, _, way = fragment.removeprefix("#sort=").partition("&")[0].partition("-")
    assert arrows == ([(key, way + "ending")] if way else [])


@needs_chromium
def test_an_evil_name_does_no_harm_in_a_browser(tmp_path: Path) -> None:
    page = evil_page(tmp_path)
    # The page's policy would stop a script as well; here only the escaping can.
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<meta http-equiv=.*?>", "", page.read_text()))
    dom = dom_of(bare, "#sort=source-asc")
    assert "<title>owned" not in dom and 'aria-sort="ascending"' in dom


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as started:
        yield started


ROWS = "return [...document.querySelectorAll('tbody tr:not([hidden])')]"
NAMES = f"{ROWS}.map(row => row.cells[1].innerText)"
SHOWN = "const i = document.querySelector('dialog img'); return i.complete ? i.naturalWidth : -1"
CAPTION = "return document.querySelector('dialog p').textContent"
OPEN = "return document.querySelector('dialog').open"


@needs_driver
def test_clicks_and_keys_sort_and_filter(tmp_path: Path, browser: Browser) -> None:
    browser.open(written(tmp_path, some_entries()).as_uri())
    assert browser.run(NAMES) == ["1", "2", "10", "11", "12"]
    browser.click("th[data-key=score] button")
    assert browser.run(NAMES) == ["2", "10", "1", "12", "11"]
    browser.press("Enter")  # the heading has the focus, so the key reverses the order
    assert browser.run(NAMES) == ["12", "1", "10", "2", "11"]
    browser.click("[data-show=anomalous]")
    assert browser.run(NAMES) == ["10", "2"]
    assert browser.run("return location.hash") == "#sort=score-asc&show=anomalous"


@needs_driver
def test_the_larger_view_opens_steps_and_closes(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "overlays").mkdir()
    (tmp_path / "overlays/2 #50%?.jpg").write_bytes(jpeg((0, 255, 0), (123, 45)))
    browser.open(written(tmp_path, some_entries()).as_uri())
    browser.click("tbody a.open")
    assert browser.run(OPEN)
    browser.until(SHOWN, 64)
    assert browser.run(CAPTION).startswith("part1.png")
    browser.press("ArrowRight")
    browser.until(SHOWN, 123)  # a file beside the report, with an awkward name
    assert browser.run(CAPTION).split() == ["part2.png", "\u2013", "Anomalous"]
    for key, name in (("Right", "part10"), ("Right", "part10"), ("Left", "part2")):
        browser.press(f"Arrow{key}")
        assert browser.run(CAPTION).startswith(f"{name}.png")
    browser.press("Escape")
    assert not browser.run(OPEN)
    focused = "return document.activeElement.closest('tr').cells[1].innerText"
    browser.until(focused, "2")


@needs_driver
def test_a_long_table_shows_its_first_rows_until_asked(tmp_path: Path, browser: Browser) -> None:
    entries = [Entry(result_row(i, i / 100)) for i in range(FIRST_ROWS + 50)]
    browser.open(written(tmp_path, entries).as_uri())
    visible = f"{ROWS}.filter(row => row.offsetHeight).length"
    assert browser.run(visible) == FIRST_ROWS
    browser.click("th[data-key=score] button")
    assert browser.run(visible) == FIRST_ROWS
    assert browser.run(NAMES)[0] == str(FIRST_ROWS + 49), "all rows take part in sorting"
    browser.click(".rest")
    assert browser.run(visible) == FIRST_ROWS + 50
