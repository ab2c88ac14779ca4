"""The native library runs backbones with OpenVINO as Python does, and its errors are clear."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from paths import RUNTIME
from tiny_bundle import textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.engines.openvino import options, pick_device

INTERNAL, BAD_BUNDLE, NO_BACKEND, ENGINE = 6, 7, 10, 12
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="module")
def openvino() -> Path:
    """Return the folder of OpenVINO's Python package."""
    spec = find_spec("openvino")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("openvino is not installed")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture
def run(native_build: Path, openvino: Path, tiny_bundle: Bundle) -> Run:
    """Return `run(pictures)`, which runs runtime/tests/run_backbone and returns its features."""

    program = native_build / "tests/run_backbone"

    def runs(
        pixels: NDArray[np.uint8] | None = None,
        *,
        graph: Path = tiny_bundle.path / "backbone.onnx",
        size: tuple[int, int] = (64, 64),
        patches: int = 16,
        dim: int = 8,
        device: str = "CPU",
        library: Path | str = openvino / "libs",
        threads: int = 0,
        **environment: str,
    ) -> subprocess.CompletedProcess[bytes]:
        numbers = map(str, (*size, patches, dim))
        done = subprocess.run(
            [program, graph, *numbers, device, library, str(threads)],
            input=b"" if pixels is None else pixels.tobytes(),
            capture_output=True,
            env={**os.environ, **environment},
        )
        if b"built without OpenVINO" in done.stderr:
            pytest.skip("the native library was built without OpenVINO's headers")
        return done

    return runs


def refused(done: subprocess.CompletedProcess[bytes], status: int) -> str:
    """Run it, expect a failure, and return the one line that says why."""
    assert (done.returncode, done.stdout) == (status, b""), done.stderr
    text = done.stderr.decode()
    assert text.startswith("openvino on ") and text.count("\n") == 1, text
    return text


@pytest.mark.parametrize(("device", "threads"), [("CPU", 1), ("cpu", 2), ("", 0), ("AUTO", 0)])
def test_features_are_those_of_the_python_engine(
    run: Run, tiny_bundle: Bundle, device: str, threads: int
) -> None:
    """They are equal bit for bit, pictures do not mix, and nothing is printed."""
    pictures = np.stack([textured_picture(k, 64, 64) for k in range(3)])
    done = run(pictures, device=device, threads=threads)
    assert (done.returncode, done.stderr) == (0, b"")
    settings = EngineSettings(threads=threads, device=device or "CPU")
    expected = open_engine("openvino", tiny_bundle, settings).features(pictures)
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), expected.ravel())
    assert not np.array_equal(expected[0], expected[1])


def test_the_library_is_a_file_a_folder_or_in_the_environment(run: Run, openvino: Path) -> None:
    folder = openvino / "libs"
    (file,) = folder.glob("libopenvino_c.so*")
    for place in (folder, file):
        assert run(library=place).returncode == 0
        assert run(library="", ANOCO_OPENVINO_LIBRARY=str(place)).returncode == 0
    # The path that the caller names is tried first.
    text = refused(run(library="/nowhere", ANOCO_OPENVINO_LIBRARY=str(folder)), NO_BACKEND)
    assert "/nowhere: cannot open" in text


def test_no_library(run: Run, tmp_path: Path) -> None:
    """The message lists what was tried, and says what to do."""
    text = refused(run(library="", LD_LIBRARY_PATH="", ANOCO_OPENVINO_LIBRARY=""), NO_BACKEND)
    assert "libopenvino_c.so: cannot open" in text and "pip install openvino" in text
    assert re.search(r"libopenvino_c\.so\.\d+: cannot open", text)
    assert f"no libopenvino_c.so in {tmp_path}" in refused(run(library=tmp_path), NO_BACKEND)


def test_a_folder_means_its_newest_library(run: Run, tmp_path: Path) -> None:
    for suffix in ("", ".2541", ".2641", ".999"):
        (tmp_path / f"libopenvino_c.so{suffix}").write_text("not a library")
    assert f"{tmp_path}/libopenvino_c.so.2641: " in refused(run(library=tmp_path), NO_BACKEND)


@pytest.fixture
def fake(tmp_path: Path, openvino: Path, run: Run) -> Run:
    """Return `run` with a library whose devices and versions this machine does not have."""
    library = tmp_path / "libfake.so"

    def runs(*, without: str = "", **how: Any) -> subprocess.CompletedProcess[bytes]:
        hidden = [f"-D{without}=gone"] if without else []
        flags = ["-shared", "-fPIC", "-fexceptions", f"-I{openvino}/include", *hidden]
        in_c = ["-x", "c", str(RUNTIME / "tests/fake_openvino.c")]
        in_cpp = ["-x", "c++", str(RUNTIME / "tests/throw_number.cpp")]
        subprocess.run(["c++", *flags, *in_c, *in_cpp, "-o", str(library)], check=True)
        defaults = {"FAKE_VERSION": "2026.1.0-1-abc", "FAKE_DEVICES": "CPU", "FAKE_SHIFT": "0"}
        return run(library=library, **{**defaults, **how})

    return runs


def test_an_exception_of_unknown_type_becomes_a_status(fake: Run) -> None:
    """A library that throws something other than a std::exception does not end the process."""
    text = refused(fake(FAKE_THROW="1"), INTERNAL)
    assert "an exception of unknown type was thrown" in text


@pytest.mark.parametrize("version", ["2023.3.0", "2024.5.0", "nonsense"])
def test_a_version_that_is_too_old(fake: Run, version: str) -> None:
    text = refused(fake(FAKE_VERSION=f"{version}-1-abc"), NO_BACKEND)
    assert f"OpenVINO {version} is too old: 2024.6 or newer" in text


def test_a_version_that_lacks_a_function(fake: Run) -> None:
    text = refused(fake(without="ov_tensor_data"), NO_BACKEND)
    assert "this version of OpenVINO has no function ov_tensor_data" in text


@pytest.mark.parametrize(
    ("found", "asked", "threads"),
    [
        ("CPU,GPU", "AUTO", 0),
        ("CPU,GPU.0,GPU.1", "auto", 2),
        ("CPU,GPU.0,GPU.1", "GPU", 0),
        ("CPU,GPU.0,GPU.1", "GPU.1", 0),
        ("CPU,NPU", "npu", 2),
        ("CPU,NPU", "AUTO", 0),
        ("CPU", "CPU", 3),
    ],
)
def test_devices_and_options_are_those_of_the_python_engine(
    fake: Run, found: str, asked: str, threads: int
) -> None:
    device = pick_device(asked, found.split(","))
    chosen = [f"{key}={value}" for key, value in options(device, threads).items() if value]
    text = refused(fake(FAKE_DEVICES=found, device=asked, threads=threads), ENGINE)
    assert f": {device} {' '.join(chosen)}; try another device" in text


@pytest.mark.parametrize(("shift", "accepted"), [(-1, True), (1, True), (2, False)])
def test_numbers_of_types_differ_between_versions(fake: Run, shift: int, accepted: bool) -> None:
    """UNDEFINED was removed from the list in 2025, and everything after it moved by one."""
    done = fake(FAKE_SHIFT=str(shift))
    text = refused(done, ENGINE if accepted else BAD_BUNDLE)
    assert ("cannot compile" if accepted else "not of type uint8") in text


def test_an_exception_that_nobody_expects_does_not_end_the_program(fake: Run) -> None:
    """No vector can hold this shape: std::length_error is neither our error nor bad_alloc."""
    assert "vector" in refused(fake(FAKE_RANK=str(2**60)), INTERNAL)


def test_a_device_that_is_not_there(run: Run) -> None:
    text = refused(run(device="TOASTER"), NO_BACKEND)
    assert "openvino on TOASTER: " in text and "no device 'TOASTER' here: use CPU, " in text


def test_a_damaged_graph(run: Run, tiny_bundle: Bundle, tmp_path: Path) -> None:
    content = (tiny_bundle.path / "backbone.onnx").read_bytes()
    damaged = tmp_path / "damaged.onnx"
    cuts = [content[:length] for length in (0, 1, 9, len(content) // 2, len(content) - 1)]
    for bad in (*cuts, b"<html>Not found</html>", content + b"\x3a\xff\xff"):
        damaged.write_bytes(bad)
        assert f"{damaged} is not an ONNX graph" in refused(run(graph=damaged), BAD_BUNDLE)
    damaged.write_bytes(content.replace(b"AveragePool", b"AveragePoem"))
    text = refused(run(graph=damaged), BAD_BUNDLE)
    assert f"cannot read {damaged}, which is damaged or made for a newer version: " in text
    gone = tmp_path / "gone.onnx"
    assert f"{gone} cannot be read: No such file" in refused(run(graph=gone), BAD_BUNDLE)


def test_another_shape_than_the_manifest_says(run: Run) -> None:
    text = refused(run(dim=9), BAD_BUNDLE)
    assert "features are of shape [1, 16, 8], the manifest says [1, 16, 9]" in text
    text = refused(run(size=(32, 64)), BAD_BUNDLE)
    assert "features are of shape [1, 8, 8], the manifest says [1, 16, 8]" in text
    text = refused(run(size=(2, 2)), BAD_BUNDLE)
    assert "does not take pixels of shape [1, 2, 2, 3]: " in text
    assert "src/" not in text  # no places in OpenVINO's sources


def other_graph(bundle: Bundle, path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(bundle.path / "backbone.onnx")
    change(model)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("kind", ["FLOAT", "INT8", "UINT16", "BOOL"])
def test_pixels_of_another_type(run: Run, tiny_bundle: Bundle, tmp_path: Path, kind: str) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.DataType.Value(kind)

    graph = other_graph(tiny_bundle, tmp_path / "other.onnx", change)
    assert "pixels are not of type uint8" in refused(run(graph=graph), BAD_BUNDLE)


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "DOUBLE", "INT32", "UINT32"])
def test_features_of_another_type(run: Run, tiny_bundle: Bundle, tmp_path: Path, kind: str) -> None:
    number = TensorProto.DataType.Value(kind)

    def change(model: onnx.ModelProto) -> None:
        model.graph.node[-1].output[0] = "before"
        model.graph.node.append(helper.make_node("Cast", ["before"], ["features"], to=number))
        model.graph.output[0].type.tensor_type.elem_type = number

    graph = other_graph(tiny_bundle, tmp_path / "other.onnx", change)
    assert "features are not of type float32" in refused(run(graph=graph), BAD_BUNDLE)


def test_other_names(run: Run, tiny_bundle: Bundle, tmp_path: Path) -> None:
    def rename_output(model: onnx.ModelProto) -> None:
        model.graph.node[-1].output[0] = model.graph.output[0].name = "scores"

    def rename_input(model: onnx.ModelProto) -> None:
        model.graph.node[0].input[0] = model.graph.input[0].name = "image"

    graph = other_graph(tiny_bundle, tmp_path / "output.onnx", rename_output)
    assert "has no output 'features'" in refused(run(graph=graph), BAD_BUNDLE)
    graph = other_graph(tiny_bundle, tmp_path / "input.onnx", rename_input)
    assert "does not take pixels" in refused(run(graph=graph), BAD_BUNDLE)


def find_headers(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Return what runtime/cmake/FindOpenVINOC.cmake finds, as "<include> <soname>"."""
    script = folder / "find.cmake"
    script.write_text(
        "cmake_minimum_required(VERSION 3.22)\n"
        f'list(APPEND CMAKE_MODULE_PATH "{RUNTIME}/cmake")\n'
        "find_package(OpenVINOC MODULE QUIET)\n"
        'message("<${OPENVINO_C_INCLUDE_DIR}> <${OPENVINO_C_SONAME}>")\n'
    )
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    command = ["cmake", *options, "-P", str(script)]
    return subprocess.run(command, capture_output=True, text=True)


def test_where_a_build_finds_the_headers(openvino: Path, tmp_path: Path) -> None:
    """They are in the named folder, beside OpenVINO's CMake files, or in the Python package."""
    named = tmp_path / "named"
    for folder in (named, tmp_path / "system/include"):
        (folder / "openvino/c").mkdir(parents=True)
        (folder / "openvino/c/openvino.h").touch()
    python = f"-DPython_EXECUTABLE={sys.executable}"
    system = f"-DOpenVINO_DIR={tmp_path}/system/lib/cmake/openvino"
    (tmp_path / "system/lib/cmake/openvino").mkdir(parents=True)

    found = find_headers(tmp_path, f"-DANOCO_OPENVINO_INCLUDE={named}", system, python)
    assert f"<{named}> <libopenvino_c.so>" in found.stderr
    assert f"<{tmp_path}/system/include>" in find_headers(tmp_path, system, python).stderr
    (library,) = (openvino / "libs").glob("libopenvino_c.so*")
    found = find_headers(tmp_path, python)
    assert f"<{openvino}/include> <{library.name}>" in found.stderr

    assert "<> " in find_headers(tmp_path, "-DANOCO_OPENVINO_INCLUDE=OFF", system, python).stderr
    wrong = find_headers(tmp_path, "-DANOCO_OPENVINO_INCLUDE=/nowhere", python)
    assert wrong.returncode != 0 and "ANOCO_OPENVINO_INCLUDE is /nowhere" in wrong.stderr
