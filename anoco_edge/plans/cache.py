"""Plans that were built on this machine, in the user's cache.

A plan is executable code: it is loaded only when nobody but its owner can have written it, and
when its hash is the one recorded when it was built. The file itself is raw, so that trtexec loads
it; what is known about it lies in a JSON file beside it, which is written last and so commits it.
A plan that is built again gets another name, so that the record always fits the file it names.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from anoco_edge.bundle.store import now
from anoco_edge.errors import BundleError, StorageError
from anoco_edge.machine import cache_folder
from anoco_edge.plans.device import Device
from anoco_edge.plans.tensorrt_builder import BuiltPlan, Profile, Shape
from anoco_edge.plans.tensorrt_modules import FLAVOURS, Flavour
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.durability import committed
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.storage.locks import LOCK

_PRIVATE = 0o600  # whatever the umask is: Ubuntu's lets the group write
_AGAIN = "build it again with: anoco-edge build BUNDLE --force"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fingerprint(_Model):
    """What a plan is bound to; no GPU is named where one was built for others."""

    version: str
    gpu: str = ""
    capability: str = ""
    driver: str = ""

    @classmethod
    def of(cls, version: str, device: Device | None) -> Fingerprint:
        """Of a module's version and the GPU at hand, if there is one.

        >>> Fingerprint.of("10.3.0", Device("Orin", "sm87", "cuda 12060 540.4.0")).capability
        'sm87'
        """
        if device is None:
            return cls(version=version)
        return cls(
            version=version,
            gpu=device.name,
            capability=device.capability,
            driver=device.driver,
        )


class PlanRecord(_Model):
    """The JSON beside a plan."""

    key: str
    name: str
    flavour: Flavour
    graph: str
    fingerprint: Fingerprint
    targets: tuple[str, ...]
    profile: dict[str, tuple[Shape, Shape, Shape]]
    sha256: str
    size: int
    built: str
    seconds: float
    peak_memory_mb: float

    @property
    def max_batch(self) -> int:
        return max(most[0] for _, _, most in self.profile.values())

    @property
    def path(self) -> Path:
        return plans_folder() / f"{self.key}-{self.sha256[:16]}.plan"

    @property
    def record_path(self) -> Path:
        return plans_folder() / f"{self.key}.json"

    def runs_on(self, flavour: Flavour, here: Fingerprint) -> bool:
        """RTX plans fit every GPU of their targets; the others only where they were built."""
        if flavour != self.flavour or here.version != self.fingerprint.version:
            return False
        if self.targets:
            return here.capability in self.targets
        return self.fingerprint == here


def plans_folder() -> Path:
    """Where plans live.

    >>> plans_folder().name
    'plans'
    """
    return cache_folder() / "plans"


def plan_key(
    graph: str,
    flavour: Flavour,
    fingerprint: Fingerprint,
    targets: tuple[str, ...],
    profile: Profile,
) -> str:
    """The name of a plan: everything that its content depends on."""
    parts = [graph, flavour, fingerprint.model_dump(), targets, sorted(profile.items())]
    return sha256_bytes(json.dumps(parts).encode())


def store_plan(
    built: BuiltPlan,
    *,
    name: str,
    graph: str,
    fingerprint: Fingerprint,
    profile: Profile,
) -> PlanRecord:
    """Write the plan, then its record: a kill in between leaves the plan that was there before."""
    record = PlanRecord(
        key=plan_key(graph, built.flavour, fingerprint, built.targets, profile),
        name=name,
        flavour=built.flavour,
        graph=graph,
        fingerprint=fingerprint,
        targets=built.targets,
        profile=dict(profile),
        sha256=sha256_bytes(built.content),
        size=built.size,
        built=now(),
        seconds=round(built.seconds, 3),
        peak_memory_mb=round(built.peak_memory_mb, 1),
    )
    document = json.dumps(record.model_dump(mode="json"), indent=1) + "\n"
    with _changing() as folder:
        folder.put(record.path.name, built.content, mode=_PRIVATE)
        folder.sync()
        folder.put(record.record_path.name, document.encode(), mode=_PRIVATE)
        with committed():
            folder.sync()
            for name in folder.names():
                if name.startswith(f"{record.key}-") and name != record.path.name:
                    folder.remove(name)
    return record


def stored_plan(key: str) -> PlanRecord | None:
    """The record of a plan by its key."""
    return next((record for record in list_plans() if record.key == key), None)


def find_plan(graph: str, flavour: Flavour, here: Fingerprint) -> PlanRecord | None:
    """The plan of these graph that runs here; of several the one that takes the most pictures."""
    fitting = [r for r in list_plans() if r.graph == graph and r.runs_on(flavour, here)]
    return max(fitting, key=lambda record: (record.max_batch, record.built), default=None)


def read_plan(record: PlanRecord) -> bytes:
    """The plan's content; a changed one, or one that others could change, is refused."""
    content = _read_trusted(record.path)
    if sha256_bytes(content) != record.sha256:
        raise BundleError(
            f"{record.path} is not the plan that was built here: its checksum differs", hint=_AGAIN
        )
    return content


def list_plans() -> list[PlanRecord]:
    """Every plan in the cache, oldest first."""
    records = (_record(path) for path in plans_folder().glob("*.json"))
    found = [r for r in records if r is not None and r.path.is_file()]
    return sorted(found, key=lambda record: (record.built, record.key))


def remove_plan(record: PlanRecord) -> None:
    """Its record first, so that no plan is listed that is not there."""
    with writing(str(plans_folder())):
        record.record_path.unlink(missing_ok=True)
        record.path.unlink(missing_ok=True)


def remove_stale(here: Mapping[Flavour, Fingerprint]) -> list[Path]:
    """Remove what no longer runs: plans of other versions of the modules that are given, those of
    another GPU or driver, and files that belong to no plan. Gives what was removed."""
    keep = {plans_folder() / LOCK}
    for flavour in FLAVOURS:
        known = flavour in here and here[flavour].gpu
        timing = f"timing-{flavour}-*.cache"
        keep |= {_timing_path(flavour, here[flavour])} if known else _glob(timing)
    for record in list_plans():
        if record.flavour not in here or not _is_stale(record, here[record.flavour]):
            keep |= {record.path, record.record_path}
    removed = sorted(path for path in _glob("*") - keep if path.is_file())
    with writing(str(plans_folder())):
        for path in sorted(removed, key=lambda path: path.suffix != ".json"):
            path.unlink()  # a record before its plan
    return removed


def private_folder(name: str) -> Path:
    """A folder in the cache for engines that others write there, which must be the user's alone."""
    folder = plans_folder() / name
    with writing(str(folder)):
        for place in (plans_folder(), folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(place, place.stat())
    for path in folder.iterdir():
        _check_owner(path, path.stat())
    return folder


def read_timing(flavour: Flavour, fingerprint: Fingerprint) -> bytes:
    """What earlier builds measured on this GPU; empty at first."""
    path = _timing_path(flavour, fingerprint)
    return _read_trusted(path) if path.is_file() else b""


def write_timing(flavour: Flavour, fingerprint: Fingerprint, content: bytes) -> None:
    """Keep what this build measured for the next one."""
    if content:
        with _changing() as folder:
            folder.put(_timing_path(flavour, fingerprint).name, content, mode=_PRIVATE)
            with committed():
                folder.sync()


def _timing_path(flavour: Flavour, fingerprint: Fingerprint) -> Path:
    digest = sha256_bytes(json.dumps(fingerprint.model_dump()).encode())
    return plans_folder() / f"timing-{flavour}-{digest[:16]}.cache"


def _is_stale(record: PlanRecord, here: Fingerprint) -> bool:
    if record.fingerprint.version != here.version:
        return True
    # A plan for other GPUs was made to be copied there; that it does not run here is no fault.
    # And a GPU that cannot be seen now says nothing about plans for it.
    return not record.targets and here.gpu != "" and record.fingerprint != here


def _glob(pattern: str) -> set[Path]:
    return set(plans_folder().glob(pattern))


def _record(path: Path) -> PlanRecord | None:
    """A record, or None for a file that is none: it is as good as not there."""
    raw = _read_trusted(path)
    try:
        record = PlanRecord.model_validate_json(raw)
    except ValidationError:
        return None
    return record if record.key == path.stem else None


@contextmanager
def _changing() -> Iterator[Directory]:
    """The folder of plans, opened to be changed by this process alone.

    Half-written files of processes that were killed are removed: nobody else writes meanwhile.
    """
    place = plans_folder()
    with writing(str(place)):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _check_owner(place, place.stat())
        except BundleError as error:
            raise StorageError(error.what, hint=error.hint) from None
        with Directory.open(place) as folder:
            lock = folder.open_lock(LOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for name in folder.names():
                    if name.startswith(TEMPORARY):
                        folder.remove(name)
                yield folder
            finally:
                os.close(lock)


def _read_trusted(path: Path) -> bytes:
    """The content of a file that nobody else can have written."""
    try:
        _check_owner(path.parent, path.parent.stat())
        # A FIFO would keep the opening waiting for a writer.
        with open(path, "rb", opener=_open_at_once) as stream:
            status = os.fstat(stream.fileno())
            _check_owner(path, status)
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(f"{path} is not a regular file", hint=f"remove it, then {_AGAIN}")
            return stream.read()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", hint=_AGAIN) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise BundleError(
            f"{path} belongs to another user, and a plan is executable code",
            hint=f"remove it, then {_AGAIN}",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BundleError(
            f"{path} can be written by others, and a plan is executable code",
            hint=f"chmod go-w {path}; then {_AGAIN}",
        )
