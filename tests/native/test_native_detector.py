"""The native runtime gives Python's results for every kind of product, from any thread."""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok
from filled_bundle import make_filled_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from native_build import sanitized_build
from numpy.typing import NDArray
from paths import RUNTIME
from product_kinds import (
    HEIGHT,
    PRODUCTS,
    WIDTH,
    Pixels,
    assert_same_inspection,
    defective_part,
    good_parts,
)
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.documents import sealed_document
from anoco_edge.detector import Detector
from anoco_edge.diagnostics import doctor
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.selftest import ENERGY_LIMIT
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    EngineError,
    EnvironmentMissingError,
    ParityError,
    PictureError,
    ScoringError,
    StorageError,
    UsageError,
)
from anoco_edge.native import interface, library
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.native import OPENVINO_VARIABLE, NativePipeline, find_openvino
from anoco_edge.teaching import NewPicture, Teacher

pytestmark = pytest.mark.usefixtures("use_native")


def teach_all(bundle: Bundle) -> Path:
    """Teach every kind of product in one bundle."""
    teacher = Teacher.open(bundle.path)
    for name, how in PRODUCTS.items():
        teacher.enroll(good_parts(0, 1, 2), name, how)
    others = [NewPicture.from_array(f"c{s}.png", textured_picture(s)) for s in range(100, 109)]
    teacher.calibrate(others, "baseline", false_reject=0.2, sigmas=1.5)
    # It is calibrated with pictures that are not kept and then taught another, so it loses its
    # threshold.
    teacher.calibrate(others, "uncalibrated", false_reject=0.2, keep=False)
    teacher.enroll(good_parts(3), "uncalibrated")
    return bundle.path


@pytest.fixture(scope="module")
def stretched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach_all(make_tiny_bundle(tmp_path_factory.mktemp("native") / "line.anoco"))


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    return teach_all(make_filled_bundle(folder / "line.anoco", fit="letterbox"))


PICTURES = {
    "a reference": textured_picture(0),
    "good": textured_picture(20),
    "defective": defective_part(31),
    "two defects": np.maximum(defective_part(32), defective_part(32)[::-1, ::-1]),
    "smaller": textured_picture(21, 60, 50),
    "larger": defective_part(33, 230, 190),
    "black": np.full((HEIGHT, WIDTH, 3), 7, np.uint8),
}


@cache
def opened(path: Path, product: str, runtime: str, engine: str = "auto") -> Detector:
    return Detector.open(path, product, engine, runtime=runtime)  # type: ignore[arg-type]


def assert_alike(native: Detector, python: Detector, rgb: Pixels) -> None:
    """Check that both runtimes give the same result or the same error."""
    try:
        expected = python.inspect(rgb)
    except AnocoError as error:
        with pytest.raises(type(error), match=re.escape(error.what)):
            native.inspect(rgb)
    else:
        assert_same_inspection(native.inspect(rgb), expected)


@pytest.mark.parametrize("fit", ["stretched", "boxed"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product_is_inspected_as_in_python(
    request: pytest.FixtureRequest, fit: str, product: str
) -> None:
    path = request.getfixturevalue(fit)
    native = opened(path, product, "native")
    python = opened(path, product, "python", "openvino")
    for name, rgb in PICTURES.items():
        print(name)
        assert_alike(native, python, rgb)


def test_the_products_differ_in_what_they_say(stretched: Path) -> None:
    """Otherwise the test above would show little."""
    found = {
        name: opened(stretched, name, "native").inspect(defective_part(31)) for name in PRODUCTS
    }
    assert len({round(f.score, 9) for f in found.values()}) >= 9
    assert found["plain"].verdict == found["paper"].verdict == "anomalous"
    assert found["plain"].regions and found["plain"].outline is not None
    assert (found["uncalibrated"].verdict, found["uncalibrated"].ratio) == ("uncalibrated", None)
    assert found["manual"].threshold_kind == "manual"
    assert found["baseline"].threshold_kind == "conformal"
    assert not found["mask"].scored.all() and found["tiles"].scored.shape != (4, 4)


@pytest.mark.parametrize("product", ["plain", "mask", "tiles", "paper"])
def test_onnxruntime_agrees_as_far_as_engines_do(stretched: Path, product: str) -> None:
    native = opened(stretched, product, "native")
    python = opened(stretched, product, "python", "onnxruntime")
    for rgb in (textured_picture(20), defective_part(31)):
        mine, other = native.inspect(rgb), python.inspect(rgb)
        assert mine.verdict == other.verdict
        gap = np.abs(mine.map - other.map).max()
        assert gap <= ENERGY_LIMIT["fp32"] * other.map.max()


@settings(max_examples=15, deadline=None)
@given(
    st.integers(40, 300), st.integers(40, 300), st.sampled_from(["stretched", "boxed"]), st.data()
)
def test_pictures_of_any_size(
    request: pytest.FixtureRequest, width: int, height: int, fit: str, data: st.DataObject
) -> None:
    """The context grows with the pictures."""
    path = request.getfixturevalue(fit)
    rgb = textured_picture(data.draw(st.integers(0, 9)), width, height)
    rgb[height // 3 : height // 2, width // 4 : width // 3] = 255
    python = opened(path, "any-size", "python", "openvino")
    assert_alike(opened(path, "any-size", "native"), python, rgb)


def test_a_picture_may_be_part_of_another(stretched: Path) -> None:
    detector = opened(stretched, "plain", "native")
    large = np.zeros((100, 120, 4), np.uint8)
    large[10 : 10 + HEIGHT, 7 : 7 + WIDTH, :3] = defective_part(31)
    expected = detector.inspect(defective_part(31))
    part = large[10 : 10 + HEIGHT, 7 : 7 + WIDTH, :3]  # pixels have four bytes
    rows = np.ascontiguousarray(large[..., :3])[10 : 10 + HEIGHT, 7 : 7 + WIDTH]
    mirrored = np.ascontiguousarray(defective_part(31)[:, ::-1])[:, ::-1]
    for view in (part, rows, mirrored):
        assert not view.flags.c_contiguous
        np.testing.assert_array_equal(detector.inspect(view).energy, expected.energy)


# ---- what comes with a verdict


def test_evidence_timings_and_the_map(stretched: Path) -> None:
    found = opened(stretched, "plain", "native").inspect(defective_part(31))
    python = opened(stretched, "plain", "python", "openvino").inspect(defective_part(31))
    mine, other = found.evidence(*found.peak), python.evidence(*python.peak)
    assert mine.similarity == pytest.approx(other.similarity, abs=1e-6)
    assert (mine.reference, mine.file, mine.box) == (other.reference, other.file, other.box)
    reference = opened(stretched, "plain", "native").reference_picture(mine)
    assert reference.shape == (HEIGHT, WIDTH, 3)
    assert found.map.shape == (HEIGHT, WIDTH)
    np.testing.assert_allclose(found.map, python.map, atol=1e-5 * python.map.max())
    assert list(found.timings) == list(python.timings)
    assert all(value >= 0 for value in found.timings.values())
    assert found.timings["backbone"] > 0 and found.timings["scoring"] > 0
    stages = sum(value for name, value in found.timings.items() if name != "total")
    assert found.timings["total"] >= 0.999 * stages
    assert {*found.to_row()} == {*python.to_row()}


def test_results_stay_when_the_next_picture_comes(stretched: Path) -> None:
    detector = opened(stretched, "plain", "native")
    first = detector.inspect(defective_part(31))
    energy, input_map, regions = first.energy.copy(), first.input_map.copy(), first.regions
    detector.inspect(textured_picture(20))
    np.testing.assert_array_equal(first.energy, energy)
    np.testing.assert_array_equal(first.input_map, input_map)
    assert first.regions == regions


def test_choices_and_settings(stretched: Path) -> None:
    detector = opened(stretched, "plain", "native")
    assert detector.runtime == "native" and detector.selftest is None
    assert detector.choices["engine"][0] == "openvino"
    assert detector.choices["scorer"] == ("native", "the native runtime's first choice")
    one = Detector.open(
        stretched, "plain", "openvino", runtime="native", settings=EngineSettings(threads=1)
    )
    found, expected = one.inspect(defective_part(31)), detector.inspect(defective_part(31))
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-5)
    strict = Detector.open(stretched, "plain", runtime="native", threshold=found.score / 2)
    result = strict.inspect(defective_part(31))
    assert (result.threshold_kind, result.verdict) == ("manual", "anomalous")
    assert result.ratio == pytest.approx(2)


def test_pictures_come_by_path_in_batches_and_with_their_errors(
    stretched: Path, tmp_path: Path
) -> None:
    paths = write_good_pictures(tmp_path, 2, seed=40)
    (tmp_path / "bad.png").write_text("not a picture")
    detector = opened(stretched, "plain", "native")
    wide = np.zeros((40, 200, 3), np.uint8)
    results = list(detector.inspect_many([paths[0], tmp_path / "bad.png", paths[1], wide], 3))
    assert [type(r) for r in results] == [Inspection, PictureError, Inspection, PictureError]
    assert isinstance(results[0], Inspection) and results[0].source == str(paths[0])
    assert "200x40" in str(results[3])
    assert len(detector.inspect_batch(paths)) == 2


# ---- what is refused


@pytest.mark.parametrize(("part", "asked"), [("engine", "onnxruntime"), ("scorer", "onnx")])
def test_only_what_the_library_has_can_be_asked_for(stretched: Path, part: str, asked: str) -> None:
    with pytest.raises(UsageError, match=rf"{part} '{asked}' was asked for, the native runtime"):
        Detector.open(stretched, "plain", runtime="native", **{part: asked})  # type: ignore[arg-type]


def test_an_unknown_runtime_is_a_usage_error(stretched: Path) -> None:
    with pytest.raises(UsageError, match="unknown runtime 'rust'; use python or native"):
        Detector.open(stretched, "plain", runtime="rust")  # type: ignore[arg-type]


def test_without_openvino(stretched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPENVINO_VARIABLE, "nowhere/libopenvino_c.so")
    assert find_openvino() is None
    with pytest.raises(EnvironmentMissingError, match="nowhere") as caught:
        Detector.open(stretched, "plain", runtime="native")
    assert caught.value.exit_code == 3
    (finding,) = doctor.runtime_findings()
    assert finding.state == "absent" and OPENVINO_VARIABLE in finding.help


def test_without_the_library(stretched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.VARIABLE)
    monkeypatch.setattr(library, "_FOLDER", Path("nowhere"))
    with pytest.raises(EnvironmentMissingError, match=r"libanoco_edge.so is not installed"):
        Detector.open(stretched, "plain", runtime="native")
    (finding,) = doctor.runtime_findings()
    assert (finding.name, finding.state) == ("native", "absent")


def test_a_device_that_is_not_there(stretched: Path) -> None:
    with pytest.raises(EnvironmentMissingError, match="TPU") as caught:
        Detector.open(stretched, "plain", runtime="native", settings=EngineSettings(device="TPU"))
    assert caught.value.exit_code == 3


def test_a_product_that_changes_while_it_is_opened(
    stretched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python read one generation and the library another, so anchors would name wrong pictures."""
    path = tmp_path / "line.anoco"
    shutil.copytree(stretched, path)
    real = Bundle.product
    older = real(Bundle.open(path), "plain")
    Teacher.open(path).enroll(good_parts(7), "plain")
    monkeypatch.setattr(Bundle, "product", lambda *_: older)
    detector = Detector.open(path, "plain", runtime="native")
    with pytest.raises(BundleError, match=r"became generation 2 while generation 1 was opened"):
        detector.inspect(textured_picture(20))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (interface.INVALID_ARGUMENT, UsageError),
        (interface.BAD_FEATURES, ScoringError),
        (interface.OUT_OF_MEMORY, AnocoError),
        (interface.CORRUPT, ScoringError),
        (interface.BAD_BUNDLE, BundleError),
        (interface.NO_PRODUCT, UsageError),
        (interface.BAD_PICTURE, PictureError),
        (interface.NO_BACKEND, EnvironmentMissingError),
        (interface.PARITY, ParityError),
        (interface.ENGINE, EngineError),
        (interface.STORAGE, StorageError),
        (interface.UNSUPPORTED, UsageError),
        (99, AnocoError),
    ],
)
def test_a_status_becomes_an_error_of_ours(status: int, kind: type[AnocoError]) -> None:
    error = library.error_of(status, "what is wrong")
    assert type(error) is kind and error.what == "what is wrong"


# ---- the interface itself, as a C program uses it


@dataclass
class Native:
    """A detector of the library, without our Python classes around it."""

    lib: ctypes.CDLL
    detector: ctypes.c_void_p

    def context(self, **options: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        given = interface.ContextOptions(threads=1, **options)
        self.ok(self.lib.anoco_context_create(self.detector, given, made))
        return made

    def ok(self, status: int) -> None:
        assert status == interface.OK, library.last_error(self.lib)


def open_native(path: Path, product: str | None, **options: Any) -> tuple[int, Native]:
    lib = library.load_library()
    bundle, detector = ctypes.c_void_p(), ctypes.c_void_p()
    status = lib.anoco_bundle_open(str(path).encode(), bundle)
    if status == interface.OK:
        engine = str(find_openvino()).encode()
        name = None if product is None else product.encode()
        given = interface.DetectorOptions(product=name, library=engine, **options)
        status = lib.anoco_detector_open(bundle, given, detector)
        lib.anoco_bundle_destroy(bundle)
    return status, Native(lib, detector)


@pytest.fixture
def native(stretched: Path) -> Iterator[Native]:
    status, made = open_native(stretched, "plain")
    made.ok(status)
    yield made
    made.lib.anoco_detector_destroy(made.detector)


@pytest.fixture
def context(native: Native) -> Iterator[ctypes.c_void_p]:
    made = native.context()
    yield made
    native.lib.anoco_context_destroy(made)


def image_of(array: Pixels, form: int, **fields: Any) -> interface.Image:
    height, width = array.shape[:2]
    return interface.Image(
        format=form, data=array.ctypes.data, width=width, height=height, **fields
    )


def energies(native: Native, context: ctypes.c_void_p, image: interface.Image) -> NDArray[Any]:
    found = interface.Result()
    native.ok(native.lib.anoco_inspect(context, image, found))
    return np.ctypeslib.as_array(found.energy, (found.rows, found.cols)).copy()


def test_every_format_of_a_picture(native: Native, context: ctypes.c_void_p) -> None:
    rgb = defective_part(31)
    alpha = np.full((HEIGHT, WIDTH, 1), 200, np.uint8)
    forms = {
        interface.BGR: rgb[..., ::-1],
        interface.RGBA: np.concatenate([rgb, alpha], axis=2),
        interface.BGRA: np.concatenate([rgb[..., ::-1], alpha], axis=2),
    }
    expected = energies(native, context, image_of(rgb, interface.RGB))
    for form, pixels in forms.items():
        whole = np.ascontiguousarray(pixels)
        np.testing.assert_array_equal(energies(native, context, image_of(whole, form)), expected)
        padded = np.zeros((HEIGHT, WIDTH + 5, whole.shape[2]), np.uint8)
        padded[:, :WIDTH] = whole
        image = image_of(whole, form, stride=padded.strides[0])
        image.data = padded.ctypes.data
        np.testing.assert_array_equal(energies(native, context, image), expected)
    grey = np.ascontiguousarray(rgb[..., 1])
    thrice = np.ascontiguousarray(np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(
        energies(native, context, image_of(grey, interface.GREY)),
        energies(native, context, image_of(thrice, interface.RGB)),
    )


def test_nv12_as_a_camera_gives_it(native: Native, context: ctypes.c_void_p) -> None:
    """Luma 16 to 235 is black to white, and chroma 128 has no colour."""
    grey = defective_part(31)[..., 1]
    luma = np.round(16 + grey.astype(float) * 219 / 255).astype(np.uint8)
    shown = np.round((luma.astype(float) - 16) * 255 / 219).clip(0, 255).astype(np.uint8)
    frame = np.concatenate([luma, np.full((HEIGHT // 2, WIDTH), 128, np.uint8)])
    image = image_of(frame, interface.NV12)
    image.height = HEIGHT
    expected = energies(native, context, image_of(shown, interface.GREY))
    found = energies(native, context, image)
    np.testing.assert_allclose(found, expected, atol=0.02 * expected.max())
    # The chroma may lie elsewhere, and adds colour.
    elsewhere = np.full((HEIGHT // 2, WIDTH + 8), 128, np.uint8)
    image.chroma, image.chroma_stride = elsewhere.ctypes.data, elsewhere.strides[0]
    np.testing.assert_array_equal(energies(native, context, image), found)
    elsewhere[10:20, 24:48:2] = 240
    assert np.abs(energies(native, context, image) - found).max() > 0.1 * expected.max()


def test_auto_says_why_it_does_not_take_tensorrt(stretched: Path) -> None:
    status, native = open_native(stretched, "plain", backend=b"auto")
    native.ok(status)
    info = interface.DetectorInfo()
    native.ok(native.lib.anoco_detector_describe(native.detector, info))
    assert info.backend == b"openvino" and b"TensorRT" in info.backend_reason
    assert info.scorer == b"cpu" and info.scorer_reason
    native.lib.anoco_detector_destroy(native.detector)


def test_evidence_and_map_of_the_last_inspection(
    native: Native, context: ctypes.c_void_p, stretched: Path
) -> None:
    lib, rgb = native.lib, defective_part(31)
    evidence = interface.Evidence()
    assert lib.anoco_result_evidence(context, 0, 0, evidence) == interface.NO_RESULT
    energies(native, context, image_of(rgb, interface.RGB))
    expected = opened(stretched, "plain", "native").inspect(rgb)
    native.ok(lib.anoco_result_evidence(context, 1, 2, evidence))
    wanted = expected.evidence(1, 2)
    assert evidence.reference.decode() == wanted.reference
    assert wanted.file == stretched / evidence.file.decode()
    assert (evidence.row, evidence.col) == (wanted.row, wanted.col)
    box = (evidence.x0, evidence.y0, evidence.x1, evidence.y1)
    query = (evidence.query_x0, evidence.query_y0, evidence.query_x1, evidence.query_y1)
    assert box == pytest.approx(wanted.box) and query == pytest.approx(wanted.query_box)
    out = np.zeros((HEIGHT, WIDTH), np.float32)
    native.ok(lib.anoco_result_map(context, out.ctypes.data))
    np.testing.assert_allclose(out, expected.map, atol=1e-5 * expected.map.max())
    assert lib.anoco_result_evidence(context, 4, 0, evidence) == interface.INVALID_ARGUMENT
    assert "outside the grid of 4 x 4" in library.last_error(lib)


@pytest.mark.parametrize("product", ["rotations", "references"])
def test_evidence_of_views_is_in_the_reference_itself(stretched: Path, product: str) -> None:
    """The row, the column and the box of every patch are those that Python finds."""
    status, native = open_native(stretched, product)
    native.ok(status)
    context, rgb = native.context(), textured_picture(20)
    energies(native, context, image_of(rgb, interface.RGB))
    expected = opened(stretched, product, "python", "openvino").inspect(rgb)
    moved = 0
    index = Bundle.open(stretched).bank(Bundle.open(stretched).product(product)).index
    for row, col in np.argwhere(expected.scored).tolist():
        evidence, wanted = interface.Evidence(), expected.evidence(row, col)
        native.ok(native.lib.anoco_result_evidence(context, row, col, evidence))
        assert (evidence.row, evidence.col) == (wanted.row, wanted.col)
        box = (evidence.x0, evidence.y0, evidence.x1, evidence.y1)
        assert box == pytest.approx(wanted.box)
        anchor = expected.anchor[row, col]
        moved += (wanted.row, wanted.col) != (index.row[anchor], index.col[anchor])
    assert moved > 0, "otherwise the grid of the view would do"
    native.lib.anoco_context_destroy(context)
    native.lib.anoco_detector_destroy(native.detector)


def test_a_picture_of_another_shape_leaves_the_result_alone(
    native: Native, context: ctypes.c_void_p
) -> None:
    wide = np.zeros((40, 200, 3), np.uint8)
    found = interface.Result(score=7.0)
    status = native.lib.anoco_inspect(context, image_of(wide, interface.RGB), found)
    assert status == interface.BAD_PICTURE and found.score == 7.0
    assert "200x40" in library.last_error(native.lib)
    larger = image_of(defective_part(33, 230, 190), interface.RGB)
    assert native.lib.anoco_inspect(context, larger, found) == interface.BAD_PICTURE
    timings = interface.Timings()
    assert native.lib.anoco_result_timings(context, timings) == interface.NO_RESULT


def truncate_bank(path: Path) -> None:
    (bank,) = (path / "products" / "plain").glob("bank-*.safetensors")
    bank.write_bytes(bank.read_bytes()[:-9])


def claim_random(path: Path) -> None:
    made = Bundle.open(path).manifest
    weights = made.backbone.weights.model_copy(update={"random": True})
    changed = made.model_copy(
        update={"backbone": made.backbone.model_copy(update={"weights": weights})}
    )
    (path / "manifest.json").write_bytes(sealed_document(changed))


@pytest.mark.parametrize(
    ("spoil", "product", "status", "says"),
    [
        (truncate_bank, "plain", interface.BAD_BUNDLE, "bank-"),
        (claim_random, "plain", interface.BAD_BUNDLE, "random weights"),
        (lambda path: None, "nut", interface.NO_PRODUCT, "nut"),
        (lambda path: None, None, interface.NO_PRODUCT, "several products"),
        (lambda path: (path / "manifest.json").unlink(), "plain", interface.BAD_BUNDLE, "manifest"),
        (lambda path: shutil.rmtree(path), "plain", interface.BAD_BUNDLE, "line.anoco"),
    ],
)
def test_the_library_refuses_on_its_own(
    stretched: Path,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    product: str | None,
    status: int,
    says: str,
) -> None:
    path = tmp_path / "line.anoco"
    shutil.copytree(stretched, path)
    spoil(path)
    found, made = open_native(path, product)
    assert found == status and made.detector.value is None
    text = library.last_error(made.lib)
    assert says in text and "\n" not in text


# ---- threads


def test_threads_share_a_detector(stretched: Path) -> None:
    detector = Detector.open(stretched, "plain", runtime="native")
    pictures = [defective_part(k) for k in range(24)]
    alone = [detector.inspect(rgb).energy for rgb in pictures]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda rgb: detector.inspect(rgb).energy, pictures))
    np.testing.assert_array_equal(np.stack(together), np.stack(alone))
    assert 1 <= len(detector._pipeline._idle) <= 4  # type: ignore[attr-defined]


def test_contexts_and_detectors_are_given_back(
    stretched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, destroyed = library.load_library(), []
    for kind in ("bundle", "detector", "context"):
        real = getattr(lib, f"anoco_{kind}_destroy")

        def destroy(handle: Any, kind: str = kind, real: Any = real) -> None:
            destroyed.append(kind)
            real(handle)

        monkeypatch.setattr(lib, f"anoco_{kind}_destroy", destroy)
    detector = Detector.open(stretched, "any-size", runtime="native")
    assert destroyed == ["bundle"]
    detector.inspect(textured_picture(20, 500, 40))  # a new context has room for it
    assert destroyed == ["bundle", "context"]
    detector.inspect(textured_picture(20, 40, 500))  # and now one has room for both
    detector.inspect(textured_picture(20, 500, 500))
    assert destroyed == ["bundle", "context", "context"]
    del detector
    gc.collect()
    assert sorted(destroyed) == ["bundle", "context", "context", "context", "detector"]


def test_a_program_that_ends_in_the_middle_of_a_picture(stretched: Path) -> None:
    """It ends without a crash, although its threads are stopped in the middle of their work."""
    code = (
        "import sys, threading, time\n"
        "import numpy as np\n"
        "from anoco_edge import Detector\n"
        "detector = Detector.open(sys.argv[1], 'paper', runtime='native')\n"
        "rgb = np.zeros((80, 96, 3), np.uint8)\n"
        "def work():\n"
        "    while True: detector.inspect(rgb)\n"
        "for _ in range(2): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code, str(stretched)], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()


def test_products_change_over_while_pictures_are_inspected(native: Native) -> None:
    """Each result belongs to one product: name, generation, score and energies.

    Two threads with two contexts inspect a thousand pictures with one detector.
    """
    products = ("plain", "cosine")
    pictures = [defective_part(31), defective_part(32), textured_picture(20), textured_picture(21)]
    images = [image_of(rgb, interface.RGB) for rgb in pictures]

    def look(context: ctypes.c_void_p, image: interface.Image) -> tuple[Any, ...]:
        found = interface.Result()
        native.ok(native.lib.anoco_inspect(context, image, found))
        grid = np.ctypeslib.as_array(found.energy, (found.rows, found.cols))
        return found.product.decode(), found.generation, found.score, grid.tobytes()

    expected, first = set(), native.context()
    for name in products:
        native.ok(native.lib.anoco_detector_select(native.detector, name.encode()))
        expected |= {(k, *look(first, image)) for k, image in enumerate(images)}
    native.lib.anoco_context_destroy(first)
    assert len(expected) == 8 and {generation for _, _, generation, *_ in expected} == {1}

    def work(_: int) -> list[tuple[Any, ...]]:
        context = native.context()
        seen = [(k % 4, *look(context, images[k % 4])) for k in range(500)]
        native.lib.anoco_context_destroy(context)
        return seen

    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(work, k) for k in range(2)]
        swaps = 0
        while not all(worker.done() for worker in workers):
            name = products[swaps % 2].encode()
            native.ok(native.lib.anoco_detector_select(native.detector, name))
            swaps += 1
        seen = [result for worker in workers for result in worker.result()]
    assert len(seen) == 1000 and set(seen) <= expected
    assert {name for _, name, *_ in seen} == set(products)
    print(f"{swaps} changes")


def test_the_same_in_a_c_program(native_build: Path, stretched: Path) -> None:
    swap_under_way(native_build, stretched)


@pytest.mark.full
def test_the_same_under_thread_sanitizer(stretched: Path) -> None:
    """The program has a backend of its own, so that only our code runs in it."""
    swap_under_way(sanitized_build("thread"), stretched)


def swap_under_way(built: Path, bundle: Path) -> None:
    done = subprocess.run([built / "tests" / "test_swap", bundle], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- the command line, and what declares the interface


def test_infer_and_bench_take_a_runtime(stretched: Path, tmp_path: Path) -> None:
    paths = write_good_pictures(tmp_path / "parts", 2, seed=40)
    asked = ("--product", "plain", "--runtime", "native", "--json")
    ran = ok("infer", stretched, *paths, *asked)
    results = ran.json["results"]
    assert [row["verdict"] for row in results] == ["good", "good"]
    detector = opened(stretched, "plain", "python", "openvino")
    assert results[0]["score"] == pytest.approx(detector.inspect(paths[0]).score, rel=1e-5)
    measured = ok("bench", stretched, *asked, "--frames", 3, "--warmup", 1).json
    assert measured["settings"]["runtime"] == "native"
    assert measured["settings"]["engine"].startswith("openvino")
    assert measured["stages"]["backbone"]["p50"] > 0
    refused = fails(2, "infer", stretched, paths[0], *asked[:-1], "--engine", "onnxruntime")
    assert "the native runtime has openvino and tensorrt alone" in refused


def test_doctor_says_that_it_can_run(use_native: Path) -> None:
    (finding,) = doctor.runtime_findings()
    assert (finding.group, finding.state) == ("runtimes", "ok"), finding.detail
    assert re.search(r"libanoco_edge \S+ \(\w+\), OpenVINO 20", finding.detail)


STRUCTS = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): struct
    for name, struct in vars(interface).items()
    if isinstance(struct, type)
    and issubclass(struct, interface.Struct)
    and struct is not interface.Struct
}


def test_the_structs_are_those_of_the_header(tmp_path: Path) -> None:
    """Offsets and sizes are those of a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is not installed")
    lines = ["#include <stdio.h>", "#include <stddef.h>", '#include "anoco_cuda.h"']
    lines.append("int main(void) {")
    wanted = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(anoco_{name}));')
        wanted.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            there = "lambda" if field == "lam" else field
            where = f"offsetof(anoco_{name}, {there}), sizeof(((anoco_{name}*)0)->{there})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", {where});')
            mine = getattr(struct, field)
            wanted.append(f"{name}.{field} {mine.offset} {mine.size}")
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    program = tmp_path / "layout"
    include = RUNTIME / "include"
    subprocess.run([compiler, "-I", include, source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == wanted
    assert len(STRUCTS) >= 9


def test_statuses_and_functions_are_those_of_the_header() -> None:
    headers = ("anoco_edge.h", "anoco_cuda.h")
    header = "".join((RUNTIME / "include" / name).read_text() for name in headers)
    for name, value in re.findall(r"ANOCO_(\w+) = (\d+)[,\s]", header):
        if hasattr(interface, name):
            assert getattr(interface, name) == int(value), name
    for name, _, arguments in interface._FUNCTIONS:
        (declared,) = re.findall(rf"\b{name}\(([^)]*)\)", header)
        count = 0 if declared == "void" else declared.count(",") + 1
        assert len(arguments) == count, name


def test_what_the_library_warns_of_is_heard(stretched: Path) -> None:
    # On a CPU there are warnings about products only; those about CUDA graphs come the same way.
    detector = Detector.open(stretched, "uncalibrated", runtime="native")
    assert isinstance(detector._pipeline, NativePipeline)
    listener = detector._pipeline._log
    assert listener.warnings == ["product uncalibrated has no threshold: no part will be judged"]
    assert detector.remarks == (), "of the product Python speaks itself"
    for level, text in ((interface.LOG_WARNING, b"slow"), (interface.LOG_WARNING - 1, b"fine")):
        listener.function(None, level, text)
    assert detector.remarks == ("slow",)
