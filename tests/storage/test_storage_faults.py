"""After concurrent writers, kills, full disks or read-only places, a bundle is old or new.

The faults are real: other processes, SIGKILL, RLIMIT_FSIZE, a tiny tmpfs, dropped capabilities.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import PATIENCE
from other_process import commit_and_die, finish, powerless, run_apart, snapshot
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import prune, undo
from anoco_edge.bundle.store import product_files
from anoco_edge.detector import Detector
from anoco_edge.errors import StorageError
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.storage.beneath import TEMPORARY
from anoco_edge.storage.locks import LOCK, locked
from anoco_edge.teaching import NewPicture, Settings, Teacher

__all__ = ["powerless"]  # the fixture is shared, and pytest finds it by this name

_PRELUDE = """
from tiny_bundle import textured_picture
from anoco_edge.detector import Detector
from anoco_edge.teaching import NewPicture, Settings, Teacher

def enroll(path, *seeds, size=(96, 80)):
    pictures = [NewPicture.from_array(f"frame{s}", textured_picture(s, *size)) for s in seeds]
    return Teacher.open(path).enroll(pictures, "part")
"""
child = partial(run_apart, _PRELUDE)


def frames(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"frame{s}", textured_picture(s)) for s in seeds]


@pytest.fixture
def enrolled(tiny_bundle: Bundle) -> Path:
    """Write generation 1 of `part` with two references."""
    Teacher.open(tiny_bundle.path).enroll(frames(1, 2), "part")
    return tiny_bundle.path


def assert_whole(path: Path) -> list[str]:
    """Check that the bundle verifies and inspects, and return the names of its references."""
    bundle = Bundle.open(path)
    list(bundle.verify())
    product = bundle.product("part")
    bank = bundle.bank(product)
    assert sorted(set(bank.reference.tolist())) == list(range(len(product.references)))
    result = Detector.open(path, "part").inspect(textured_picture(1))
    assert result.score < 1e-9, "frame1 is a reference in every state"
    return [r.name for r in product.references]


# ---- two at once


def test_two_processes_enrol_at_once_and_nothing_is_lost(enrolled: Path) -> None:
    body = """
    for seed in range({first}, {first} + 6):
        enroll(path, seed)
    """
    both = [child(body.format(first=first), enrolled) for first in (100, 200)]
    for process in both:
        code, _, err = finish(process)
        assert code == 0, err
    expected = {f"frame{s}" for s in (1, 2, *range(100, 106), *range(200, 206))}
    assert set(assert_whole(enrolled)) == expected
    bundle = Bundle.open(enrolled)
    history = bundle.generations("part")
    assert [g.generation for g in history] == list(range(1, 14))
    assert [g.parent for g in history] == [None, *range(1, 13)]
    # They really took turns; otherwise this would test nothing.
    order = [next(n for n in new if n not in old) for old, new in _pairs(history)]
    assert any(a[5] != b[5] for a, b in itertools.pairwise(order)), order
    assert bundle.strangers() == []


def _pairs(history: list[Product]) -> list[tuple[list[str], list[str]]]:
    references = [[r.name for r in g.references] for g in history]
    return list(itertools.pairwise(references))


def test_the_same_picture_from_two_processes_is_there_once(enrolled: Path) -> None:
    both = [child("enroll(path, 50)", enrolled) for _ in range(2)]
    outcomes = sorted(finish(process) for process in both)
    assert [code for code, _, _ in outcomes] == [0, 1]
    assert "PictureError: nothing new: frame50 (same as frame50)" in outcomes[1][2]
    assert assert_whole(enrolled) == ["frame1", "frame2", "frame50"]


def test_a_lock_that_does_not_come_free_is_an_error_after_the_wait(enrolled: Path) -> None:
    told: list[str] = []
    folder = Bundle.open(enrolled).product_folder("part")
    before = snapshot(enrolled)
    with locked(folder, 1, told.append):
        start = time.monotonic()
        with pytest.raises(StorageError, match="another process is changing") as caught:
            Teacher.open(enrolled, wait=0.3, on_wait=told.append).enroll(frames(3), "part")
        assert 0.3 <= time.monotonic() - start < 5
    assert caught.value.hint == "try again when it is done"
    assert told == ["waiting for another process that is changing part"]
    assert snapshot(enrolled) == before
    # The lock is free again, and another product was never locked.
    Teacher.open(enrolled, wait=0).enroll(frames(3), "part")


def test_a_file_system_without_locks_is_one_clear_error(
    enrolled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    teacher = Teacher.open(enrolled)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StorageError, match=r"cannot lock .*No locks available; copy the bundle"):
        teacher.enroll(frames(3), "part")


def test_other_products_are_not_locked(enrolled: Path) -> None:
    with locked(Bundle.open(enrolled).product_folder("part"), 1, print):
        assert Teacher.open(enrolled, wait=0).enroll(frames(3), "nut").product.generation == 1
        Detector.open(enrolled, "part").inspect(textured_picture(1))


def test_a_lock_falls_with_the_process_that_held_it(enrolled: Path) -> None:
    holder = child(
        """
        from pathlib import Path
        from anoco_edge.storage.locks import locked
        with locked(Path(path) / "products/part", 0, print):
            print("held", flush=True)
            time.sleep(60)
        """,
        enrolled,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    try:
        with (
            pytest.raises(StorageError, match="another process"),
            locked(enrolled / "products/part", 0, lambda _: None),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(enrolled / "products/part", 0, print):
        handle = os.open(enrolled / "products/part" / LOCK, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


# ---- kill -9

_ENROL_FOR_EVER = """
teacher = Teacher.open(path)
for seed in range({first}, {first} + 1000, 2):
    pictures = [NewPicture.from_array(f"frame{{s}}", textured_picture(s)) for s in (seed, seed + 1)]
    print("go", flush=True)
    start = time.perf_counter()
    teacher.enroll(pictures, "part")
    print(time.perf_counter() - start, flush=True)
    teacher.remove([p.name for p in pictures], "part")
"""


@pytest.mark.full
def test_kill_at_ten_random_moments_leaves_the_old_or_the_new_state(enrolled: Path) -> None:
    """The moments are spread over the time that this process just took to enroll.

    The next test shows that no step of a commit is left out.
    """
    rng = np.random.default_rng(3)
    states = []
    for k, moment in enumerate(rng.permutation((np.arange(10) + rng.uniform(size=10)) / 8)):
        before = assert_whole(enrolled)
        process = child(_ENROL_FOR_EVER.format(first=10_000 * (k + 1)), enrolled)
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        duration = float(process.stdout.readline())
        assert process.stdout.readline() == "go\n"
        time.sleep(moment * duration)
        process.kill()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        after = assert_whole(enrolled)
        # The two appear together, never one alone, and no other is lost.
        assert after[: len(before)] == before
        added = len(after) - len(before)
        assert added in (0, 2)
        states.append(f"{moment:.2f} of {duration * 1000:.0f} ms: {added} added")
        Teacher.open(enrolled).enroll(frames(100 + k), "part")
        assert assert_whole(enrolled) == [*after, f"frame{100 + k}"]
    print("\n".join(sorted(states)))


def test_a_kill_at_every_step_of_a_commit_leaves_a_whole_bundle(
    enrolled: Path, tmp_path: Path
) -> None:
    """The process dies before and after each rename, so that no step is left out."""
    after = Path(shutil.copytree(enrolled, tmp_path / "after.anoco"))
    product = Teacher.open(after).enroll(frames(7, 8), "part").product
    records = [
        r for r in product_files(product) if not (enrolled / "products/part" / r.path).exists()
    ]
    files = {r.path: (after / "products/part" / r.path).read_bytes() for r in records}
    assert [Path(name).parent.name or name for name in files] == [
        "references",
        "references",
        "bank-2.safetensors",
    ]
    outcomes = []
    for step in range(6):
        for when in ("before", "after"):
            copy = Path(shutil.copytree(enrolled, tmp_path / f"{step}-{when}.anoco"))
            status = commit_and_die(Bundle.open(copy), product, files, step, when)
            names = assert_whole(copy)
            assert names in (["frame1", "frame2"], ["frame1", "frame2", "frame7", "frame8"])
            outcomes.append((os.waitstatus_to_exitcode(status), len(names)))
            half_written = list(copy.rglob(f"{TEMPORARY}*"))
            assert len(half_written) == (when == "before" and step < 5)
            Teacher.open(copy).enroll(frames(9), "part")
            assert "frame9" in assert_whole(copy)
            assert not list(copy.rglob(f"{TEMPORARY}*")), "the next change sweeps what was left"
    # The order is two pictures, bank, history, commit; only after the commit's rename it is the new
    # state.
    killed = -signal.SIGKILL
    assert outcomes == [(killed, 2)] * 9 + [(killed, 4)] + [(0, 4)] * 2


# ---- a power cut


class Disk:
    """Tracks folders with entries that a power cut would lose, and what depends on them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unsynced: set[str] = set()
        self.steps: list[str] = []
        self._real = {name: getattr(os, name) for name in ("replace", "mkdir", "unlink", "fsync")}
        for name in self._real:
            patch.setattr(os, name, getattr(self, name))

    def replace(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        # All files that a generation or a commit names must be there.
        if target.startswith("product"):
            assert not self.unsynced, f"{target} relies on {self.unsynced}"
        self._real["replace"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._changed(dst_dir_fd, target)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int) -> None:
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        self._changed(dir_fd, path)

    def unlink(self, path: str, *, dir_fd: int) -> None:
        self._real["unlink"](path, dir_fd=dir_fd)
        if not path.startswith(TEMPORARY):
            others = self.unsynced - {_path_of(dir_fd)}
            assert not {f for f in others if f.endswith("history")}, path
            self._changed(dir_fd, f"-{path}")

    def fsync(self, handle: int) -> None:
        self._real["fsync"](handle)
        self.unsynced.discard(_path_of(handle))

    def _changed(self, folder: int, name: str) -> None:
        self.unsynced.add(_path_of(folder))
        self.steps.append(name)


def _path_of(handle: int) -> str:
    return str(Path(f"/proc/self/fd/{handle}").readlink())


def test_each_step_is_on_the_disk_before_the_next_relies_on_it(
    tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = Teacher.open(tiny_bundle.path)
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        teacher.enroll(frames(1, 2), "part")
        steps = [step for step in disk.steps if not step.endswith(".png")]
        wanted = ["products", "part", "references", "bank-1.safetensors", "product.json"]
        assert steps == [*wanted, "history", "product-1.json"] and not disk.unsynced
        teacher.enroll(frames(3), "part")
        assert disk.steps[-3:] == ["bank-2.safetensors", "product-2.json", "product.json"]
        assert not disk.unsynced
        with locked(tiny_bundle.product_folder("part"), 0, print):
            undo(tiny_bundle, "part")
            assert disk.steps[-1] == "product.json" and not disk.unsynced
            assert prune(tiny_bundle, "part")  # a picture that reappears is deleted later
        assert disk.steps[-3] == "-product-2.json"
    list(tiny_bundle.verify())


def test_a_folder_that_a_killed_process_made_is_synced_too(
    tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown whether the folder reached the disk."""
    (tiny_bundle.path / "products/part/references").mkdir(parents=True)
    teacher = Teacher.open(tiny_bundle.path)
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        disk.unsynced = {str(tiny_bundle.path / f) for f in ("", "products", "products/part")}
        teacher.enroll(frames(1, 2), "part")
        assert not disk.unsynced


# ---- a full disk


def file_limit(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_file_size_limit_at_any_point_changes_nothing(enrolled: Path) -> None:
    before = snapshot(enrolled)
    product = Bundle.open(enrolled).product("part")
    assert product.bank is not None
    bank, picture = product.bank.size, product.references[0].file.size
    # The disk is full at the first byte, within a picture, and within product.json, which is last.
    document = len(before["products/part/product.json"])
    assert document < bank * 2 < picture
    for limit in (0, document, picture - 2000):
        code, out, err = finish(child("enroll(path, 7, 8)", enrolled, before=file_limit(limit)))
        assert code == 1 and out == ""
        assert err.startswith("StorageError: cannot write ") and err.count("\n") == 1
        assert "File too large" in err and "nothing was changed" in err
        assert snapshot(enrolled) == before, limit
    code, _, err = finish(child("enroll(path, 7, 8)", enrolled, before=file_limit(1 << 20)))
    assert code == 0, err
    assert len(assert_whole(enrolled)) == 4


def test_a_first_enrolment_that_fails_leaves_no_product(tiny_bundle: Bundle) -> None:
    before = snapshot(tiny_bundle.path)
    code, _, err = finish(child("enroll(path, 7)", tiny_bundle.path, before=file_limit(600)))
    assert code == 1 and err.startswith("StorageError")
    assert snapshot(tiny_bundle.path) == before
    assert tiny_bundle.products() == [] and tiny_bundle.strangers() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return `small_disk(kilobytes)`, which mounts a tmpfs of that size, or skip the test."""
    mounted: list[Path] = []

    def mount(kilobytes: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a tmpfs is not permitted here (RLIMIT_FSIZE is tested instead)")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_at_any_point_changes_nothing(
    small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    source = make_tiny_bundle(tmp_path / "tiny.anoco").path
    Teacher.open(source).enroll(frames(1, 2), "part")
    disk = small_disk(512)
    path = Path(shutil.copytree(source, disk / "tiny.anoco"))
    before = snapshot(path)
    filler = disk / "filler"
    failed = 0
    for free_pages in range(0, 24, 3):
        page = 4096
        space = shutil.disk_usage(disk)
        filler.write_bytes(bytes(space.free - free_pages * page))
        try:
            Teacher.open(path).enroll(frames(7, 8), "part")
        except StorageError as error:
            failed += 1
            assert "No space left on device" in str(error) and "the disk is full" in error.hint
            filler.unlink()
            assert snapshot(path) == before, free_pages
        else:
            filler.unlink()
            assert len(assert_whole(path)) == 4
            break
    assert failed >= 4, "the disk was never full"
    assert len(assert_whole(path)) == 4, "it never fitted"


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "product.json"
    write_atomic(target, b"old")

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="cannot write it: Input/output error"), writing("it"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_a_disk_that_fails_after_the_rename_loses_nothing(
    enrolled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the rename on, the new state is valid, so its files must not be deleted."""
    teacher = Teacher.open(enrolled)
    real = os.fsync

    def broken(handle: int) -> None:
        if Bundle.open(enrolled).product("part").generation == 2:
            raise OSError(5, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="Input/output error; the change is committed but may"):
        teacher.enroll(frames(7), "part")
    assert assert_whole(enrolled) == ["frame1", "frame2", "frame7"]


# ---- a read-only place


def test_a_read_only_bundle_inspects_and_refuses_to_be_taught(
    enrolled: Path, powerless: tuple[str, ...]
) -> None:
    score = Detector.open(enrolled).inspect(textured_picture(40)).score
    before = snapshot(enrolled)
    subprocess.run(["chmod", "-R", "a-w", str(enrolled)], check=True)
    try:
        inspecting = "print(repr(Detector.open(path).inspect(textured_picture(40)).score))"
        code, out, err = finish(child(inspecting, enrolled, wrapper=powerless))
        assert (code, float(out)) == (0, score), err
        for body in (
            "enroll(path, 7)",
            "Teacher.open(path).remove(['frame1'])",
            "Teacher.open(path).configure(Settings({'metric': 'l2'}))",
            "Teacher.open(path).enroll([NewPicture.from_array('a', textured_picture(3))], 'new')",
        ):
            code, _, err = finish(child(body, enrolled, wrapper=powerless))
            assert code == 1 and err.count("\n") == 1, err
            assert err.startswith("StorageError: cannot write ") and "no permission" in err
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(enrolled)], check=True)
    assert snapshot(enrolled) == before


def test_a_file_that_may_not_be_read_is_one_line(
    enrolled: Path, powerless: tuple[str, ...]
) -> None:
    secret = {
        "backbone.onnx": "Detector.open(path)",
        "products/part/bank-1.safetensors": "Detector.open(path)",
        "manifest.json": "Detector.open(path)",
        "products/part/product.json": "Detector.open(path)",
        "LICENSES/NOTICE": "from anoco_edge.bundle import Bundle; list(Bundle.open(path).verify())",
    }
    for name, body in secret.items():
        (enrolled / name).chmod(0)
        code, _, err = finish(child(body, enrolled, wrapper=powerless))
        (enrolled / name).chmod(0o644)
        assert code == 4 and err.count("\n") == 1, err
        assert name in err and "Permission denied" in err


def test_settings_survive_a_failed_change(enrolled: Path) -> None:
    """A change that fails halfway can simply be repeated."""
    body = "Teacher.open(path).configure(Settings({'bank_dtype': 'float32'}), 'part')"
    bank = Bundle.open(enrolled).product("part").bank
    assert bank is not None
    code, _, err = finish(child(body, enrolled, before=file_limit(bank.size)))
    assert code == 1 and err.startswith("StorageError")
    assert Bundle.open(enrolled).product("part").generation == 1
    product = Teacher.open(enrolled).configure(Settings({"bank_dtype": "float32"}), "part").product
    assert (product.generation, product.bank_dtype) == (2, "float32")


def test_what_a_killed_process_left_half_written_goes_with_the_next_write(tmp_path: Path) -> None:
    """Outside bundles there is no lock; the process number says whether the writer still runs."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = [tmp_path / f"{TEMPORARY}{name}-{gone.pid}" for name in ("a[1].json", "other.json")]
    alive = tmp_path / f"{TEMPORARY}a[1].json-{os.getppid()}"
    for path in (*left, alive):
        path.write_bytes(b"half")
    write_atomic(tmp_path / "a[1].json", b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a[1].json", left[1], alive])
