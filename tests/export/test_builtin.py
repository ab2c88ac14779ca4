"""The built-in backbone is what torch computes, and what the recipe says today."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.numpy

from anoco_edge.bundle import Bundle, open_builtin
from anoco_edge.bundle.builtin import BUILTIN_BACKBONE, BUILTIN_LAYERS
from anoco_edge.bundle.parity_report import ParityFigures
from anoco_edge.scoring.onnx_scorer import scoring_model
from anoco_edge_export import ExportedBackbone, Recipe, export_backbone, load_recipe
from anoco_edge_export.backbone import filled_model, set_size
from anoco_edge_export.onnx_graph import run_onnx
from anoco_edge_export.parity import DiffersError, Gate, compare_features
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.torch_reference import run_torch_reference
from anoco_edge_export.weights import load_weights


@dataclass(frozen=True)
class Again:
    """The built-in backbone exported again, and the gate that every graph of it must pass."""

    exported: ExportedBackbone
    gate: Gate

    @property
    def graph(self) -> Path:
        path = self.exported.files["backbone.onnx"]
        assert isinstance(path, Path)
        return path


@pytest.fixture(scope="module")
def packaged() -> Bundle:
    return open_builtin()


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(BUILTIN_BACKBONE)


@pytest.fixture(scope="module")
def again(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Again:
    width, height = recipe.size
    pixels = np.stack([synthetic_picture(width, height, seed) for seed in range(3)])
    loaded = load_weights(recipe, None)
    model = filled_model(recipe, loaded.architecture, loaded.state)
    set_size(model, width, height)
    taps = recipe.tapped()
    reference = run_torch_reference(recipe, taps, model, pixels, given=0)
    names = [f"rendered {k}" for k in range(3)]
    gate = Gate(reference, pixels, recipe.parity["fp32"], names, width // taps.stride)
    exported = export_backbone(BUILTIN_BACKBONE, tmp_path_factory.mktemp("again"))
    return Again(exported, gate)


def test_torch_agrees_with_the_packaged_graph_and_with_a_new_one(
    packaged: Bundle, again: Again
) -> None:
    for path in (packaged.path / "backbone.onnx", again.graph):
        (check,) = again.gate.checks(onnx.load(path), path)
        assert isinstance(check.measured, ParityFigures)
        assert check.measured.min_cosine >= again.gate.limits.min_cosine


def test_that_gate_refuses_another_graph(packaged: Bundle, again: Again, tmp_path: Path) -> None:
    graph = onnx.load(packaged.path / "backbone.onnx")
    tensors = [t for t in graph.graph.initializer if len(t.dims) == 4]
    weights = onnx.numpy_helper.to_array(tensors[-1])
    tensors[-1].CopyFrom(onnx.numpy_helper.from_array(weights * np.float32(1.1), tensors[-1].name))
    onnx.save(graph, tmp_path / "changed.onnx")
    with pytest.raises(DiffersError, match="cosine"):
        again.gate.checks(graph, tmp_path / "changed.onnx")


def test_the_recipe_is_still_the_one_that_was_packaged(
    packaged: Bundle, recipe: Recipe, again: Again
) -> None:
    written, now = packaged.manifest.backbone, again.exported.backbone
    assert now.tap_scales == pytest.approx(written.tap_scales, rel=1e-5)
    assert now.model_copy(update={"tap_scales": written.tap_scales}) == written
    assert again.exported.input == packaged.manifest.input
    assert again.exported.layers == BUILTIN_LAYERS
    assert not again.exported.terms and not again.exported.variant
    assert packaged.manifest.parity["limits"] == recipe.parity["fp32"].model_dump()
    assert packaged.manifest.parity["passed"] is True


def test_the_other_files_are_those_of_an_export_today(packaged: Bundle, again: Again) -> None:
    names = {record.path for record in packaged.manifest.files}
    assert names == {*again.exported.files, "scoring.onnx"}
    assert packaged.read(packaged.file("scoring.onnx")) == scoring_model()
    for name, content in again.exported.files.items():
        if name.startswith("LICENSES/"):
            assert packaged.read(packaged.file(name)) == content


def test_the_packaged_self_test_holds_what_torch_computes(packaged: Bundle, again: Again) -> None:
    tensors = safetensors.numpy.load(packaged.read(packaged.file("selftest.safetensors")))
    assert np.array_equal(tensors["pixels"][0], again.gate.pixels[0])
    features = np.stack([tensors["features"], *again.gate.reference.features[1:]])
    compare_features(
        again.gate.reference.features,
        features,
        again.gate.limits,
        again.gate.names,
        again.gate.cols,
    )
    answer = run_onnx(packaged.path / "backbone.onnx", tensors["pixels"])[0]
    assert np.allclose(answer, tensors["features"], atol=1e-4)


def test_nothing_packaged_names_a_place_on_a_machine(packaged: Bundle) -> None:
    for path in sorted(packaged.path.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        assert not re.search(rb"/(home|root|tmp|work|usr|opt)/|site-packages", content), path
