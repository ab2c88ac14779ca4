"""Brings a station back from a backup, into a folder of its own.

The archive is unpacked beside that folder, compared with its list file by file, and takes the place
by one rename. Before that nothing is changed. What was there, with `force`, is kept beside it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.line.config.station_config import read_config
from anoco_edge.line.store.database import LOCK, StationLock
from anoco_edge.line.store.database import NAME as LINE
from anoco_edge.line.store.database import VERSION as LINE_VERSION
from anoco_edge.station.backup.contents import LIST, VERSION, BackupList
from anoco_edge.station.database import NAME as STATION
from anoco_edge.station.database import VERSION as STATION_VERSION
from anoco_edge.station.products.archives import unpack
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import Directory
from anoco_edge.storage.exchange import exchange
from anoco_edge.storage.hashes import sha256_file
from anoco_edge.storage.staging import Staging, staging

_HINT = "use another copy of the backup; nothing was changed"
_MOST_FILES = 10_000_000
_VERSIONS = {LINE: LINE_VERSION, STATION: STATION_VERSION}


@dataclass(frozen=True)
class Restoration:
    """A station that was restored: its station.toml, and where its predecessor was put."""

    config: Path
    backup: BackupList
    before: Path | None


def restore(archive: Path, folder: Path, *, force: bool = False) -> Restoration:
    """Restore a backup to `folder`, which must be empty or missing unless `force` is given."""
    if not archive.is_file():
        raise UsageError(f"there is no backup {archive}", hint="name the file of a backup")
    if not force and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty", hint="choose another folder, or pass `force`")
    target = folder.absolute()
    with writing(str(folder)), staging(target) as stage, contextlib.ExitStack() as locks:
        stage.building.mkdir(mode=0o700)
        # A tar file holds no more than its own size, and nothing is compressed.
        size = archive.stat().st_size
        unpack(archive, stage.building, most_bytes=size, most_files=_MOST_FILES, hint=_HINT)
        made = _check(stage.building, archive.name)
        for lock in target.glob(f"**/{LOCK}"):
            locks.callback(StationLock(lock.parent).close)
        before = _take_place(stage, target)
    return Restoration(folder / made.config, made, before)


def _take_place(stage: Staging, target: Path) -> Path | None:
    """Move the restored folder to its place; return where the one before is now."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        stage.publish(replace=False)
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    before = target.with_name(f"{target.name}.before-{stamp}")
    if exchange(stage.building, target):
        stage.building.rename(before)
    else:  # a file system without the exchange of two names
        target.rename(before)
        stage.building.rename(target)
    with Directory.open(target.parent) as above:
        above.sync()
    return before


def _check(folder: Path, name: str) -> BackupList:
    """Compare what was unpacked with the list, and see that this program can run it."""
    made = _read_list(folder / LIST, name)
    (folder / LIST).unlink()
    with Directory.open(folder) as top:
        found = set(top.files())
    listed = {each.path for each in made.files}
    if strange := sorted(found - listed) or sorted(listed - found):
        what = "holds" if strange[0] in found else "is without"
        raise _damaged(f"{name} {what} {strange[0]}, against its list")
    for each in made.files:
        path = folder / each.path
        if path.stat().st_size != each.size or sha256_file(path) != each.sha256:
            raise _damaged(f"{each.path} in {name} is not what was backed up")
        path.chmod(each.mode | 0o600)
    if made.config not in found:
        raise _damaged(f"{name} is without {made.config}")
    read_config(folder / made.config)
    for database, version in _VERSIONS.items():
        _check_database(folder / made.folder / database, version)
    return made


def _read_list(path: Path, name: str) -> BackupList:
    try:
        made = BackupList.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise _damaged(f"{name} is not a whole backup: its list is missing") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise _damaged(f"{name} is not a backup: {first}") from None
    if made.version > VERSION:
        raise StorageError(
            f"{name} has version {made.version}, this program knows {VERSION}",
            hint="update anoco-edge",
        )
    return made


def _check_database(path: Path, version: int) -> None:
    if not path.exists():
        return
    try:
        # `immutable`, so that no file is made beside it.
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as data:
            (found,) = data.execute("PRAGMA user_version").fetchone()
            (state,) = data.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise _damaged(f"{path.name} is damaged: {error}") from None
    if state != "ok":
        raise _damaged(f"{path.name} is damaged: {state}")
    if found > version:
        raise StorageError(
            f"{path.name} has version {found}, this program knows {version}",
            hint="update anoco-edge",
        )


def _damaged(what: str) -> StorageError:
    return StorageError(what, hint=_HINT)
