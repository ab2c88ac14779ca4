"""Products: what is taught, what a change would do, and the change itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import Field, StrictFloat, StrictInt

from anoco_edge.station.api.parts import IMMUTABLE, Width
from anoco_edge.station.jobs.job_models import (
    MOST_PARTS,
    AddReferences,
    Calibrate,
    Change,
    CommitRequest,
    Digest,
    DryRunRequest,
    Job,
    MaskChange,
    PictureSource,
    Position,
    RegionChange,
    RemoveReferences,
    ThresholdChange,
    Undo,
)
from anoco_edge.station.parts.captures import CapturePlace, find_capture
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import User
from anoco_edge.station.products.changes import ChangeOutcome
from anoco_edge.station.products.product_view import (
    Histogram,
    ProductSummary,
    ProductView,
    histogram,
    mask_picture,
    product_view,
    reference_picture,
    summaries,
)
from anoco_edge.station.web.access import Engineer, Viewer
from anoco_edge.station.web.context import StationContext, context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem, Responses
from anoco_edge.station.web.services import commit_of

router = APIRouter(prefix="/api/v1", tags=["products"])
SAVE_SECONDS = 20.0
IfMatch = Annotated[str | None, Header(max_length=64)]
Last = Annotated[int, Query(ge=1, le=MOST_PARTS)]
CHANGED: Responses = {
    **NOT_FOUND,
    202: {"model": Job, "description": "It is under way: look at the job."},
    409: {"description": "The product is at another generation than the change was tried on."},
    412: {"description": "Somebody else changed the product meanwhile."},
    428: {"description": "If-Match with the generation is missing."},
    500: {"description": "The worker failed."},
    507: {"description": "The disk is full; nothing was changed."},
}


class WhatIf(Model):
    """A change that is tried on the last parts before it is made."""

    change: Change
    last: StrictInt = Field(default=1000, ge=1, le=MOST_PARTS)


class NewReferences(Model):
    """Pictures of good parts that are to become references."""

    pictures: list[PictureSource] = Field(min_length=1, max_length=2000)


class NewThreshold(Model):
    """A threshold; null goes back to the one that is computed."""

    value: StrictFloat | None = Field(gt=0, allow_inf_nan=False)


class NewRegion(Model):
    """A polygon in pixels of the references; no points remove the region."""

    points: list[tuple[Position, Position]] = Field(max_length=1000)


class NewMask(Model):
    """A mask that was sent; null removes it."""

    upload: Digest | None


class Apply(Model):
    """A dry run whose change is to be made."""

    job: str = Field(max_length=64)


def place_of(request: Request, number: int, capture: int) -> CapturePlace:
    """Return a capture of a product, or a problem where there is none."""
    context = context_of(request)
    return find_capture(context.config, context.base, number, capture)


Place = Annotated[CapturePlace, Depends(place_of)]
BASE = "/products/{number}/captures/{capture}"


@router.get("/products")
def products(request: Request, user: Viewer) -> list[ProductSummary]:
    """Return all products of the station, and what judges them."""
    context = context_of(request)
    places = [
        find_capture(context.config, context.base, product.number, capture)
        for product in context.config.products
        for capture in range(len(product.captures))
    ]
    product = context.line.state.product
    return summaries(context.config, places, product.number if product else None)


@router.get(BASE, responses=NOT_FOUND)
def view(request: Request, user: Viewer, place: Place, response: Response) -> ProductView:
    """Return all that the page of a product shows; its ETag is what If-Match has to say."""
    found = product_view(place, context_of(request).trust)
    response.headers["ETag"] = f'"{found.generation}"'
    return found


@router.get(f"{BASE}/reference/{{digest}}", response_class=Response, responses=NOT_FOUND)
def reference(
    user: Viewer,
    place: Place,
    digest: Annotated[str, Field(max_length=64)],
    width: Width = None,
) -> Response:
    """Return the picture of a reference."""
    found = reference_picture(place, digest, width)
    return Response(found.data, media_type=found.media_type, headers=IMMUTABLE)


@router.get(f"{BASE}/mask", response_class=Response, responses=NOT_FOUND)
def mask(user: Viewer, place: Place) -> Response:
    """Return the mask as a picture: what is white is left out."""
    found = mask_picture(place)
    return Response(found.data, media_type=found.media_type)


@router.get(f"{BASE}/histogram", responses=NOT_FOUND)
def scores_histogram(request: Request, user: Viewer, place: Place, last: Last = 1000) -> Histogram:
    """Return the scores of calibration and of the last parts, and the promise at each threshold."""
    return histogram(place, context_of(request).services.history, last)


# ---- dry runs


@router.post(f"{BASE}/what-if", status_code=202, responses=NOT_FOUND)
def what_if(request: Request, user: Engineer, place: Place, wanted: WhatIf) -> Job:
    """Try a change on the last parts; nothing is changed."""
    return dry_run(context_of(request), user, place, wanted.change, wanted.last)


@router.post(f"{BASE}/references", status_code=202, responses=NOT_FOUND)
def add(
    request: Request, user: Engineer, place: Place, new: NewReferences, last: Last = 1000
) -> Job:
    """Try parts that were good as references: which parts would flip, and what is promised then."""
    change = AddReferences(pictures=new.pictures)
    return dry_run(context_of(request), user, place, change, last)


@router.delete(f"{BASE}/references/{{digest}}", status_code=202, responses=NOT_FOUND)
def remove(
    request: Request,
    user: Engineer,
    place: Place,
    digest: Annotated[str, Field(max_length=64)],
    last: Last = 1000,
) -> Job:
    """Try the product without a reference, such as the one that hid a defect."""
    change = RemoveReferences(references=[digest])
    return dry_run(context_of(request), user, place, change, last)


@router.post(f"{BASE}/calibrate", status_code=202, responses=NOT_FOUND)
def calibrate(
    request: Request, user: Engineer, place: Place, wanted: Calibrate, last: Last = 1000
) -> Job:
    """Try the threshold that good parts give."""
    return dry_run(context_of(request), user, place, wanted, last)


def dry_run(
    context: StationContext, user: User, place: CapturePlace, change: Change, last: int
) -> Job:
    """Queue the dry run of a change of the product as it is now."""
    product = place.product(place.bundle())
    wanted = DryRunRequest(
        product=place.number,
        capture=place.capture,
        expected=product.generation if product else 0,
        change=change,
        last=last,
    )
    return context.services.jobs.submit(wanted, user.name)


# ---- changes


@router.post(f"{BASE}/apply", responses=CHANGED)
def apply(
    request: Request,
    response: Response,
    user: Engineer,
    place: Place,
    wanted: Apply,
    if_match: IfMatch = None,
) -> Job:
    """Make the change of a dry run, if the product is still as it was tried on."""
    context = context_of(request)
    commit = commit_of(context.services.jobs, wanted.job)
    if (commit.product, commit.capture) != (place.number, place.capture):
        raise Problem(422, "Another product", "the dry run was made for another product")
    if commit.expected != generation_in(if_match):
        words = f"the dry run was made on generation {commit.expected}"
        raise Problem(409, "Tried on another generation", words, hint="make the dry run again")
    return save(context, response, user, place, commit.change, commit.expected)


@router.post(f"{BASE}/threshold", responses=CHANGED)
def set_threshold(
    request: Request,
    response: Response,
    user: Engineer,
    place: Place,
    new: NewThreshold,
    if_match: IfMatch = None,
) -> Job:
    """Set the threshold."""
    change = ThresholdChange(value=new.value)
    return _save(request, response, user, place, change, if_match)


@router.post(f"{BASE}/region", responses=CHANGED)
def set_region(
    request: Request,
    response: Response,
    user: Engineer,
    place: Place,
    new: NewRegion,
    if_match: IfMatch = None,
) -> Job:
    """Set the region of interest."""
    change = RegionChange(points=new.points)
    return _save(request, response, user, place, change, if_match)


@router.post(f"{BASE}/mask", responses=CHANGED)
def set_mask(
    request: Request,
    response: Response,
    user: Engineer,
    place: Place,
    new: NewMask,
    if_match: IfMatch = None,
) -> Job:
    """Set the mask to a picture that was sent."""
    change = MaskChange(upload=new.upload)
    return _save(request, response, user, place, change, if_match)


@router.post(f"{BASE}/undo", responses=CHANGED)
def undo(
    request: Request, response: Response, user: Engineer, place: Place, if_match: IfMatch = None
) -> Job:
    """Go back to the generation before."""
    return _save(request, response, user, place, Undo(), if_match)


def _save(
    request: Request,
    response: Response,
    user: User,
    place: CapturePlace,
    change: Change,
    if_match: str | None,
) -> Job:
    expected = generation_in(if_match)
    return save(context_of(request), response, user, place, change, expected)


def generation_in(if_match: str | None) -> int:
    """Read the generation that If-Match names.

    >>> generation_in('"7"'), generation_in("7")
    (7, 7)
    """
    if if_match is None:
        words = "say in If-Match which generation the change was made for"
        raise Problem(428, "If-Match is missing", words)
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Problem(412, "Another generation", f"If-Match is {if_match[:40]!r}, not a generation")
    return int(text)


def save(
    context: StationContext,
    response: Response,
    user: User,
    place: CapturePlace,
    change: Change,
    expected: int,
) -> Job:
    """Have a change made and wait a little for it; a job that failed is a problem."""
    product = place.product(place.bundle())
    generation = product.generation if product else 0
    if generation != expected:
        words = f"the product is at generation {generation}, the change was made for {expected}"
        hint = "look at what changed meanwhile, and make the change again if it still holds"
        raise Problem(412, "Somebody else changed the product", words, hint=hint)
    wanted = CommitRequest(
        product=place.number, capture=place.capture, expected=expected, change=change
    )
    details = {"generation": expected, **change.model_dump(mode="json")}
    subject = f"product {place.number} capture {place.capture}"
    context.audit.write(user, f"product {change.what}", subject, details)  # before it is begun
    job = context.services.jobs.submit(wanted, user.name)
    job = context.services.jobs.wait(job.id, SAVE_SECONDS)
    if job.problem is not None:
        title = "It was not changed"
        raise Problem(job.problem.status, title, job.problem.detail, hint=job.problem.hint)
    if job.state != "done":
        response.status_code = 202
    else:
        ChangeOutcome.model_validate(job.result)
    return job
