"""`anoco-edge eval` gives the figures of a detector and scikit-learn, and names bad data."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Ran, defective_picture, fails, ok, run_cli
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures
from tiny_dataset import MASK, make_category, save_picture

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import open_engine
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.teaching import NewPicture, Settings, Teacher, bank_builder
from anoco_edge_calibration.evaluation import EvaluationPlan, evaluate, merge
from anoco_edge_calibration.evaluation import dataset as dataset_module
from anoco_edge_calibration.evaluation import unit as unit_module
from anoco_edge_calibration.evaluation.feature_cache import CachedEngine, cache_key, size_mb
from anoco_edge_calibration.evaluation.layouts import open_dataset
from anoco_edge_calibration.evaluation.pixel_metrics import PixelMetrics
from anoco_edge_calibration.evaluation.scorers import KINDS, nonbipartite
from anoco_edge_calibration.evaluation.tables import (
    METRICS,
    PIXEL_METRICS,
    EvaluationRow,
    evaluation_markdown,
    mean_rows,
)
from anoco_edge_calibration.evaluation.unit import EvaluationSetup, measure_unit
from anoco_edge_calibration.evaluation.variants import Variant, parse_variants


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write line.anoco without products, and a data set of two categories; tests change a copy."""
    folder = tmp_path_factory.mktemp("eval")
    make_tiny_bundle(folder / "line.anoco")
    make_category(folder / "parts" / "bolt", 0)
    make_category(folder / "parts" / "nut", 100)
    return folder


@pytest.fixture
def here(line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy it into the current directory; its masks are not where eval looks for them."""
    shutil.copytree(line, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def masked(here: Path) -> Path:
    """Do the same with masks, only where needed, since counting pixels takes most of the time."""
    for masks in here.glob("parts/*/masks"):
        masks.rename(masks.with_name("ground_truth"))
    return here


def rows_of(ran: Ran, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in ran.json if all(row[k] == v for k, v in wanted.items())]


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("eval-out/results.json").read_text())
    return found


# ---- what is measured


def by_hand(bundle: Path, category: Path, references: list[Path]) -> tuple[list[Any], list[Any]]:
    """Compute scores and maps of all test pictures with a detector, with the true labels."""
    Teacher.open(bundle).enroll([NewPicture.from_file(path) for path in references])
    detector = Detector.open(bundle)
    found, truth = [], []
    for picture in open_dataset(category).categories[0].test:
        inspected = detector.inspect(picture.path)
        found.append((inspected.score, inspected.map.ravel()))
        truth.append(
            (picture.defect is not None, (MASK.ravel() > 0) & (picture.defect is not None))
        )
    return found, truth


def test_figures_are_those_of_a_detector_and_scikit_learn(masked: Path) -> None:
    ran = ok("eval", "parts/bolt", "--shots", "2", "--json")
    (row,) = rows_of(ran, seed=0, category="bolt")
    (category,) = open_dataset(Path("parts/bolt")).categories
    found, truth = by_hand(Path("line.anoco"), Path("parts/bolt"), category.draw(2, 0))
    scores, labels = [s for s, _ in found], [t for t, _ in truth]
    pixels, wrong = (np.concatenate([x for _, x in both]) for both in (found, truth))
    assert row["image_auroc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)
    assert row["image_aupr"] == pytest.approx(average_precision_score(labels, scores), abs=1e-9)
    assert row["pixel_auroc"] == pytest.approx(roc_auc_score(wrong, pixels), abs=1e-9)
    assert 0.5 < row["pixel_pro"] < 1 and 0.3 < row["pixel_f1max"] < 1


def test_turned_test_pictures_are_measured_as_if_they_had_been_saved_turned(
    masked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_module, "draw_angle", lambda *_: 180.0)
    turned = ok("eval", "parts/bolt", "--shots", "1", "--turn-test", "3", "--json").json
    assert results()["settings"]["turn_test"] == 3
    for path in [
        *Path("parts/bolt").glob("test/*/*"),
        *Path("parts/bolt").glob("ground_truth/*/*"),
    ]:
        save_picture(path, np.asarray(Image.open(path))[::-1, ::-1])
    assert ok("eval", "parts/bolt", "--shots", "1", "--json").json == turned


def test_a_reference_among_the_turned_test_pictures_is_remarked(here: Path) -> None:
    shutil.copy("parts/nut/train/good/good0.png", "parts/nut/test/good/copy.png")
    ran = ok("eval", "parts/nut", "--shots", "full", "--turn-test", "0")
    assert "1 of 7 test pictures of nut are copies of references" in ran.err


def test_scores_of_single_pictures_are_kept(here: Path) -> None:
    bundle = Bundle.open("line.anoco")
    data = open_dataset(Path("parts/nut"))
    setup = EvaluationSetup(bundle, open_engine("auto", bundle), [Variant("anoco")])
    pictures = evaluate(EvaluationPlan(data, shots=(2,), seeds=2), setup).pictures
    assert [(p.source, p.seed) for p in pictures] == [
        (str(picture.path), seed) for seed in (0, 1) for picture in data.categories[0].test
    ]
    found, _ = by_hand(bundle.path, Path("parts/nut"), data.categories[0].draw(2, 0))
    assert [p.score for p in pictures[:6]] == pytest.approx([score for score, _ in found])
    assert [p.defect for p in pictures[:6]] == [None] * 3 + ["red"] * 3
    assert {(p.category, p.scorer, p.shots) for p in pictures} == {("nut", "anoco", 2)}


def test_a_row_for_every_category_shots_seed_and_scorer_and_their_means(masked: Path) -> None:
    ran = ok(
        "eval", "parts", "--shots", "3,full", "--seeds", 2, "--scorers", "anoco,knn-l2", "--json"
    )
    single = [r for r in ran.json if r["category"] != "mean" and r["seed"] != "mean"]
    keys = [(r["category"], r["shots"], r["seed"], r["scorer"]) for r in single]
    draws = [(3, 0), (3, 1), ("full", 0)]
    assert sorted(map(str, keys)) == sorted(
        str((category, *draw, scorer))
        for category in ("bolt", "nut")
        for draw in draws
        for scorer in ("anoco", "knn-l2")
    )
    for row in ran.json:
        assert row["dataset"] == "parts"
        assert all(0 <= row[metric] <= 1 for metric in METRICS)
        assert not any(isinstance(value, dict | list) for value in row.values()), "rows are flat"
    some = {"shots": 3, "scorer": "anoco"}
    mean = rows_of(ran, category="mean", seed=1, **some)[0]
    parts = [rows_of(ran, category=name, seed=1, **some)[0] for name in ("bolt", "nut")]
    assert mean["pixel_pro"] == pytest.approx(np.mean([part["pixel_pro"] for part in parts]))
    assert mean["categories"] == 2
    over = rows_of(ran, category="mean", seed="mean", **some)[0]
    seeds = [rows_of(ran, category="mean", seed=seed, **some)[0] for seed in (0, 1)]
    values = [row["pixel_pro"] for row in seeds]
    assert values[0] != values[1]
    assert over["pixel_pro"] == pytest.approx(np.mean(values))
    assert over["pixel_pro_std"] == pytest.approx(np.std(values, ddof=1))
    full = rows_of(ran, category="bolt", seed="mean", shots="full", scorer="anoco")[0]
    assert full["pixel_pro_std"] is None and full["seeds"] == 1


def test_results_are_written_for_machines_and_for_people(here: Path) -> None:
    ran = ok("eval", "parts", "--shots", "1", "--scorers", "anoco,knn-l2", "--json")
    written = results()
    assert written["rows"] == ran.json and written["problems"] == []
    told = written["settings"]
    assert told["bundle_sha256"] == Bundle.open("line.anoco").manifest.checksum
    assert (told["size"], told["precision"]) == ("64x64 stretch", "fp32")
    assert told["scorers"] == ["anoco", "knn-l2"] and told["lambda"] == 1.0
    assert told["engine"].startswith("onnxruntime (") and "numpy" in told["versions"]
    text = Path("eval-out/results.md").read_text()
    assert "| category | shots | scorer | AUROC |" in text
    assert text.count("| bolt | 1 |") == text.count("| mean | 1 |") == 2
    assert "results.json" in ran.err


def test_the_table_shows_means_and_deviations_and_the_best_in_bold(masked: Path) -> None:
    out = ok("eval", "parts", "--shots", "1", "--seeds", 2, "--scorers", "anoco,knn-l2").out
    assert "bolt" in out and "mean" in out and "±" in out
    assert "percent, means over seeds" in out


def test_a_picture_is_decoded_once_for_all_scorers_and_draws(
    masked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    plain = unit_module.read_picture
    monkeypatch.setattr(unit_module, "read_picture", lambda p: read.append(p) or plain(p))
    args = ("eval", "parts/bolt", "--shots", "1,2", "--scorers", "anoco,knn-cosine")
    at_once = ok(*args, "--json")
    assert len(read) == len(set(read)) == 6
    monkeypatch.setattr(unit_module, "MEMORY_BYTES", 1)  # room for one scorer at a time
    assert ok(*args, "--json").json == at_once.json
    assert len(read) == 6 + 6 * 4


def test_views_of_a_reference_are_made_once_for_all_draws(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[bytes, Any]] = []
    plain = bank_builder.turn

    def spy(rgb: Any, view: Any, *rest: Any) -> Any:
        made.append((rgb.tobytes(), view))
        return plain(rgb, view, *rest)

    monkeypatch.setattr(bank_builder, "turn", spy)
    asked = ("eval", "parts/nut", "--shots", "1,3", "--json", "--no-cache")
    once = ok(*asked, "--augment", "rotations", "--rotations", "4").json
    assert len(made) == len(set(made)) == 3 * 3
    made.clear()
    monkeypatch.setattr(unit_module, "DRAFT_BYTES", 0)
    assert ok(*asked, "--augment", "rotations", "--rotations", "4").json == once
    assert len(made) == 3 * (1 + 3)


def test_a_draft_with_other_settings_is_not_taken_again(line: Path) -> None:
    teacher = Teacher.open(line / "line.anoco")
    pictures = [
        NewPicture.from_file(path) for path in sorted(line.glob("parts/nut/train/good/*"))[:2]
    ]
    plain = teacher.draft(pictures[:1])
    turned = Settings({"tta": "rotations", "rotations": 4})
    wanted, found = (
        teacher.draft(pictures, turned, earlier=earlier) for earlier in ((), (plain, plain))
    )
    assert found.bank is not None and wanted.bank is not None
    assert found.bank.to_bytes() == wanted.bank.to_bytes() and found.bank.view.max() == 3


def test_units_may_be_measured_apart_in_any_order_and_travel(masked: Path) -> None:
    """Units run as on other machines: one draw at a time, pickled, and the last one first."""
    shutil.copy("parts/nut/train/good/good1.png", "parts/nut/train/good/good2.png")
    bundle = Bundle.open("line.anoco")
    variants = parse_variants("anoco,knn-l2,patchcore")
    setup = EvaluationSetup(bundle, open_engine("auto", bundle), variants)
    plan = EvaluationPlan(open_dataset(Path("parts")), shots=(1, "full"), seeds=2)
    whole = evaluate(plan, setup)
    units = plan.single_draws()
    assert [unit.draws for unit in units] == [((1, 0),), ((1, 1),), (("full", 0),)] * 2
    parts = [pickle.loads(pickle.dumps(measure_unit(unit, setup))) for unit in units[::-1]]
    assert merge(plan, parts) == whole
    assert any("copies of each other" in remark for remark in whole.remarks)


def test_a_scorer_that_cannot_take_the_bank_is_left_out_and_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonbipartite, "MOST_EDGES", 3)
    args = ("eval", "parts/bolt", "--shots", "1", "--scorers", "knn-nonbipartite,anoco", "--json")
    ran = run_cli(*args)
    assert ran.code == 1
    assert (
        "knn-nonbipartite, 1 shots of seed 0 is left out: knn-nonbipartite would" in ran.complaint
    )
    assert {row["scorer"] for row in ran.json} == {"anoco"}


def test_a_missing_package_ends_the_run_and_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    line = fails(3, "eval", "parts", "--shots", "1", "--scorers", "anoco,knn-bipartite")
    assert "scipy is needed for graphs of patches" in line and "'anoco-edge[eval]'" in line


# ---- what is compared


def test_all_scorers_make_one_table(masked: Path) -> None:
    ran = ok("eval", "parts/bolt", "--shots", "2", "--scorers", "all", "--json")
    rows = rows_of(ran, seed=0, category="bolt")
    rounds = [f"message-passing rounds={k}" for k in range(1, 6)]
    kinds = [name for name, kind in KINDS.items() if not kind.prompted]
    names = [[name] if name != "message-passing" else rounds for name in kinds]
    assert [row["scorer"] for row in rows] == [name for some in names for name in some]
    assert all(0.5 < row[m] <= 1 for row in rows for m in ("image_auroc", "pixel_auroc"))
    assert len({row["pixel_pro"] for row in rows}) > 10, "they are not all the same"
    text = Path("eval-out/results.md").read_text()
    assert text.count("| bolt | 2 |") == len(rows) and text.count("**") >= 12


def test_a_scorer_with_a_rule_of_its_own_scores_the_picture_by_it(masked: Path) -> None:
    """SPADE's map is that of the nearest patch, but its score of a picture is not."""
    bundle = Bundle.open("line.anoco")
    variants = parse_variants("knn-l2,spade,patchcore")
    setup = EvaluationSetup(bundle, open_engine("auto", bundle), variants)
    found = evaluate(EvaluationPlan(open_dataset(Path("parts/bolt"))), setup)
    rows = {row.scorer: row for row in found.rows if row.seed == 0}
    assert rows["knn-l2"].figures["pixel_pro"] == rows["spade"].figures["pixel_pro"]
    scores = {
        name: [p.score for p in found.pictures if p.scorer == name] for name in ("knn-l2", "spade")
    }
    assert not set(scores["knn-l2"]) & set(scores["spade"])


def test_the_metric_of_anoco_is_a_scorer_and_a_sweep(here: Path) -> None:
    common = ("eval", "parts/bolt", "--shots", "1", "--json")
    named = ok(*common, "--scorers", "anoco,anoco-l2,anoco-cosine")
    ok(*common, "--sweep", "metric=product,l2,cosine")
    bundle = Bundle.open("line.anoco")
    plan, engine = EvaluationPlan(open_dataset(Path("parts/bolt"))), open_engine("auto", bundle)
    scores = [
        [
            picture.score
            for picture in evaluate(plan, EvaluationSetup(bundle, engine, variants)).pictures
        ]
        for variants in (
            parse_variants("anoco,anoco-l2,anoco-cosine"),
            parse_variants("anoco", ["metric=product,l2,cosine"]),
        )
    ]
    assert scores[0] == scores[1] and len(set(scores[0])) == len(scores[0])
    assert {row["scorer"] for row in named.json} == {"anoco", "anoco-l2", "anoco-cosine"}


def test_rounds_are_swept_for_message_passing_alone() -> None:
    swept = parse_variants("message-passing,knn-l2", ["rounds=1,3"])
    assert [v.name for v in swept] == [
        "message-passing rounds=1",
        "message-passing rounds=3",
        "knn-l2",
    ]


def test_the_explained_variance_is_swept_for_the_subspace_alone(masked: Path) -> None:
    args = ("--scorers", "subspace,knn-l2", "--sweep", "variance=0.5,0.99", "--json")
    rows = rows_of(ok("eval", "parts/bolt", "--shots", "1", *args), seed=0, category="bolt")
    names = ["subspace variance=0.5", "subspace variance=0.99", "knn-l2"]
    assert [row["scorer"] for row in rows] == names
    assert len({row["pixel_pro"] for row in rows}) == 3


def test_help_tells_the_nearest_patch_from_the_nearest_5_percent(here: Path) -> None:
    said = " ".join(ok("eval", "--help").out.replace("│", " ").split())
    assert "nearest patch: knn-l2, knn-cosine, knn-mahalanobis" in said
    assert "nearest 5 % of the bank, as in the paper's ablation: knn-l2-5pct" in said
    assert all(kind in said.replace("- ", "-") for kind in KINDS)  # lines may end with a hyphen


def test_variants_of_scorers_are_every_combination_that_was_asked_for() -> None:
    swept = parse_variants("knn-l2,anoco", ["lambda=1e-24,1", "metric=product,cosine"])
    assert [variant.name for variant in swept] == [
        "knn-l2",
        "anoco lambda=1e-24 metric=product",
        "anoco lambda=1e-24 metric=cosine",
        "anoco lambda=1 metric=product",
        "anoco lambda=1 metric=cosine",
    ]
    pooled = parse_variants("anoco,knn-l2", ["pooling=max,top5"])
    assert [variant.name for variant in pooled][2:] == ["knn-l2 pooling=max", "knn-l2 pooling=top5"]
    relative = parse_variants("anoco", ["lambda=1,0.050x,0.05x"])
    assert [variant.name for variant in relative] == ["anoco lambda=1", "anoco lambda=0.05x"]
    close = parse_variants("anoco", ["lambda=1,1.00000001"])
    assert len({variant.name for variant in close}) == 2


@pytest.mark.parametrize(
    ("scorers", "sweep", "complaint"),
    [
        ("anoco,svm", "lambda=1", "unknown scorer 'svm'; use anoco, anoco-l2"),
        ("anoco", "lambda", "'lambda' is not a sweep; write lambda=0.1,1,10"),
        ("anoco", "lambda=", "is not a sweep"),
        ("anoco", "lambda=1,,2", "is not a sweep"),
        (
            "anoco",
            "warmth=1",
            "what can be swept is lambda, metric, floor, pooling, rounds, variance, temperature",
        ),
        ("anoco", "lambda=much", "lambda is 'much'; it must be a number"),
        ("anoco", "lambda=0", "lambda is 0; it must be a number from 1e-24"),
        ("anoco", "lambda=nan", "lambda is nan"),
        ("anoco", "floor=1", "floor is 1.0"),
        ("anoco", "metric=l1", "unknown metric 'l1'"),
        ("anoco", "pooling=mean", "unknown pooling 'mean'"),
        ("knn-l2", "lambda=1", "--sweep lambda is for anoco"),
        ("patchcore,spade", "pooling=max", "--sweep pooling is for anoco"),
        ("anoco", "rounds=2", "--sweep rounds is for message-passing"),
        ("message-passing", "rounds=6", "rounds are '6'; use 1 to 5"),
        ("message-passing", "rounds=0", "rounds are '0'"),
        ("anoco", "variance=0.9", "--sweep variance is for subspace"),
        ("subspace", "variance=1", "variance is 1.0; it is a share"),
        ("subspace", "variance=much", "variance is 'much'; it must be a number"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    here: Path, scorers: str, sweep: str, complaint: str
) -> None:
    assert complaint in fails(2, "eval", "parts", "--scorers", scorers, "--sweep", sweep)


def test_a_sweep_is_what_single_runs_give(masked: Path) -> None:
    common = ("eval", "parts/bolt", "--shots", "2", "--json")
    swept = ok(*common, "--sweep", "lambda=0.1,2x", "--sweep", "pooling=max,top5,smooth")
    single = ok(*common, "--lambda", "2x", "--pooling", "top5")
    (one,) = rows_of(swept, scorer="anoco lambda=2x pooling=top5", seed=0, category="bolt")
    (other,) = rows_of(single, scorer="anoco", seed=0, category="bolt")
    assert {m: one[m] for m in METRICS} == {m: other[m] for m in METRICS}
    assert len({row["pixel_pro"] for row in rows_of(swept, seed=0, category="bolt")}) == 2
    told = results()["settings"]
    assert (told["pooling"], told["lambda"], told["lambda_kind"]) == ("top5", 2, "relative")
    twice = ("--sweep", "lambda=1", "--sweep", "lambda=2")
    assert "lambda is swept twice" in fails(2, *common, *twice)
    assert "lambda is given and swept" in fails(2, *common, "--lambda", 1, *twice[:2])
    line = fails(2, *common, "--scorers", "knn-l2", "--floor", 0.1)
    assert "--floor is for anoco" in line


def test_settings_of_a_product_are_used_and_its_references_are_not(masked: Path) -> None:
    """The region excludes the defect, so nothing is found, although a reference shows a defect."""
    save_picture(Path("odd.png"), defective_picture(5))
    options = ("--roi", "0,0,96,24", "--pooling", "top5", "--augment", "none")
    ok("enroll", "line.anoco", "odd.png", *options)
    ran = ok("eval", "parts/bolt", "--bundle", "line.anoco", "--shots", "4", "--json")
    (row,) = rows_of(ran, seed=0, category="bolt")
    assert row["pixel_auroc"] < 0.6
    told = results()["settings"]
    assert told["pooling"] == "top5" and told["region"] is not None
    assert told["product"] == "default"


def test_few_patches_and_views_reach_the_bank(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: list[Any] = []
    plain = Teacher.draft

    def spy(*args: Any, **kwargs: Any) -> Any:
        drafts.append(plain(*args, **kwargs))
        return drafts[-1]

    monkeypatch.setattr(Teacher, "draft", spy)
    common = ("eval", "parts/bolt", "--shots", "1", "--json")
    ok(*common)
    ok(*common, "--max-patches", 5)
    ok(*common, "--tta", "references")
    assert results()["settings"]["tta"] == "references"
    assert results()["settings"]["rotations"] is None
    turn = (*common, "--augment", "rotations", "--rotations", 4)
    ok(*turn)
    told = results()["settings"]
    assert (told["tta"], told["rotations"], told["merge_distance"]) == ("rotations", 4, 0.3)
    ok(*turn, "--merge-distance", 0)
    assert results()["settings"]["merge_distance"] == 0
    plain_bank, thin, views, merged, turned = (len(draft.bank) for draft in drafts)
    assert (plain_bank, thin) == (16, 5) and views > 16
    assert 16 <= merged < turned <= 4 * 16 and drafts[-1].bank.view.max() == 3


# ---- features are computed once


class Counting:
    """An engine that sums the colours of each quarter and counts its calls."""

    name, fingerprint = "counting", "counting|1"

    def __init__(self) -> None:
        self.windows = 0

    def features(self, pixels: np.ndarray) -> np.ndarray:
        self.windows += len(pixels)
        parts = pixels.astype(np.float32).reshape(len(pixels), 4, -1, 3)
        return parts.sum(axis=2)


def windows(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 8, 8, 3)).astype(np.uint8)


def test_a_window_is_computed_once_and_then_read(tmp_path: Path) -> None:
    engine, pixels = Counting(), windows(3)
    expected = Counting().features(pixels)
    first = CachedEngine(engine, tmp_path, "recipe", (4, 3))
    assert np.array_equal(first.features(pixels), expected)
    assert np.array_equal(first.features(pixels[::-1]), expected[::-1])
    assert (first.use.computed, first.use.loaded) == (3, 0)
    second = CachedEngine(engine, tmp_path, "recipe", (4, 3))
    assert np.array_equal(second.features(pixels[[2, 0, 0]]), expected[[2, 0, 0]])
    assert (second.use.computed, second.use.loaded) == (0, 2)
    assert engine.windows == 3
    assert (first.name, first.fingerprint) == (engine.name, engine.fingerprint)


def test_equal_windows_of_a_batch_are_computed_once_and_mixed_batches_keep_their_order() -> None:
    engine, pixels = Counting(), windows(4)
    cached = CachedEngine(engine, None, "recipe", (4, 3))
    cached.features(pixels[[1]])
    got = cached.features(pixels[[0, 1, 0, 2, 3, 2]])
    assert np.array_equal(got, Counting().features(pixels)[[0, 1, 0, 2, 3, 2]])
    assert engine.windows == 4


def test_a_cache_of_another_recipe_engine_or_shape_is_not_used(
    tmp_path: Path, tiny_bundle: Bundle
) -> None:
    pixels, folder = windows(2), tmp_path / "features"
    CachedEngine(Counting(), folder, "recipe", (4, 3)).features(pixels)
    other = CachedEngine(Counting(), folder, "another recipe", (4, 3))
    other.features(pixels)
    assert (other.use.computed, other.use.loaded, other.use.damaged) == (2, 0, 0)
    names = [path.name for path in folder.rglob("*.safetensors")]
    assert len(names) == len(set(names)) == 4, "told apart by name, wherever they are put"
    turned = CachedEngine(Counting(), folder, "recipe", (4, 3))
    turned.features(pixels.reshape(2, 4, 16, 3))
    assert turned.use.loaded == 0, "the same bytes in another shape are another window"
    engine, changed = Counting(), Counting()
    changed.fingerprint = "counting|2"
    larger = make_tiny_bundle(tiny_bundle.path.with_name("larger.anoco"), size=(96, 64))
    keys = [(tiny_bundle, engine), (tiny_bundle, changed), (larger, engine)]
    assert len({cache_key(*key) for key in keys}) == 3


def _truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flip(data: bytes) -> bytes:
    """Flip one bit of the last number, which stays finite."""
    return data[:-4] + bytes([data[-4] ^ 1]) + data[-3:]


def _entry(array: np.ndarray) -> Callable[[bytes], bytes]:
    from anoco_edge_calibration.evaluation.feature_cache import _encode

    return lambda _: _encode(array)


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        lambda data: b"",
        _entry(np.zeros((3, 4), np.float32)),
        _entry(np.zeros((4, 3), np.float64)),
        _entry(np.full((4, 3), np.nan, np.float32)),
    ],
    ids=["cut", "one bit", "empty", "other shape", "other type", "not finite"],
)
def test_a_damaged_entry_is_computed_again_and_counted(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    pixels = windows(2)
    expected = CachedEngine(Counting(), tmp_path, "recipe", (4, 3)).features(pixels)
    entry = sorted(tmp_path.rglob("*.safetensors"))[0]
    entry.write_bytes(damage(entry.read_bytes()))
    again = CachedEngine(Counting(), tmp_path, "recipe", (4, 3))
    assert np.array_equal(again.features(pixels), expected)
    assert (again.use.computed, again.use.loaded, again.use.damaged) == (1, 1, 1)
    mended = CachedEngine(Counting(), tmp_path, "recipe", (4, 3))
    mended.features(pixels)
    assert (mended.use.computed, mended.use.damaged) == (0, 0)


def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    said: list[str] = []
    cached = CachedEngine(Counting(), tmp_path / "file", "recipe", (4, 3), warn=said.append)
    for k in range(3):
        cached.features(windows(2, seed=k))
    assert len(said) == 1 and "features are computed, and not kept" in said[0]
    assert cached.use.computed == 6


def test_memory_of_recent_windows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from anoco_edge_calibration.evaluation import feature_cache

    monkeypatch.setattr(feature_cache, "MEMORY_BYTES", 2 * 4 * 3 * 4)  # two windows
    engine, pixels = Counting(), windows(3)
    cached = CachedEngine(engine, None, "recipe", (4, 3))
    for k in (0, 1, 0, 2, 0, 1):  # 1 is the oldest entry when 2 is added
        cached.features(pixels[[k]])
    assert engine.windows == 4


def test_what_is_not_finite_is_never_kept(tmp_path: Path) -> None:
    class Broken(Counting):
        def features(self, pixels: np.ndarray) -> np.ndarray:
            return super().features(pixels) * np.float32(np.nan)

    CachedEngine(Broken(), tmp_path, "recipe", (4, 3)).features(windows(2))
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_the_size_of_a_cache_leaves_out_what_was_removed_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "kept").write_bytes(bytes(3000))
    (tmp_path / "listed").symlink_to("and gone")
    assert size_mb(tmp_path) == 0.003


def test_the_command_says_what_it_computed_and_where_it_is_kept(here: Path) -> None:
    common = ("eval", "parts/bolt", "--shots", "2", "--json")
    first = ok(*common, "--cache", "features")
    assert "features: 8 windows computed, 0 from the cache; features holds" in first.err
    again = ok(*common, "--cache", "features")
    assert "features: 0 windows computed, 8 from the cache" in again.err
    assert again.json == first.json
    assert results()["settings"]["windows"] == {"computed": 0, "loaded": 8, "damaged": 0}
    without = ok(*common, "--no-cache")
    assert "8 windows computed, 0 from the cache" in without.err
    assert without.json == first.json
    assert "exclude each other" in fails(2, *common, "--cache", "features", "--no-cache")


# ---- data that is not as it should be


def test_without_masks_there_are_no_pixel_figures_and_it_is_said_once(here: Path) -> None:
    ran = ok("eval", "parts/bolt", "--shots", "1", "--seeds", 2, "--json")
    assert all(row[metric] is None for row in ran.json for metric in PIXEL_METRICS)
    assert all(row["image_auroc"] == 1 for row in ran.json)
    assert ran.err.count("no pixel figures for bolt: there are no masks") == 1
    assert "| - | - | - |" in Path("eval-out/results.md").read_text()


def test_without_defects_nothing_can_be_measured(here: Path) -> None:
    shutil.rmtree("parts/bolt/test/red")
    line = fails(2, "eval", "parts/bolt", "--shots", "1")
    assert "bolt cannot be measured: bolt has no defective test pictures" in line
    assert not Path("eval-out").exists()


def test_a_category_without_defects_is_left_out_and_the_mean_says_so(here: Path) -> None:
    shutil.rmtree("parts/bolt/test/red")
    ran = run_cli("eval", "parts", "--shots", "1", "--json")
    assert ran.code == 1 and "bolt has no defective test pictures" in ran.complaint
    assert "mean image figures are of nut and without bolt" in ran.err
    assert {row["category"] for row in ran.json} == {"nut", "mean"}
    assert rows_of(ran, category="mean", seed=0)[0]["categories"] == 1


def test_without_good_test_pictures_pixels_are_measured_all_the_same(masked: Path) -> None:
    shutil.rmtree("parts/bolt/test/good")
    ran = run_cli("eval", "parts/bolt", "--shots", "1", "--json")
    assert ran.code == 1 and "bolt has no good test pictures" in ran.complaint
    assert all(r["image_auroc"] is None and r["pixel_auroc"] > 0.5 for r in ran.json)


def test_a_mask_of_another_size_keeps_its_picture_out_of_the_pixel_figures(masked: Path) -> None:
    common = ("eval", "parts/bolt", "--shots", "1", "--scorers", "anoco,knn-l2", "--json")
    whole = ok(*common)
    save_picture(Path("parts/bolt/ground_truth/red/1_mask.png"), MASK[:40])
    ran = run_cli(*common)
    assert ran.code == 1
    assert (
        "1 thing could not be measured: left out of the pixel figures: the mask " in ran.complaint
    )
    assert "1_mask.png is 96x40, its picture 96x80" in ran.complaint
    both = [rows_of(r, seed=0, category="bolt", scorer="anoco")[0] for r in (whole, ran)]
    assert both[0]["image_auroc"] == both[1]["image_auroc"]
    assert both[0]["pixel_pro"] != both[1]["pixel_pro"]
    assert [p["source"] for p in results()["problems"]] == ["parts/bolt/test/red/1.png"]


def test_a_missing_mask_among_others_is_named(masked: Path) -> None:
    Path("parts/bolt/ground_truth/red/2_mask.png").unlink()
    line = fails(1, "eval", "parts/bolt", "--shots", "1")
    assert "left out of the pixel figures: parts/bolt/test/red/2.png has no mask" in line


def test_an_unreadable_picture_is_named_and_the_run_goes_on(here: Path) -> None:
    Path("parts/bolt/test/red/1.png").write_bytes(b"half a pic")
    ran = run_cli("eval", "parts", "--shots", "1", "--scorers", "anoco,knn-l2", "--json")
    assert ran.code == 1
    assert (
        "1 thing could not be measured: parts/bolt/test/red/1.png is not a picture" in ran.complaint
    )
    assert {row["category"] for row in ran.json} == {"bolt", "nut", "mean"}
    assert all(row["image_auroc"] is not None for row in ran.json)


def test_an_unreadable_reference_leaves_out_the_draws_that_need_it(here: Path) -> None:
    (category, _) = open_dataset(Path("parts")).categories
    (only,) = category.draw(1, seed=1)
    assert only not in category.draw(1, seed=0)
    only.write_bytes(b"half a pic")
    ran = run_cli("eval", "parts", "--shots", "1", "--seeds", 2, "--json")
    assert ran.code == 1
    assert f"1 shots of seed 1 are left out: {only} is not a picture" in ran.complaint
    assert [r["seeds"] for r in rows_of(ran, seed="mean")] == [1, 2, 2]
    assert "mean image figures (1 shots seed 1) are of nut and without bolt" in ran.err


def test_a_draw_that_cannot_be_taught_is_left_out(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason does not matter; if every draw fails, there are no rows but one clear line."""
    (category,) = open_dataset(Path("parts/bolt")).categories
    plain, refusing = Teacher.draft, {category.draw(1, seed=1)[0].name}

    def draft(teacher: Teacher, pictures: list[NewPicture], *args: Any, **kwargs: Any) -> Any:
        if {picture.name for picture in pictures} & refusing:
            raise UsageError("these tiles do not fit")
        return plain(teacher, pictures, *args, **kwargs)

    monkeypatch.setattr(Teacher, "draft", draft)
    lost = [seed for seed in range(4) if category.draw(1, seed)[0].name in refusing]
    assert 0 < len(lost) < 4
    common = ("eval", "parts/bolt", "--shots", "1", "--seeds", 4, "--json")
    ran = run_cli(*common)
    assert ran.code == 1
    assert f"1 shots of seed {lost[0]} are left out: these tiles do not fit" in ran.complaint
    assert rows_of(ran, seed="mean", category="bolt")[0]["seeds"] == 4 - len(lost)
    refusing |= {path.name for path in category.train}
    ran = run_cli(*common)
    assert ran.code == 1 and "4 things could not be measured" in ran.complaint and ran.json == []


def test_a_full_temporary_disk_costs_the_pixel_figures_and_nothing_else(
    masked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("cannot keep pixels in the temporary folder: No space left", hint="-")

    monkeypatch.setattr(PixelMetrics, "add", full)
    ran = run_cli("eval", "parts/bolt", "--shots", "1", "--scorers", "anoco,knn-l2", "--json")
    assert ran.code == 1 and "2 things could not be measured" in ran.complaint
    for scorer in ("anoco", "knn-l2"):
        (row,) = rows_of(ran, seed=0, category="bolt", scorer=scorer)
        assert row["image_auroc"] == 1 and row["pixel_auroc"] is None
        assert (
            f"no pixel figures of {scorer}, 1 shots of seed 0: cannot keep pixels in the temporary "
            "folder: No space left; set TMPDIR to a folder with room" in ran.err
        )
    assert results()["rows"] == ran.json


def test_copies_of_references_are_remarked(here: Path) -> None:
    """One test picture was also a reference, and one reference was enrolled twice."""
    (category, _) = open_dataset(Path("parts")).categories
    learnt, other = category.draw(2, 0)
    common = ("eval", "parts", "--shots", "1,2", "--json")
    ok(*common)
    assert not any("copies" in remark for remark in results()["remarks"])
    with Image.open(learnt) as picture:
        picture.save("parts/bolt/test/good/0.bmp")  # another file with the same pixels
    shutil.copy(learnt, other)
    ok(*common)
    copies = [remark for remark in results()["remarks"] if "copies" in remark]
    assert copies == [
        "1 of 7 test pictures of bolt are copies of references, parts/bolt/test/good/0.bmp for one",
        "1 of 2 draws of bolt have references that are copies of each other: "
        "the bank holds fewer pictures than shots",
    ]


def test_pictures_of_several_shapes_are_measured_unless_a_product_forbids_it(here: Path) -> None:
    save_picture(Path("parts/bolt/test/good/wide.png"), textured_picture(3, 160, 80))
    common = ("eval", "parts/bolt", "--shots", "2", "--json")
    ok(*common)
    ok("enroll", "line.anoco", "parts/bolt/train/good")
    line = fails(1, *common, "--bundle", "line.anoco", "--scorers", "anoco,knn-l2")
    assert "1 thing could not be measured: " in line, "once, however many scorers"
    assert "wide.png is 160x80, the references are 96x80" in line


def test_more_shots_than_pictures_are_refused_before_anything_is_done(here: Path) -> None:
    shutil.rmtree("parts/nut/train/good")
    write_good_pictures(Path("parts/nut/train/good"), 3)
    line = fails(2, "eval", "parts", "--shots", "1,4,full")
    assert "4 shots were asked for, nut has 3 training pictures" in line
    assert not Path("eval-out").exists()


@pytest.mark.parametrize("shots", ["0", "four", "1,,2", "-1", "", "1.5"])
def test_shots_are_numbers_or_full(here: Path, shots: str) -> None:
    assert "are not shots; write 1,2,4 or full" in fails(2, "eval", "parts", "--shots", shots)


def test_a_folder_that_is_no_data_set_is_told_the_layout(here: Path) -> None:
    for folder in ("missing", "parts/bolt/test"):
        assert "[CATEGORY/]train/good/*.png" in fails(2, "eval", folder)
    assert "has no category screw; it has bolt, nut" in fails(
        2, "eval", "parts", "--categories", "bolt,screw"
    )


def test_results_that_cannot_be_written_are_shown_all_the_same(here: Path) -> None:
    Path("taken").write_text("a file")
    ran = run_cli("eval", "parts/bolt", "--shots", "1", "--out", "taken", "--json")
    assert ran.code == 1 and "cannot write taken" in ran.complaint
    assert rows_of(ran, seed=0, category="bolt")[0]["image_auroc"] == 1


# ---- which backbone


def test_options_of_a_backbone_and_of_a_bundle_do_not_mix(here: Path) -> None:
    line = fails(2, "eval", "parts", "--backbone", "efficientnet-lite0", "--bundle", "line.anoco")
    assert "--backbone exports a new bundle" in line
    assert "--size is for --backbone" in fails(2, "eval", "parts", "--size", 384)
    assert "--tap-norm is for --backbone" in fails(2, "eval", "parts", "--tap-norm", "none")
    assert "unknown backbone 'resnet-9000'" in fails(
        2, "eval", "parts", "--backbone", "resnet-9000"
    )
    Path("line.anoco").rename("line.away")
    assert "there is none in this directory" in fails(2, "eval", "parts")


def test_a_backbone_is_exported_once_for_each_recipe(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export itself is tested elsewhere; here a tiny bundle replaces its result."""
    from types import SimpleNamespace

    from anoco_edge.cli.views import export_progress

    made: list[tuple[str, Any, Any]] = []

    def stand_in(backbone: str, target: Path, *, overwrite: bool, **options: Any) -> Any:
        made.append((backbone, options["size"], options["weights"]))
        shutil.rmtree(target, ignore_errors=True)
        return SimpleNamespace(bundle=make_tiny_bundle(target))

    monkeypatch.setattr(export_progress, "export_bundle", stand_in)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    common = ("eval", "parts/bolt", "--shots", "1", "--json", "--backbone", "efficientnet-lite0")
    first = ok(*common, "--size", 64)
    assert "exported efficientnet-lite0 to " in first.err
    again = ok(*common, "--size", 64)
    assert "efficientnet-lite0 was exported before: " in again.err
    assert again.json == first.json and len(made) == 1
    ok(*common, "--size", 128)
    ok(*common, "--size", 64, "--layer", 3)
    ok(*common, "--size", 64, "--tap-norm", "none")
    ok(*common, "--size", 64, "--weights", "random:1")
    ok(*common, "--size", 64, "--precision", "fp16")
    Path("w.pth").write_bytes(b"one")
    ok(*common, "--size", 64, "--weights", "w.pth")
    Path("w.pth").write_bytes(b"two")
    ok(*common, "--size", 64, "--weights", "w.pth")
    assert len(made) == 8 and len(list((here / "cache/anoco-edge/eval").iterdir())) == 8
    assert "no weights file missing.pth" in fails(2, *common, "--weights", "missing.pth")


# ---- tables


def row(category: str, seed: int, scorer: str, value: float | None) -> EvaluationRow:
    return EvaluationRow("parts", category, 4, seed, scorer, dict.fromkeys(METRICS, value))


def test_the_best_scorer_is_bold_and_what_is_missing_is_a_dash() -> None:
    rows = [
        row("nut", 0, "anoco", 0.9),
        row("nut", 1, "anoco", 1.0),
        row("nut", 0, "knn-l2", 0.8),
        row("nut", 1, "knn-l2", 0.8),
        row("bolt", 0, "anoco", None),
        row("bolt", 0, "knn-l2", 0.7),
    ]
    lines = evaluation_markdown(rows + mean_rows(rows)).splitlines()
    assert lines[2].startswith("| nut | 4 | anoco | **95.0 ±7.1** |")
    assert lines[3].startswith("| nut | 4 | knn-l2 | 80.0 ±0.0 |")
    assert lines[4].startswith("| bolt | 4 | anoco | - |")
    assert lines[5].startswith("| bolt | 4 | knn-l2 | **70.0** |")
    assert lines[6].startswith("| mean | 4 | anoco | **95.0 ±7.1** |")
    assert lines[7].startswith("| mean | 4 | knn-l2 | 77.5 ±3.5 |")


def test_unknown_scorers_are_refused_by_the_function_too() -> None:
    with pytest.raises(UsageError, match="unknown scorer ''"):
        parse_variants("anoco,")


def test_settings_of_the_contest_reach_the_draft(line: Path) -> None:
    """The settings are given from Python, without a command line.

    Another metric gives other figures.
    """
    bundle = Bundle.open(line / "line.anoco")
    engine, data = open_engine("auto", bundle), open_dataset(line / "parts", ["nut"])
    found = [
        evaluate(
            EvaluationPlan(data),
            EvaluationSetup(bundle, engine, [Variant("anoco")], Settings(fields)),
        )
        for fields in ({}, {"metric": "cosine"})
    ]
    assert found[0].pictures[0].score != found[1].pictures[0].score
    assert not found[0].problems
