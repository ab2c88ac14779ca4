"""The detector gives the same inspection in whichever form a picture is given."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from garbage import lives_without
from PIL import Image
from safetensors.numpy import load, save
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle, create_bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.errors import (
    AnocoError,
    BundleError,
    ParityError,
    PictureError,
    ScoringError,
    UsageError,
)
from anoco_edge.images.contract import InputContract
from anoco_edge.machine import cache_folder
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.scoring import score_patches
from anoco_edge.teaching import NewPicture, Settings, Teacher

HEIGHT, WIDTH = 80, 96
INK = (slice(20, 40), slice(48, 72))  # covers patch 1, 2 of a picture of 96 x 80


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enroll six references of 96 x 80, which tests only read."""
    folder = tmp_path_factory.mktemp("taught")
    path = make_tiny_bundle(folder / "tiny.anoco").path
    good = write_good_pictures(folder / "good", 6)
    Teacher.open(path).enroll([NewPicture.from_file(p) for p in good])
    return path


@pytest.fixture(scope="module")
def detector(enrolled: Path) -> Detector:
    return Detector.open(enrolled)


@pytest.mark.parametrize(
    ("runtime", "engine", "scorer"),
    [
        ("python", "onnxruntime", "reference"),
        ("python", "openvino", "native"),
        ("python", "onnxruntime", "onnx"),
        ("native", "auto", "auto"),
    ],
)
def test_a_detector_that_is_dropped_is_gone_at_once(
    enrolled: Path, runtime: Any, engine: str, scorer: str
) -> None:
    """A line changes its product all day, and a bank on a device may be gigabytes."""

    def used() -> Detector:
        detector = Detector.open(enrolled, engine=engine, scorer=scorer, runtime=runtime)
        detector.first_reference()
        detector.inspect(textured_picture(3))
        return detector

    assert not lives_without(used)
    assert not lives_without(lambda: used()._pipeline)


def defective(seed: int) -> np.ndarray:
    picture = textured_picture(seed)
    picture[INK] = 255
    return picture


def remake(bundle: Bundle, path: Path, files: dict[str, bytes], **changes: Any) -> Path:
    """Write the same bundle with other files or another contract, and with the right checksums."""
    manifest = bundle.manifest
    old = {f.path: (bundle.path / f.path).read_bytes() for f in manifest.files}
    made = create_bundle(
        path,
        backbone=changes.get("backbone", manifest.backbone),
        contract=changes.get("contract", manifest.input),
        parity={},
        tools={},
        files={**old, **files},
    )
    return made.path


def assert_same(one: Inspection, other: Inspection, *, names: bool = False) -> None:
    for field in dataclasses.fields(Inspection):
        if field.name in ("timings", "evidence_lookup") or (field.name == "source" and not names):
            continue
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            assert left == right, field.name


# ---- one picture, many ways in


def test_path_array_batch_and_many_give_the_same(detector: Detector, tmp_path: Path) -> None:
    pictures = [textured_picture(35), defective(31), textured_picture(38), defective(33)]
    paths = [tmp_path / f"{k}.png" for k in range(4)]
    for path, rgb in zip(paths, pictures, strict=True):
        Image.fromarray(rgb).save(path)
    expected = [detector.inspect(rgb) for rgb in pictures]
    assert [r.verdict for r in expected] == ["good", "anomalous", "good", "anomalous"]
    ways: dict[str, list[Any]] = {
        "path": [detector.inspect(p) for p in paths],
        "text": [detector.inspect(str(p)) for p in paths],
        "batch": detector.inspect_batch(pictures),
        "many by three": list(detector.inspect_many(pictures, batch=3)),
        "many paths": list(detector.inspect_many(iter(paths), batch=2)),
        "not contiguous": [detector.inspect(np.asfortranarray(rgb)) for rgb in pictures],
    }
    for results in ways.values():
        assert len(results) == 4
        for one, other in zip(expected, results, strict=True):
            assert isinstance(other, Inspection)
            assert_same(one, other)
    assert [r.source for r in ways["path"]] == [str(p) for p in paths]
    assert detector.inspect_batch([]) == [] == list(detector.inspect_many([]))


def test_a_result_is_complete(detector: Detector) -> None:
    result = detector.inspect(defective(31))
    assert result.map.shape == (HEIGHT, WIDTH) and result.map.dtype == np.float32
    assert result.outline_at_picture is not None
    assert result.outline_at_picture.shape == (HEIGHT, WIDTH)
    assert result.energy.shape == result.scored.shape == (4, 4) and result.scored.all()
    assert result.score == pytest.approx(float(result.energy.max()))
    assert result.threshold == detector.product.threshold.value
    assert result.ratio is not None and result.threshold is not None
    assert result.ratio == result.score / result.threshold > 1
    assert result.peak == (1, 2) == (result.regions[0].row, result.regions[0].col)
    peak = np.unravel_index(int(result.map.argmax()), result.map.shape)
    assert 20 <= peak[0] < 40 and 48 <= peak[1] < 72
    x0, y0, x1, y1 = result.regions[0].box
    assert x0 <= 48 and y0 <= 20 and x1 >= 72 and y1 >= 40
    assert result.regions[0].peak == result.energy.max() and result.regions[0].area >= 20 * 24
    stages = {"decode", "preprocess", "backbone", "scoring", "map"}
    assert set(result.timings) == stages | {"total"}
    assert min(result.timings.values()) >= 0
    assert result.timings["total"] == pytest.approx(sum(result.timings[s] for s in stages))


def test_the_energies_are_those_of_the_method(tiny_bundle: Bundle) -> None:
    """They are computed from pixels with the reference scorer, without the rest of the detector."""
    small = textured_picture(40, 64, 64)  # the model's size, so that nothing is resized
    small[16:32, 16:32] = 255  # resembles no reference, so the floor applies
    references = [textured_picture(k, 64, 64) for k in (1, 2)]
    teacher = Teacher.open(tiny_bundle.path)
    pictures = [NewPicture.from_array(str(k), rgb) for k, rgb in enumerate(references)]
    teacher.enroll(pictures, settings=Settings({"lambda": 2.0, "floor": 0.97, "metric": "l2"}))
    engine = open_engine("auto", tiny_bundle)
    query = engine.features(small[None])[0]
    bank = np.concatenate(engine.features(np.stack(references))).astype(np.float16)
    scores = score_patches(query, bank, 2.0, "l2", "reference", floor=0.97)
    assert scores.similarity.min() < 0.95
    for scorer in ("onnx", "reference"):
        found = Detector.open(tiny_bundle.path, scorer=scorer).inspect(small)
        np.testing.assert_allclose(found.energy.ravel(), scores.energy, rtol=1e-4, atol=1e-8)
        np.testing.assert_array_equal(found.anchor.ravel(), scores.anchor)
        assert found.score == pytest.approx(scores.energy.max(), rel=1e-4)


def test_every_result_says_that_its_threshold_is_provisional(detector: Detector) -> None:
    for result in detector.inspect_batch([textured_picture(30), defective(31)]):
        assert result.threshold_kind == "provisional" and result.provisional
        assert result.to_row()["threshold_kind"] == "provisional"


def test_a_row_of_results_says_what_the_result_says(detector: Detector) -> None:
    result = detector.inspect(defective(31))
    row = result.to_row()
    assert (row["score"], row["threshold"], row["ratio"]) == (
        result.score,
        result.threshold,
        result.ratio,
    )
    assert row["verdict"] == "anomalous" and row["product"] == "default" and row["generation"] == 1
    assert row["regions"][0]["patch"] == [1, 2] == row["evidence"]["patch"]
    assert row["evidence"]["box"] == [48.0, 20.0, 72.0, 40.0]
    assert row["evidence"]["reference"] in {f"good{k}.png" for k in range(6)}


# ---- evidence


def test_a_reference_is_its_own_evidence(detector: Detector) -> None:
    for k in range(6):
        result = detector.inspect(textured_picture(k))
        assert result.score < 1e-9 and result.verdict == "good"
        for row in range(4):
            for col in range(4):
                evidence = result.evidence(row, col)
                assert evidence.reference == f"good{k}.png"
                assert (evidence.row, evidence.col) == (row, col)
                assert (evidence.query_row, evidence.query_col) == (row, col)
                assert evidence.similarity == pytest.approx(1, abs=1e-5)
                box = (col * 24, row * 20, col * 24 + 24, row * 20 + 20)
                assert evidence.box == evidence.query_box == box


def test_evidence_follows_a_part_that_moved(tiny_bundle: Bundle) -> None:
    """Content that moves by one patch is found one patch further in the reference."""
    rng = np.random.default_rng(5)
    reference = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_array("noise", reference)])
    detector = Detector.open(tiny_bundle.path)
    result = detector.inspect(np.roll(reference, (16, -32), axis=(0, 1)))
    for row in range(4):
        for col in range(4):
            evidence = result.evidence(row, col)
            assert (evidence.row, evidence.col) == ((row - 1) % 4, (col + 2) % 4)
            assert evidence.similarity == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(detector.reference_picture(result.evidence(0, 0)), reference)


def test_boxes_are_in_pixels_of_the_picture_they_belong_to(tiny_bundle: Bundle) -> None:
    large = np.kron(textured_picture(1), np.ones((2, 2, 1), np.uint8))
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_array("large", large)])
    evidence = Detector.open(tiny_bundle.path).inspect(textured_picture(1)).evidence(1, 2)
    row, col = evidence.row, evidence.col
    assert evidence.query_box == (48, 20, 72, 40)
    assert evidence.box == (col * 48, row * 40, col * 48 + 48, row * 40 + 40)


def test_a_reference_picture_that_is_gone_is_one_clear_error(tiny_bundle: Bundle) -> None:
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_array("a", textured_picture(1))])
    detector = Detector.open(tiny_bundle.path)
    evidence = detector.inspect(textured_picture(2)).evidence(0, 0)
    picture = evidence.file.read_bytes()
    evidence.file.write_bytes(picture[:-1] + b"x")
    with pytest.raises(BundleError, match="is not what was written"):
        detector.reference_picture(evidence)
    evidence.file.unlink()
    with pytest.raises(BundleError, match="is missing"):
        detector.reference_picture(evidence)
    with pytest.raises(BundleError, match="is missing"):
        Detector.open(tiny_bundle.path)


# ---- what cannot be inspected


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((80, 96, 3), np.float32), "80x96x3 float32"),
        (np.zeros((80, 96), np.uint8), "80x96 grey uint8"),
        (np.zeros((80, 96, 4), np.uint8), "80x96x4 uint8"),
        (np.zeros((80, 96, 3), np.uint16), "uint16"),
        (np.zeros((1, 1, 3), np.uint8), "1x1 pixels"),
        ([[1, 2], [3, 4]], "a list, not a NumPy array"),
        (None, "a NoneType, not a NumPy array"),
        (textured_picture(1, 80, 96), "is 80x96, the references are 96x80"),
        (textured_picture(1, 128, 80), "is 128x80"),
    ],
)
def test_a_wrong_array_is_a_picture_error(detector: Detector, array: Any, says: str) -> None:
    with pytest.raises(PictureError, match=says):
        detector.inspect(array)
    with pytest.raises(PictureError, match=says):
        detector.inspect_batch([textured_picture(1), array])


def test_the_same_shape_in_other_pixels_is_inspected(detector: Detector) -> None:
    assert detector.inspect(textured_picture(30, 192, 160)).map.shape == (160, 192)


def test_unreadable_pictures_do_not_stop_the_others(detector: Detector, tmp_path: Path) -> None:
    good = write_good_pictures(tmp_path / "good", 3, seed=50)
    (tmp_path / "text.png").write_text("good morning")
    pictures: list[Any] = [
        good[0],
        tmp_path / "text.png",
        good[1],
        textured_picture(1, 80, 96),
        tmp_path / "missing.png",
        good[2],
    ]
    for batch in (1, 2, 4, 100):
        results = list(detector.inspect_many(pictures, batch))
        kinds = [type(r) for r in results]
        wrong = PictureError
        assert kinds == [Inspection, wrong, Inspection, wrong, wrong, Inspection]
        assert "text.png is not a picture" in str(results[1])
        assert "80x96" in str(results[3]) and "missing.png does not exist" in str(results[4])
        sources = [r.source for r in results if isinstance(r, Inspection)]
        assert sources == [str(p) for p in good]
    with pytest.raises(UsageError, match="batch is 0"):
        list(detector.inspect_many(pictures, 0))


class _Faulty:
    """An engine that fails on one picture of a batch, as a single dark frame may cause."""

    name, fingerprint = "faulty", "faulty"

    def __init__(self, bundle: Bundle, value: float) -> None:
        self._engine, self._value = open_engine("auto", bundle), value

    def features(self, pixels: np.ndarray) -> np.ndarray:
        features = self._engine.features(pixels)
        features[[k for k, p in enumerate(pixels) if p.max() == 0]] = self._value
        return features


@pytest.mark.parametrize(("value", "says"), [(0.0, "zero norm"), (np.nan, "NaN or infinity")])
def test_features_that_cannot_be_scored_concern_their_picture_only(
    enrolled: Path, value: float, says: str
) -> None:
    detector = Detector.open(enrolled)
    detector._pipeline.energies._engine = _Faulty(detector.bundle, value)
    black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    results = list(detector.inspect_many([textured_picture(1), black, textured_picture(2)]))
    assert [type(r) for r in results] == [Inspection, ScoringError, Inspection]
    assert says in str(results[1])
    with pytest.raises(ScoringError, match=says):
        detector.inspect(black)


def test_a_patch_that_cannot_be_scored_is_named_by_its_place_in_the_grid(enrolled: Path) -> None:
    """The scorer is given the inspected patches only, and counts those."""
    energies = Detector.open(enrolled)._pipeline.energies
    grid = np.ones((6, energies.tiling.contract.dim), np.float32)
    grid[4] = np.nan
    with pytest.raises(ScoringError, match="query patch 4 contains NaN"):
        energies._score_rows(grid, np.array([2, 4, 5]))


# ---- choices


def test_a_threshold_given_at_opening_overrides(enrolled: Path) -> None:
    score = Detector.open(enrolled).inspect(defective(31)).score
    strict = Detector.open(enrolled, threshold=score / 2).inspect(defective(31))
    lenient = Detector.open(enrolled, threshold=score * 2).inspect(defective(31))
    assert (strict.verdict, strict.threshold_kind, strict.provisional) == (
        "anomalous",
        "manual",
        False,
    )
    assert strict.ratio == pytest.approx(2) and strict.regions
    assert lenient.verdict == "good" and lenient.regions == () and lenient.outline is None
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="threshold is"):
            Detector.open(enrolled, threshold=wrong)


def test_a_defect_smaller_than_the_least_area_is_no_verdict(tiny_bundle: Bundle) -> None:
    teacher = Teacher.open(tiny_bundle.path)
    pictures = [NewPicture.from_array(str(k), textured_picture(k)) for k in range(3)]
    teacher.enroll(pictures, settings=Settings({"min_area": 20 * 24}))
    assert Detector.open(tiny_bundle.path).inspect(defective(31)).verdict == "anomalous"
    teacher.configure(Settings({"min_area": WIDTH * HEIGHT + 1}))
    result = Detector.open(tiny_bundle.path).inspect(defective(31))
    assert result.verdict == "good" and result.ratio is not None and result.ratio > 1


def test_unknown_names_are_usage_errors_never_a_fallback(enrolled: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'warp'; use auto or one of onnxruntime"):
        Detector.open(enrolled, engine="warp")
    with pytest.raises(UsageError, match="unknown scorer 'guess'"):
        Detector.open(enrolled, scorer="guess")
    with pytest.raises(UsageError, match="no product 'nut'"):
        Detector.open(enrolled, "nut")
    detector = Detector.open(enrolled, "default", "onnxruntime", "reference")
    assert detector.choices["engine"] == ("onnxruntime", "asked for")
    assert detector.choices["scorer"] == ("reference", "asked for")
    assert detector._pipeline.energies._scorer.name == "reference"


def test_threads_and_memory_settings_do_not_change_results(enrolled: Path) -> None:
    one = Detector.open(enrolled, settings=EngineSettings(threads=1, arena=False))
    two = Detector.open(enrolled, settings=EngineSettings(threads=2))
    assert_same(one.inspect(defective(31)), two.inspect(defective(31)))


def test_threads_share_a_detector(enrolled: Path) -> None:
    detector = Detector.open(enrolled)
    # There are many sizes, so that threads also write the detector's cache of sizes concurrently.
    pictures = [
        textured_picture(k, 96 + 6 * (k % 5), 80 + 5 * (k % 5)) if k % 3 else defective(k)
        for k in range(40)
    ]
    alone = [detector.inspect(p) for p in pictures]
    shared = Detector.open(enrolled)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(shared.inspect, pictures))
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


# ---- random weights and the self-test


def test_random_weights_are_refused_unless_allowed(enrolled: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(enrolled)
    weights = bundle.manifest.backbone.weights.model_copy(update={"random": True})
    backbone = bundle.manifest.backbone.model_copy(update={"weights": weights})
    path = remake(bundle, tmp_path / "random.anoco", {}, backbone=backbone)
    Teacher.open(path).enroll([NewPicture.from_array("a", textured_picture(1))])
    with pytest.raises(BundleError, match="random weights, so its verdicts mean nothing"):
        Detector.open(path)
    assert Detector.open(path, allow_random=True).inspect(textured_picture(1)).verdict == "good"


def selftest_with(bundle: Bundle, **tensors: np.ndarray) -> dict[str, bytes]:
    stored = load(bundle.read(bundle.file("selftest.safetensors")))
    return {"selftest.safetensors": save({**stored, **tensors})}


def stored(bundle: Bundle, name: str) -> np.ndarray:
    tensors: dict[str, np.ndarray] = load(bundle.read(bundle.file("selftest.safetensors")))
    return tensors[name]


def _turned(features: np.ndarray) -> np.ndarray:
    features = features.copy()
    features[3] = features[3][::-1]
    return features


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: {"features": _turned(f)}, r"worst cosine -?0\.[0-9]{5} \(limit 0.9999\)"),
        (lambda f: {"features": f * np.float32(1.02)}, r"norm off by 1\.96% \(limit 0\.10%\)"),
        (lambda f: {"energies": np.full(8, 5, np.float32)}, r"energies off by [0-9.]+% \(limit 1%"),
    ],
)
def test_a_backbone_that_computes_something_else_refuses_to_serve(
    tiny_bundle: Bundle, tmp_path: Path, change: Any, says: str
) -> None:
    files = selftest_with(tiny_bundle, **change(stored(tiny_bundle, "features")))
    bundle = Bundle.open(remake(tiny_bundle, tmp_path / "wrong.anoco", files))
    list(bundle.verify())  # no file is damaged, so only the self-test can tell
    with pytest.raises(ParityError, match=says) as caught:
        Teacher.open(bundle.path)
    assert caught.value.exit_code == 5
    with pytest.raises(ParityError):  # a failure is not stored as a success
        check_engine(bundle, open_engine("auto", bundle))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"features": np.zeros((16, 8), np.float32)}, "are zero, NaN or infinite"),
        ({"features": np.full((16, 8), np.nan, np.float32)}, "are zero, NaN or infinite"),
        ({"features": np.full((16, 8), np.inf, np.float32)}, "are zero, NaN or infinite"),
        ({"energies": np.zeros(8, np.float32)}, "are zero, NaN or infinite"),
        ({"energies": np.full(8, np.nan, np.float32)}, "are zero, NaN or infinite"),
        (
            {"features": np.ones((15, 8), np.float32)},
            r"features of type float32 and shape \(16, 8\)",
        ),
        ({"pixels": np.zeros((1, 8, 8, 3), np.uint8)}, "holds no pixels of type uint8 and shape"),
    ],
)
def test_a_self_test_that_could_not_fail_is_refused(
    tiny_bundle: Bundle, tmp_path: Path, change: dict[str, np.ndarray], says: str
) -> None:
    path = remake(tiny_bundle, tmp_path / "w.anoco", selftest_with(tiny_bundle, **change))
    with pytest.raises(BundleError, match=says) as caught:
        Teacher.open(path)
    assert "selftest.safetensors" in str(caught.value)


def test_a_self_test_file_that_is_none_is_refused(tiny_bundle: Bundle, tmp_path: Path) -> None:
    path = remake(tiny_bundle, tmp_path / "w.anoco", {"selftest.safetensors": b"hello world"})
    with pytest.raises(BundleError, match="is not a self-test"):
        Teacher.open(path)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_an_engine_that_gives_nothing_fails_the_self_test(
    tiny_bundle: Bundle, value: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine = _Faulty(tiny_bundle, value)
    engine.features = lambda pixels: np.full((1, 16, 8), value, np.float32)  # type: ignore[method-assign]
    with pytest.raises(ParityError, match="faulty computes other features here"):
        check_engine(tiny_bundle, engine)


def test_a_graph_that_is_none_or_gives_another_shape_is_a_broken_bundle(
    tiny_bundle: Bundle, tmp_path: Path
) -> None:
    path = remake(tiny_bundle, tmp_path / "none.anoco", {"backbone.onnx": b"not a graph"})
    with pytest.raises(BundleError, match=r"backbone.onnx is not an ONNX graph") as caught:
        Teacher.open(path)
    assert "\n" not in str(caught.value)
    other = make_tiny_bundle(tmp_path / "other.anoco", dim=6)
    graph = {"backbone.onnx": (other.path / "backbone.onnx").read_bytes()}
    with pytest.raises(BundleError, match=r"shape \(16, 6\), the manifest says \(16, 8\)"):
        Teacher.open(remake(tiny_bundle, tmp_path / "mixed.anoco", graph))


def test_the_self_test_is_remembered(
    tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_array("a", textured_picture(1))])
    (memory,) = (cache_folder() / "selftest").iterdir()
    second = Detector.open(tiny_bundle.path).selftest
    assert second.remembered and second.min_cosine > 0.9999
    engine = open_engine("auto", tiny_bundle)
    assert not check_engine(tiny_bundle, engine, force=True).remembered
    for nonsense in ("{", "[]", '{"min_cosine": 1}', ""):
        memory.write_text(nonsense)
        assert not check_engine(tiny_bundle, engine).remembered
        assert check_engine(tiny_bundle, engine) == dataclasses.replace(second)
    engine.fingerprint += "|another processor"
    assert not check_engine(tiny_bundle, engine).remembered
    memory.unlink()
    assert not Detector.open(tiny_bundle.path).selftest.remembered


def test_an_unwritable_cache_only_means_testing_again(
    tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "file"))
    for _ in range(2):
        engine = open_engine("auto", tiny_bundle)
        found = check_engine(tiny_bundle, engine)
        assert isinstance(found, SelfTest) and not found.remembered


# ---- letterbox


def test_letterbox_end_to_end(tiny_bundle: Bundle, tmp_path: Path) -> None:
    contract = InputContract(
        **{**tiny_bundle.manifest.input.model_dump(), "fit": "letterbox", "fill": (200, 10, 10)}
    )
    path = remake(tiny_bundle, tmp_path / "box.anoco", {}, contract=contract)
    teacher = Teacher.open(path)
    pictures = [NewPicture.from_array(str(k), textured_picture(k, 128, 64)) for k in range(3)]
    product = teacher.enroll(pictures).product
    # 128 x 64 becomes 64 x 32 in the middle, which are rows 1 and 2 of the grid; the rest is fill.
    bank = teacher.bundle.bank(product)
    assert sorted(set(bank.row.tolist())) == [1, 2] and len(bank) == 3 * 8
    detector = Detector.open(path)
    same = detector.inspect(textured_picture(0, 128, 64))
    assert same.score < 1e-9 and same.map.shape == (64, 128)
    assert same.scored.any(axis=1).tolist() == [False, True, True, False]
    silent = dataclasses.replace(same, energy=np.zeros_like(same.energy))
    assert silent.peak == (1, 0) and silent.to_row()["evidence"]["patch"] == [1, 0]
    assert same.evidence(1, 0).query_box == (0, 0, 32, 32)
    bad = textured_picture(30, 128, 64)
    bad[32:64, 64:96] = 255
    result = detector.inspect(bad)
    assert result.verdict == "anomalous" and result.peak == (2, 2)
    assert result.regions[0].box[1] >= 16 and 64 <= result.map.argmax() % 128 < 96
    with pytest.raises(PictureError, match="64x128"):
        detector.inspect(textured_picture(1, 64, 128))


def test_a_picture_too_thin_for_any_patch_does_not_stop_the_others(
    tiny_bundle: Bundle, tmp_path: Path
) -> None:
    contract = tiny_bundle.manifest.input.model_copy(update={"fit": "letterbox"})
    path = remake(tiny_bundle, tmp_path / "box.anoco", {}, contract=contract)
    picture = NewPicture.from_array("a", textured_picture(1))
    Teacher.open(path).enroll([picture], settings=Settings({"any_size": True}))
    thin = textured_picture(2, 640, 20)
    results = list(Detector.open(path).inspect_many([picture.rgb, thin, picture.rgb]))
    assert [isinstance(r, AnocoError) for r in results] == [False, True, False]
    assert "no patch to inspect" in str(results[1])
