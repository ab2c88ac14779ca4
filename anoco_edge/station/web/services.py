"""All that stands behind the pages about parts and products, opened together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.job_models import (
    CommitRequest,
    DryRunRequest,
    Job,
    JobRequest,
    ShadowRequest,
)
from anoco_edge.station.jobs.jobs import Jobs
from anoco_edge.station.jobs.shadow import Shadow, ShadowOutcome, Shadows
from anoco_edge.station.jobs.worker_messages import WorkerSetup
from anoco_edge.station.parts.captures import find_capture, numbers_of_same
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.pictures import Pictures
from anoco_edge.station.parts.reviews import Reviews
from anoco_edge.station.people.audit import Audit
from anoco_edge.station.people.roles import User
from anoco_edge.station.products.uploads import Uploads

TellLine = Callable[[int], None]
"""Tells the line that there is a new generation of a product, by its number."""
RULE = User("the rule of the trial", "engineer", "rule")
NICENESS = 5  # of the worker, beyond that of the web process
_log = logging.getLogger("anoco.station")


@dataclass(frozen=True)
class Services:
    """The history, the pictures, the jobs and the trials of a station."""

    history: History
    pictures: Pictures
    uploads: Uploads
    reviews: Reviews
    jobs: Jobs
    shadows: Shadows
    audit: Audit
    deciding: threading.Lock = field(default_factory=threading.Lock)
    """Held by who decides about a trial: its rule, a person or the PLC."""

    def start(self) -> None:
        """Begin to do jobs."""
        self.uploads.sweep()
        self.follow_rule()  # an earlier run may have ended before it could
        self.jobs.start()

    def close(self) -> None:
        """End the worker; a job under way is done again at the next start."""
        self.jobs.close()

    def take_shadow(self, shadow: Shadow, by: str) -> Job:
        """Make the change that a trial was about; the caller holds `deciding`."""
        request = commit_of(self.jobs, shadow.candidate)
        job = self.jobs.submit(request, by)
        self.shadows.end(shadow.id, "taken", f"taken by {by}", job.id)
        return job

    def follow_rule(self) -> None:
        """Do what the rule of a trial says that has judged all its parts, unless it was decided."""
        with self.deciding:
            shadow = self.shadows.current()
            if shadow is None or shadow.state != "waiting":
                return
            differences = shadow.stricter + shadow.laxer
            decision = shadow.rule.decide(differences)
            if decision == "take" and not shadow.candidate.startswith("bundle:"):
                try:
                    self.take_shadow(shadow, RULE.name)
                except AnocoError as error:
                    self.shadows.end(shadow.id, "failed", str(error))
                else:
                    self.note_decision(RULE, "trial taken", shadow)
            elif decision == "drop":
                words = f"dropped by its rule: {differences} parts were judged otherwise"
                self.shadows.end(shadow.id, "dropped", words)
                self.note_decision(RULE, "trial dropped", shadow)

    def note_decision(self, user: User, action: str, shadow: Shadow) -> None:
        """Write into the audit what became of a trial."""
        self.audit.write(user, action, f"product {shadow.product}", {"id": shadow.id})


def commit_of(jobs: Jobs, dry_run: str) -> CommitRequest:
    """Return the commit of a change whose dry run was made."""
    request = jobs.request_of(dry_run)
    if not isinstance(request, DryRunRequest):
        raise UsageError("this change has no dry run", hint="make a dry run first")
    return CommitRequest(
        product=request.product,
        capture=request.capture,
        expected=request.expected,
        change=request.change,
    )


def open_services(
    database: Database,
    config: StationConfig,
    base: Path,
    folder: Path,
    *,
    on_change: Callable[[Job], None] = lambda _: None,
    tell_line: TellLine = lambda _: None,
    tell_trial: Callable[[], None] = lambda: None,
    engine: str = "auto",
) -> Services:
    """Open the services of a station; `start` lets them work. `tell_trial` is called when a job has
    brought a trial on."""
    history = History(folder, {product.number: product.name for product in config.products})
    setup = WorkerSetup(
        config=config.model_dump_json(),
        base=str(base.absolute()),
        folder=str(folder.absolute()),
        engine=engine,
        niceness=NICENESS,
    )
    shadows = Shadows(database, history)
    jobs = Jobs(database, setup, on_change=on_change, spare=shadows.next_request)
    services = Services(
        history,
        Pictures(folder),
        Uploads(folder),
        Reviews(database),
        jobs,
        shadows,
        Audit(database),
    )

    def committed(request: CommitRequest) -> None:
        place = find_capture(config, base, request.product, request.capture)
        for number in numbers_of_same(config, base, place):
            try:
                tell_line(number)
            except Exception as error:  # noqa: BLE001 (the line is away: it opens the newest later)
                _log.warning("the line was not told of a new generation: %r", error)

    def ended(request: JobRequest, job: Job) -> None:
        if isinstance(request, ShadowRequest):
            _note_trial(services, request, job)
        elif isinstance(request, CommitRequest) and job.state != "done":
            why = job.problem.detail if job.problem else "the change was cancelled"
            services.shadows.take_failed(job.id, why)
        if isinstance(request, ShadowRequest):
            tell_trial()

    jobs.on_commit, jobs.on_end = committed, ended
    return services


def _note_trial(services: Services, request: ShadowRequest, job: Job) -> None:
    """Note what a trial found, and after its last part do what its rule says."""
    if job.state != "done":
        why = job.problem.detail if job.problem else "it was cancelled"
        services.shadows.end(request.shadow, "failed", why)
        return
    services.shadows.note(request.shadow, ShadowOutcome.model_validate(job.result))
    services.follow_rule()
