"""The pipeline in Python: any engine and any scorer, then the map, the regions and the verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anoco_edge.engines import EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.errors import AnocoError
from anoco_edge.images.frame import Frame
from anoco_edge.pipeline.base import PipelineChoices, ProductSnapshot
from anoco_edge.pipeline.energy import EnergyReader, PictureEnergy
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.postprocess import PostProcessor
from anoco_edge.scoring import Parameters, choose_scorer, open_scorer


class PythonPipeline:
    """Preprocesses, extracts features, scores and postprocesses, with one engine run per batch."""

    def __init__(
        self, snapshot: ProductSnapshot, engine: str, scorer: str, settings: EngineSettings
    ) -> None:
        bundle, product = snapshot.bundle, snapshot.product
        self.choices: PipelineChoices = {
            "engine": choose_engine(engine, bundle),
            "scorer": choose_scorer(scorer),
        }
        self._snapshot = snapshot
        baseline = bundle.baseline(product)
        self.engine = open_engine(self.choices["engine"], bundle, settings)
        self.selftest: SelfTest | None = check_engine(bundle, self.engine)
        opened = open_scorer(
            self.choices["scorer"],
            snapshot.bank.references,
            Parameters(product.lam, product.metric, product.floor),
            threads=settings.threads,
            half=bundle.manifest.backbone.precision == "fp16",
        )
        self.energies = EnergyReader(
            self.engine, bundle.manifest.input, product, snapshot.patch_mask, opened, baseline
        )
        self._postprocessor = PostProcessor(
            self.energies.tiling.contract, snapshot.threshold, product.min_area
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the engine reports about how it runs."""
        said: tuple[str, ...] = getattr(self.engine, "remarks", ())
        return said

    def inspect(self, frames: Sequence[Frame]) -> list[Inspection | AnocoError]:
        """Inspect frames through one run of the backbone, whose time is shared out evenly."""
        energies = self.energies.read([frame.pixels for frame in frames])
        return [
            found if isinstance(found, AnocoError) else self._inspection(frame, found)
            for frame, found in zip(frames, energies, strict=True)
        ]

    def _inspection(self, frame: Frame, found: PictureEnergy) -> Inspection:
        start = time.perf_counter()
        output = self._postprocessor.process(found)
        map_ms = (time.perf_counter() - start) * 1000
        timings = {"decode": frame.decode_ms, **found.stages, "map": map_ms}
        timings["total"] = sum(timings.values())
        return Inspection(
            source=frame.source,
            product=self._snapshot.product.name,
            generation=self._snapshot.product.generation,
            score=found.score,
            threshold=self._snapshot.threshold,
            threshold_kind=self._snapshot.threshold_kind,
            energy=found.energy,
            scored=found.scored,
            regions=output.regions,
            timings=timings,
            placement=found.placement,
            input_map=output.input_map,
            outline=output.outline,
            anchor=found.anchor,
            similarity=found.similarity,
            evidence_lookup=self._snapshot.evidence_lookup,
        )
