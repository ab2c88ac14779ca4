"""Plans are stored where nobody else changes them, and are deleted when they no longer run."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anoco_edge.bundle import InputContract
from anoco_edge.errors import BundleError, StorageError
from anoco_edge.plans import cache
from anoco_edge.plans.tensorrt_builder import BuiltPlan, backbone_profile
from anoco_edge.storage.beneath import TEMPORARY

pytestmark = pytest.mark.usefixtures("empty_cache")
CONTRACT = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
HERE = cache.Fingerprint(version="10.3.0", gpu="Orin", capability="sm87", driver="540.4.0")


def stored(
    content: bytes = b"a plan", here: cache.Fingerprint = HERE, **changes: Any
) -> cache.PlanRecord:
    fields = {"plan_engine": "tensorrt", "version": here.version, "targets": ()}
    built = BuiltPlan(content, seconds=1.23456, peak_memory_mb=99.99, **{**fields, **changes})
    profile = backbone_profile(CONTRACT)
    return cache.store_plan(built, name="tiny", graph="0" * 64, fingerprint=here, profile=profile)


def test_a_plan_is_written_raw_with_its_facts_beside_it() -> None:
    record = stored()
    assert record.path.read_bytes() == b"a plan" == cache.read_plan(record)
    facts = json.loads(record.record_path.read_text())
    assert (facts["size"], facts["seconds"]) == (6, 1.235) and len(facts["sha256"]) == 64
    assert facts["fingerprint"]["driver"] == "540.4.0" and facts["built"].endswith("+00:00")
    assert cache.list_plans() == [record]
    assert cache.find_plan("0" * 64, "tensorrt", HERE) == record
    assert cache.find_plan("1" * 64, "tensorrt", HERE) is None
    assert cache.find_plan("0" * 64, "tensorrt-rtx", HERE) is None


def test_every_part_of_the_key_counts() -> None:
    profile = backbone_profile(CONTRACT)
    base: tuple[Any, ...] = ("a", "tensorrt", HERE, (), profile)
    other = HERE.model_copy
    variants: list[tuple[int, Any]] = [
        *((0, "b"), (0, "a|b"), (1, "tensorrt-rtx"), (3, ("sm86",))),
        *((2, other(update={part: "x"})) for part in ("version", "gpu", "capability", "driver")),
        (4, backbone_profile(CONTRACT, 2)),
    ]
    changed = [(*base[:k], value, *base[k + 1 :]) for k, value in variants]
    keys = [cache.plan_key(*parts) for parts in changed]
    assert len({cache.plan_key(*base), *keys}) == len(variants) + 1
    assert cache.plan_key(*base) == cache.plan_key(*base)


def flip_a_bit(record: cache.PlanRecord) -> None:
    record.path.write_bytes(b"A plan")


def let_the_group_write(record: cache.PlanRecord) -> None:
    record.path.chmod(0o660)


def let_all_write_the_facts(record: cache.PlanRecord) -> None:
    record.record_path.chmod(0o602)


def let_all_write_the_folder(record: cache.PlanRecord) -> None:
    record.path.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (flip_a_bit, "is not the plan that was built here"),
        (let_the_group_write, r"can be written by others, .*chmod go-w"),
        (let_all_write_the_facts, "can be written by others"),
        (let_all_write_the_folder, "can be written by others"),
    ],
)
def test_a_plan_that_others_may_have_written_is_refused(
    attack: Callable[[cache.PlanRecord], None], words: str
) -> None:
    stored()
    attack(cache.list_plans()[0])
    with pytest.raises(BundleError, match=words):
        cache.read_plan(cache.list_plans()[0])


def test_a_plan_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    record = stored()
    if os.geteuid() == 0:
        os.chown(record.path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(BundleError, match="belongs to another user"):
        cache.read_plan(record)


def test_a_umask_that_lets_the_group_write_does_no_harm() -> None:
    before = os.umask(0o002)
    try:
        record = stored()
    finally:
        os.umask(before)
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.path.parent.stat().st_mode) == 0o700
    assert cache.read_plan(record) == b"a plan"


def test_nothing_is_written_into_a_folder_of_others() -> None:
    folder = cache.plans_folder()
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(StorageError, match="can be written by others"):
        stored()
    assert list(folder.iterdir()) == []


def test_a_write_that_fails_leaves_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    stored(b"old")
    real = os.fsync

    def full(handle: int) -> None:
        if "json" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        stored(here=HERE.model_copy(update={"driver": "550"}))
    assert [cache.read_plan(record) for record in cache.list_plans()] == [b"old"]
    assert not list(cache.plans_folder().glob(f"{TEMPORARY}*"))


@pytest.mark.parametrize("step", range(6))
def test_a_plan_built_again_is_the_old_one_or_the_new_one(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails at each step of the second build in turn: content, folder, record, folder."""
    stored(b"old")
    real, calls = os.fsync, itertools.count()

    def failing(handle: int) -> None:
        if next(calls) == step:
            raise OSError(5, "Input/output error")
        real(handle)

    hint = ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        try:
            stored(b"new")
        except StorageError as error:
            hint = error.hint
    plan = [cache.read_plan(record) for record in cache.list_plans()]
    assert plan == [b"old"] if step < 3 else plan == [b"new"]
    said = "nothing was changed" if step < 3 else "the change is committed" if step == 3 else ""
    assert hint.startswith(said) and bool(hint) == bool(said)
    stored(b"newest")
    assert {p.suffix for p in cache.plans_folder().iterdir()} == {".json", ".plan", ""}
    assert len(list(cache.plans_folder().glob("*.plan"))) == 1


def test_facts_that_cannot_be_read_are_no_plan() -> None:
    record = stored()
    facts = record.record_path
    for text in ("", "{}", facts.read_text().replace('"size"', '"sise"')):
        facts.write_text(text)
        assert cache.list_plans() == []
    renamed = facts.with_name("x.json")
    facts.unlink()
    stored().record_path.rename(renamed)
    assert cache.list_plans() == [], "a record speaks of the plan of its own name only"


def test_stale_plans_go_and_others_stay() -> None:
    updated = HERE.model_copy(update={"version": "10.4.0"})
    moved = HERE.model_copy(update={"driver": "550"})
    mine, old = stored(), stored(here=updated)
    elsewhere = stored(here=moved)
    rtx_old = stored(
        here=cache.Fingerprint(version="1.7.0"), plan_engine="tensorrt-rtx", targets=("sm86",)
    )
    rtx_new = stored(
        here=cache.Fingerprint(version="1.7.1"), plan_engine="tensorrt-rtx", targets=("sm86",)
    )
    for fingerprint in (HERE, updated):
        cache.write_timing("tensorrt", fingerprint, b"times")
    orphan = cache.plans_folder() / f"{'f' * 64}.plan"
    orphan.write_bytes(b"its record was never written")

    blind = HERE.model_copy(update={"gpu": "", "capability": "", "driver": ""})
    gone = cache.remove_stale({"tensorrt": blind})
    assert elsewhere in cache.list_plans(), "no GPU in sight is no reason to remove its plans"
    assert old.path in gone and orphan in gone and not orphan.exists()
    assert cache.read_timing("tensorrt", HERE) == b"times"
    cache.remove_stale({"tensorrt": HERE})
    assert set(map(_key, cache.list_plans())) == set(map(_key, (mine, rtx_old, rtx_new)))
    cache.remove_stale({"tensorrt-rtx": cache.Fingerprint.of("1.7.1", None)})
    assert set(map(_key, cache.list_plans())) == set(map(_key, (mine, rtx_new)))
    assert cache.read_timing("tensorrt", updated) == b""
    cache.remove_plan(mine)
    assert cache.list_plans() == [rtx_new] and not mine.path.exists()


def _key(record: cache.PlanRecord) -> str:
    return record.key


def test_a_fifo_in_the_cache_is_refused_and_not_waited_for() -> None:
    record = stored()
    fifo = record.path.with_name("0.json")
    os.mkfifo(fifo, 0o600)
    with pytest.raises(BundleError, match=r"0\.json is not a regular file; remove it"):
        cache.list_plans()
