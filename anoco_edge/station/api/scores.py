"""Scores over time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Annotated

from fastapi import APIRouter, Query, Request

from anoco_edge.station.api.parts import Moment
from anoco_edge.station.parts.history import MOST_POINTS
from anoco_edge.station.parts.part_models import ScoreSeries
from anoco_edge.station.web.access import Viewer
from anoco_edge.station.web.context import context_of

router = APIRouter(prefix="/api/v1", tags=["scores"])
ONE_DAY = timedelta(days=1)


@router.get("/scores")
def scores(
    request: Request,
    user: Viewer,
    product: Annotated[int | None, Query(ge=1, le=65535)] = None,
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
    points: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 300,
) -> ScoreSeries:
    """Return the lowest and highest ratio in equal spans of time, by default of the last day, from
    the first part on that came in it."""
    context = context_of(request)
    history = context.services.history
    end = until or datetime.fromtimestamp(context.clock(), timezone.utc)
    begin = since or end - ONE_DAY
    if since is None:  # a station that began to work today would show an empty day before
        begin = history.first_part(begin, end, product) or begin
    return history.scores(begin, end, product=product, points=points)
