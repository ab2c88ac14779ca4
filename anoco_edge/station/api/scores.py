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
    """Return the lowest and highest ratio in equal spans of time, by default of the last day."""
    context = context_of(request)
    end = until or datetime.fromtimestamp(context.clock(), timezone.utc)
    begin = since or end - ONE_DAY
    return context.services.history.scores(begin, end, product=product, points=points)
