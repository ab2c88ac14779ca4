"""The export of a backbone: recipe, weights, graph, parity gate, self-test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
import safetensors.torch
import timm
import torch
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError, ParityError, UsageError
from anoco_edge.scoring import score_patches
from anoco_edge_export import ExportedBackbone, export_backbone, list_recipes, load_recipe
from anoco_edge_export.backbone import build_backbone, create_model, torch_features
from anoco_edge_export.export import check_size
from anoco_edge_export.families.efficientnet import rename
from anoco_edge_export.licenses import license_files
from anoco_edge_export.onnx_graph import check_onnx, onnx_features
from anoco_edge_export.parity import check_parity, compare, spearman
from anoco_edge_export.pictures import rendered_picture
from anoco_edge_export.recipe import Recipe, parse_recipe
from anoco_edge_export.weights import load_weights, match_keys, package_file

ID = "efficientnet-lite0"
WIDTH, HEIGHT = 160, 128
TOKENS = (80, 112)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(ID)


@pytest.fixture(scope="module")
def module(recipe: Recipe) -> Any:
    model = create_model(recipe)
    return build_backbone(recipe, model, load_weights(recipe, model).state)


@pytest.fixture(scope="module")
def picture() -> NDArray[np.uint8]:
    return rendered_picture(WIDTH, HEIGHT, seed=7)


@pytest.fixture(scope="module")
def exported(picture: NDArray[np.uint8]) -> ExportedBackbone:
    return export_backbone(ID, size=(WIDTH, HEIGHT), fit="letterbox", pictures=[picture])


@pytest.fixture
def state(recipe: Recipe) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(package_file(recipe), weights_only=True)
    return loaded


# The recipe


def test_every_recipe_loads_under_its_own_name() -> None:
    assert ID in list_recipes()
    for name in list_recipes():
        assert load_recipe(name).id == name


def test_unknown_backbone_is_refused_and_near_names_are_shown() -> None:
    with pytest.raises(UsageError, match=r"unknown backbone 'efficientnet-lite-0'.*" + ID) as e:
        export_backbone("efficientnet-lite-0")
    assert e.value.exit_code == 2
    with pytest.raises(UsageError, match="there is"):
        load_recipe("zzz")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('title = "', 'colour = "red"\ntitle = "', "colour: Extra inputs"),
        ("layer = 5", "layer = 8", "layer 8 of 7"),
        ("layer = 5", "layer = 0", "layer: Input should be greater"),
        ("size = [384, 384]", "size = [384, 390]", "does not divide"),
        ('family = "efficientnet"', 'family = "vit"', "family 'vit'"),
        ('id = "efficientnet-lite0"', 'id = "other"', "file name and id"),
        ("stride = 16", "stride = ", "not valid"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(old: str, new: str, says: str) -> None:
    folder = Path(sys.modules["anoco_edge_export"].__path__[0]) / "recipes"
    text = (folder / f"{ID}.toml").read_text()
    assert old in text
    with pytest.raises(AnocoError, match=says):
        parse_recipe(text.replace(old, new, 1), ID)


# The input


def test_size_that_the_stride_does_not_divide_names_its_neighbours(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="height 250 is not a multiple of 16; use 240 or 256"):
        export_backbone(ID, size=(256, 250))
    with pytest.raises(UsageError, match="width 0 is too small; use 64 or more"):
        export_backbone(ID, size=(0, 256))
    assert check_size(recipe, (640, 896)) == (640, 896)


def test_wrong_pictures_and_wrong_fit_are_refused_before_any_work() -> None:
    turned = np.zeros((160, 128, 3), np.uint8)
    with pytest.raises(UsageError, match=r"picture 1 is uint8 .*\(128, 160, 3\)"):
        export_backbone(ID, size=(160, 128), pictures=[turned])
    with pytest.raises(UsageError, match="unknown fit"):
        export_backbone(ID, fit="crop")  # type: ignore[arg-type]


def test_import_needs_no_torch_and_export_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys, anoco_edge_export as e; e.load_recipe(e.list_recipes()[0]); "
    code += "print({'torch', 'timm', 'onnx', 'onnxruntime', 'cv2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EnvironmentMissingError, match=r"torch is needed.*anoco-edge\[export\]"):
        export_backbone(ID)


# The weights


def test_every_key_has_its_place(recipe: Recipe, state: dict[str, torch.Tensor]) -> None:
    wanted = timm.create_model(recipe.architecture).state_dict()
    renamed = [rename("efficientnet_lite_pytorch", key, list(wanted)) for key in state]
    # Both libraries list their 296 tensors in the order of the forward pass.
    assert renamed == list(wanted)
    matched = match_keys(recipe, wanted, state, "w.pth")
    assert torch.equal(matched["blocks.6.0.bn3.bias"], state["_blocks.15._bn2.bias"])


def test_the_same_weights_in_timms_layout_as_safetensors(recipe: Recipe, tmp_path: Path) -> None:
    model = create_model(recipe)
    ours = load_weights(recipe, model)
    file = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(dict(ours.state), file)
    (tmp_path / "LICENSE.md").write_text("mine")
    theirs = load_weights(recipe, model, str(file))
    assert all(torch.equal(ours.state[k], theirs.state[k]) for k in ours.state)
    assert ours.record.license == "Apache-2.0"
    assert theirs.record.source == "mine.safetensors"
    assert "not known" in theirs.record.license  # another file: the recipe's terms are not its
    assert license_files(recipe, theirs)["LICENSES/beside-weights/LICENSE.md"] == b"mine"


def test_weights_of_another_model_are_listed(
    recipe: Recipe, state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    wrong = {
        "none of it": {"conv1.weight": torch.zeros(3)},
        "one missing": {k: v for k, v in state.items() if k != "_fc.bias"},
        "one more": state | {"_blocks.16._bn0.bias": torch.zeros(3)},
        "another width": state | {"_conv_stem.weight": torch.zeros(16, 3, 3, 3)},
        "not finite": state | {"_fc.bias": torch.full((1000,), float("nan"))},
    }
    says = {
        "none of it": r"296 missing \(conv_stem.weight.*292 more\); 1 left over \(conv1.weight\)",
        "one missing": r"1 missing \(classifier.bias\); pass weights of tf_efficientnet_lite0",
        "one more": r"1 left over \(_blocks.16._bn0.bias\)",
        "another width": r"1 of another shape \(conv_stem.weight\)",
        "not finite": r"NaN or infinity in classifier.bias",
    }
    for name, content in wrong.items():
        file = tmp_path / f"{name}.pth"
        torch.save(content, file)
        with pytest.raises(UsageError, match=says[name]):
            load_weights(recipe, create_model(recipe), str(file))


def test_files_that_are_no_state_dict(recipe: Recipe, tmp_path: Path) -> None:
    good = package_file(recipe).read_bytes()
    (tmp_path / "text.pth").write_text("these are not the weights you are looking for\n")
    (tmp_path / "json.pth").write_bytes(b"12345678{ what")
    (tmp_path / "cut.pth").write_bytes(good[: len(good) // 2])
    (tmp_path / "empty.pth").write_bytes(b"")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")
    torch.save({"epoch": 3, "state_dict": {}}, tmp_path / "checkpoint.pth")
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    for name in ("text", "json", "cut", "empty", "module"):
        with pytest.raises(UsageError, match=f"{name}.pth cannot be read as weights"):
            load_weights(recipe, torch.nn.Identity(), str(tmp_path / f"{name}.pth"))
    for name in ("checkpoint", "list"):
        with pytest.raises(UsageError, match=f"{name}.pth is not a plain state dict"):
            load_weights(recipe, torch.nn.Identity(), str(tmp_path / f"{name}.pth"))
    with pytest.raises(UsageError, match="No such file"):
        load_weights(recipe, torch.nn.Identity(), str(tmp_path / "absent.pth"))


def test_random_weights_are_reproducible_and_marked(recipe: Recipe) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (load_weights(recipe, None, f"random:{s}").record for s in (3, 3, 4))
    assert first == again and first.random
    assert first.sha256 != other.sha256
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(UsageError, match="write random:0"):
        load_weights(recipe, None, "random:x")


def test_a_changed_package_is_noticed(recipe: Recipe) -> None:
    moved = recipe.weights.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(UsageError, match="the recipe expects 000000000000"):
        load_weights(recipe.model_copy(update={"weights": moved}), torch.nn.Identity())


def test_a_package_that_is_not_installed_says_which_extra(recipe: Recipe) -> None:
    absent = recipe.weights.model_copy(update={"package": "no_such_weights"})
    with pytest.raises(EnvironmentMissingError, match=r"no_such_weights.*anoco-edge\[export\]"):
        load_weights(recipe.model_copy(update={"weights": absent}), torch.nn.Identity())


# The module


def test_module_is_the_tapped_map_pooled_and_normed(
    recipe: Recipe, module: Any, picture: NDArray[np.uint8]
) -> None:
    model = create_model(recipe).eval()
    # LayerNorm hides a wrong scale along the border, so the pooled map is looked at as well.
    plain = recipe.model_copy(update={"feature_norm": "none"})
    raw = build_backbone(plain, model, load_weights(recipe, model).state)
    seen: dict[str, torch.Tensor] = {}
    model.blocks[4].register_forward_hook(lambda _m, _i, out: seen.update(tap=out))
    unit = (picture.astype(np.float32) / 255 - 0.498) / 0.502
    with torch.no_grad():
        model(torch.from_numpy(unit.transpose(2, 0, 1)[None]))
    tap = seen["tap"][0].numpy().astype(np.float64)
    padded = np.pad(tap, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    _, rows, cols = tap.shape
    shifted = [padded[:, r : r + rows, c : c + cols] for r in range(3) for c in range(3)]
    pooled = np.nanmean(shifted, axis=0).reshape(112, -1).T
    np.testing.assert_allclose(torch_features(raw, picture[None])[0], pooled, atol=1e-3)
    centred = pooled - pooled.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(torch_features(module, picture[None])[0], expected, atol=2e-4)


# The graph


def test_graph_is_what_devices_can_load(exported: ExportedBackbone, recipe: Recipe) -> None:
    content = exported.files["backbone.onnx"]
    proto = onnx.load_from_string(content)
    assert proto.ir_version == 10
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 18)]
    ops = {n.op_type for n in proto.graph.node}
    assert not ops & {"If", "Loop", "Scan", "NonZero"}
    assert "LayerNormalization" in ops and "BatchNormalization" not in ops
    assert {p.key: p.value for p in proto.metadata_props}["anoco_edge.recipe"] == recipe.id
    assert not any(n.doc_string or n.metadata_props for n in proto.graph.node)
    assert b"site-packages" not in content
    # Cut after the tap: the last two stages, the head and the classifier are not there.
    assert len(content) < 4e6


def test_graph_takes_bytes_and_any_batch(
    exported: ExportedBackbone, picture: NDArray[np.uint8]
) -> None:
    onnx_bytes = exported.files["backbone.onnx"]
    three = np.stack([picture, rendered_picture(WIDTH, HEIGHT), picture[::-1]])
    together = onnx_features(onnx_bytes, three)
    assert together.shape == (3, *TOKENS) and together.dtype == np.float32
    for one, batched in zip(three, together, strict=True):
        np.testing.assert_allclose(onnx_features(onnx_bytes, one[None])[0], batched, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.1


def test_graph_of_another_contract_is_refused(exported: ExportedBackbone) -> None:
    content = exported.files["backbone.onnx"]
    check_onnx(content, WIDTH, HEIGHT, TOKENS)
    with pytest.raises(ParityError, match="pixels has type"):
        check_onnx(content, HEIGHT, WIDTH, TOKENS)
    with pytest.raises(ParityError, match="features has type"):
        check_onnx(content, WIDTH, HEIGHT, (80, 80))
    newer = onnx.load_from_string(content)
    newer.ir_version = 11
    with pytest.raises(ParityError, match="IR 11"):
        check_onnx(newer.SerializeToString(), WIDTH, HEIGHT, TOKENS)
    newer.ir_version = 10
    newer.graph.node[3].op_type = "NoSuchOperator"
    with pytest.raises(ParityError, match="checker refuses"):
        check_onnx(newer.SerializeToString(), WIDTH, HEIGHT, TOKENS)


# What comes out


def test_export_tells_the_whole_story(exported: ExportedBackbone) -> None:
    contract = exported.input
    assert (contract.width, contract.height, contract.fit) == (WIDTH, HEIGHT, "letterbox")
    assert (contract.rows, contract.cols, contract.dim) == (8, 10, 112)
    assert (exported.backbone.tap, exported.backbone.feature_norm) == ("blocks.4", "layernorm")
    assert not exported.backbone.weights.random
    parity = exported.parity
    assert parity["pictures"] == ["picture 1", "rendered 0", "rendered 1"]
    assert parity["measured"]["min_cosine"] > 0.999999
    assert parity["measured"]["top_energy_error"] < 1e-3
    assert parity["versions"]["torch"] == exported.tools["torch"] == torch.__version__
    notice = exported.files["LICENSES/NOTICE.txt"].decode()
    assert exported.backbone.weights.sha256 in notice and "Apache-2.0" in notice
    assert any(k.endswith("/LICENSE") and b"Apache" in v for k, v in exported.files.items())


def test_selftest_reproduces_in_onnx_runtime(exported: ExportedBackbone) -> None:
    stored = safetensors.numpy.load(exported.files["selftest.safetensors"])
    assert stored["pixels"].shape == (1, HEIGHT, WIDTH, 3) and stored["pixels"].dtype == np.uint8
    actual = onnx_features(exported.files["backbone.onnx"], stored["pixels"])[0]
    np.testing.assert_allclose(actual, stored["features"], atol=1e-4)
    energy = score_patches(actual[1::2], actual[0::2], scorer="reference").energy
    assert stored["energies"].dtype == np.float32 and stored["energies"].shape == (40,)
    assert np.abs(energy - stored["energies"]).max() < 1e-3 * stored["energies"].max()


# The gate


@pytest.mark.parametrize("which", [0, 12, 32])
def test_one_broken_convolution_fails_parity(
    exported: ExportedBackbone, module: Any, picture: NDArray[np.uint8], recipe: Recipe, which: int
) -> None:
    proto = onnx.load_from_string(exported.files["backbone.onnx"])
    convs = [n for n in proto.graph.node if n.op_type == "Conv"]
    weight = next(i for i in proto.graph.initializer if i.name == convs[which].input[1])
    values = onnx.numpy_helper.to_array(weight).copy()
    values[0] += 1.0
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    pixels = np.stack([picture, picture[::-1]])
    expected = torch_features(module, pixels)
    names, limits = ["a", "b"], recipe.parity["fp32"]
    report = check_parity(expected, exported.files["backbone.onnx"], pixels, limits, names, 10)
    assert report["passed"]
    with pytest.raises(ParityError, match=r"min cosine is .* at [ab] row \d column \d, at") as e:
        check_parity(expected, proto.SerializeToString(), pixels, limits, names, 10)
    assert e.value.exit_code == 5


def test_nothing_comes_out_when_parity_fails(
    monkeypatch: pytest.MonkeyPatch, exported: ExportedBackbone
) -> None:
    # A graph of the right shape with the wrong numbers: 8 bits lost along the way.
    proto = onnx.load_from_string(exported.files["backbone.onnx"])
    for tensor in proto.graph.initializer:
        if len(tensor.dims) == 4:
            coarse = np.round(onnx.numpy_helper.to_array(tensor) * 64) / 64
            tensor.CopyFrom(onnx.numpy_helper.from_array(coarse, tensor.name))
    wrong = proto.SerializeToString()
    monkeypatch.setattr("anoco_edge_export.export.export_onnx", lambda *_: wrong)
    with pytest.raises(ParityError, match="the exported graph differs from torch"):
        export_backbone(ID, size=(WIDTH, HEIGHT))


def _features() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 200, 16)).astype(np.float32)


def test_gate_names_the_patch_and_the_limit(recipe: Recipe) -> None:
    limits, names, good = recipe.parity["fp32"], ["a", "b"], _features()
    assert compare(good, good.copy(), limits, names, 20)["measured"]["energy_spearman"] == 1.0
    turned, longer, wild = good.copy(), good.copy(), good.copy()
    turned[1, 47] = turned[1, 47, ::-1]
    with pytest.raises(ParityError, match=r"min cosine is .* at b row 2 column 7"):
        compare(good, turned, limits, names, 20)
    longer[0, 21] *= 1.01
    with pytest.raises(ParityError, match=r"max norm error is 0.01 at a row 1 column 1"):
        compare(good, longer, limits, names, 20)
    wild[1, 3, 2] = np.nan
    with pytest.raises(ParityError, match="NaN or infinity at b row 0 column 3"):
        compare(good, wild, limits, names, 20)
    with pytest.raises(ParityError, match="shape"):
        compare(good, good[:, :100], limits, names, 20)


def test_gate_also_looks_at_energies(recipe: Recipe) -> None:
    good = _features()
    noisy = good + np.random.default_rng(1).normal(scale=0.05, size=good.shape).astype(np.float32)
    loose = {"min_cosine": 0.9, "mean_cosine": 0.9, "max_norm_error": 1.0}
    strict = recipe.parity["fp32"].model_copy(update=loose)
    with pytest.raises(ParityError, match=r"energy spearman is 0\.8.*, and top energy error is"):
        compare(good, noisy, strict, ["a", "b"], 20)


def test_spearman_shares_ranks_among_ties() -> None:
    a = np.array([1.0, 1.0, 2.0, 5.0])
    assert spearman(a, np.array([3.0, 3.0, 9.0, 10.0])) == pytest.approx(1.0)
    assert spearman(a, -a) == pytest.approx(-1.0)
    assert spearman(np.ones(4), np.ones(4)) == 1.0
    assert spearman(np.ones(4), a) == 0.0
