"""The campaigns on system calls report writers with a known fault, and accept one without.

A campaign that could not find a fault would prove nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.attack import disk_errors, kills, power_loss
from tests.attack.campaign import Case, Plan
from tests.attack.commands import Command, prepare_toy, toy_state
from tests.attack.forks import CALL, Task, forks
from tests.attack.replay import Disk, outcomes
from tests.attack.shim import Mode, Op, compiler
from tests.attack.trace import Event

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


def writer(name: str) -> Command:
    run = (CALL, f"tests.attack.calls:{name}")
    return Command(name, run, toy_state, (), run, prepare_toy)


EXPECTED: dict[Callable[..., Iterator[Case]], dict[str, str]] = {
    kills.cases: {
        "write_in_place": "bytes",
        "write_after_removing": "No such file",
        "write_leaving_temporaries": "left behind after the next command: .toy-",
    },
    power_loss.cases: {
        "write_in_place": "bytes",
        "write_without_fsync": "0 bytes",
        "write_without_folder_fsync": "it reported success, and the state",
        "write_after_removing": "No such file",
    },
    disk_errors.cases: {
        "write_in_place": "bytes",
        "write_ignoring_errors": "it reported success, and the state",
        "write_lying": "the change is there, and it does not say so",
        "write_with_traceback": "it ended with 70",
    },
}


@pytest.mark.parametrize("campaign", EXPECTED, ids=["kills", "power_loss", "disk_errors"])
def test_each_fault_is_found_and_a_writer_without_one_holds(
    campaign: Callable[..., Iterator[Case]], tmp_path: Path
) -> None:
    expected = EXPECTED[campaign]
    writers = [writer(name) for name in ("write_well", *expected)]
    found = list(campaign(Plan(tmp_path, seed=0, short=False), writers))
    broken = {
        one.name: [case.broken for case in found if case.name.startswith(one.name) and case.broken]
        for one in writers
    }
    assert broken.pop("write_well") == []
    for name, words in expected.items():
        assert any(words in line for line in broken[name]), (name, broken[name])


def test_every_kind_of_call_is_seen_and_can_be_killed_and_refused(tmp_path: Path) -> None:
    """The calls name a file relative to the working directory, to a directory handle, and by
    number.
    """
    folder = tmp_path / "root"
    folder.mkdir()
    names = ["mkdir", "open", "write", "fsync", "rename", "rename", "truncate", "chmod", "link"]
    expected = [*names, "symlink", "write", "unlink", "unlink"]
    with forks(tmp_path) as forked:
        run = (CALL, "tests.attack.calls:change_everything")
        ended = forked.run(Task(str(folder), run))
        assert (ended.code, ended.calls) == (0, len(expected)), ended.err
        for number, name in enumerate(expected, 1):
            shutil.rmtree(folder / "folder")
            ended = forked.run(Task(str(folder), run, Mode.KILL_BEFORE, number))
            assert ended.killed and ended.hit.split()[0] == name, (number, ended)
            (folder / "folder").mkdir(exist_ok=True)
        shutil.rmtree(folder / "folder")
        ended = forked.run(Task(str(folder), run, Mode.FAIL, 1, 28))
        assert "No space left on device" in ended.err


def test_files_outside_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "rootless").mkdir()
    with forks(tmp_path) as forked:
        run = (CALL, "tests.attack.calls:write_elsewhere", str(tmp_path / "rootless" / "file"))
        ended = forked.run(Task(str(tmp_path / "root"), run, Mode.FAIL_FROM, 1, 5))
    assert (ended.code, ended.calls) == (0, 0) and (tmp_path / "rootless" / "file").exists()


def event(op: Op, path: str, other: str = "", a: int = 0, data: bytes = b"") -> Event:
    return Event(op, a, 0, path, other, data)


def test_the_model_of_a_disk_loses_what_was_not_synced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    disk, rng = Disk(tmp_path), np.random.default_rng(0)
    for step in (
        event(Op.OPEN, "b", a=1),
        event(Op.WRITE, "b", data=b"new"),
        event(Op.RENAME, "b", "a"),
    ):
        disk.apply(step)
    found = dict(outcomes(disk, rng, 20))
    assert found["all unsynced lost"] == {"a": b"old"}
    assert found["all kept"] == {"a": b"new"}
    assert found["names kept, data lost"] == {"a": b""}
    assert {"a": b"n"} in found.values() or {"a": b"ne"} in found.values()
    disk.apply(event(Op.SYNC, ""))  # the folder is synced, not the file
    assert dict(outcomes(disk, rng, 0))["all unsynced lost"] == {"a": b""}
    disk.apply(event(Op.SYNC, "a"))
    assert all(files == {"a": b"new"} for _, files in outcomes(disk, rng, 3))


def test_the_model_exchanges_folders_and_knows_their_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(name.encode())
    disk = Disk(tmp_path)
    disk.apply(event(Op.RENAME, "one", "two", a=2))
    disk.apply(event(Op.OPEN, "one/file", a=0))
    disk.apply(event(Op.UNLINK, "one/file"))
    found = dict(outcomes(disk, np.random.default_rng(0), 0))
    before = {"one": None, "one/file": b"one", "two": None, "two/file": b"two"}
    assert found["all unsynced lost"] == before
    assert found["all kept"] == {"one": None, "two": None, "two/file": b"one"}
    disk.apply(event(Op.SYNC, ""))
    after = {"one": None, "one/file": b"two", "two": None, "two/file": b"one"}
    assert dict(outcomes(disk, np.random.default_rng(0), 0))["all unsynced lost"] == after


def test_the_model_does_not_bring_a_moved_folder_back(tmp_path: Path) -> None:
    """A folder is moved to one that is then synced, so it must not reappear in the first."""
    (tmp_path / "staging").mkdir()
    disk = Disk(tmp_path)
    disk.apply(event(Op.MKDIR, "staging/new"))
    disk.apply(event(Op.RENAME, "staging/new", "new"))
    disk.apply(event(Op.SYNC, ""))
    for _, files in outcomes(disk, np.random.default_rng(0), 5):
        assert files == {"staging": None, "new": None}


def test_the_wall_clock_steps_in_the_middle(tmp_path: Path) -> None:
    with forks(tmp_path) as forked:
        run = (CALL, "tests.attack.calls:tell_time")
        ended = forked.run(Task(str(tmp_path), run, clock=(-1000, 3, 5000)))
        plain = forked.run(Task(str(tmp_path), run))
    early, same, late = map(int, ended.out.split())
    assert 0 <= same - early < 60 and 6000 <= late - same < 6060 and ended.clock_reads >= 3
    assert 1000 <= int(plain.out.split()[0]) - early < 1060
