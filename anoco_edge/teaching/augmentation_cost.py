"""Measures what augmentation costs: a larger bank and slower inspections.

The cost is measured on this machine before anything is changed, so that a person can decide.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from anoco_edge.bundle import InputContract, Product
from anoco_edge.engines import Engine
from anoco_edge.pipeline.augmentation import OWN, PAIRED
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import References, open_scorer
from anoco_edge.teaching.drafts import Settings, picture_size, rotations_of, tiles_for

# Scoring is timed against so many rows of a bank. Its time grows in proportion to them.
_SAMPLE = 4096


@dataclass(frozen=True)
class AugmentationCost:
    """The size of an augmented bank and the time of an inspection, beside those without it."""

    level: str
    references: int
    views: int
    """Views of each reference, the picture itself included."""
    patches: int
    """The most patches that the bank will hold. It holds fewer where views reach beyond the
    picture, or where turned views repeat a patch."""
    patches_without: int
    megabytes: float
    bank_dtype: str
    runs: int
    """Runs of the backbone for one inspected picture."""
    seconds: float
    """The time of one inspected picture on this machine."""
    seconds_without: float

    def in_words(self) -> str:
        """Return the cost as one sentence.

        >>> cost = AugmentationCost("paper", 4, 31, 1984, 64, 0.5, "float16", 26, 1.3, 0.05)
        >>> print(cost.in_words()[:66])
        augmentation 'paper': 31 views of each of 4 references make a bank
        """
        return (
            f"augmentation {self.level!r}: {self.views} views of each of "
            f"{self.references} references make a bank of up to {self.patches:,} patches "
            f"({self.megabytes:,.1f} MB in {self.bank_dtype}) instead of "
            f"{self.patches_without:,}; a picture takes {self.runs} "
            f"run{'s' if self.runs > 1 else ''} of the backbone and about {self.seconds:.2g} s on "
            f"this machine instead of {self.seconds_without:.2g} s"
        )


def measure_augmentation_cost(
    window: InputContract,
    engine: Engine,
    settings: Settings,
    *,
    product: Product | None = None,
    new: int = 0,
    size: tuple[int, int] | None = None,
) -> AugmentationCost | None:
    """Measure what augmentation will cost, or return None where the product will not have any.

    `window` is the bundle's input contract and `engine` runs its backbone. `settings` are about to
    change `product`, which is None when it does not exist yet, and `new` references are about to
    be added. `size` is the width and height of the first of them; tiles of a product without
    references are planned for it.

    Example::

        from anoco_edge import Bundle
        from anoco_edge.engines import open_engine
        from anoco_edge.teaching import Settings, measure_augmentation_cost

        bundle = Bundle.open("line.anoco")
        cost = measure_augmentation_cost(
            bundle.manifest.input,
            open_engine("auto", bundle),
            Settings({"tta": "paper"}),
            product=bundle.product(),
        )
        print(cost.in_words())
    """
    level = augmentation_level(settings, product)
    flips = settings.fields.get("flips", product.flips if product else False)
    if level == "none" and not flips:
        return None
    references = new + (len(product.references) if product else 0)
    bank = _BankSize.planned(window, settings, product, references, size)
    drawn = 1 + PAIRED + OWN if level in ("references", "paper") else 1
    views = (rotations_of(settings, product) or drawn) * (2 if flips else 1)
    whole = bank.tiling.contract
    inspected_views = 1 + PAIRED if level == "paper" else 1
    run = _seconds_of_a_run(engine, window) * bank.tiling.windows
    score = _seconds_of_a_pair(window) * whole.rows * whole.cols
    patches, patches_without = bank.patches(views), bank.patches(1)
    return AugmentationCost(
        level=_in_words(level, flips),
        references=references,
        views=views,
        patches=patches,
        patches_without=patches_without,
        megabytes=patches * whole.dim * np.dtype(bank.dtype).itemsize / 1e6,
        bank_dtype=bank.dtype,
        runs=inspected_views * bank.tiling.windows,
        seconds=inspected_views * (run + score * patches),
        seconds_without=run + score * patches_without,
    )


def augmentation_level(settings: Settings, product: Product | None) -> str:
    """Return the level that a product will have once the settings are applied.

    What `auto` chooses is not known before the pictures are compared: its cost is that of `none`.

    >>> augmentation_level(Settings({"tta": "paper"}), None), augmentation_level(Settings({}), None)
    ('paper', 'none')
    """
    level: str = settings.fields.get("tta", product.tta if product else "none")
    return "none" if level == "auto" else level


def _in_words(level: str, flips: bool) -> str:
    if not flips:
        return level
    return "flips" if level == "none" else f"{level} and flips"


@dataclass(frozen=True)
class _BankSize:
    """Everything that decides how large a bank becomes."""

    references: int
    tiling: Tiling
    dtype: str
    limit: int
    """The most patches that are kept. 0 means all of them."""

    @staticmethod
    def planned(
        window: InputContract,
        settings: Settings,
        product: Product | None,
        references: int,
        size: tuple[int, int] | None,
    ) -> _BankSize:
        """Return the size for a product as it is, changed as the settings say."""
        tiles = product.tiles if product else None
        limit = product.coreset.max_patches if product and product.coreset else 0
        size = picture_size(product.references if product else ()) or size
        if settings.tiles is not None and size is not None:
            tiles = tiles_for(settings.tiles, size, window)
        return _BankSize(
            references=references,
            tiling=Tiling(window, tiles),
            dtype=settings.fields.get("bank_dtype", product.bank_dtype if product else "float16"),
            limit=limit if settings.max_patches is None else settings.max_patches,
        )

    def patches(self, views: int) -> int:
        """Return the number of patches with so many views of each reference."""
        whole = self.tiling.contract
        made = self.references * views * whole.rows * whole.cols
        return min(made, self.limit) if self.limit else made


def _seconds_of_a_run(engine: Engine, window: InputContract) -> float:
    """Time the backbone on one gray picture, after a first run that is not timed."""
    gray = np.full((1, window.height, window.width, 3), 128, np.uint8)
    engine.features(gray)
    start = time.perf_counter()
    engine.features(gray)
    return time.perf_counter() - start


def _seconds_of_a_pair(window: InputContract) -> float:
    """Time scoring, and return its share for one patch against one row of the bank."""
    rng = np.random.default_rng(0)
    bank, _ = References.of(rng.normal(size=(_SAMPLE, window.dim)).astype(np.float16))
    query = rng.normal(size=(window.rows * window.cols, window.dim)).astype(np.float32)
    scorer = open_scorer("auto", bank)
    scorer.score(query)
    start = time.perf_counter()
    scorer.score(query)
    return (time.perf_counter() - start) / (_SAMPLE * len(query))
