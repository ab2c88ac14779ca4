"""Inspect a folder with many workers: the same rows as on one machine, in the same order.

Pictures are not sent over the network: a worker reads them where it runs. It sends back the row, a
thumbnail and, where one is wanted, the overlay. Every answer is written to a journal at once. When
all answers are there, the drift watch follows the rows in order, results.jsonl, results.csv and
report.html are written, and the journal is removed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from typing_extensions import TypedDict

from anoco_edge.bundle import Bundle
from anoco_edge.detector import DetectorConfig
from anoco_edge.drift import DriftWatch
from anoco_edge.errors import BundleError
from anoco_edge.fleet.cluster import Cluster
from anoco_edge.fleet.journal import Journal, fingerprint
from anoco_edge.fleet.pool import ATTEMPTS, Job, Pool, Task
from anoco_edge.pipeline.base import ProductSnapshot
from anoco_edge.results.overlay import draw_for_row
from anoco_edge.results.report_page import thumbnail
from anoco_edge.results.row_reader import row_from_json
from anoco_edge.results.rows import FailedJson, FailedRow, ResultJson, ResultRow, Row
from anoco_edge.results.runner import inspect_group, watched
from anoco_edge.results.sink import RunInfo
from anoco_edge.results.storage_errors import writing_results
from anoco_edge.results.summary import RunSummary
from anoco_edge.sinks.folder import (
    ReportPicture,
    ResultFolder,
    SavePolicy,
    overlay_name,
    wants_overlay,
)
from anoco_edge.sources.files import picture_frame

GROUPS = 4  # runs of the backbone in one task: beside them, sending the task costs nothing
THUMBNAILS = 10_000  # in the report; a browser cannot open a page with many more
Pictures = tuple[int, list[str]]  # the number of the first picture, and the paths of all


@dataclass(frozen=True)
class Answer:
    """What a worker sends back for one picture; thumbnail and overlay are JPEG files."""

    row: Row
    thumbnail: bytes | None = None
    overlay: bytes | None = None


class JournalEntry(TypedDict):
    """What the journal holds of one picture; the thumbnail is base64."""

    row: ResultJson | FailedJson
    thumbnail: str | None


class Inspector:
    """The job of a worker: it opens the detector, then inspects the pictures of each task."""

    def __init__(self, config: DetectorConfig, product: str, batch: int, save: SavePolicy) -> None:
        self._detector = config.detector()
        if self._detector.product.checksum != product:
            raise BundleError(
                f"{config.bundle} holds another {self._detector.product.name!r} there than here",
                hint="let all machines see the same bundle",
            )
        self._batch = batch
        self._save = save

    def __call__(self, pictures: Pictures) -> list[Answer]:
        first, paths = pictures
        batch = self._batch
        answers = []
        for start in range(0, len(paths), batch):
            frames = [picture_frame(path, 0) for path in paths[start : start + batch]]
            for one in inspect_group(self._detector, frames, first + start):
                row, drawn = one.row, None
                if (
                    isinstance(row, ResultRow)
                    and one.overlay is not None
                    and wants_overlay(self._save, row)
                ):
                    row, drawn = draw_for_row(row, one.overlay)
                small = None if one.frame.rgb is None else thumbnail(one.frame.rgb)
                answers.append(Answer(row, small, drawn))
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
        """Plan a run; a worker has one thread where none were asked for, as there are many."""
        settings = replace(config.settings, threads=config.settings.threads or 1)
        config = replace(config, settings=settings)
        snapshot = ProductSnapshot.of(Bundle.open(config.bundle), config.product, config.threshold)
        return FleetRun(config, snapshot, paths, out, save, keep, batch)

    def identity(self) -> dict[str, object]:
        """Return what tells this run from others: only the same command may continue it."""
        return {
            **asdict(self.config),
            "bundle": self.snapshot.bundle.manifest.checksum,
            "product": self.snapshot.product.checksum,
            "pictures": f"{len(self.paths)}, {fingerprint(self.paths)}",
            "save": self.save,
            "batch": self.batch,
        }

    def job(self) -> Job:
        """Return the job of the workers."""
        given = {
            "config": self.config,
            "product": self.snapshot.product.checksum,
            "batch": self.batch,
            "save": self.save,
        }
        return Job(__name__, Inspector.__name__, given)

    def tasks(self, done: Container[int]) -> Iterator[Task]:
        """Yield what is not done yet.

        Pictures share a run of the backbone as on one machine. Where some of a task are done and
        some are not, those left become tasks of one picture each.
        """
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
    """Do what the journal lacks, and return how many pictures each worker did."""
    shares: Counter[str] = Counter()
    pool = Pool(cluster, run.job(), say)
    for done in pool.run(run.tasks(pictures_in(journal))):
        first, paths = done.task.payload
        answers: list[Answer] | None = done.result
        if answers is None and len(paths) > 1:
            # One picture that ends every worker must not cost the others of its task.
            pool.add(_singles(range(first, first + len(paths)), paths))
            continue
        if answers is None:
            error = f"it ended {ATTEMPTS} workers, one after the other"
            answers = [Answer(FailedRow.from_error(first, paths[0], error))]
        journal.add(first, [_kept(run.out, answer) for answer in answers])
        shares[done.worker] += len(answers)
        for _ in answers:
            step(done.worker)
    return shares


def pictures_in(journal: Journal) -> set[int]:
    """Return the numbers of the pictures that are done."""
    return {first + k for first in journal.numbers() for k in range(journal.size(first))}


def write_rows(
    run: FleetRun,
    journal: Journal,
    title: str,
    watch: DriftWatch | None,
    on_row: Callable[[Row], None],
) -> tuple[RunSummary, ResultFolder]:
    """Write results.jsonl and results.csv, in order; `on_row` is called with every row."""
    summary = RunSummary()
    info = RunInfo.of(run.snapshot, title, live=False)
    folder = ResultFolder(run.out, info, save=run.save, keep=run.keep, continues=True)
    for found, _ in _rows(journal):
        row = watched(found, watch)
        folder.put(row)
        summary.count(row)
        on_row(row)
    summary.drift = watch.summary() if watch else None
    return summary, folder


def report_pictures(journal: Journal) -> Iterator[ReportPicture]:
    """Yield what the report shows, read from the disk one by one."""
    for row, small in _rows(journal):
        overlay = row.overlay if isinstance(row, ResultRow) else None
        yield ReportPicture(row, b64decode(small) if small else None, overlay)


def _rows(journal: Journal) -> Iterator[tuple[Row, str | None]]:
    for first in sorted(journal.numbers()):
        for entry in journal[first]:
            yield row_from_json(entry["row"]), entry["thumbnail"]


def _singles(numbers: Iterable[int], paths: Sequence[str]) -> Iterator[Task]:
    for number, path in zip(numbers, paths, strict=True):
        yield Task(number, (number, [path]))


def _kept(out: Path, answer: Answer) -> JournalEntry:
    """Return an answer as the journal holds it; the overlay is written to where it stays."""
    row, small = answer.row, None
    if answer.overlay is not None and isinstance(row, ResultRow):
        row = replace(row, overlay=overlay_name(row))
        path = out / overlay_name(row)
        with writing_results(path):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(answer.overlay)
    if answer.thumbnail is not None and row.id < THUMBNAILS:
        small = b64encode(answer.thumbnail).decode()
    return {"row": row.to_json(), "thumbnail": small}
