"""The right engine is chosen for a stated reason; it gets a graph by bytes, or by path if large."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails
from engine_cases import ONE_INPUT
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.bundle import Bundle, create_bundle
from anoco_edge.engines import ENGINES, EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import BundleError, EnvironmentMissingError, UsageError
from anoco_edge.plugins import registry

ON_CPU = ("onnxruntime", "openvino")


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    monkeypatch.setattr(registry, "find_spec", lambda n: None if n in modules else find_spec(n))


@pytest.fixture
def in_two_files(tiny_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """Write the same backbone with its weights in a second file, as graphs over 2 GB have them."""
    import onnx

    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(tmp_path)  # onnx refuses a name that exists in the current directory
    onnx.save_model(
        onnx.load(tiny_bundle.path / "backbone.onnx"),
        work / "backbone.onnx",
        save_as_external_data=True,
        location="backbone.onnx.data",
        size_threshold=64,  # shapes stay inside: ONNX Runtime wants them there
    )
    files: dict[str, bytes | Path] = {
        r.path: tiny_bundle.read(r) for r in tiny_bundle.manifest.files
    }
    files |= {name: work / name for name in ("backbone.onnx", "backbone.onnx.data")}
    return create_bundle(
        tmp_path / "two.anoco",
        backbone=tiny_bundle.manifest.backbone,
        contract=tiny_bundle.manifest.input,
        parity={},
        tools={},
        files=files,
    )


# ---- choosing


def test_a_name_is_taken_at_its_word() -> None:
    for name in ENGINES.names():
        assert choose_engine(name) == (name, "asked for")
    with pytest.raises(UsageError, match=r"unknown engine 'warp'; use auto or one of onnx.*-rtx"):
        choose_engine("warp")


def test_auto_prefers_a_plan_then_onnxruntime_then_openvino(
    tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, why = choose_engine("auto", tiny_bundle)
    assert name == "onnxruntime" and "no plan" in why
    without(monkeypatch, "onnxruntime")
    name, why = choose_engine("auto", tiny_bundle)
    assert name == "openvino" and "onnxruntime is not installed" in why
    without(monkeypatch, "onnxruntime", "openvino")
    with pytest.raises(EnvironmentMissingError, match=r"anoco-edge\[cpu\]"):
        choose_engine("auto", tiny_bundle)
    asked = []

    def only_rtx(plan_engine: str, bundle: Bundle | None = None) -> str:
        asked.append((plan_engine, bundle))
        return "" if plan_engine == "tensorrt-rtx" else "no driver"

    monkeypatch.setattr("anoco_edge.engines.tensorrt.why_not", only_rtx)
    name, why = choose_engine("auto", tiny_bundle)
    assert name == "tensorrt-rtx" and "plan of this bundle" in why
    assert asked == [("tensorrt", tiny_bundle), ("tensorrt-rtx", tiny_bundle)]


def test_auto_opens_what_it_chose(tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_engine("auto", tiny_bundle).name == "onnxruntime"
    without(monkeypatch, "onnxruntime")
    assert open_engine("auto", tiny_bundle).name == "openvino"


@pytest.mark.parametrize("plan_engine", ["tensorrt", "tensorrt-rtx"])
def test_engines_of_plans_get_their_name(
    tiny_bundle: Bundle, plan_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Double:
        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

    monkeypatch.setattr("anoco_edge.engines.tensorrt.TensorRtEngine", Double)
    settings = EngineSettings(threads=1)
    opened: Any = open_engine(plan_engine, tiny_bundle, settings)
    assert opened.arguments == (plan_engine, tiny_bundle, settings)


def test_a_device_is_never_ignored(tiny_bundle: Bundle, tmp_path: Path) -> None:
    settings = EngineSettings(device="GPU")
    with pytest.raises(UsageError, match=r"which onnxruntime does not know.*`engine='openvino'`"):
        open_engine("auto", tiny_bundle, settings)
    (good,) = write_good_pictures(tmp_path / "good", 1)
    said = fails(2, "enroll", tiny_bundle.path, good, "--device", "NPU")
    assert "--engine openvino" in said


# ---- graphs in two files, and large ones


@pytest.mark.parametrize("name", ON_CPU)
def test_weights_in_a_file_of_their_own(
    tiny_bundle: Bundle, in_two_files: Bundle, name: str
) -> None:
    bundle = in_two_files
    assert bundle.file("backbone.onnx").size < tiny_bundle.file("backbone.onnx").size
    engine = open_engine(name, bundle)
    check_engine(bundle, engine, force=True)
    one = open_engine("onnxruntime", tiny_bundle).features(ONE_INPUT)
    np.testing.assert_allclose(engine.features(ONE_INPUT), one, atol=1e-5)
    # The stored result of a self-test is valid for these weights only.
    assert bundle.file("backbone.onnx.data").sha256 in bundle.graph_identity()


@pytest.mark.parametrize("name", ON_CPU)
@pytest.mark.parametrize("file", ["backbone.onnx", "backbone.onnx.data"])
def test_either_file_is_checked(in_two_files: Bundle, name: str, file: str) -> None:
    bundle = in_two_files
    content = bytearray((bundle.path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle.path / file).write_bytes(content)
    with pytest.raises(BundleError, match=rf"{file} is not what was written"):
        open_engine(name, bundle)


@pytest.mark.parametrize("name", ON_CPU)
def test_large_graphs_are_opened_by_path(
    tiny_bundle: Bundle, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = open_engine(name, tiny_bundle).features(ONE_INPUT)
    assert isinstance(tiny_bundle.graph(), bytes)
    monkeypatch.setattr("anoco_edge.bundle.store.LARGE_GRAPH", 100)
    monkeypatch.setattr(Bundle, "read", None)  # that would read the whole file into memory
    assert tiny_bundle.graph() == tiny_bundle.path / "backbone.onnx"
    np.testing.assert_array_equal(open_engine(name, tiny_bundle).features(ONE_INPUT), small)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_graph_that_is_none_or_gives_another_shape(
    tiny_bundle: Bundle, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_tiny_bundle(tmp_path / "other.anoco", dim=6)
    mixed = Bundle(
        other.path,
        other.manifest.model_copy(update={"input": tiny_bundle.manifest.input}),
    )
    with pytest.raises(BundleError, match=r"shape \(16, 6\), the manifest says \(16, 8\)"):
        open_engine(name, mixed).features(ONE_INPUT)
    monkeypatch.setattr(Bundle, "read", lambda *_: b"not a graph")
    with pytest.raises(BundleError, match=r"backbone.onnx is not an ONNX graph") as caught:
        open_engine(name, tiny_bundle)
    assert "\n" not in str(caught.value)
