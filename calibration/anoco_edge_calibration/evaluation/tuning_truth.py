"""Compares what `tune` chooses by drawn defects with the true ranking on labelled data sets.

    python -m anoco_edge_calibration.evaluation.tuning_truth BUNDLE DATASET... --shots 1,4 --seeds 3

teaches each category with drawn references, lets the other training pictures choose, and measures
every setting on the test pictures, which `tune` never saw. It prints one row for each draw and
setting, and one for each draw: what was chosen, what that changes, and what the best would give.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, cast

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.schema import Tta
from anoco_edge.scoring import POOLINGS
from anoco_edge.teaching import NewPicture, Settings, Teacher, TuningOutcome, tune
from anoco_edge.teaching.burst_detection import PartMatcher
from anoco_edge.teaching.new_pictures import separate_duplicates
from anoco_edge_calibration.evaluation.bundle_evaluation import EngineRequest, evaluate_bundle
from anoco_edge_calibration.evaluation.dataset import Category, DataSet
from anoco_edge_calibration.evaluation.layouts import open_dataset
from anoco_edge_calibration.evaluation.variants import Variant

AUGMENTATIONS: tuple[Tta, ...] = ("none", "rotations")
_Draw = tuple[str, int, int, str, str]
"""A category, the number of references, the seed, an augmentation and a pooling."""


@dataclass(frozen=True)
class SettingTruth:
    """One setting with one draw of references: the estimate of `tune`, and what is true."""

    dataset: str
    category: str
    shots: int
    seed: int
    augment: str
    pooling: str
    separation: float
    gain: float
    noise: float
    image_auroc: float | None
    pixel_pro: float | None
    ms: float
    present: bool
    chosen: bool


@dataclass(frozen=True)
class ChoiceTruth:
    """What the choice of one draw is worth; image AUROC less that of the setting before."""

    category: str
    shots: int
    seed: int
    chosen: str
    true_best: str
    gained: float
    best_gain: float
    pro_gained: float | None
    rank_correlation: float


def truths(
    bundle: Bundle, dataset: DataSet, shots: Sequence[int], seeds: int
) -> Iterator[SettingTruth]:
    """Yield every setting of every draw, estimated and measured.

    The bundle is written to: every category becomes a product.
    """
    draws = [
        (category, count, seed)
        for category in dataset.categories
        for count in shots
        for seed in range(seeds)
    ]
    teacher = Teacher.open(bundle)
    outcomes = [_tune(teacher, *draw) for draw in draws]
    measured = _measure(bundle, dataset, shots, seeds)
    for (category, count, seed), outcome in zip(draws, outcomes, strict=True):
        for one in outcome.tried:
            auroc, pro = measured[category.name, count, seed, one.tta, one.pooling]
            yield SettingTruth(
                dataset=dataset.name,
                category=category.name,
                shots=count,
                seed=seed,
                augment=one.tta,
                pooling=one.pooling,
                separation=one.separation,
                gain=one.gain,
                noise=one.noise,
                image_auroc=auroc,
                pixel_pro=pro,
                ms=one.ms,
                present=one.present,
                chosen=one.chosen,
            )


def _measure(
    bundle: Bundle, dataset: DataSet, shots: Sequence[int], seeds: int
) -> dict[_Draw, tuple[float | None, float | None]]:
    """Return image AUROC and PRO of every setting of every draw."""
    measured: dict[_Draw, tuple[float | None, float | None]] = {}
    with tempfile.TemporaryDirectory() as features:
        for level in AUGMENTATIONS:
            result = evaluate_bundle(
                bundle,
                dataset,
                shots=tuple(shots),
                seeds=seeds,
                variants=[Variant("anoco", {"pooling": pooling}) for pooling in POOLINGS],
                settings=Settings({"tta": level}),
                engine=EngineRequest(features=features),
            )
            for row in result.rows:
                if row.seed == "mean" or row.category == "mean":
                    continue
                pooling = row.scorer.partition("pooling=")[2]
                key = (row.category, cast(int, row.shots), row.seed, level, pooling)
                measured[key] = (row.figures["image_auroc"], row.figures["pixel_pro"])
    return measured


def _tune(teacher: Teacher, category: Category, shots: int, seed: int) -> TuningOutcome:
    """Tune with the training pictures that are not drawn; public sets hold copies, which are left
    out."""
    drawn = [NewPicture.from_file(path) for path in category.draw(shots, seed)]
    product = teacher.enroll(drawn, f"{category.name}-{shots}-{seed}").product
    train = [NewPicture.from_file(path) for path in category.train]
    fresh, _ = separate_duplicates(train, product.references)
    near = PartMatcher(p.rgb for p in drawn).copies([p.thumbnail for p in fresh])
    pictures = [picture for k, picture in enumerate(fresh) if k not in near]
    return tune(teacher, pictures, product.name, seed=seed, commit=False)


def choices(found: Sequence[SettingTruth]) -> list[ChoiceTruth]:
    """Return what the choice of each draw is worth.

    >>> def row(pooling: str, separation: float, auroc: float, chosen: bool) -> SettingTruth:
    ...     figures = (separation, 0.0, 0.0, auroc, None, 1.0)
    ...     present = pooling == "max"
    ...     return SettingTruth("d", "nut", 1, 0, "none", pooling, *figures, present, chosen)
    >>> [one] = choices([row("max", 0.7, 0.8, False), row("top5", 0.9, 0.95, True)])
    >>> one.chosen, one.true_best, round(one.gained, 2), one.rank_correlation
    ('none top5', 'none top5', 0.15, 1.0)
    """
    draws: dict[tuple[str, int, int], list[SettingTruth]] = {}
    for one in found:
        if one.image_auroc is not None:
            draws.setdefault((one.category, one.shots, one.seed), []).append(one)
    return [_choice(rows) for rows in draws.values()]


def _choice(rows: Sequence[SettingTruth]) -> ChoiceTruth:
    true = {id(one): one.image_auroc or 0.0 for one in rows}
    chosen = next(one for one in rows if one.chosen)
    present = next(one for one in rows if one.present)
    best = max(rows, key=lambda one: (true[id(one)], one.present))
    pro = None
    if chosen.pixel_pro is not None and present.pixel_pro is not None:
        pro = chosen.pixel_pro - present.pixel_pro
    return ChoiceTruth(
        category=chosen.category,
        shots=chosen.shots,
        seed=chosen.seed,
        chosen=f"{chosen.augment} {chosen.pooling}",
        true_best=f"{best.augment} {best.pooling}",
        gained=true[id(chosen)] - true[id(present)],
        best_gain=true[id(best)] - true[id(present)],
        pro_gained=pro,
        rank_correlation=_rank_correlation(
            [one.separation for one in rows], [true[id(one)] for one in rows]
        ),
    )


def _rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-a: the share of pairs in the same order less that in the opposite order."""
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    signs = [_sign(first[i] - first[j]) * _sign(second[i] - second[j]) for i, j in pairs]
    return sum(signs) / len(pairs) if pairs else 0.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def main(
    bundle: Annotated[Path, typer.Argument(help="Bundle; a copy of it is taught.")],
    datasets: Annotated[list[Path], typer.Argument(help="Folders in a layout that eval reads.")],
    shots: Annotated[str, typer.Option(help="Numbers of references, such as 1,4.")] = "1",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of the references.")] = 3,
) -> None:
    """Print one JSON object for each setting, and one for each choice."""
    counts = [int(part) for part in shots.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "scratch.anoco"
        shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns("products"))
        for folder in datasets:
            found = []
            for one in truths(Bundle.open(copy), open_dataset(folder), counts, seeds):
                found.append(one)
                typer.echo(json.dumps(asdict(one)))
            for choice in choices(found):
                typer.echo(json.dumps(asdict(choice)))


if __name__ == "__main__":
    typer.run(main)
