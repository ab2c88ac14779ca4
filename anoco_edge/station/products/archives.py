"""A bundle that comes as an archive: unpacked so that nothing can escape from its folder.

Zip and tar (also gzip, bzip2, xz) are read. Every member must be a plain file or a folder with a
relative name; links, devices, `..`, absolute names and names that come twice refuse the whole
archive. Bytes are counted while they are unpacked, because a header can lie. What was unpacked is
then opened and verified as a bundle, hash by hash, before it takes its place by one rename.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.store import SUFFIX
from anoco_edge.errors import BundleError, StorageError
from anoco_edge.line.signed_bundles import BundleTrust
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.staging import staging

MOST_BYTES = 4_000_000_000
MOST_FILES = 20_000
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)
_HINT = "make the archive from the folder of one bundle"
_PIECE = 1 << 20
Member = tuple[str, IO[bytes] | None]
"""A member's name, and its content; None for a folder."""


def bundle_folder(folder: Path) -> Path:
    """Return where a station keeps the bundles that were sent to it."""
    return folder / "bundles"


def unpack_bundle(
    archive: Path,
    target: Path,
    *,
    most_bytes: int = MOST_BYTES,
    trust: BundleTrust | None = None,
) -> Bundle:
    """Unpack an archive that holds one bundle to `target`, which must not exist, and verify it.

    With `trust`, an accepted key must have signed it.

    >>> unpack_bundle(Path("/dev/null"), Path("new.anoco"))
    Traceback (most recent call last):
    anoco_edge.errors.BundleError: /dev/null is neither a zip nor a tar archive; make ...
    """
    if target.exists():
        raise StorageError(f"{target} exists already", hint="give the bundle another name")
    with writing(str(target)), staging(target) as stage:
        stage.building.mkdir()
        unpack(archive, stage.building, most_bytes=most_bytes, most_files=MOST_FILES)
        _lift_single_folder(stage.building)
        for _ in Bundle.open(stage.building).verify():
            pass
        if trust is not None:
            trust.check_new(stage.building, name=target.name)
        stage.publish(replace=False)
    return Bundle.open(target)


def unpack(
    archive: Path, folder: Path, *, most_bytes: int, most_files: int, hint: str = _HINT
) -> None:
    """Unpack an archive into a folder that exists, so that nothing escapes from it. `hint` says in
    errors what to do."""
    try:
        _unpack(archive, folder, most_bytes, most_files)
    except BundleError as error:
        raise BundleError(error.what, hint=hint) from None
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BundleError(f"{archive.name} is damaged: {error}", hint=hint) from None


def _unpack(archive: Path, folder: Path, most_bytes: int, most_files: int) -> None:
    left, seen = most_bytes, set[str]()
    for name, content in _members(archive):
        pure = PurePosixPath(name)
        if content is None and not pure.parts:
            continue  # the folder itself
        hostile = pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name
        if hostile or not pure.parts or not name.isprintable():
            raise BundleError(f"{archive.name} holds a file {name!r} that leads out", hint=_HINT)
        path = folder.joinpath(*pure.parts)
        if str(path) in seen:
            raise BundleError(f"{archive.name} holds {name!r} twice", hint=_HINT)
        seen.add(str(path))
        if len(seen) > most_files:
            raise BundleError(f"{archive.name} holds over {most_files} files", hint=_HINT)
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with content, path.open("xb") as target:
            left = _copy(content, target, left, archive.name)
            target.flush()
            os.fsync(target.fileno())


def _copy(source: IO[bytes], target: IO[bytes], left: int, name: str) -> int:
    while piece := source.read(_PIECE):
        left -= len(piece)
        if left < 0:
            raise BundleError(f"{name} unpacks to more than is allowed", hint=_HINT)
        target.write(piece)
    return left


def _members(archive: Path) -> Iterator[Member]:
    if archive.is_file() and zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    elif archive.is_file() and tarfile.is_tarfile(archive):
        yield from _tar_members(archive)
    else:
        raise BundleError(f"{archive} is neither a zip nor a tar archive", hint=_HINT)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _no_file(archive, member.filename)
            if member.flag_bits & 1:
                raise BundleError(f"{archive.name} is encrypted", hint=_HINT)
            yield member.filename, None if member.is_dir() else opened.open(member)


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isdir():
                yield member.name, None
                continue
            content = opened.extractfile(member) if member.type in tarfile.REGULAR_TYPES else None
            if content is None:
                raise _no_file(archive, member.name)
            yield member.name, content


def _no_file(archive: Path, name: str) -> BundleError:
    return BundleError(f"{archive.name} holds {name!r}, which is a link or a device", hint=_HINT)


def _lift_single_folder(folder: Path) -> None:
    """Where the archive holds the bundle's own folder, move its content up."""
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir() or (folder / "manifest.json").exists():
        return
    aside = folder.with_name(f"{folder.name.removesuffix(SUFFIX)}-outer")
    folder.rename(aside)
    (aside / inside[0].name).rename(folder)
    shutil.rmtree(aside)
