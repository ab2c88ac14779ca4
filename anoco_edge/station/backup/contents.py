"""What a backup holds: the list at its end, and which files of a station belong to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from anoco_edge.bundle.schema import RelativePath, Sha256
from anoco_edge.errors import StorageError
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.signed_bundles import FOLDER as SIGNING
from anoco_edge.line.store.database import NAME as LINE
from anoco_edge.station.database import NAME as STATION
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.products.archives import bundle_folder
from anoco_edge.station.web.tls import FOLDER as TLS

LIST = "backup.json"
VERSION = 1
DATABASES = (LINE, STATION)


class BackupFile(Model):
    """A file of a backup, by its path below the folder of station.toml."""

    path: RelativePath
    size: int = Field(ge=0)
    sha256: Sha256
    mode: int = Field(ge=0, le=0o777)


class BackupList(Model):
    """The last member of a backup: what it holds. An archive that ends before it is not whole."""

    version: Annotated[int, Field(ge=1)] = VERSION
    made: str
    station: str
    config: RelativePath
    """The name of station.toml."""
    folder: RelativePath
    """The folder of the data bases."""
    all_pictures: bool
    files: list[BackupFile]


def configured_paths(config: StationConfig) -> tuple[list[Path], list[Path]]:
    """Return the files that a configuration names, such as secrets and certificates, and the
    bundles. One that lies elsewhere than below the folder of station.toml is an error."""
    files = sorted(set(_files_in(config.model_dump(mode="json"))))
    bundles = sorted({c.bundle for product in config.products for c in product.captures})
    for path in (*files, *bundles, config.station.folder):
        if path.is_absolute() or ".." in path.parts:
            raise StorageError(
                f"{path} of station.toml lies outside its folder",
                hint="a backup holds what lies below that folder: move it there",
            )
    return files, bundles


def _files_in(values: object) -> Iterator[Path]:
    """Yield the value of each key that ends in `_file`."""
    for name, value in values.items() if isinstance(values, dict) else ():
        if name.endswith("_file") and isinstance(value, str):
            yield Path(value)
        yield from _files_in(value)


def own_files(folder: Path) -> Iterator[Path]:
    """Yield what a station made beside its data bases: keys, certificate, bundles sent to it."""
    for below in (folder / SIGNING, folder / TLS, bundle_folder(folder)):
        for path in sorted(below.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not path.is_symlink() and not hidden:
                yield path


def kept_pictures(line: Path, station: Path, *, all_pictures: bool) -> list[PurePosixPath]:
    """Return the paths of the pictures to keep, of two data bases: pinned ones, or all."""
    with closing(sqlite3.connect(line)) as data:
        query = "SELECT picture FROM capture WHERE picture IS NOT NULL"
        if not all_pictures:
            if not station.exists():
                return []
            data.execute("ATTACH ? AS station", (str(station),))
            query += " AND uid IN (SELECT uid FROM station.pin)"
        found = {PurePosixPath(path) for (path,) in data.execute(query)}
    return sorted(path for path in found if not path.is_absolute() and ".." not in path.parts)
