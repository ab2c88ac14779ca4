"""line.db of an earlier version: it is brought to this one in place, or stays as it was."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from anoco_edge.errors import StorageError
from anoco_edge.line.store import database
from anoco_edge.line.store import keeper as store_keeper
from anoco_edge.line.store.database import APPLICATION, NAME, VERSION, open_database, read_counters
from anoco_edge.line.store.retention import RetentionRules
from anoco_edge.line.store.station_wishes import read_pins, wants_every_picture
from anoco_edge.station.database import Database

SCHEMA_1 = (Path(__file__).parent / "line_db_version_1.sql").read_text()
PART = "INSERT INTO part VALUES ('a-1',1,'W1','',1,'2026-11-18T20:00:00.000+00:00',5,9,'good',0"
PART += ",0.5,1,4,48879,10,20,30,0,'c0ffee')"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with a data base as version 1 of the schema wrote it."""
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as data:
        data.execute("PRAGMA journal_mode = WAL")
        data.executescript(f"PRAGMA application_id = {APPLICATION}; {SCHEMA_1}")
        data.executescript(f"{PART}; INSERT INTO counter VALUES ('good', 1), ('triggers', 1);")
        data.execute("PRAGMA user_version = 1")
    return tmp_path


def schema(folder: Path) -> tuple[int, set[str]]:
    with closing(sqlite3.connect(folder / NAME)) as data:
        names = {n for (n,) in data.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        return data.execute("PRAGMA user_version").fetchone()[0], names


def test_version_1_keeps_its_rows_and_gets_the_indices_of_a_new_one(
    old: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    with closing(open_database(old, said.append)) as data:
        assert data.execute("SELECT uid, part_code, ratio FROM part").fetchall() == [
            ("a-1", "W1", 0.5)
        ]
        assert read_counters(data).good == 1
    fresh = tmp_path / "fresh"
    open_database(fresh, said.append).close()
    assert schema(old) == schema(fresh) and schema(old)[0] == VERSION
    assert len(said) == 1 and "has version 1; it is brought to version 2" in said[0]
    open_database(old, said.append).close()
    assert len(said) == 1, "once"


def test_a_kill_on_the_way_leaves_version_1(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema(old)
    broken = database._MIGRATIONS[1] + "CREATE TABLE part (uid TEXT) STRICT;"
    with monkeypatch.context() as change:
        change.setitem(database._MIGRATIONS, 1, broken)
        with pytest.raises(StorageError, match="part already exists"):
            open_database(old, print)
    assert schema(old) == before
    open_database(old, print).close()
    assert schema(old)[0] == VERSION


def test_the_program_before_leaves_this_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_database(tmp_path, print).close()
    monkeypatch.setattr(database, "VERSION", 1)
    with pytest.raises(StorageError, match="has version 2, this program knows 1"):
        open_database(tmp_path, print)
    assert schema(tmp_path)[0] == VERSION


def test_pins_and_trials_are_read_from_the_data_base_of_the_station(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "station.db")) as data:
        data.execute("PRAGMA journal_mode = WAL")
        assert read_pins(tmp_path) == set() and not wants_every_picture(tmp_path)
        data.executescript(
            "CREATE TABLE pin (uid TEXT); INSERT INTO pin VALUES ('a-1');"
            "CREATE TABLE shadow (state TEXT); INSERT INTO shadow VALUES ('running');"
        )
        assert read_pins(tmp_path) == {"a-1"} and wants_every_picture(tmp_path)
        data.execute("UPDATE shadow SET state = 'dropped'")
        data.commit()
        assert not wants_every_picture(tmp_path)
    (tmp_path / "station.db").write_text("no data base " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        read_pins(tmp_path)


def test_the_store_keeps_what_is_pinned_and_every_picture_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_keeper, "LOOK_SECONDS", 0.01)
    database = Database(tmp_path)
    (tmp_path / "pictures").mkdir()
    with closing(open_database(tmp_path, print)) as data:
        data.execute(PART.replace("a-1", "a-3"))
        two_days_ago = datetime.now(timezone.utc) - timedelta(days=2)
        data.execute("UPDATE part SET at = ?", (two_days_ago.isoformat(),))  # by a clock that goes
        for uid in ("a-1", "a-2"):
            data.execute(PART.replace("a-1", uid).replace("2026", "2020"))
            (tmp_path / "pictures" / uid).write_bytes(b"x")
            values = (uid, f"pictures/{uid}")
            data.execute(
                "INSERT INTO capture (uid, number, camera, picture, bytes) VALUES (?,0,'top',?,1)",
                values,
            )
    with database.write() as written:
        written.execute("INSERT INTO pin VALUES ('a-1', 'mia', 'now')")
        written.execute(
            "INSERT INTO shadow (state, by, at, product, capture, candidate, parts, rule) "
            "VALUES ('running', 'mia', 'now', 1, 0, 'x', 5, '{}')"
        )
    said: list[str] = []
    keeper = store_keeper.StoreKeeper(tmp_path, RetentionRules(), {}, say=said.append)
    keeper.start()
    end = time.monotonic() + 60
    while (tmp_path / "pictures/a-2").exists() or not keeper.keeps_every_picture:
        assert time.monotonic() < end, said
        time.sleep(0.01)
    assert (tmp_path / "pictures/a-1").exists(), "pinned, and six years old"
    keeper.close()
    database.close()
