"""Replacing a bundle leaves the old or the new one, with its products, wherever it stops."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import PATIENCE, environment, ok, run_cli
from other_process import run_apart
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle, Product, create_bundle, find_bundle
from anoco_edge.bundle.generations import commit
from anoco_edge.bundle.store import product_files
from anoco_edge.errors import BundleError, StorageError, UsageError
from anoco_edge.storage import staging as staging_module
from anoco_edge.storage.beneath import TEMPORARY
from anoco_edge.storage.locks import locked
from anoco_edge.storage.staging import complete_replacement, staging, sweep_stagings
from anoco_edge.teaching import NewPicture, Teacher
from anoco_edge_export.triton import write_triton_repository

Exchange = Callable[[Path, Path], bool]


def frames(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"frame{s}", textured_picture(s)) for s in seeds]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `old.anoco` with two references and `new.anoco` with three; tests only copy them."""
    folder = tmp_path_factory.mktemp("master")
    for name, seeds in {"old": (1, 2), "new": (5, 6, 7)}.items():
        path = make_tiny_bundle(folder / f"{name}.anoco").path
        Teacher.open(path).enroll(frames(*seeds), "part")
    return folder


@pytest.fixture
def line(master: Path, tmp_path: Path) -> Path:
    """Copy the old bundle into a folder of its own."""
    return Path(shutil.copytree(master / "old.anoco", tmp_path / "here" / "line.anoco"))


def replace(path: Path, new: Bundle, *, overwrite: bool = True) -> None:
    """Do what `export --refs` does, with an export and features that are already there."""
    product = new.product("part")
    folder = new.product_folder("part")
    files = {record.path: new.read(record, folder) for record in product_files(product)}

    def teach(bundle: Bundle) -> None:
        with locked(bundle.product_folder("part"), 0, print):
            commit(bundle, Product.model_validate(product.model_dump(by_alias=True)), files)

    manifest = new.manifest
    create_bundle(
        path,
        backbone=manifest.backbone,
        contract=manifest.input,
        parity={"again": True},
        tools={},
        files={record.path: new.read(record) for record in manifest.files},
        overwrite=overwrite,
        prepare=teach,
    )


def state(path: Path) -> str:
    """Return whether the old or the new bundle is there; it must be whole, with its product."""
    if not path.exists() and not complete_replacement(path):
        return "none"
    bundle = Bundle.open(path)
    list(bundle.verify())
    again, references = bundle.manifest.parity, len(bundle.product("part").references)
    assert (again, references) in (({}, 2), ({"again": True}, 3))
    return "new" if again else "old"


def in_a_process_that_dies_at(call: int, work: Callable[[], None], exchange: Exchange) -> int:
    """Run in a forked process that kills itself before the given call that changes the disk.

    Return its exit code, which is 0 if it made fewer such calls.
    """
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    gc.disable()  # an engine of the parent would wait for threads that a fork does not copy
    made = 0
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    fsync = os.fsync

    def count() -> None:
        nonlocal made
        if made == call:
            os.kill(os.getpid(), signal.SIGKILL)
        made += 1

    def watch(event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and args[2] & writes
        if opened or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
            count()

    def synced(handle: int) -> None:
        count()
        fsync(handle)

    def exchanged(first: Path, second: Path) -> bool:
        count()
        return exchange(first, second)

    os.fsync = synced
    staging_module.exchange = exchanged  # type: ignore[assignment]
    sys.addaudithook(watch)
    try:
        work()
    finally:
        os._exit(0)
    return 0


def no_exchange(_first: Path, _second: Path) -> bool:
    """Act like a kernel or file system without RENAME_EXCHANGE."""
    return False


@pytest.mark.parametrize(
    "exchange", [staging_module.exchange, pytest.param(no_exchange, marks=pytest.mark.full)]
)
def test_a_kill_at_every_call_of_an_overwrite_leaves_the_old_bundle_or_the_new_one(
    line: Path, master: Path, exchange: Exchange, record_property: Callable[[str, object], None]
) -> None:
    new, states = Bundle.open(master / "new.anoco"), []
    code, call = -signal.SIGKILL, 0
    while code:
        shutil.rmtree(line.parent)
        shutil.copytree(master / "old.anoco", line)
        code = in_a_process_that_dies_at(call, lambda: replace(line, new), exchange)
        assert line.exists() or exchange is no_exchange, "no moment is without a bundle"
        states.append(state(line))
        # The next command deletes what was left, and the bundle stays as it was.
        with locked(line / "products/part", 0, print):
            pass
        assert [p.name for p in line.parent.iterdir()] == ["line.anoco"], call
        assert state(line) == states[-1]
        call += 1
    assert states == sorted(states, reverse=True), "once it is the new one, it stays"
    assert states.count("old") > 30 and states.count("new") > 1
    record_property("figure", f"export --overwrite: {call - 1} kills, none broken")


@pytest.mark.full
def test_a_kill_at_every_call_of_a_first_export_leaves_nothing_or_everything(
    master: Path, tmp_path: Path
) -> None:
    new, states = Bundle.open(master / "new.anoco"), []
    target = tmp_path / "made" / "line.anoco"
    code, call = -signal.SIGKILL, 0
    while code:
        shutil.rmtree(target.parent, ignore_errors=True)
        work = lambda: replace(target, new, overwrite=False)  # noqa: E731
        code = in_a_process_that_dies_at(call, work, staging_module.exchange)
        states.append(state(target))
        sweep_stagings(target.parent)
        left = list(target.parent.iterdir()) if target.parent.exists() else []
        assert left == ([] if states[-1] == "none" else [target]), call
        call += 1
    assert states == sorted(states, reverse=True) and set(states) == {"none", "new"}


@pytest.mark.parametrize("exchange", [staging_module.exchange, no_exchange])
def test_a_kill_at_every_call_leaves_the_old_triton_model_or_the_new_one(
    master: Path, tmp_path: Path, exchange: Exchange
) -> None:
    contract = Bundle.open(master / "new.anoco").manifest.input
    folder = tmp_path / "models"

    def write(content: bytes, batch: int) -> None:
        write_triton_repository(folder, content, name="nut", contract=contract, max_batch=batch)

    code, call, states = -signal.SIGKILL, 0, []
    while code:
        shutil.rmtree(folder, ignore_errors=True)
        write(b"old", 1)
        code = in_a_process_that_dies_at(call, lambda: write(b"new", 8), exchange)
        sweep_stagings(folder)
        assert [path.name for path in folder.iterdir()] == ["nut"]
        content = (folder / "nut/1/model.onnx").read_bytes()
        config = (folder / "nut/config.pbtxt").read_text()
        assert ("max_batch_size: 8" in config) == (content == b"new")
        states.append(content)
        call += 1
    assert states == sorted(states, reverse=True) and set(states) == {b"old", b"new"}


def test_a_failure_at_every_sync_says_what_is_true(
    line: Path, master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the exchange nothing is changed.

    After it the change is made, and the error says so.
    """
    new, real = Bundle.open(master / "new.anoco"), os.fsync
    found = set()
    for failing in range(1000):
        shutil.rmtree(line.parent)
        shutil.copytree(master / "old.anoco", line)
        left = failing

        def broken(handle: int) -> None:
            nonlocal left
            if left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            left -= 1
            real(handle)

        monkeypatch.setattr(os, "fsync", broken)
        try:
            replace(line, new)
        except StorageError as error:
            text = str(error)
        else:
            break
        finally:
            monkeypatch.setattr(os, "fsync", real)
        there = state(line)
        found.add(there)
        assert ("the change is committed but may not survive" in text) == (there == "new"), text
        assert ("nothing was changed" in text) == (there == "old"), text
        sweep_stagings(line.parent)
        assert [p.name for p in line.parent.iterdir()] == ["line.anoco"]
    assert found == {"old", "new"} and failing > 10


def test_where_two_renames_are_needed_a_reader_finds_the_bundle_all_the_same(
    line: Path, master: Path
) -> None:
    """After a kill between the two renames, the next command that opens it completes the change."""
    for find in (Bundle.open, lambda path: Bundle.open(find_bundle(path.parent))):
        shutil.rmtree(line.parent)
        shutil.copytree(master / "old.anoco", line)
        left = line.with_name(f"{TEMPORARY}line.anoco-99999999-0")
        shutil.copytree(master / "new.anoco", left / "line.anoco")
        (left / ".lock").touch()
        line.rename(left / "replaced")
        assert len(find(line).product("part").references) == 3
    sweep_stagings(line.parent)
    assert [p.name for p in line.parent.iterdir()] == ["line.anoco"]


def test_a_second_rename_that_fails_puts_the_old_bundle_back(
    line: Path, master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if target == line and self.name == "line.anoco":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(self, target)

    monkeypatch.setattr(staging_module, "exchange", no_exchange)
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(
        StorageError, match="the disk is full: free some space; nothing was changed"
    ):
        replace(line, Bundle.open(master / "new.anoco"))
    assert state(line) == "old"


# ---- whose folder is swept


def test_the_folder_of_a_live_process_is_never_swept(line: Path) -> None:
    body = """
    from anoco_edge.storage.staging import staging
    with staging(path) as stage:
        (stage.folder / "work").write_text("minutes of it")
        print(stage.folder, flush=True)
        time.sleep(600)
    """
    process = run_apart("", body, line)
    try:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        sweep_stagings(line.parent)
        with locked(line / "products/part", 0, print):
            pass
        with staging(line):
            pass
        assert (folder / "work").read_text() == "minutes of it"
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
    sweep_stagings(line.parent)
    assert not folder.exists()


def test_a_reused_number_does_not_keep_a_dead_folder(line: Path) -> None:
    """Its name has the number of this process, but its lock says that it is not in use."""
    left = line.with_name(f"{TEMPORARY}line.anoco-{os.getpid()}-0")
    left.mkdir()
    (left / ".lock").touch()
    (left / "half").write_bytes(b"a graph")
    with staging(line) as stage:
        assert not (stage.folder / "half").exists()
    assert [p.name for p in line.parent.iterdir()] == ["line.anoco"]


def test_what_is_not_ours_is_not_swept(line: Path) -> None:
    theirs = [
        line.with_name(".tmp-somebody"),
        line.with_name(".tmp-x-1-0"),  # has no lock and is not empty
        line.with_name(".tmp-export-line.anoco-77"),
    ]
    for folder in theirs:
        folder.mkdir()
        (folder / "file").write_bytes(b"precious")
    (line.parent / ".tmp-link-1-0").symlink_to(line)
    (theirs[1] / ".lock").symlink_to(theirs[0] / "file")
    sweep_stagings(line.parent)
    assert all((folder / "file").exists() for folder in theirs)
    assert state(line) == "old"


def test_overwriting_a_link_replaces_the_bundle_that_it_names(line: Path, master: Path) -> None:
    link = line.parent.parent / "current.anoco"
    link.symlink_to(line)
    replace(link, Bundle.open(master / "new.anoco"))
    assert link.is_symlink() and state(line) == "new"


def test_a_folder_that_is_no_bundle_is_not_replaced(line: Path, master: Path) -> None:
    (line / "manifest.json").unlink()
    with pytest.raises(StorageError, match="is not a bundle, so it is not overwritten"):
        replace(line, Bundle.open(master / "new.anoco"))
    assert (line / "products/part/product.json").is_file()


def test_a_bundle_that_appeared_meanwhile_is_not_overwritten(master: Path, tmp_path: Path) -> None:
    target = tmp_path / "line.anoco"
    new = Bundle.open(master / "new.anoco")
    with pytest.raises(UsageError, match=r"line.anoco exists already; choose another place"):
        create_bundle(
            target,
            backbone=new.manifest.backbone,
            contract=new.manifest.input,
            parity={"again": True},
            tools={},
            files={record.path: new.read(record) for record in new.manifest.files},
            prepare=lambda _: shutil.copytree(master / "old.anoco", target),
        )
    assert state(target) == "old" and [p.name for p in tmp_path.iterdir()] == ["line.anoco"]


def test_errors_while_teaching_name_the_place_that_was_given(line: Path, master: Path) -> None:
    new = Bundle.open(master / "new.anoco")

    def refuse(bundle: Bundle) -> None:
        assert bundle.path.name == "line.anoco" and bundle.name == "line"
        raise BundleError(f"{bundle.path}/x is odd", hint=f"look at {bundle.path}")

    with pytest.raises(BundleError) as caught:
        create_bundle(
            line,
            backbone=new.manifest.backbone,
            contract=new.manifest.input,
            parity={},
            tools={},
            files={record.path: new.read(record) for record in new.manifest.files},
            overwrite=True,
            prepare=refuse,
        )
    assert str(caught.value) == f"{line}/x is odd; look at {line}"
    assert state(line) == "old" and [p.name for p in line.parent.iterdir()] == ["line.anoco"]


# ---- the command

DIES = """
import os, signal
from anoco_edge.storage import staging
exchange = staging.exchange

def dies(first, second):
    WHEN
    os.kill(os.getpid(), signal.SIGKILL)

staging.exchange = dies
from anoco_edge.cli import main
main()
"""


@pytest.mark.full
def test_a_killed_export_with_references_leaves_a_whole_bundle(tmp_path: Path) -> None:
    write_good_pictures(tmp_path / "good", 3)
    target = tmp_path / "line.anoco"
    small = ("export", "--backbone", "efficientnet-lite0", "--size", 64, "--out", target)
    small = (*small, "--refs", tmp_path / "good", "--overwrite")
    assert ok(*small, "--shots", 2, "--json").json["bundle"] == str(target)
    started = time.monotonic()
    for when, references in (("pass", 2), ("exchange(first, second)", 3)):
        program = DIES.replace("WHEN", when)
        ran = subprocess.run(
            [sys.executable, "-c", program, *map(str, small)],
            capture_output=True,
            env=environment(),
            timeout=PATIENCE,
        )
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        bundle = Bundle.open(target)
        list(bundle.verify())
        assert len(bundle.product().references) == references
        assert len(list(tmp_path.glob(f"{TEMPORARY}*"))) == 1
        listed = run_cli("references", "list", target, "--json")
        assert listed.code == 0
        Teacher.open(target).remove(["good0.png"])
        assert not list(tmp_path.glob(f"{TEMPORARY}*")), "the next change sweeps what was left"
        Bundle.open(target)
    assert time.monotonic() - started < 2 * PATIENCE
