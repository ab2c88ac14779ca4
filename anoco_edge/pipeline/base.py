"""What every pipeline from pictures to inspections has in common.

`pipeline.python` runs an engine and a scorer of choice; `pipeline.native` runs everything inside
libanoco_edge. `open_pipeline` opens either of them by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, Bundle, Product
from anoco_edge.engines import EngineChoice, EngineSettings
from anoco_edge.engines.cpu_precision import PrecisionChoice
from anoco_edge.engines.selftest import SelfTest
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.images.frame import Frame
from anoco_edge.pipeline.evidence import EvidenceLookup
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.scoring import ScorerChoice

Pixels = NDArray[np.uint8]
Runtime = Literal["python", "native"]
RUNTIMES: tuple[Runtime, ...] = ("python", "native")


@dataclass(frozen=True)
class ProductSnapshot:
    """One generation of a product as it was when it was opened, and the threshold that applies."""

    bundle: Bundle
    product: Product
    patch_mask: PatchMask
    threshold: float | None
    threshold_kind: str

    @staticmethod
    def of(bundle: Bundle, name: str | Product | None, threshold: float | None) -> ProductSnapshot:
        """Read the product, or take the generation of it that is given; a threshold given here
        replaces the product's own."""
        # Outside this range the ratio of a score and the threshold overflows a 32-bit float.
        if threshold is not None and not 1e-30 <= threshold <= 1e30:
            raise UsageError(f"threshold is {threshold}", hint="it must be a number above 0")
        product = name if isinstance(name, Product) else bundle.product(name)
        return ProductSnapshot(
            bundle,
            product,
            PatchMask.of(bundle, product),
            product.threshold.value if threshold is None else threshold,
            product.threshold.kind if threshold is None else "manual",
        )

    @cached_property
    def bank(self) -> Bank:
        """The bank with its features, read on first use: the native library has its own copy."""
        return self.bundle.bank(self.product)

    @cached_property
    def evidence_lookup(self) -> EvidenceLookup:
        """Finds where the patches of the bank come from, without reading their features."""
        bank = self.__dict__.get("bank")
        index = self.bundle.bank_index(self.product) if bank is None else bank.index
        return EvidenceLookup(self.bundle, self.product, index)


class StageChoices(TypedDict):
    """The engine and the scorer that a pipeline runs, each with the reason for its choice."""

    engine: EngineChoice
    scorer: ScorerChoice


class PipelineChoices(StageChoices):
    """The same with the precision in which the engine computes on the processor.

    It is None where the engine computes elsewhere.
    """

    cpu_precision: PrecisionChoice | None


def precision_name(choices: PipelineChoices) -> str | None:
    """Return the precision that the processor computes in, as rows record it."""
    chosen = choices["cpu_precision"]
    return None if chosen is None else chosen.name


class Pipeline(Protocol):
    """Turns pictures into inspections. Threads may share a pipeline.

    `choices` names the engine and the scorer that run, each with the reason for its choice.
    `remarks` lists what runs slower than it could.
    """

    choices: PipelineChoices
    selftest: SelfTest | None  # None where the native library runs its own when it opens

    @property
    def remarks(self) -> tuple[str, ...]: ...

    def inspect(self, frames: Sequence[Frame]) -> list[Inspection | AnocoError]:
        """Inspect frames that have been read and whose pixels lie in contiguous memory.

        A frame that cannot be inspected gives its error in place of an inspection.
        """
        ...


def open_pipeline(
    runtime: str, snapshot: ProductSnapshot, engine: str, scorer: str, settings: EngineSettings
) -> Pipeline:
    """Open the pipeline of the runtime that is named `python` or `native`."""
    if runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}", hint=f"use {' or '.join(RUNTIMES)}")
    if runtime == "native":
        from anoco_edge.pipeline.native import NativePipeline

        return NativePipeline(snapshot, engine, scorer, settings)
    from anoco_edge.pipeline.python import PythonPipeline

    return PythonPipeline(snapshot, engine, scorer, settings)
