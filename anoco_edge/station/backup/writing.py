"""Makes a backup of a station, which may run meanwhile.

The data bases are copied by SQLite's own backup, each as it is at one moment; pictures and bundles
follow, so that every row finds what it names. The products of a bundle are locked while it is
copied. The archive is a tar file that only its owner may read, and takes its place by one rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.store import now
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.line.config.station_config import StationConfig, read_config
from anoco_edge.station.backup.contents import (
    DATABASES,
    LIST,
    BackupFile,
    BackupList,
    configured_paths,
    kept_pictures,
    own_files,
)
from anoco_edge.station.database import NAME as STATION
from anoco_edge.station.database import Database
from anoco_edge.station.people.audit import Audit
from anoco_edge.station.people.roles import User
from anoco_edge.storage.atomic_files import sync_folder, writing
from anoco_edge.storage.beneath import (
    TEMPORARY,
    Directory,
    sweep_temporaries,
    temporary_name,
)
from anoco_edge.storage.locks import LOCK, locked
from anoco_edge.storage.regular_file import open_regular

LOCK_SECONDS = 120.0
Say = Callable[[str], None]


def back_up(
    config: Path, target: Path, *, all_pictures: bool = False, say: Say = lambda _: None
) -> BackupList:
    """Write a backup of the station of a station.toml to `target`, which must not exist.

    `say` gets a line about each file that the station names and that is not there.
    """
    if target.exists():
        raise UsageError(f"{target} exists already", hint="give the backup another name")
    read = read_config(config)
    configured_paths(read)  # what lies elsewhere is refused before anything is done
    folder = config.parent / read.station.folder
    if not any((folder / name).exists() for name in DATABASES):
        raise StorageError(f"{folder} has no data base", hint="start the station first")
    _note_in_audit(folder, target)
    sweep_temporaries(target.parent, target.name)
    temporary = target.with_name(temporary_name(target.name))
    with (
        writing(str(target)),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=TEMPORARY) as copies,
    ):
        try:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                archive = _Archive(stream, config.parent, say)
                _fill(archive, config, read, Path(copies), all_pictures)
                made = BackupList(
                    made=now(),
                    station=read.station.name,
                    config=config.name,
                    folder=read.station.folder.as_posix(),
                    all_pictures=all_pictures,
                    files=list(archive.held.values()),
                )
                archive.close(made)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
    return made


def _fill(
    archive: _Archive, config: Path, read: StationConfig, copies: Path, all_pictures: bool
) -> None:
    """Add all of a station: the data bases first, so that their rows find what they name."""
    base, folder = config.parent, config.parent / read.station.folder
    files, bundles = configured_paths(read)
    for name, copy in _copy_databases(folder, copies).items():
        archive.add(folder / name, copy)
    for path in (config, *(base / each for each in files), *own_files(folder)):
        archive.add(path)
    for picture in _pictures(copies, all_pictures):
        archive.add(folder / picture)
    for bundle in bundles:
        _add_bundle(archive, base / bundle)


def _note_in_audit(folder: Path, target: Path) -> None:
    """Note the backup in the audit, because it holds secrets of the station."""
    if (folder / STATION).exists():
        with closing(Database(folder)) as database:
            Audit(database).write(User("console", "admin", "console"), "backup", target.name)


def _copy_databases(folder: Path, copies: Path) -> dict[str, Path]:
    """Copy the data bases that there are, that of the line first."""
    found = {}
    for name in DATABASES:
        if not (folder / name).exists():
            continue
        found[name] = copies / name
        address = (folder / name).absolute().as_uri() + "?mode=ro"
        try:
            with (
                closing(sqlite3.connect(address, uri=True, timeout=30.0)) as data,
                closing(sqlite3.connect(found[name])) as copy,
            ):
                data.backup(copy)
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot copy {folder / name}: {error}", hint="check the disk and its free space"
            ) from None
        found[name].chmod(0o600)
    return found


def _pictures(copies: Path, all_pictures: bool) -> Iterator[Path]:
    line, station = (copies / name for name in DATABASES)
    if line.exists():
        yield from map(Path, kept_pictures(line, station, all_pictures=all_pictures))


def _add_bundle(archive: _Archive, path: Path) -> None:
    if not path.exists():
        archive.say(f"there is no {path}: the backup is without it")
        return
    bundle = Bundle.open(path)
    with contextlib.ExitStack() as stack:
        if os.access(path, os.W_OK):  # else nobody changes it
            for name in bundle.products():
                folder = bundle.product_folder(name)
                stack.enter_context(locked(folder, LOCK_SECONDS, archive.say))
        with Directory.open(path) as top:
            names = [name for name in top.files() if not _is_passing(name)]
        for name in names:
            archive.add(path / name)


def _is_passing(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == LOCK or last.startswith(TEMPORARY)


@dataclass
class _Archive:
    """A tar file that is written, and the list of what it holds so far."""

    stream: BinaryIO
    base: Path
    say: Say
    held: dict[str, BackupFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tar = tarfile.open(fileobj=self.stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, path: Path, content: Path | None = None) -> None:
        """Add a file under its path below the base; `content` is where it is read from."""
        name = path.relative_to(self.base).as_posix()
        if name in self.held:
            return
        try:
            opened = open_regular(content or path)
        except FileNotFoundError:  # the retention deleted the picture, or it never was there
            self.say(f"there is no {path}: the backup is without it")
            return
        with opened as file:
            status = os.fstat(file.fileno())
            member = tarfile.TarInfo(name)
            member.size, member.mtime = status.st_size, int(status.st_mtime)
            member.mode = status.st_mode & 0o777
            hashed = _HashedReader(file)
            self._tar.addfile(member, hashed)
        digest = hashed.digest.hexdigest()
        self.held[name] = BackupFile(path=name, size=member.size, sha256=digest, mode=member.mode)

    def close(self, made: BackupList) -> None:
        """Write the list and the end of the archive."""
        data = made.model_dump_json(indent=1).encode()
        member = tarfile.TarInfo(LIST)
        member.size, member.mode = len(data), 0o600
        self._tar.addfile(member, BytesIO(data))
        self._tar.close()


class _HashedReader:
    """Hashes what is read from a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read from the file."""
        data = self._file.read(size)
        self.digest.update(data)
        return data
