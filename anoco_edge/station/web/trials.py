"""What becomes of a candidate: a person at the page and the PLC decide by the same functions.

The line is told of the candidate, which the PLC sees in the words CANDIDATE and
CANDIDATE_DIFFERENCES, and passes on what the PLC decides.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from anoco_edge.errors import AnocoError
from anoco_edge.line.core.events import CandidateStage
from anoco_edge.line.link.messages import CandidateRequest, DecisionEvent
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.job_models import Job
from anoco_edge.station.jobs.shadow import Shadow
from anoco_edge.station.people.roles import User
from anoco_edge.station.web.line_client import LineClient
from anoco_edge.station.web.problems import Problem
from anoco_edge.station.web.services import Services

_STAGES = {"running": CandidateStage.JUDGING, "waiting": CandidateStage.WAITING}
_log = logging.getLogger("anoco.station")


class Trials:
    """Takes and drops the candidate of the trial that is open, and tells the line of it.

    What the line says is done by a thread of its own, in the order in which it came.
    """

    def __init__(self, database: Database, services: Services, line: LineClient) -> None:
        self._database, self._services = database, services
        self._line = line
        self._telling = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "trials")
        line.on_connect = lambda: self._later(self.tell)
        line.on_decision = lambda decision: self._later(lambda: self.decide(decision))

    def take(self, user: User, trial: int | None = None) -> Job:
        """Make the change of the trial, of this one if it is named, if the product is still as it
        was tried on."""
        with self._services.deciding:
            shadow = self._open(trial)
            if shadow.candidate.startswith("bundle:"):
                words = "a bundle is taken by naming it in station.toml"
                raise Problem(409, "Not by the page", words)
            self._services.note_decision(user, "trial taken", shadow)
            job = self._services.take_shadow(shadow, user.name)
        self.tell()
        return job

    def drop(self, user: User, trial: int | None = None) -> Shadow:
        """End the trial, this one if it is named; nothing changes."""
        with self._services.deciding:
            shadow = self._open(trial)
            with self._database.write():
                self._services.shadows.end(shadow.id, "dropped", f"dropped by {user.name}")
                self._services.note_decision(user, "trial dropped", shadow)
        self.tell()
        found = self._services.shadows.current()
        assert found is not None
        return found

    def decide(self, decision: DecisionEvent) -> None:
        """Do what the PLC wants. What cannot be done changes nothing, and the log says so."""
        plc = User(decision.by, "engineer", "plc")
        try:
            if decision.take:
                self.take(plc, decision.trial)
            else:
                self.drop(plc, decision.trial)
        except (AnocoError, Problem, sqlite3.Error) as error:
            word = "TAKE" if decision.take else "DROP"
            _log.warning("%s_CANDIDATE by %s has no effect: %s", word, decision.by, error)

    def tell(self) -> None:
        """Tell the line of the candidate; a line that is away is told when it comes back."""
        with self._telling:
            if not self._line.connected:
                return
            try:
                self._line.ask_from_thread(_report(self._services.shadows.current()))
            except Exception as error:  # noqa: BLE001 (it is told again when it comes back)
                _log.warning("the line was not told of the candidate: %s", error)

    def close(self) -> None:
        """Do nothing more for the line."""
        self._thread.shutdown(cancel_futures=True)

    def _open(self, trial: int | None) -> Shadow:
        shadow = self._services.shadows.current()
        known = shadow is not None and trial in (None, shadow.id)
        if shadow is None or shadow.state not in _STAGES or not known:
            raise Problem(404, "No trial", "there is no trial to decide about")
        return shadow

    def _later(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # closed
            self._thread.submit(work)


def _report(shadow: Shadow | None) -> CandidateRequest:
    """Return what the line is told; of a trial that is over, that there is no candidate."""
    if shadow is None or shadow.state not in _STAGES:
        return CandidateRequest()
    differences = shadow.stricter + shadow.laxer
    return CandidateRequest(trial=shadow.id, stage=_STAGES[shadow.state], differences=differences)
