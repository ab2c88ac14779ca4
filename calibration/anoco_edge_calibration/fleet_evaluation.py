"""`eval --on`: units of an evaluation on many workers; the same figures as on one machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from anoco_edge.cli.console import counted, note, warn
from anoco_edge.cli.fleet import fleet_progress, needs_gpu
from anoco_edge.fleet.cluster import check_address, open_cluster
from anoco_edge.fleet.journal import NAME, Journal, fingerprint
from anoco_edge.fleet.pool import ATTEMPTS, Done, Job, Pool, Task
from anoco_edge_calibration.bundle_evaluation import open_cached_engine

if TYPE_CHECKING:
    from anoco_edge.engines import Engine
    from anoco_edge_calibration.evaluation import Evaluation, Plan
    from anoco_edge_calibration.feature_cache import CachedEngine, CacheUse
    from anoco_edge_calibration.gallery import Worst
    from anoco_edge_calibration.measuring import Contest, Measured, Unit


@dataclass(frozen=True)
class EngineChoice:
    """How a worker opens its own engine."""

    name: str
    device: str
    threads: int
    features: str | None
    """The folder they are kept in; workers that see the same one share them."""

    def open(self, contest: Contest) -> CachedEngine:
        """With its cache."""
        folder = None if self.features is None else Path(self.features)
        return open_cached_engine(contest.bundle, self.name, self.device, self.threads, folder)[0]


class Measurer:
    """What a worker does: measures the unit of each task."""

    def __init__(
        self, contest: Contest, engine: EngineChoice, shots: list[Any], categories: int
    ) -> None:
        self._engine = engine.open(contest)
        self._contest = replace(contest, engine=self._engine)
        self._shots = shots
        self._categories = categories
        self.steps = 0
        """Of the task at hand; the driver asks for it meanwhile."""

    def __call__(self, unit: Unit) -> dict[str, Any]:
        from anoco_edge_calibration.feature_cache import CacheUse
        from anoco_edge_calibration.gallery import Gallery
        from anoco_edge_calibration.measuring import measure
        from anoco_edge_calibration.parcels import pack_measured, pack_worst

        self.steps = 0
        self._engine.use = CacheUse()
        gallery = Gallery(self._contest.variants, self._shots, self._categories)
        found = measure(unit, self._contest, self._step, gallery.look)
        return {
            "measured": pack_measured(found),
            "worst": {name: pack_worst(worst) for name, worst in gallery.worst.items()},
            "windows": vars(self._engine.use),
        }

    def _step(self, _category: str) -> None:
        self.steps += 1


@dataclass(frozen=True)
class Spread:
    """An evaluation, and where its units are measured."""

    on: str
    workers: int
    plan: Plan
    contest: Contest
    engine: EngineChoice
    out: Path

    def run(self, use: CacheUse) -> tuple[Evaluation, dict[str, Worst]]:
        """Measure what the journal lacks, and put all together; `use` counts features."""
        from anoco_edge_calibration.evaluation import merge
        from anoco_edge_calibration.parcels import unpack_measured, unpack_worst

        check_address(self.on)
        units = self._units()
        with Journal(self.out, self._identity()) as journal:
            self._measure(units, journal)
            parts: list[Measured] = []
            worst: dict[str, Worst] = {}
            for number, unit in enumerate(units):
                for packed in journal[number]:
                    parts.append(unpack_measured(unit, packed["measured"]))
                    for name, one in packed["worst"].items():
                        if name not in worst or one["seed"] < worst[name].seed:
                            worst[name] = unpack_worst(one)
                    for kind, count in packed["windows"].items():
                        setattr(use, kind, getattr(use, kind) + count)
            return merge(self.plan, parts), worst

    def finish(self) -> None:
        """The results are written: what was kept to go on with may go."""
        (self.out / NAME).unlink(missing_ok=True)

    def _units(self) -> list[Unit]:
        """As small as features that are kept allow; neighbours are of different categories, so
        that workers do not compute the same features side by side."""
        if self.engine.features is None:
            return self.plan.units()
        draws = self.plan.draws()
        return sorted(self.plan.single_draws(), key=lambda unit: draws.index(unit.draws[0]))

    def _identity(self) -> dict[str, Any]:
        contest, data = self.contest, self.plan.dataset
        paths = [
            path
            for category in data.categories
            for path in (
                *category.train,
                *(p.path for p in category.test),
                *(p.mask for p in category.test if p.mask),
            )
        ]
        return {
            "bundle": contest.bundle.manifest.checksum,
            "product": contest.like.checksum if contest.like else None,
            "pictures": f"{len(paths)}, {fingerprint([str(path) for path in paths])}",
            "shots": list(self.plan.shots),
            "seeds": self.plan.seeds,
            "scorers": [variant.name for variant in contest.variants],
            "settings": repr(contest.settings),
            "scorer": contest.scorer,
            "batch": contest.batch,
            "engine": [self.engine.name, self.engine.device],
            "cache": self.engine.features is not None,
        }

    def _measure(self, units: list[Unit], journal: Journal) -> None:
        left = [number for number in range(len(units)) if number not in journal]
        if len(left) < len(units):
            done = len(units) - len(left)
            note(f"an unfinished run goes on: {done} of {counted(len(units), 'unit')} are done")
        if not left:
            return
        bare = replace(self.contest, engine=cast("Engine", None))  # a worker opens its own
        given = {"contest": bare, "engine": self.engine, "shots": list(self.plan.shots)}
        given["categories"] = len(self.plan.dataset.categories)
        job = Job(__name__, Measurer.__name__, given)
        threads, gpu = self.engine.threads, needs_gpu(self.engine.name)
        sizes = [self._steps(unit) for unit in units]
        before = sum(sizes) - sum(sizes[number] for number in left)
        try:
            with (
                open_cluster(self.on, workers=self.workers, threads=threads, gpu=gpu) as cluster,
                fleet_progress("measuring", sum(sizes), before) as step,
            ):
                progress = _Progress(step)
                pool = Pool(cluster, job, warn, progress.heard)
                for done_ in pool.run(Task(number, units[number]) for number in left):
                    journal.add(done_.task.number, [self._result(done_)])
                    progress.finished(done_.worker, sizes[done_.task.number])
        except KeyboardInterrupt:
            note("stopped before the end; the same command goes on")
            raise typer.Exit(130) from None

    def _steps(self, unit: Unit) -> int:
        return 2 * len(unit.category.test) * len(unit.draws) * len(self.contest.variants)

    @staticmethod
    def _result(done: Done) -> dict[str, Any]:
        """A unit that ends every worker is a problem of the evaluation, not its end."""
        from anoco_edge_calibration.measuring import Measured
        from anoco_edge_calibration.parcels import pack_measured

        if done.result is not None:
            found: dict[str, Any] = done.result
            return found
        lost = Measured(done.task.payload)
        draws = ", ".join(f"{shots} shots of seed {seed}" for shots, seed in lost.unit.draws)
        lost.report("", f"{draws} are left out: they ended {ATTEMPTS} workers, one after the other")
        return {"measured": pack_measured(lost), "worst": {}, "windows": {}}


class _Progress:
    """Adds up what workers say of tasks that they are at."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step
        self._at: dict[str, int] = {}

    def heard(self, worker: str, steps: int) -> None:
        """So far, of the task at hand."""
        for _ in range(steps - self._at.get(worker, 0)):
            self._step(worker)
        self._at[worker] = max(steps, self._at.get(worker, 0))

    def finished(self, worker: str, steps: int) -> None:
        """The whole task; a worker may have died over it before, and what it did counts once."""
        self.heard(worker, steps)
        self._at[worker] = 0
