"""The audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from anoco_edge.station.web.access import Admin
from anoco_edge.station.web.context import context_of

router = APIRouter(prefix="/api/v1", tags=["audit"])


class EntryView(BaseModel):
    """Who did what to what, and when; `details` is JSON."""

    id: int
    at: str
    user: str
    via: str
    action: str
    subject: str
    details: str
    hash: str


class AuditPage(BaseModel):
    """Entries, the latest first; `next` is the `before` of the page after this one."""

    items: list[EntryView]
    next: int | None


class AuditCheck(BaseModel):
    """What a check of the whole chain found."""

    entries: int
    head: str
    holds: bool
    broken_at: int | None
    clock_set_back: int


@router.get("/audit")
def audit(
    request: Request,
    user: Admin,
    before: Annotated[int | None, Query(ge=1, le=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AuditPage:
    """Return entries of the audit."""
    found = context_of(request).audit.entries(before, limit)
    items = [EntryView.model_validate(vars(entry)) for entry in found]
    last = items[-1].id if len(items) == limit else 1
    return AuditPage(items=items, next=last if last > 1 else None)


@router.get("/audit/check")
def check(request: Request, user: Admin) -> AuditCheck:
    """Check the whole chain of the audit."""
    report = context_of(request).audit.check()
    return AuditCheck(**{name: getattr(report, name) for name in AuditCheck.model_fields})
