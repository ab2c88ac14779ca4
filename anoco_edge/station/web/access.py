"""Finds out who makes a request, and refuses what their role does not allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from anoco_edge.station.people.roles import Role, User
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import Problem


class SignInNeededError(Exception):
    """Nobody is signed in and a page was asked for: the browser is sent to the sign-in page."""


def bearer(connection: HTTPConnection) -> str | None:
    """Return the API token of a request, or None if it has none."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def find_user(connection: HTTPConnection, *, active: bool = True) -> User | None:
    """Return who makes a request, by its token or else by the cookie of a session. A session goes
    on by requests that are `active`; a tab that is merely open is not."""
    context = context_of(connection)
    token = bearer(connection)
    if token is not None:
        return context.tokens.find(token)
    cookie = connection.cookies.get(context.cookie)
    return context.sessions.find(cookie, active=active) if cookie else None


def require(role: Role) -> Callable[[HTTPConnection], Awaitable[User]]:
    """Return a dependency that gives the user, if the role of the user allows it."""

    async def allowed(connection: HTTPConnection) -> User:
        user = await run_in_threadpool(find_user, connection)
        if user is None:
            headers = {"WWW-Authenticate": "Bearer"}
            raise Problem(401, "Not signed in", "sign in first, or send a token", headers=headers)
        if not user.may(role):
            words = f"{user.name} is {user.role}, this needs {role}"
            raise Problem(403, "Not allowed", words)
        return user

    return allowed


Viewer = Annotated[User, Depends(require("viewer"))]
Operator = Annotated[User, Depends(require("operator"))]
Engineer = Annotated[User, Depends(require("engineer"))]
Admin = Annotated[User, Depends(require("admin"))]
"""A parameter of a route that has to be allowed to users of this role."""


def require_page(role: Role) -> Callable[[HTTPConnection], Awaitable[User]]:
    """Return a dependency for pages: who is not signed in is sent to the sign-in page."""

    async def allowed(connection: HTTPConnection) -> User:
        user = await run_in_threadpool(find_user, connection)
        if user is None:
            raise SignInNeededError
        if not user.may(role):
            raise Problem(403, "Not allowed", f"{user.name} is {user.role}, this needs {role}")
        return user

    return allowed
