"""Writing a new bundle: whole, with what is taught to it at once, in its place by one rename."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anoco_edge.bundle.documents import sealed_document
from anoco_edge.bundle.parity_report import ParityReport
from anoco_edge.bundle.schema import Backbone, FileRecord, Manifest, Plan
from anoco_edge.bundle.store import Bundle, now
from anoco_edge.errors import AnocoError, StorageError, UsageError
from anoco_edge.images.contract import InputContract
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.durability import NOT_DURABLE
from anoco_edge.storage.hashes import sha256_bytes, sha256_file
from anoco_edge.storage.staging import Staging, staging


def create_bundle(
    path: Path,
    *,
    backbone: Backbone,
    contract: InputContract,
    parity: ParityReport | Mapping[str, Any],
    tools: Mapping[str, str],
    files: Mapping[str, bytes | Path],
    plans: Sequence[Plan] = (),
    overwrite: bool = False,
    prepare: Callable[[Bundle], object] | None = None,
    stage: Staging | None = None,
) -> Bundle:
    """Write a new bundle: built beside its place, moved there by one rename.

    `files` are contents, or paths of files to move in: those too large to hold in memory.
    `prepare` is given the new bundle before it is moved, to teach it products. `stage` is where it
    is built, for callers that have a staging folder already.
    """
    if path.exists() and not overwrite:
        raise _exists(path)
    manifest = Manifest(
        created=now(),
        tools=dict(tools),
        backbone=backbone,
        input=contract,
        parity=parity.to_json() if isinstance(parity, ParityReport) else dict(parity),
        files=tuple(_record(name, data) for name, data in sorted(files.items())),
        plans=tuple(plans),
    )
    contents = {**files, "manifest.json": sealed_document(manifest)}
    with contextlib.ExitStack() as stack:
        with writing(str(path)):
            stage = stage or stack.enter_context(staging(path))
            for name, data in contents.items():
                _write_durably(stage.building / name, data)
        if prepare is not None:
            with _named_as(stage.building, path):
                prepare(Bundle.open(stage.building))
        _check_replaceable(path)
        with writing(str(path)):
            try:
                stage.publish(replace=overwrite)
            except FileExistsError:  # another process was quicker
                raise _exists(path) from None
    return Bundle.open(path)


def _exists(path: Path) -> UsageError:
    return UsageError(
        f"{path} exists already", hint="choose another place, or pass `overwrite=True`"
    )


def _write_durably(target: Path, data: bytes | Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, Path):
        shutil.move(data, target)
    with target.open("ab") as stream:
        if isinstance(data, bytes):
            stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _named_as(building: Path, path: Path) -> Iterator[None]:
    """Errors name the place that the user gave, not the one where the bundle is built; and what was
    committed there is gone with it."""
    try:
        yield
    except AnocoError as error:
        error.what = error.what.replace(str(building), str(path))
        error.hint = error.hint.replace(str(building), str(path))
        error.hint = error.hint.replace(NOT_DURABLE, "nothing was changed")
        error.args = (f"{error.what}; {error.hint}" if error.hint else error.what,)
        raise


def _check_replaceable(path: Path) -> None:
    if path.is_dir() and not (path / "manifest.json").exists() and any(path.iterdir()):
        raise StorageError(
            f"{path} is not a bundle, so it is not overwritten", hint="choose another place"
        )


def _record(name: str, data: bytes | Path) -> FileRecord:
    if isinstance(data, bytes):
        return FileRecord(path=name, sha256=sha256_bytes(data), size=len(data))
    return FileRecord(path=name, sha256=sha256_file(data), size=data.stat().st_size)
