"""`anoco-edge bench --line`: a whole station with its clients. How fast it is, is no test."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fails, ok
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.line.bench.latency import bench_line, station_config


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    made = folder / "line.anoco"
    make_tiny_bundle(made)
    ok("enroll", str(made), *write_good_pictures(folder / "good", 3))
    return made


def test_both_buses_are_measured_beside_the_detector(bundle: Path) -> None:
    options = ("--line", "--frames", "2", "--warmup", "1", "--json")
    found = ok("bench", str(bundle), *options).json
    assert [(row["bus"], row["what"], row["parts"]) for row in found["rows"]] == [
        (bus, what, 2) for bus in ("tcp", "modbus") for what in ("line", "client", "detector")
    ]
    for line, client, detector in (found["rows"][:3], found["rows"][3:]):
        assert 0 < line["milliseconds"]["p50"] < client["milliseconds"]["max"]
        assert detector["milliseconds"]["p50"] > 0
    assert "products/default/references" in found["settings"]["camera"]


@pytest.mark.full
def test_a_line_is_measured_beside_a_page_that_is_flooded(bundle: Path) -> None:
    options = ("--line", "--flood", "--frames", "3", "--warmup", "1", "--json")
    found = ok("bench", str(bundle), *options).json
    buses = [row["bus"] for row in found["rows"][::3]]
    assert buses == ["tcp", "modbus", "tcp, page flooded", "modbus, page flooded"]
    assert "x 200" in found["settings"]["flood"]


def test_a_flood_belongs_to_a_line(bundle: Path) -> None:
    assert "--flood belongs to --line" in fails(2, "bench", str(bundle), "--flood")


def test_a_part_that_was_not_judged_is_an_error(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def __init__(self, *_: object) -> None:
            self.parts = {1: type("Times", (), {"detector": 0})()}

        def start(self) -> None: ...
        def stop(self) -> None: ...

    monkeypatch.setattr("anoco_edge.line.bench.latency._MeasuredStation", Silent)
    monkeypatch.setattr("anoco_edge.line.bench.latency._run_clients", lambda *_: [])
    config = station_config(bundle, None, "rendered:washer", "out")
    with pytest.raises(Exception, match="1 parts were not judged"):
        bench_line(config, tmp_path, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--profile"], "--profile does not go with it"),
        (["--engine", "openvino"], "--engine does not go with it"),
        (["--pictures", "."], "a bundle and one folder"),
    ],
)
def test_what_does_not_go_with_it(options: list[str], words: str) -> None:
    assert words in " ".join(fails(2, "bench", "--line", *options).split())
