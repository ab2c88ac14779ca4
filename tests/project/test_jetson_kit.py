"""Everything in examples/jetson that can be checked without a Jetson is checked here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import fails, run_cli
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from paths import ROOT

KIT = ROOT / "examples/jetson"
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def camera_calls() -> list[list[str]]:
    """List every `anoco-edge infer ... --camera "pipeline"` of the kit."""
    texts = [(KIT / name).read_text() for name in ("README.md", "anoco-edge.service")]
    lines = [
        line for text in texts for line in text.splitlines() if "nvarguscamerasrc sensor" in line
    ]
    return [shlex.split(line[line.index("infer") :]) for line in lines]


def test_the_exact_camera_call_gets_as_far_as_this_opencv(here: Path) -> None:
    calls = camera_calls()
    assert len(calls) == 2 and calls[0][-1] == calls[1][-1], "one pipeline, in both places"
    for call in calls:
        call[call.index("tensorrt")] = "onnxruntime"
        assert call[-1].split(" ! ")[-1].startswith("appsink")
        assert "GStreamer" in fails(3, *call)


def test_commands_of_the_readme_exist() -> None:
    text = (KIT / "README.md").read_text()
    commands = set(re.findall(r"anoco-edge ([a-z][a-z-]+) (?:line\.anoco|doctor)", text))
    assert commands >= {"build", "device-report", "infer"}
    for command in commands:
        assert run_cli(command, "--help").code == 0, command


def test_the_dockerfile_copies_what_is_there_and_names_no_registry() -> None:
    text = (KIT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists(), name
    assert "FROM ${BASE}\n" in text
    assert not re.search(r"\b[a-z0-9-]+\.(io|com|org)/", text)


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_deepstream_part_compiles(language: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc" if language == "c" else "c++")
    if compiler is None:
        pytest.skip(f"there is no {language} compiler")
    standard = "-std=c99" if language == "c" else "-std=c++17"
    done = subprocess.run(
        [
            compiler,
            "-x",
            language,
            standard,
            *WARNINGS,
            "-c",
            str(KIT / "deepstream.c"),
            f"-I{ROOT / 'runtime/include'}",
            "-o",
            str(tmp_path / "o"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_deepstream_page_calls_what_the_file_has() -> None:
    page, code = (KIT / "deepstream.md").read_text(), (KIT / "deepstream.c").read_text()
    called = set(re.findall(r"line_scorer_\w+", page))
    assert called and all(re.search(rf"^\w+ {name}\(", code, re.MULTILINE) for name in called)
    header = (ROOT / "runtime/include/anoco_cuda.h").read_text()
    plain = (ROOT / "runtime/include/anoco_edge.h").read_text()
    for name in set(re.findall(r"`(anoco_\w+)", page)) - {"anoco_edge", "anoco_cuda"}:
        assert name in header + plain, name


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_the_binding_of_cuda_runs_with_the_drivers_of_its_machine(machine: str) -> None:
    tomllib = pytest.importorskip("tomllib")  # new in Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    here = {"platform_machine": machine}

    def chosen(lines: list[str]) -> SpecifierSet:
        found = [r for line in lines if (r := Requirement(line)).name == "cuda-bindings"]
        (one,) = (r for r in found if r.marker is None or r.marker.evaluate(here))
        return one.specifier

    wanted = chosen(project["optional-dependencies"]["tensorrt"])
    assert "12.9.1" in wanted, "which runs with every driver from CUDA 12 on"
    # JetPack 6 has CUDA 12.6, but torch for x86_64 needs CUDA 13.
    assert ("13.0.3" in wanted) == (machine == "x86_64")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (pin,) = chosen([line for line in pins if line.startswith("cuda-bindings")])
    assert pin.version in wanted
    assert "[cpu,tensorrt,video]" in (KIT / "Dockerfile").read_text()
