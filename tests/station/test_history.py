"""The history: searches, counts, charts and exports, and that each of them goes by an index."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from station_store import FILTERS, make_store, moment, uid

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.station.parts import history as history_module
from anoco_edge.station.parts.export import COLUMNS, csv_pieces
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.part_search import Cursor, PartFilter, page_query

PARTS = 3000
NAMES = {1: "nut", 2: "bolt"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_store(tmp_path_factory.mktemp("history"), PARTS)
    with closing(sqlite3.connect(made / "station.db")) as data, data:
        reviews = [(uid(107), "good"), (uid(207), "defect"), (uid(500), "missed")]
        data.executemany("INSERT INTO review VALUES (?,?,'=1+1','eva','now')", reviews)
        data.execute("INSERT INTO pin VALUES (?,'eva','now')", (uid(307),))
    with closing(sqlite3.connect(made / "line.db")) as data, data:
        data.execute(f"INSERT INTO late VALUES (1,'{uid(1003)}',0,'good',0.5,99)")
        data.execute("INSERT INTO io_event (at,level,text) SELECT at,'error','a camera' FROM part")
        data.execute("DELETE FROM io_event WHERE id > 1")
    return made


@pytest.fixture
def history(folder: Path) -> History:
    return History(folder, NAMES)


def found(history: History, wanted: PartFilter) -> list[str]:
    """All parts of a search, read in small pages."""
    uids: list[str] = []
    after: str | None = None
    while True:
        page = history.search(wanted, after=after, limit=37)
        assert len(page.items) <= 37
        uids += [part.uid for part in page.items]
        if page.next is None:
            return uids
        after = page.next


def rows(folder: Path, where: str) -> list[str]:
    with closing(sqlite3.connect(folder / "line.db")) as data:
        order = "ORDER BY at DESC, rowid DESC"
        return [u for (u,) in data.execute(f"SELECT uid FROM part WHERE {where} {order}")]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (PartFilter(), "1"),
        (PartFilter(verdict="anomalous"), "verdict = 'anomalous'"),
        (PartFilter(reason="BUSY"), "reason = 40"),
        (PartFilter(product=2), "product = 2"),
        (PartFilter(product=1, verdict="no-verdict"), "product = 1 AND verdict = 'no-verdict'"),
        (PartFilter(code="W17"), "part_code = 'W17'"),
        (PartFilter(code="W17*"), "part_code GLOB 'W17*'"),
        (PartFilter(seq=18), "seq = 18"),
        (PartFilter(min_ratio=1.5, max_ratio=2.0), "ratio BETWEEN 1.5 AND 2.0"),
        (
            PartFilter(since=moment(100), until=moment(200)),
            f"uid >= '{uid(100)}' AND uid < '{uid(200)}'",
        ),
        (PartFilter(review="good"), f"uid = '{uid(107)}'"),
        (PartFilter(review="missed", pinned=False), f"uid = '{uid(500)}'"),
        (PartFilter(pinned=True), f"uid = '{uid(307)}'"),
        (PartFilter(pinned=True, review="good"), "0"),
        (
            PartFilter(verdict="anomalous", review="none", pinned=False),
            f"verdict = 'anomalous' AND uid NOT IN ('{uid(107)}', '{uid(207)}', '{uid(307)}')",
        ),
    ],
)
def test_a_search_finds_what_a_plain_question_finds(
    folder: Path, history: History, wanted: PartFilter, where: str
) -> None:
    assert found(history, wanted) == rows(folder, where)


def test_a_part_says_all_that_is_known(history: History) -> None:
    part = history.part(uid(107))
    assert part is not None and part.review is not None
    assert (part.verdict, part.reason, part.product_name) == ("anomalous", "NONE", "nut")
    assert (part.review.verdict, part.review.by, part.pinned) == ("good", "eva", False)
    assert [(c.camera, c.picture) for c in part.captures] == [("top", False)]
    late = history.part(uid(1003))
    assert late is not None and late.late and late.reason == "DEADLINE"
    refused = history.part(uid(5))
    assert refused is not None and not refused.accepted and refused.captures == []
    assert history.part("nobody") is None
    pinned = history.part(uid(307))
    assert pinned is not None and pinned.pinned


def test_parts_that_come_meanwhile_move_no_page(tmp_path: Path) -> None:
    history = History(make_store(tmp_path, 20), NAMES)
    first = history.search(PartFilter(), limit=10)
    with closing(sqlite3.connect(tmp_path / "line.db")) as data, data:
        values = (
            "SELECT 'new', seq, part_code, client, accepted, '2027-01-01', 0, 9, 'good', 0, 0.1"
        )
        rest = "product, generation, checksum, 1, 2, 3, 0, 'c' FROM part LIMIT 1"
        data.execute(f"INSERT INTO part {values}, {rest}")
    second = history.search(PartFilter(), after=first.next, limit=10)
    assert [p.uid for p in [*first.items, *second.items]] == [uid(n) for n in reversed(range(20))]
    assert second.next is None


def test_what_cannot_be_asked(history: History, tmp_path: Path) -> None:
    for wanted, after, limit in [
        (PartFilter(reason="NEVER"), None, 5),
        (PartFilter(), "x", 5),
        (PartFilter(), Cursor("2026", -1).text(), 5),
        (PartFilter(), None, 0),
        (PartFilter(), None, 501),
    ]:
        with pytest.raises(UsageError):
            history.search(wanted, after=after, limit=limit)
    with pytest.raises(UsageError):
        history.scores(moment(1), moment(1))
    with pytest.raises(StorageError, match="the history cannot be read"):
        History(tmp_path, {}).search(PartFilter())


def test_counts_yield_and_pace(history: History) -> None:
    counts = history.counts(moment(0), moment(1000))
    assert (counts.good, counts.fail, counts.no_verdict, counts.missed) == (988, 10, 1, 1)
    assert counts.yield_ == pytest.approx(988 / 999) and counts.triggers == 1000
    assert counts.pace_per_minute == pytest.approx(999 / 5)
    assert history.counts(moment(0), moment(1000), product=2).yield_ is None


def test_a_chart_keeps_every_peak(folder: Path, history: History) -> None:
    series = history.scores(moment(0), moment(PARTS), points=30, product=1)
    with closing(sqlite3.connect(folder / "line.db")) as data:
        for point in range(30):
            span = (uid(100 * point), uid(100 * (point + 1)))
            low, high = data.execute(
                "SELECT min(ratio), max(ratio) FROM part WHERE accepted AND uid >= ? AND uid < ?"
                " AND verdict != 'no-verdict'",
                span,
            ).fetchone()
            assert (series.low[point], series.high[point]) == (low, high)
    assert series.parts == PARTS - 5 and len(series.t) == 30  # no-verdict, refused
    kinds = [(event.kind, event.text) for event in series.events]
    assert kinds == [("generation", "nut: generation 1"), ("error", "a camera")]
    later = history.scores(moment(PARTS), moment(PARTS) + timedelta(hours=1), points=3)
    assert later.low == [None] * 3 and later.parts == 0


def test_the_first_part_of_a_span_is_found(history: History) -> None:
    assert history.first_part(moment(0) - timedelta(days=1), moment(PARTS)) == moment(0)
    assert history.first_part(moment(7), moment(9), product=1) == moment(7)
    assert history.first_part(moment(7), moment(9), product=2) is None
    assert history.first_part(moment(PARTS), moment(PARTS + 9)) is None


def test_an_export_is_a_stream_of_all_parts_and_no_formula(history: History) -> None:
    pieces = list(csv_pieces(history, PartFilter()))
    assert len(pieces) == 1 + PARTS // 500
    table = list(csv.reader(io.StringIO(b"".join(pieces).decode())))
    assert table[0] == list(COLUMNS) and len(table) == 1 + PARTS
    by_uid = {row[0]: dict(zip(table[0], row, strict=True)) for row in table[1:]}
    assert by_uid[uid(107)]["note"] == "'=1+1" and by_uid[uid(107)]["review"] == "good"
    assert len(list(csv_pieces(history, PartFilter(code="nobody")))) == 1


# ---- every question goes by an index


def plan(history: History, statement: str, values: object) -> list[str]:
    with history.reading() as data:
        rows = data.execute(f"EXPLAIN QUERY PLAN {statement}", values)  # type: ignore[arg-type]
        return [row[3] for row in rows]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
@pytest.mark.parametrize("after", [None, Cursor("2026-01-01T00:00:09.000+00:00", 90)])
def test_a_page_is_read_in_the_order_of_an_index(
    history: History, wanted: PartFilter, after: Cursor | None
) -> None:
    steps = plan(history, *page_query(wanted, after, 50))
    assert any("USING" in step and "INDEX" in step for step in steps), steps
    for step in steps:
        assert not step.startswith("SCAN p") or "COVERING INDEX" in step, steps
        assert "B-TREE FOR ORDER BY" not in step, steps


@pytest.mark.parametrize("review", ["good", "missed", "defect"])
def test_a_search_for_reviews_begins_at_the_reviews(history: History, review: str) -> None:
    steps = plan(history, *page_query(PartFilter(review=review), None, 50))  # type: ignore[arg-type]
    assert "review" in steps[0] and "SCAN p" not in " ".join(steps), steps


def test_charts_and_counts_read_no_row(history: History) -> None:
    spans = json.dumps([["2026", "2027"]])
    for index, product, of in (
        ("part_summary", "", ()),
        ("part_product", " AND p.product = ?", (1,)),
    ):
        statement = history_module._SPANS.format(index=index, product=product)
        steps = plan(history, statement, (spans, *of))
        assert any("COVERING INDEX part_" in step and "at>?" in step for step in steps), steps
    steps = plan(history, history_module._GENERATIONS, (1, "2026", "2027"))
    assert "COVERING INDEX part_product" in steps[0], steps


def test_without_an_index_the_plan_would_be_seen(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(make_store(tmp_path, 5) / "line.db")) as data, data:
        data.execute("DROP INDEX part_verdict")
        data.execute("DROP INDEX part_summary")
    steps = plan(History(tmp_path, {}), *page_query(PartFilter(verdict="anomalous"), None, 50))
    assert any("B-TREE FOR ORDER BY" in s or s.startswith("SCAN p") for s in steps), steps
