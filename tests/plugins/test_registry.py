"""Registries read their tables and entry points, and report bad entries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from anoco_edge.cli.options import native_names
from anoco_edge.detector import Detector
from anoco_edge.engines import ENGINES, EngineChoice, EngineSpec, choose_engine, needs_gpu
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.pipeline.native import choose_parts
from anoco_edge.plugins import Registry, Spec, StageRegistry, registry
from anoco_edge.scoring import SCORERS, ScorerChoice, ScorerSpec, choose_scorer
from anoco_edge.sources import SOURCES
from anoco_edge.teaching import NewPicture, Teacher
from anoco_edge_calibration.evaluation import fleet_evaluation


@dataclass(frozen=True)
class ColorSpec(Spec):
    shade: str = "light"


GROUP = "anoco_edge.colors_of_a_test"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Make a module of another package, which entry points can name."""
    made = ModuleType("colors_of_a_test")
    monkeypatch.setitem(sys.modules, "colors_of_a_test", made)
    return made


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Registry[ColorSpec]]:
    """Return a function that makes a registry with an entry red and the given entry points."""

    def make(**points: str) -> Registry[ColorSpec]:
        found = [EntryPoint(name, value, GROUP) for name, value in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)
        return Registry("color", GROUP, [ColorSpec("red", "json")], ColorSpec)

    return make


def test_an_entry_point_names_a_spec_or_a_function(module: Any, table: Any) -> None:
    module.GREEN = ColorSpec("green", "json", shade="dark")
    module.make_blue = lambda: ColorSpec("blue", "json")
    colors = table(green="colors_of_a_test:GREEN", blue="colors_of_a_test:make_blue")
    assert colors.names() == ("red", "blue", "green")
    assert colors.get("green").shade == "dark" and colors.broken == {}


def test_a_bad_entry_is_kept_apart_and_named(module: Any, table: Any) -> None:
    module.SPEC = Spec("plain", "json")  # not a ColorSpec
    module.GREEN = ColorSpec("green", "json")
    colors = table(
        plain="colors_of_a_test:SPEC",
        olive="colors_of_a_test:GREEN",
        gone="no_such_module_anywhere:SPEC",
        red="colors_of_a_test:GREEN",
    )
    assert colors.names() == ("red",)
    assert set(colors.broken) == {"plain", "olive", "gone", "red"}
    assert "not a ColorSpec named 'plain'" in colors.broken["plain"]
    assert "named 'olive'" in colors.broken["olive"]
    assert "no_such_module_anywhere" in colors.broken["gone"]
    assert "the name is taken" in colors.broken["red"]
    assert colors.get("red").module == "json"  # our own entry stays
    with pytest.raises(EnvironmentMissingError, match="'gone' comes from a package that cannot"):
        colors.get("gone")
    with pytest.raises(UsageError, match="unknown color 'pink'; use one of: red"):
        colors.get("pink")


def test_why_an_entry_cannot_be_used(module: Any) -> None:
    spec = Spec("green", "colors_of_a_test")
    assert spec.why_not() == ""
    module.why_not = lambda *given: f"no paint for {given}"
    assert spec.why_not(1, 2) == "no paint for (1, 2)"

    def fail() -> str:
        raise RuntimeError("the bucket leaks")

    module.why_not = fail
    assert spec.why_not() == "green fails when it is asked: RuntimeError: the bucket leaks"
    missing = Spec("green", "no_such_paint.module", packages=("no_such_paint",))
    assert "pip install no_such_paint" in missing.why_not()
    with pytest.raises(EnvironmentMissingError, match="no_such_paint is needed to use it"):
        missing.load()
    with pytest.raises(EnvironmentMissingError, match="cannot be loaded"):
        Spec("green", "no_such_paint.module").load()


def test_auto_takes_the_lowest_rank_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    first = EngineSpec("first", "json", packages=("no_such_package",), rank=1, auto=True)
    second = EngineSpec("second", "json", rank=2, auto=True, auto_reason="it is second")
    never = EngineSpec("never", "json", rank=0)
    made = StageRegistry("engine", GROUP, [second, first, never], EngineSpec)
    monkeypatch.setattr("anoco_edge.engines.registry.ENGINES", made)
    assert choose_engine() == EngineChoice("second", "it is second")
    scorer = ScorerSpec("only", "json", auto=True, auto_reason="it is alone")
    scorers = StageRegistry("scorer", GROUP, [scorer], ScorerSpec)
    monkeypatch.setattr("anoco_edge.scoring.registry.SCORERS", scorers)
    assert choose_scorer() == ScorerChoice("only", "it is alone")


def test_engines_say_whether_they_need_a_gpu() -> None:
    assert {spec.name for spec in ENGINES if needs_gpu(spec.name)} == {
        "onnxruntime-cuda",
        "onnxruntime-tensorrt",
        "tensorrt",
        "tensorrt-rtx",
    }
    assert not needs_gpu("auto") and not needs_gpu("my-cuda-like-name")
    # `eval --on` asks the same table as `infer --on`.
    assert fleet_evaluation.needs_gpu is needs_gpu


@pytest.mark.parametrize(
    ("table", "function"),
    [(ENGINES, "open_engine"), (SCORERS, "open_scorer"), (SOURCES, "open_source")],
    ids=["engines", "scorers", "sources"],
)
def test_every_module_of_ours_opens(table: Registry[Any], function: str) -> None:
    for spec in table:
        assert callable(getattr(spec.load(), getattr(spec, "opener", function)))


def test_a_pipeline_chooses_once(
    tiny_bundle: Any, good_pictures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = Teacher.open(tiny_bundle.path)
    teacher.enroll([NewPicture.from_file(path) for path in good_pictures(1)])
    for place in ("engines.registry.choose_engine", "scoring.registry.choose_scorer"):
        # The code that opens them looks here; the pipeline has its own references to the real ones.
        monkeypatch.setattr(f"anoco_edge.{place}", _choose_again)
    detector = Detector.open(tiny_bundle.path)
    assert detector.choices["engine"].name == "onnxruntime"
    assert detector.choices["scorer"].reason


def _choose_again(*given: object) -> None:
    raise AssertionError(f"{given} was chosen already")


def test_the_native_runtime_runs_what_the_tables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those of the C interface (anoco_detector_options: backend, scorer)."""
    assert {spec.name: spec.native for spec in ENGINES.native()} == {
        "openvino": "openvino",
        "tensorrt": "tensorrt",
    }
    assert {spec.name: spec.native for spec in SCORERS.native()} == {
        "native": "cpu",
        "cuda": "cuda",
    }
    assert [c.name for c in choose_parts().values()] == ["openvino", "native"]
    assert [c.name for c in choose_parts("tensorrt").values()] == ["tensorrt", "cuda"]
    monkeypatch.setattr(ENGINES, "native", lambda: (ENGINES.get("onnxruntime-cuda"),))
    assert [c.name for c in choose_parts().values()] == ["onnxruntime-cuda", "cuda"]
    with pytest.raises(UsageError, match="the native runtime has onnxruntime-cuda alone"):
        choose_parts("openvino")
    assert native_names() == "onnxruntime-cuda; native, cuda"
