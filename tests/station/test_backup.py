"""A backup of a station that runs, and the station that comes out of it."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from command_line import fails, ok
from line_client import Client
from running_station import RunningStation
from signed_bundle import ENGINEER
from taught_station import TaughtStation, make_taught_station
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge import Bundle
from anoco_edge.bundle.signatures.signing import sign_bundle
from anoco_edge.errors import AnocoError, StorageError, UsageError
from anoco_edge.line.config.station_config import EXAMPLE, read_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.store.database import StationLock
from anoco_edge.line.words.constants import StatusBit
from anoco_edge.station.backup import restoring
from anoco_edge.station.backup.contents import LIST
from anoco_edge.station.backup.restoring import restore
from anoco_edge.station.backup.writing import back_up
from anoco_edge.station.database import Database
from anoco_edge.storage.staging import Staging

MORE = f"""require_signature = true
public_keys = ["{ENGINEER.public.line}"]

[store]
keep_good_every = 1
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStation]:
    folder = tmp_path_factory.mktemp("running")
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", str(folder / "line.anoco"), *write_good_pictures(folder / "good", 3))
    sign_bundle(Bundle.open(folder / "line.anoco"), ENGINEER)
    station = RunningStation(folder, MORE)
    yield station
    station.stop()


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "press-3/line.db")) as data:
        return data.execute(query).fetchall()


def test_a_running_station_is_backed_up_and_comes_back(
    running: RunningStation, tmp_path: Path
) -> None:
    for _ in range(3):
        running.part()
    kept_rows = "SELECT picture FROM capture ORDER BY uid"  # written a moment after the verdict
    running.wait_for(lambda: len(rows(running.folder, kept_rows)) >= 3)
    (uid,) = rows(running.folder, "SELECT uid FROM part ORDER BY uid LIMIT 1")[0]
    assert running.program.ask("PUT", f"/api/v1/parts/{uid}/pin", {"on": True}).status == 200
    running.wait_for(lambda: rows(running.folder, kept_rows)[2][0])
    config, file, again = running.folder / "station.toml", tmp_path / "a.tar", tmp_path / "again"
    done = threading.Event()
    parts = threading.Thread(target=lambda: [running.part() for _ in range(10)] and done.set())
    parts.start()
    made = ok("station", "backup", config, file, "--json").json
    parts.join()
    assert done.is_set(), "every part got its verdict meanwhile"
    assert file.stat().st_mode & 0o777 == 0o600
    kept = [path for path in made["files"] if path.endswith(".png") and "pictures" in path]
    assert len(kept) == 1 and uid in kept[0], "the pinned picture alone"
    users = ok("station", "users", config, "--json").json

    restored = Path(ok("station", "restore", file, again, "--json").json["config"])
    assert restored == again / "station.toml"
    assert ok("station", "users", restored, "--json").json == users
    ok("station", "audit", restored, "--verify")
    actions = [entry["action"] for entry in ok("station", "audit", restored, "--json").json]
    assert "backup" in actions and "pin" in actions
    every = "SELECT * FROM part WHERE verdict IS NOT NULL ORDER BY uid"
    before, after = rows(running.folder, every), rows(again, every)
    assert len(after) >= 3 and before[: len(after)] == after
    for toml in (config, restored):
        assert ok("replay", uid, "--station", toml, "--json").json["state"] == "same"
    assert (again / "press-3/signing/station.key").stat().st_mode & 0o777 == 0o600
    assert not list(again.rglob("*.lock")) and not list(again.rglob("*.sock*"))

    # What runs is not replaced, and what was there is kept.
    assert "another station works" in fails(
        1, "station", "restore", file, running.folder, "--force"
    )
    running.part()
    assert "is not empty" in fails(2, "station", "restore", file, again)
    (again / "press-3/note").write_text("x")
    second = ok("station", "restore", file, again, "--force", "--json").json
    assert (Path(second["before"]) / "press-3/note").exists()
    assert rows(again, every) == after and not (again / "press-3/note").exists()


@pytest.mark.full
def test_the_station_that_comes_back_judges_as_before(
    running: RunningStation, tmp_path: Path
) -> None:
    running.part()
    store = running.folder / "press-3"
    running.wait_for(lambda: any(store.rglob("*.png")))  # written a moment after the verdict
    back_up(running.folder / "station.toml", tmp_path / "a.tar", all_pictures=True)
    (tmp_path / "again").mkdir()
    restore(tmp_path / "a.tar", tmp_path / "again")
    write_good_pictures(tmp_path / "again/good", 3)  # the camera, which is no part of a backup
    pictures = {p.name for p in store.rglob("*.png")}
    assert pictures and pictures >= {p.name for p in (tmp_path / "again/press-3").rglob("*.png")}
    config, port = other_ports(tmp_path / "again/station.toml", running)
    assert "signed by key" in ok("station", "check", config).out
    before = triggers_of(config.parent)
    server = LineServer(read_config(config), config.parent, say=lambda _: None)
    server.start()
    try:
        plc = Client(port)
        plc.send("E,1")
        plc.wait_for(StatusBit.READY)
        assert plc.ask("T,500")[2] == "PASS"
        assert plc.ask("S")[4] == str(before + 1), "the counters go on"
    finally:
        server.stop()


def triggers_of(folder: Path) -> int:
    return int(rows(folder, "SELECT value FROM counter WHERE name = 'triggers'")[0][0])


def other_ports(config: Path, running: RunningStation) -> tuple[Path, int]:
    """Give a restored station other ports than those of the one that runs."""
    port, web = free_port(), free_port()
    text = config.read_text().replace(f"port = {running.port}", f"port = {port}")
    config.write_text(text.replace(f"port = {running.web}", f"port = {web}"))
    return config, port


# ---- what is refused


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    station = make_taught_station(tmp_path_factory.mktemp("taught"))
    (station.base / "station.toml").write_text(EXAMPLE)
    return station


@pytest.fixture(scope="module")
def archive(station: TaughtStation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "a.tar"
    back_up(station.base / "station.toml", path, all_pictures=True)
    return path


Members = dict[str, tuple[tarfile.TarInfo, bytes]]


def rewrite(archive: Path, target: Path, change: Callable[[Members], object]) -> Path:
    members: Members = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            file = opened.extractfile(member)
            assert file is not None
            members[member.name] = member, file.read()
    change(members)
    with tarfile.open(target, "w") as made:
        for member, data in members.values():
            member.size = len(data) if member.isreg() else 0
            made.addfile(member, BytesIO(data))
    return target


def put(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        member = members[name][0] if name in members else tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
        members[name] = member, data

    return change


def listed(change: Callable[[dict[str, Any]], object]) -> Callable[[Members], None]:
    def edit(members: Members) -> None:
        member, data = members[LIST]
        values = json.loads(data)
        change(values)
        members[LIST] = member, json.dumps(values).encode()

    return edit


def escaping(values: dict[str, Any]) -> None:
    values["files"][0]["path"] = "../escaped"


HOSTILE: dict[str, tuple[Callable[[Members], object], str]] = {
    "leads out": (put("../escaped"), "leads out"),
    "absolute": (put("/tmp/escaped"), "leads out"),
    "link": (put("station.toml", kind=tarfile.SYMTYPE), "which is a link"),
    "hard link": (put("x", kind=tarfile.LNKTYPE), "which is a link"),
    "device": (put("x", kind=tarfile.CHRTYPE), "a link or a device"),
    "changed": (
        put("station.toml", EXAMPLE.replace("7700", "7701").encode()),
        "is not what was backed up",
    ),
    "extra": (put("press-3/x"), "holds press-3/x, against its list"),
    "missing": (lambda m: m.pop("press-3/station.db"), "is without press-3/station.db"),
    "no list": (lambda m: m.pop(LIST), "its list is missing"),
    "list escapes": (listed(escaping), "points outside"),
    "later version": (listed(lambda v: v.update(version=99)), "has version 99"),
    "no config": (listed(lambda v: v.update(config="other.toml")), "is without other.toml"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_wrong_archive_changes_nothing(archive: Path, tmp_path: Path, what: str) -> None:
    change, words = HOSTILE[what]
    wrong = rewrite(archive, tmp_path / "wrong.tar", change)
    place = tmp_path / "place"
    (place / "old").mkdir(parents=True)
    for force in (False, True):
        target = place / ("old" if force else "new")
        with pytest.raises(AnocoError, match=words):
            restore(wrong, target, force=force)
    assert [p.name for p in place.rglob("*")] == ["old"]
    assert not list(tmp_path.rglob("escaped")) and not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("part", [0.02, 0.5, 0.98])
def test_half_an_archive_is_refused(archive: Path, tmp_path: Path, part: float) -> None:
    data = archive.read_bytes()
    (tmp_path / "half.tar").write_bytes(data[: int(len(data) * part)])
    with pytest.raises(AnocoError):
        restore(tmp_path / "half.tar", tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["half.tar"]


def test_a_damaged_data_base_is_refused(station: TaughtStation, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    back_up(station.base / "station.toml", path)

    def damage(members: Members) -> None:
        import hashlib

        member, data = members["press-3/line.db"]
        data = data[:4096] + b"\xff" * 4096 + data[8192:]
        members["press-3/line.db"] = member, data
        listing = json.loads(members[LIST][1])
        for each in listing["files"]:
            if each["path"] == "press-3/line.db":
                each["sha256"] = hashlib.sha256(data).hexdigest()
        members[LIST] = members[LIST][0], json.dumps(listing).encode()

    wrong = rewrite(path, tmp_path / "wrong.tar", damage)
    with pytest.raises(StorageError, match=r"line\.db is damaged"):
        restore(wrong, tmp_path / "new")


def test_a_restore_that_fails_at_the_end_leaves_the_old_station(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old"
    restore(archive, old)
    (old / "note").write_text("x")
    before = sorted(old.rglob("*"))

    def full(_stage: Staging, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restoring, "_take_place", full)
    with pytest.raises(StorageError, match="No space left"):
        restore(archive, old, force=True)
    assert sorted(old.rglob("*")) == before and [p.name for p in tmp_path.iterdir()] == ["old"]


def test_a_running_station_is_not_replaced(archive: Path, tmp_path: Path) -> None:
    restore(archive, tmp_path / "old")
    lock = StationLock(tmp_path / "old/press-3")
    with pytest.raises(StorageError, match="another station works"):
        restore(archive, tmp_path / "old", force=True)
    lock.close()
    done = restore(archive, tmp_path / "old", force=True)
    assert done.before is not None and (done.before / "station.toml").exists()


def test_what_lies_elsewhere_or_is_there_already_is_refused(
    station: TaughtStation, tmp_path: Path
) -> None:
    (tmp_path / "there.tar").write_text("x")
    with pytest.raises(UsageError, match="exists already"):
        back_up(station.base / "station.toml", tmp_path / "there.tar")
    for old, new in (("line.anoco", "/srv/line.anoco"), ('"press-3"\n\n', '"../press-3"\n\n')):
        (tmp_path / "station.toml").write_text(EXAMPLE.replace(old, new))
        with pytest.raises(StorageError, match="lies outside its folder"):
            back_up(tmp_path / "station.toml", tmp_path / "a.tar")
    (tmp_path / "station.toml").write_text(EXAMPLE)
    with pytest.raises(StorageError, match="has no data base"):
        back_up(tmp_path / "station.toml", tmp_path / "a.tar")


def test_what_is_not_there_is_said(station: TaughtStation, tmp_path: Path) -> None:
    (tmp_path / "press-3").mkdir()
    Database(tmp_path / "press-3").close()
    text = EXAMPLE + '\n[webhook]\nurl = "http://127.0.0.1/"\ntoken_file = "hook.token"\n'
    (tmp_path / "station.toml").write_text(text)
    said: list[str] = []
    made = back_up(tmp_path / "station.toml", tmp_path / "a.tar", say=said.append)
    assert [path.path for path in made.files] == ["press-3/station.db", "station.toml"]
    assert len(said) == 2 and "hook.token" in said[0] and "line.anoco" in said[1]
