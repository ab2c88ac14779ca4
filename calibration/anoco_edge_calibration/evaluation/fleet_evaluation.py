"""Runs an evaluation on many workers; it gives the same figures as one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from anoco_edge.engines import Engine, needs_gpu
from anoco_edge.fleet.cluster import check_address, open_cluster
from anoco_edge.fleet.journal import NAME, Journal, fingerprint
from anoco_edge.fleet.pool import ATTEMPTS, Done, Job, Pool, Task
from anoco_edge_calibration.evaluation import merge
from anoco_edge_calibration.evaluation.bundle_evaluation import (
    BundleEvaluation,
    EngineRequest,
    EvaluationOutcome,
)
from anoco_edge_calibration.evaluation.feature_cache import CacheUse
from anoco_edge_calibration.evaluation.gallery import CategoryGallery, Gallery
from anoco_edge_calibration.evaluation.serialization import (
    pack_category_gallery,
    pack_unit_result,
    unpack_category_gallery,
    unpack_unit_result,
)
from anoco_edge_calibration.evaluation.unit import (
    EvaluationSetup,
    EvaluationUnit,
    UnitResult,
    measure_unit,
)

FleetProgress = Callable[[str, int, int], AbstractContextManager[Callable[[str], None]]]
"""Called with a title, the number of steps and how many are done; gives what counts one more."""


@contextmanager
def no_progress(_title: str, _total: int, _done: int) -> Iterator[Callable[[str], None]]:
    """Show no progress."""
    yield lambda _worker: None


class Measurer:
    """The work of one worker: it measures the unit of each task."""

    def __init__(
        self, setup: EvaluationSetup, engine: EngineRequest, shots: list[Any], categories: int
    ) -> None:
        self._engine, _ = engine.open(setup.bundle)
        self._setup = replace(setup, engine=self._engine)
        self._shots = shots
        self._categories = categories
        self.steps = 0
        """Steps of the current task that are done. The driver asks for them meanwhile."""

    def __call__(self, unit: EvaluationUnit) -> dict[str, Any]:
        self.steps = 0
        self._engine.use = CacheUse()
        gallery = Gallery(self._setup.variants, self._shots, self._categories)
        found = measure_unit(unit, self._setup, self._step, gallery.observe)
        return {
            "measured": pack_unit_result(found),
            "worst": {name: pack_category_gallery(worst) for name, worst in gallery.worst.items()},
            "windows": vars(self._engine.use),
        }

    def _step(self, _category: str) -> None:
        self.steps += 1


@dataclass(frozen=True)
class FleetEvaluation:
    """An evaluation, the workers that measure its units, and the folder of its journal.

    The journal keeps the units that are done, so that a run that was stopped goes on when it is
    started again.

    Example::

        from pathlib import Path

        from anoco_edge import Bundle
        from anoco_edge_calibration.evaluation import EvaluationPlan
        from anoco_edge_calibration.evaluation.bundle_evaluation import (
            BundleEvaluation,
            EngineRequest,
        )
        from anoco_edge_calibration.evaluation.fleet_evaluation import FleetEvaluation
        from anoco_edge_calibration.evaluation.layouts import open_dataset
        from anoco_edge_calibration.evaluation.variants import Variant

        plan = EvaluationPlan(open_dataset(Path("parts")), shots=(1,), seeds=2)
        bundle, engine = Bundle.open("line.anoco"), EngineRequest(threads=1)
        evaluation = BundleEvaluation.open(bundle, plan, [Variant("anoco")], engine=engine)
        fleet = FleetEvaluation("ray", 2, evaluation, Path("eval-out"))
        print(len(fleet.run().result.rows), "rows")
        fleet.finish()
    """

    on: str
    """`ray` for processes on this machine, or the address of a cluster: `ray://HOST:PORT`."""
    workers: int
    evaluation: BundleEvaluation
    out: Path

    def run(
        self,
        *,
        progress: FleetProgress = no_progress,
        note: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> EvaluationOutcome:
        """Measure the units that the journal lacks, and merge all of them into one evaluation.

        `note` and `warn` are called with what a person should know meanwhile. The windows that
        workers computed are added to the use of this process's engine.
        """
        check_address(self.on)
        units = self._units()
        use = self.evaluation.engine.use
        with Journal(self.out, self._identity()) as journal:
            self._measure(units, journal, progress, note, warn)
            parts: list[UnitResult] = []
            worst: dict[str, CategoryGallery] = {}
            for number, unit in enumerate(units):
                for packed in journal[number]:
                    parts.append(unpack_unit_result(unit, packed["measured"]))
                    for name, one in packed["worst"].items():
                        if name not in worst or one["seed"] < worst[name].seed:
                            worst[name] = unpack_category_gallery(one)
                    for kind, count in packed["windows"].items():
                        setattr(use, kind, getattr(use, kind) + count)
            return EvaluationOutcome(merge(self.evaluation.plan, parts), worst)

    def finish(self) -> None:
        """Remove the journal, once the results are written elsewhere."""
        (self.out / NAME).unlink(missing_ok=True)

    def _units(self) -> list[EvaluationUnit]:
        """Return the units of the plan, as small as the cache of features allows.

        Units that follow each other are of different categories, so that workers do not compute
        the same features at the same time.
        """
        plan = self.evaluation.plan
        if self.evaluation.request.features is None:
            return plan.units()
        draws = plan.draws()
        return sorted(plan.single_draws(), key=lambda unit: draws.index(unit.draws[0]))

    def _identity(self) -> dict[str, Any]:
        setup, plan = self.evaluation.setup, self.evaluation.plan
        engine = self.evaluation.request
        paths = [
            path
            for category in plan.dataset.categories
            for path in (
                *category.train,
                *(p.path for p in category.test),
                *(p.mask for p in category.test if p.mask),
            )
        ]
        return {
            "bundle": setup.bundle.manifest.checksum,
            "product": setup.like.checksum if setup.like else None,
            "pictures": f"{len(paths)}, {fingerprint([str(path) for path in paths])}",
            "turned by": plan.dataset.turn_seed,
            "shots": list(plan.shots),
            "seeds": plan.seeds,
            "scorers": [variant.name for variant in setup.variants],
            "settings": repr(setup.settings),
            "scorer": setup.scorer,
            "batch": setup.batch,
            "engine": [engine.name, engine.device],
            "cache": engine.features is not None,
        }

    def _measure(
        self,
        units: list[EvaluationUnit],
        journal: Journal,
        progress: FleetProgress,
        note: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        left = [number for number in range(len(units)) if number not in journal]
        if len(left) < len(units):
            done = len(units) - len(left)
            total = f"{len(units)} unit{'s' if len(units) > 1 else ''}"
            note(f"an unfinished run goes on: {done} of {total} are done")
        if not left:
            return
        sizes = [self._steps(unit) for unit in units]
        before = sum(sizes) - sum(sizes[number] for number in left)
        engine = self.evaluation.request
        threads, gpu = engine.threads, needs_gpu(engine.name)
        with (
            open_cluster(self.on, workers=self.workers, threads=threads, gpu=gpu) as cluster,
            progress("measuring", sum(sizes), before) as step,
        ):
            steps = _WorkerSteps(step)
            pool = Pool(cluster, self._job(), warn, steps.heard)
            for done_ in pool.run(Task(number, units[number]) for number in left):
                journal.add(done_.task.number, [self._result(done_)])
                steps.finished(done_.worker, sizes[done_.task.number])

    def _job(self) -> Job:
        """Return what a worker is given at its start; it opens an engine of its own."""
        setup, plan = self.evaluation.setup, self.evaluation.plan
        given = {
            "setup": replace(setup, engine=cast("Engine", None)),
            "engine": self.evaluation.request,
            "shots": list(plan.shots),
            "categories": len(plan.dataset.categories),
        }
        return Job(__name__, Measurer.__name__, given)

    def _steps(self, unit: EvaluationUnit) -> int:
        return 2 * len(unit.category.test) * len(unit.draws) * len(self.evaluation.setup.variants)

    @staticmethod
    def _result(done: Done) -> dict[str, Any]:
        """Return what a worker found. A unit that ends every worker is a problem of the
        evaluation, which goes on without it."""
        if done.result is not None:
            found: dict[str, Any] = done.result
            return found
        lost = UnitResult(done.task.payload)
        draws = ", ".join(f"{shots} shots of seed {seed}" for shots, seed in lost.unit.draws)
        lost.report("", f"{draws} are left out: they ended {ATTEMPTS} workers, one after the other")
        return {"measured": pack_unit_result(lost), "worst": {}, "windows": {}}


class _WorkerSteps:
    """Adds up the steps that workers report of their current tasks."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step
        self._at: dict[str, int] = {}

    def heard(self, worker: str, steps: int) -> None:
        """Count what is new of the steps that a worker has done of its current task."""
        for _ in range(steps - self._at.get(worker, 0)):
            self._step(worker)
        self._at[worker] = max(steps, self._at.get(worker, 0))

    def finished(self, worker: str, steps: int) -> None:
        """Count the rest of a task. Steps of a worker that died over it before count once."""
        self.heard(worker, steps)
        self._at[worker] = 0
