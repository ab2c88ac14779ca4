"""The detector: one engine, one scorer, one product. Picture in, inspection out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, Bundle, Product
from anoco_edge.energy import EnergyReader, PictureEnergy
from anoco_edge.engines import EngineSettings, choose_engine, open_engine
from anoco_edge.errors import AnocoError, BundleError, UsageError
from anoco_edge.geometry import Geometry
from anoco_edge.inspection import Evidence, Inspection
from anoco_edge.judgement import Judgement
from anoco_edge.pictures import check_rgb, decode_picture, read_picture
from anoco_edge.preprocess import Placement, patch_box, place
from anoco_edge.scoring import Parameters, choose_scorer, open_scorer
from anoco_edge.selftest import check_engine
from anoco_edge.views import IDENTITY, box_in_source

Pixels = NDArray[np.uint8]
Picture: TypeAlias = "Pixels | str | os.PathLike[str]"


class Detector:
    """Inspects pictures for one product of a bundle. Immutable: share it between threads.

    >>> Detector.open("missing.anoco")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """

    def __init__(
        self,
        bundle: Bundle,
        product: str | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        settings: EngineSettings | None = None,
        threshold: float | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        if threshold is not None and not 0 < threshold < float("inf"):
            raise UsageError(f"threshold is {threshold}", hint="it must be a number above 0")
        self.bundle = bundle
        self.product = bundle.product(product)
        self.bank = bundle.bank(self.product)
        self.threshold = self.product.threshold.value if threshold is None else threshold
        self.threshold_kind = self.product.threshold.kind if threshold is None else "manual"
        self.choices = {"engine": choose_engine(engine, bundle), "scorer": choose_scorer(scorer)}
        self._geometry = Geometry.of(bundle, self.product)
        baseline = bundle.baseline(self.product)
        self._witness = BankWitness(bundle, self.product, self.bank)
        folder = bundle.product_folder(self.product.name)
        self._references = {r.name: r for r in self.product.references}
        for reference in self._references.values():  # missing evidence shows now, not at a reject
            bundle.locate(reference.file, folder)
        self._read_reference = lru_cache(maxsize=4)(self._load_reference)
        self.engine = open_engine(self.choices["engine"][0], bundle, settings)
        self.selftest = check_engine(bundle, self.engine)
        opened = open_scorer(
            scorer,
            self.bank.references,
            Parameters(self.product.lam, self.product.metric, self.product.floor),
            threads=settings.threads,
        )
        self._energies = EnergyReader(
            self.engine, bundle.manifest.input, self.product, self._geometry, opened, baseline
        )
        self._judgement = Judgement(
            self._energies.canvas.contract, self.threshold, self.product.min_area
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        product: str | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        settings: EngineSettings | None = None,
        threshold: float | None = None,
        allow_random: bool = False,
    ) -> Detector:
        """Open a bundle; a threshold given here overrides the product's own."""
        bundle = Bundle.open(path)
        if bundle.manifest.backbone.weights.random and not allow_random:
            raise BundleError(
                f"{bundle.path} was exported with random weights, so its verdicts mean nothing",
                hint="export it with real weights (or pass --allow-random to test the machinery)",
            )
        return cls(bundle, product, engine, scorer, settings=settings, threshold=threshold)

    def inspect(self, image: Picture) -> Inspection:
        """Inspect one picture: an HxWx3 uint8 RGB array, or a path."""
        return self.inspect_batch([image])[0]

    def inspect_batch(self, images: Sequence[Picture]) -> list[Inspection]:
        """Inspect pictures through one run of the backbone, its time shared out evenly."""
        results = []
        for result in self._inspect([self._load(image) for image in images]):
            if isinstance(result, AnocoError):
                raise result
            results.append(result)
        return results

    def inspect_many(
        self, images: Iterable[Picture], batch: int = 4
    ) -> Iterator[Inspection | AnocoError]:
        """Inspect in batches; a picture that cannot be inspected gives its error instead."""
        if batch < 1:
            raise UsageError(f"batch is {batch}", hint="it must be 1 or more")
        waiting = iter(images)
        while group := list(islice(waiting, batch)):
            outcome: list[Inspection | AnocoError | None] = [None] * len(group)
            loaded = []
            for k, image in enumerate(group):
                try:
                    loaded.append((k, self._load(image)))
                except AnocoError as error:
                    outcome[k] = error
            results = self._inspect([item for _, item in loaded])
            for (k, _), result in zip(loaded, results, strict=True):
                outcome[k] = result
            yield from (o for o in outcome if o is not None)

    def _load(self, image: Picture) -> tuple[str, Pixels, float]:
        start = time.perf_counter()
        if isinstance(image, (str, os.PathLike)):
            name, rgb = str(image), read_picture(Path(image))
        else:
            name, rgb = "", check_rgb(image, "the picture")
        self._geometry.check_size(rgb.shape[1], rgb.shape[0], name or "the picture")
        return name, rgb, (time.perf_counter() - start) * 1000

    def _inspect(
        self, loaded: Sequence[tuple[str, Pixels, float]]
    ) -> list[Inspection | AnocoError]:
        energies = self._energies.read([rgb for _, rgb, _ in loaded])
        return [
            found if isinstance(found, AnocoError) else self._judge(name, found, decode)
            for (name, _, decode), found in zip(loaded, energies, strict=True)
        ]

    def _judge(self, name: str, found: PictureEnergy, decode: float) -> Inspection:
        start = time.perf_counter()
        judged = self._judgement.of(found)
        timings = {"decode": decode, **found.stages, "map": (time.perf_counter() - start) * 1000}
        timings["total"] = sum(timings.values())
        return Inspection(
            source=name,
            product=self.product.name,
            generation=self.product.generation,
            score=found.score,
            threshold=self.threshold,
            threshold_kind=self.threshold_kind,
            energy=found.energy,
            counted=found.counted,
            regions=judged.regions,
            timings=timings,
            placement=found.placement,
            input_map=judged.input_map,
            outline=judged.outline,
            anchor=found.anchor,
            similarity=found.similarity,
            witness=self._witness,
        )

    def _load_reference(self, name: str) -> Pixels:
        folder = self.bundle.product_folder(self.product.name)
        return decode_picture(self.bundle.read(self._references[name].file, folder), name)

    def reference_picture(self, evidence: Evidence) -> Pixels:
        """The reference picture that a piece of evidence points at."""
        return self._read_reference(evidence.reference)


class BankWitness:
    """Finds the picture and the place behind a row of the bank."""

    def __init__(self, bundle: Bundle, product: Product, bank: Bank) -> None:
        self._contract = bundle.manifest.input.canvas(product.tiles)
        self._folder = bundle.product_folder(product.name)
        self._references = product.references
        self._shared_views = product.views
        self._bank = bank

    def evidence(
        self, anchor: int, similarity: float, row: int, col: int, placement: Placement
    ) -> Evidence:
        """Where the anchor of a query patch comes from."""
        reference = self._references[int(self._bank.reference[anchor])]
        there = place(self._contract, reference.width, reference.height)
        view = (IDENTITY, *self._shared_views, *reference.views)[int(self._bank.view[anchor])]
        r, c = int(self._bank.row[anchor]), int(self._bank.col[anchor])
        return Evidence(
            reference=reference.name,
            file=self._folder / reference.file.path,
            row=r,
            col=c,
            box=there.to_picture(box_in_source(view, patch_box(self._contract, r, c))),
            similarity=similarity,
            query_row=row,
            query_col=col,
            query_box=placement.to_picture(patch_box(self._contract, row, col)),
        )
