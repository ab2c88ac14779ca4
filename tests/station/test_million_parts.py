"""A station after a million parts: its searches, its page History, and the retention of pictures.

Nothing is compared with a limit in seconds, because the machine may be loaded: the figures are
printed. docs/guides/station.md has those of one run.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from chromium import needs_driver, started_browser
from fake_station import serving
from station_store import FILTERS, make_store, moment

from anoco_edge.line.store.database import open_database
from anoco_edge.line.store.retention import Retention, RetentionRules
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.part_search import PartFilter

pytestmark = pytest.mark.full
PARTS = 1_000_000
PICTURE_BYTES = 100_000  # of each picture, as its row says
KEPT = 0.6  # of the pictures; half of them are of rejects
Say = Callable[[str], None]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of station.toml, with the data in `data`."""
    folder = tmp_path_factory.mktemp("million")
    make_store(folder / "data", PARTS)
    return folder


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Iterator[Say]:
    lines: list[str] = []
    yield lines.append
    with capsys.disabled():
        print("\n".join(["", *lines]))


def words(wanted: PartFilter) -> str:
    """What a search asks for."""
    asked = {name: value for name, value in vars(wanted).items() if value is not None}
    return " ".join(f"{name}={value}" for name, value in asked.items()) or "all"


def test_every_search_of_a_million_parts(base: Path, say: Say) -> None:
    history = History(base / "data", {1: "nut", 2: "bolt"})
    deep = history.search(PartFilter(until=moment(PARTS // 2)), limit=50).next
    questions = {words(wanted): wanted for wanted in FILTERS}
    questions["far down"] = replace(PartFilter(), since=moment(10))
    for name, wanted in questions.items():
        begin = time.process_time()
        page = history.search(wanted, after=deep if name == "far down" else None)
        say(f"{1000 * (time.process_time() - begin):7.1f} ms {len(page.items):3} {name}")
    begin = time.process_time()
    series = history.scores(moment(0), moment(PARTS), points=500)
    say(f"{1000 * (time.process_time() - begin):7.1f} ms chart of {series.parts} parts")
    begin = time.process_time()
    history.counts(moment(0), moment(PARTS))
    say(f"{1000 * (time.process_time() - begin):7.1f} ms counts")
    say(f"{(base / 'data/line.db').stat().st_size / 1e6:.0f} MB line.db")
    assert series.parts > 0.99 * PARTS


@needs_driver
def test_the_page_history_of_a_million_parts(base: Path, say: Say) -> None:
    rows = "document.querySelectorAll('#parts tbody tr').length"
    searched = f"return {rows} === 50 && Boolean(document.querySelector('.u-over'))"
    with started_browser() as browser, serving(base, None) as context:
        secret = context.sessions.open("mia", "password")
        browser.tools(
            "Network.setCookie", name=context.cookie, value=secret, url=context.address.rstrip("/")
        )
        for visit in ("first", "second"):
            browser.open(context.address + "history")
            browser.until(f"return {rows}", 50)
            painted = browser.run(
                "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
            )
            say(f"{painted:7.0f} ms first paint, {visit} visit")
        browser.run("document.getElementById('parts').replaceChildren()")
        browser.run("document.getElementById('chart').replaceChildren()")
        span = (moment(0) - timedelta(days=1), moment(PARTS) + timedelta(days=1))
        first, last = (f"{each:%Y-%m-%dT%H:%M}" for each in span)
        browser.run(
            f"""const form = document.getElementById('search');
            form.elements.from.value = '{first}'; form.elements.to.value = '{last}';
            window.began = performance.now(); window.took = null;
            new MutationObserver(() => {{
              if (window.took === null && (() => {{ {searched} }})())
                window.took = performance.now() - window.began;
            }}).observe(document.body, {{ childList: true, subtree: true }});
            form.requestSubmit()"""
        )
        browser.until("return window.took !== null", True)
        took = browser.run("return window.took")
        say(f"{took:7.0f} ms until rows and chart of all {PARTS} parts are shown")
        assert browser.messages() == []


def with_pictures(folder: Path) -> int:
    """Give every reject and every hundredth good part a picture; return how many there are."""
    with closing(open_database(folder, print)) as data, data:
        data.execute("PRAGMA synchronous = OFF")
        data.execute(
            f"UPDATE capture SET picture = 'pictures/' || uid || '.png', bytes = {PICTURE_BYTES} "
            "WHERE verdict = 'anomalous' OR rowid % 100 = 0"
        )
        named = data.execute("SELECT picture FROM capture WHERE picture IS NOT NULL").fetchall()
    (folder / "pictures").mkdir()
    for (path,) in named:
        (folder / path).touch()
    return len(named)


def test_the_retention_deletes_pictures_while_the_line_writes(base: Path, say: Say) -> None:
    folder = base / "data"
    pictures = with_pictures(folder)
    most = int(KEPT * pictures) * PICTURE_BYTES
    rules = RetentionRules(days=100_000, max_bytes=most, min_free_bytes=0)
    with closing(sqlite3.connect(folder / "line.db")) as data:
        oldest = "SELECT uid FROM capture WHERE picture IS NOT NULL AND verdict = 'good' LIMIT 1"
        (pinned,) = data.execute(oldest).fetchone()
    retention = Retention(folder, rules, pinned=lambda: {pinned})
    waits: list[float] = []
    done = threading.Event()

    def write() -> None:
        """What the line's recorder does: a short transaction, ten times a second."""
        with closing(open_database(folder, print)) as data:
            while not done.wait(0.1):
                begin = time.monotonic()
                with data:
                    data.execute("INSERT INTO io_event (at, level, text) VALUES ('now','info','')")
                waits.append(time.monotonic() - begin)

    line = threading.Thread(target=write)
    line.start()
    try:
        with closing(open_database(folder, print)) as data:
            begin, cpu = time.monotonic(), time.thread_time()
            cleaning = retention.clean(data)
            took, cpu = time.monotonic() - begin, time.thread_time() - cpu
            begin = time.monotonic()
            again = retention.clean(data)
            idle = time.monotonic() - begin
            kept = data.execute("SELECT count(*) FROM capture WHERE picture IS NOT NULL").fetchone()
            pin = data.execute("SELECT picture FROM capture WHERE uid = ?", (pinned,)).fetchone()
    finally:
        done.set()
        line.join()
    say(f"{cleaning.deleted} of {pictures} pictures deleted in {took:.2f} s ({cpu:.2f} s of CPU)")
    say(f"a pass with nothing to delete: {idle:.2f} s; longest write beside: {max(waits):.3f} s")
    assert (cleaning.enough, again.deleted) == (True, 0)
    assert kept == (int(KEPT * pictures),) == (pictures - cleaning.deleted,)
    assert pin[0] is not None and (folder / pin[0]).is_file(), "a pinned picture stays"
    assert sum(1 for _ in (folder / "pictures").iterdir()) == kept[0]
    with closing(sqlite3.connect(folder / "line.db")) as data:
        gone = "SELECT count(*) FROM capture WHERE verdict = 'anomalous' AND picture IS NULL"
        assert data.execute(gone).fetchone() == (0,), "good parts give up their pictures first"
