"""Scores good pictures against a bank that is not committed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, InputContract, Product
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.engines import Engine
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.images.preprocess import prepare
from anoco_edge.pipeline.energy import EnergyReader, PictureEnergy
from anoco_edge.pipeline.inspection import Verdict, verdict
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.postprocess import PostProcessor
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import Scorer, open_scorer, pool
from anoco_edge.scoring.types import Floats, References
from anoco_edge.teaching.bank_builder import Load

Pixels = NDArray[np.uint8]
Places = NDArray[np.integer[Any]]  # of patches, along one axis of the grid
Judge = Callable[[Pixels, str], tuple[float, Verdict]]
"""A function that gives the score and the verdict of a picture; it also takes the picture's name,
for errors."""


class DraftScorer:
    """Scores pictures with the bank and the settings of a draft."""

    def __init__(
        self,
        engine: Engine,
        window: InputContract,
        draft: Product,
        patch_mask: PatchMask,
        bank: Bank,
        scorer: str,
        load: Load,
    ) -> None:
        self.draft = draft
        self.bank = bank
        self.patch_mask = patch_mask
        self._engine = engine
        self._window = window
        self._scorer = scorer
        self._load = load

    def energies(
        self, pictures: Iterable[Pixels], baseline: BaselineGrid | None = None
    ) -> Iterator[PictureEnergy]:
        """Yield the energies of the pictures, against the whole bank.

        One picture is taken at a time, because those of a line camera are large.
        """
        yield from _read(self.reader(baseline), pictures)

    def reader(self, baseline: BaselineGrid | None = None) -> EnergyReader:
        """Open a reader that scores pictures against the whole bank."""
        return self._reader(self.bank.references, baseline)

    def leave_one_out(self, references: Iterable[int]) -> Iterator[float]:
        """Yield the score of each of these references against all other references."""
        for number in references:
            own = self.bank.reference == number
            if own.all():
                raise UsageError(
                    f"in a bank of {len(self.bank)} patches only "
                    f"{self.draft.references[number].name} of {len(self.draft.references)} "
                    "references is left",
                    hint="keep more patches (`max_patches`), or all of them (0)",
                )
            rest = References(self.bank.references.features[~own], self.bank.references.norms[~own])
            if self.draft.coreset is None and self.draft.tta != "paper":
                # The bank already holds every patch that is scored.
                itself = own & (self.bank.view == 0)
                energy = self._open(rest).score(self.bank.references.features[itself]).energy
                yield self._pooled(energy, self.bank.row[itself], self.bank.col[itself])
            else:
                yield from self._scores(rest, [self._load(self.draft.references[number])])

    def variations(self, pictures: Iterable[Pixels]) -> Iterator[float]:
        """Yield the scores of pictures that are variations of the only reference."""
        yield from self._scores(self.bank.references, pictures)

    def _scores(self, bank: References, pictures: Iterable[Pixels]) -> Iterator[float]:
        """Yield the score of each picture. Patches of zero norm are left out of the picture as they
        are left out of the bank. Without `paper`, only the picture itself is scored, no view."""
        if self.draft.tta == "paper":
            yield from (found.score for found in _read(self._reader(bank, None), pictures))
            return
        scorer, tiling = self._open(bank), Tiling(self._window, self.draft.tiles)
        for rgb in pictures:
            found, rows, cols = picture_features(self._engine, tiling, self.patch_mask, rgb)
            yield self._pooled(scorer.score(found).energy, rows, cols)

    def _pooled(self, energy: Floats, rows: Places, cols: Places) -> float:
        """Return the score of a picture whose scored patches lie at these rows and columns."""
        contract = self._window.tiled(self.draft.tiles)
        scored = np.zeros((contract.rows, contract.cols), np.bool_)
        grid = np.zeros(scored.shape, energy.dtype)
        scored[rows, cols], grid[rows, cols] = True, energy
        return pool(grid, self.draft.pooling, scored)

    def judge(self, baseline: BaselineGrid | None) -> Judge:
        """Make a function that decides on pictures as the detector will: a picture of another shape
        is refused, and a picture whose regions are all too small is good."""
        reader, threshold = self.reader(baseline), self.draft.threshold.value
        postprocessor = PostProcessor(
            reader.tiling.contract, threshold, self.draft.min_area, self.draft.pooling
        )

        def judge_picture(rgb: Pixels, name: str) -> tuple[float, Verdict]:
            self.patch_mask.check_size(rgb.shape[1], rgb.shape[0], name)
            (found,) = _read(reader, [rgb])
            return found.score, verdict(threshold, postprocessor.process(found).regions)

        return judge_picture

    def _reader(self, bank: References, baseline: BaselineGrid | None) -> EnergyReader:
        scorer = self._open(bank)
        return EnergyReader(
            self._engine, self._window, self.draft, self.patch_mask, scorer, baseline
        )

    def _open(self, bank: References) -> Scorer:
        # A relative lambda is that of the whole bank, also where a reference is left out.
        return open_scorer(self._scorer, bank, self.draft.parameters(self.bank.references))


def picture_features(
    engine: Engine, tiling: Tiling, patch_mask: PatchMask, rgb: Pixels
) -> tuple[Floats, Places, Places]:
    """Return the features of the patches of a picture that are scored and have a signal, and the
    rows and the columns of these patches."""
    pixels, placement = prepare(rgb, tiling.contract)
    scored = patch_mask.scored(placement)
    found: Floats = tiling.features(engine, pixels[None])[0]
    patches = scored.reshape(-1) & found.any(axis=1)
    rows, cols = np.nonzero(patches.reshape(scored.shape))
    return found[patches], rows, cols


def _read(reader: EnergyReader, pictures: Iterable[Pixels]) -> Iterator[PictureEnergy]:
    for rgb in pictures:
        (found,) = reader.read([rgb])
        if isinstance(found, AnocoError):
            raise found
        yield found
