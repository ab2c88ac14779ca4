"""Evaluates a bundle on a data set, on this machine.

`BundleEvaluation` prepares everything that is measured; `evaluate_bundle` also measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle, Product
from anoco_edge.engines import EngineSettings, choose_engine, open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.teaching import NO_CHANGE, Settings
from anoco_edge_calibration.evaluation import Evaluation, EvaluationPlan, evaluate
from anoco_edge_calibration.evaluation.dataset import DataSet
from anoco_edge_calibration.evaluation.feature_cache import CachedEngine, cache_key
from anoco_edge_calibration.evaluation.gallery import CategoryGallery, Gallery
from anoco_edge_calibration.evaluation.prompts import check_prompts
from anoco_edge_calibration.evaluation.tables import Shots
from anoco_edge_calibration.evaluation.unit import EvaluationSetup, Step
from anoco_edge_calibration.evaluation.variants import Variant


@dataclass(frozen=True)
class EngineRequest:
    """How the engine of an evaluation is opened, as plain values that a worker can be sent."""

    name: str = "auto"
    device: str = "CPU"
    threads: int = 0
    features: str | None = None
    """The folder in which features are kept. Workers that see the same folder share them."""

    def open(
        self, bundle: Bundle, warn: Callable[[str], None] = lambda _: None
    ) -> tuple[CachedEngine, str]:
        """Open the engine behind its cache, and return it with its name and why it was chosen."""
        chosen, why = choose_engine(self.name, bundle)
        settings = EngineSettings(threads=self.threads, device=self.device)
        engine = open_engine(chosen, bundle, settings)
        check_engine(bundle, engine)
        contract = bundle.manifest.input
        shape = (contract.rows * contract.cols, contract.dim)
        folder = None if self.features is None else Path(self.features)
        cached = CachedEngine(engine, folder, cache_key(bundle, engine), shape, warn=warn)
        return cached, f"{chosen} ({why})"


@dataclass(frozen=True)
class EvaluationOutcome:
    """The figures, and for each category the pictures that were judged worst."""

    result: Evaluation
    worst: dict[str, CategoryGallery]


@dataclass(frozen=True)
class BundleEvaluation:
    """Everything that an evaluation needs: the plan, the compared variants and the engine."""

    plan: EvaluationPlan
    setup: EvaluationSetup
    engine: CachedEngine
    engine_words: str
    """The engine's name, and why it was chosen."""
    request: EngineRequest

    @staticmethod
    def open(
        bundle: Bundle,
        plan: EvaluationPlan,
        variants: Sequence[Variant],
        *,
        settings: Settings = NO_CHANGE,
        like: Product | None = None,
        engine: EngineRequest | None = None,
        scorer: str = "auto",
        batch: int = 4,
        warn: Callable[[str], None] = lambda _: None,
    ) -> BundleEvaluation:
        """Open the engine; the settings of the product `like` hold unless `settings` differ."""
        if any(variant.prompted for variant in variants):
            check_prompts(bundle, [category.name for category in plan.dataset.categories])
        request = engine or EngineRequest()
        opened, words = request.open(bundle, warn)
        threads = request.threads
        setup = EvaluationSetup(bundle, opened, variants, settings, like, scorer, threads, batch)
        return BundleEvaluation(plan, setup, opened, words, request)

    def run(self, step: Step = lambda _: None) -> EvaluationOutcome:
        """Measure everything here; `step` is called with a category for each picture."""
        categories = len(self.plan.dataset.categories)
        gallery = Gallery(self.setup.variants, self.plan.shots, categories)
        result = evaluate(self.plan, self.setup, step, gallery.observe)
        return EvaluationOutcome(result, gallery.worst)


def evaluate_bundle(
    bundle: Bundle,
    dataset: DataSet,
    *,
    shots: Sequence[Shots] = (4,),
    seeds: int = 1,
    variants: Sequence[Variant] = (Variant("anoco"),),
    settings: Settings = NO_CHANGE,
    like: Product | None = None,
    engine: EngineRequest | None = None,
) -> Evaluation:
    """Measure how well a bundle finds the defects of a data set.

    Each category is taught with so many of its good training pictures (`shots`), drawn by each of
    the seeds 0 to `seeds` - 1, and all of its test pictures are scored.

    Example::

        from pathlib import Path

        from anoco_edge import Bundle
        from anoco_edge_calibration.evaluation.bundle_evaluation import evaluate_bundle
        from anoco_edge_calibration.evaluation.layouts import open_dataset

        bundle, dataset = Bundle.open("line.anoco"), open_dataset(Path("parts"))
        for row in evaluate_bundle(bundle, dataset, shots=(1, 2)).rows:
            print(row.category, row.shots, row.seed, row.figures["image_auroc"])
    """
    plan = EvaluationPlan(dataset, shots, seeds)
    plan.check()
    evaluation = BundleEvaluation.open(
        bundle, plan, variants, settings=settings, like=like, engine=engine
    )
    return evaluation.run().result
