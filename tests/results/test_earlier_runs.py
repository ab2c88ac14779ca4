"""A run into a folder with earlier results destroys none of them, whenever it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ok, rows_of, tree, write_video
from tiny_bundle import textured_picture

from anoco_edge.errors import StorageError
from anoco_edge.fleet.journal import Journal
from anoco_edge.results.earlier_runs import all_runs, keep_earlier_run
from anoco_edge.sinks.folder import ResultFolder
from anoco_edge.sources.files import find_files

RUN = {
    "results.jsonl": "rows",
    "results.csv": "table",
    "results.0001.jsonl": "earlier rows",
    "results.0001.csv": "earlier table",
    "report.html": "page",
    "overlays/000000-a.jpg": "overlay",
    "frames/000000-a.png": "frame",
    "unfinished.jsonl": "journal",
}


class Killed(BaseException):
    """Stands for a kill: no handler in the code under test catches this."""


def write_run(folder: Path, mark: str) -> dict[str, bytes]:
    for name, text in RUN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{mark} {text}")
    return {name: f"{mark} {text}".encode() for name, text in RUN.items()}


def test_three_runs_and_the_first_is_still_there(here: Path) -> None:
    """A service that was restarted twice once lost the results of a shift."""
    for number in range(3):
        ok("infer", "line.anoco", f"parts/good{number}.png", "--out", "out", "--save", "all")
    found = [[row["source"] for row in rows_of(run)] for run in all_runs(Path("out"))]
    assert found == [[f"parts/good{number}.png"] for number in range(3)]
    for run in all_runs(Path("out")):
        [row] = rows_of(run)
        assert (run / row["overlay"]).is_file() and (run / "report.html").is_file()
    assert [run.name for run in all_runs(Path("out"))] == ["0001", "0002", "out"]


@pytest.mark.parametrize("call", ["rename", "mkdir", "touch"])
def test_killed_at_any_change_nothing_is_lost_or_mixed(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(Path, call)
    for after in range(20):
        folder = tmp_path / f"{call}{after}"
        first = write_run(folder, "first")
        left = after

        def fail(self: Path, *args: object, **options: object) -> object:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return whole(self, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, call, fail)
            try:
                keep_earlier_run(folder)
            except Killed:
                killed = True
            else:
                killed = False
        ResultFolder(folder).close()
        assert [run.name for run in all_runs(folder)] == ["0001", folder.name]
        assert tree(folder / "runs" / "0001") == first, after
        assert sorted(tree(folder)) == sorted(
            ["results.csv", "results.jsonl", *(f"runs/0001/{name}" for name in RUN)]
        )
        if not killed:
            return
    raise AssertionError("it never came to its end")


def test_an_older_half_and_another_run_are_two_runs(tmp_path: Path) -> None:
    half = write_run(tmp_path / "runs" / ".moving-0003", "half")
    other = write_run(tmp_path, "other")
    assert keep_earlier_run(tmp_path) == tmp_path / "runs" / "0004"
    assert tree(tmp_path / "runs" / "0003") == half
    assert tree(tmp_path / "runs" / "0004") == other


def test_keep_counts_over_all_runs_and_rows_stay(here: Path) -> None:
    clip = write_video("clip.avi", [textured_picture(k) for k in range(3)])
    for _ in range(3):
        ok("infer", "line.anoco", clip, "--out", "out", "--save", "all", "--keep", "4")
    runs = all_runs(Path("out"))
    assert [len(rows_of(run)) for run in runs] == [3, 3, 3]
    assert [len(list(run.glob("overlays/*"))) for run in runs] == [0, 1, 3]
    assert [len(list(run.glob("frames/*"))) for run in runs] == [0, 1, 3]


def test_pictures_of_earlier_runs_are_found_by_their_rows(here: Path) -> None:
    clip = write_video("clip.avi", [textured_picture(k) for k in range(2)])
    for _ in range(2):
        ok("infer", "line.anoco", clip, "--out", "out", "--save", "all")
    earlier = Path("out/runs/0001/results.jsonl")
    ran = ok("enroll", "line.anoco", "parts/good1.png", "--dry-run", "--past", earlier, "--json")
    assert len([e for e in json.loads(ran.out)["effects"] if e["kind"] == "past"]) == 2
    ok("enroll", "line.anoco", "--from-results", earlier, "--id", 0)


def test_overlays_of_earlier_runs_are_no_parts(here: Path) -> None:
    before = find_files(["."])
    for _ in range(2):
        ok("infer", "line.anoco", "parts", "--out", "parts/out", "--save", "all")
    assert find_files(["."]) == before


def test_two_runs_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    first = ResultFolder(tmp_path)
    with pytest.raises(StorageError, match="another run writes to"):
        ResultFolder(tmp_path)
    first.close()
    ResultFolder(tmp_path).close()
    with Journal(tmp_path, {}), pytest.raises(StorageError, match="another run writes to"):
        ResultFolder(tmp_path)
