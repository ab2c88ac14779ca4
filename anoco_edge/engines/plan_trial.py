"""Tries a plan that was built with the bundle's self-test, where the plan can run."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.engines.tensorrt import TensorRtEngine, why_not
from anoco_edge.errors import ParityError
from anoco_edge.plans.build import BuildOutcome
from anoco_edge.plans.cache import PlanRecord, remove_plan
from anoco_edge.plans.device import current_device


@dataclass(frozen=True)
class PlanTrial:
    """A plan with the result of its self-test, or with the reason why it was not run."""

    outcome: BuildOutcome
    selftest: SelfTest | None
    not_run: str = ""


def try_plan(bundle: Bundle, outcome: BuildOutcome) -> PlanTrial:
    """Run the self-test with a plan, unless the plan was built for another machine.

    A plan that fails the test is removed from the cache before the `ParityError` goes on.

    Example, on a machine with a GPU and TensorRT::

        from anoco_edge import Bundle
        from anoco_edge.engines.plan_trial import try_plan
        from anoco_edge.plans.build import build_bundle_plan, default_plan_engine

        bundle = Bundle.open("line.anoco")
        trial = try_plan(bundle, build_bundle_plan(bundle, default_plan_engine()))
        print(trial.selftest or trial.not_run)
    """
    record = outcome.record
    reason = why_not(record.plan_engine) or _why_other_machines(record)
    if reason:
        return PlanTrial(outcome, None, reason)
    engine = TensorRtEngine(record.plan_engine, bundle, EngineSettings(), plan=record)
    try:
        return PlanTrial(outcome, check_engine(bundle, engine, force=outcome.built))
    except ParityError:
        remove_plan(record)
        raise
    finally:
        engine.close()


def _why_other_machines(record: PlanRecord) -> str:
    """Return why a plan cannot run on the GPU of this machine; empty where it can."""
    here = current_device().capability
    if record.targets and here not in record.targets:
        return f"it is for {', '.join(record.targets)}, and this GPU is {here}"
    return ""
