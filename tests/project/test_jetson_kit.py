"""Everything in examples/jetson that can be checked without a Jetson is checked here."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import fails
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from paths import ROOT, RUNTIME
from stream_servers import SYSTEM_PYTHON

from anoco_edge_export.onnx_graph import INPUT, OUTPUT

KIT = ROOT / "examples/jetson"
GUIDE = ROOT / "docs/guides/jetson.md"
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def camera_calls() -> list[list[str]]:
    """List every `anoco-edge infer ... --camera "pipeline"` of the guide and of the unit."""
    texts = (GUIDE.read_text(), (KIT / "anoco-edge.service").read_text())
    lines = [
        line for text in texts for line in text.splitlines() if "nvarguscamerasrc sensor" in line
    ]
    return [shlex.split(line[line.index("infer") :]) for line in lines]


def test_the_exact_camera_call_gets_as_far_as_this_opencv(here: Path) -> None:
    calls = camera_calls()
    assert len(calls) == 2 and calls[0][-1] == calls[1][-1], "one pipeline, in both places"
    for call in calls:
        assert call[call.index("--runtime") + 1] == "native"
        call[call.index("tensorrt")] = "openvino"
        assert "GStreamer" in fails(3, *call)


# Runs a pipeline with software in place of NVIDIA's elements until appsink has a picture.
_ONE_PICTURE = """
import sys, gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
pipeline = Gst.parse_launch(sys.argv[1])
sink = pipeline.get_by_name("sink")
pipeline.set_state(Gst.State.PLAYING)
caps = sink.emit("pull-sample").get_caps().get_structure(0)
print(caps.get_string("format"), caps.get_int("width")[1], caps.get_int("height")[1])
pipeline.set_state(Gst.State.NULL)
"""


def test_the_camera_pipeline_scales_before_the_processor_converts() -> None:
    pipeline = camera_calls()[0][-1]
    camera, memory, scaler, small, *rest = pipeline.split(" ! ")
    assert camera.startswith("nvarguscamerasrc") and "memory:NVMM" in memory
    assert scaler.startswith("nvvidconv") and rest[0] == "videoconvert"
    wide, high = (int(re.search(rf"{name}=(\d+)", small)[1]) for name in ("width", "height"))  # type: ignore[index]
    assert wide % 2 == high % 2 == 0 and wide * high < 1920 * 1080 * 0.6
    software = {
        camera: "videotestsrc num-buffers=3",
        memory: memory.replace("(memory:NVMM)", ""),
        scaler: "videoscale ! videoconvert",
        rest[-1]: f"{rest[-1]} name=sink",
    }
    plain = " ! ".join(software.get(part, part) for part in pipeline.split(" ! "))
    try:
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", _ONE_PICTURE, plain], capture_output=True, text=True, timeout=60
        )
    except OSError as error:
        pytest.skip(f"there is no GStreamer: {error}")
    if "Namespace Gst not available" in done.stderr or "No module named 'gi'" in done.stderr:
        pytest.skip("Debian's GStreamer bindings are not installed")
    assert done.stdout.split() == ["BGR", str(wide), str(high)], done.stderr


def test_the_guide_and_the_kit_name_the_same_files() -> None:
    listed = re.findall(r"\]\(([\w.-]+)\)", (KIT / "README.md").read_text())
    assert sorted(listed) == sorted(p.name for p in KIT.iterdir() if p.name != "README.md")
    unit = (KIT / "anoco-edge.service").read_text()
    for path in ("/opt/anoco/bin/anoco-edge", "XDG_CACHE_HOME=/var/lib/anoco-edge/cache"):
        assert path in unit and path in GUIDE.read_text(), path


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


def test_the_deepstream_program_compiles_where_its_headers_are(tmp_path: Path) -> None:
    """ANOCO_DEEPSTREAM_INCLUDE names the folders of the headers of DeepStream and GStreamer."""
    folders = os.environ.get("ANOCO_DEEPSTREAM_INCLUDE")
    if folders is None or (compiler := shutil.which("cc")) is None:
        pytest.skip("ANOCO_DEEPSTREAM_INCLUDE names no headers, so the program was not compiled")
    include = [word for folder in folders.split(os.pathsep) for word in ("-isystem", folder)]
    ours = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", RUNTIME / "include")
    done = subprocess.run(
        [compiler, *ours, *include, KIT / "deepstream_app.c"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_deepstream_page_names_what_there_is() -> None:
    page = (KIT / "deepstream.md").read_text()
    headers = [
        (RUNTIME / "include" / name).read_text() for name in ("anoco_cuda.h", "anoco_edge.h")
    ]
    for name in set(re.findall(r"`(anoco_\w+)", page)) - {"anoco_edge", "anoco_cuda"}:
        assert any(name in text for text in headers), name


def test_deepstream_is_given_what_the_graph_takes() -> None:
    infer, prepare = configparser.ConfigParser(), configparser.ConfigParser()
    infer.read(KIT / "deepstream_nvinfer.txt")
    prepare.read(KIT / "deepstream_preprocess.txt")
    model, tensor = infer["property"], prepare["property"]
    assert "onnx-file" not in model, "nvinfer would build a weakly typed plan in silence"
    assert (model["net-scale-factor"], model["offsets"]) == ("1.0", "0;0;0")
    assert prepare["user-configs"]["pixel-normalization-factor"] == "1.0"
    assert tensor["tensor-data-type"] == "0", "float32"
    assert model["network-input-order"] == tensor["network-input-order"] == "0", "NCHW"
    assert model["model-color-format"] == tensor["network-color-format"] == "0", "RGB"
    assert tensor["network-input-shape"] == f"{model['batch-size']};{model['infer-dims']}"
    assert (tensor["tensor-name"], model["output-blob-names"]) == (INPUT, OUTPUT)


# ---- what pip installs

JETPACKS = {"6": "3.10", "7": "3.12"}
"""The Python of each JetPack."""


def requirements(machine: str, python: str, *extras: str) -> dict[str, SpecifierSet]:
    """Return what pyproject.toml asks for on a machine that is not this one."""
    tomllib = pytest.importorskip("tomllib")  # new in Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    there = {"platform_machine": machine, "python_version": python, "extra": ""}
    found: dict[str, SpecifierSet] = {}
    queue, seen = list(project["dependencies"]), set(extras)
    queue += [line for extra in extras for line in project["optional-dependencies"][extra]]
    while queue:
        one = Requirement(queue.pop())
        if one.marker is not None and not one.marker.evaluate(there):
            continue
        if one.name == "anoco-edge":
            for extra in one.extras - seen:
                queue += project["optional-dependencies"][extra]
            seen |= one.extras
        else:
            found[one.name] = found.get(one.name, SpecifierSet()) & one.specifier
    return found


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
@pytest.mark.parametrize("extra", ["tensorrt", "rtx", "jetson"])
def test_no_device_needs_a_package_to_reach_its_gpu(extra: str, machine: str) -> None:
    """The library of the driver is called without one."""
    found = requirements(machine, "3.12", extra)
    assert "numpy" in found, "the base is there"
    assert not [name for name in found if "cuda" in name.replace("tensorrt-rtx-cu13", "")]


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_the_binding_of_cuda_runs_with_the_drivers_of_its_machine(machine: str) -> None:
    wanted = requirements(machine, "3.11", "cuda-python")["cuda-bindings"]
    assert "12.9.1" in wanted, "which runs with every driver from CUDA 12 on"
    # JetPack 6 has CUDA 12.6, but torch for x86_64 needs CUDA 13.
    assert ("13.0.3" in wanted) == (machine == "x86_64")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    here = {"platform_machine": machine}
    lines = map(Requirement, (line for line in pins if line.startswith("cuda-bindings")))
    (pinned,) = (r for r in lines if r.marker is None or r.marker.evaluate(here))
    (pin,) = pinned.specifier
    assert pin.version in wanted


@pytest.mark.parametrize("jetpack", JETPACKS)
def test_the_opencv_of_a_jetpack_keeps_its_numpy(jetpack: str) -> None:
    python = JETPACKS[jetpack]
    found = requirements("aarch64", python, "jetson")
    assert {"onnxruntime", "av"} <= set(found)
    assert "1.26.4" in found["numpy"] and "2.2.6" not in found["numpy"]
    assert not [name for name in found if "opencv" in name or "tensorrt" in name]
    # Who asks for other extras on JetPack 6 keeps a camera that works, too.
    assert "2.2.6" not in requirements("aarch64", "3.10", "cpu", "tensorrt", "video")["numpy"]
    for machine, other in (("x86_64", "3.10"), ("x86_64", "3.12"), ("aarch64", "3.12")):
        assert "2.2.6" in requirements(machine, other, "cpu")["numpy"]


@pytest.mark.full
@pytest.mark.parametrize("jetpack", JETPACKS)
def test_what_an_index_gives_a_jetpack(jetpack: str, tmp_path: Path) -> None:
    """Resolve for the device, transitive requirements and wheels included, and install nothing."""
    if importlib.util.find_spec("uv") is None:
        pytest.skip("uv is not installed, so nothing was resolved for aarch64")
    there = ("--python-platform", "aarch64-manylinux_2_35", "--python-version", JETPACKS[jetpack])
    quiet = ("--quiet", "--no-annotate", "--no-header", "--no-build")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", *quiet, *there),
            *(ROOT / "pyproject.toml", "--extra", "jetson"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip("no package index answers")
    assert done.returncode == 0, done.stderr
    versions = dict(line.split("==") for line in done.stdout.split())
    assert versions["numpy"] == "1.26.4"
    assert not [name for name in versions if "cuda" in name]
    # The newest ONNX Runtime for Python 3.10; exported graphs have IR version 10 for it.
    assert (versions["onnxruntime"] == "1.23.2") == (jetpack == "6")


def test_the_container_builds_on_the_base_of_either_jetpack() -> None:
    text = (KIT / "Dockerfile").read_text()
    assert "/src[jetson]" in text and "ANOCO_EDGE_NATIVE=required" in text
    assert "l4t-tensorrt:r10.3.0-devel" in text and "tensorrt:YY.MM-py3" in text
    assert "ENV PIP_CONSTRAINT=\n" in text, "NVIDIA's images pin NumPy"
