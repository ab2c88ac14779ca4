"""Plans that were built on this machine, in the user's cache.

A plan is executable code. It is loaded only when nobody but its owner can have written it, and when
its hash is the one that was recorded when it was built. The file itself is raw, so that trtexec
loads it. A JSON file beside it holds what is known about it; that file is written last and so
commits the plan. A plan that is built again gets another name, so that the record always fits the
file that it names.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anoco_edge.bundle.store import now
from anoco_edge.errors import BundleError, StorageError
from anoco_edge.machine import cache_folder
from anoco_edge.plans.device import Device
from anoco_edge.plans.tensorrt_builder import BuiltPlan, Profile, Shape
from anoco_edge.plans.tensorrt_modules import PLAN_ENGINES, PlanEngine
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.beneath import TEMPORARY, Directory
from anoco_edge.storage.durability import committed
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.storage.locks import LOCK

_PRIVATE = 0o600  # whatever the umask is, because Ubuntu's lets the group write
_BUILD_AGAIN = "build it again: anoco-edge build BUNDLE, with `force=True`"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Fingerprint(_Model):
    """What a plan is bound to. No GPU is named if the plan was built for other machines.

    `gpu` is the name of a GPU and its size (`Device.label`).
    """

    version: str
    gpu: str = ""
    capability: str = ""
    driver: str = ""

    @classmethod
    def of(cls, version: str, device: Device | None) -> Fingerprint:
        """Combine a module's version with the GPU of this machine, if there is one.

        >>> Fingerprint.of("10.3.0", Device("Orin", "sm87", "cuda 12060 540.4.0")).capability
        'sm87'
        """
        if device is None:
            return cls(version=version)
        return cls(
            version=version,
            gpu=device.label,
            capability=device.capability,
            driver=device.driver,
        )


class SecondChoice(_Model):
    """A document that says why the plans of a graph are built with FP32 logits on this machine.

    It holds for one version of TensorRT on one GPU: another version is tried as the graph is.
    """

    graph: str
    plan_engine: PlanEngine
    fingerprint: Fingerprint
    why: str
    decided: str

    @property
    def path(self) -> Path:
        return _second_choice_path(self.graph, self.plan_engine, self.fingerprint)


class PlanRecord(_Model):
    """The JSON document beside a plan."""

    key: str
    name: str
    plan_engine: PlanEngine = Field(alias="flavour")  # the name of the key on disk
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
        """How many pictures it takes at once."""
        return max(most[0] for _, _, most in self.profile.values())

    @property
    def path(self) -> Path:
        return plans_folder() / f"{self.key}-{self.sha256[:16]}.plan"

    @property
    def record_path(self) -> Path:
        return plans_folder() / f"{self.key}.json"

    def runs_on(self, plan_engine: PlanEngine, here: Fingerprint) -> bool:
        """Whether the plan runs here: on a GPU of its targets, else only where it was built."""
        if plan_engine != self.plan_engine or here.version != self.fingerprint.version:
            return False
        if self.targets:
            return here.capability in self.targets
        return self.fingerprint == here


def plans_folder() -> Path:
    """The folder that holds all plans.

    >>> plans_folder().name
    'plans'
    """
    return cache_folder() / "plans"


def plan_key(
    graph: str,
    plan_engine: PlanEngine,
    fingerprint: Fingerprint,
    targets: tuple[str, ...],
    profile: Profile,
) -> str:
    """Derive the name of a plan from everything that its content depends on."""
    parts = [graph, plan_engine, fingerprint.model_dump(), targets, sorted(profile.items())]
    return sha256_bytes(json.dumps(parts).encode())


def store_plan(
    built: BuiltPlan,
    *,
    name: str,
    graph: str,
    fingerprint: Fingerprint,
    profile: Profile,
) -> PlanRecord:
    """Write the plan, then its record; a kill in between leaves the plan that was there before."""
    record = PlanRecord(
        key=plan_key(graph, built.plan_engine, fingerprint, built.targets, profile),
        name=name,
        plan_engine=built.plan_engine,
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
    document = json.dumps(record.model_dump(mode="json", by_alias=True), indent=1) + "\n"
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
    """Find the record of a plan by its key."""
    return next((record for record in list_plans() if record.key == key), None)


def find_plan(graph: str, plan_engine: PlanEngine, here: Fingerprint) -> PlanRecord | None:
    """Find the plan of a graph that runs here; of several, the one that takes the most pictures."""
    fitting = [r for r in list_plans() if r.graph == graph and r.runs_on(plan_engine, here)]
    return max(fitting, key=lambda record: (record.max_batch, record.built), default=None)


def find_nameless_plan(graph: str, plan_engine: PlanEngine, here: Fingerprint) -> PlanRecord | None:
    """Find a plan that would run here, but does not record the size of its GPU, as older ones."""
    name, _, _ = here.gpu.partition(" (")
    older = here.model_copy(update={"gpu": name})
    return None if older == here else find_plan(graph, plan_engine, older)


def read_plan(record: PlanRecord) -> bytes:
    """Read a plan; one that was changed, or that others could have changed, is refused."""
    content = _read_trusted(record.path)
    if sha256_bytes(content) != record.sha256:
        raise BundleError(
            f"{record.path} is not the plan that was built here: its checksum differs",
            hint=_BUILD_AGAIN,
        )
    return content


def list_plans() -> list[PlanRecord]:
    """List every plan in the cache, the oldest first."""
    records = (_record(path) for path in plans_folder().glob("*.json"))
    found = [r for r in records if r is not None and r.path.is_file()]
    return sorted(found, key=lambda record: (record.built, record.key))


def remove_plan(record: PlanRecord) -> None:
    """Remove a plan, its record first, so that no plan is listed that is not there."""
    with writing(str(plans_folder())):
        record.record_path.unlink(missing_ok=True)
        record.path.unlink(missing_ok=True)


def remember_fp32_logits(
    graph: str, plan_engine: PlanEngine, fingerprint: Fingerprint, why: str
) -> None:
    """Note that the plans of a graph are to have FP32 logits here, and why."""
    choice = SecondChoice(
        graph=graph, plan_engine=plan_engine, fingerprint=fingerprint, why=why, decided=now()
    )
    with _changing() as folder:
        folder.put(choice.path.name, choice.model_dump_json(indent=1).encode(), mode=_PRIVATE)
        with committed():
            folder.sync()


def why_fp32_logits(graph: str, plan_engine: PlanEngine, fingerprint: Fingerprint) -> str:
    """Return why the plans of a graph have FP32 logits here; empty where they are as exported."""
    choice = _second_choice(_second_choice_path(graph, plan_engine, fingerprint))
    return "" if choice is None else choice.why


def forget_fp32_logits(graph: str, plan_engine: PlanEngine, fingerprint: Fingerprint) -> None:
    """Let the next build try the graph as it is."""
    with writing(str(plans_folder())):
        _second_choice_path(graph, plan_engine, fingerprint).unlink(missing_ok=True)


def remove_stale(here: Mapping[PlanEngine, Fingerprint]) -> list[Path]:
    """Remove what no longer runs, and return the paths.

    These are plans of other versions of the modules in `here`, plans of another GPU or driver, and
    files that belong to no plan.
    """
    keep = {plans_folder() / LOCK}
    for plan_engine in PLAN_ENGINES:
        known = plan_engine in here and here[plan_engine].gpu
        timing = f"timing-{plan_engine}-*.cache"
        keep |= {_timing_path(plan_engine, here[plan_engine])} if known else _glob(timing)
    for record in list_plans():
        if record.plan_engine not in here or not _is_stale(record, here):
            keep |= {record.path, record.record_path}
    for path in _glob("*.logits"):
        choice = _second_choice(path)
        if choice and not (choice.plan_engine in here and _is_stale(choice, here)):
            keep.add(path)
    removed = sorted(path for path in _glob("*") - keep if path.is_file())
    with writing(str(plans_folder())):
        for path in sorted(removed, key=lambda path: path.suffix != ".json"):
            path.unlink()  # a record goes before its plan
    return removed


def private_folder(name: str) -> Path:
    """Make a folder in the cache that only the user can write, for plans that a library keeps."""
    folder = plans_folder() / name
    with writing(str(folder)):
        for place in (plans_folder(), folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(place, place.stat())
    for path in folder.iterdir():
        _check_owner(path, path.stat())
    return folder


def read_timing(plan_engine: PlanEngine, fingerprint: Fingerprint) -> bytes:
    """Read what earlier builds measured on this GPU; empty before the first."""
    path = _timing_path(plan_engine, fingerprint)
    return _read_trusted(path) if path.is_file() else b""


def write_timing(plan_engine: PlanEngine, fingerprint: Fingerprint, content: bytes) -> None:
    """Keep what this build measured for the next one."""
    if content:
        with _changing() as folder:
            folder.put(_timing_path(plan_engine, fingerprint).name, content, mode=_PRIVATE)
            with committed():
                folder.sync()


def _timing_path(plan_engine: PlanEngine, fingerprint: Fingerprint) -> Path:
    digest = sha256_bytes(json.dumps(fingerprint.model_dump()).encode())
    return plans_folder() / f"timing-{plan_engine}-{digest[:16]}.cache"


def _is_stale(record: PlanRecord | SecondChoice, machine: Mapping[PlanEngine, Fingerprint]) -> bool:
    here, made_for = machine[record.plan_engine], record.fingerprint
    if made_for.version != here.version:
        return True
    # A plan for other GPUs names none: it was made to be copied, so it need not run here. And a GPU
    # that cannot be seen now says nothing about plans for it.
    return made_for.gpu != "" and here.gpu != "" and made_for != here


def _second_choice_path(graph: str, plan_engine: PlanEngine, fingerprint: Fingerprint) -> Path:
    digest = sha256_bytes(json.dumps([graph, plan_engine, fingerprint.model_dump()]).encode())
    return plans_folder() / f"{digest[:32]}.logits"


def _second_choice(path: Path) -> SecondChoice | None:
    if not path.is_file():
        return None
    try:
        return SecondChoice.model_validate_json(_read_trusted(path))
    except ValidationError:
        return None


def _glob(pattern: str) -> set[Path]:
    return set(plans_folder().glob(pattern))


def _record(path: Path) -> PlanRecord | None:
    """Read a record; None for a file that is not one, which counts as if it were not there."""
    raw = _read_trusted(path)
    try:
        record = PlanRecord.model_validate_json(raw)
    except ValidationError:
        return None
    return record if record.key == path.stem else None


@contextmanager
def _changing() -> Iterator[Directory]:
    """Open the folder of plans so that this process alone changes it.

    Half-written files of processes that were killed are removed, because nobody else writes now.
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
    """Read a file that nobody else can have written."""
    try:
        _check_owner(path.parent, path.parent.stat())
        # Opening a FIFO would wait for a writer.
        with open(path, "rb", opener=_open_at_once) as stream:
            status = os.fstat(stream.fileno())
            _check_owner(path, status)
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(
                    f"{path} is not a regular file", hint=f"remove it, then {_BUILD_AGAIN}"
                )
            return stream.read()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", hint=_BUILD_AGAIN) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise BundleError(
            f"{path} belongs to another user, and a plan is executable code",
            hint=f"remove it, then {_BUILD_AGAIN}",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BundleError(
            f"{path} can be written by others, and a plan is executable code",
            hint=f"chmod go-w {path}; then {_BUILD_AGAIN}",
        )
