"""`anoco-edge bench` reports figures of what it ran, and says whether the budget was kept."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from anoco_edge.bundle import Bundle
from anoco_edge.cli.commands import bench as bench_command
from anoco_edge.cli.option_groups import expand_groups
from anoco_edge.diagnostics.bench import baselines as rivals_module
from anoco_edge.diagnostics.bench import scoring as scoring_module
from anoco_edge.diagnostics.bench.agreement import EPS, compare
from anoco_edge.diagnostics.bench.baselines import RIVALS, parse_rivals
from anoco_edge.diagnostics.bench.features import (
    SYNTHETIC,
    Size,
    all_neighbors,
    clustered,
    isotropic,
    parse_features,
    parse_sizes,
)
from anoco_edge.diagnostics.bench.footprint import extra_memory_mb
from anoco_edge.diagnostics.bench.frames import STAGES
from anoco_edge.diagnostics.bench.real import RealFeatures
from anoco_edge.diagnostics.bench.scoring import bench_scoring, parse_scorers
from anoco_edge.diagnostics.bench.statistics import summarize
from anoco_edge.errors import AnocoError, BudgetMissedError, PictureError, UsageError, missing
from anoco_edge.scoring import References, choose_scorer, open_scorer, score_patches
from anoco_edge.teaching import NewPicture, Teacher

SMALL = Size(60, 90, 16)


@pytest.fixture
def enrolled(tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]]) -> Bundle:
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_file(p) for p in good_pictures(3)])
    return tiny_bundle


def run(*arguments: str) -> str:
    """Run the command and return its stdout; raise its error."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(expand_groups(bench_command.bench))
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, AnocoError):
        result.exception.__notes__ = [result.stdout]
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


# ---- statistics


def test_percentiles_mean_and_deviation() -> None:
    summary = summarize([float(k) for k in range(1, 102)])
    assert (summary.p50, summary.p90, summary.p95, summary.p99) == (51, 91, 96, 100)
    assert (summary.max, summary.mean) == (101, 51)
    assert summary.std == pytest.approx(np.std(range(1, 102), ddof=1))
    assert summarize([7.0]).std == 0
    with pytest.raises(UsageError):
        summarize([])


# ---- frames


def test_frames_as_json(enrolled: Bundle) -> None:
    report = json.loads(run(str(enrolled.path), "--frames", "6", "--warmup", "2", "--json"))
    assert tuple(report["stages"]) == STAGES
    for stage in report["stages"].values():
        assert 0 <= stage["p50"] <= stage["p90"] <= stage["p95"] <= stage["p99"] <= stage["max"]
    parts = sum(report["stages"][name]["mean"] for name in STAGES[:-1])
    assert report["stages"]["total"]["mean"] == pytest.approx(parts)
    assert report["stages"]["decode"]["p50"] > 0  # decoded from the files, not from memory
    assert 0 < report["throughput"] < 1000 / report["stages"]["total"]["mean"] * 1.01
    assert report["memory"]["peak_mb"] >= report["memory"]["loaded_mb"] > 10
    settings = report["settings"]
    assert settings["bundle_sha256"] == enrolled.manifest.checksum
    assert settings["pictures"] == "3 references of the product"
    assert settings["bank"] == "48 patches x 8"
    assert settings["input"] == "64x64 stretch"
    assert settings["engine"].startswith("onnxruntime (")
    scorer, why = choose_scorer()
    assert settings["scorer"] == f"{scorer} ({why})"
    assert (settings["frames"], settings["warmup"]) == (6, 2)
    assert {"python", "numpy", "onnxruntime"} <= set(settings["versions"])


def test_warmup_frames_do_not_count(
    enrolled: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.detector import Detector

    seen: list[object] = []
    inspect = Detector.inspect

    def slow_at_first(self: Detector, image: Path) -> object:
        seen.append(image)
        result = inspect(self, image)
        result.timings["total"] = 1e6 if len(seen) <= 2 else 1.0
        return result

    monkeypatch.setattr(Detector, "inspect", slow_at_first)
    report = json.loads(run(str(enrolled.path), "--frames", "4", "--warmup", "2", "--json"))
    assert len(seen) == 6
    assert report["stages"]["total"]["max"] == 1.0


def test_the_bundle_of_this_directory_is_found(
    enrolled: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(enrolled.path.parent)
    out = run("--frames", "2", "--warmup", "0")
    assert "% of a frame" in out
    assert "tiny.anoco" in out


def test_pictures_of_ones_own(enrolled: Bundle, good_pictures: Callable[[int], list[Path]]) -> None:
    folder = good_pictures(5)[0].parent
    out = run(str(enrolled.path), "--pictures", str(folder), "--frames", "2", "--json")
    assert json.loads(out)["settings"]["pictures"].startswith("5 pictures of ")


def test_a_picture_that_cannot_be_read_is_an_error(enrolled: Bundle, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    with pytest.raises(PictureError, match=r"bad\.png"):
        run(str(enrolled.path), "--pictures", str(bad))


def test_videos_are_refused(enrolled: Bundle, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match="is a video"):
        run(str(enrolled.path), "--pictures", str(tmp_path / "clip.mp4"))


def test_csv_and_markdown_hold_every_stage(enrolled: Bundle) -> None:
    common = (str(enrolled.path), "--frames", "2", "--warmup", "0")
    rows = list(csv.DictReader(io.StringIO(run(*common, "--format", "csv"))))
    assert [row["stage"] for row in rows] == list(STAGES)
    assert float(rows[-1]["p99"]) > 0
    text = run(*common, "--format", "md")
    assert text.startswith("| stage | p50 | p90 | p95 | p99 | max | mean | std |\n|---|---:|")
    assert "- threads: " in text


def test_budget_missed_after_the_table(enrolled: Bundle) -> None:
    common = (str(enrolled.path), "--frames", "2", "--warmup", "0")
    with pytest.raises(BudgetMissedError, match=r"over the 0\.001 ms") as caught:
        run(*common, "--max-p99", "0.001")
    assert caught.value.exit_code == 6
    assert "total" in caught.value.__notes__[0]
    run(*common, "--max-p99", "60000")
    with pytest.raises(UsageError, match="--max-p99"):
        run(*common, "--max-p99", "0")


# ---- profile


@pytest.mark.parametrize("scorer", ["onnx", "reference"])
def test_profile_splits_scoring(enrolled: Bundle, scorer: str) -> None:
    out = run(
        str(enrolled.path),
        "--frames",
        "4",
        "--warmup",
        "1",
        "--profile",
        "--scorer",
        scorer,
        "--json",
    )
    report = json.loads(out)
    assert report["stages"]["scoring: retrieval"]["p50"] > 0
    assert report["stages"]["scoring: graph"]["p50"] > 0
    assert "the scorer's own clock" in report["settings"]["profile"]


# ---- scorers alone


@pytest.mark.parametrize(
    "text", ["", "12", "12x34", "0x1x1", "axbxc", "1x2x3x4", "1x2x3,", "-1x2x3"]
)
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_sizes(text)


def test_names_that_are_unknown() -> None:
    with pytest.raises(UsageError, match="unknown rival 'fais'"):
        parse_rivals("fais")
    with pytest.raises(UsageError, match="unknown scorer 'cudnn'"):
        parse_scorers("cudnn")
    with pytest.raises(UsageError, match="unknown features 'clusterd'"):
        parse_features("clusterd")
    with pytest.raises(UsageError, match="come from pictures"):
        parse_features("real")
    assert list(parse_features(None)) == list(SYNTHETIC)
    with pytest.raises(UsageError, match="of another product"):
        parse_features("wrong-part", isotropic)
    assert list(parse_features(None, isotropic)) == [*SYNTHETIC, "real"]
    assert list(parse_features(None, isotropic, isotropic)) == [*SYNTHETIC, "real", "wrong-part"]
    assert parse_rivals("faiss,faiss,onnx") == ["numpy-sgemm", "faiss", "onnx"]


def test_options_that_do_not_go_together(enrolled: Bundle) -> None:
    with pytest.raises(UsageError, match="scorers alone"):
        run("--scoring", "8x8x8", "--profile")
    with pytest.raises(UsageError, match="a bundle and --pictures"):
        run(str(enrolled.path), "--scoring", "8x8x8")
    with pytest.raises(UsageError, match="belong to --scoring"):
        run(str(enrolled.path), "--rivals", "faiss")
    with pytest.raises(UsageError, match="--wrong-pictures belong to --scoring"):
        run(str(enrolled.path), "--wrong-pictures", ".")
    with pytest.raises(UsageError, match="compared with references of pictures"):
        run("--scoring", "8x8x8", "--wrong-pictures", ".")


def test_clustered_features_have_aliens() -> None:
    query, references = clustered(Size(200, 2000, 256))
    again, _ = clustered(Size(200, 2000, 256))
    assert np.array_equal(query, again)
    similarity = score_patches(query, references, scorer="reference").similarity
    assert (similarity < 0.4).sum() == 10  # these are 5 %
    assert (similarity > 0.6).sum() == 190


def test_in_a_crowd_every_reference_is_a_neighbour() -> None:
    query, references = all_neighbors(Size(20, 300, 256))
    assert (score_patches(query, references, scorer="reference").neighbors == 300).all()


def test_real_features_keep_their_angles(
    tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]]
) -> None:
    """Features are widened by joining neighbouring patches, which keeps the angles between them.

    A picture has 16 patches of 8 features. For 100 features, 3 x 3 patches give 72, which are
    lifted to 100.
    """
    real = RealFeatures(tiny_bundle, good_pictures(6))
    assert real.describe(8).endswith("1 x 1 patches of 8 side by side")
    assert real.describe(100).endswith("3 x 3 patches of 8 side by side, lifted to 100")
    (_, plain), (_, lifted) = real(Size(30, 40, 72)), real(Size(30, 40, 100))
    assert plain.shape == (40, 72) and lifted.shape == (40, 100)
    np.testing.assert_allclose(lifted @ lifted.T, plain @ plain.T, rtol=1e-4, atol=1e-4)
    _, own = real(Size(30, 40, 8))
    np.testing.assert_array_equal(plain[5, 32:40], own[5])  # the patch itself is in the middle
    with pytest.raises(UsageError, match="6 pictures of 16 patches are too few"):
        real(Size(30, 80, 8))
    with pytest.raises(UsageError, match="8 numbers per patch, more than 7"):
        real(Size(30, 40, 7))


def test_too_few_pictures_are_refused_before_anything_is_measured(
    tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]]
) -> None:
    real = RealFeatures(tiny_bundle, good_pictures(6))
    steps: list[str] = []
    with pytest.raises(UsageError, match="too few for 30x800x8"):
        bench_scoring(
            [Size(30, 40, 8), Size(30, 800, 8)], features={"real": real}, step=steps.append
        )
    assert steps == []


def test_queries_come_from_other_pictures_than_references(
    tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]]
) -> None:
    pictures = good_pictures(6)
    query, references = RealFeatures(tiny_bundle, pictures)(Size(48, 33, 8))  # uses 3 of 6 pictures
    _, first_half = RealFeatures(tiny_bundle, pictures)(Size(16, 48, 8))
    _, other_half = RealFeatures(tiny_bundle, pictures[3:] + pictures[:3])(Size(16, 48, 8))
    np.testing.assert_array_equal(references, first_half[:33])
    np.testing.assert_array_equal(query, other_half)


def test_queries_of_a_wrong_part_come_from_its_own_pictures(
    tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]]
) -> None:
    """All pictures of the product may be references then."""
    pictures = good_pictures(6)
    real = RealFeatures(tiny_bundle, pictures[:3])
    wrong = real.of_wrong_part(pictures[3:])
    query, references = wrong(Size(48, 48, 8))
    expected, _ = RealFeatures(tiny_bundle, pictures)(Size(48, 48, 8))
    np.testing.assert_array_equal(query, expected)
    assert references.shape == (48, 8)
    assert wrong.describe(8).endswith("queries of another product")
    assert not real.describe(8).endswith("queries of another product")
    for size in (Size(49, 48, 8), Size(48, 49, 8)):
        with pytest.raises(UsageError, match="3 pictures, and 3 of a wrong part, of 16 patches"):
            wrong(size)


def test_the_sorting_rival_computes_the_method() -> None:
    query, references = clustered(Size(300, 200, 32))
    energy = RIVALS["torch-sort"](query, references)()
    oracle = score_patches(query, references, scorer="reference")
    assert energy is not None
    assert compare(energy, oracle, query).disagree == 0


def test_agreement_counts_what_is_decided_and_differs() -> None:
    query, references = clustered(SMALL)
    bank, _ = References.of(references)
    oracle = open_scorer("reference", bank).score(query)
    assert compare(oracle.energy, oracle, query).disagree == 0
    off = oracle.energy.copy()
    off[:3] *= 1.01
    off[3] = np.nan
    assert oracle.margin is not None
    margin = np.ones_like(oracle.margin)
    margin[0] = EPS / 2  # so close to the limit that the row may differ
    found = compare(off, replace(oracle, margin=margin), query)
    assert found.disagree == 3
    assert found.undecided == pytest.approx(1 / 60)
    assert str(found) == "rows undecided 1.67 %, rows that disagree: 3"


def test_rivals_use_the_same_processor() -> None:
    # Each runs in its own process, because a library chooses its kernels once, when it is loaded.
    code = (
        "from anoco_edge.diagnostics.bench.baselines import *; import threadpoolctl\n"
        "with same_threads(1, ['faiss']) as remarks:\n"
        "    print(len(set(blas_kernels(threadpoolctl))) <= 1, remarks)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_rows_of_a_scoring_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals_module, "SETTLE_SECONDS", 0.0)
    common = ("--scoring", str(SMALL), "--repeat", "4", "--json", "--features", "clustered")
    out = run(*common, "--scorers", "reference", "--rivals", "torch-sort,onnx")
    report = json.loads(out)
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == ["reference", "onnx", "numpy-sgemm", "torch-sort"]
    assert [rows[name]["runs"] for name in rows] == [3, 4, 4, 4]
    assert rows["numpy-sgemm"]["ratio"] == 1
    onnx = rows["onnx"]
    assert onnx["ratio"] == pytest.approx(onnx["median_ms"] / rows["numpy-sgemm"]["median_ms"])
    assert onnx["disagree"] == rows["torch-sort"]["disagree"] == 0
    assert 0 < onnx["retrieval"] < 1 and rows["torch-sort"]["retrieval"] is None
    assert onnx["budget_mb"] > 0
    assert onnx["extra_mb"] < onnx["budget_mb"]
    assert rows["torch-sort"]["extra_mb"] is None
    assert report["settings"]["features"]["clustered"].startswith("64 clusters")


def test_every_kind_of_features_has_its_rows(
    enrolled: Bundle, good_pictures: Callable[[int], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals_module, "SETTLE_SECONDS", 0.0)
    folder = good_pictures(8)[0].parent
    arguments = ("--scoring", "60x50x16,60x60x16", "--scorers", "onnx", "--repeat", "1", "--json")
    pictures = ("--pictures", str(folder), "--wrong-pictures", str(folder))
    report = json.loads(run(str(enrolled.path), *pictures, *arguments))
    rows = [row for row in report["rows"] if row["kind"] == "scorer"]
    kinds = ["clustered", "isotropic", "crowd", "real", "wrong-part"]
    assert [row["features"] for row in rows] == 2 * kinds
    assert [row["size"] for row in rows] == 5 * ["60x50x16"] + 5 * ["60x60x16"]
    assert [row["disagree"] for row in rows] == 10 * [0]
    assert rows[2]["neighbors"][2] == 50 and rows[1]["neighbors"][0] < 10
    assert list(report["settings"]["features"]) == kinds


def test_scoring_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals_module, "SETTLE_SECONDS", 0.0)
    common = ("--scoring", str(SMALL), "--scorers", "onnx", "--repeat", "1")
    text = run(*common, "--features", "crowd", "--format", "md")
    title = "crowd 60x90x16, neighbours 90 / 90 / 90 (median, 95 %, most)"
    assert text.startswith(f"{title}\n\n| what | ms | x sgemm |")
    assert "| numpy-sgemm |" in text and "| 0 disagree, " in text
    rows = list(csv.DictReader(io.StringIO(run(*common, "--format", "csv"))))
    assert [row["name"] for row in rows] == 3 * ["onnx", "numpy-sgemm"]


def test_the_best_scorer_here_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring_module, "choose_scorer", lambda: ("native", "it is present"))
    assert parse_scorers(None) == ["native"]
    assert parse_scorers("reference,onnx") == ["reference", "onnx"]


def test_a_rival_that_is_not_installed_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_installed(query: object, references: object) -> rivals_module.Run:
        raise missing("faiss", "rivals", "for the rival faiss")

    monkeypatch.setattr(rivals_module, "SETTLE_SECONDS", 0.0)
    monkeypatch.setitem(RIVALS, "faiss", not_installed)
    result = bench_scoring([SMALL], scorers=[], rivals=["faiss"], repeat=1)
    assert [row.name for row in result.rows] == ["numpy-sgemm"]
    (remark,) = [r for r in result.remarks if r.startswith("rival faiss left out")]
    assert "faiss is needed" in remark and "anoco-edge[rivals]" in remark


def test_memory_is_seen() -> None:
    # The reference keeps at least similarity and consistency in float64, which take 2 x 32 MB.
    extra = extra_memory_mb("reference", *isotropic(Size(1000, 4000, 8)), 1)
    assert 60 < extra < 400
    with pytest.raises(AnocoError, match=r"could not be measured: .*unknown scorer"):
        extra_memory_mb("nonsense", *clustered(SMALL), 1)
