"""Trials: a candidate judges beside the current generation, without a say."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, StrictInt

from anoco_edge.station.jobs.job_models import DryRunRequest, Job
from anoco_edge.station.jobs.shadow import Rule, Shadow
from anoco_edge.station.parts.captures import find_capture
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.products.archives import bundle_folder
from anoco_edge.station.web.access import Engineer, Viewer
from anoco_edge.station.web.context import StationContext, context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["shadow"])
Candidate = Annotated[str, Field(pattern=r"^([0-9a-f]{16}|bundle:[A-Za-z0-9_-]{1,64}\.anoco)$")]


class NewShadow(Model):
    """A trial: the dry run of a change, or a bundle that was sent, and for how many parts."""

    product: StrictInt = Field(ge=1, le=65535)
    capture: StrictInt = Field(default=0, ge=0, le=15)
    candidate: Candidate
    parts: StrictInt = Field(default=200, ge=1, le=100_000)
    rule: Rule = Rule()


@router.post("/shadow", status_code=201, responses=NOT_FOUND)
def begin(request: Request, user: Engineer, new: NewShadow) -> Shadow:
    """Begin a trial with the parts that come from now on."""
    context = context_of(request)
    find_capture(context.config, context.base, new.product, new.capture)
    _check_candidate(context, new)
    made = context.services.shadows.begin(
        new.product, new.capture, new.candidate, new.parts, new.rule, user.name
    )
    context.audit.write(user, "trial begun", f"product {new.product}", new.model_dump())
    context.trials.tell()
    return made


def _check_candidate(context: StationContext, new: NewShadow) -> None:
    if new.candidate.startswith("bundle:"):
        name = new.candidate.removeprefix("bundle:")
        if not (bundle_folder(context.folder) / name).is_dir():
            raise Problem(404, "No such bundle", f"there is no bundle {name} at the station")
        return
    request = context.services.jobs.request_of(new.candidate)
    if not isinstance(request, DryRunRequest):
        raise Problem(422, "Not a dry run", "make a dry run of the change first")
    if (request.product, request.capture) != (new.product, new.capture):
        raise Problem(422, "Another product", "the dry run was made for another product")


@router.get("/shadow")
def current(request: Request, user: Viewer) -> Shadow | None:
    """Return the latest trial, also one that is over."""
    return context_of(request).services.shadows.current()


@router.post(
    "/shadow/take",
    status_code=202,
    responses={**NOT_FOUND, 409: {"description": "A bundle is named in station.toml."}},
)
def take(request: Request, user: Engineer) -> Job:
    """Make the change of the trial, if the product is still as it was tried on."""
    return context_of(request).trials.take(user)


@router.post("/shadow/drop", responses=NOT_FOUND)
def drop(request: Request, user: Engineer) -> Shadow:
    """End the trial; nothing changes."""
    return context_of(request).trials.drop(user)
