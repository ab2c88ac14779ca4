"""Users: their roles, passwords and PINs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import PersonRole
from anoco_edge.station.people.users import Account
from anoco_edge.station.web.access import Admin, Viewer
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["users"])


class UserView(BaseModel):
    """A user; neither password nor PIN."""

    name: str
    role: PersonRole
    has_pin: bool
    pin_locked: bool
    made: str


class NewUser(Model):
    """A user to add."""

    name: str = Field(max_length=200)
    role: PersonRole
    password: str = Field(max_length=1000)


class NewRole(Model):
    """Another role."""

    role: PersonRole


class NewPassword(Model):
    """Another password."""

    password: str = Field(max_length=1000)


class OwnPassword(Model):
    """One's own password: the old one and the new one."""

    old: str = Field(max_length=1000)
    new: str = Field(max_length=1000)


class NewPin(Model):
    """A PIN, or null to take it away."""

    pin: str | None = Field(max_length=100)


@router.get("/users")
def users(request: Request, user: Admin) -> list[UserView]:
    """Return all users."""
    return [_view(account) for account in context_of(request).users.all()]


@router.post("/users", status_code=201)
def add(request: Request, given: NewUser, user: Admin) -> UserView:
    """Add a user."""
    context = context_of(request)
    with context.database.write():
        context.users.add(given.name, given.role, given.password)
        context.audit.write(user, "user added", given.name, {"role": given.role})
    return _view(context.users.account(given.name))


@router.delete("/users/{name}", status_code=204, responses=NOT_FOUND)
def remove(request: Request, name: str, user: Admin) -> None:
    """Remove a user; sessions and tokens go, too."""
    context = context_of(request)
    with context.database.write():
        context.users.remove(name)
        context.audit.write(user, "user removed", name)


@router.put("/users/{name}/role", responses=NOT_FOUND)
def set_role(request: Request, name: str, given: NewRole, user: Admin) -> UserView:
    """Give a user another role, which holds from the next request on."""
    context = context_of(request)
    with context.database.write():
        before = context.users.account(name).role
        context.users.set_role(name, given.role)
        context.audit.write(user, "role changed", name, {"from": before, "to": given.role})
    return _view(context.users.account(name))


@router.put("/users/{name}/password", status_code=204, responses=NOT_FOUND)
def set_password(request: Request, name: str, given: NewPassword, user: Admin) -> None:
    """Give a user another password, which ends the user's sessions."""
    context = context_of(request)
    with context.database.write():
        context.users.set_password(name, given.password)
        context.audit.write(user, "password set", name)


@router.put("/users/{name}/pin", responses=NOT_FOUND)
def set_pin(request: Request, name: str, given: NewPin, user: Admin) -> UserView:
    """Give a viewer or an operator a PIN, or take it away."""
    context = context_of(request)
    with context.database.write():
        context.users.set_pin(name, given.pin)
        context.audit.write(user, "PIN set" if given.pin else "PIN removed", name)
    return _view(context.users.account(name))


@router.put("/password", status_code=204)
def own_password(request: Request, given: OwnPassword, user: Viewer) -> None:
    """Change one's own password, which ends all sessions, this one, too."""
    context = context_of(request)
    if user.via == "token":
        raise Problem(403, "Not allowed", "a token has no password")
    key = f"{user.name}@own password"
    wait = context.tries.wait(key)
    if wait:
        words = f"wait {int(wait) + 1} seconds before the next try"
        headers = {"Retry-After": str(int(wait) + 1)}
        raise Problem(429, "Too many wrong tries", words, headers=headers)
    if not context.users.knows(user.name, given.old):
        context.tries.fail(key)
        raise Problem(403, "Wrong password", "the old password is another one")
    context.tries.succeed(key)
    with context.database.write():
        context.users.set_password(user.name, given.new)
        context.audit.write(user, "password set", user.name)


def _view(account: Account) -> UserView:
    return UserView.model_validate(vars(account))
