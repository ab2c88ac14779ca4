"""What test-time augmentation will cost at every inspection, shown before it is accepted."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer

from anoco_edge.bundle import Bundle, InputContract, Product
from anoco_edge.cli.console import note
from anoco_edge.engines import Engine, EngineSettings, open_engine
from anoco_edge.errors import UsageError
from anoco_edge.pipeline.augmentation import OWN, PAIRED
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import References, open_scorer
from anoco_edge.teaching import NewPicture, Settings, TileSettings
from anoco_edge.teaching.drafts import picture_size, tiles_for

_SAMPLE = 4096  # rows of the bank that are timed; time grows in proportion to them


def accept_cost(
    path: Path,
    product: str | None,
    settings: Settings,
    new: int,
    *,
    first: str | None = None,
    engine: str = "auto",
    device: str = "CPU",
    yes: bool = False,
) -> None:
    """Says what augmentation costs and asks; without a terminal it wants --yes.

    Where a product has it already, tiles are asked about, and more references only noted. `first`
    of the `new` pictures is what tiles of a product without references are planned for.
    """
    bundle = Bundle.open(path)
    known = product or (bundle.product().name if bundle.products() else None)
    old = bundle.product(known) if known in bundle.products() else None
    level = settings.fields.get("tta", old.tta if old else "none")
    asked = "tta" in settings.fields or settings.tiles not in (None, TileSettings())
    if level == "none" or not (asked or new):
        return
    references = new + (len(old.references) if old else 0)
    bank = _Bank.planned(bundle.manifest.input, old, settings, references, first)
    opened = open_engine(engine, bundle, EngineSettings(device=device))
    note(_cost(bundle.manifest.input, bank, level, opened))
    if yes or not asked:
        return
    if not sys.stdin.isatty():
        raise UsageError("this cost was not accepted", hint="accept it with --yes")
    typer.confirm("go on?", abort=True, err=True)


@dataclass(frozen=True)
class _Bank:
    """What decides how large a bank becomes."""

    references: int
    tiling: Tiling
    dtype: str
    limit: int
    """The most patches that are kept; 0: all."""

    @staticmethod
    def planned(
        window: InputContract,
        old: Product | None,
        settings: Settings,
        references: int,
        first: str | None,
    ) -> _Bank:
        """As the product is, changed as the settings say."""
        tiles = old.tiles if old else None
        limit = old.coreset.max_patches if old and old.coreset else 0
        size = picture_size(old.references if old else ())
        if size is None and first is not None:
            picture = NewPicture.from_file(first)
            size = (picture.width, picture.height)
        if settings.tiles is not None and size is not None:
            tiles = tiles_for(settings.tiles, size, window)
        return _Bank(
            references=references,
            tiling=Tiling(window, tiles),
            dtype=settings.fields.get("bank_dtype", old.bank_dtype if old else "float16"),
            limit=limit if settings.max_patches is None else settings.max_patches,
        )

    def patches(self, views: int) -> int:
        """With so many views of each reference; fewer where views reach beyond the picture."""
        whole = self.tiling.contract
        made = self.references * views * whole.rows * whole.cols
        return min(made, self.limit) if self.limit else made


def _cost(window: InputContract, bank: _Bank, level: str, engine: Engine) -> str:
    views, whole = 1 + PAIRED + OWN, bank.tiling.contract
    patches = bank.patches(views)
    looks = 1 + PAIRED if level == "paper" else 1
    run = _seconds_of_a_run(engine, window) * bank.tiling.windows
    score = _seconds_of_a_pair(window) * whole.rows * whole.cols
    before, after = run + score * bank.patches(1), looks * (run + score * patches)
    megabytes = patches * whole.dim * np.dtype(bank.dtype).itemsize / 1e6
    runs = looks * bank.tiling.windows
    return (
        f"test-time augmentation {level!r}: {views} views of each of {bank.references} references "
        f"make a bank of up to {patches:,} patches ({megabytes:,.1f} MB in {bank.dtype}) instead "
        f"of {bank.patches(1):,}; a picture takes {runs} run{'s' if runs > 1 else ''} of the "
        f"backbone and about {after:.2g} s on this machine instead of {before:.2g} s"
    )


def _seconds_of_a_run(engine: Engine, window: InputContract) -> float:
    grey = np.full((1, window.height, window.width, 3), 128, np.uint8)
    engine.features(grey)
    start = time.perf_counter()
    engine.features(grey)
    return time.perf_counter() - start


def _seconds_of_a_pair(window: InputContract) -> float:
    """Of scoring one patch against one row of the bank."""
    rng = np.random.default_rng(0)
    bank, _ = References.of(rng.normal(size=(_SAMPLE, window.dim)).astype(np.float16))
    query = rng.normal(size=(window.rows * window.cols, window.dim)).astype(np.float32)
    scorer = open_scorer("auto", bank)
    scorer.score(query)
    start = time.perf_counter()
    scorer.score(query)
    return (time.perf_counter() - start) / (_SAMPLE * len(query))
