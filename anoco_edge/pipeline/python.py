"""The pipeline in Python: any engine and any scorer, then the map, the regions and the verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anoco_edge.engines import DeviceEngine, EngineSettings
from anoco_edge.engines.device_scoring import check_device_scoring, why_not_on_gpu
from anoco_edge.engines.opening import open_tested_engine
from anoco_edge.engines.registry import prepare_gpu
from anoco_edge.engines.selftest import SelfTest
from anoco_edge.errors import AnocoError
from anoco_edge.images.frame import Frame
from anoco_edge.pipeline.base import PipelineChoices, ProductSnapshot, precision_name
from anoco_edge.pipeline.energy import EnergyReader, PictureEnergy
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.postprocess import PostProcessor
from anoco_edge.scoring import SCORERS, choose_scorer, open_scorer
from anoco_edge.scoring.half_operands import half_operands


class PythonPipeline:
    """Preprocesses, extracts features, scores and postprocesses, with one engine run per batch."""

    def __init__(
        self, snapshot: ProductSnapshot, engine: str, scorer: str, settings: EngineSettings
    ) -> None:
        bundle, product = snapshot.bundle, snapshot.product
        scorer_choice = choose_scorer(scorer)  # before an engine is loaded, which takes longer
        prepare_gpu(SCORERS.get(scorer_choice.name), settings)
        self._snapshot = snapshot
        baseline = bundle.baseline(product)
        tested = open_tested_engine(engine, bundle, settings, product)
        self.choices: PipelineChoices = {
            "engine": tested.choice,
            "scorer": scorer_choice,
            "cpu_precision": tested.precision,
        }
        self.engine = tested.engine
        self.selftest: SelfTest | None = tested.selftest
        away = why_not_on_gpu(tested.choice.name, scorer, scorer_choice.name)
        self._remarks = tuple(filter(None, (tested.remark, away)))
        if isinstance(self.engine, DeviceEngine) and SCORERS.get(scorer_choice.name).gpu:
            check_device_scoring(bundle, self.engine, scorer_choice.name)
        opened = open_scorer(
            self.choices["scorer"],
            snapshot.bank.references,
            product.parameters(snapshot.bank.references),
            threads=settings.threads,
            half=half_operands(bundle.manifest.backbone.precision),
        )
        self.energies = EnergyReader(
            self.engine, bundle.manifest.input, product, snapshot.patch_mask, opened, baseline
        )
        self._postprocessor = PostProcessor(
            self.energies.tiling.contract, snapshot.threshold, product.min_area, product.pooling
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the engine reports about how it runs, and what else is not as it should be."""
        said: tuple[str, ...] = getattr(self.engine, "remarks", ())
        return (*self._remarks, *said)

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
            cpu_precision=precision_name(self.choices),
        )
