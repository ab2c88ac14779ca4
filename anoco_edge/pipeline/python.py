"""The road from pictures to inspections: in Python, with an engine and a scorer of choice.

`anoco_edge.pipeline.native` is the other one, which runs wholly in libanoco_edge.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, Bundle, Product
from anoco_edge.engines import EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.pipeline.energy import EnergyReader, PictureEnergy
from anoco_edge.pipeline.evidence import BankWitness
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.patch_mask import Geometry
from anoco_edge.pipeline.postprocess import Judgement
from anoco_edge.scoring import Parameters, choose_scorer, open_scorer

Pixels = NDArray[np.uint8]
Runtime = Literal["python", "native"]
RUNTIMES: tuple[Runtime, ...] = ("python", "native")


@dataclass(frozen=True)
class Loaded:
    """A picture in memory without gaps, its name ("" if it has none), and what that took in ms."""

    name: str
    rgb: Pixels
    decode: float


@dataclass(frozen=True)
class Subject:
    """What is inspected and by which threshold: one generation of a product."""

    bundle: Bundle
    product: Product
    bank: Bank
    geometry: Geometry
    threshold: float | None
    threshold_kind: str
    witness: BankWitness

    @staticmethod
    def of(bundle: Bundle, name: str | None, threshold: float | None) -> Subject:
        """Reads the product; a threshold given here is used in place of its own."""
        # Beyond these the ratio of a score and a threshold is no number in 32 bits any more.
        if threshold is not None and not 1e-30 <= threshold <= 1e30:
            raise UsageError(f"threshold is {threshold}", hint="it must be a number above 0")
        product = bundle.product(name)
        bank = bundle.bank(product)
        return Subject(
            bundle,
            product,
            bank,
            Geometry.of(bundle, product),
            product.threshold.value if threshold is None else threshold,
            product.threshold.kind if threshold is None else "manual",
            BankWitness(bundle, product, bank),
        )


class Road(Protocol):
    """Safe to share between threads. `choices` says for engine and scorer what runs, and why;
    `remarks` what runs slower than it could."""

    choices: dict[str, tuple[str, str]]
    selftest: SelfTest | None  # None: the native library made its own while it was opened

    @property
    def remarks(self) -> tuple[str, ...]: ...

    def inspect(self, pictures: Sequence[Loaded]) -> list[Inspection | AnocoError]:
        """A picture that cannot be inspected gives its error, and the others go on."""
        ...


def open_road(
    runtime: str, subject: Subject, engine: str, scorer: str, settings: EngineSettings
) -> Road:
    """The road of that name."""
    if runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}", hint=f"use {' or '.join(RUNTIMES)}")
    if runtime == "native":
        from anoco_edge.pipeline.native import NativeRoad

        return NativeRoad(subject, engine, scorer, settings)
    return PythonRoad(subject, engine, scorer, settings)


class PythonRoad:
    """Prepare, engine, scorer, map and verdict, a batch through one run of the engine."""

    def __init__(
        self, subject: Subject, engine: str, scorer: str, settings: EngineSettings
    ) -> None:
        bundle, product = subject.bundle, subject.product
        self.choices = {"engine": choose_engine(engine, bundle), "scorer": choose_scorer(scorer)}
        self._subject = subject
        baseline = bundle.baseline(product)
        self.engine = open_engine(self.choices["engine"][0], bundle, settings)
        self.selftest: SelfTest | None = check_engine(bundle, self.engine)
        opened = open_scorer(
            scorer,
            subject.bank.references,
            Parameters(product.lam, product.metric, product.floor),
            threads=settings.threads,
            half=bundle.manifest.backbone.precision == "fp16",
        )
        self.energies = EnergyReader(
            self.engine, bundle.manifest.input, product, subject.geometry, opened, baseline
        )
        self._judgement = Judgement(
            self.energies.canvas.contract, subject.threshold, product.min_area
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the engine says of how it runs."""
        said: tuple[str, ...] = getattr(self.engine, "remarks", ())
        return said

    def inspect(self, pictures: Sequence[Loaded]) -> list[Inspection | AnocoError]:
        """Through one run of the backbone, its time shared out evenly."""
        energies = self.energies.read([picture.rgb for picture in pictures])
        return [
            found if isinstance(found, AnocoError) else self._judge(picture, found)
            for picture, found in zip(pictures, energies, strict=True)
        ]

    def _judge(self, picture: Loaded, found: PictureEnergy) -> Inspection:
        start = time.perf_counter()
        judged = self._judgement.of(found)
        map_ms = (time.perf_counter() - start) * 1000
        timings = {"decode": picture.decode, **found.stages, "map": map_ms}
        timings["total"] = sum(timings.values())
        return Inspection(
            source=picture.name,
            product=self._subject.product.name,
            generation=self._subject.product.generation,
            score=found.score,
            threshold=self._subject.threshold,
            threshold_kind=self._subject.threshold_kind,
            energy=found.energy,
            counted=found.counted,
            regions=judged.regions,
            timings=timings,
            placement=found.placement,
            input_map=judged.input_map,
            outline=judged.outline,
            anchor=found.anchor,
            similarity=found.similarity,
            witness=self._subject.witness,
        )
