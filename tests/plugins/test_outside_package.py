"""Another package adds an engine, a scorer and a source, and the commands offer them.

The test writes the package as pip would install it: modules, and a dist-info folder whose
entry_points.txt names the specs. PYTHONPATH makes both visible to a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PATIENCE, environment
from tiny_bundle import make_tiny_bundle, write_good_pictures

MODULES = {
    "outside_specs.py": """
from anoco_edge.engines import EngineSpec
from anoco_edge.scoring import ScorerSpec
from anoco_edge.sources import SourceSpec

ENGINE = EngineSpec("my-engine", "outside_engine")
SOURCE = SourceSpec(
    "my-source",
    "outside_source",
    matches=lambda text: text.startswith("mine://"),
    accepts="a made-up address (mine://2)",
    as_input=True,
    live=False,
)

def scorer():
    return ScorerSpec("my-scorer", "outside_scorer")
""",
    "outside_engine.py": """
from anoco_edge.engines import open_engine as open_ours

class MyEngine:
    name = "my-engine"

    def __init__(self, bundle, settings):
        self._ours = open_ours("onnxruntime", bundle, settings)
        self.fingerprint = f"my-engine|{self._ours.fingerprint}"

    def features(self, pixels):
        return self._ours.features(pixels)

def open_engine(name, bundle, settings):
    return MyEngine(bundle, settings)
""",
    "outside_scorer.py": """
from anoco_edge.scoring.reference import ReferenceScorer

class MyScorer(ReferenceScorer):
    name = "my-scorer"

def open_scorer(bank, parameters, options):
    return MyScorer(bank, parameters)
""",
    "outside_source.py": """
import numpy as np
from anoco_edge.images.frame import Frame
from anoco_edge.sources.base import Closeable

class MySource(Closeable):
    live = False
    skipped = 0

    def __init__(self, address, limit):
        self.name = address
        self.total = int(address.removeprefix("mine://"))

    def __iter__(self):
        for index in range(self.total):
            rgb = np.full((80, 96, 3), 40 * index, np.uint8)
            yield Frame(f"{self.name}#{index}", index, rgb, None, 0.0, 0.0)

    def close(self):
        pass

def open_source(inputs, *, limit, timeout):
    return MySource(inputs[0], limit)
""",
}
WORKING = """
[anoco_edge.engines]
my-engine = outside_specs:ENGINE
[anoco_edge.scorers]
my-scorer = outside_specs:scorer
[anoco_edge.sources]
my-source = outside_specs:SOURCE
"""
BROKEN = """
[anoco_edge.engines]
lost-engine = no_such_module:SPEC
onnxruntime = outside_specs:ENGINE
[anoco_edge.scorers]
wrong-scorer = outside_specs:ENGINE
[anoco_edge.sources]
lost-source = outside_specs:NOTHING
"""


def install(folder: Path, entry_points: str) -> dict[str, str]:
    """Write the package into a folder, and return the environment in which Python finds it."""
    for name, text in MODULES.items():
        folder.joinpath(name).write_text(text)
    facts = folder / "outside_parts-1.0.dist-info"
    facts.mkdir()
    facts.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\nName: outside-parts\nVersion: 1.0\n"
    )
    facts.joinpath("entry_points.txt").write_text(entry_points)
    base = environment()
    return {**base, "PYTHONPATH": os.pathsep.join([str(folder), base["PYTHONPATH"]])}


def run(env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anoco_edge", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=env,
        timeout=PATIENCE,
    )


def findings(env: dict[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    done = run(env, "doctor", "--no-camera", "--json")
    assert done.returncode == 0, done.stderr
    return {(row["group"], row["name"]): row for row in json.loads(done.stdout)}


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """Write a bundle that knows two good parts."""
    bundle = make_tiny_bundle(tmp_path / "line.anoco").path
    good = write_good_pictures(tmp_path / "good", 2)
    done = run(environment(), "enroll", bundle, *good)
    assert done.returncode == 0, done.stderr
    return bundle


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_doctor_examines_what_another_package_adds(package: Path) -> None:
    found = findings(install(package, WORKING))
    assert found["engines", "my-engine"]["state"] == "ok"
    assert found["scorers", "my-scorer"]["state"] == "ok"
    assert found["scorers", "my-scorer"]["detail"] == "scored three patches"
    assert found["sources", "my-source"]["state"] == "ok"
    assert "mine://2" in found["sources", "my-source"]["detail"]


def test_infer_and_bench_use_them(package: Path, line: Path, tmp_path: Path) -> None:
    env = install(package, WORKING)
    ours = ("--engine", "my-engine", "--scorer", "my-scorer")
    done = run(env, "infer", line, "mine://2", *ours, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["results"]
    assert [row["source"] for row in rows] == ["mine://2#0", "mine://2#1"]
    assert all(row["score"] > 0 for row in rows)

    done = run(env, "bench", line, *ours, "--frames", 2, "--warmup", 0, "--json")
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)["settings"]
    assert settings["engine"] == "my-engine (asked for)"
    assert settings["scorer"] == "my-scorer (asked for)"


def test_help_and_errors_name_them(package: Path, line: Path) -> None:
    env = {**install(package, WORKING), "COLUMNS": "200"}
    text = run(env, "infer", "--help").stdout
    assert "my-engine" in text and "my-scorer" in text
    done = run(env, "infer", line, "mine://2", "--engine", "your-engine")
    assert done.returncode == 2
    assert "unknown engine 'your-engine'; use auto or one of" in done.stderr
    assert "my-engine" in done.stderr


def test_doctor_names_what_is_broken(package: Path) -> None:
    found = findings(install(package, BROKEN))
    assert found["engines", "lost-engine"]["state"] == "broken"
    assert "no_such_module" in found["engines", "lost-engine"]["detail"]
    assert "outside-parts" in found["engines", "lost-engine"]["detail"]
    assert found["engines", "lost-engine"]["help"]
    assert "not a ScorerSpec" in found["scorers", "wrong-scorer"]["detail"]
    assert found["sources", "lost-source"]["state"] == "broken"


def test_everything_else_works_beside_a_broken_package(
    package: Path, line: Path, tmp_path: Path
) -> None:
    env = install(package, BROKEN)
    pictures = sorted((tmp_path / "good").iterdir())
    done = run(env, "infer", line, pictures[0], "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    done = run(env, "infer", line, pictures[0], "--engine", "lost-engine")
    assert done.returncode == 3
    assert "engine 'lost-engine' comes from a package that cannot be used" in done.stderr
