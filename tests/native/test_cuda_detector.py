"""The native detector gives the same results on the simulated CUDA driver as on the CPU.

The engine is OpenVINO on the CPU, so its features are copied; runtime/tests/gpu has engines whose
features stay on the device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import environment, ok, run_process
from filled_bundle import make_filled_bundle
from product_kinds import PRODUCTS, assert_same_inspection, defective_part, good_parts
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.detector import Detector
from anoco_edge.diagnostics import doctor
from anoco_edge.errors import PictureError
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.teaching import NewPicture, Teacher

pytestmark = pytest.mark.usefixtures("use_simulated_driver")

KINDS = ("plain", "mask", "tiles", "baseline", "paper-tiles", "any-size", "smooth", "smooth-tiles")


def teach(path: Path) -> Path:
    teacher = Teacher.open(path)
    for name in KINDS:
        teacher.enroll(good_parts(0, 1), name, PRODUCTS[name])
    others = [NewPicture.from_array(f"c{s}.png", textured_picture(s)) for s in range(100, 109)]
    teacher.calibrate(others, "baseline", false_reject=0.2, sigmas=1.5)
    return path


@pytest.fixture(scope="module")
def stretched(tmp_path_factory: pytest.TempPathFactory, use_simulated_driver: Path) -> Path:
    return teach(make_tiny_bundle(tmp_path_factory.mktemp("cuda") / "line.anoco").path)


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory, use_simulated_driver: Path) -> Path:
    return teach(
        make_filled_bundle(tmp_path_factory.mktemp("cuda") / "line.anoco", fit="letterbox").path
    )


def both(path: Path, product: str) -> tuple[Detector, Detector]:
    on_device, on_cpu = (
        Detector.open(path, product, scorer=scorer, runtime="native")
        for scorer in ("cuda", "native")
    )
    assert on_device.choices["scorer"] == ("cuda", "asked for")
    return on_device, on_cpu


@pytest.mark.parametrize("fit", ["stretched", "boxed"])
@pytest.mark.parametrize("product", KINDS)
def test_every_product_is_inspected_as_on_the_cpu(
    request: pytest.FixtureRequest, fit: str, product: str
) -> None:
    on_device, on_cpu = both(request.getfixturevalue(fit), product)
    pictures = [textured_picture(20), defective_part(31), np.full((80, 96, 3), 7, np.uint8)]
    if product == "any-size":  # with a letterbox, other patches are scored each time
        pictures += [defective_part(33, 130, 60), textured_picture(21, 60, 75), defective_part(34)]
    for rgb in pictures:
        assert_same_inspection(on_device.inspect(rgb), on_cpu.inspect(rgb))


def test_what_is_refused_on_the_cpu_is_refused_here(stretched: Path) -> None:
    on_device, _ = both(stretched, "plain")
    found = list(on_device.inspect_many([np.zeros((40, 200, 3), np.uint8), defective_part(31)], 2))
    assert isinstance(found[0], PictureError) and isinstance(found[1], Inspection)


def test_pythons_own_road_scores_on_the_device(stretched: Path) -> None:
    on_device, expected = (
        Detector.open(stretched, "mask", "onnxruntime", scorer).inspect(defective_part(31))
        for scorer in ("cuda", "native")
    )
    assert_same_inspection(on_device, expected)


# The commands run in their own processes where the environment differs.


def test_infer_bench_and_doctor(stretched: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(defective_part(31)).save(tmp_path / "bad.png")
    rows = {}
    for scorer in ("cuda", "native"):
        ran = ok(
            *("infer", stretched, tmp_path / "bad.png", "--product", "plain", "--json"),
            *("--runtime", "native", "--scorer", scorer),
        )
        (rows[scorer],) = json.loads(ran.out)["results"]
    assert rows["cuda"]["verdict"] == rows["native"]["verdict"] == "anomalous"
    assert rows["cuda"]["score"] == pytest.approx(rows["native"]["score"], rel=1e-4)

    ran = ok("bench", "--scoring", "12x40x8", "--scorers", "cuda,native", "--repeat", 1, "--json")
    found = {row["name"]: row for row in json.loads(ran.out)["rows"]}
    assert found["cuda"]["disagree"] == 0 and found["cuda"]["budget_mb"] > 256
    assert found["cuda"]["extra_mb"] > 4, "the device's, of which cuBLAS has most"
    assert found["cuda"]["retrieval"] is None  # its kernels are not timed one by one

    (finding,) = (f for f in doctor.scorer_findings() if f.name == "cuda")
    assert finding.state == "ok" and "Simulated device" in finding.detail


WAITING = """
import ctypes, os, sys
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings
_, path, runtime, scorer, sleeps = sys.argv
driver = ctypes.CDLL(os.environ["ANOCO_CUDA_DRIVER"])
settings = EngineSettings(blocking_sync=sleeps == "True")
detector = Detector.open(path, "plain", scorer=scorer, runtime=runtime, settings=settings)
flags, active = ctypes.c_uint(), ctypes.c_int()
assert driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) == 0
print(flags.value)
other = {"python": "native", "native": "python"}[runtime]
Detector.open(path, "plain", scorer=scorer, runtime=other, settings=settings)
"""


@pytest.mark.parametrize("runtime", ["python", "native"])
@pytest.mark.parametrize(
    ("scorer", "sleeps", "flags"),
    [
        ("cuda", True, 4),
        pytest.param("cuda", False, 0, marks=pytest.mark.full),
        pytest.param("native", True, 0, marks=pytest.mark.full),
    ],
)
def test_threads_sleep_while_they_wait_if_that_is_asked_for(
    stretched: Path, runtime: str, scorer: str, sleeps: bool, flags: int
) -> None:
    """The flag of CUDA (4) is set before anything uses the device, and only if something does.

    A second detector finds it set; older drivers, as the simulated one, would not change it.
    """
    done = subprocess.run(
        [sys.executable, "-c", WAITING, stretched, runtime, scorer, str(sleeps)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"{flags}\n"), done.stderr


def test_without_a_driver(stretched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOCO_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    assert os.environ["ANOCO_EDGE_LIBRARY"]
    for runtime in ("native", "python"):
        ran = run_process(
            *("infer", stretched, tmp_path, "--product", "plain", "--scorer", "cuda"),
            *("--runtime", runtime),
        )
        assert ran.code == 3, ran.err
        assert "the CUDA driver cannot be loaded" in ran.complaint
    ran = run_process("doctor", "--json")
    (finding,) = (f for f in json.loads(ran.out) if (f["group"], f["name"]) == ("scorers", "cuda"))
    assert finding["state"] == "absent" and "cannot be loaded" in finding["detail"]


LOST = """
import ctypes, gc, os, sys
import numpy as np
from anoco_edge.detector import Detector
from anoco_edge.errors import AnocoError

def open_it():
    return Detector.open(sys.argv[1], "plain", scorer="cuda", runtime="native")

rgb = np.random.default_rng(0).integers(0, 255, (80, 96, 3), np.uint8)
detector = open_it()
expected = detector.inspect(rgb).energy
ctypes.CDLL(os.environ["ANOCO_CUDA_DRIVER"]).simcuda_lose(ctypes.c_int64(5))
for _ in range(2):
    try:
        detector.inspect(rgb)
    except AnocoError as error:
        print(error)
del detector
gc.collect()
print("the same", np.array_equal(open_it().inspect(rgb).energy, expected))
"""


def test_a_lost_device_stops_the_line_until_a_new_detector_is_made(stretched: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, stretched], capture_output=True, text=True, env=environment()
    )
    *told, same = done.stdout.splitlines()
    assert same == "the same True" and len(told) == 2, done.stdout + done.stderr
    for line in told:
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in line and "make a new detector" in line
