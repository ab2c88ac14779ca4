"""Sinks are opened by name: those of anoco-edge, and one that another package adds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import (
    defective_picture,
    environment,
    fails,
    make_line,
    network_camera,
    ok,
    rows_of,
    run_cli,
    run_process,
)
from PIL import Image
from result_rows import frame, result_row

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.results import RunInfo, RunSummary
from anoco_edge.results.row_reader import read_results
from anoco_edge.results.rows import Row
from anoco_edge.sinks import OWN_SINKS, SINKS, SinkRequest
from anoco_edge.sinks.guarded import GuardedSink
from anoco_edge.sinks.json_lines import JsonLinesFile

INFER = ("infer", "line.anoco", "parts")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write parts/ with three good parts and a defective one."""
    folder = make_line(tmp_path_factory.mktemp("template"))
    Image.fromarray(defective_picture()).save(folder / "parts" / "scratched.png")
    return folder


# --- from the command line ------------------------------------------------------------------------


def test_rows_go_to_a_file_and_to_a_second_folder(here: Path) -> None:
    sinks = ("--sink", "json-lines=rows.jsonl", "--sink", "folder=second")
    ok(*INFER, "--out", "out", *sinks)
    rows = rows_of(Path("out"))
    assert [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()] == rows
    assert rows_of(Path("second")) == rows
    assert Path("second/report.html").is_file()
    ok(*INFER, "--sink", "json-lines=rows.jsonl")
    assert [row.id for row in read_results(Path("rows.jsonl"))] == [0, 1, 2, 3] * 2
    assert ok("enroll", "line.anoco", "--from-results", "rows.jsonl", "--id", 3)


def test_a_live_source_has_sinks_too(here: Path) -> None:
    with network_camera(100_000, 0.001) as address:
        sinks = ("--sink", "json-lines=rows.jsonl", "--json")
        ran = ok("infer", "line.anoco", "--camera", address, "--limit", "3", *sinks)
    *rows, summary = [json.loads(line) for line in ran.out.splitlines()]
    assert summary["pictures"] == 3
    assert [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()] == rows


def test_an_unknown_sink_is_refused_with_the_known_ones(here: Path) -> None:
    line = fails(2, *INFER, "--out", "out", "--sink", "pigeon=north")
    assert "unknown sink 'pigeon'" in line and "folder, json-lines" in line
    assert not Path("out").exists(), "nothing was begun"
    for name in ("folder", "json-lines"):
        assert f"the sink '{name}' needs a f" in fails(2, *INFER, "--sink", name)
    many = (*INFER, "--out", "out", "--on", "ray", "--sink", "json-lines=x")
    assert "--sink does not work with --on" in fails(2, *many)


def test_a_sink_that_cannot_be_written_ends_the_run(here: Path) -> None:
    Path("taken").mkdir()
    assert "taken is not a regular file" in fails(2, *INFER, "--sink", "json-lines=taken")
    line = fails(1, *INFER, "--sink", "json-lines=missing/rows.jsonl")
    assert "cannot write missing/rows.jsonl: No such file" in line


def test_help_names_the_sinks_of_the_table() -> None:
    text = " ".join(ok("infer", "--help").out.replace("│", " ").split())
    assert all(spec.usage in text for spec in OWN_SINKS)


# --- a package of somebody else -------------------------------------------------------------------

PACKAGE = '''
"""A sink as another package would have it."""

import json
from pathlib import Path

from anoco_edge.sinks import SinkSpec

SPEC = SinkSpec("outside", "outside_sink", target="FILE")


class OutsideSink:
    def __init__(self, path, run):
        self.path = path
        self.told = [f"start {run.product} {run.live}"]

    def write(self, row, frame, overlay):
        if self.path.name == "broken" and row.id in (1, 2):
            raise ConnectionError("the broker hung up")
        self.told.append(f"{row.id} {row.verdict}")
        if row.verdict == "anomalous":
            assert overlay.image().width > frame.rgb.shape[1]
            self.told.append(f"drawn, kept as {row.overlay}")

    def finish(self, summary):
        self.path.write_text(json.dumps([*self.told, f"end {summary.pictures}"]))


def open_sink(target, run):
    if target == "nobody":
        raise ConnectionRefusedError("nobody listens")
    return OutsideSink(Path(target), run)
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with an entry point in a folder that PYTHONPATH names."""
    site = tmp_path / "site"
    info = site / "outside_sink-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "outside_sink.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-sink\nVersion: 1.0\n")
    entry = "[anoco_edge.sinks]\noutside = outside_sink:SPEC\nbroken-entry = outside_sink:NOTHING\n"
    (info / "entry_points.txt").write_text(entry)
    paths = os.pathsep.join([environment()["PYTHONPATH"], str(site)])
    monkeypatch.setattr("command_line.environment", lambda: {**os.environ, "PYTHONPATH": paths})
    return site


def test_a_sink_of_another_package_works_from_the_command_line(here: Path, outside: Path) -> None:
    ran = run_process(*INFER, "--out", "out", "--sink", "outside=told.json")
    assert ran.code == 0, ran.err
    assert json.loads(Path("told.json").read_text()) == [
        "start default False",
        *(f"{number} good" for number in range(3)),
        "3 anomalous",
        "drawn, kept as overlays/000003-scratched.jpg",
        "end 4",
    ]
    unknown = run_process(*INFER, "--sink", "pigeon")
    assert unknown.code == 2 and "use one of: folder, json-lines, outside" in unknown.complaint
    refused = run_process(*INFER, "--sink", "outside=nobody")
    assert refused.code == 3
    assert "the sink 'outside' cannot be opened: ConnectionRefusedError" in refused.complaint
    broken = run_process(*INFER, "--sink", "broken-entry")
    assert broken.code == 3 and "comes from a package that cannot be used" in broken.complaint


def test_a_sink_that_fails_is_reported_and_the_run_goes_on(here: Path, outside: Path) -> None:
    ran = run_process(*INFER, "--out", "out", "--sink", "outside=broken")
    assert ran.code == 1
    assert ran.err.count("the sink 'outside' failed at row 1: ConnectionError") == 1
    assert "the sink 'outside' missed 2 of 4 rows, the first error: Conn" in ran.complaint
    assert len(rows_of(Path("out"))) == 4 and "4 inspected" in ran.out
    assert json.loads(Path("broken").read_text())[-2:] == [
        "drawn, kept as overlays/000003-scratched.jpg",
        "end 4",
    ]


def test_doctor_lists_sinks_and_names_the_broken_entry(outside: Path) -> None:
    rows = json.loads(run_process("doctor", "--no-camera", "--json").out)
    found = {row["name"]: row for row in rows if row["group"] == "sinks"}
    assert found["outside"]["state"] == found["folder"]["state"] == "ok"
    assert found["outside"]["detail"] == "asked for as outside=FILE"
    assert found["broken-entry"]["state"] == "broken"


# --- parts ----------------------------------------------------------------------------------------


class Failing:
    """A sink that raises the error it is given."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, row: Row, frame: object, overlay: object) -> None:
        raise self.error

    def finish(self, summary: RunSummary) -> None:
        raise self.error


def test_a_full_disk_passes_the_guard_and_other_errors_do_not() -> None:
    said: list[str] = []
    full = GuardedSink("far", Failing(StorageError("the disk is full")), said.append)
    with pytest.raises(StorageError):
        full.write(result_row(0), frame(), None)
    with pytest.raises(StorageError):
        full.finish(RunSummary())
    lost = GuardedSink("far", Failing(ValueError("odd")), said.append)
    for number in range(3):
        assert lost.write(result_row(number), frame(), None) is None
    lost.finish(RunSummary())
    assert said == ["the sink 'far' failed at row 0: ValueError: odd"]
    assert "missed 3 of 3 rows, the first error: ValueError: odd" in str(lost.error)


def test_the_file_of_a_killed_run_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(result_row(0).to_json()) + '\n{"id": 1, "sour')
    lines = JsonLinesFile(path)
    lines.write(result_row(7), frame(), None)
    lines.finish(RunSummary())
    assert [row.id for row in read_results(path)] == [0, 7]


def test_the_table_opens_what_it_names(tmp_path: Path) -> None:
    assert SINKS.names()[:2] == ("folder", "json-lines")
    with pytest.raises(UsageError, match="unknown sink ''"):
        SinkRequest.parse("=x")
    sink = SinkRequest.parse(f"folder={tmp_path / 'a=b'}").open(RunInfo("", "nut"), print)
    sink.write(result_row(0), frame(), None)
    sink.finish(RunSummary())
    assert sink.error is None and len(rows_of(tmp_path / "a=b")) == 1


def test_sinks_are_finished_in_reverse_order_and_hand_rows_on(here: Path) -> None:
    from dataclasses import replace

    from anoco_edge import Detector
    from anoco_edge.results import inspect_source
    from anoco_edge.results.rows import ResultRow
    from anoco_edge.sources import open_source

    order: list[str] = []

    class Marking:
        def __init__(self, name: str) -> None:
            self.name = name

        def write(self, row: Row, frame: object, overlay: object) -> Row | None:
            if isinstance(row, ResultRow) and self.name == "first":
                return replace(row, overlay="kept.jpg")
            order.append(getattr(row, "overlay", ""))
            return None

        def finish(self, summary: RunSummary) -> None:
            order.append(self.name)
            if self.name == "last":
                raise StorageError("the disk is full")

    with open_source(["parts/good0.png"]) as source:
        sinks = [Marking("first"), Marking("last")]
        summary = inspect_source(Detector.open("line.anoco"), source, sinks)
    assert order == ["kept.jpg", "last", "first"]
    assert str(summary.lost) == "the disk is full" and summary.good == 1


@pytest.fixture(autouse=True)
def no_registry_left_over() -> Iterator[None]:
    """Clear the registry, so that a test does not see the entry points of another."""
    yield
    SINKS.__dict__.pop("_found", None)


def test_an_error_of_a_picture_is_no_error_of_a_sink(here: Path) -> None:
    Path("parts/torn.png").write_text("no picture")
    ran = run_cli(*INFER, "--sink", "json-lines=rows.jsonl")
    assert ran.code == 1 and "1 of 5 pictures could not be inspected" in ran.complaint
    assert [row.verdict for row in read_results(Path("rows.jsonl"))].count(None) == 1
