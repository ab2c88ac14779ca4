"""The export of a backbone: recipe, weights, graph, parity check and self-test."""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
import torch
from command_line import fails
from numpy.typing import NDArray
from paths import ROOT
from tiny_bundle import tiny_backbone

from anoco_edge.errors import EnvironmentMissingError, ParityError, PictureError, UsageError
from anoco_edge.scoring import score_patches
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.teaching import NewPicture
from anoco_edge_export import (
    ExportedBackbone,
    ExportOptions,
    export_backbone,
    export_bundle,
    load_recipe,
)
from anoco_edge_export.backbone import (
    create_model,
    exported_backbone,
    official_backbone,
    run_torch,
    set_size,
)
from anoco_edge_export.export import check_input_size
from anoco_edge_export.onnx_graph import (
    EXTERNAL_ABOVE,
    FORBIDDEN,
    check_backbone_graph,
    run_onnx,
    save_graph,
    trace,
)
from anoco_edge_export.range_collector import RangeCollector
from anoco_edge_export.recipe import Recipe
from anoco_edge_export.synthetic import synthetic_picture
from anoco_edge_export.weights import load_weights

ID = "efficientnet-lite0"
WIDTH, HEIGHT = 160, 128
TOKENS = (320, 152)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(ID)


@pytest.fixture(scope="module")
def picture() -> NDArray[np.uint8]:
    return synthetic_picture(WIDTH, HEIGHT, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def exported(picture: NDArray[np.uint8], folder: Path) -> ExportedBackbone:
    return export_backbone(
        ID,
        folder,
        ExportOptions(size=(WIDTH, HEIGHT), fit="letterbox", pictures=[picture]),
    )


@pytest.fixture(scope="module")
def graph(exported: ExportedBackbone) -> Path:
    path = exported.files["backbone.onnx"]
    assert isinstance(path, Path)
    return path


def text(exported: ExportedBackbone, name: str) -> bytes:
    content = exported.files[name]
    assert isinstance(content, bytes)
    return content


# The input


def test_size_that_the_stride_does_not_divide_names_its_neighbours(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="height 250 is not a multiple of 16; use 240 or 256"):
        export_backbone(ID, Path(), ExportOptions(size=(256, 250)))
    with pytest.raises(UsageError, match="width 0 is too small; use 64 or more"):
        export_backbone(ID, Path(), ExportOptions(size=(0, 256)))
    assert check_input_size(recipe.tapped(), (640, 896)) == (640, 896)


def test_wrong_pictures_and_wrong_fit_are_refused_before_any_work() -> None:
    with pytest.raises(PictureError, match="expected is HxWx3 uint8"):
        export_backbone(ID, Path(), ExportOptions(pictures=[np.zeros((16, 16), np.uint8)]))
    with pytest.raises(UsageError, match="unknown fit"):
        export_backbone(ID, Path(), ExportOptions(fit="crop"))  # type: ignore[arg-type]


def test_too_little_memory_is_said_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anoco_edge_export.cost.available_memory_mb", lambda: 4000.0)
    says = r"dinov3-hplus at 768x768 takes about \d+\.\d GB of memory, and 4.0 GB are free; stop"
    with pytest.raises(EnvironmentMissingError, match=says):
        export_backbone("dinov3-hplus", Path(), ExportOptions(weights="random:0"))


def test_import_needs_no_torch_and_export_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys, anoco_edge_export as e; e.load_recipe(e.list_recipes()[0]); "
    code += "print({'torch', 'timm', 'onnx', 'onnxruntime', 'cv2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EnvironmentMissingError, match=r"torch is needed.*anoco-edge\[export\]"):
        export_backbone(ID, Path())


# The module


def test_module_is_the_tapped_map_pooled_and_normed(
    recipe: Recipe, picture: NDArray[np.uint8]
) -> None:
    model = create_model(recipe)
    model.load_state_dict(load_weights(recipe).state)
    seen: dict[str, torch.Tensor] = {}
    hook = model.blocks[4].register_forward_hook(lambda _m, _i, out: seen.update(tap=out))
    unit = (picture.astype(np.float32) / 255 - 0.498) / 0.502
    with torch.no_grad():
        model(torch.from_numpy(unit.transpose(2, 0, 1)[None]))
    hook.remove()
    tap = seen["tap"][0].numpy().astype(np.float64)
    padded = np.pad(tap, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    _, rows, cols = tap.shape
    shifted = [padded[:, r : r + rows, c : c + cols] for r in range(3) for c in range(3)]
    pooled = np.nanmean(shifted, axis=0).reshape(112, -1).T
    centred = pooled - pooled.mean(1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)
    # LayerNorm hides a wrong scale along the border, so the pooled map is compared as well.
    for norm, expected, tolerance in (("none", pooled, 1e-3), ("layernorm", normed, 2e-4)):
        taps = recipe.tapped((5,), norm=norm)  # type: ignore[arg-type]
        official, _ = run_torch(official_backbone(recipe, taps, model), picture[None])
        np.testing.assert_allclose(official[0][0].numpy(), expected, atol=tolerance)
        ours, *_ = run_torch(exported_backbone(recipe, taps, model, ()), picture[None])
        np.testing.assert_allclose(ours[0].numpy(), expected, atol=tolerance)


VITS = {
    "dinov3-s": (96, 64),
    "dinov3-splus": (64, 96),
    "dinov2-s": (84, 56),
    "dinov2-s-plain": (84, 56),
    "clip-b": (96, 64),
}
ALIKE = ("dinov3-splus", "dinov2-s-plain")  # written as another one is: in `make test-full` only


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in ALIKE else name for name in VITS],
)
def test_a_transformer_rewritten_computes_what_it_did(name: str) -> None:
    """Positions are constants, attention is written out, and normalization is folded.

    The input is not square, and there are two taps, with and without the final norm.
    """
    recipe, (width, height) = load_recipe(name), VITS[name]
    loaded = load_weights(recipe, "random:1")
    pixels = synthetic_picture(width, height, seed=3)[None]
    for layers, norm in (((3,), "model"), ((2, 4), "none")):
        taps = recipe.tapped(layers, norm)  # type: ignore[arg-type]
        model = create_model(recipe)
        model.load_state_dict(loaded.state)
        set_size(model, width, height)
        tokens, ends = run_torch(official_backbone(recipe, taps, model), pixels)
        scales = (1.0, 2.0)[: len(layers)]
        ours, *blocks = run_torch(exported_backbone(recipe, taps, model, scales), pixels)
        expected = torch.cat([t * s for t, s in zip(tokens, scales, strict=True)], dim=-1)
        assert ours.shape == (1, width * height // taps.stride**2, taps.dim)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
        assert list(ends) == [f"blocks.{i}" for i in range(layers[-1])]
        for block, end in zip(blocks, ends.values(), strict=True):
            torch.testing.assert_close(block.reshape(end.shape), end, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["dinov2-s-plain", "dinov3-s"])
def test_norms_of_a_tap_differ_by_the_models_affine_part(name: str) -> None:
    """`none` is the block's output, `layernorm` its LayerNorm, `model` scales and shifts that."""
    recipe, (width, height) = load_recipe(name), VITS[name]
    model = create_model(recipe)
    model.load_state_dict(load_weights(recipe, "random:1").state)
    set_size(model, width, height)
    scale, shift = model.norm.weight.numpy(), model.norm.bias.numpy()
    pixels = synthetic_picture(width, height, seed=3)[None]
    found = {}
    for norm in ("none", "layernorm", "model"):
        taps = recipe.tapped((2,), norm)  # type: ignore[arg-type]
        (tokens,), _ = run_torch(official_backbone(recipe, taps, model), pixels)
        copied = copy.deepcopy(model)
        ours, *_ = run_torch(exported_backbone(recipe, taps, copied, ()), pixels)
        torch.testing.assert_close(ours, tokens, rtol=1e-4, atol=1e-4)
        found[norm] = tokens[0].numpy().astype(np.float64)
    centred = found["none"] - found["none"].mean(1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(found["layernorm"], normed, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(found["layernorm"], axis=1), 384**0.5, rtol=1e-4)
    np.testing.assert_allclose(found["model"], normed * scale + shift, atol=1e-4)
    assert np.abs(found["model"] - found["layernorm"]).max() > 0.1


@pytest.mark.parametrize("name", ["dinov3-s", "clip-b"])
def test_random_weights_are_at_a_trained_scale(name: str) -> None:
    """Random weights have the scale of trained ones, so that a wrong graph changes the features.

    With a LayerScale of 1e-5, as timm draws it, a destroyed block would go unnoticed; with flat
    attention, so would a change of its logits.
    """
    recipe = load_recipe(name)
    model = create_model(recipe)
    model.load_state_dict(load_weights(recipe, "random:1").state)
    set_size(model, 64, 64)
    module = official_backbone(recipe, recipe.tapped((3,)), model)
    pixels = synthetic_picture(64, 64)[None]
    similar = torch.nn.functional.cosine_similarity
    (before,), _ = run_torch(module, pixels)
    model.blocks[1].attn.qkv.weight[: before.shape[-1]] = 0  # without queries all patches are alike
    (flat,), _ = run_torch(module, pixels)
    assert similar(before, flat, dim=-1).mean() < 0.995  # with timm's own weights it is 0.9999
    model.blocks[1].attn.proj.weight.zero_()
    (after,), _ = run_torch(module, pixels)
    assert similar(before, after, dim=-1).mean() < 0.99


# The graph


def test_graph_is_what_devices_can_load(graph: Path, recipe: Recipe) -> None:
    content = graph.read_bytes()
    proto = onnx.load_from_string(content)
    assert proto.ir_version == 10
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 18)]
    ops = {n.op_type for n in proto.graph.node}
    assert not ops & {"If", "Loop", "Scan", "NonZero"}
    assert "LayerNormalization" in ops and "BatchNormalization" not in ops
    assert {p.key: p.value for p in proto.metadata_props}["anoco_edge.recipe"] == recipe.id
    assert not any(n.doc_string or n.metadata_props for n in proto.graph.node)
    assert b"site-packages" not in content
    # The graph is cut after the tap, so the last two stages, the head and the classifier are gone.
    assert len(content) < 4e6


def test_graph_takes_bytes_and_any_batch(graph: Path, picture: NDArray[np.uint8]) -> None:
    three = np.stack([picture, synthetic_picture(WIDTH, HEIGHT), picture[::-1]])
    session = open_session(graph, "graph")
    (together,) = session.run(None, {"pixels": three})
    assert together.shape == (3, *TOKENS) and together.dtype == np.float32
    np.testing.assert_allclose(run_onnx(graph, three), together, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.1


def test_graph_of_another_contract_is_refused(graph: Path, tmp_path: Path) -> None:
    check_backbone_graph(graph, WIDTH, HEIGHT, TOKENS)
    with pytest.raises(ParityError, match="pixels has type"):
        check_backbone_graph(graph, HEIGHT, WIDTH, TOKENS)
    with pytest.raises(ParityError, match="features has type"):
        check_backbone_graph(graph, WIDTH, HEIGHT, (80, 80))
    newer = onnx.load(graph)
    newer.ir_version = 11
    (path,) = save_graph(newer, tmp_path / "newer.onnx")
    with pytest.raises(ParityError, match="IR 11"):
        check_backbone_graph(path, WIDTH, HEIGHT, TOKENS)
    newer.ir_version = 10
    newer.graph.node[3].op_type = "NoSuchOperator"
    (path,) = save_graph(newer, tmp_path / "newer.onnx")
    with pytest.raises(ParityError, match="checker refuses"):
        check_backbone_graph(path, WIDTH, HEIGHT, TOKENS)


def test_graph_that_some_device_could_not_load_is_refused(graph: Path, tmp_path: Path) -> None:
    def refused(change: Callable[[Any], object], says: str) -> None:
        proto = onnx.load(graph)
        change(proto)
        (path,) = save_graph(proto, tmp_path / "changed.onnx")
        with pytest.raises(ParityError, match=says):
            check_backbone_graph(path, WIDTH, HEIGHT, TOKENS)

    def fixed(proto: Any) -> None:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1

    def counting(proto: Any) -> None:
        (name, *_), maker = proto.graph.node[-1].output, onnx.helper.make_node
        proto.graph.node.append(maker("NonZero", [name], ["found"]))

    def newer(proto: Any) -> None:
        proto.opset_import[0].version = 20

    def foreign(proto: Any) -> None:
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))

    refused(fixed, r"pixels has type .* not batch x")
    refused(counting, "it contains NonZero")
    refused(newer, "operators {'': 20}")
    refused(foreign, "com.microsoft")
    assert {"If", "Loop", "Scan", "NonZero"} <= FORBIDDEN
    assert EXTERNAL_ABOVE < 2**31  # the limit of protobuf


def test_a_large_graph_keeps_its_weights_in_a_second_file(
    graph: Path, tmp_path: Path, picture: NDArray[np.uint8]
) -> None:
    files = save_graph(onnx.load(graph), tmp_path / "backbone.onnx", limit=1_000_000)
    assert [file.name for file in files] == ["backbone.onnx", "backbone.onnx.data"]
    assert files[0].stat().st_size < 200_000 < 2_000_000 < files[1].stat().st_size
    check_backbone_graph(files[0], WIDTH, HEIGHT, TOKENS)
    np.testing.assert_array_equal(run_onnx(files[0], picture[None]), run_onnx(graph, picture[None]))
    again = save_graph(onnx.load(graph), tmp_path / "backbone.onnx", limit=1_000_000)
    assert again[1].stat().st_size < 4_000_000  # the file was replaced, not appended to


@pytest.fixture(scope="module")
def vit_graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("vit")
    options = ExportOptions(size=(96, 64), layers=[3], weights="random:0")
    export_backbone("dinov3-s", folder, options)
    return onnx.load(folder / "backbone.onnx")


def test_a_transformers_graph_is_plain(vit_graph: Any) -> None:
    """The graph avoids patterns that silently went wrong in TensorRT elsewhere.

    These are rotary tables computed at run time, split projections, decomposed norms and shapes
    that depend on the batch.
    """
    ops = Counter(node.op_type for node in vit_graph.graph.node)
    assert ops["LayerNormalization"] == 2 * 3 + 1 and ops["Softmax"] == 3 and ops["Erf"] == 3
    # There is one projection for q, k and v, and products include their bias.
    assert ops["Gemm"] == 4 * 3 and ops["MatMul"] == 2 * 3 and ops["Conv"] == 1
    assert not ops.keys() & {
        "Sin",
        "Cos",
        "Shape",
        "Expand",
        "Tile",
        "Where",
        "Range",
        "ReduceMean",
    }
    tables = [t.name for t in vit_graph.graph.initializer if t.name.endswith((".sin", ".cos"))]
    assert len(tables) == 2  # shared by all blocks
    named = {output for node in vit_graph.graph.node for output in node.output}
    assert {"blocks.0", "blocks.1", "blocks.2"} <= named
    assert "trunk.blocks.3" not in " ".join(t.name for t in vit_graph.graph.initializer)


# What comes out


def test_export_tells_the_whole_story(exported: ExportedBackbone) -> None:
    contract = exported.input
    assert (contract.width, contract.height, contract.fit) == (WIDTH, HEIGHT, "letterbox")
    assert (contract.rows, contract.cols, contract.dim) == (16, 20, 152)
    backbone = exported.backbone
    assert (backbone.tap, backbone.feature_norm) == ("blocks.2+blocks.4", "layernorm")
    assert not exported.backbone.weights.random
    parity = exported.parity
    assert parity.pictures == ("picture 1", "rendered 0", "rendered 1")
    (check,) = parity.checks
    assert check.measured.min_cosine > 0.999999
    assert check.measured.top_energy_error < 1e-3
    assert parity.versions["torch"] == exported.tools["torch"] == torch.__version__
    notice = text(exported, "LICENSES/NOTICE.txt").decode()
    assert exported.backbone.weights.sha256 in notice and "Apache-2.0" in notice
    licences = [name for name in exported.files if name.endswith("/LICENSE")]
    assert licences and all(b"Apache" in text(exported, name) for name in licences)


def test_selftest_reproduces_in_onnx_runtime(exported: ExportedBackbone, graph: Path) -> None:
    stored = safetensors.numpy.load(text(exported, "selftest.safetensors"))
    assert stored["pixels"].shape == (1, HEIGHT, WIDTH, 3) and stored["pixels"].dtype == np.uint8
    actual = run_onnx(graph, stored["pixels"])[0]
    np.testing.assert_allclose(actual, stored["features"], atol=1e-4)
    energy = score_patches(actual[1::2], actual[0::2], scorer="reference").energy
    assert stored["energies"].dtype == np.float32 and stored["energies"].shape == (160,)
    assert np.abs(energy - stored["energies"]).max() < 1e-3 * stored["energies"].max()


def test_several_taps_are_brought_to_one_length(tmp_path: Path) -> None:
    exported = export_backbone(
        "dinov3-s",
        tmp_path,
        ExportOptions(size=(64, 64), layers=[1, 3], tap_norm="none", weights="random:0"),
    )
    assert exported.backbone.tap == "blocks.0+blocks.2" and exported.backbone.feature_norm == "none"
    first, second = exported.backbone.tap_scales
    assert first == 1.0 and second != 1.0
    features = run_onnx(
        tmp_path / "backbone.onnx", np.stack([synthetic_picture(64, 64, s) for s in range(3)])
    )
    lengths = np.linalg.norm(features.reshape(-1, 2, 384), axis=2).mean(axis=0)
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)


def test_half_precision_is_in_the_graph(tmp_path: Path) -> None:
    exported = export_backbone(
        "dinov3-s",
        tmp_path,
        ExportOptions(size=(96, 64), layers=[3], weights="random:0", precision="fp16"),
    )
    assert exported.backbone.precision == "fp16"
    assert [check.runtime for check in exported.parity.checks] == [
        "ONNX Runtime, CPU",
        "every tensor rounded to FP16",
    ]
    largest, half = exported.parity.checks[1].largest, exported.parity.half
    assert largest is not None and largest.times_to_overflow > 10
    assert half is not None and half.islands["softmax"] == 3
    proto = onnx.load(tmp_path / "backbone.onnx")
    kinds = Counter(t.data_type for t in proto.graph.initializer if len(t.dims) == 2)
    assert kinds[onnx.TensorProto.FLOAT16] >= 12


@pytest.mark.full
def test_nothing_comes_out_when_parity_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The graph has the right shape and wrong numbers, because bits were lost."""

    def coarse(*arguments: Any) -> Any:
        proto = trace(*arguments)
        for tensor in proto.graph.initializer:
            if len(tensor.dims) == 4:
                values = np.round(onnx.numpy_helper.to_array(tensor) * 64) / 64
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        return proto

    monkeypatch.setattr("anoco_edge_export.export.trace", coarse)
    target = tmp_path / "wrong.anoco"
    with pytest.raises(ParityError, match="the exported graph differs from torch"):
        export_bundle(ID, target, ExportOptions(size=(WIDTH, HEIGHT)))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The graph is written to /dev/full, for which the kernel reports that no space is left."""

    def traced(*_: Any) -> Any:
        (workspace,) = tmp_path.iterdir()
        (workspace / "backbone.onnx").symlink_to("/dev/full")
        return onnx.load_from_string(tiny_backbone(64, 64, 8))  # tracing would take seconds

    monkeypatch.setattr("anoco_edge_export.export.trace", traced)
    target = tmp_path / "full.anoco"
    line = fails(1, "export", "--backbone", ID, "--size", 64, "--out", target)
    assert line == (
        f"anoco-edge: cannot write {target}: No space left on device; "
        "the disk is full: free some space; nothing was changed"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("anoco_edge_export.export.check_parity", stop)
    with pytest.raises(KeyboardInterrupt):
        export_bundle(ID, tmp_path / "new" / "deep" / "a.anoco", ExportOptions(size=(64, 64)))
    assert list(tmp_path.iterdir()) == []


def test_long_attention_is_written_in_pieces_and_computes_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anoco_edge_export.families import vit

    recipe = load_recipe("dinov3-s")
    loaded = load_weights(recipe, "random:1")
    taps = recipe.tapped((2,))
    pixels = synthetic_picture(96, 64, seed=3)[None]
    found = []
    for long in (1024, 8):  # 29 tokens
        monkeypatch.setattr(vit, "_LONG", long)
        monkeypatch.setattr(vit, "_ROWS", 8)
        model = create_model(recipe)
        model.load_state_dict(loaded.state)
        set_size(model, 96, 64)
        found.append(run_torch(exported_backbone(recipe, taps, model, ()), pixels)[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_export_and_calibration_do_not_depend_on_each_other() -> None:
    """Imports inside functions count too; only the command line uses both packages."""
    for package, other in (
        ("export/anoco_edge_export", "anoco_edge_calibration"),
        ("calibration/anoco_edge_calibration", "anoco_edge_export"),
    ):
        files = sorted((ROOT / package).rglob("*.py"))
        assert len(files) > 20
        for file in files:
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                assert not [name for name in names if name.startswith(other)], file


def test_a_calibration_set_is_what_an_export_asks_for() -> None:
    from anoco_edge_calibration.int8 import CalibrationSet

    picture = NewPicture.from_array("a.png", synthetic_picture(64, 64))
    collector: RangeCollector = CalibrationSet((picture,))
    assert ExportOptions(calibration=collector).calibration is collector
    assert collector.enough == 32 and collector.method == "largest absolute values"
