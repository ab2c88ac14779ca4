"""Inspecting a folder with many workers: the same rows as on one machine, in the same order.

Pictures travel through no network: a worker reads them where it is. What comes back is the row, a
thumbnail and, where one is wanted, the overlay. Every answer goes to a journal at once; when all
are there results.jsonl, results.csv and report.html are written in order, with the drift watch
looking on, and the journal goes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anoco_edge.bundle import Bundle
from anoco_edge.detector import DetectorConfig
from anoco_edge.drift import DriftWatch
from anoco_edge.errors import BundleError
from anoco_edge.fleet.cluster import Cluster
from anoco_edge.fleet.journal import Journal, fingerprint
from anoco_edge.fleet.pool import ATTEMPTS, Job, Pool, Task
from anoco_edge.pipeline.base import ProductSnapshot
from anoco_edge.results.report_page import thumbnail
from anoco_edge.results.runner import Summary, failed_row, inspect_group
from anoco_edge.sinks.folder import (
    ResultFolder,
    Row,
    SavePolicy,
    Shown,
    overlay_jpeg,
    overlay_name,
    writing_results,
)
from anoco_edge.sources.files import picture_frame

GROUPS = 4  # runs of the backbone a task: enough that sending it costs nothing beside them
THUMBNAILS = 10_000  # pictures in the report; a page with more of them cannot be opened
Pictures = tuple[int, list[str]]  # the number of the first, and their paths


class Inspector:
    """What a worker does: opens the detector, then inspects the pictures of each task."""

    def __init__(self, config: DetectorConfig, product: str, batch: int, save: SavePolicy) -> None:
        self._detector = config.detector()
        if self._detector.product.checksum != product:
            raise BundleError(
                f"{config.bundle} holds another {self._detector.product.name!r} there than here",
                hint="let all machines see the same bundle",
            )
        self._batch = batch
        self._save = save

    def __call__(self, pictures: Pictures) -> list[dict[str, Any]]:
        first, paths = pictures
        batch = self._batch
        answers = []
        for start in range(0, len(paths), batch):
            frames = [picture_frame(path, 0) for path in paths[start : start + batch]]
            inspected = inspect_group(self._detector, frames, first + start, self._save)
            for row, rgb, overlay in inspected:
                small = None if rgb is None else thumbnail(rgb)
                drawn = None if overlay is None else overlay_jpeg(overlay)
                answers.append({"row": row, "thumbnail": small, "overlay": drawn})
        return answers


@dataclass(frozen=True)
class FleetRun:
    """A folder of pictures, what inspects them, and where the results go."""

    config: DetectorConfig
    snapshot: ProductSnapshot
    paths: Sequence[str]
    out: Path
    save: SavePolicy
    keep: int
    batch: int

    @staticmethod
    def plan(
        config: DetectorConfig,
        paths: Sequence[str],
        out: Path,
        save: SavePolicy,
        keep: int,
        batch: int,
    ) -> FleetRun:
        """A worker has one thread where none were asked for: there are many workers."""
        settings = replace(config.settings, threads=config.settings.threads or 1)
        config = replace(config, settings=settings)
        snapshot = ProductSnapshot.of(Bundle.open(config.bundle), config.product, config.threshold)
        return FleetRun(config, snapshot, paths, out, save, keep, batch)

    def identity(self) -> dict[str, Any]:
        """What tells it from other runs: only the same command again may go on with it."""
        return {
            **asdict(self.config),
            "bundle": self.snapshot.bundle.manifest.checksum,
            "product": self.snapshot.product.checksum,
            "pictures": f"{len(self.paths)}, {fingerprint(self.paths)}",
            "save": self.save,
            "batch": self.batch,
        }

    def job(self) -> Job:
        """For the workers."""
        given = {"config": self.config, "product": self.snapshot.product.checksum}
        given |= {"batch": self.batch, "save": self.save}
        return Job(__name__, Inspector.__name__, given)

    def tasks(self, done: Container[int]) -> Iterator[Task]:
        """What is not done yet. Pictures share a run of the backbone as on one machine; where some
        are done and some not, those left go one by one."""
        size = self.batch * GROUPS
        for start in range(0, len(self.paths), size):
            numbers = range(start, min(start + size, len(self.paths)))
            left = [number for number in numbers if number not in done]
            if len(left) == len(numbers):
                yield Task(start, (start, list(self.paths[start : numbers.stop])))
            else:
                yield from _singles(left, [self.paths[number] for number in left])


def inspect_on(
    cluster: Cluster,
    run: FleetRun,
    journal: Journal,
    step: Callable[[str], None],
    say: Callable[[str], None],
) -> Counter[str]:
    """Do what the journal lacks; gives how many pictures each worker did."""
    shares: Counter[str] = Counter()
    pool = Pool(cluster, run.job(), say)
    for done in pool.run(run.tasks(pictures_in(journal))):
        first, paths = done.task.payload
        answers = done.result
        if answers is None and len(paths) > 1:
            # One picture that ends every worker must not cost those beside it.
            pool.add(_singles(range(first, first + len(paths)), paths))
            continue
        if answers is None:
            error = f"{paths[0]}: it ended {ATTEMPTS} workers, one after the other"
            answers = [{"row": failed_row(first, paths[0], error)}]
        journal.add(first, [_kept(run.out, answer) for answer in answers])
        shares[done.worker] += len(answers)
        for _ in answers:
            step(done.worker)
    return shares


def pictures_in(journal: Journal) -> set[int]:
    """The numbers of those that are done."""
    return {first + k for first in journal.numbers() for k in range(journal.size(first))}


def write_rows(
    run: FleetRun, journal: Journal, watch: DriftWatch | None, on_row: Callable[[Row], None]
) -> tuple[Summary, ResultFolder]:
    """results.jsonl and results.csv, in order."""
    summary = Summary()
    folder = ResultFolder(run.out, save=run.save, keep=run.keep, continues=True)
    for row, _ in _rows(journal):
        row["drift"] = watch.update(row) if watch else None
        folder.put(row)
        summary.count(row)
        on_row(row)
    summary.drift = watch.to_dict() if watch else None
    return summary, folder


def shown(journal: Journal) -> Iterator[Shown]:
    """What the report shows, read from the disk one by one."""
    for row, small in _rows(journal):
        yield Shown(row, b64decode(small or ""), row.get("overlay"))


def _rows(journal: Journal) -> Iterator[tuple[Row, str | None]]:
    for first in sorted(journal.numbers()):
        for answer in journal[first]:
            yield answer["row"], answer["thumbnail"]


def _singles(numbers: Iterable[int], paths: Sequence[str]) -> Iterator[Task]:
    for number, path in zip(numbers, paths, strict=True):
        yield Task(number, (number, [path]))


def _kept(out: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """As it goes to the journal; the overlay goes where it will stay."""
    row, small, overlay = (answer.get(name) for name in ("row", "thumbnail", "overlay"))
    assert row is not None
    if overlay is not None:
        row = {**row, "overlay": overlay_name(row)}
        path = out / row["overlay"]
        with writing_results(path):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(overlay)
    wanted = small is not None and row["id"] < THUMBNAILS
    return {"row": row, "thumbnail": b64encode(small).decode() if wanted and small else None}
