"""station.db, tokens and the audit: what lasts, what is refused, what is found out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from command_line import fails, ok, run_cli
from hypothesis import given
from hypothesis import strategies as st
from station_page import PASSWORD, page_config, serve_page

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.station.database import NAME, VERSION, Database
from anoco_edge.station.people import audit, passwords
from anoco_edge.station.people.audit import START, Audit, Entry, check_chain
from anoco_edge.station.people.roles import User
from anoco_edge.station.people.tokens import DAY

MIA = User("mia", "engineer", "password")


def test_a_data_base_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Database(tmp_path).close()
    data = sqlite3.connect(tmp_path / NAME)
    data.execute(f"PRAGMA user_version = {VERSION + 1}")
    data.close()
    with pytest.raises(StorageError, match=f"has version {VERSION + 1}.*update anoco-edge"):
        Database(tmp_path)


@pytest.mark.parametrize("content", [b"no data base" * 100, b"SQLite format 3\0" + b"x" * 4000])
def test_a_damaged_data_base_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StorageError, match="restore"):
        Database(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_only_its_owner_reads_the_data_base(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.write() as data:
        data.execute("INSERT INTO pin VALUES ('a', 'mia', '')")
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    database.close()


def test_a_transaction_is_whole_or_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(ZeroDivisionError), database.write() as data:
        data.execute("INSERT INTO pin VALUES ('a', 'mia', '')")
        Audit(database).write(MIA, "pinned", "a")
        assert database.rows("SELECT * FROM pin") == [], "nobody sees what is not committed"
        _ = 1 / 0
    assert database.rows("SELECT * FROM pin") == []
    assert Audit(database).entries() == []


def test_a_token_acts_with_its_scope_until_it_ends(tmp_path: Path) -> None:
    with serve_page(tmp_path) as page:
        admin = page.browser("ada")
        new = {"name": "line log", "scope": "viewer", "days": 30}
        made = admin.post("/api/v1/tokens", new).json
        program = page.browser(origin=None, token=made["token"])
        assert program.get("/api/v1/state").status == 200
        assert program.get("/api/v1/session").json["name"] == "ada/line log"
        (entry,) = admin.get("/api/v1/tokens").json
        assert entry["scope"] == "viewer" and entry["used"] and "digest" not in entry
        stored = (tmp_path / "press-3" / NAME).read_bytes()
        assert made["token"].split("_", 2)[2].encode() not in stored
        for wrong in (made["token"][:-1], made["token"] + "x", "anoco__", "", "x" * 5000):
            assert page.browser(origin=None, token=wrong).get("/api/v1/state").status == 401
        page.clock.now += 30 * DAY
        assert program.get("/api/v1/state").status == 401
        page.clock.now -= 30 * DAY
        assert admin.ask("DELETE", f"/api/v1/tokens/{made['id']}").status == 204
        assert program.get("/api/v1/state").status == 401
        assert admin.ask("DELETE", f"/api/v1/tokens/{made['id']}").status == 404
        engineer = page.token("engineer", "otto")
        assert engineer.post("/api/v1/line/enable", {"on": True}).status == 403, "otto may not"
        assert page.context.audit.check().holds
        actions = [entry["action"] for entry in admin.get("/api/v1/audit").json["items"]]
        assert actions == ["token removed", "token made", "sign-in"]


def test_the_audit_is_read_in_pages(tmp_path: Path) -> None:
    with serve_page(tmp_path) as page:
        for number in range(5):
            page.context.audit.write(MIA, "pinned", f"part {number}")
        admin = page.token("engineer")
        assert admin.get("/api/v1/audit").status == 403
        admin = page.browser("ada")
        first = admin.get("/api/v1/audit?limit=4").json
        second = admin.get(f"/api/v1/audit?limit=4&before={first['next']}").json
        subjects = [entry["subject"] for entry in (*first["items"], *second["items"])]
        assert subjects == ["ada", *(f"part {number}" for number in (4, 3, 2, 1, 0))]
        assert second["next"] is None
        check = admin.get("/api/v1/audit/check").json
        assert check["holds"] and check["entries"] == 6


def chain(count: int) -> list[Entry]:
    entries: list[Entry] = []
    before = START
    for number in range(1, count + 1):
        entry = Entry(
            number, f"2026-01-{number:02}", "mia", "pin", "review", f"p{number}", "{}", ""
        )
        before = entry.expected(before)
        entries.append(Entry(**{**vars(entry), "hash": before}))
    return entries


FIELDS = ("id", "at", "user", "via", "action", "subject", "details", "hash")


@given(st.data())
def test_any_change_of_the_audit_is_found(data: st.DataObject) -> None:
    entries = chain(6)
    head = entries[-1].hash
    assert check_chain(entries, head).holds
    place = data.draw(st.integers(0, 5))
    kind = data.draw(st.sampled_from(["edit", "remove", "swap", "cut"]))
    if kind == "edit":
        name = data.draw(st.sampled_from(FIELDS))
        value = getattr(entries[place], name)
        other = (
            data.draw(st.text("ab1", max_size=5))
            if name != "id"
            else data.draw(st.integers(-5, 20))
        )
        if other == value:
            return
        entries[place] = Entry(**{**vars(entries[place]), name: other})
    elif kind == "remove":
        del entries[place]
    elif kind == "swap":
        entries[place - 1], entries[place] = entries[place], entries[place - 1]
    else:
        del entries[place:]
    assert not check_chain(entries, head).holds


def test_two_fields_cannot_lend_each_other_a_letter() -> None:
    one = Entry(1, "t", "mia", "pin", "ab", "c", "{}", "")
    other = Entry(1, "t", "mia", "pin", "a", "bc", "{}", "")
    assert one.expected(START) != other.expected(START)


def test_a_clock_that_is_set_back_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Audit(Database(tmp_path))
    for at in ("2026-05-01", "1970-01-01", "2026-05-02"):
        monkeypatch.setattr(audit, "wall_time", lambda at=at: at)
        written.write(MIA, "review", "p1")
    report = written.check()
    assert report.holds and report.clock_set_back == 1 and report.entries == 3


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(passwords, "COST", 16)
    from anoco_edge.line.config.station_config import EXAMPLE

    assert page_config(8080).page is not None
    path = tmp_path / "station.toml"
    path.write_text(EXAMPLE)
    return path


def test_users_are_managed_on_the_console(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    def typed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text + "\n"))

    assert "there is no" in fails(1, "station", "users", config)
    typed("short")
    assert "10 to 200" in fails(2, "station", "users", config, "--add", "mia")
    typed(PASSWORD)
    assert "mia: admin" in ok("station", "users", config, "--add", "mia", "--role", "admin").out
    typed("another long password")
    ok("station", "users", config, "--password", "mia")
    fails(2, "station", "users", config, "--remove", "mia")
    fails(2, "station", "users", config, "--add", "x", "--remove", "mia")
    fails(2, "station", "users", config, "--add", "x", "--role", "king")
    (user,) = ok("station", "users", config, "--json").json
    assert user["name"] == "mia" and "password" not in user
    entries = ok("station", "audit", config, "--json").json
    assert [entry["action"] for entry in entries] == ["password set", "user added"]
    assert PASSWORD not in json.dumps(entries)


def test_the_audit_is_verified_on_the_console(config: Path) -> None:
    folder = config.parent / "press-3"
    database = Database(folder)
    for number in range(3):
        Audit(database).write(MIA, "review", f"p{number}")
    head = Audit(database).check().head
    database.close()
    assert head in ok("station", "audit", config, "--verify").out
    assert ok("station", "audit", config, "--verify", "--head", head).code == 0
    assert run_cli("station", "audit", config, "--verify", "--head", "0" * 64).code == 4
    data = sqlite3.connect(folder / NAME)
    data.execute("UPDATE audit SET user = 'eve' WHERE id = 2")
    data.commit()
    data.close()
    broken = run_cli("station", "audit", config, "--verify")
    assert broken.code == 4 and "Entry 2 does not follow" in broken.out


@pytest.mark.parametrize("pin", ["0000", "1234", "9876", "123", "12345678901234", "12a4", "١٢٣٤"])
def test_pins_that_are_tried_first_are_refused(pin: str) -> None:
    with pytest.raises(UsageError):
        passwords.check_pin(pin)


@given(st.text("aB1 ö€", max_size=4), st.text("aB1 ö€", max_size=4))
def test_only_the_same_password_matches(one: str, other: str) -> None:
    stored = passwords.hash_secret(one, cost=2)
    assert passwords.matches(one, stored)
    assert passwords.matches(other, stored) == (one == other)
    assert not passwords.matches(one, None)
