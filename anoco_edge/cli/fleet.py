"""The option --on of commands that can work on more than one machine, and what they print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli.console import err, note, out, plural, progress, warn
from anoco_edge.cli.views.verdicts import (
    SHOWN_ROWS,
    remark_threshold,
    say_kept,
    show_rows,
    show_summary,
)
from anoco_edge.text.plain_text import plain_json

if TYPE_CHECKING:
    from anoco_edge.detector import DetectorConfig
    from anoco_edge.fleet.inspecting import FleetRun
    from anoco_edge.fleet.journal import Journal
    from anoco_edge.results import RunSummary
    from anoco_edge.results.rows import Row
    from anoco_edge.sinks.drift_announcer import DriftAnnouncer
    from anoco_edge.sinks.folder import SavePolicy

OnOption = Annotated[
    str | None,
    typer.Option(
        metavar="ray|ray://HOST:PORT",
        help="Let many workers do it: processes on this machine, or those of a Ray cluster. A run "
        "that was stopped goes on when the same command is given again.",
    ),
]
WorkersOption = Annotated[
    int, typer.Option(min=0, help="With --on: workers; 0 for as many as there is room for.")
]
SAY_SECONDS = 10.0
KEPT_ROWS = 1000  # rows that are remembered for the table at the end


@contextmanager
def fleet_progress(title: str, total: int, done: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal and a line now and then elsewhere.

    Call the function that it yields with the name of the worker that finished one more.
    """
    started = said = time.monotonic()
    count = done
    with progress(title, total) as step:
        for _ in range(done):
            step()

        def one_more(worker: str) -> None:
            nonlocal count, said
            count += 1
            step(worker)
            now = time.monotonic()
            if not err.is_terminal and now - said >= SAY_SECONDS:
                said = now
                rate = (count - done) / (now - started)
                note(f"{title}: {count:,} of {total:,} ({rate:.1f} a second), {worker}")

        yield one_more


@dataclass(frozen=True)
class Fleet:
    """Where `infer` works, and what it prints."""

    on: str
    workers: int
    drift: bool
    json: bool

    def infer(
        self,
        config: DetectorConfig,
        inputs: Sequence[str],
        limit: int | None,
        out: Path,
        save: SavePolicy,
        keep: int,
        batch: int,
    ) -> RunSummary:
        """Inspect with many workers.

        Until the report is written, the same command continues a run that was stopped.
        """
        from anoco_edge.drift import DriftWatch
        from anoco_edge.fleet.cluster import check_address
        from anoco_edge.fleet.inspecting import FleetRun, report_pictures, write_rows
        from anoco_edge.fleet.journal import Journal
        from anoco_edge.results.earlier_runs import keep_earlier_run, lock_folder
        from anoco_edge.results.storage_errors import writing_results
        from anoco_edge.sinks.drift_announcer import DriftAnnouncer
        from anoco_edge.sources.files import find_pictures

        check_address(self.on)
        started = time.perf_counter()
        paths = find_pictures(inputs, "a video is read in one piece: leave --on out")[:limit]
        run = FleetRun.plan(config, paths, out, save, keep, batch)
        snapshot = run.snapshot
        remark_threshold(snapshot)
        watch = DriftWatch.of(snapshot.product, snapshot.threshold) if self.drift else None
        announcer = DriftAnnouncer(watch, note, warn) if watch else None
        rows = _TableRows(len(paths), announcer)
        with Journal(out, run.identity()) as journal:
            lock_folder(out, journal)
            if not journal.numbers():
                with writing_results(out):
                    say_kept(keep_earlier_run(out, journal=False))
            self._work(run, journal)
            name = inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
            title = f"{snapshot.bundle.name}: {name}"
            summary, folder = write_rows(run, journal, title, watch, rows.add)
            summary.seconds = time.perf_counter() - started
            if self.json:
                _emit(summary, out / "results.jsonl")
            else:
                show_rows(rows.kept, snapshot.threshold_kind)
                show_summary(summary, live=False, kind=snapshot.threshold_kind)
            folder.finish_with(summary, report_pictures(journal))
            journal.remove()
        note(f"report: {folder.report}")
        return summary

    def _work(self, run: FleetRun, journal: Journal) -> None:
        from anoco_edge.engines import needs_gpu
        from anoco_edge.fleet.cluster import open_cluster
        from anoco_edge.fleet.inspecting import inspect_on, pictures_in

        total, done = len(run.paths), len(pictures_in(journal))
        if done:
            note(f"an unfinished run goes on: {done:,} of {total:,} pictures are done")
        if done == total:
            return
        threads, gpu = run.config.settings.threads, needs_gpu(run.config.engine)
        try:
            with (
                open_cluster(self.on, workers=self.workers, threads=threads, gpu=gpu) as cluster,
                fleet_progress("inspecting", total, done) as step,
            ):
                shares = inspect_on(cluster, run, journal, step, warn)
        except KeyboardInterrupt:
            note("stopped before the end; the same command goes on")
            raise typer.Exit(130) from None
        for worker, count in sorted(shares.items()):
            note(f"{worker}: {plural(count, 'picture')}")


class _TableRows:
    """Remembers the rows of the table at the end: all of a few, otherwise those not good."""

    def __init__(self, total: int, announcer: DriftAnnouncer | None) -> None:
        self.kept: list[Row] = []
        self._few = total <= SHOWN_ROWS
        self._announcer = announcer

    def add(self, row: Row) -> None:
        """Take one more row."""
        if self._announcer is not None:
            self._announcer.announce(row)
        if self._few or (row.verdict != "good" and len(self.kept) < KEPT_ROWS):
            self.kept.append(row)


def _emit(summary: RunSummary, results: Path) -> None:
    """Print what `emit_json` would, without holding all rows in memory."""
    head = json.dumps({"summary": summary.to_json()}, ensure_ascii=False, allow_nan=False)
    out.file.write(f'{head[:-1]}, "results": [')
    with results.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            out.file.write((",\n" if number else "\n") + plain_json(line.rstrip("\n")))
    out.file.write("\n]}\n")
