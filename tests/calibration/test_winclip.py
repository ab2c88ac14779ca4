"""WinCLIP and WinCLIP with ANoCo equal a literal implementation, from pixels to scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import literal_winclip as literal
import numpy as np
import pytest
import safetensors.numpy
from command_line import Ran, fails, ok
from tiny_bundle import make_tiny_bundle
from tiny_clip import (
    COLS,
    HEADS,
    ID,
    ROWS,
    TEXT,
    ClipSizes,
    draw_open_clip,
    install_tiny_clip,
    install_vocabulary,
)
from tiny_dataset import make_category

from anoco_edge.bundle import Bundle
from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import prepare
from anoco_edge.machine import cache_folder
from anoco_edge.scoring import Parameters, References
from anoco_edge.scoring.reference import ReferenceScorer
from anoco_edge.teaching import Settings
from anoco_edge_calibration.evaluation.bundle_evaluation import EngineRequest, evaluate_bundle
from anoco_edge_calibration.evaluation.layouts import open_dataset
from anoco_edge_calibration.evaluation.prompts import BundlePrompts, WindowLayout, object_name
from anoco_edge_calibration.evaluation.scorers import KINDS, NeighborCache, WindowBank
from anoco_edge_calibration.evaluation.scorers.winclip import WinClip, complete_windows
from anoco_edge_calibration.evaluation.variants import Variant, parse_variants
from anoco_edge_export import ExportOptions, export_bundle
from anoco_edge_export.recipe import load_recipe
from anoco_edge_export.text.features import tokenize_prompts
from anoco_edge_export.text.tokenizer import byte_letters

SHAPE = (ROWS, COLS)
LAYOUT = WindowLayout(ROWS, COLS, 6, 5, (2, 3))
ONNX = EngineRequest("onnxruntime", threads=1)


@dataclass(frozen=True)
class Line:
    """A data set of one category, and what `eval` printed and exported for it."""

    folder: Path
    ran: Ran
    bundle: Bundle


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Export a tiny CLIP through `eval`, which writes the prompts that the category needs."""
    folder = tmp_path_factory.mktemp("winclip")
    weights = folder / "clip.safetensors"
    safetensors.numpy.save_file(draw_open_clip(), weights)
    make_category(folder / "parts" / "hex_bolt", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        install_tiny_clip(patch, folder)
        ran = ok(
            *("eval", "parts", "--backbone", ID, "--weights", weights, "--shots", "1", "--json"),
            *("--scorers", "winclip,winclip-anoco", "--engine", "onnxruntime", "--threads", "1"),
        )
        (bundle,) = (cache_folder() / "eval").glob("*.anoco")
        yield Line(folder, ran, Bundle.open(bundle))


# ---- from pixels to scores


def encode(path: Path, bundle: Bundle) -> literal.EncodedPicture:
    pixels, _ = prepare(read_picture(path), bundle.manifest.input)
    return literal.encode_picture(draw_open_clip(), HEADS, pixels)


def text_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    prompts = tokenize_prompts(load_recipe(ID), [name])
    assert prompts is not None
    heads, weights = TEXT["heads"], draw_open_clip()
    good, damaged = (
        literal.mean_text(weights, heads, rows.tolist()) for rows in prompts.objects[name]
    )
    return good, damaged


def anoco(rows: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Half of 1 - cosine to where the float64 reference of ANoCo moves each row."""
    bank, _ = References.of(references)
    scorer = ReferenceScorer(bank, Parameters(1.0, "cosine", 0.05))
    return scorer.score(rows).energy / 2


def scaled(bundle: Bundle, seen: literal.EncodedPicture) -> literal.EncodedPicture:
    """Give the taps the factors of the bundle: lambda depends on norms, cosines do not."""
    patch, *factors, _ = bundle.manifest.backbone.tap_scales
    windows = {
        scale: {place: factor * row for place, row in seen.windows[scale].items()}
        for scale, factor in zip(literal.SCALES, factors, strict=True)
    }
    return literal.EncodedPicture(patch * seen.patches, windows, seen.picture)


def test_eval_gives_the_scores_of_a_literal_winclip(line: Line) -> None:
    bundle, dataset = line.bundle, open_dataset(line.folder / "parts")
    variants = parse_variants("winclip,winclip-anoco", ["temperature=0.07,0.01"])
    settings = Settings({"bank_dtype": "float32", "tta": "none"})
    found = evaluate_bundle(
        bundle, dataset, shots=(2,), variants=variants, settings=settings, engine=ONNX
    )
    assert not found.problems
    (category,) = dataset.categories
    references = [scaled(bundle, encode(path, bundle)) for path in category.draw(2, 0)]
    text = text_of("hex bolt")
    expected = {}
    for picture in category.test:
        query = scaled(bundle, encode(picture.path, bundle))
        for name, associate in (
            ("winclip", literal.half_of_one_minus_cosine),
            ("winclip-anoco", anoco),
        ):
            for temperature in (0.07, 0.01):
                _, score = literal.score(query, references, text, SHAPE, temperature, associate)
                key = (f"{name} temperature={temperature:g}", str(picture.path))
                expected[key] = score
    scores = {(one.scorer, one.source): one.score for one in found.pictures}
    assert scores.keys() == expected.keys()
    for key, score in scores.items():
        assert score == pytest.approx(expected[key], rel=2e-4), key
    assert len({round(score, 6) for score in scores.values()}) > 12


def test_the_prompts_in_the_bundle_are_the_mean_of_all(line: Line) -> None:
    prompts = BundlePrompts.read(line.bundle)
    assert prompts.layout == WindowLayout(ROWS, COLS, 32, 12, (2, 3))
    np.testing.assert_allclose(prompts.about("hex_bolt"), text_of("hex bolt"), atol=1e-5)
    with pytest.raises(UsageError, match=r"no prompts about 'nut', but about hex bolt"):
        prompts.about("nut")
    assert object_name("Metal__nut") == "metal nut"


def test_the_command_compares_both(line: Line) -> None:
    assert {row["scorer"] for row in line.ran.json} == {"winclip", "winclip-anoco"}
    assert all(0 <= row["image_auroc"] <= 1 for row in line.ran.json)


# ---- the scorer


def bank_of(
    pictures: int, seed: int = 0
) -> tuple[np.ndarray, NeighborCache, list[literal.EncodedPicture]]:
    """Draw the rows of whole pictures, as a bundle gives them, and what they stand for."""
    rng = np.random.default_rng(seed)
    size = ROWS * COLS
    rows = rng.normal(0.4, 1, (pictures * size, LAYOUT.patch_dim + 3 * LAYOUT.window_dim))
    rows = rows.astype(np.float32)
    place = np.arange(pictures * size) % size
    row, col = (place // COLS).astype(np.int16), (place % COLS).astype(np.int16)
    text = rng.normal(size=(2, LAYOUT.window_dim)).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    windows = WindowBank(LAYOUT, text, row, col)
    cache = NeighborCache(References.of(rows)[0], np.arange(len(rows)) // size, windows=windows)
    return rows, cache, [seen_in(rows[k * size :][:size]) for k in range(pictures)]


def seen_in(rows: np.ndarray) -> literal.EncodedPicture:
    grid = rows.astype(np.float64).reshape(ROWS, COLS, -1)
    windows = {}
    for number, scale in enumerate(LAYOUT.scales):
        start = LAYOUT.patch_dim + number * LAYOUT.window_dim
        windows[scale] = {
            (top, left): grid[top, left, start : start + LAYOUT.window_dim]
            for top in range(ROWS - scale + 1)
            for left in range(COLS - scale + 1)
        }
    picture = grid[0, 0, -LAYOUT.window_dim :]
    return literal.EncodedPicture(
        grid[..., : LAYOUT.patch_dim].reshape(ROWS * COLS, -1), windows, picture
    )


@pytest.mark.parametrize("kind", ["winclip", "winclip-anoco"])
def test_maps_and_evidence_equal_a_literal_implementation(kind: str) -> None:
    rows, cache, references = bank_of(3)
    query = np.random.default_rng(9).normal(0.4, 1, (ROWS * COLS, rows.shape[1]))
    query = query.astype(np.float32)
    query[7] = rows[30]  # a patch and windows that a reference has: distance 0
    parameters = Parameters(1.0, "cosine", 0.05) if kind == "winclip-anoco" else None
    associate = anoco if parameters else literal.half_of_one_minus_cosine
    assert cache.windows is not None
    good, damaged = cache.windows.text
    for temperature in (0.07, 0.5):
        found = WinClip(cache, temperature, parameters).score(query)
        grid, score = literal.score(
            seen_in(query), references, (good, damaged), SHAPE, temperature, associate
        )
        np.testing.assert_allclose(found.energy.reshape(SHAPE), grid, rtol=1e-4, atol=1e-6)
        assert found.picture == pytest.approx(score, rel=1e-4)
    cosines = literal_cosines(query[:, :6], rows[:, :6])
    assert found.anchor.tolist() == cosines.argmax(axis=1).tolist() and found.anchor[7] == 30
    np.testing.assert_allclose(found.similarity, cosines.max(axis=1), atol=1e-5)


def literal_cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([[literal.unit(x) @ literal.unit(y) for y in b] for x in a])


def test_a_window_with_a_patch_that_is_not_in_the_bank_is_no_reference() -> None:
    rows, whole, _ = bank_of(2)
    kept = np.delete(np.arange(len(rows)), [6, 27])
    assert whole.windows is not None
    windows = WindowBank(
        LAYOUT, whole.windows.text, whole.windows.row[kept], whole.windows.col[kept]
    )
    for scale in LAYOUT.scales:
        found = complete_windows(whole.pictures[kept], windows, scale)
        present = {(k // 20, k % 20 // COLS, k % COLS) for k in kept.tolist()}
        expected = [
            all((p, r + i, c + j) in present for i in range(scale) for j in range(scale))
            for p, r, c in sorted(present)
        ]
        assert found.tolist() == expected and any(expected) and not all(expected)
    few = np.array([0, 2, 4])
    sparse = WindowBank(LAYOUT, whole.windows.text, whole.windows.row[few], whole.windows.col[few])
    with pytest.raises(ScoringError, match="no complete window of 2x2 patches"):
        WinClip(NeighborCache(References.of(rows[few])[0], whole.pictures[few], windows=sparse))


def test_only_whole_pictures_are_scored() -> None:
    rows, cache, _ = bank_of(1)
    with pytest.raises(ScoringError, match="pictures of 4x5 patches, and 19 patches were given"):
        WinClip(cache).score(rows[:19])
    with pytest.raises(UsageError, match="needs windows and prompts"):
        WinClip(NeighborCache(References.of(rows)[0]))
    for temperature in (0.0, -1.0, float("nan"), 1e5):
        with pytest.raises(UsageError, match="temperature is"):
            WinClip(cache, temperature)


# ---- bundles that cannot be compared


def test_all_leaves_out_what_needs_prompts() -> None:
    assert not any(variant.prompted for variant in parse_variants("all"))
    assert [kind for kind in KINDS if KINDS[kind].prompted] == ["winclip", "winclip-anoco"]


def test_a_bundle_without_windows_or_prompts_says_so(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = make_tiny_bundle(tmp_path / "plain.anoco")
    args = ("eval", line.folder / "parts", "--scorers", "winclip", "--shots", "1", "--bundle")
    complaint = fails(2, *args, bundle.path)
    assert "plain.anoco has no windows" in complaint and "--backbone winclip-b-plus" in complaint
    with pytest.raises(UsageError, match="has no prompts"):
        BundlePrompts.read(_without_prompts(line.bundle))
    make_category(tmp_path / "nuts" / "nut", 0)
    with pytest.raises(UsageError, match="no prompts about 'nut'"):
        evaluate_bundle(
            line.bundle,
            open_dataset(tmp_path / "nuts"),
            variants=[Variant("winclip")],
            engine=ONNX,
        )


def _without_prompts(bundle: Bundle) -> Bundle:
    """Return the bundle as if it had been exported without prompts."""
    files = tuple(f for f in bundle.manifest.files if f.path != "prompts.safetensors")
    return Bundle(bundle.path, bundle.manifest.model_copy(update={"files": files}))


# ---- the real size


@pytest.mark.full
def test_the_real_size_gives_the_scores_of_a_literal_winclip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ViT-B/16+ at 240 px with random weights: 365 windows, features of 2816 numbers."""
    recipe = load_recipe("winclip-b-plus")
    assert recipe.text is not None
    weights = draw_open_clip(0, ClipSizes(225, 896, 12, recipe.embedding, recipe.text))
    safetensors.numpy.save_file(weights, tmp_path / "clip.safetensors")
    letters = byte_letters()
    merges = [(a, b) for a in letters for b in letters][: recipe.text.vocabulary - 514]
    install_vocabulary(monkeypatch, tmp_path, merges)
    options = ExportOptions(weights=str(tmp_path / "clip.safetensors"), prompts=("bolt",))
    bundle = export_bundle(recipe.id, tmp_path / "line.anoco", options).bundle
    make_category(tmp_path / "parts" / "bolt", 0)
    dataset = open_dataset(tmp_path / "parts")
    variants = parse_variants("winclip,winclip-anoco")
    settings = Settings({"bank_dtype": "float32", "tta": "none"})
    found = evaluate_bundle(
        bundle, dataset, shots=(1,), variants=variants, settings=settings, engine=ONNX
    )
    assert not found.problems
    (category,) = dataset.categories
    good, damaged = BundlePrompts.read(bundle).about("bolt")

    def seen(path: Path) -> literal.EncodedPicture:
        pixels, _ = prepare(read_picture(path), bundle.manifest.input)
        return scaled(bundle, literal.encode_picture(weights, 14, pixels))

    references, query = [seen(category.draw(1, 0)[0])], seen(category.test[-1].path)
    for name, associate in (
        ("winclip", literal.half_of_one_minus_cosine),
        ("winclip-anoco", anoco),
    ):
        _, expected = literal.score(
            query, references, (good, damaged), (15, 15), associate=associate
        )
        (score,) = (
            one.score
            for one in found.pictures
            if one.scorer == name and one.source == str(category.test[-1].path)
        )
        assert score == pytest.approx(expected, rel=1e-3), name
