"""API tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StrictInt

from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import Scope
from anoco_edge.station.web.access import Admin
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["tokens"])


class TokenView(BaseModel):
    """A token as the list shows it."""

    id: str
    name: str
    scope: Scope
    owner: str
    made: str
    expires: float | None
    used: str | None


class NewToken(Model):
    """A token to make; without `days` it does not expire."""

    name: str = Field(min_length=1, max_length=64)
    scope: Scope
    days: StrictInt | None = Field(default=None, ge=1, le=3650)


class MadeToken(BaseModel):
    """A new token, which is shown this once."""

    id: str
    token: str


@router.get("/tokens")
def tokens(request: Request, user: Admin) -> list[TokenView]:
    """Return all tokens."""
    return [TokenView.model_validate(vars(each)) for each in context_of(request).tokens.all()]


@router.post("/tokens", status_code=201)
def add(request: Request, given: NewToken, user: Admin) -> MadeToken:
    """Make a token, which acts with its scope and in the name of who makes it."""
    context = context_of(request)
    if user.via == "token":
        raise Problem(403, "Not allowed", "a token cannot make tokens")
    with context.database.write():
        id_, token = context.tokens.add(given.name, given.scope, user.name, given.days)
        details = {"name": given.name, "scope": given.scope, "days": given.days}
        context.audit.write(user, "token made", id_, details)
    return MadeToken(id=id_, token=token)


@router.delete("/tokens/{id_}", status_code=204, responses=NOT_FOUND)
def remove(request: Request, id_: str, user: Admin) -> None:
    """Make a token worthless."""
    context = context_of(request)
    with context.database.write():
        context.tokens.remove(id_)
        context.audit.write(user, "token removed", id_)
