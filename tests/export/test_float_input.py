"""A graph that takes float32 NCHW, as DeepStream gives it, gives the same features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import fails, ok
from doubles.fake_tensorrt import FakeTensorRt
from numpy.typing import NDArray
from tiny_bundle import write_good_pictures

from anoco_edge.bundle import Bundle, InputContract, create_builtin_bundle, create_bundle
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import ParityError, UsageError
from anoco_edge.plans.build import build_bundle_plan
from anoco_edge_export.export import ExportedBackbone, export_backbone
from anoco_edge_export.float_input import take_float_pixels
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.half_format import FP16
from anoco_edge_export.onnx_graph import run_onnx, save_graph
from anoco_edge_export.options import ExportOptions
from anoco_edge_export.package import package_bundle
from anoco_edge_export.synthetic import synthetic_picture


@pytest.fixture(scope="module")
def bytes_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return create_builtin_bundle(tmp_path_factory.mktemp("bytes") / "bytes.anoco")


@pytest.fixture(scope="module")
def float_bundle(bytes_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The built-in bundle as an export with float pixels writes it."""
    manifest = bytes_bundle.manifest
    files = {record.path: bytes_bundle.read(record) for record in manifest.files}
    graph = take_float_pixels(onnx.load_from_string(files["backbone.onnx"]))
    return create_bundle(
        tmp_path_factory.mktemp("floats") / "floats.anoco",
        backbone=manifest.backbone,
        contract=manifest.input.model_copy(update={"pixels": "float32"}),
        parity={},
        tools={},
        files={**files, "backbone.onnx": graph.SerializeToString()},
    )


@pytest.fixture(scope="module")
def pictures() -> NDArray[np.uint8]:
    return np.stack([synthetic_picture(256, 256, seed) for seed in range(3)])


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_the_features_are_the_same_bits(
    bytes_bundle: Bundle, float_bundle: Bundle, pictures: Any, name: str
) -> None:
    settings = EngineSettings(threads=1)
    wanted = open_engine(name, bytes_bundle, settings).features(pictures)
    engine = open_engine(name, float_bundle, settings)
    np.testing.assert_array_equal(engine.features(pictures), wanted)
    assert check_engine(float_bundle, engine, force=True).min_cosine > 0.99999


@pytest.mark.usefixtures("empty_cache")
def test_a_plan_of_it_runs_and_is_tested(
    trt: FakeTensorRt, bytes_bundle: Bundle, float_bundle: Bundle, pictures: Any
) -> None:
    record = build_bundle_plan(float_bundle, "tensorrt", batch=2).record
    assert b"[1, 3, 256, 256]" in record.path.read_bytes()[:200], "the profile is NCHW"
    engine = open_engine("tensorrt", float_bundle)
    wanted = open_engine("onnxruntime", bytes_bundle).features(pictures)
    np.testing.assert_array_equal(engine.features(pictures), wanted)
    assert check_engine(float_bundle, engine, force=True).min_cosine > 0.99999


def test_the_manifest_says_it_and_only_then(bytes_bundle: Bundle, float_bundle: Bundle) -> None:
    stored = [
        json.loads((bundle.path / "manifest.json").read_text())["input"]
        for bundle in (bytes_bundle, float_bundle)
    ]
    assert "pixels" not in stored[0] and stored[1]["pixels"] == "float32"
    assert Bundle.open(float_bundle.path).manifest.input.pixels == "float32"
    with pytest.raises(ValueError, match="pixels"):
        InputContract(width=16, height=16, stride=16, rows=1, cols=1, dim=8, pixels="int8")  # type: ignore[arg-type]


def test_it_is_taught_and_inspects_in_python_alone(float_bundle: Bundle, tmp_path: Path) -> None:
    assert "float32 pixels, for DeepStream" in " ".join(ok("info", float_bundle.path).out.split())
    good = write_good_pictures(tmp_path / "good", 2)
    ok("enroll", float_bundle.path, *good)
    report = ok("infer", float_bundle.path, good[0], "--json").json
    assert report["results"][0]["verdict"] in ("good", "anomalous")
    line = fails(2, "infer", float_bundle.path, good[0], "--runtime", "native")
    assert "takes float32 pixels, for DeepStream" in line and "--runtime python" in line
    with pytest.raises(UsageError, match="a single file takes uint8"):
        package_bundle(float_bundle, single_file=tmp_path / "one.onnx")


def test_the_native_library_refuses_it_too(float_bundle: Bundle, native_library: Path) -> None:
    import ctypes

    library = ctypes.CDLL(str(native_library))
    library.anoco_last_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    code = library.anoco_bundle_open(str(float_bundle.path).encode(), ctypes.byref(handle))
    assert code != 0 and b"pixels" in library.anoco_last_error()


# ---- the export


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportedBackbone:
    folder = tmp_path_factory.mktemp("exported")
    options = ExportOptions(size=(96, 64), pixels="float32")
    return export_backbone("efficientnet-lite0", folder, options)


def test_the_gate_compares_the_graph_that_ships(exported: ExportedBackbone) -> None:
    path = exported.files["backbone.onnx"]
    assert isinstance(path, Path)
    (taken,) = onnx.load(path).graph.input
    shape = [d.dim_value for d in taken.type.tensor_type.shape.dim]
    assert taken.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and shape[1:] == [3, 64, 96]
    (check,) = exported.parity.checks
    assert check.measured.min_cosine > 0.999999 and exported.input.pixels == "float32"


def test_a_half_precision_graph_keeps_its_cast(bytes_bundle: Bundle, tmp_path: Path) -> None:
    """Without the island `embedding` the first Cast gives FP16, and must go on doing so."""
    graph = onnx.load(bytes_bundle.path / "backbone.onnx")
    half, _ = convert_to_half(graph, ["output"], FP16)
    picture = synthetic_picture(256, 256, 5)[None]
    (first,) = save_graph(half, tmp_path / "bytes.onnx")
    (second,) = save_graph(take_float_pixels(half), tmp_path / "floats.onnx")
    floats = bytes_bundle.manifest.input.model_copy(update={"pixels": "float32"})
    given = floats.arranged(picture)
    np.testing.assert_array_equal(run_onnx(second, given), run_onnx(first, picture))


def test_a_graph_that_begins_otherwise_is_refused(bytes_bundle: Bundle) -> None:
    graph = onnx.load(bytes_bundle.path / "backbone.onnx")
    transpose = next(node for node in graph.graph.node if node.op_type == "Transpose")
    transpose.op_type = "Identity"
    with pytest.raises(ParityError, match="does not begin as expected"):
        take_float_pixels(graph)


@pytest.mark.full
def test_attention_is_fused_with_float_pixels_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    args = ("export", "--backbone", "dinov3-s", "--weights", "random:0", "--size", "224")
    more = ("--layer", "2", "--precision", "fp16", "--input", "float")
    ok(*args, *more, "--out", tmp_path / "half.anoco")
    fusion = Bundle.open(tmp_path / "half.anoco").manifest.parity["fusion"]
    assert fusion["counts"]["fused"] == fusion["blocks"] == 2
