"""INT8 exports: the Q/DQ graph against NumPy, ranges, the choice of layers, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from command_line import fails, ok
from exported_families import export_case
from numpy.typing import NDArray
from onnx import numpy_helper, parser
from tiny_bundle import textured_picture, write_good_pictures

from anoco_edge.engines import open_engine
from anoco_edge.engines.selftest import LIMITS, check_engine, selftest_energies
from anoco_edge.plans.tensorrt_modules import is_installed
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NewPicture
from anoco_edge_calibration.int8 import CalibrationSet, collect_ranges
from anoco_edge_export import ExportOptions, export_backbone, int8, load_recipe
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.fp32_islands import tensor_types
from anoco_edge_export.onnx_graph import INPUT, OUTPUT
from anoco_edge_export.parity import DiffersError
from anoco_edge_export.qdq import (
    SWITCHES,
    add_switches,
    named_products,
    quantizable_layers,
    quantize,
)

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\nsmall (float[batch, 4] x) => (float[b, 3] y)'
BODY = """
 a = Gemm <transB = 1> (x, first_weight, first_bias)
 b = Relu (a)
 y = Gemm <transB = 1> (b, second_weight)
"""
RANGES = {"x": 2.0, "b": 4.0}
RTX = ("sm86",) if is_installed("tensorrt-rtx") else ()


@pytest.fixture(scope="module")
def weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    shapes = {"trunk.first.weight": (5, 4), "trunk.first.bias": (5,), "trunk.second.weight": (3, 5)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def model(weights: dict[str, NDArray[np.float32]]) -> Any:
    made = parser.parse_model(f"{HEAD} {{ {BODY} }}")
    for node in made.graph.node:  # the parser takes no dots
        for slot, name in enumerate(node.input):
            if "_" in name:
                node.input[slot] = f"trunk.{name.replace('_', '.')}"
    for name, value in weights.items():
        made.graph.initializer.append(numpy_helper.from_array(value, name))
    return made


def run(graph: Any, x: NDArray[np.float32], **more: NDArray[Any]) -> NDArray[np.float32]:
    (y,) = open_session(graph.SerializeToString(), "it").run(None, {"x": x, **more})
    return np.asarray(y)


def feed() -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)


def rounded(values: NDArray[np.float32], limit: Any) -> NDArray[np.float32]:
    """Round to the 255 steps of INT8, symmetric about 0."""
    scale = np.float32(limit) / np.float32(127)
    return (np.clip(np.rint(values / scale), -128, 127) * scale).astype(np.float32)


# The graph


def test_products_carry_their_layers_names_and_compute_the_same(model: Any) -> None:
    plain = named_products(model)
    assert [n.op_type for n in plain.graph.node] == ["MatMul", "Sub", "Relu", "MatMul"]
    assert quantizable_layers(plain, []) == {"first": "x", "second": "b"}
    np.testing.assert_allclose(run(plain, feed()), run(model, feed()), rtol=1e-5, atol=1e-6)


def test_islands_are_kept(model: Any) -> None:
    assert quantizable_layers(named_products(model), ["embedding"]) == {"second": "b"}


def test_it_computes_what_numpy_computes_with_rounded_numbers(
    model: Any, weights: dict[str, NDArray[np.float32]]
) -> None:
    graph = quantize(named_products(model), ["first", "second"], RANGES)
    onnx.checker.check_model(graph, full_check=True)
    first, bias, second = weights.values()
    by_row = [rounded(w, np.abs(w).max(axis=1, keepdims=True)) for w in (first, second)]
    b = np.maximum(rounded(feed(), 2.0) @ by_row[0].T + bias, 0)
    np.testing.assert_allclose(run(graph, feed()), rounded(b, 4.0) @ by_row[1].T, atol=1e-5)
    assert np.abs(run(graph, feed()) - run(model, feed())).max() > 1e-3
    assert len(graph.opset_import) == 1 and graph.ir_version == 10


def test_it_is_symmetric_and_biases_stay(model: Any) -> None:
    graph = quantize(named_products(model), ["first", "second"], RANGES)
    kinds = {t.name: t.data_type for t in graph.graph.initializer}
    assert kinds["trunk.first.bias/negative"] == onnx.TensorProto.FLOAT
    assert onnx.TensorProto.INT32 not in kinds.values()
    values = {t.name: numpy_helper.to_array(t) for t in graph.graph.initializer}
    both = ("QuantizeLinear", "DequantizeLinear")
    pairs = [n for n in graph.graph.node if n.op_type in both]
    assert len(pairs) >= 4
    assert all(not values[n.input[2]].any() for n in pairs if len(n.input) > 2)
    made = {output: node.op_type for node in graph.graph.node for output in node.output}
    relu = next(n for n in graph.graph.node if n.op_type == "Relu")
    assert made[relu.input[0]] == "Sub"  # the result of a product is not rounded again


def test_the_bias_of_a_convolution_stays() -> None:
    """TensorRT-RTX refuses to dequantise INT32."""
    head = HEAD.replace("float[batch, 4] x", "float[batch, 3, 8, 8] x").replace(
        "[b, 3]", "[b, c, h, w]"
    )
    made = parser.parse_model(f"{head} {{ y = Conv (x, weight, bias) }}")
    for name, shape in {"weight": (2, 3, 3, 3), "bias": (2,)}.items():
        made.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    graph = quantize(named_products(made), ["weight"], {"x": 1.0})
    (conv,) = (n for n in graph.graph.node if n.op_type == "Conv")
    kinds = {t.name: t.data_type for t in graph.graph.initializer}
    assert kinds.get(conv.input[2]) == onnx.TensorProto.FLOAT
    assert not {"x", "weight"} & set(conv.input)


def test_layers_that_are_left_out_are_untouched(model: Any) -> None:
    plain = named_products(model)
    graph = quantize(plain, ["second"], RANGES)
    (product,) = (n for n in graph.graph.node if n.name == "first")
    assert list(product.input) == ["x", "trunk.first.weight/turned"]
    assert quantize(plain, [], RANGES) is plain


def test_one_graph_with_switches_is_every_choice_of_layers(model: Any) -> None:
    plain = named_products(model)
    layers = quantizable_layers(plain, [])
    both = add_switches(plain, layers, RANGES)
    onnx.checker.check_model(both, full_check=True)
    for on in ([], ["first"], ["second"], ["first", "second"]):
        switches = np.array([name in on for name in layers])
        expected = run(quantize(plain, on, RANGES), feed())
        found = run(both, feed(), **{SWITCHES: switches})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_no_cast_stands_between_int8_and_its_product(model: Any) -> None:
    graph = quantize(named_products(model), ["first", "second"], RANGES)
    half, _ = convert_to_half(graph, [], quantized=True)
    types = tensor_types(half)
    made = {output: node.op_type for node in half.graph.node for output in node.output}
    products = [n for n in half.graph.node if n.op_type == "MatMul"]
    assert {made[name] for n in products for name in n.input} == {"DequantizeLinear"}
    relu, bias = (next(n for n in half.graph.node if n.op_type == op) for op in ("Relu", "Sub"))
    assert types[relu.output[0]] == onnx.TensorProto.FLOAT16
    assert types[bias.output[0]] == onnx.TensorProto.FLOAT
    np.testing.assert_allclose(run(half, feed()), run(graph, feed()), atol=0.1)


# Ranges

IMAGE = (
    '<ir_version: 10, opset_import: ["" : 18]>\n'
    "small (uint8[batch, h, w, 3] x) => (float[b, h, w, 3] y, float[b, h, w, 3] z)"
)


def test_ranges_are_the_largest_values_and_halves_see_half(tmp_path: Path) -> None:
    graph = parser.parse_model(f"{IMAGE} {{ y = Cast <to = 1> (x)\n z = Sub (y, y) }}")
    path = tmp_path / "it.onnx"
    path.write_bytes(graph.SerializeToString())
    pictures = [np.full((8, 8, 3), 10 * (k + 1), np.uint8) for k in range(4)]
    seen: list[int] = []
    found = collect_ranges(path, ["y", "z"], pictures, seen.append)
    assert found.halves is not None and seen == [1, 2, 3, 4]
    assert found.whole["y"] == 40
    assert [half["y"] for half in found.halves] == [30, 40]
    assert found.whole["z"] == 1  # for zeros any range will do, except an empty one
    assert collect_ranges(path, ["y"], pictures[:1]).halves is None


# Exports


@pytest.mark.full
@pytest.mark.parametrize("name", ["dinov3-s", "dinov2-s-plain", "wrn50", "efficientnet-lite0"])
def test_exported_built_and_run(name: str, tmp_path: Path) -> None:
    exported = export_case(name, tmp_path, "int8", targets=RTX)
    manifest = exported.bundle.manifest
    report, recipe = manifest.parity["int8"], load_recipe(name)
    assert recipe.int8 is not None and manifest.backbone.precision == "int8"
    assert len(manifest.plans) == len(RTX)
    graph = onnx.load(exported.bundle.path / "backbone.onnx")
    rounding = [n for n in graph.graph.node if n.op_type == "QuantizeLinear"]
    assert rounding and len(report["layers"]) - len(report["left_out"]) >= len(rounding)
    kinds = set(tensor_types(graph).values())
    assert (onnx.TensorProto.FLOAT16 in kinds) == (recipe.int8.rest == "fp16")
    for engine in ("onnxruntime", "openvino"):
        found = check_engine(exported.bundle, open_engine(engine, exported.bundle), force=True)
        assert LIMITS["int8"][0] < found.min_cosine < 0.999999


def test_matrices_are_multiplied_as_integers(tmp_path: Path) -> None:
    """The graph that ONNX Runtime runs contains the arithmetic that the report names."""
    import onnxruntime

    bundle = export_case("dinov3-s", tmp_path, "int8").bundle
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    path = str(bundle.path / "backbone.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ran = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    report = bundle.manifest.parity["int8"]
    inside = len(report["layers"]) - len(report["left_out"])
    assert ran.count("MatMulIntegerToFloat") == inside == 8


def calibration(number: int) -> CalibrationSet:
    pictures = (textured_picture(k, 96, 64) for k in range(number))
    return CalibrationSet(
        tuple(NewPicture.from_array(f"{k}.png", picture) for k, picture in enumerate(pictures))
    )


def rules(monkeypatch: pytest.MonkeyPatch, most: int, **limits: float) -> None:
    recipe = load_recipe("dinov3-s")
    assert recipe.int8 is not None
    changed = recipe.model_copy(
        update={
            "int8": recipe.int8.model_copy(update={"most_left_out": most}),
            "parity": {
                **recipe.parity,
                "int8": recipe.parity["int8"].model_copy(update=limits),
            },
        }
    )
    monkeypatch.setattr("anoco_edge_export.export.load_recipe", lambda _: changed)


def test_the_worst_layers_are_left_out_until_it_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The limits lie between those of FP16 and INT8, so it passes once all layers are left out."""
    rules(monkeypatch, 8, min_cosine=0.99995, mean_cosine=0.9999)
    options = ExportOptions(
        size=(96, 64),
        layers=(2,),
        weights="random:0",
        precision="int8",
        calibration=calibration(2),
    )
    exported = export_backbone("dinov3-s", tmp_path, options)
    report = exported.parity.int8
    assert report is not None and report.halves is not None
    costs, out = report.layers, list(report.left_out)
    assert len(costs) == 8 and 0 < len(out) < 8
    assert out == sorted(costs, key=lambda name: -costs[name])[: len(out)]
    assert report.halves.top_energy_error > 0
    graph = onnx.load(exported.files["backbone.onnx"])
    weights = {t.name: t.data_type for t in graph.graph.initializer}
    for name in costs:
        whole = f"trunk.{name}.weight/turned"
        kind = weights.get(whole) if name in out else weights.get(f"{whole}_quantized")
        wanted = onnx.TensorProto.FLOAT16 if name in out else onnx.TensorProto.INT8
        assert kind == wanted, name


def test_more_than_the_recipe_allows_is_no_bundle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules(monkeypatch, 1, min_cosine=0.9999999)
    monkeypatch.chdir(tmp_path)
    write_good_pictures(tmp_path / "good", 1)
    line = fails(
        *(5, "export", "--backbone", "dinov3-s", "--weights", "random:0", "--size", "96x64"),
        *("--layer", "1", "--precision", "int8", "--calib", "good"),
    )
    assert "even with 1 layers left in FP16 (ONNX Runtime, CPU): min cosine is" in line
    assert "the worst layers" in line and "blocks.0." in line and "no bundle was written" in line
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_what_would_fail_its_self_test_on_a_device_does_not_pass_here(tmp_path: Path) -> None:
    """The parity check looks at many patches, a bundle's self-test at the worst of one picture."""
    graph = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]>\n'
        f"small (uint8[batch, n, 1, 3] {INPUT}) => (float[b, n, 3] {OUTPUT})\n"
        f"<int64[3] shape = {{0, 0, 3}}> {{ y = Cast <to = 1> ({INPUT})\n"
        f" {OUTPUT} = Reshape (y, shape) }}"
    )
    path = tmp_path / "it.onnx"
    path.write_bytes(graph.SerializeToString())
    pixels = np.random.default_rng(0).integers(1, 255, (1, 40, 1, 3), dtype=np.uint8)
    features = pixels.reshape(1, 40, 3).astype(np.float32)

    def check(expected: NDArray[np.float32]) -> None:
        gate = SimpleNamespace(
            pixels=pixels, reference=SimpleNamespace(features=expected, picture=0)
        )
        int8._check_selftest(path, cast(Any, gate))

    check(features)
    moved = features.copy()
    worst = selftest_energies(features[0]).argmax()
    moved[0, 1::2][worst] *= 1.5
    with pytest.raises(
        DiffersError, match=r"self-test energies are off by \d+\.\d%, 20% is allowed"
    ):
        check(moved)


# The command line


def test_the_report_is_kept_and_shown(tmp_path: Path) -> None:
    good = write_good_pictures(tmp_path / "good", 3)
    target = tmp_path / "a.anoco"
    small = ("--backbone", "efficientnet-lite0", "--size", "160x128")
    ran = ok("export", *small, "--precision", "int8", "--calib", tmp_path / "good", "-o", target)
    manifest = json.loads((target / "manifest.json").read_text())
    report = manifest["parity"]["int8"]
    assert manifest["backbone"]["precision"] == "int8"
    assert report["method"] == "largest absolute values"
    hashes = {sha256_bytes(path.read_bytes()) for path in good}
    assert {p["sha256"] for p in report["pictures"]} == hashes and len(hashes) == 3
    assert len(report["layers"]) == 32
    shown = ok("info", target)
    for text in (ran.err, shown.err):
        assert "3 calibration pictures are few, 32 are advised: ranges from either half" in text
    for text in (ran.err, shown.out):
        said = " ".join(text.split())
        assert f"INT8: {32 - len(report['left_out'])} of 32 layers" in said
        assert "ranges: largest absolute values, 3 pictures" in said
        assert "GPU were not run" in said
    assert ok("info", target, "--json").json["parity"]["int8"] == report


def test_one_picture_cannot_be_split() -> None:
    from anoco_edge.cli.views.parity import few_pictures

    int8 = {"pictures": [{}], "enough_pictures": 32, "halves": None}
    assert few_pictures({"int8": int8}).startswith("1 calibration picture is few, 32 are advised")
    assert few_pictures({"int8": {**int8, "pictures": [{}] * 32}}) == "" == few_pictures({})


def test_bad_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("export", "--backbone", "efficientnet-lite0", "--size", "64")
    line = fails(2, *small, "--precision", "int8")
    assert "none were given" in line and "as --calib" in line
    write_good_pictures(tmp_path / "good", 1)
    assert "--calib is for --precision int8" in fails(2, *small, "--calib", "good")
    assert "--islands is for" in fails(2, *small, "--precision", "int8", "--islands", "softmax")
    large = ("export", "--backbone", "dinov3-hplus")
    line = fails(2, *large, "--precision", "int8", "--calib", "good")
    assert "dinov3-hplus has no INT8 recipe" in line
    (tmp_path / "none").mkdir()
    fails(2, *small, "--precision", "int8", "--calib", "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "none"]
