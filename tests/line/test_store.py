"""The store: durable rows, damaged data bases, the outbox, and what retention deletes."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from virtual_line import VirtualLine

from anoco_edge.errors import SourceError, StorageError
from anoco_edge.line.core.effects import (
    CaptureRecord,
    FrameKey,
    PartRecord,
    RecordAccepted,
    RecordLate,
    RecordPart,
    Say,
)
from anoco_edge.line.core.events import Acknowledge, Opinion, PreparedProduct
from anoco_edge.line.core.status import Counters
from anoco_edge.line.store import keeper as store_keeper
from anoco_edge.line.store.database import (
    NAME,
    VERSION,
    StationLock,
    new_run,
    open_database,
    read_counters,
)
from anoco_edge.line.store.keeper import StoreKeeper
from anoco_edge.line.store.outbox import BATCH, Outbox, webhook
from anoco_edge.line.store.recorder import Recorder
from anoco_edge.line.store.retention import Retention, RetentionRules
from anoco_edge.line.store.rows import CaptureOrigin, PartRow, PictureFile, RowWriter
from anoco_edge.line.words.constants import Reason

WRITER = RowWriter("c0ffee", sinks=("webhook",))
PRODUCT = PreparedProduct(1, 4, 0xBEEF)
PIXELS = np.zeros((8, 8, 3), np.uint8)


def part(number: int, verdict: Any = "good", **others: Any) -> PartRow:
    uid = f"r1-{number:06d}"
    captures = (
        CaptureRecord("top", FrameKey("top", number), 5, 6, Opinion(verdict, PRODUCT, ratio=0.5)),
    )
    values = {
        "accepted": True,
        "trigger_at": 0,
        "decided_at": 9,
        "verdict": verdict,
        "reason": Reason.NONE,
        "product": PRODUCT,
        "captures": captures,
        **others,
    }
    record = PartRecord(uid, number, "A", "", **values)  # type: ignore[arg-type]
    return PartRow(record, (CaptureOrigin("line.anoco", "ab" * 32, "nut", 4),))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def data(tmp_path: Path, said: list[str]) -> Any:
    opened = open_database(tmp_path, said.append)
    yield opened
    opened.close()


def write(data: sqlite3.Connection, *rows: Any, writer: RowWriter = WRITER) -> None:
    with data:
        data.execute("BEGIN")
        for row in rows:
            writer.write(data, row)


def one(data: sqlite3.Connection, query: str) -> Any:
    return data.execute(query).fetchone()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- the data base


def test_it_is_strict_durable_and_knows_its_version(data: sqlite3.Connection) -> None:
    assert one(data, "PRAGMA journal_mode") == ("wal",)
    assert one(data, "PRAGMA synchronous") == (2,)  # FULL
    assert one(data, "PRAGMA user_version") == (VERSION,)
    with pytest.raises(sqlite3.IntegrityError):
        data.execute("INSERT INTO counter VALUES ('triggers', 'many')")


def test_a_later_version_is_refused_and_left_alone(tmp_path: Path, said: list[str]) -> None:
    open_database(tmp_path, said.append).execute(f"PRAGMA user_version = {VERSION + 1}")
    known = f"has version {VERSION + 1}, this program knows {VERSION}; update"
    with pytest.raises(StorageError, match=known):
        open_database(tmp_path, said.append)
    assert not said and [p.name for p in tmp_path.glob("*damaged*")] == []


@pytest.mark.parametrize("damage", ["text", "page", "tables"])
def test_a_damaged_data_base_is_kept_aside_loudly(
    tmp_path: Path, said: list[str], damage: str
) -> None:
    opened = open_database(tmp_path, said.append)
    write(opened, *(part(n) for n in range(200)))
    opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if damage == "tables":
        opened.execute("DROP TABLE late")
    opened.close()
    path = tmp_path / NAME
    if damage == "text":
        path.write_text("this is no data base at all, it is a text" * 100)
    elif damage == "page":
        raw = bytearray(path.read_bytes())
        raw[3 * 4096 : 8 * 4096] = b"\xa5" * (5 * 4096)
        path.write_bytes(raw)
    again = open_database(tmp_path, said.append)
    assert read_counters(again) == Counters()
    assert len(said) == 1 and "is damaged" in said[0] and "line.db.damaged-1" in said[0]
    assert (tmp_path / "line.db.damaged-1").is_file()
    again.close()
    path.write_text("damaged once more" * 100)
    open_database(tmp_path, said.append).close()
    assert (tmp_path / "line.db.damaged-2").is_file()


def test_a_folder_that_cannot_be_written(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot open"):
        open_database(tmp_path / "file", said.append)


def test_two_stations_cannot_share_a_folder(tmp_path: Path) -> None:
    first = StationLock(tmp_path)
    with pytest.raises(StorageError, match="another station works in"):
        StationLock(tmp_path)
    first.close()
    StationLock(tmp_path).close()


# ---- rows


def test_a_part_is_counted_once_and_names_what_judged_it(data: sqlite3.Connection) -> None:
    write(data, RecordAccepted("r1-000001", 1, "A", 0), part(1), part(1), part(2, "anomalous"))
    refused = part(3, "no-verdict", accepted=False, reason=Reason.BUSY, product=None, captures=())
    write(data, refused)
    assert read_counters(data) == Counters(triggers=3, good=1, fail=1, missed=1)
    row = one(data, "SELECT verdict, generation, checksum, config FROM part WHERE seq = 1")
    assert row == ("good", 4, 0xBEEF, "c0ffee")
    row = one(data, "SELECT camera, counter, bundle_sha256, generation FROM capture")
    assert row == ("top", 1, "ab" * 32, 4)
    assert one(data, "SELECT count(*) FROM outbox") == (3,)


def test_a_late_opinion_and_an_event_are_kept(data: sqlite3.Connection) -> None:
    late = RecordLate("r1-000001", 0, Opinion("good", PRODUCT, ratio=0.3), 77)
    write(data, late, Say("warning", "a picture was dropped"))
    assert one(data, "SELECT uid, verdict, received_ns FROM late") == ("r1-000001", "good", 77)
    assert one(data, "SELECT level, text FROM io_event") == ("warning", "a picture was dropped")


def test_a_restart_closes_what_was_interrupted(data: sqlite3.Connection) -> None:
    write(data, part(1), RecordAccepted("r1-000002", 2, "A", 0))
    assert read_counters(data).triggers == 2
    writer = RowWriter("c0ffee", ("mqtt",))
    assert writer.close_interrupted(data) == 1 and writer.close_interrupted(data) == 0
    counters = read_counters(data)
    assert counters == Counters(triggers=2, good=1, no_verdict=1)
    assert counters.triggers == counters.outcomes
    row = one(data, "SELECT verdict, reason FROM part WHERE seq = 2")
    assert row == ("no-verdict", Reason.RESTARTED)
    ((sink, uid, body),) = data.execute("SELECT sink, uid, body FROM outbox WHERE sink = 'mqtt'")
    assert (sink, uid) == ("mqtt", "r1-000002"), "who waits for results hears of it"
    message = json.loads(body)
    assert (message["seq"], message["part_code"], message["reason"]) == (2, "A", "RESTARTED")
    line = VirtualLine(counters=counters).start()
    line.part()
    assert line.status.counters.triggers == 3


def test_a_clock_that_was_set_back_gives_no_uid_twice(data: sqlite3.Connection) -> None:
    first = new_run(data, "press-3", 0xABC)
    assert first == new_run(data, "press-3", 0xABC) == "press-3-abc"
    for uid in (f"{first}-000001", "press-3-abd-999999", "press-3-abeb-000001"):
        RowWriter("c").write(data, RecordAccepted(uid, 1, "", 0))
    assert new_run(data, "press-3", 0xABC) == "press-3-abe"


def test_rows_of_a_whole_line_add_up(data: sqlite3.Connection) -> None:
    line = VirtualLine().start()
    for verdict in ("good", "anomalous", "no-verdict"):
        line.part(verdict)
        line.trigger(99)
        line.say(Acknowledge())
    for effect in line.effects:
        if isinstance(effect, RecordPart):
            write(data, PartRow(effect.record))
        elif isinstance(effect, RecordAccepted | RecordLate | Say):
            write(data, effect)
    assert read_counters(data) == line.core.counters


# ---- the recorder


def test_the_recorder_writes_rows_and_lossless_pictures(tmp_path: Path, said: list[str]) -> None:
    recorder = Recorder(tmp_path, WRITER, say=said.append, commit_seconds=0.01)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    for n in range(50):
        recorder.add(part(n))
        recorder.add_picture(f"r1-{n:06d}", 0, pixels)
        time.sleep(0.001)
    assert recorder.close() == 0
    data = open_database(tmp_path, said.append)
    assert read_counters(data).good == 50
    kept = data.execute("SELECT picture, bytes FROM capture WHERE picture IS NOT NULL").fetchall()
    assert len(kept) + recorder.load.dropped == 50 and kept
    for name, size in kept:
        assert (tmp_path / name).stat().st_size == size
    assert np.array_equal(np.asarray(Image.open(tmp_path / kept[0][0])), pixels)
    assert not said


def test_pictures_are_dropped_before_rows(tmp_path: Path, said: list[str]) -> None:
    blocker = open_database(tmp_path, said.append)
    blocker.execute("BEGIN EXCLUSIVE")
    recorder = Recorder(
        tmp_path, WRITER, say=said.append, most_rows=20, most_pictures=3, commit_seconds=0.01
    )
    rooms = [recorder.add(part(n)) for n in range(25)]
    taken = sum(recorder.add_picture(f"r1-{n:06d}", 0, PIXELS) for n in range(25))
    assert rooms == [True] * 19 + [False] * 6 and not recorder.has_room
    assert taken < 25 and recorder.load.dropped == 25 - taken
    wait_until(lambda: "locked" in recorder.load.failure)
    blocker.execute("COMMIT")
    wait_until(lambda: recorder.load.rows == 0)
    assert recorder.has_room and recorder.close() == 0
    assert read_counters(blocker).good == 25
    assert [text for text in said if "writes again" in text]
    blocker.close()


def test_a_full_disk_keeps_rows_until_there_is_room(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anoco_edge.line.store.recorder.RETRY_SECONDS", 0.01)
    full = threading.Event()
    full.set()
    writes = RowWriter.write

    def write_or_fail(self: RowWriter, data: sqlite3.Connection, row: Any) -> None:
        if full.is_set():
            raise sqlite3.OperationalError("database or disk is full")
        writes(self, data, row)

    monkeypatch.setattr(RowWriter, "write", write_or_fail)
    recorder = Recorder(tmp_path, WRITER, say=said.append, commit_seconds=0.01)
    recorder.add(part(1))
    wait_until(lambda: "full" in recorder.load.failure)
    assert len(said) == 1, "said once, not at every try"
    full.clear()
    wait_until(lambda: recorder.load.rows == 0)
    assert recorder.close() == 0


def test_a_locked_data_base_keeps_rows_until_it_is_free(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anoco_edge.line.store.recorder.RETRY_SECONDS", 0.01)
    recorder = Recorder(tmp_path, WRITER, say=said.append, commit_seconds=0.01)
    recorder.add(part(1))
    wait_until(lambda: recorder.load.rows == 0)
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.add(part(2))
        wait_until(lambda: "locked" in recorder.load.failure)
        assert recorder.load.rows == 1 and len(said) == 1
        other.execute("ROLLBACK")
        wait_until(lambda: recorder.load.rows == 0)
        assert recorder.close() == 0
        assert other.execute("SELECT count(*) FROM part").fetchone() == (2,)


def test_a_data_base_damaged_while_open_is_kept_aside(tmp_path: Path, said: list[str]) -> None:
    class Damaged(RowWriter):
        tries = 0

        def write(self, data: sqlite3.Connection, row: Any) -> None:
            Damaged.tries += 1
            if Damaged.tries == 1:
                raise sqlite3.DatabaseError("database disk image is malformed")
            super().write(data, row)

    recorder = Recorder(tmp_path, Damaged("c0ffee"), say=said.append, commit_seconds=0.01)
    recorder.add(part(1))
    wait_until(lambda: recorder.load.rows == 0)
    assert recorder.close() == 0
    assert "malformed" in said[0] and (tmp_path / "line.db.damaged-1").is_file()
    data = open_database(tmp_path, said.append)
    assert read_counters(data).good == 1


def test_a_row_that_cannot_be_written_does_not_hold_up_the_others(
    tmp_path: Path, said: list[str]
) -> None:
    recorder = Recorder(tmp_path, WRITER, say=said.append, commit_seconds=0.05)
    recorder.add(part(1))
    recorder.add(part(2, trigger_at=2**70))
    recorder.add(part(3))
    assert recorder.close() == 0
    assert len(said) == 1 and "a row cannot be recorded" in said[0]
    assert read_counters(open_database(tmp_path, said.append)).good == 2


# ---- the outbox


def test_every_message_is_sent_once_and_in_order(data: sqlite3.Connection) -> None:
    sent: list[str] = []
    box = Outbox(data, "webhook", lambda uid, body: sent.append(uid))
    write(data, part(1), part(2), part(3), part(2))
    assert box.drain(0.0) == 3 and box.drain(0.0) == 0
    assert sent == ["r1-000001", "r1-000002", "r1-000003"] and box.waiting() == 0
    write(data, part(1))
    assert box.waiting() == 0, "a uid that was sent does not come again"


def test_what_waits_is_sent_in_batches_each_marked_at_once(
    data: sqlite3.Connection, tmp_path: Path
) -> None:
    """One commit for a batch, and a keeper that does not rest while batches are full."""
    write(data, *[part(n) for n in range(3 * BATCH + 1)])
    commits: list[str] = []
    data.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
    sent: list[str] = []
    assert Outbox(data, "webhook", lambda uid, body: sent.append(uid)).drain(0.0) == BATCH
    data.set_trace_callback(None)
    assert len(sent) == BATCH and len(commits) == 1
    rules = RetentionRules(30, 10**9, 0, 0, 0.8)
    done = threading.Event()
    looks_until: list[int] = []

    def send(uid: str, body: str) -> None:
        sent.append(uid)
        if uid == f"r1-{3 * BATCH:06d}":
            looks_until.append(looks)
            done.set()

    keeper = store_keeper.StoreKeeper(tmp_path, rules, {"webhook": send}, say=print)
    looks = 0

    class CountedWaits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal looks
            looks += timeout == store_keeper.LOOK_SECONDS
            return super().wait(timeout)

    keeper._closing = CountedWaits()
    keeper.start()
    assert done.wait(60)
    assert looks_until == [2], "one to open the data base, one to send everything"
    keeper.close()
    assert sent == [f"r1-{n:06d}" for n in range(3 * BATCH + 1)]


def test_a_message_that_fails_ends_its_batch_and_those_before_are_marked(
    data: sqlite3.Connection,
) -> None:
    write(data, *[part(n) for n in range(5)])

    def send(uid: str, body: str) -> None:
        if uid == "r1-000003":
            raise SourceError("nobody listens", hint="it is tried again")

    box = Outbox(data, "webhook", send)
    assert box.drain(0.0) == 3 and box.waiting() == 2 and box.last_error
    assert one(data, "SELECT uid, attempts FROM outbox WHERE attempts") == ("r1-000003", 1)

    def break_down(uid: str, body: str) -> None:
        if uid == "r1-000004":
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        Outbox(data, "webhook", break_down).drain(0.0)
    assert box.waiting() == 1, "what was taken before does not go out again"


def test_a_sink_that_is_gone_for_an_hour_gets_everything(data: sqlite3.Connection) -> None:
    sent: list[str] = []
    tries: list[float] = []
    now = 0.0

    def send(uid: str, body: str) -> None:
        tries.append(now)
        if now < 3600:
            raise SourceError("nobody listens", hint="it is tried again")
        sent.append(json.loads(body)["uid"])

    box = Outbox(data, "webhook", send)
    for minute in range(70):
        write(data, part(minute))
        for _ in range(60):
            box.drain(now)
            now += 1.0
    while box.waiting():
        box.drain(now)
        now += 1.0
    assert sent == [f"r1-{n:06d}" for n in range(70)]
    assert len([t for t in tries if t < 3600]) < 80, "it backs off to once a minute"
    assert one(data, "SELECT max(attempts) FROM outbox")[0] > 50 and not box.last_error


def test_a_kill_after_sending_sends_again_with_the_same_uid(
    data: sqlite3.Connection, tmp_path: Path
) -> None:
    sent: list[str] = []

    class KilledError(BaseException):
        pass

    def send(uid: str, body: str) -> None:
        sent.append(uid)
        raise KilledError

    write(data, part(1))
    with pytest.raises(KilledError):
        Outbox(data, "webhook", send).drain(0.0)
    assert Outbox(data, "webhook", lambda uid, body: sent.append(uid)).drain(0.0) == 1
    assert sent == ["r1-000001"] * 2


def test_a_locked_data_base_stops_the_outbox_for_seconds_only(
    data: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(store_keeper, name, 0.01)
    tries: list[str] = []
    done = threading.Event()

    def send(uid: str, body: str) -> None:
        tries.append(uid)
        if len(tries) == 1:
            raise sqlite3.OperationalError("database is locked")
        done.set()

    write(data, part(1))
    said: list[str] = []
    rules = RetentionRules(30, 10**9, 0, 0, 0.8)
    keeper = store_keeper.StoreKeeper(tmp_path, rules, {"webhook": send}, say=said.append)
    keeper.start()
    assert done.wait(30) and len(tries) == 2
    keeper.close()
    assert "database is locked" in said[0]


def test_a_sink_that_does_not_speak_http_is_tried_again() -> None:
    """Its answer must not end the thread that also deletes old pictures."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(b"no such thing\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        send = webhook(f"http://127.0.0.1:{server.getsockname()[1]}/")
        with pytest.raises(SourceError, match="did not take r1-000001"):
            send("r1-000001", "{}")


def test_a_webhook_gets_the_token_and_the_key() -> None:
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, dict(self.headers), json.loads(body)))
            code = {"/ok": 204, "/moved": 302}.get(self.path, 500)
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/ok")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        webhook(f"{base}/ok", "t0ken")("r1-000001", '{"a": 1}')
        for path in ("/broken", "/moved"):
            with pytest.raises(SourceError, match="did not take r1-000002") as error:
                webhook(base + path, "t0ken")("r1-000002", "{}")
            assert "t0ken" not in str(error.value)
        server.shutdown()
    assert len(got) == 3, "a redirect is not followed"
    path, headers, body = got[0]
    assert headers["Authorization"] == "Bearer t0ken" and body == {"a": 1}
    assert headers["Idempotency-Key"] == "r1-000001" and path == "/ok"
    with pytest.raises(SourceError, match="did not take"):
        webhook("http://127.0.0.1:9/x", timeout=1)("r1-000003", "{}")


# ---- retention


@pytest.fixture
def album(data: sqlite3.Connection, tmp_path: Path) -> list[str]:
    """Ten parts, one a day from ten days ago on, every third one anomalous; 1000 bytes each."""
    (tmp_path / "pictures").mkdir()
    today = datetime(2026, 1, 20, tzinfo=timezone.utc)
    for n in range(10):
        write(data, part(n, "anomalous" if n % 3 == 0 else "good"))
        name = f"pictures/{n}.png"
        (tmp_path / name).write_bytes(b"x" * 1000)
        write(data, PictureFile(f"r1-{n:06d}", 0, name, 1000))
        at = (today - timedelta(days=10 - n)).isoformat(timespec="milliseconds")
        data.execute("UPDATE part SET at = ? WHERE seq = ?", (at, n))
    return [f"r1-{n:06d}" for n in range(10)]


def left(tmp_path: Path) -> list[int]:
    return sorted(int(path.stem) for path in (tmp_path / "pictures").glob("*.png"))


def clean(data: sqlite3.Connection, folder: Path, **rules: Any) -> Any:
    pinned = rules.pop("pinned", ())
    free = rules.pop("free", lambda path: 10**12)
    limits = RetentionRules(**{"days": 3650, "min_free_bytes": 0, **rules})
    retention = Retention(folder, limits, pinned=lambda: pinned, free_bytes=free)
    return retention.clean(data, datetime(2026, 1, 20, tzinfo=timezone.utc))


def test_old_pictures_go_and_rows_stay(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    done = clean(data, tmp_path, days=4)
    assert left(tmp_path) == [6, 7, 8, 9] and (done.deleted, done.freed) == (6, 6000)
    assert one(data, "SELECT count(*) FROM part") == (10,)
    assert one(data, "SELECT count(*) FROM capture WHERE picture IS NOT NULL") == (4,)


def test_a_clock_that_was_set_years_ahead_deletes_nothing_at_once(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    """Neither in the run that sees the jump nor after a restart; a day later it is the time."""
    today = datetime(2026, 1, 20, tzinfo=timezone.utc)
    later, day = today.replace(year=2031), timedelta(days=1)
    rules = RetentionRules(days=8, min_free_bytes=0)

    def running() -> Retention:
        return Retention(tmp_path, rules, free_bytes=lambda path: 10**12)

    first = running()
    assert first.clean(data, today, 0.0).deleted == 2
    done = first.clean(data, later, 60.0)
    assert (done.deleted, done.held, done.enough) == (0, 8, True)
    assert first.clean(data, later + 0.9 * day, 60 + 0.9 * 86400).held == 8
    second = running()
    assert second.clean(data, later + 0.9 * day, 0.0).held == 8
    # Parts that came since do not make the clock right; a day under it does.
    write(data, part(11))
    data.execute("UPDATE part SET at = ? WHERE seq = 11", (later.isoformat(),))
    assert second.clean(data, later + 0.9 * day, 60.0).held == 8
    assert left(tmp_path) == list(range(2, 10))
    assert running().clean(data, later + 1.1 * day, 0.0).deleted == 8
    assert not left(tmp_path)


def test_a_clock_that_was_ahead_and_is_set_right_makes_no_new_picture_the_oldest(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    data.execute("UPDATE part SET at = '2031' || substr(at, 5) WHERE seq < 8")
    assert clean(data, tmp_path, max_bytes=2000).enough
    assert left(tmp_path) == [6, 9], "the last rejects"


def test_an_idle_station_deletes_old_pictures_by_a_clock_that_goes_steadily(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    rules = RetentionRules(days=5, min_free_bytes=0)
    idle = Retention(tmp_path, rules, free_bytes=lambda path: 10**12)
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    assert idle.clean(data, start, 0.0).held == 10
    assert idle.clean(data, start + timedelta(days=1), 86400.0).deleted == 10


def test_the_keeper_says_once_that_the_clock_may_be_wrong(
    data: sqlite3.Connection, tmp_path: Path, album: list[str], said: list[str]
) -> None:
    data.execute("UPDATE part SET at = '1999' || substr(at, 5)")
    keeper = StoreKeeper(tmp_path, RetentionRules(min_free_bytes=0), {}, say=said.append)
    for _ in range(2):
        keeper._clean(data)
    assert len(left(tmp_path)) == 10 and len(said) == 1 and "10 pictures are older" in said[0]


def test_good_ones_go_before_rejects_when_there_is_too_much(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    assert clean(data, tmp_path, max_bytes=5000).enough
    assert left(tmp_path) == [0, 3, 6, 8, 9]


def test_pinned_pictures_are_never_deleted(
    data: sqlite3.Connection, tmp_path: Path, album: list[str]
) -> None:
    done = clean(data, tmp_path, days=1, max_bytes=1000, pinned=album[:3])
    assert left(tmp_path) == [0, 1, 2] and not done.enough, "it says that it was not enough"


def test_free_space_is_kept(data: sqlite3.Connection, tmp_path: Path, album: list[str]) -> None:
    def free(path: Path) -> int:
        return 7000 - sum(f.stat().st_size for f in (path / "pictures").iterdir())

    assert clean(data, tmp_path, min_free_bytes=3000, free=free).enough
    assert len(left(tmp_path)) == 4


def test_which_pictures_are_written_at_all() -> None:
    rules = RetentionRules(keep_good_every=0)
    assert not rules.keeps(part(1).record, 100)
    assert rules.keeps(part(1, "anomalous").record, 1)
    assert rules.keeps(part(1, ratio=0.85).record, 1)
