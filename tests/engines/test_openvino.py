"""OpenVINO agrees with ONNX Runtime in float32, from any thread, on a known device."""

from __future__ import annotations

import ctypes
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, ok
from engine_cases import ONE_INPUT
from tiny_bundle import textured_picture, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.engines.openvino import OpenVinoEngine, load_core, options, pick_device
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.teaching import NewPicture, Teacher


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty cache, and return the folder for compiled graphs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "anoco-edge" / "openvino"


def engine_of(bundle: Bundle, **settings: object) -> OpenVinoEngine:
    return OpenVinoEngine(bundle, EngineSettings(**settings))  # type: ignore[arg-type]


def from_cache(engine: OpenVinoEngine) -> bool:
    return bool(engine._compiled.get_property("LOADED_FROM_CACHE"))


def pictures(n: int) -> np.ndarray:
    return np.stack([textured_picture(k, 64, 64) for k in range(n)])


@pytest.mark.parametrize("threads", [0, 1])
def test_it_agrees_with_onnxruntime_in_any_batch(tiny_bundle: Bundle, threads: int) -> None:
    batch = pictures(3)
    theirs = open_engine("onnxruntime", tiny_bundle).features(batch)
    engine = engine_of(tiny_bundle, threads=threads)
    ours = engine.features(batch)
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    norms = np.linalg.norm(ours, axis=2) * np.linalg.norm(theirs, axis=2)
    assert ((ours * theirs).sum(axis=2) / norms).min() > 0.99999
    np.testing.assert_array_equal(engine.features(batch[1:2])[0], ours[1])
    check_engine(tiny_bundle, engine, force=True)


def test_an_answer_is_not_overwritten_by_the_next(tiny_bundle: Bundle) -> None:
    engine = engine_of(tiny_bundle)
    first = engine.features(pictures(1))
    before = first.copy()
    engine.features(ONE_INPUT)
    np.testing.assert_array_equal(first, before)


def test_pixels_need_not_be_contiguous(tiny_bundle: Bundle) -> None:
    engine = engine_of(tiny_bundle)
    mirrored = pictures(2)[:, :, ::-1]
    np.testing.assert_array_equal(
        engine.features(mirrored), engine.features(np.ascontiguousarray(mirrored))
    )


def test_threads_share_an_engine(tiny_bundle: Bundle) -> None:
    engine, batch = engine_of(tiny_bundle), pictures(24)
    alone = engine.features(batch)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda picture: engine.features(picture[None])[0], batch))
    np.testing.assert_array_equal(np.stack(together), alone)


def test_float32_is_asked_for_and_given(tiny_bundle: Bundle) -> None:
    compiled = engine_of(tiny_bundle, threads=1)._compiled
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert "INFERENCE_PRECISION_HINT" not in options("NPU"), "it has none"


def test_the_fingerprint_says_version_and_device(tiny_bundle: Bundle) -> None:
    name, version, device, full, *_ = engine_of(tiny_bundle).fingerprint.split("|")
    core = load_core()
    assert (name, device, full) == ("openvino", "CPU", core.get_property("CPU", "FULL_DEVICE_NAME"))
    assert version[0].isdigit()


# ---- devices


def test_a_device_that_is_not_there(tiny_bundle: Bundle) -> None:
    with pytest.raises(EnvironmentMissingError, match=r"no device 'TPU' here; use CPU") as caught:
        engine_of(tiny_bundle, device="TPU")
    assert caught.value.exit_code == 3
    assert "AUTO" in caught.value.hint


@pytest.mark.parametrize(
    ("wanted", "found", "chosen"),
    [
        ("cpu", ["CPU"], "CPU"),
        ("GPU", ["CPU", "GPU.0", "GPU.1"], "GPU.0"),
        ("GPU.1", ["CPU", "GPU.0", "GPU.1"], "GPU.1"),
        ("NPU", ["CPU", "NPU"], "NPU"),
        ("AUTO", ["CPU", "NPU"], "CPU"),
        ("AUTO", ["CPU", "GPU"], "GPU"),
    ],
)
def test_which_device_is_meant(wanted: str, found: list[str], chosen: str) -> None:
    assert pick_device(wanted, found) == chosen


def test_it_is_not_installed(tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "openvino":
                raise ModuleNotFoundError("No module named 'openvino'", name="openvino")

    for loaded in [name for name in sys.modules if name.split(".")[0] == "openvino"]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "meta_path", [Nowhere, *sys.meta_path])
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'anoco-edge\[openvino\]'"):
        engine_of(tiny_bundle)


# ---- what is kept


def filters(bundle: Bundle) -> bytes:
    import onnx

    graph = onnx.load(bundle.path / "backbone.onnx").graph
    return next(bytes(t.raw_data) for t in graph.initializer if t.name == "filters")


def test_the_compiled_graph_is_kept(tiny_bundle: Bundle, cache: Path) -> None:
    first = engine_of(tiny_bundle)
    second = engine_of(tiny_bundle)
    assert (from_cache(first), from_cache(second)) == (False, True)
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(second.features(ONE_INPUT), first.features(ONE_INPUT))


@pytest.mark.parametrize("harm", ["changed", "cut", "unknown"])
def test_a_kept_graph_that_is_damaged_is_made_again(
    tiny_bundle: Bundle, cache: Path, harm: str
) -> None:
    right = engine_of(tiny_bundle).features(ONE_INPUT)
    (blob,) = cache.rglob("*.blob")
    content = bytearray(blob.read_bytes())
    if harm == "changed":  # inside the weights, where OpenVINO would not notice it
        at = content.index(filters(tiny_bundle)[:32])
        content[at + 3] ^= 0x01
    blob.write_bytes(content[:-40] if harm == "cut" else content)
    if harm == "unknown":
        blob.with_suffix(".sha256").unlink()
    again = engine_of(tiny_bundle)
    assert not from_cache(again)
    np.testing.assert_array_equal(again.features(ONE_INPUT), right)
    assert from_cache(engine_of(tiny_bundle)), "and it was noted anew"


def test_without_a_place_for_it_the_engine_still_runs(
    tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert engine_of(tiny_bundle).features(ONE_INPUT).shape == (1, 16, 8)


# ---- end to end


def test_a_detector_on_openvino(tiny_bundle: Bundle) -> None:
    new = [NewPicture.from_array(str(k), textured_picture(k)) for k in range(3)]
    Teacher.open(tiny_bundle.path, "openvino").enroll(new)
    detector = Detector.open(tiny_bundle.path, engine="openvino")
    other = Detector.open(tiny_bundle.path, engine="onnxruntime")
    assert detector.choices["engine"] == ("openvino", "asked for")
    picture = textured_picture(9)
    assert detector.inspect(picture).score == pytest.approx(other.inspect(picture).score, rel=1e-3)


def test_on_the_command_line(tiny_bundle: Bundle, tmp_path: Path) -> None:
    path, good = tiny_bundle.path, write_good_pictures(tmp_path / "good", 3)
    on = ("--engine", "openvino", "--device")
    ok("enroll", path, *good[:2], *on, "CPU")
    ok("infer", path, good[2], *on, "AUTO")
    assert "no device 'GPU.7'" in fails(3, "infer", path, good[2], *on, "GPU.7")
    assert "no device 'GPU.7'" in fails(3, "bench", path, *on, "GPU.7")
    assert "no device 'GPU.7'" in fails(3, "enroll", path, good[2], *on, "GPU.7")


def test_ctrl_c_still_finds_a_stack(tiny_bundle: Bundle) -> None:
    """OpenVINO sets a signal stack on the thread and frees it; ours must be back afterwards."""

    class Stack(ctypes.Structure):
        _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))

    def current() -> tuple[int | None, int]:
        stack = Stack()
        ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
        return stack.sp, stack.size

    before = current()
    engines = [engine_of(tiny_bundle) for _ in range(2)]
    assert current() == before
    while engines:
        engines.pop(0)
        gc.collect()
        assert current() == before
