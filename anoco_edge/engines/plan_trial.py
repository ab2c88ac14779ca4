"""Builds a plan and tries it with the bundle's self-test, where the plan can run.

A version of TensorRT that computes fused attention wrongly gets a plan with FP32 logits instead,
which is slower and right. That is remembered for this version, so it is found out once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.device_scoring import check_device_scoring
from anoco_edge.engines.product_trial import ProductTrial, measure_banks
from anoco_edge.engines.selftest import FeatureParityError, SelfTest, check_engine
from anoco_edge.engines.tensorrt import TensorRtEngine, why_not
from anoco_edge.errors import ParityError
from anoco_edge.plans.build import BuildOutcome, build_bundle_plan
from anoco_edge.plans.cache import PlanRecord, forget_fp32_logits, remove_plan
from anoco_edge.plans.device import current_device
from anoco_edge.plans.fp32_logits import NoHalfAttentionError
from anoco_edge.plans.tensorrt_builder import Progress
from anoco_edge.plans.tensorrt_modules import PlanEngine, title
from anoco_edge.scoring import SCORERS

_SCORER = "cuda"

Tell = Callable[[str], None]
"""Is called with what is worth a line."""


@dataclass(frozen=True)
class PlanTrial:
    """A plan with the result of its self-test, or with the reason why it was not run.

    `scoring_not_run` says why scoring on the GPU was not tested with it; empty if it passed.
    `products` are the times of both ways to multiply with each bank, of which the faster is used.
    """

    outcome: BuildOutcome
    selftest: SelfTest | None
    not_run: str = ""
    scoring_not_run: str = ""
    products: tuple[ProductTrial, ...] = ()


def build_tested_plan(
    bundle: Bundle,
    plan_engine: PlanEngine,
    *,
    targets: tuple[str, ...] = (),
    batch: int = 1,
    force: bool = False,
    workspace_mb: int | None = None,
    progress: Progress | None = None,
    tell: Tell = lambda _: None,
) -> PlanTrial:
    """Build a plan that passes the self-test: as the graph is, or else with FP32 logits.

    `tell` is called when a plan is removed and when the second is built. `ParityError` says that
    the plan of neither is right.

    Example, on a machine with a GPU and TensorRT::

        from anoco_edge import Bundle
        from anoco_edge.engines.plan_trial import build_tested_plan
        from anoco_edge.plans.build import default_plan_engine

        trial = build_tested_plan(Bundle.open("line.anoco"), default_plan_engine(), tell=print)
        print(trial.selftest or trial.not_run)
    """

    def build(force: bool, fp32_logits: str = "") -> BuildOutcome:
        return build_bundle_plan(
            bundle,
            plan_engine,
            targets=targets,
            batch=batch,
            force=force,
            workspace_mb=workspace_mb,
            progress=progress,
            fp32_logits=fp32_logits,
        )

    outcome = build(force)
    try:
        return try_plan(bundle, outcome, tell)
    except FeatureParityError as error:
        if outcome.fp32_logits:
            raise
        first = error
    version = outcome.record.fingerprint.version
    why = f"{title(plan_engine)} {version} computes the fused plan wrongly ({first.what})"
    tell(f"{why}; building it again with FP32 logits, which takes longer for each picture")
    try:
        outcome = build(True, why)
    except NoHalfAttentionError:
        raise first from None
    try:
        return try_plan(bundle, outcome, tell)
    except FeatureParityError as error:
        record = outcome.record
        forget_fp32_logits(record.graph, record.plan_engine, record.fingerprint)
        raise ParityError(f"with FP32 logits too: {error.what}", hint=error.hint) from None


def try_plan(bundle: Bundle, outcome: BuildOutcome, tell: Tell = lambda _: None) -> PlanTrial:
    """Run the self-test with a plan, unless the plan was built for another machine.

    A plan that fails the test is removed from the cache before the `ParityError` goes on.
    """
    record = outcome.record
    reason = why_not(record.plan_engine) or _why_other_machines(record)
    if reason:
        return PlanTrial(outcome, None, reason, reason)
    engine = TensorRtEngine(record.plan_engine, bundle, EngineSettings(), plan=record)
    try:
        selftest = _test_plan(bundle, engine, outcome, tell)
        no_scoring = SCORERS.get(_SCORER).why_not()
        products: tuple[ProductTrial, ...] = ()
        if not no_scoring:
            check_device_scoring(bundle, engine, _SCORER)
            products = measure_banks(bundle)
        return PlanTrial(outcome, selftest, scoring_not_run=no_scoring, products=products)
    finally:
        engine.close()


def _test_plan(
    bundle: Bundle, engine: TensorRtEngine, outcome: BuildOutcome, tell: Tell
) -> SelfTest:
    try:
        return check_engine(bundle, engine, force=outcome.built)
    except ParityError:
        remove_plan(outcome.record)
        tell(f"the plan was removed: {outcome.record.path}")
        raise


def _why_other_machines(record: PlanRecord) -> str:
    """Return why a plan cannot run on the GPU of this machine; empty where it can."""
    here = current_device().capability
    if record.targets and here not in record.targets:
        return f"it is for {', '.join(record.targets)}, and this GPU is {here}"
    return ""
