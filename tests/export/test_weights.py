"""Weights are found and read, and every key reaches its place."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge_export import load_recipe, weights
from anoco_edge_export.checkpoint import find_checkpoint, read_checkpoint
from anoco_edge_export.families.efficientnet import convert
from anoco_edge_export.licenses import license_files
from anoco_edge_export.recipe import Recipe
from anoco_edge_export.weights import load_weights, match_keys, package_file

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("efficientnet-lite0")


@pytest.fixture
def state(recipe: Recipe) -> State:
    loaded: State = torch.load(package_file(recipe), weights_only=True)
    return loaded


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the recipes' models with transformers of one narrow block."""

    def create(recipe: Recipe, variant: str | None = None) -> Any:
        name = variant or recipe.architecture
        return timm.create_model(name, num_classes=0, depth=1, embed_dim=16, num_heads=2)

    monkeypatch.setattr(weights, "create_model", create)


def _weights(recipe: Recipe, variant: str | None = None) -> State:
    model = weights.create_model(recipe, variant)
    drawn: State = {k: torch.randn_like(v) for k, v in model.state_dict().items()}
    return drawn


def _saved(file: Path, state: State) -> str:
    safetensors.torch.save_file(state, file)
    return str(file)


# The recipe's package


def test_every_key_has_its_place(recipe: Recipe, state: State) -> None:
    wanted = timm.create_model(recipe.architecture).state_dict()
    renamed = convert("efficientnet_lite_pytorch", state, list(wanted))
    # Both libraries list their 296 tensors in the order of the forward pass.
    assert list(renamed) == list(wanted)
    matched = match_keys(recipe, wanted, state, "w.pth")
    assert torch.equal(matched["blocks.6.0.bn3.bias"], state["_blocks.15._bn2.bias"])


@pytest.mark.parametrize(
    ("asked", "given"),
    [("dinov2-s", "dinov2-s-plain"), ("dinov2-b-plain", "dinov2-b"), ("dinov3-s", "dinov3-b")],
)
def test_weights_of_another_recipe_are_recognized(asked: str, given: str) -> None:
    """With registers or without, small or base: the message names the recipe to take."""
    recipe, other = load_recipe(asked), load_recipe(given)
    with torch.device("meta"):
        wanted, state = (weights.create_model(r).state_dict() for r in (recipe, other))
    says = f"does not fit {asked}: .*; these are weights of {given}: pass `backbone={given}`"
    with pytest.raises(UsageError, match=says):
        match_keys(recipe, wanted, state, "w.pth")


def test_a_changed_package_is_noticed(recipe: Recipe) -> None:
    package = recipe.weights.package
    assert package is not None
    with pytest.raises(UsageError, match="the recipe expects 000000000000"):
        load_weights(_with_package(recipe, sha256="0" * 64))


def test_a_package_that_is_not_installed_says_which_extra(recipe: Recipe) -> None:
    with pytest.raises(EnvironmentMissingError, match=r"no_such_weights.*anoco-edge\[export\]"):
        load_weights(_with_package(recipe, package="no_such_weights"))


def _with_package(recipe: Recipe, **changes: str) -> Recipe:
    assert recipe.weights.package is not None
    package = recipe.weights.package.model_copy(update=changes)
    moved = recipe.weights.model_copy(update={"package": package})
    return recipe.model_copy(update={"weights": moved})


# Keys that do not fit


def test_weights_of_another_model_are_listed(recipe: Recipe, state: State, tmp_path: Path) -> None:
    wrong = {
        "none of it": {"conv1.weight": torch.zeros(3)},
        "one missing": {k: v for k, v in state.items() if k != "_bn1.bias"},
        "one more": state | {"_blocks.16._bn0.bias": torch.zeros(3)},
        "another width": state | {"_conv_stem.weight": torch.zeros(16, 3, 3, 3)},
        "not finite": state | {"_bn1.bias": torch.full((1280,), float("nan"))},
    }
    says = {
        "none of it": r"294 missing \(conv_stem.weight.*290 more\); 1 left over \(conv1.weight\)",
        "one missing": r"1 missing \(bn2.bias\); pass weights of tf_efficientnet_lite0",
        "one more": r"1 left over \(_blocks.16._bn0.bias\)",
        "another width": r"1 of another shape \(conv_stem.weight\)",
        "not finite": r"NaN or infinity in bn2.bias",
    }
    for name, content in wrong.items():
        file = tmp_path / f"{name}.pth"
        torch.save(content, file)
        with pytest.raises(UsageError, match=says[name]) as caught:
            load_weights(recipe, str(file))
        assert caught.value.exit_code == 2


@pytest.mark.usefixtures("tiny")
def test_only_the_surplus_that_the_recipe_names_may_be_left_over(tmp_path: Path) -> None:
    recipe = load_recipe("dinov3-s")
    known = _weights(recipe) | {"mask_token": torch.zeros(1, 16)}
    assert "mask_token" not in load_weights(recipe, _saved(tmp_path / "a.safetensors", known)).state
    unknown = known | {"masktoken": torch.zeros(1, 16)}
    with pytest.raises(UsageError, match=r"1 left over \(masktoken\)"):
        load_weights(recipe, _saved(tmp_path / "b.safetensors", unknown))


@pytest.mark.usefixtures("tiny")
def test_what_a_layout_refuses_is_said_only_when_no_other_fits(tmp_path: Path) -> None:
    recipe = load_recipe("dinov3-s")
    official = _official(recipe)
    double = official | {"register_tokens": torch.zeros(1, 4, 16)}
    with pytest.raises(UsageError, match="register_tokens and storage_tokens both are reg_token"):
        load_weights(recipe, _saved(tmp_path / "a.safetensors", double))


# Variants


def _official(recipe: Recipe) -> State:
    """Rename timm's tensors as Meta does."""
    theirs = {"reg_token": "storage_tokens", "blocks.0.gamma_1": "blocks.0.ls1.gamma"}
    theirs["blocks.0.gamma_2"] = "blocks.0.ls2.gamma"
    return {theirs.get(k, k): v for k, v in _weights(recipe).items()}


@pytest.mark.usefixtures("tiny")
def test_a_bias_that_is_not_zero_selects_the_model_that_keeps_it(tmp_path: Path) -> None:
    recipe = load_recipe("dinov3-s")
    official = _official(recipe)
    mask = torch.ones(48)
    mask[16:32] = 0
    official |= {"blocks.0.attn.qkv.bias_mask": mask, "mask_token": torch.zeros(1, 16)}
    bias = torch.zeros(48)
    plain = load_weights(
        recipe, _saved(tmp_path / "zero.safetensors", official | {"blocks.0.attn.qkv.bias": bias})
    )
    assert (plain.architecture, plain.reason) == (recipe.architecture, "")
    bias = torch.arange(48.0)
    loaded = load_weights(
        recipe, _saved(tmp_path / "bias.safetensors", official | {"blocks.0.attn.qkv.bias": bias})
    )
    assert loaded.architecture == "vit_small_patch16_dinov3_qkvb"
    assert loaded.reason == "its qkv bias is not zero"
    assert torch.equal(loaded.state["blocks.0.attn.q_bias"], bias[:16])
    assert torch.equal(loaded.state["blocks.0.attn.v_bias"], bias[32:])


QUICK, PLAIN = "vit_base_patch16_clip_quickgelu_224", "vit_base_patch16_clip_224"
TAGGED = {"architecture": PLAIN, "pretrained_cfg": {"tag": "openai"}}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("name", "config", "taken"),
    [
        ("config.json", None, QUICK),
        ("config.json", {"model_type": "clip_vision_model", "hidden_act": "quick_gelu"}, QUICK),
        ("config.json", {"model_type": "clip_vision_model", "hidden_act": "gelu"}, PLAIN),
        ("config.json", {"model_type": "clip", "vision_config": {"hidden_act": "gelu"}}, PLAIN),
        ("config.json", {"model_type": "clip", "vision_config": {}}, QUICK),
        ("config.json", {"architecture": QUICK}, QUICK),
        ("config.json", TAGGED, QUICK),  # timm's plain name, with a note about the activation
        ("config.json", TAGGED | {"pretrained_cfg": {"tag": "laion2b"}}, PLAIN),
        ("config.json", [], QUICK),
        ("open_clip_config.json", {"model_cfg": {"quick_gelu": True}}, QUICK),
        ("open_clip_config.json", {"model_cfg": {}}, PLAIN),
    ],
)
def test_a_config_beside_the_file_decides_between_the_gelus(
    tmp_path: Path, name: str, config: Any, taken: str
) -> None:
    recipe = load_recipe("clip-b")
    source = _saved(tmp_path / "model.safetensors", _weights(recipe))
    if config is not None:
        (tmp_path / name).write_text(json.dumps(config))
    loaded = load_weights(recipe, source)
    assert loaded.architecture == taken
    if taken != QUICK:
        assert loaded.reason == f"{name} says gelu, not quick_gelu"
    else:
        assert loaded.reason == "" or "nothing beside" in loaded.reason


@pytest.mark.usefixtures("tiny")
def test_an_activation_that_no_variant_has_is_refused(tmp_path: Path) -> None:
    recipe = load_recipe("clip-b-plus")
    source = _saved(tmp_path / "model.safetensors", _weights(recipe))
    config = {"model_type": "clip_vision_model", "hidden_act": "quick_gelu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"config.json .* activation is quick_gelu, clip-b-plus"):
        load_weights(recipe, source)


# Files


def test_the_same_weights_in_timms_layout_as_safetensors(recipe: Recipe, tmp_path: Path) -> None:
    ours = load_weights(recipe)
    source = _saved(tmp_path / "mine.safetensors", dict(ours.state))
    (tmp_path / "LICENSE.md").write_text("mine")
    theirs = load_weights(recipe, source)
    assert all(torch.equal(ours.state[k], theirs.state[k]) for k in ours.state)
    assert (ours.origin, ours.record.license) == ("package", "Apache-2.0")
    assert theirs.record.source == "mine.safetensors"
    # The recipe's terms do not apply to this file.
    assert theirs.record.license == "as the file's owner says"
    assert license_files(recipe, theirs)["LICENSES/beside-weights/LICENSE.md"] == b"mine"


@pytest.mark.usefixtures("tiny")
def test_half_precision_files_are_cast_up(tmp_path: Path) -> None:
    recipe = load_recipe("dinov3-s")
    full = _weights(recipe)
    for dtype in (torch.float16, torch.bfloat16):
        stored = {k: v.to(dtype) for k, v in full.items()}
        loaded = load_weights(recipe, _saved(tmp_path / "half.safetensors", stored))
        for key, value in loaded.state.items():
            assert value.dtype == torch.float32 and value.is_contiguous()
            assert torch.equal(value, stored[key].float())


def test_a_wrapped_state_dict_is_unwrapped_once(tmp_path: Path) -> None:
    inner = {"a": torch.ones(2)}
    file = tmp_path / "w.pth"
    for wrapped in ({"model": inner}, {"state_dict": inner, "epoch": 3, "name": "x"}, inner):
        torch.save(wrapped, file)
        assert read_checkpoint(file).keys() == {"a"}
    torch.save(inner, file, _use_new_zipfile_serialization=False)
    assert read_checkpoint(file).keys() == {"a"}
    both = {"model": inner, "state_dict": inner}
    for refused in (
        both,
        {"teacher": inner},
        {"model": {"model": inner}},
        {"model": inner, "b": []},
    ):
        torch.save(refused, file)
        with pytest.raises(UsageError, match=r"w\.pth is not a plain state dict"):
            read_checkpoint(file)


class _Program:
    """An object whose unpickling runs code, which must be prevented."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.made,)


@pytest.mark.filterwarnings("error")  # torch would add its warnings to our one line
def test_a_pickle_that_is_no_state_dict_is_not_run(recipe: Recipe, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        for content in ({"a": [1, 2]}, {"conv_stem.weight": _Program(made)}, _Program(made)):
            file = tmp_path / "pickled.pth"
            file.write_bytes(pickle.dumps(content, protocol))
            with pytest.raises(UsageError, match=r"pickled.pth (cannot be read as|is not a plain)"):
                load_weights(recipe, str(file))
            assert not made.exists()
            pickle.loads(file.read_bytes())  # plain pickle would have run it
            assert made.exists() == (content != {"a": [1, 2]})
            made.unlink(missing_ok=True)


def test_files_that_are_no_state_dict(recipe: Recipe, tmp_path: Path) -> None:
    good = package_file(recipe).read_bytes()
    (tmp_path / "text.pth").write_text("these are not the weights you are looking for\n")
    (tmp_path / "json.pth").write_bytes(b"12345678{ what")
    (tmp_path / "cut.pth").write_bytes(good[: len(good) // 2])
    (tmp_path / "empty.pth").write_bytes(b"")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    (tmp_path / "pointer.pth").write_text("version https://git-lfs.github.com/spec/v1\noid 1\n")
    with zipfile.ZipFile(tmp_path / "script.pth", "w") as archive:
        archive.writestr("clip/code/__torch__.py", "")
    with pytest.raises(UsageError, match=r"json.pth is a broken safetensors file.*fetch it again"):
        load_weights(recipe, str(tmp_path / "json.pth"))
    with pytest.raises(UsageError, match=r"empty.pth is empty; fetch it again"):
        load_weights(recipe, str(tmp_path / "empty.pth"))
    for name in ("text", "cut", "module"):
        with pytest.raises(UsageError, match=f"{name}.pth cannot be read as weights"):
            load_weights(recipe, str(tmp_path / f"{name}.pth"))
    for name, says in {
        "list": "is not a plain state dict",
        "pointer": "is a Git LFS pointer",
        "script": "is a TorchScript program",
    }.items():
        with pytest.raises(UsageError, match=f"{name}.pth {says}"):
            load_weights(recipe, str(tmp_path / f"{name}.pth"))
    with pytest.raises(UsageError, match="No such file"):
        load_weights(recipe, str(tmp_path / "absent.pth"))


def test_a_folder_stands_for_the_model_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no model.safetensors; pass the file itself"):
        find_checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(UsageError, match="split over several files"):
        find_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="split over several files"):
        read_checkpoint(index)
    (tmp_path / "model.safetensors").touch()
    assert find_checkpoint(tmp_path) == tmp_path / "model.safetensors"


# The hub, and what is kept of it


@pytest.mark.usefixtures("tiny")
def test_a_file_of_the_hub_has_the_recipes_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("dinov3-s")
    file = tmp_path / "hub" / "model.safetensors"
    file.parent.mkdir()
    _saved(file, _weights(recipe))
    (file.parent / "LICENSE.md").write_text("terms")
    card = "---\ntags: [x]\nlicense: other\nlicense_name: dinov3-license\n---\nlicense: not this\n"
    (file.parent / "README.md").write_text(card)
    monkeypatch.setattr(weights, "hub_file", lambda *_: file)
    loaded = load_weights(recipe)
    assert loaded.record.license == recipe.weights.license
    assert loaded.record.source == "timm/vit_small_patch16_dinov3.lvd1689m/model.safetensors"
    files = license_files(recipe, loaded)
    assert files["LICENSES/beside-weights/LICENSE.md"] == b"terms"
    notice = files["LICENSES/NOTICE.txt"].decode()
    assert "The hub's page says license_name: dinov3-license" in notice
    assert "not this" not in notice
    assert recipe.weights.terms and recipe.weights.terms in notice


@pytest.mark.usefixtures("tiny")
def test_a_kept_file_comes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("dinov3-s")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "anoco-edge" / "weights"
    folder.mkdir(parents=True)
    _saved(folder / "dinov3-s.safetensors", _weights(recipe))
    for name in ("LICENSE", "dinov3-b.LICENSE", "dinov3-s.LICENSE.md"):
        (folder / name).write_text(name)
    (folder / "config.json").write_text('{"model_type": "other", "hidden_act": "relu"}')
    loaded = load_weights(recipe)
    assert (loaded.origin, loaded.record.source) == ("kept", "dinov3-s.safetensors")
    found = {k: v for k, v in license_files(recipe, loaded).items() if "NOTICE" not in k}
    assert found == {"LICENSES/beside-weights/LICENSE.md": b"dinov3-s.LICENSE.md"}


# Random


def test_random_weights_are_reproducible_and_marked(recipe: Recipe) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (load_weights(recipe, f"random:{s}").record for s in (3, 3, 4))
    assert first == again and first.random
    assert first.sha256 != other.sha256
    assert torch.equal(torch.random.get_rng_state(), before)
    notice = license_files(recipe, load_weights(recipe, "random:3"))["LICENSES/NOTICE.txt"]
    assert b"random numbers" in notice
    with pytest.raises(UsageError, match="write random:0"):
        load_weights(recipe, "random:x")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda v: (v * 100).to(torch.int8), "int8"),
        (lambda v: v.to(torch.complex64), "complex64"),
        (lambda v: v.to(torch.float8_e4m3fn), "float8_e4m3fn"),
    ],
)
def test_numbers_that_are_no_plain_floats_are_refused(
    spoil: Callable[[torch.Tensor], torch.Tensor], says: str, tmp_path: Path
) -> None:
    """Torch would get the same wrong values, so the parity check could not tell."""
    recipe = load_recipe("efficientnet-lite0")
    state = dict(load_weights(recipe, "random:0").state)
    state["bn1.weight"] = spoil(state["bn1.weight"])
    torch.save(state, tmp_path / "odd.pth")
    with pytest.raises(UsageError, match=f"odd.pth holds {says} numbers in bn1.weight"):
        load_weights(recipe, str(tmp_path / "odd.pth"))
