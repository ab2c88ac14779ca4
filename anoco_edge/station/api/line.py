"""The state of the line, its commands and its cameras."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, StrictInt
from starlette.concurrency import run_in_threadpool

from anoco_edge.station.api.parts import On
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import User
from anoco_edge.station.web.access import Engineer, Operator, Viewer
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.live_messages import StationState
from anoco_edge.station.web.problems import JPEG, NO_LINE, NOT_FOUND

router = APIRouter(prefix="/api/v1", tags=["line"])


class ProductNumber(Model):
    """The number of a product."""

    number: StrictInt = Field(ge=1, le=65535)


class Accepted(BaseModel):
    """The line has the command."""

    accepted: bool = True


@router.get("/state", response_model_by_alias=True)
async def state(request: Request, user: Viewer) -> StationState:
    """Return the state of the line."""
    return context_of(request).line.state


@router.post("/line/maintenance", status_code=202, responses=NO_LINE)
async def maintenance(request: Request, on: On, user: Operator) -> Accepted:
    """Pause the station, or let it go on."""
    return await _command(request, user, "maintenance", on)


@router.post("/line/reset", status_code=202, responses=NO_LINE)
async def reset(request: Request, user: Operator) -> Accepted:
    """Give up what is pending, forget faults, and begin again with the self-test."""
    return await _command(request, user, "reset", None)


@router.post("/line/change_product", status_code=202, responses=NO_LINE)
async def change_product(request: Request, product: ProductNumber, user: Operator) -> Accepted:
    """Judge the next parts by another product."""
    return await _command(request, user, "change_product", product)


@router.post("/line/enable", status_code=202, responses=NO_LINE)
async def enable(request: Request, on: On, user: Engineer) -> Accepted:
    """Set ENABLE in place of the PLC."""
    return await _command(request, user, "enable", on)


@router.post("/line/simulate", status_code=202, responses=NO_LINE)
async def simulate(request: Request, on: On, user: Engineer) -> Accepted:
    """Take simulated pictures in place of the cameras', or stop it."""
    return await _command(request, user, "simulate", on)


@router.get(
    "/cameras/{name}/picture", response_class=Response, responses={**NOT_FOUND, **NO_LINE, **JPEG}
)
async def picture(request: Request, name: str, user: Viewer) -> Response:
    """Return the latest picture of a camera (JPEG, at most 960 pixels wide)."""
    found = await context_of(request).line.frame(name)
    return Response(found, media_type="image/jpeg")


async def _command(request: Request, user: User, name: str, body: BaseModel | None) -> Accepted:
    context = context_of(request)
    values = body.model_dump() if body else {}
    await context.line.command(name, values)
    await run_in_threadpool(context.audit.write, user, name, "line", values)
    return Accepted()
