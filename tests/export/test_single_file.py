"""The single file gives the detector's results in ONNX Runtime, and TensorRT-RTX builds it."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from agreement import ABSOLUTE, EPS, RELATIVE
from numpy.typing import NDArray
from onnx import TensorProto
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, tiny_backbone

from anoco_edge import __version__
from anoco_edge.bundle import Bundle, InputContract, Product, create_bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.images.preprocess import prepare
from anoco_edge.plans.tensorrt_builder import backbone_profile, build_plan
from anoco_edge.scoring import score_patches
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.storage.hashes import sha256_file
from anoco_edge.teaching import NewPicture, Settings, Teacher
from anoco_edge_export import single_file
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.onnx_graph import FORBIDDEN
from anoco_edge_export.synthetic import synthetic_picture

Pixels = NDArray[np.uint8]
SIZE = (96, 64)
PICTURE = (120, 80)


def mask_png() -> bytes:
    """Return a mask whose white strip, a quarter of the picture wide, is left out."""
    mask = np.zeros((PICTURE[1], PICTURE[0]), np.uint8)
    mask[:, 40:70] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return buffer.getvalue()


PRODUCTS: dict[str, Settings] = {
    "plain": Settings({}),
    "top5": Settings({"pooling": "top5", "metric": "l2", "lambda": 3.0}),
    "cosine": Settings({"metric": "cosine", "bank_dtype": "float32", "floor": 0.2}),
    "region": Settings({}, region=[(0, 5), (120, 5), (60, 80)], mask=mask_png()),
    "masked-top5": Settings({"pooling": "top5"}, mask=mask_png()),
    "smooth": Settings({"pooling": "smooth", "lambda": 0.3, "lambda_kind": "relative"}),
    "masked-smooth": Settings({"pooling": "smooth"}, mask=mask_png()),
    # These cover fewer than five patches.
    "three": Settings({"pooling": "top5"}, region=[(0, 0), (60, 20)]),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Make every kind of product, each taught the same three rendered pictures."""
    bundle = make_tiny_bundle(tmp_path_factory.mktemp("one") / "t.anoco", size=SIZE, dim=12)
    references = [
        NewPicture.from_array(f"{k}.png", synthetic_picture(*PICTURE, k)) for k in range(3)
    ]
    teacher = Teacher.open(bundle.path)
    for name, settings in PRODUCTS.items():
        teacher.enroll(references, name, settings)
    return bundle


@pytest.fixture(scope="module")
def pictures() -> list[Pixels]:
    """Make parts like the references with something on them, and parts unlike all references."""
    known = [synthetic_picture(*PICTURE, k % 3) for k in range(12)]
    for k, rgb in enumerate(known[3:]):
        rgb[20 + 3 * k : 40 + 3 * k, 9 * k : 9 * k + 25] = 255 - 20 * k
    return known + [synthetic_picture(*PICTURE, 50 + k) for k in range(12)]


def remake(bundle: Bundle, path: Path, files: dict[str, bytes], **changes: Any) -> Bundle:
    """Write the same bundle without products, with other files or another contract."""
    manifest = bundle.manifest
    return create_bundle(
        path,
        backbone=changes.get("backbone", manifest.backbone),
        contract=changes.get("contract", manifest.input),
        parity={},
        tools={},
        files={f.path: (bundle.path / f.path).read_bytes() for f in manifest.files} | files,
    )


def single(bundle: Bundle, product: Product | str | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.onnx"
        return single_file.write_single_file(bundle, product, path).read_bytes()


def run(content: bytes | Path, bundle: Bundle, pictures: list[Pixels]) -> dict[str, Any]:
    batch = np.stack([prepare(rgb, bundle.manifest.input)[0] for rgb in pictures])
    session = open_session(content, "the single file")
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"pixels": batch}), strict=True))


def undecided(detector: Detector, rgb: Pixels) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return which patches may go either way, and how far energies may differ (DESIGN, 3)."""
    product, contract = detector.product, detector.bundle.manifest.input
    engine = open_engine("onnxruntime", detector.bundle, EngineSettings())
    features = engine.features(prepare(rgb, contract)[0][None])[0]
    expected = score_patches(
        features,
        detector.bank.references.features,
        lam=product.lam,
        metric=product.metric,
        floor=product.floor,
        scorer="reference",
    )
    assert expected.margin is not None
    square = np.sum(features.astype(np.float64) ** 2, axis=1)
    scale = np.ones_like(square) if product.metric == "cosine" else square
    grid = (contract.rows, contract.cols)
    allowed = RELATIVE * expected.energy + ABSOLUTE * scale
    return (expected.margin <= EPS).reshape(grid), allowed.reshape(grid)


def assert_same(got: dict[str, Any], detector: Detector, pictures: list[Pixels]) -> int:
    """Compare the results, and return for how many pictures all patches were decided.

    For those, the score and the map are compared too.
    """
    whole = 0
    for k, rgb in enumerate(pictures):
        expected = detector.inspect(rgb)
        open_, allowed = undecided(detector, rgb)
        close = np.abs(got["energy"][k] - expected.energy) <= allowed
        assert (close | open_)[expected.scored].all(), k
        assert (got["energy"][k][~expected.scored] == 0).all()
        if not open_[expected.scored].any():
            whole += 1
            most = allowed[expected.scored].max()
            assert abs(got["score"][k] - expected.score) <= most, k
            slack = 1e-4 * expected.input_map + most
            assert (np.abs(got["map"][k] - expected.input_map) <= slack).all(), k
    return whole


@pytest.mark.parametrize("name", PRODUCTS)
def test_it_says_what_the_detector_says(name: str, bundle: Bundle, pictures: list[Pixels]) -> None:
    content = single(bundle, name)
    detector = Detector(bundle, name)
    got = run(content, bundle, pictures)
    contract = bundle.manifest.input
    assert {k: v.shape[1:] for k, v in got.items()} == {
        "score": (),
        "energy": (contract.rows, contract.cols),
        "map": (contract.height, contract.width),
    }
    assert all(v.dtype == np.float32 and len(v) == len(pictures) for v in got.values())
    # The references themselves are undecided, because their own patch and its equals have s = 1.
    assert assert_same(got, detector, pictures) >= len(pictures) - 4
    scored = detector.inspect(pictures[0]).scored
    assert (scored.sum() < 5) == (name == "three")
    assert scored.all() == (name in ("plain", "top5", "cosine", "smooth"))


@pytest.mark.parametrize("name", ["plain", "region"])
def test_a_picture_scores_the_same_alone_and_in_any_batch(
    name: str, bundle: Bundle, pictures: list[Pixels]
) -> None:
    content = single(bundle, name)
    some = pictures[5:8]
    alone = [run(content, bundle, [rgb]) for rgb in some]
    for batch in ([0, 1, 2], [2, 0], [1]):
        got = run(content, bundle, [some[k] for k in batch])
        for place, k in enumerate(batch):
            for output in ("score", "energy", "map"):
                np.testing.assert_allclose(got[output][place], alone[k][output][0], rtol=1e-4)


def test_the_graph_is_standard_and_has_one_input(bundle: Bundle) -> None:
    model = onnx.load_from_string(single(bundle, "masked-top5"))
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["pixels"]
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    assert not {n.op_type for n in model.graph.node} & FORBIDDEN
    made = {name for node in model.graph.node for name in node.output}
    used = {name for node in model.graph.node for name in node.input}
    idle = made - used - {"score", "energy", "map", "largest_at"}
    assert not idle and {t.name for t in model.graph.initializer} <= used


def test_two_files_of_the_same_generation_are_equal(bundle: Bundle) -> None:
    first, second = (single(bundle, "region") for _ in range(2))
    assert first == second


def test_metadata_tells_where_it_comes_from_and_how_to_use_it(bundle: Bundle) -> None:
    product = bundle.product("top5")
    session = open_session(single(bundle, product), "the single file")
    said = session.get_modelmeta().custom_metadata_map
    assert product.bank is not None and product.threshold.value is not None
    expected = {
        "version": __version__,
        "recipe": "tiny",
        "tap": "features",
        "precision": "fp32",
        "weights_source": "tests/tiny_bundle.py",
        "weights_sha256": "0" * 64,
        "weights_license": "Apache-2.0",
        "weights_random": "false",
        "product": "top5",
        "generation": "1",
        "bank_sha256": product.bank.sha256,
        "backbone_sha256": sha256_file(bundle.path / "backbone.onnx"),
        "lambda": "3.0",
        "floor": "0.05",
        "metric": "l2",
        "pooling": "top5",
        "threshold": repr(product.threshold.value),
        "threshold_kind": "provisional",
        "input": "uint8 RGB, batch x 64 x 96 x 3",
        "fit": "stretch",
        "placement": "0,0,96,64",
    }
    assert {k: said[f"anoco_edge.{k}"] for k in expected} == expected
    assert "BILINEAR" in said["anoco_edge.resize"] and "120x80" in said["anoco_edge.assumes"]


def test_a_relative_lambda_is_in_the_file_as_a_number(bundle: Bundle) -> None:
    product = bundle.product("smooth")
    lam = 0.3 * bundle.bank(product).references.median_norm
    assert single_file.metadata(bundle, product)["anoco_edge.lambda"] == str(lam)
    graph = onnx.load_from_string(single(bundle, product)).graph
    (baked,) = (t for t in graph.initializer if t.name == "lambda")
    assert onnx.numpy_helper.to_array(baked) == np.float32(lam)


def test_what_the_backbone_says_of_itself_stays_unless_it_clashes(
    bundle: Bundle, tmp_path: Path
) -> None:
    model = onnx.load_from_string(tiny_backbone(*SIZE, 12))
    onnx.helper.set_model_props(model, {"maker": "someone", "anoco_edge.pooling": "avg3x3"})
    for node in model.graph.node:  # the scoring and the map use these names too
        node.output[:] = ["energy" if o == "texture" else o for o in node.output]
        node.input[:] = ["energy" if i == "texture" else i for i in node.input]
    files = {"backbone.onnx": model.SerializeToString()}
    weights = bundle.manifest.backbone.weights.model_copy(update={"random": True})
    backbone = bundle.manifest.backbone.model_copy(update={"weights": weights})
    made = remake(bundle, tmp_path / "other.anoco", files, backbone=backbone)
    Teacher.open(made.path).enroll([NewPicture.from_array("a.png", synthetic_picture(*PICTURE))])
    content = single(made)
    said = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert (said["maker"], said["anoco_edge.pooling"]) == ("someone", "max")
    assert said["anoco_edge.weights_random"] == "true"


@pytest.mark.parametrize("value", [0.0, 1e-12, 1e11, float("inf"), float("nan")])
def test_a_patch_that_cannot_be_scored_gives_nan_and_spoils_no_other_picture(
    value: float, bundle: Bundle, pictures: list[Pixels]
) -> None:
    """The features of white pictures become this value, which a scorer would refuse."""
    model = onnx.load_from_string(single(bundle, "region"))
    make = onnx.helper.make_node
    nodes = [
        make("ReduceMin", ["backbone/float", "axes"], ["darkest"]),
        make("Reshape", ["darkest", "by_batch"], ["darkest_flat"]),
        make("Equal", ["darkest_flat", "white"], ["is_white"]),
        make("Where", ["is_white", "bad", "backbone/features"], ["spoiled"]),
    ]
    for node in model.graph.node:
        node.input[:] = ["spoiled" if i == "backbone/features" else i for i in node.input]
    at = 1 + [n.output[0] for n in model.graph.node].index("backbone/features")
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*kept[:at], *nodes, *kept[at:]])
    constants = {
        "axes": np.array([1, 2, 3]),
        "by_batch": np.array([-1, 1, 1]),
        "white": np.float32(255),
        "bad": np.float32(value),
    }
    for name, constant in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(constant), name))
    white = np.full_like(pictures[0], 255)
    content = model.SerializeToString()
    got = run(content, bundle, [pictures[6], white, pictures[7]])
    assert np.isnan(got["score"]).tolist() == [False, True, False]
    assert (np.isnan(got["energy"][1]) == Detector(bundle, "region").inspect(white).scored).all()
    assert not np.isnan(got["energy"][[0, 2]]).any()


# ---- letterbox


def letterboxed(bundle: Bundle, path: Path, sizes: list[tuple[int, int]]) -> Bundle:
    fields = {**bundle.manifest.input.model_dump(), "fit": "letterbox", "fill": (9, 99, 199)}
    contract = InputContract.model_validate(fields)
    made = remake(bundle, path, {}, contract=contract)
    new = [
        NewPicture.from_array(f"{k}.png", synthetic_picture(*size, k))
        for k, size in enumerate(sizes)
    ]
    Teacher.open(made.path).enroll(new, settings=Settings({"any_size": True}))
    return made


def test_letterbox_takes_the_place_that_all_references_share(
    bundle: Bundle, pictures: list[Pixels], tmp_path: Path
) -> None:
    # The same part at half the size lies in the same place.
    boxed = letterboxed(bundle, tmp_path / "boxed.anoco", [(80, 80), (40, 40), (80, 80)])
    content = single(boxed)
    some = [rgb[:, 20:100] for rgb in pictures[12:18]]
    detector = Detector(boxed)
    assert not detector.inspect(some[0]).scored.all()
    assert assert_same(run(content, boxed, some), detector, some) == len(some)
    said = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert said["anoco_edge.placement"] == "16,0,64,64"
    assert (said["anoco_edge.fit"], said["anoco_edge.fill"]) == ("letterbox", "9,99,199")


def test_letterbox_with_references_of_several_shapes_is_refused(
    bundle: Bundle, tmp_path: Path
) -> None:
    boxed = letterboxed(bundle, tmp_path / "boxed.anoco", [(80, 80), (120, 80)])
    with pytest.raises(UsageError, match=r"references of 120x80, 80x80.*one size, or .*stretch"):
        single(boxed)


# ---- what cannot be put into one file


def test_products_that_do_not_fit_are_refused(
    bundle: Bundle, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BundleError, match="no references yet"):
        single(tiny_bundle)
    with pytest.raises(UsageError, match="several products"):
        single(bundle)
    with pytest.raises(UsageError, match="no product 'nuts'"):
        single(bundle, "nuts")
    monkeypatch.setattr(single_file, "EXTERNAL_ABOVE", 1000)
    with pytest.raises(UsageError, match=r"bank of 72 patches .*fewer references"):
        single(bundle, "plain")
    views = bundle.product("plain").model_copy(update={"tta": "paper"})
    with pytest.raises(UsageError, match="many views"):
        single(bundle, views)


def test_a_backbone_of_other_operators_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    model = onnx.load_from_string(tiny_backbone(*SIZE, 12))
    model.opset_import[0].version = 17
    made = remake(bundle, tmp_path / "old.anoco", {"backbone.onnx": model.SerializeToString()})
    Teacher.open(made.path).enroll([NewPicture.from_array("a.png", textured_picture(1))])
    with pytest.raises(BundleError, match=r"operators \{'': 17\}.*export the bundle again"):
        single(made)


# ---- the file


def test_the_file_is_replaced_whole_and_nothing_is_left_beside_it(
    bundle: Bundle, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "out.onnx"
    assert single_file.write_single_file(bundle, "plain", path) == path
    assert path.read_bytes() == single(bundle, "plain")
    single_file.write_single_file(bundle, "top5", path)
    assert path.read_bytes() == single(bundle, "top5")
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(UsageError, match="is a folder"):
        single_file.write_single_file(bundle, "plain", tmp_path)


def test_a_graph_that_is_refused_leaves_the_old_file(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.onnx"
    single_file.write_single_file(bundle, "plain", path)
    before = path.read_bytes()
    real = single_file.query_part
    monkeypatch.setattr(single_file, "query_part", lambda c, n, _: real(c, n, "nowhere"))
    with pytest.raises(BundleError, match="do not make one valid graph"):
        single_file.write_single_file(bundle, "plain", path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_what_protobuf_cannot_hold_lies_in_a_second_file(
    bundle: Bundle, pictures: list[Pixels], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(single(bundle, "plain"), bundle, pictures[5:7])
    path, data = tmp_path / "out.onnx", tmp_path / "out.onnx.data"
    with monkeypatch.context() as small:
        small.setattr(single_file, "EXTERNAL_ABOVE", 4000)
        single_file.write_single_file(bundle, "plain", path)
        assert sorted(tmp_path.iterdir()) == [path, data]
        got = run(path, bundle, pictures[5:7])
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value)
    single_file.write_single_file(bundle, "plain", path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_backbone_in_two_files_is_read_and_its_second_file_checked(
    bundle: Bundle, tmp_path: Path
) -> None:
    names = ("backbone.onnx", "backbone.onnx.data")
    model = onnx.load_from_string(tiny_backbone(*SIZE, 12))
    onnx.save_model(model, tmp_path / names[0], save_as_external_data=True, location=names[1])
    product = bundle.product("plain")
    files = {name: (tmp_path / name).read_bytes() for name in names}
    data = files[names[1]]
    made = remake(bundle, tmp_path / "two.anoco", files)
    shutil.copytree(bundle.path / "products", made.path / "products")
    got, expected = (
        run(single(b, product), b, [synthetic_picture(*PICTURE, 70)]) for b in (made, bundle)
    )
    np.testing.assert_array_equal(got["map"], expected["map"])
    (made.path / "backbone.onnx.data").write_bytes(data[:-1] + b"x")
    with pytest.raises(BundleError, match="not what was written"):
        single(made, product)


# ---- TensorRT-RTX builds it


@pytest.fixture(scope="module")
def half_bundle(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Make the same backbone in half precision, as `export --precision fp16` writes it."""
    half, _ = convert_to_half(
        onnx.load_from_string(tiny_backbone(*SIZE, 12)), ["layernorm", "output"]
    )
    assert TensorProto.FLOAT16 in {tensor.data_type for tensor in half.graph.initializer}
    made = remake(
        bundle,
        tmp_path_factory.mktemp("half") / "h.anoco",
        {"backbone.onnx": half.SerializeToString()},
        backbone=bundle.manifest.backbone.model_copy(update={"precision": "fp16"}),
    )
    good = [NewPicture.from_array(f"{k}.png", synthetic_picture(*PICTURE, k)) for k in range(3)]
    for name in ("plain", "masked-top5"):
        Teacher.open(made.path).enroll(good, name, PRODUCTS[name])
    return made


@pytest.mark.parametrize("name", ["plain", "masked-top5"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_tensorrt_rtx_builds_it(name: str, precision: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("tensorrt_rtx")
    bundle: Bundle = request.getfixturevalue("bundle" if precision == "fp32" else "half_bundle")
    assert bundle.manifest.backbone.precision == precision
    content = single(bundle, name)
    kinds = {tensor.data_type for tensor in onnx.load_from_string(content).graph.initializer}
    assert (TensorProto.FLOAT16 in kinds) == (precision == "fp16")
    plan = build_plan(
        content,
        backbone_profile(bundle.manifest.input, 4),
        plan_engine="tensorrt-rtx",
        targets=("sm86", "sm89"),
    )
    assert plan.targets == ("sm86", "sm89") and plan.size > 100_000
