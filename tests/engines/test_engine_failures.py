"""An engine that fails on a picture gives one clear line and goes on.

One that dies ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Ran, fails, rows_of, run_cli
from engine_cases import ONE_INPUT
from graph_corpus import changed, replace_files
from onnx import ModelProto, TensorProto, helper, numpy_helper
from PIL import Image
from tiny_bundle import textured_picture

from anoco_edge import Detector
from anoco_edge.bundle import Bundle
from anoco_edge.engines import open_engine
from anoco_edge.engines.openvino import OpenVinoEngine
from anoco_edge.engines.ort import OnnxRuntimeEngine
from anoco_edge.errors import AnocoError, BundleError, EngineError
from anoco_edge.native import interface
from anoco_edge.native.library import error_of

WORDS = "Non-zero status code\nreturned while running Conv"


def fails_on_white(model: ModelProto) -> None:
    """Write a backbone that looks up a missing table entry for every picture with a white pixel."""
    model.graph.node[-1].output[0] = "before"
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name)
        for name, value in {
            "white": np.array(255, np.uint8),
            "table": np.ones(1, np.float32),
        }.items()
    )
    model.graph.node.extend(
        [
            helper.make_node("Div", ["pixels", "white"], ["is_white"]),
            helper.make_node("Cast", ["is_white"], ["numbers"], to=TensorProto.INT32),
            helper.make_node("ReduceMax", ["numbers"], ["index"], keepdims=0),
            helper.make_node("Gather", ["table", "index"], ["factor"]),
            helper.make_node("Mul", ["before", "factor"], ["features"]),
        ]
    )


class Dying:
    """A session or request that works a given number of times and then fails."""

    def __init__(self, inner: Any, method: str, times: int) -> None:
        self._inner, self._left = inner, times
        setattr(self, method, lambda *given, **more: self._call(method, given, more))

    def _call(self, method: str, given: Any, more: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError(WORDS)
        return getattr(self._inner, method)(*given, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return `dying(n)`, after which newly opened engines work n times."""

    def arrange(times: int) -> None:
        for engine, place, method in (
            (OnnxRuntimeEngine, "_session", "run"),
            (OpenVinoEngine, "_request", "infer"),
        ):
            opened: Any = engine.__init__

            def start(
                self: Any, *given: Any, _: Any = (opened, place, method), **more: Any
            ) -> None:
                opened, place, method = _
                opened(self, *given, **more)
                setattr(self, place, Dying(getattr(self, place), method, times))

            monkeypatch.setattr(engine, "__init__", start)

    return arrange


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_what_an_engine_raises_becomes_one_line(
    tiny_bundle: Bundle, name: str, dying: Callable[[int], None]
) -> None:
    dying(0)
    with pytest.raises(EngineError, match=rf"{name}.* failed on a batch of 1: Non-zero") as caught:
        open_engine(name, tiny_bundle).features(ONE_INPUT)
    assert "\n" not in str(caught.value) and "another engine" in caught.value.hint
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_refusal_that_is_no_text_is_one_line_all_the_same(
    tiny_bundle: Bundle, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Engines quote names of the graph, which Python's bindings may fail to decode."""
    graph = changed(lambda model: setattr(model.graph.node[4], "op_type", "Absent"))
    bundle = replace_files(tiny_bundle, {"backbone.onnx": graph.replace(b"Absent", b"Abs\xa2nt")})
    with pytest.raises(BundleError, match=r"cannot load .*backbone.onnx") as caught:
        open_engine(name, bundle)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().out == ""  # JSON results may go there


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("command", ["infer", "enroll", "calibrate"])
def test_an_engine_that_never_runs(
    here: Path, command: str, name: str, dying: Callable[[int], None], empty_cache: None
) -> None:
    dying(0)
    said = fails(1, command, "line.anoco", "parts", "--engine", name)
    assert "failed on a batch of 1: Non-zero status code returned while running Conv" in said


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_an_engine_that_dies_ends_the_run_and_keeps_its_rows(
    here: Path, name: str, dying: Callable[[int], None]
) -> None:
    Detector.open("line.anoco", engine=name)  # stores the result of the self-test
    dying(2)
    said = fails(
        1, "infer", "line.anoco", "parts", "--engine", name, "--out", "out", "--batch", "1"
    )
    assert "the engine stopped working, references fail too" in said and "doctor" in said
    rows = rows_of(Path("out"))
    assert [row["verdict"] is None for row in rows] == [False, False, True]
    assert "failed on a batch of 1" in rows[2]["error"]


def test_a_dead_engine_is_not_asked_again_and_again(
    here: Path, dying: Callable[[int], None]
) -> None:
    for number in range(30):
        Image.fromarray(textured_picture(100 + number)).save(here / "parts" / f"{number}.png")
    Detector.open("line.anoco")
    dying(0)
    fails(1, "infer", "line.anoco", "parts", "--out", "out", "--batch", "4")
    assert len(rows_of(Path("out"))) == 4  # the batch in which it died


def with_a_white_picture(folder: Path) -> Bundle:
    """Make a backbone that fails on white pixels, and put one such picture among the good ones."""
    bundle = Bundle.open(folder / "line.anoco")
    bundle = replace_files(bundle, {"backbone.onnx": changed(fails_on_white)})
    white = textured_picture(60)
    white[:, :48] = 255
    Image.fromarray(white).save(folder / "parts" / "a-white.png")
    return bundle


def test_a_picture_that_an_engine_fails_on_costs_no_other(here: Path) -> None:
    with_a_white_picture(here)
    ran: Ran = run_cli("infer", "line.anoco", "parts", "--json")
    assert ran.code == 1 and "internal error" not in ran.err
    assert "1 of 4 pictures could not be inspected" in ran.complaint
    first, *others = ran.json["results"]
    assert (
        "a-white.png" in first["error"] and "onnxruntime failed on a batch of 1" in first["error"]
    )
    assert all(row["verdict"] for row in others) and len(others) == 3


def test_a_detector_raises_it_and_goes_on(here: Path) -> None:
    with_a_white_picture(here)
    detector = Detector.open("line.anoco")
    with pytest.raises(EngineError, match="failed on a batch of 1"):
        detector.inspect("parts/a-white.png")
    assert detector.inspect("parts/good0.png").score > 0
    detector.probe_engine()  # it works, so no warning is given


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((1, 16, 7), np.float32), r"shape \(16, 7\), the manifest says \(16, 8\)"),
        (np.zeros((1, 8), np.float32), r"shape \(8,\), the manifest says"),
        (np.zeros((2, 16, 8), np.float32), "2 grids of float32 for a batch of 1"),
        (np.zeros((1, 16, 8), np.float64), "1 grids of float64 for a batch of 1"),
    ],
)
def test_what_a_run_gives_is_checked_before_it_is_used(
    tiny_bundle: Bundle, value: np.ndarray, words: str
) -> None:
    class Other:
        def run(self, *_: object) -> list[np.ndarray]:
            return [value]

        def infer(self, *_: object, **__: object) -> dict[str, np.ndarray]:
            return {"features": value}

    first: Any = open_engine("onnxruntime", tiny_bundle)
    first._session = Other()
    second: Any = open_engine("openvino", tiny_bundle)
    second._request = Other()
    for engine in (first, second):
        with pytest.raises(BundleError, match=words):
            engine.features(ONE_INPUT)


def test_a_native_engine_that_dies(here: Path, use_native: Path) -> None:
    class Failing:
        """The library with an engine that fails after the first picture."""

        def __init__(self, library: Any) -> None:
            self._library, self._left = library, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self._library, name)

        def anoco_inspect(self, *given: Any) -> int:
            self._left -= 1
            return self._library.anoco_inspect(*given) if self._left >= 0 else interface.ENGINE

        def anoco_last_error(self) -> bytes:
            return b"openvino: OpenVINO failed: device lost"

    detector: Any = Detector.open("line.anoco", runtime="native")
    for context in detector._pipeline._idle:
        context._library = Failing(context._library)
    outcomes = list(detector.inspect_many(["parts/good0.png", "parts/good1.png"], 1))
    assert outcomes[0].score > 0 and isinstance(outcomes[1], EngineError)
    assert str(outcomes[1]) == "openvino: OpenVINO failed: device lost; see anoco-edge doctor"
    with pytest.raises(EngineError, match="stopped working, references fail too: openvino"):
        detector.probe_engine()


def test_only_a_failed_run_is_an_engine_error() -> None:
    assert isinstance(error_of(interface.ENGINE, "it failed"), EngineError)
    others = set(range(1, 20)) - {interface.ENGINE}
    assert not any(isinstance(error_of(status, ""), EngineError) for status in others)


def test_a_scorer_of_onnxruntime_that_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector: Any = Detector.open("line.anoco", scorer="onnx")
    scorer = detector._pipeline.energies._scorer
    scorer._retrieval = Dying(scorer._retrieval, "run", 0)
    with pytest.raises(AnocoError, match="the onnx scorer failed: Non-zero status") as caught:
        detector.inspect("parts/good0.png")
    assert isinstance(caught.value, EngineError) and "\n" not in str(caught.value)
