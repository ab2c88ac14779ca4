"""Writes a new bundle: it is built beside its place and moved there by one rename."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic_core import to_jsonable_python

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
    parity: ParityReport | Mapping[str, object],
    tools: Mapping[str, str],
    files: Mapping[str, bytes | Path],
    plans: Sequence[Plan] = (),
    overwrite: bool = False,
    prepare: Callable[[Bundle], object] | None = None,
    stage: Staging | None = None,
) -> Bundle:
    """Write a new bundle, and return it opened.

    The bundle is built beside its place and moved there by one rename, so that there is never half
    a bundle. `files` maps names to contents, or to paths of files to move into the bundle where
    they are too large for memory. `prepare` gets the new bundle before it is moved, to add products
    to it. `stage` is the folder to build it in, for callers that have a staging folder already.
    """
    if path.exists() and not overwrite:
        raise _exists(path)
    manifest = Manifest(
        created=now(),
        tools=dict(tools),
        backbone=backbone,
        input=contract,
        parity=to_jsonable_python(  # reports hold tuples, which JSON does not have
            parity.to_json() if isinstance(parity, ParityReport) else dict(parity)
        ),
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
            with _errors_naming(stage.building, path):
                prepare(Bundle.open(stage.building))
        _check_replaceable(path)
        with writing(str(path)):
            try:
                stage.publish(replace=overwrite)
            except FileExistsError:  # another process wrote it first
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
def _errors_naming(building: Path, path: Path) -> Iterator[None]:
    """Let errors name the place that the user gave in place of the one where the bundle is built.

    What was committed in the bundle goes with it when an error removes the staging folder, so the
    hint says that nothing was changed.
    """
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
