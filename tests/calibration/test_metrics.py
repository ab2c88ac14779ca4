"""Accuracy figures equal those of scikit-learn and of a literal PRO, in little memory."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from paths import PACKAGES, SUPPORT, python_path
from PIL import Image
from scipy import ndimage  # type: ignore[import-untyped]
from sklearn import metrics as sklearn_metrics
from sklearn.metrics import roc_auc_score

from anoco_edge.errors import ScoringError, StorageError, UsageError
from anoco_edge.images.contract import InputContract
from anoco_edge.images.preprocess import Placement
from anoco_edge.native.library import why_not
from anoco_edge.pipeline.anomaly_map import MapMaker, enlarge
from anoco_edge_calibration.evaluation import pixel_metrics, threshold_counter
from anoco_edge_calibration.evaluation.defect_regions import DefectRegions, label_regions
from anoco_edge_calibration.evaluation.metrics import aupr, auroc, f1_max, pr_curve, roc_curve
from anoco_edge_calibration.evaluation.pixel_metrics import HELD, PixelMetrics, PixelResult
from anoco_edge_calibration.evaluation.pixel_store import PixelStore
from anoco_edge_calibration.evaluation.threshold_counter import (
    Counter,
    NativeCounter,
    NumpyCounter,
    open_counter,
)

Mask = NDArray[np.bool_]
Picture = tuple[NDArray[np.float32], Mask | None]
few = settings(derandomize=True, deadline=None, max_examples=40)

# --- pictures -------------------------------------------------------------------------------------

ALL = [auroc, aupr, f1_max, roc_curve, pr_curve]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_equals_scikit_learn_ties_included(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([s for s, _ in pairs], dtype=float)
    labels = np.array([b for _, b in pairs])
    if labels.all() or not labels.any():
        with pytest.raises(UsageError, match="at least one"):
            auroc(scores, labels)
    else:
        assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def sklearn_f1_max(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    precision, recall, _ = sklearn_metrics.precision_recall_curve(labels, scores)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    return float(f1.max())


@few
@given(st.lists(st.tuples(st.floats(-2, 2).map(lambda v: round(v, 1)), st.booleans()), min_size=2))
@example([(1.0, True), (1.0, False), (1.0, False)])  # a constant score
@example([(0.0, True), (-0.0, False)])
def test_the_others_equal_scikit_learn_too(pairs: list[tuple[float, bool]]) -> None:
    scores, labels = np.array([s for s, _ in pairs]), np.array([b for _, b in pairs])
    assume(labels.any() and not labels.all())
    expected = sklearn_metrics.average_precision_score(labels, scores)
    assert aupr(scores, labels) == pytest.approx(expected, abs=1e-12)
    assert f1_max(scores, labels) == pytest.approx(sklearn_f1_max(labels, scores), abs=1e-12)
    fpr, tpr, _ = sklearn_metrics.roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(roc_curve(scores, labels), (fpr, tpr), atol=1e-12)
    precision, recall, _ = sklearn_metrics.precision_recall_curve(labels, scores)
    np.testing.assert_allclose(pr_curve(scores, labels), (recall, precision), atol=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_what_has_no_answer_is_refused(metric: Callable[..., object]) -> None:
    for labels in ([True, True], [False, False]):
        with pytest.raises(UsageError, match="at least one good and one anomalous"):
            metric([1.0, 2.0], labels)
    with pytest.raises(UsageError, match=r"\(3,\) and \(2,\)"):
        metric([1.0, 2.0, 3.0], [True, False])
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(ScoringError, match=f"score {wrong}"):
            metric([1.0, wrong], [True, False])


# --- regions --------------------------------------------------------------------------------------


def spiral(size: int) -> Mask:
    """Draw a path of one pixel's width that winds inwards, with turns one pixel apart."""
    mask = np.zeros((size, size), np.bool_)
    y, x, dy, dx, left = 0, -1, 0, 1, size
    for turn in range(size):
        for _ in range(left):
            y, x = y + dy, x + dx
            mask[y, x] = True
        dy, dx = dx, -dy
        left -= 1 if turn == 0 else 2 * (turn % 2 == 0)
    return mask


def snake(size: int) -> Mask:
    mask = np.zeros((size, size), np.bool_)
    mask[::2] = True
    mask[1::4, -1] = mask[3::4, 0] = True
    return mask


SHAPES = {
    "spiral": spiral(41),
    "spiral and what it is not": ~spiral(41),
    "snake": snake(41),
    "standing snake": snake(41).T,
    "comb": snake(41).T | (np.arange(41) == 40)[:, None],
    "corners only": np.indices((9, 12)).sum(axis=0) % 2 == 0,
    "row ends touch the next row's start": np.eye(2, 7, 6, np.bool_) | np.eye(2, 7, -1, np.bool_),
    "nothing": np.zeros((4, 5), np.bool_),
    "everything": np.ones((4, 5), np.bool_),
    "one column": np.array([[1], [0], [1], [1]], np.bool_),
    "no pixel": np.zeros((0, 3), np.bool_),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_regions_are_those_of_scipy(shape: str) -> None:
    wanted, _ = ndimage.label(SHAPES[shape], np.ones((3, 3)))
    np.testing.assert_array_equal(label_regions(SHAPES[shape]), wanted)


def test_the_spiral_is_one_long_region() -> None:
    assert label_regions(spiral(41)).max() == 1 and spiral(41).mean() < 0.55


@few
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40), st.floats(0.05, 0.95))
def test_regions_of_noise_are_those_of_scipy(seed: int, rows: int, cols: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((rows, cols)) < share
    wanted, _ = ndimage.label(mask, np.ones((3, 3)))
    np.testing.assert_array_equal(label_regions(mask), wanted)


# --- pixels ---------------------------------------------------------------------------------------


def measured(pictures: list[Picture], pro_limit: float = 0.3, held: int = HELD) -> PixelResult:
    with PixelMetrics(pro_limit=pro_limit, held=held) as metrics:
        for anomaly_map, mask in pictures:
            metrics.add(anomaly_map, mask)
        return metrics.result()


def literal_pro(pictures: list[Picture], limit: float) -> float:
    """Compute the curve threshold by threshold and region by region."""
    regions, normal = [], []
    for values, mask in pictures:
        labels, count = ndimage.label(
            np.zeros_like(values) if mask is None else mask, np.ones((3, 3))
        )
        regions += [values[labels == number] for number in range(1, count + 1)]
        normal.append(values[labels == 0])
    good = np.concatenate(normal)
    curve = [(0.0, 0.0)]
    for threshold in np.unique(np.concatenate([*regions, good]))[::-1]:
        overlap = np.mean([(region >= threshold).mean() for region in regions])
        curve.append((float((good >= threshold).mean()), float(overlap)))
    area = 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 < limit and x1 > x0:
            end = min(x1, limit)
            area += (end - x0) * (y0 + (y0 + (y1 - y0) * (end - x0) / (x1 - x0))) / 2
    return area / limit


def flat(pictures: list[Picture]) -> tuple[Mask, NDArray[np.float32]]:
    masks = [np.zeros_like(v, np.bool_) if m is None else m for v, m in pictures]
    values = np.concatenate([v.ravel() for v, _ in pictures])
    return np.concatenate([m.ravel() for m in masks]), values


# The scores have ties, the extremes of float32, neighbours in the last bit, and both zeros.
LEVELS = np.array(
    [0, -0.0, 1e-45, 2e-45, 1e-38, 0.1, 0.25, 1, np.nextafter(np.float32(1), 2), 1.5, 7, 3e38],
    np.float32,
)


@st.composite
def picture_lists(draw: st.DrawFn) -> list[Picture]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    pictures: list[Picture] = []
    for _ in range(draw(st.integers(1, 5))):
        shape = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
        if draw(st.booleans()):
            values = rng.choice(LEVELS, shape)
        else:
            values = rng.exponential(size=shape).astype(np.float32)
        share = draw(st.sampled_from([None, 0.0, 0.1, 0.4, 0.9]))
        pictures.append((values, None if share is None else rng.random(shape) < share))
    labels, _ = flat(pictures)
    assume(labels.any() and not labels.all())
    return pictures


@few
@given(picture_lists(), st.sampled_from([0.3, 0.05, 0.5, 1.0]), st.sampled_from([0, 100, HELD]))
def test_pixel_figures_equal_scikit_learn_and_the_literal_pro(
    pictures: list[Picture], limit: float, held: int
) -> None:
    """Scores are held in memory, on disk, and first in memory and then on disk."""
    got = measured(pictures, limit, held)
    labels, values = flat(pictures)
    assert got.auroc == pytest.approx(roc_auc_score(labels, values), abs=1e-9)
    assert got.f1_max == pytest.approx(sklearn_f1_max(labels, values), abs=1e-9)
    assert got.pro == pytest.approx(literal_pro(pictures, limit), abs=1e-9)
    assert got.pixels == values.size


@few
@given(picture_lists(), st.sampled_from([0, HELD]), st.integers(1, 40), st.sampled_from([1, 3]))
def test_parts_of_the_values_give_what_all_at_once_give(
    pictures: list[Picture], held: int, most: int, sampled: int
) -> None:
    """So few values at once that all pixels are gone through several times, ties included."""
    whole = measured(pictures, held=held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pixel_metrics, "MOST_VALUES", most)
        patch.setattr(pixel_metrics, "SAMPLED", sampled)
        parts = measured(pictures, held=held)
    assert (parts.auroc, parts.f1_max) == (whole.auroc, whole.f1_max)
    assert parts.pro == pytest.approx(whole.pro, rel=1e-12, abs=1e-12)


def test_the_regions_of_a_mask_stand_for_the_mask() -> None:
    pictures = sample()
    found = [(v, None if m is None else DefectRegions.from_mask(m)) for v, m in pictures]
    with PixelMetrics() as metrics:
        for values, regions in found:
            metrics.add(values, regions)
        assert metrics.result() == measured(pictures)
    with PixelMetrics() as metrics, pytest.raises(UsageError, match="60 x 79 and the mask 60 x 80"):
        metrics.add(pictures[0][0][:, 1:].copy(), found[0][1])


def bits_of(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


@few
@given(st.integers(0, 10**6), st.integers(1, 300), st.sampled_from([0, 1, 5]), st.booleans())
def test_values_are_counted_as_by_searching_for_each(
    seed: int, count: int, waiting: int, crowded: bool
) -> None:
    """Thresholds lie apart or in one cell, among them zero and the largest number."""
    rng = np.random.default_rng(seed)
    if crowded:  # neighbors in the last bits, so that a cell holds many
        pool = bits_of(np.float32([1]))[0] + rng.integers(0, 1500, 2000).astype(np.uint32)
    else:
        pool = bits_of(
            np.concatenate([rng.exponential(size=500) * 10.0 ** rng.integers(-40, 38), LEVELS])
        )
        pool[pool == 1 << 31] = 0
    thresholds, values = np.unique(rng.choice(pool, count)), rng.choice(pool, 3000)
    if crowded:
        thresholds = np.append(thresholds, np.uint32(0x7F7FFFFF))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threshold_counter, "_AT_ONCE", 700)
        patch.setattr(threshold_counter, "_WAITING", 500 * waiting)
        patch.setattr(threshold_counter, "_BATCH", 800 * waiting)
        patch.setattr(threshold_counter, "_BATCH_PER_THRESHOLD", waiting)
        counters: list[Counter] = [NumpyCounter(thresholds), open_counter(thresholds)]
        for counter in counters:
            counter.add(values[:1000])
            counter.counts()
            counter.add(values[1000:])
    left = np.searchsorted(thresholds, values)
    equal = np.searchsorted(thresholds, values, side="right") > left
    size = thresholds.size
    for counter in counters:
        at, on = counter.counts()
        assert at.tolist() == np.bincount(left[~equal], minlength=size + 1).tolist()
        assert on.tolist() == np.bincount(left[equal], minlength=size).tolist()


@pytest.mark.parametrize(
    ("repeats", "thresholds"),
    [(1, 131_073), (9, 150_000), pytest.param(60, 300_000, marks=pytest.mark.full)],
)
def test_values_wait_for_their_part_where_thresholds_are_many(
    repeats: int, thresholds: int
) -> None:
    """From 2^17 thresholds on; 18 million values are more than may wait at once."""
    rng = np.random.default_rng(thresholds)
    # Half of the thresholds in a narrow range, as defective pixels of a faint defect.
    ranges = [rng.normal(1, 0.05, 2 * thresholds), rng.gamma(2, 1, thresholds) * 10]
    pool = rng.permutation(np.unique(bits_of(np.abs(np.concatenate(ranges)))))
    few, values = np.sort(pool[:thresholds]), pool[thresholds // 2 : thresholds // 2 + 300_000]
    counter = open_counter(few)
    for _ in range(repeats):
        counter.add(values)
    between, equal = counter.counts()
    left = np.searchsorted(few, values)
    tied = few[np.minimum(left, few.size - 1)] == values
    assert (between == repeats * np.bincount(left[~tied], minlength=few.size + 1)).all()
    assert (equal == repeats * np.bincount(left[tied], minlength=few.size)).all()
    assert 1000 < tied.sum() < values.size


def test_figures_are_the_same_without_the_native_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(sample())
    monkeypatch.setattr(pixel_metrics, "open_counter", NumpyCounter)
    assert measured(sample()) == found


def test_the_native_library_counts_where_it_is_installed() -> None:
    thresholds = bits_of(np.float32([1, 2]))
    assert isinstance(open_counter(thresholds), NativeCounter) == (why_not() is None)


def sample() -> list[Picture]:
    """Make three defective pictures, with regions of one pixel to a quarter, and two good ones."""
    rng = np.random.default_rng(5)
    pictures: list[Picture] = []
    for number in range(5):
        values = rng.exponential(size=(60, 80)).astype(np.float32).round(2)
        if number > 2:
            pictures.append((values, None))
            continue
        mask = np.zeros(values.shape, np.bool_)
        mask[5:35, 10:50] = mask[50, 70] = mask[40:42, 5:20] = True
        values[mask] += np.float32(0.7)
        pictures.append((values, mask))
    return pictures


@few
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 60), st.floats(0, 1))
def test_values_of_a_mask_are_those_that_indexing_gives(
    seed: int, rows: int, cols: int, share: float
) -> None:
    """With long runs and with short ones, with none and with all pixels defective."""
    rng = np.random.default_rng(seed)
    mask = np.sort(rng.random((rows, cols)), axis=rng.integers(2)) < share
    values = rng.random(mask.shape, np.float32)
    regions = DefectRegions.from_mask(mask)
    assert regions.of(values.ravel()).tolist() == values[mask].tolist()
    labels, _ = ndimage.label(mask, np.ones((3, 3)))
    assert regions.sizes.tolist() == np.bincount(labels.ravel())[labels[mask]].tolist()


@few
@given(picture_lists(), st.integers(1, 40), st.sampled_from([0, 100, HELD]))
def test_more_memory_gives_the_same_figures(pictures: list[Picture], most: int, held: int) -> None:
    """As `eval` shares it out: by the number of variant runs that are measured together."""
    whole = measured(pictures)
    with PixelMetrics(held=held, most_values=most) as metrics:
        for anomaly_map, mask in pictures:
            metrics.add(anomaly_map, mask)
        parts = metrics.result()
    assert (parts.auroc, parts.f1_max) == (whole.auroc, whole.f1_max)
    assert parts.pro == pytest.approx(whole.pro, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("held", [0, 3 * 60 * 80, HELD])
def test_larger_pictures_agree_to_nine_digits(held: int) -> None:
    got = measured(sample(), held=held)
    labels, values = flat(sample())
    assert got.auroc == pytest.approx(roc_auc_score(labels, values), rel=1e-12)
    assert got.f1_max == pytest.approx(sklearn_f1_max(labels, values), rel=1e-12)
    assert got.pro == pytest.approx(literal_pro(sample(), 0.3), rel=1e-12)
    assert (got.pixels, got.regions) == (5 * 60 * 80, 9)


def test_every_region_counts_the_same_whatever_its_size() -> None:
    mask = np.zeros((10, 10), np.bool_)
    mask[:4, :5] = mask[9, 9] = True
    only_the_pixel = np.zeros((10, 10), np.float32)
    only_the_pixel[9, 9] = 1
    # Half of the regions are found at no false positive, then a straight line leads to (1, 1).
    assert measured([(only_the_pixel, mask)]).pro == pytest.approx(0.5 + 0.5 * 0.3 / 2)


def test_a_constant_map_knows_nothing_and_a_perfect_one_everything() -> None:
    mask = np.zeros((8, 8), np.bool_)
    mask[2:4, 2:6] = True
    constant = measured([(np.full((8, 8), 2, np.float32), mask)])
    assert constant.auroc == 0.5
    assert constant.pro == pytest.approx(0.15)
    assert constant.f1_max == pytest.approx(2 * 8 / (64 + 8))
    assert measured([(mask.astype(np.float32), mask)]) == PixelResult(1.0, 1.0, 1.0, 64, 1)


def test_neither_the_order_nor_saying_it_all_twice_matters() -> None:
    once, other = measured(sample()), measured(sample()[::-1])
    twice = measured(sample() * 2)
    assert (once.auroc, once.f1_max) == (other.auroc, other.f1_max) == (twice.auroc, twice.f1_max)
    assert once.pro == pytest.approx(other.pro, rel=1e-13) == pytest.approx(twice.pro, rel=1e-13)
    assert (twice.pixels, twice.regions) == (2 * once.pixels, 2 * once.regions)


def test_one_may_ask_in_between_and_go_on() -> None:
    pictures = sample()
    with PixelMetrics() as metrics:
        metrics.add(*pictures[0])
        assert metrics.result() == metrics.result() == measured(pictures[:1])
        metrics.add(*pictures[1])
        assert metrics.result() == measured(pictures[:2])


@pytest.mark.full
def test_the_program_that_times_pixel_figures_computes_those_of_an_evaluation(
    tmp_path: Path,
) -> None:
    contract = InputContract(width=32, height=32, stride=8, rows=4, cols=4, dim=1)
    scored = np.ones((4, 4), np.bool_)
    place = Placement(left=0, top=0, width=32, height=32, picture_width=48, picture_height=40)
    mask = np.zeros((40, 48), np.bool_)
    mask[5:20, 30:40] = True
    Image.fromarray(mask).save(tmp_path / "mask.png")
    rng, pictures, expected = np.random.default_rng(3), [], PixelMetrics()
    for name in (str(tmp_path / "mask.png"), None):
        energy = rng.exponential(size=(4, 4)).astype(np.float32)
        pictures.append((energy, scored, vars(place), name))
        anomaly_map = enlarge(MapMaker(contract)(energy, scored), place)
        expected.add(anomaly_map, mask if name else None)
    (tmp_path / "nut.pickle").write_bytes(pickle.dumps((contract.model_dump(), pictures)))
    command = [sys.executable, SUPPORT / "pixel_speed.py", "--worker", tmp_path / "nut.pickle"]
    done = subprocess.run(command, input="\n\n", capture_output=True, text=True, check=True)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    with expected:
        figures = expected.result()
    assert first[1] == second[1] == [figures.auroc, figures.pro, figures.f1_max]
    assert first[0].keys() == {"masks", "maps", "metrics"}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, -1e-45, -1.0])
def test_a_map_that_holds_no_energies_is_refused_and_leaves_no_trace(wrong: float) -> None:
    values, mask = sample()[0]
    broken = values.copy()
    broken[-1, -1] = wrong
    with PixelMetrics() as metrics:
        metrics.add(values, mask)
        with pytest.raises(ScoringError, match=f"holds {np.float32(wrong)}"):
            metrics.add(broken, mask)
        assert metrics.result() == measured([(values, mask)])


def test_map_and_mask_have_to_fit() -> None:
    values = np.zeros((4, 6), np.float32)
    with PixelMetrics() as metrics:
        with pytest.raises(UsageError, match="4 x 6 and the mask 6 x 4"):
            metrics.add(values, np.zeros((6, 4), np.bool_))
        with pytest.raises(UsageError, match="1 x 4 x 6"):
            metrics.add(values[None], None)
        with pytest.raises(UsageError, match="float64 and the mask bool"):
            metrics.add(values.astype(np.float64), None)
        with pytest.raises(UsageError, match="float32 and the mask uint8"):
            metrics.add(values, np.zeros((4, 6), np.uint8))


def test_both_kinds_of_pixels_are_needed() -> None:
    values = np.ones((3, 3), np.float32)
    for mask, missing in [(None, "defective"), (np.ones((3, 3), np.bool_), "normal")]:
        with pytest.raises(UsageError, match=f"no {missing} one"):
            measured([(values, mask)])
    with pytest.raises(UsageError, match="no defective one"):
        measured([])


@pytest.mark.parametrize("limit", [0, -0.1, 1.01, np.nan])
def test_the_limit_is_a_rate(limit: float) -> None:
    with pytest.raises(UsageError, match="pro_limit"):
        PixelMetrics(pro_limit=limit)


# --- the disk -------------------------------------------------------------------------------------


def spills(folder: Path) -> list[Path]:
    """List the open files of this process in `folder`, also those without a name."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if str(link.readlink()).startswith(str(folder))]


def test_pixels_wait_in_the_folder_and_nothing_stays_there(tmp_path: Path) -> None:
    with PixelMetrics(tmp_path, held=0) as metrics:
        metrics.add(*sample()[0])
        (spill,) = spills(tmp_path)
        assert spill.stat().st_size >= 4 * 60 * 80
        # The file has no name, so even a kill leaves nothing behind.
        assert list(tmp_path.iterdir()) == []
    assert spills(tmp_path) == [] == list(tmp_path.iterdir())
    for use in (metrics.result, lambda: metrics.add(*sample()[0])):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_nothing_stays_after_an_exception_either(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), PixelMetrics(tmp_path, held=0) as metrics:
        metrics.add(*sample()[0])
        assert spills(tmp_path)
        raise ZeroDivisionError
    assert spills(tmp_path) == [] == list(tmp_path.iterdir())


def test_a_spill_that_lost_pixels_gives_no_figures(tmp_path: Path) -> None:
    with PixelMetrics(tmp_path, held=0) as metrics:
        metrics.add(*sample()[0])
        (spill,) = spills(tmp_path)
        os.truncate(spill, spill.stat().st_size - 100)
        with pytest.raises(StorageError, match=r"cannot keep pixels .* could be read back"):
            metrics.result()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere: No such file"):
        PixelMetrics(tmp_path / "nowhere")


def run(program: str, *arguments: object) -> Any:
    """Run a program in a process of its own, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(*PACKAGES)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_full_disk_is_one_line_and_what_was_added_before_still_counts(tmp_path: Path) -> None:
    said = run(
        """
        import json, resource, sys
        from pathlib import Path
        import numpy as np
        from anoco_edge.errors import StorageError
        from anoco_edge_calibration.evaluation.pixel_metrics import PixelMetrics

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        small = np.random.default_rng(0).random((100, 100), np.float32)
        said = []
        with PixelMetrics(Path(sys.argv[1]), held=0) as metrics:
            metrics.add(small, small > 0.9)
            said.append(str(metrics.result()))
            try:
                metrics.add(np.ones((200, 200), np.float32), None)
            except StorageError as error:
                said.append(str(error))
            said.append(str(metrics.result()))
            metrics.add(small, small > 0.9)
            said.append(metrics.result().pixels)
        print(json.dumps(said))
        """,
        tmp_path,
    )
    before, error, after, pixels = said
    assert error == (
        f"cannot keep pixels in {tmp_path}: File too large; "
        "free some space there or give another folder"
    )
    assert before == after and "auroc=1.0" in before and pixels == 20_000
    assert list(tmp_path.iterdir()) == []


# This is the peak of this process alone; getrusage would include its parent's before exec.
MEMORY = """
import json, re, sys
from pathlib import Path
import numpy as np
from anoco_edge_calibration.evaluation.pixel_metrics import PixelMetrics

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

rng = np.random.default_rng(0)
mask = np.zeros((512, 512), np.bool_)
mask[100:150, 200:300] = mask[400:410, 50:60] = True
with PixelMetrics(held=int(sys.argv[3])) as metrics:
    for number in range(int(sys.argv[1])):
        values = rng.standard_exponential((512, 512), np.float32)
        values[mask] *= 2
        metrics.add(values + np.float32(sys.argv[2]), mask)
        if number == 4:
            early = peak()
    late = peak()
    result = metrics.result()
print(json.dumps([early, late, peak(), result.pixels, result.regions, result.auroc]))
"""


def test_few_pixels_stay_in_memory_and_a_full_disk_loses_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = sample()
    with PixelMetrics(tmp_path, held=3 * 60 * 80) as metrics:
        for picture in pictures[:3]:
            metrics.add(*picture)
        (spill,) = spills(tmp_path)
        assert spill.stat().st_size == 0
        before, plain = metrics.result(), PixelStore._write

        def full(*_: object) -> None:
            raise StorageError("cannot keep pixels")

        monkeypatch.setattr(PixelStore, "_write", full)
        with pytest.raises(StorageError):
            metrics.add(*pictures[3])
        assert metrics.result() == before
        monkeypatch.setattr(PixelStore, "_write", plain)
        for picture in pictures[3:]:
            metrics.add(*picture)
        assert spill.stat().st_size > 4 * 5 * 60 * 80
        assert metrics.result().pro == pytest.approx(measured(pictures).pro, rel=1e-12)


def test_many_values_at_once_are_not_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred thousand defective pixels no more than a few thousand are counted together."""
    counted: list[int] = []

    def count(thresholds: NDArray[np.uint32]) -> Counter:
        counted.append(thresholds.size)
        return open_counter(thresholds)

    monkeypatch.setattr(pixel_metrics, "open_counter", count)
    monkeypatch.setattr(pixel_metrics, "MOST_VALUES", 5000)
    values = np.random.default_rng(0).random((400, 500), np.float32)
    measured([(values, values > 0.5)])
    assert sum(counted) > 90_000 and len(counted) == 20 and max(counted) < 6500


def test_memory_does_not_grow_with_the_number_of_maps() -> None:
    """Values away from zero lie in few octaves, which are quick to count."""
    early, late, peak, pixels, regions, auroc_ = run(MEMORY, 60, 4, 0)
    assert late - early < 8, "the pixels alone are 60 MB"
    assert peak < 600
    assert (pixels, regions) == (60 * 512 * 512, 120)
    # The probability for twice an exponential variable against one.
    assert auroc_ == pytest.approx(2 / 3, abs=2e-3)


@pytest.mark.full
def test_a_thousand_maps_stay_under_a_gigabyte() -> None:
    early, late, peak, pixels, regions, auroc_ = run(MEMORY, 1000, 0, HELD)
    assert late - early < 100, "the pixels alone are 1 GB"
    assert peak < 1000
    assert (pixels, regions) == (1000 * 512 * 512, 2000)
    assert auroc_ == pytest.approx(2 / 3, abs=5e-4)
