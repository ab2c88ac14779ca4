"""The flow of examples/node_red is the PLC of a station, with a reject rule of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from command_line import ok
from npm_packages import with_packages
from paths import EXAMPLES, SUPPORT
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.effects import Effect, RecordPart
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer

PATIENCE = 240.0
PARTS = 12
FLOW = EXAMPLES / "node_red/plc.json"
SLOW = """
[line]
deadline_ms = 60000
acquire_ms = 60000
hold_ms = 60000
judge_hang_ms = 120000
alive_ms = 60000
"""


def write_pictures(folder: Path) -> list[Path]:
    """Write three good pictures and, in another folder, two of them, one with a defect, and a good
    one that is not much like them."""
    good = [textured_picture(seed, 80, 80) for seed in range(3)]
    spoilt = good[0].copy()
    spoilt[30:50, 30:60] = 20
    for name, pictures in (
        ("good", good),
        ("parts", [good[1], spoilt, good[2], textured_picture(50, 80, 80)]),
    ):
        (folder / name).mkdir()
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / name / f"{number}.png")
    return sorted((folder / "good").iterdir())


def write_flow(folder: Path, **values: object) -> None:
    """Write the flow of the example with other values in the properties of its tab."""
    flow: list[dict[str, Any]] = json.loads(FLOW.read_text())
    (tab,) = [node for node in flow if node["type"] == "tab"]
    for entry in tab["env"]:
        entry["value"] = str(values.pop(entry["name"], entry["value"]))
    assert not values, "the flow does not know these"
    (folder / "flow.json").write_text(json.dumps(flow))


def decisions_of(program: Path, parts: int, port: int) -> list[dict[str, Any]]:
    """Run Node-RED until the flow has decided about this many parts."""
    file = program / "decisions.jsonl"
    command = [
        "node",
        "node_modules/node-red/red.js",
        "--userDir",
        ".",
        "--settings",
        "settings.js",
    ]
    environment = {**os.environ, "HOME": str(program), "PORT": str(port)}
    with (program / "log").open("w") as log:
        node = subprocess.Popen(command, cwd=program, stdout=log, stderr=log, env=environment)
        try:
            end = time.monotonic() + PATIENCE
            while not file.is_file() or len(file.read_text().splitlines()) < parts:
                assert node.poll() is None and time.monotonic() < end, (program / "log").read_text()
                time.sleep(0.1)
        finally:
            node.kill()
            node.wait()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_node_red_releases_and_rejects_by_its_own_rule(tmp_path: Path) -> None:
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", tmp_path / "line.anoco", *write_pictures(tmp_path))
    program = with_packages(SUPPORT / "node_red", tmp_path / "plc")
    port = free_port()
    text = EXAMPLE.replace("rendered:washer", "folder:parts")
    text = text.replace("port = 7700", f"port = {port}")
    recorded: list[Any] = []

    def watch(effect: Effect) -> None:
        if isinstance(effect, RecordPart) and effect.record.accepted:
            recorded.append(effect.record)

    config = parse_config(text + SLOW, "station.toml")
    server = LineServer(config, tmp_path, say=lambda _: None, watch=watch)
    server.start()
    try:
        # Good parts lie on both sides of this limit, so that the rule shows.
        limits = {"MOST_SCORE": 500, "ANSWER_MS": 120_000, "ALIVE_MS": 60_000}
        write_flow(program, STATION_PORT=port, PARTS=PARTS, **limits)
        decided = decisions_of(program, PARTS, free_port())
    finally:
        server.stop()
    assert [each["seq"] for each in decided] == list(range(1, PARTS + 1))
    assert [record.part_code for record in recorded] == [f"N{n}" for n in range(1, PARTS + 1)]
    for each, record in zip(decided, recorded, strict=True):
        wanted = record.verdict == "good" and round(1000 * record.ratio) <= limits["MOST_SCORE"]
        assert each["release"] == wanted, (each, record)
    assert {record.verdict for record in recorded} == {"good", "anomalous"}
    assert {each["why"] for each in decided} == {"", "defect", "too near the threshold"}
