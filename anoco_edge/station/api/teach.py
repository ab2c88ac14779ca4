"""Teaching: pictures that are sent or taken, and the product that they make."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field, StrictInt
from starlette.concurrency import run_in_threadpool

from anoco_edge.images.decode import header_size
from anoco_edge.station.api.parts import Width
from anoco_edge.station.api.products import CHANGED, save
from anoco_edge.station.jobs.job_models import AddReferences, Digest, Job, PictureSource
from anoco_edge.station.parts.captures import find_capture
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.parts.pictures import copy_width, resized, shown
from anoco_edge.station.products.uploads import MOST_BYTES
from anoco_edge.station.web.access import Engineer, Operator, Viewer
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem, Responses

router = APIRouter(prefix="/api/v1", tags=["teach"])


class Upload(Model):
    """A picture that the station keeps for a week, by its digest."""

    digest: str
    width: int
    height: int


class FromCamera(Model):
    """A camera whose picture is taken."""

    camera: str = Field(max_length=64)


class Teach(Model):
    """Good parts that teach a product; it may have references already."""

    product: StrictInt = Field(ge=1, le=65535)
    capture: StrictInt = Field(default=0, ge=0, le=15)
    pictures: list[PictureSource] = Field(min_length=1, max_length=2000)


_PICTURE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}


_REFUSED: Responses = {
    413: {"description": "The picture is too large."},
    507: {"description": "The disk is full."},
}


@router.post("/uploads", status_code=201, openapi_extra=_PICTURE_BODY, responses=_REFUSED)
async def upload(request: Request, user: Operator) -> Upload:
    """Send one picture; the body is the file."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BYTES:
            words = f"a picture has at most {MOST_BYTES // 10**6} MB"
            raise Problem(413, "Too large", words)
    return await run_in_threadpool(_keep, request, bytes(data), "the picture")


@router.post("/uploads/camera", status_code=201, responses={**NOT_FOUND, **_REFUSED})
async def from_camera(request: Request, user: Operator, wanted: FromCamera) -> Upload:
    """Take the latest picture of a camera, as the judge gets it."""
    context = context_of(request)
    if wanted.camera not in [camera.name for camera in context.config.cameras]:
        raise Problem(404, "No such camera", f"there is no camera {wanted.camera!r}")
    data = await context.line.frame(wanted.camera, full=True)
    return await run_in_threadpool(_keep, request, data, wanted.camera)


def _keep(request: Request, data: bytes, name: str) -> Upload:
    digest = context_of(request).services.uploads.add(data, name)
    width, height = header_size(data, name)
    return Upload(digest=digest, width=width, height=height)


@router.get("/uploads/{digest}/picture", response_class=Response, responses=NOT_FOUND)
def picture(request: Request, user: Viewer, digest: Digest, width: Width = None) -> Response:
    """Return a picture that was sent or taken."""
    data = context_of(request).services.uploads.read(digest)
    found = shown(data) if width is None else resized(data, copy_width(width), digest)
    return Response(found.data, media_type=found.media_type)


@router.post("/teach", responses=CHANGED)
def teach(request: Request, response: Response, user: Engineer, wanted: Teach) -> Job:
    """Make pictures of good parts the references of a product; four are a good beginning.

    The result says how many more good parts have to calibrate until 1 % can be promised.
    """
    context = context_of(request)
    place = find_capture(context.config, context.base, wanted.product, wanted.capture)
    product = place.product(place.bundle())
    change = AddReferences(pictures=wanted.pictures)
    return save(context, response, user, place, change, product.generation if product else 0)
