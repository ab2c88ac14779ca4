"""Whether the station lives, whether the line is ready, and figures for Prometheus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from anoco_edge.line.link.messages import FiguresRequest
from anoco_edge.line.metrics import CONTENT_TYPE
from anoco_edge.station.people.roles import User
from anoco_edge.station.web.access import require
from anoco_edge.station.web.context import StationContext, context_of
from anoco_edge.station.web.problems import Problem, Responses

router = APIRouter(tags=["health"])


class Live(BaseModel):
    """The web process answers."""

    live: bool = True


class Ready(BaseModel):
    """Whether a trigger would be served now, or one is until its result is acknowledged."""

    ready: bool
    connected: bool


NOT_READY: Responses = {503: {"model": Ready, "description": "A trigger would not be served now."}}


@router.get("/health/live")
async def live() -> Live:
    """Answer while the web process lives; the line has an answer of its own."""
    return Live()


@router.get("/health/ready", responses=NOT_READY)
async def ready(request: Request, response: Response) -> Ready:
    """Answer 200 while the line would serve a trigger or serves one; else 503."""
    line = context_of(request).line
    # Between two parts READY is low while a result waits for its acknowledgment.
    serves = line.connected and bool({"READY", "BUSY", "RESULT_VALID"} & set(line.state.bits))
    response.status_code = 200 if serves else 503
    return Ready(ready=serves, connected=line.connected)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(
    request: Request, user: Annotated[User, Depends(require("metrics"))]
) -> PlainTextResponse:
    """Return the figures of the line, and those of the station."""
    context = context_of(request)
    try:
        _, payload = await context.line.ask(FiguresRequest())
        line = payload.decode()
    except Problem:
        line = ""
    return PlainTextResponse(line + _figures(context), media_type=CONTENT_TYPE)


def _figures(context: StationContext) -> str:
    line, live = context.line, context.live
    lines: list[str] = []
    for name, kind, meaning, value in (
        ("line_connected", "gauge", "Whether the station reaches the line.", int(line.connected)),
        ("requests_total", "counter", "Requests.", context.traffic.requests),
        ("requests_refused_total", "counter", "Requests too fast.", context.traffic.refused),
        ("tabs", "gauge", "Open tabs.", live.tabs),
        ("tabs_dropped_total", "counter", "Tabs that read too slowly.", live.dropped),
        ("sessions", "gauge", "Sessions that have not ended.", context.sessions.count),
        (
            "link_messages_lost",
            "gauge",
            "Messages that the line did not keep for the station.",
            line.lost_messages,
        ),
    ):
        full = f"anoco_station_{name}"
        label = f'{{station="{context.config.station.name}"}}'
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full}{label} {value}"]
    return "\n".join(lines) + "\n"
