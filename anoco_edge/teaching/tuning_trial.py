"""Tries augmentation and pooling with the backbone of one bundle: scores, and the time of a frame.

The features of a picture are the same for every bank, so the backbone runs once for each picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from anoco_edge.bundle import Product
from anoco_edge.bundle.schema import Tta
from anoco_edge.errors import ScoringError
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.energy import EnergyReader, PatchFeatures, PictureEnergy
from anoco_edge.pipeline.rotations import ROTATIONS
from anoco_edge.scoring.pooling import POOLINGS, Pooling
from anoco_edge.teaching.burst_detection import SIDE
from anoco_edge.teaching.drafts import Draft, ProductFields, Settings
from anoco_edge.teaching.new_pictures import NewPicture
from anoco_edge.teaching.synthetic_defects import (
    DEFECT_KINDS,
    DEFECTS,
    DefectKind,
    Pixels,
    synthetic_defects,
)
from anoco_edge.teaching.teacher import Teacher
from anoco_edge.teaching.tuning_choice import SettingScores


@dataclass(frozen=True)
class TriedSetting:
    """A combination of settings, and what was measured with it."""

    bundle: Path
    """The bundle, which has one backbone with its taps and its size."""
    tap: str
    size: tuple[int, int]
    """Width and height of the backbone's input."""
    tta: Tta
    rotations: int | None
    pooling: Pooling
    patches: int
    """The rows of the bank."""
    ms: float
    """The time of a frame on this machine, in milliseconds."""
    scores: SettingScores = field(repr=False)
    separation: float
    """How often a part with a drawn defect scores above another good part."""
    by_kind: dict[DefectKind, float]
    """The separation of the defects of each kind."""
    gain: float = 0.0
    """The separation less that of the present setting."""
    noise: float = 0.0
    """The least gain that is not noise."""
    present: bool = False
    chosen: bool = False

    @property
    def augmentation(self) -> str:
        """The augmentation, with the number of angles where it is an unusual one."""
        unusual = self.rotations not in (None, ROTATIONS)
        return f"{self.tta} {self.rotations}" if unusual else self.tta

    @property
    def fields(self) -> ProductFields:
        """The setting as fields of a product."""
        return {**_augmentation_fields(self.tta, self.rotations), "pooling": self.pooling}

    def is_setting_of(self, product: Product) -> bool:
        """Whether a product has this setting."""
        return self.changes_to(product) == 0

    def changes_to(self, product: Product) -> int:
        """How many of augmentation and pooling are others than those of a product."""
        views = (self.tta, self.rotations) != (product.tta, product.rotations)
        return views + (self.pooling != product.pooling)


class BundleTrial:
    """Tries the settings of a product with the backbone of one bundle."""

    def __init__(
        self,
        teacher: Teacher,
        product: Product,
        references: Sequence[NewPicture],
        mask: bytes | None,
    ) -> None:
        """Build a bank for each augmentation; `mask` is the product's ignore mask."""
        self._bundle = teacher.bundle.path
        self._manifest = teacher.bundle.manifest
        self._drafts = [
            teacher.draft(references, Settings(fields, mask=mask), like=product)
            for fields in _augmentations(product)
        ]
        self._readers = [teacher.draft_scorer(draft).reader() for draft in self._drafts]

    def run(
        self, parts: Sequence[NewPicture], seed: int, step: Callable[[str], None]
    ) -> list[TriedSetting]:
        """Score good parts, with and without drawn defects, with every setting."""
        wanted = self._drafts[0].patch_mask.cells(SIDE)
        measured = [_Measurement() for _ in self._drafts]
        for part in parts:
            for rgb in _variants(part, seed, wanted):
                (patches,) = self._readers[0].extract([rgb])
                for reader, measurement in zip(self._readers, measured, strict=True):
                    measurement.add(_score(reader, patches, part.name))
            step(part.name)
        return [
            self._tried(draft, measurement, pooling)
            for draft, measurement in zip(self._drafts, measured, strict=True)
            for pooling in _poolings()
        ]

    def _tried(self, draft: Draft, measurement: _Measurement, pooling: Pooling) -> TriedSetting:
        product, window = draft.product, self._manifest.input
        patches = len(draft.bank) if draft.bank else 0
        # Test-time augmentation of the paper compares each view of a picture with the bank.
        views = 1 + len(product.views) if product.tta == "paper" else 1
        scores = measurement.scores(pooling, cost=patches * views * window.rows * window.cols)
        return TriedSetting(
            bundle=self._bundle,
            tap=self._manifest.backbone.tap,
            size=(window.width, window.height),
            tta=product.tta,
            rotations=product.rotations,
            pooling=pooling,
            patches=patches,
            ms=measurement.ms,
            scores=scores,
            separation=scores.separation,
            by_kind={
                kind: scores.of_defects(
                    [k for k, (drawn, _) in enumerate(DEFECTS) if drawn == kind]
                ).separation
                for kind in DEFECT_KINDS
            },
        )


class _Measurement:
    """The scores and times of pictures against one bank, each part before its defects."""

    def __init__(self) -> None:
        self._scores: dict[Pooling, list[float]] = {pooling: [] for pooling in _poolings()}
        self._ms: list[float] = []

    def add(self, found: PictureEnergy) -> None:
        for pooling, scores in self._scores.items():
            scores.append(found.pooled(pooling))
        self._ms.append(sum(found.stages.values()))

    @property
    def ms(self) -> float:
        return float(np.median(self._ms))

    def scores(self, pooling: Pooling, cost: float) -> SettingScores:
        table = np.array(self._scores[pooling]).reshape(-1, 1 + len(DEFECTS))
        return SettingScores(table[:, 0], table[:, 1:], cost)


def _poolings() -> tuple[Pooling, ...]:
    return cast("tuple[Pooling, ...]", POOLINGS)


def _augmentations(product: Product) -> list[ProductFields]:
    """The augmentations to try: none, rotations, and the product's own."""
    rotations = product.rotations or ROTATIONS
    tried: dict[Tta, int | None] = {"none": None, "rotations": rotations}
    tried.setdefault(product.tta, None)
    return [_augmentation_fields(level, angles) for level, angles in tried.items()]


def _augmentation_fields(level: Tta, rotations: int | None) -> ProductFields:
    return {"tta": level} if rotations is None else {"tta": level, "rotations": rotations}


def _variants(part: NewPicture, seed: int, wanted: Mask) -> Iterator[Pixels]:
    """Yield the picture of a part, and then the picture with each drawn defect."""
    rgb = part.rgb
    yield rgb
    for defect in synthetic_defects(rgb, (seed, int(part.pixels[:8], 16)), wanted):
        yield defect.rgb


def _score(reader: EnergyReader, patches: PatchFeatures, name: str) -> PictureEnergy:
    try:
        return reader.score(patches)
    except ScoringError as error:
        raise ScoringError(f"{name} cannot be scored: {error.what}", hint=error.hint) from None
