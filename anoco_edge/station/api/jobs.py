"""Jobs of the worker."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from anoco_edge.station.jobs.job_models import Job
from anoco_edge.station.web.access import Operator, Viewer
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["jobs"])
JobId = Annotated[str, Field(max_length=64)]


@router.get("/jobs")
def jobs(
    request: Request, user: Viewer, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> list[Job]:
    """Return the latest jobs, without their results."""
    return context_of(request).services.jobs.latest(limit)


@router.get("/jobs/{job}", responses=NOT_FOUND)
def one_job(request: Request, user: Viewer, job: JobId) -> Job:
    """Return a job with its result."""
    found = context_of(request).services.jobs.get(job)
    if found is None:
        raise Problem(404, "No such job", f"there is no job {job[:64]!r}")
    return found


@router.delete("/jobs/{job}", status_code=202, responses=NOT_FOUND)
def cancel(request: Request, user: Operator, job: JobId) -> Job:
    """End a job; one that is under way ends when nothing is left half done."""
    context = context_of(request)
    one_job(request, user, job)
    context.audit.write(user, "job cancelled", job)
    found = context.services.jobs.cancel(job)
    assert found is not None
    return found
