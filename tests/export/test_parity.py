"""The parity check accepts equal features, and names the layer where features differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import fails
from numpy.typing import NDArray
from tiny_bundle import tiny_backbone

from anoco_edge.bundle.parity_report import (
    Int8Report,
    OverflowMargin,
    ParityCheck,
    ParityFigures,
    ParityReport,
    PictureRecord,
    WorstPatches,
)
from anoco_edge.errors import BundleError, ParityError
from anoco_edge_export import ExportOptions, export_backbone, load_recipe
from anoco_edge_export.onnx_graph import save_graph, trace
from anoco_edge_export.parity import (
    DiffersError,
    Gate,
    check_parity,
    compare_features,
    first_drift,
    spearman,
)
from anoco_edge_export.recipe import ParityLimits
from anoco_edge_export.torch_reference import TorchReference
from docs import parity_table

VIT = ("dinov3-s", (96, 64))
CNN = ("efficientnet-lite0", (160, 128))


@pytest.fixture(scope="module")
def limits() -> ParityLimits:
    return load_recipe("dinov3-s").parity["fp32"]


def broken_trace(weight: str, change: Any) -> Any:
    """Run `trace`, and then change one of the graph's weights."""

    def broken(*arguments: Any) -> Any:
        graph = trace(*arguments)
        (tensor,) = (t for t in graph.graph.initializer if t.name == weight)
        values = change(onnx.numpy_helper.to_array(tensor).copy())
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), weight))
        return graph

    return broken


@pytest.mark.parametrize(
    ("weight", "block"),
    [
        ("trunk.blocks.5.norm2.bias", "blocks.5"),
        pytest.param("trunk.blocks.0.norm1.weight", "blocks.0", marks=pytest.mark.full),
    ],
)
def test_a_broken_block_ends_the_export_and_is_named(
    weight: str, block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("anoco_edge_export.export.trace", broken_trace(weight, lambda v: v[::-1]))
    monkeypatch.chdir(tmp_path)
    line = fails(5, "export", "--backbone", VIT[0], "--weights", "random:0", "--size", "96x64")
    assert "differs from torch (ONNX Runtime, CPU): min cosine is" in line
    assert f"the first layer that drifts is {block};" in line and "no bundle was written" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", [0, pytest.param(4, marks=pytest.mark.full)])
def test_a_broken_convolution_is_named_by_its_stage(
    stage: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*arguments: Any) -> Any:
        graph = trace(*arguments)
        ends = [n for n in graph.graph.node if f"blocks.{stage}" in n.output]
        (conv,) = (n for n in graph.graph.node if n.op_type == "Conv" and _feeds(graph, n, ends[0]))
        weight = next(i for i in graph.graph.initializer if i.name == conv.input[1])
        values = onnx.numpy_helper.to_array(weight).copy()
        values[0] += 1.0
        weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
        return graph

    monkeypatch.setattr("anoco_edge_export.export.trace", broken)
    with pytest.raises(ParityError, match=f"first layer that drifts is blocks.{stage};"):
        export_backbone(CNN[0], tmp_path, ExportOptions(size=CNN[1]))


def _feeds(graph: Any, node: Any, end: Any) -> bool:
    return node is end or bool(set(node.output) & set(end.input))


@pytest.mark.full
def test_an_overflow_in_half_precision_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ONNX Runtime computes in FP32 and does not see it; only the FP16 emulation does."""
    from anoco_edge_export import parity

    monkeypatch.setattr(parity, "emulate_half", _overflowing(parity.emulate_half))
    with pytest.raises(ParityError, match=r"every tensor rounded to FP16.*linear_3 overflows"):
        export_backbone(
            VIT[0], tmp_path, ExportOptions(size=VIT[1], weights="random:0", precision="fp16")
        )


def test_drift_that_only_rounding_shows_is_named(tmp_path: Path) -> None:
    """At 32768, FP16 has steps of 32, but ONNX Runtime adds and subtracts in FP32."""
    graph = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        g (uint8[batch, 4, 4, 3] pixels) => (float[batch, 16, 3] features)
        <int64[3] tokens = {0, 16, 3}>
        {
            half = Cast<to = 10>(pixels)
            there = Add(half, far)
            back = Sub(there, far)
            whole = Cast<to = 1>(back)
            features = Reshape(whole, tokens)
        }""")
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.float16(32768), "far"))
    (path,) = save_graph(graph, tmp_path / "backbone.onnx")
    pixels = np.random.default_rng(0).integers(1, 256, (2, 4, 4, 3), dtype=np.uint8)
    features = pixels.reshape(2, 16, 3).astype(np.float32)
    expected = TorchReference(features, (), 1, {"half": features[1], "back": features[1]})
    limits = load_recipe("dinov3-s").parity["fp16"]
    with pytest.raises(ParityError) as caught:
        check_parity(Gate(expected, pixels, limits, ["a", "b"], 4), graph, path, "fp16")
    assert "differs from torch (every tensor rounded to FP16): min cosine is" in caught.value.what
    assert caught.value.what.endswith("; the first layer that drifts is back")
    assert "keep more in FP32 with `islands=NAMES`" in caught.value.hint


def _overflowing(walk: Any) -> Any:
    from dataclasses import replace

    def run(*arguments: Any) -> Any:
        found = walk(*arguments)
        return replace(found, peaks={**found.peaks, "linear_3": float("inf")})

    return run


def test_a_disk_too_full_to_look_for_the_layer_does_not_hide_the_difference(
    limits: ParityLimits, tmp_path: Path
) -> None:
    """The graph with its inner tensors is written to /dev/full, which has no space left."""
    graph = onnx.load_from_string(tiny_backbone(64, 64, 8))
    (path,) = save_graph(graph, tmp_path / "backbone.onnx")
    (tmp_path / "ends.onnx").symlink_to("/dev/full")
    pixels = np.zeros((1, 64, 64, 3), np.uint8)
    other = TorchReference(
        np.ones((1, 16, 8), np.float32), (), 0, {"grid": np.ones((8, 4, 4), "f4")}
    )
    with pytest.raises(ParityError) as caught:
        check_parity(Gate(other, pixels, limits, ["a"], 4), graph, path, "fp32")
    assert "differs from torch (ONNX Runtime, CPU): min cosine is" in caught.value.what
    says = "; the layer that drifts could not be looked for: No space left on device"
    assert caught.value.what.endswith(says)


def _features() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 200, 16)).astype(np.float32)


def test_gate_names_the_patch_and_the_limit(limits: ParityLimits) -> None:
    names, good = ["a", "b"], _features()
    figures, _ = compare_features(good, good.copy(), limits, names, 20)
    assert figures.energy_spearman == 1.0
    turned, longer, wild = good.copy(), good.copy(), good.copy()
    turned[1, 47] = turned[1, 47, ::-1]
    with pytest.raises(DiffersError, match=r"min cosine is .* at b row 2 column 7"):
        compare_features(good, turned, limits, names, 20)
    longer[0, 21] *= 1.01
    with pytest.raises(DiffersError, match=r"max norm error is 0.01 at a row 1 column 1"):
        compare_features(good, longer, limits, names, 20)
    wild[1, 3, 2] = np.nan
    with pytest.raises(DiffersError, match="NaN or infinity at b row 0 column 3"):
        compare_features(good, wild, limits, names, 20)
    with pytest.raises(DiffersError, match="shape"):
        compare_features(good, good[:, :100], limits, names, 20)


def test_gate_also_looks_at_energies(limits: ParityLimits) -> None:
    good = _features()
    noisy = good + np.random.default_rng(1).normal(scale=0.05, size=good.shape).astype(np.float32)
    loose = {"min_cosine": 0.9, "mean_cosine": 0.9, "max_norm_error": 1.0}
    strict = limits.model_copy(update=loose)
    with pytest.raises(DiffersError, match=r"energy spearman is 0\.8.*, and top energy error is"):
        compare_features(good, noisy, strict, ["a", "b"], 20)


def test_first_drift_is_the_first_and_may_be_none(limits: ParityLimits) -> None:
    rng = np.random.default_rng(3)
    ends = {f"blocks.{i}": rng.normal(size=(30, 8)).astype(np.float32) for i in range(4)}
    assert first_drift(ends, {k: v.copy() for k, v in ends.items()}, limits) == ""
    later = {k: v + (0.1 if k >= "blocks.2" else 0.0) for k, v in ends.items()}
    assert first_drift(ends, later, limits) == "blocks.2"
    wild = {**later, "blocks.1": np.full((30, 8), np.nan, np.float32)}
    assert first_drift(ends, wild, limits) == "blocks.1"
    # A CNN's layer is channels first, and positions are compared, not channels.
    maps = {"layer1": rng.normal(size=(8, 5, 6)).astype(np.float32)}
    moved = maps["layer1"].copy()
    moved[:, 4, 5] *= -1
    assert first_drift(maps, {"layer1": moved}, limits) == "layer1"


def test_spearman_shares_ranks_among_ties() -> None:
    a = np.array([1.0, 1.0, 2.0, 5.0])
    assert spearman(a, np.array([3.0, 3.0, 9.0, 10.0])) == pytest.approx(1.0)
    assert spearman(a, -a) == pytest.approx(-1.0)
    assert spearman(np.ones(4), np.ones(4)) == 1.0
    assert spearman(np.ones(4), a) == 0.0


def test_a_report_is_written_as_before_and_read_again() -> None:
    figures = ParityFigures(0.9, 0.95, 0.01, 0.99, 0.02, 0.1)
    checks = (
        ParityCheck("a", figures, WorstPatches("picture 1 row 0 column 0", "b")),
        ParityCheck("b", figures, WorstPatches("c", "d"), OverflowMargin("blocks.0", 12.5)),
    )
    report = ParityReport(
        precision="int8",
        passed=True,
        against="torch",
        pictures=("picture 1",),
        patches=16,
        limits={"min_cosine": 0.5},
        checks=checks,
        device="not run",
        int8=Int8Report("m", "fp16", {"l": 0.1}, (), 2, None, 32, "a", (PictureRecord("n", "s"),)),
        versions={"torch": "2"},
    )
    document = json.loads(json.dumps(report.to_json()))
    assert list(document) == [
        *("precision", "passed", "against", "pictures", "patches", "limits", "checks", "device"),
        *("int8", "versions"),
    ]
    plain, emulated = document["checks"]
    assert list(plain) == ["runtime", "measured", "worst"]
    assert emulated["largest"] == {"tensor": "blocks.0", "times_to_overflow": 12.5}
    assert document["int8"]["halves"] is None
    assert document["int8"]["pictures"] == [{"name": "n", "sha256": "s"}]
    assert ParityReport.from_json({**document, "later": 1}) == report


@pytest.mark.parametrize("document", [{}, {"passed": True}, {"checks": 5}])
def test_what_is_no_report_is_said_to_be_none(document: dict[str, Any]) -> None:
    with pytest.raises(BundleError, match="the manifest holds no parity report"):
        ParityReport.from_json(document)


def test_the_table_says_why_a_backbone_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise ParityError(
            "the exported graph differs from torch (a runtime): far off; where", hint="x"
        )

    monkeypatch.setattr(parity_table, "export_backbone", refuse)
    parity_table.main(["mobilenetv2@96", "--precision", "fp16"])
    head, line, row = capsys.readouterr().out.splitlines()
    assert row.startswith("| `mobilenetv2`, 96 | fp16 | refused: (a runtime): far off |")
    assert head.count("|") == line.count("|") == row.count("|")


@pytest.mark.full
def test_the_table_of_the_laboratory(capsys: pytest.CaptureFixture[str]) -> None:
    parity_table.main(["mobilenetv2@96", "--precision", "fp16", "--precision", "int8"])
    head, line, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert {row.count("|") for row in (head, line, *rows)} == {9}
    half = [row for row in cells if row[1] == "fp16"]
    assert [row[2] for row in half] == ["ONNX Runtime", "rounded to FP16"]
    assert all(0.999 < float(row[3]) <= 1 and row[7].endswith("%") for row in half)
    assert any(row[1].startswith("int8, ") or row[2].startswith("refused") for row in cells)
