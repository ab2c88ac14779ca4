"""Parts: search, pictures, explanations, reviews, pins and the export."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool
from starlette.concurrency import run_in_threadpool

from anoco_edge.station.jobs.job_models import ExplanationRequest, Job
from anoco_edge.station.parts.export import csv_pieces
from anoco_edge.station.parts.history import MOST_PARTS, History
from anoco_edge.station.parts.part_models import (
    Counts,
    Model,
    Part,
    PartPage,
    Review,
    ReviewVerdict,
)
from anoco_edge.station.parts.part_search import PartFilter, ReviewFilter
from anoco_edge.station.parts.reviews import MOST_NOTE
from anoco_edge.station.people.roles import User
from anoco_edge.station.products.explanation import Explanation
from anoco_edge.station.web.access import Operator, Viewer
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["parts"])
EXPLAIN_SECONDS, POLL_SECONDS, WRITTEN_SECONDS = 15.0, 0.2, 0.05
IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable"}


def _is_date(moment: object) -> object:
    """A number would be taken for seconds, which is never what a time of this API means."""
    if isinstance(moment, str) and "-" not in moment[1:]:
        raise ValueError("give a time like 2026-01-31T08:00:00Z")
    return moment


def _in_utc(moment: datetime) -> datetime:
    """A time without a zone is taken for UTC, as the data base holds it."""
    if not 1970 <= moment.year <= 9000:
        raise ValueError("give a year from 1970 to 9000")
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


Moment = Annotated[datetime, BeforeValidator(_is_date), AfterValidator(_in_utc)]
Ratio = Annotated[float, Query(ge=0, le=1e9, allow_inf_nan=False)]
Uid = Annotated[str, Field(max_length=200)]
CaptureNumber = Annotated[int, Path(ge=0, le=63)]
Width = Annotated[int | None, Query(ge=1, le=10_000)]


class NewReview(Model):
    """What a person says about a part."""

    verdict: ReviewVerdict
    note: str = Field(default="", max_length=MOST_NOTE)


class On(Model):
    """Whether something is to be on."""

    on: StrictBool


def part_filter(
    verdict: Literal["good", "anomalous", "no-verdict"] | None = None,
    reason: Annotated[str | None, Query(max_length=40)] = None,
    product: Annotated[int | None, Query(ge=1, le=65535)] = None,
    code: Annotated[str | None, Query(max_length=64)] = None,
    seq: Annotated[int | None, Query(ge=0, le=65535)] = None,
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
    min_ratio: Ratio | None = None,
    max_ratio: Ratio | None = None,
    review: ReviewFilter | None = None,
    pinned: bool | None = None,
) -> PartFilter:
    """Read what parts are searched for."""
    return PartFilter(
        verdict, reason, product, code, seq, since, until, min_ratio, max_ratio, review, pinned
    )


Wanted = Annotated[PartFilter, Depends(part_filter)]


async def row_written(request: Request, user: Viewer, uid: Uid) -> None:
    """Wait for the row of a part that was decided a moment ago: a page hears of it before that."""
    await _written(request, uid, lambda: history_of(request).part(uid))


async def picture_written(request: Request, user: Viewer, uid: Uid, number: CaptureNumber) -> None:
    """Wait for the picture of a part that was decided a moment ago, which follows its row."""
    await _written(request, uid, lambda: history_of(request).picture_of(uid, number))


async def _written(request: Request, uid: str, find: Callable[[], object]) -> None:
    live = context_of(request).live
    while live.decided_lately(uid) and await run_in_threadpool(find) is None:
        await asyncio.sleep(WRITTEN_SECONDS)


def history_of(request: Request) -> History:
    """Return the parts of the station that is asked."""
    return context_of(request).services.history


WITH_ROW, WITH_PICTURE = [Depends(row_written)], [Depends(picture_written)]


@router.get("/parts")
def search(
    request: Request,
    user: Viewer,
    wanted: Wanted,
    after: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PARTS)] = 50,
) -> PartPage:
    """Search parts, the newest first; `code` may end in `*`."""
    context = context_of(request)
    found = context.services.history.search(wanted, after=after, limit=limit)
    address = context.live.preview_address
    items = [part.model_copy(update={"preview": address(part.uid)}) for part in found.items]
    return found.model_copy(update={"items": items})


@router.get("/parts.csv", response_class=StreamingResponse)
def export(request: Request, user: Viewer, wanted: Wanted) -> StreamingResponse:
    """Return all parts of a search as CSV, as a stream."""
    headers = {"Content-Disposition": 'attachment; filename="parts.csv"'}
    history = context_of(request).services.history
    history.search(wanted, limit=1)  # what cannot be read is a problem before the answer begins
    pieces = csv_pieces(history, wanted)
    return StreamingResponse(pieces, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/counts", response_model_by_alias=True)
def counts(
    request: Request,
    user: Viewer,
    since: Annotated[Moment, Query(alias="from")],
    until: Annotated[Moment, Query(alias="to")],
    product: Annotated[int | None, Query(ge=1, le=65535)] = None,
) -> Counts:
    """Count the parts between two times."""
    return context_of(request).services.history.counts(since, until, product)


@router.get("/parts/{uid}", dependencies=WITH_ROW, responses=NOT_FOUND)
def part(request: Request, user: Viewer, uid: Uid) -> Part:
    """Return one part."""
    return require_part(request, uid)


@router.get(
    "/parts/{uid}/captures/{number}/picture",
    dependencies=WITH_PICTURE,
    response_class=Response,
    responses={**NOT_FOUND, 200: {"content": {"image/jpeg": {}, "image/png": {}}}},
)
def picture(
    request: Request, user: Viewer, uid: Uid, number: CaptureNumber, width: Width = None
) -> Response:
    """Return the stored picture of a capture, or a copy of about this width."""
    services = context_of(request).services
    path = services.history.picture_of(uid, number)
    if path is None:
        raise Problem(404, "No picture", "its picture was not kept, or was deleted since")
    found = services.pictures.read(path, width)
    return Response(found.data, media_type=found.media_type, headers=IMMUTABLE)


@router.get(
    "/parts/{uid}/captures/{number}/explanation",
    dependencies=WITH_PICTURE,
    response_model=Explanation,
    responses={**NOT_FOUND, 202: {"model": Job, "description": "It is being computed."}},
)
async def explanation(request: Request, user: Viewer, uid: Uid, number: CaptureNumber) -> Response:
    """Say why a capture got its verdict; it is computed once and then kept."""
    job = await run_in_threadpool(_explanation_job, request, user, uid, number)
    jobs, end = context_of(request).services.jobs, time.monotonic() + EXPLAIN_SECONDS
    while not job.over and time.monotonic() < end:
        await asyncio.sleep(POLL_SECONDS)  # no thread waits, or a few viewers could take all
        job = await run_in_threadpool(jobs.require, job.id)
    if job.problem is not None:
        raise Problem(
            job.problem.status, "It cannot be explained", job.problem.detail, hint=job.problem.hint
        )
    if job.state != "done":
        return Response(job.model_dump_json(), 202, media_type="application/json")
    return Response(json.dumps(job.result), media_type="application/json")


def _explanation_job(request: Request, user: User, uid: str, number: int) -> Job:
    require_part(request, uid)
    jobs = context_of(request).services.jobs
    wanted = ExplanationRequest(uid=uid, number=number)
    return jobs.same(wanted) or jobs.submit(wanted, user.name)


@router.put("/parts/{uid}/review", dependencies=WITH_ROW, responses=NOT_FOUND)
def review(request: Request, user: Operator, uid: Uid, new: NewReview) -> Review:
    """Note what a person says about a part: it was good, a defect, or a defect that was missed."""
    require_part(request, uid)
    context = context_of(request)
    with context.database.write():
        made = context.services.reviews.review(uid, new.verdict, new.note, user.name)
        context.audit.write(user, "review", uid, new.model_dump())
    return made


@router.delete("/parts/{uid}/review", status_code=204, dependencies=WITH_ROW, responses=NOT_FOUND)
def withdraw(request: Request, user: Operator, uid: Uid) -> None:
    """Take a review back."""
    require_part(request, uid)
    context = context_of(request)
    with context.database.write():
        if context.services.reviews.withdraw(uid):
            context.audit.write(user, "review withdrawn", uid)


@router.put("/parts/{uid}/pin", dependencies=WITH_ROW, responses=NOT_FOUND)
def pin(request: Request, user: Operator, uid: Uid, pinned: On) -> On:
    """Keep the pictures of a part for good, or leave them to the retention again."""
    require_part(request, uid)
    context = context_of(request)
    with context.database.write():
        context.services.reviews.pin(uid, user.name, on=pinned.on)
        context.audit.write(user, "pin", uid, pinned.model_dump())
    return pinned


def require_part(request: Request, uid: str) -> Part:
    """Return a part, or a problem where there is none."""
    found = context_of(request).services.history.part(uid)
    if found is None:
        raise Problem(404, "No such part", f"there is no part {uid[:80]!r}")
    return found
