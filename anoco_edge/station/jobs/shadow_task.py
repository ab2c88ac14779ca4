"""The worker's side of a trial: the candidate judges the stored pictures of some parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.bundle import Bundle
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.replay import stored_picture
from anoco_edge.station.database import NAME as STATION
from anoco_edge.station.jobs.job_models import REQUEST, DryRunRequest, ShadowRequest
from anoco_edge.station.jobs.shadow import ShadowOutcome, ShadowPart
from anoco_edge.station.parts.captures import CapturePlace
from anoco_edge.station.products.archives import bundle_folder
from anoco_edge.station.products.past_parts import JudgePicture

if TYPE_CHECKING:
    from anoco_edge.station.jobs.tasks import Tasks

NOT_JUDGED = "no-verdict"
_RECORDED = "SELECT verdict, ratio FROM capture WHERE uid = ? AND number = ?"


def judge_parts(
    tasks: Tasks, request: ShadowRequest, tick: Callable[[float, str], None]
) -> ShadowOutcome:
    """Judge parts by the candidate of a trial, beside what was recorded about them."""
    place = tasks.place(request.product, request.capture)
    judge = _candidate(tasks, place, request.candidate)
    parts = []
    for count, uid in enumerate(request.uids):
        tick(count / len(request.uids), uid)
        with tasks.history.reading() as data:
            verdict, ratio = data.execute(_RECORDED, (uid, request.capture)).fetchone()
        new_ratio, new_verdict = _judged(tasks.folder, judge, uid, request.capture)
        parts.append(
            ShadowPart(
                uid=uid,
                verdict=verdict or NOT_JUDGED,
                ratio=ratio,
                new_verdict=new_verdict,
                new_ratio=new_ratio,
            )
        )
    return ShadowOutcome(parts=parts)


def _judged(folder: Path, judge: JudgePicture, uid: str, number: int) -> tuple[float | None, str]:
    """A picture that the candidate cannot inspect has no verdict by it: that is a difference."""
    try:
        found = judge(read_picture(stored_picture(folder, uid, number)), uid)
    except AnocoError:
        found = None
    return (None, NOT_JUDGED) if found is None else found


def _candidate(tasks: Tasks, place: CapturePlace, name: str) -> JudgePicture:
    """Open the candidate: a bundle that was sent, or the draft of a dry run."""
    if name.startswith("bundle:"):
        path = bundle_folder(tasks.folder) / name.removeprefix("bundle:")
        return tasks.judge_candidate(place, name, Bundle.open(path))
    with closing(sqlite3.connect(tasks.folder / STATION)) as data:
        row = data.execute("SELECT request FROM job WHERE id = ?", (name,)).fetchone()
    request = None if row is None else REQUEST.validate_json(row[0])
    if not isinstance(request, DryRunRequest):
        raise UsageError(f"{name[:40]!r} is not a dry run", hint="make a dry run first")
    return tasks.judge_candidate(place, name, request)
