"""Signing in and out, the first user, and the browsers on which a PIN is enough."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, model_validator

from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import Role, User, Via
from anoco_edge.station.people.sessions import LONGEST_SECONDS, csrf_token
from anoco_edge.station.web.access import Admin, Engineer, find_user
from anoco_edge.station.web.context import StationContext, context_of
from anoco_edge.station.web.problems import NOT_FOUND, Problem, Responses

router = APIRouter(prefix="/api/v1", tags=["session"])
YEARS = 5 * 365 * 86400
CHECKED: Responses = {503: {"description": "Too many passwords are being checked."}}
SET_UP: Responses = {409: {"description": "There is a user already."}}


class SignIn(Model):
    """A name with a password, or with a PIN on a browser that is enrolled."""

    name: str = Field(max_length=200)
    password: str | None = Field(default=None, max_length=1000)
    pin: str | None = Field(default=None, max_length=100)

    @model_validator(mode="after")
    def _one_of_both(self) -> SignIn:
        if (self.password is None) == (self.pin is None):
            raise ValueError("give a password or a PIN")
        return self


class Setup(Model):
    """The code from the console, and the first admin."""

    code: str = Field(max_length=100)
    name: str = Field(max_length=200)
    password: str = Field(max_length=1000)


class SessionView(BaseModel):
    """Who is signed in, what to send along with changes, and whether PINs work on this browser."""

    name: str | None = None
    role: Role | None = None
    via: Via | None = None
    csrf: str | None = None
    setup_needed: bool = False
    pin_allowed: bool = False


class Browser(BaseModel):
    """A browser on which a PIN is enough."""

    id: str
    label: str
    made: str
    made_by: str


class NewBrowser(Model):
    """What the list of browsers shows for this one."""

    label: str = Field(min_length=1, max_length=100)


@router.get("/session")
def who(request: Request) -> SessionView:
    """Return who is signed in."""
    return _view(request, find_user(request), None)


@router.post("/session", responses=CHECKED)
def sign_in(request: Request, response: Response, given: SignIn) -> SessionView:
    """Begin a session. After five wrong tries each further one has to wait longer."""
    context = context_of(request)
    client = request.client.host if request.client else ""
    key = f"{given.name}@{client}"
    wait = max(context.tries.wait(key), context.address_tries.wait(client))
    if wait:
        headers = {"Retry-After": str(int(wait) + 1)}
        words = f"wait {int(wait) + 1} seconds before the next try"
        raise Problem(429, "Too many wrong tries", words, headers=headers)
    via: Via = "password" if given.pin is None else "pin"
    if not _knows(request, context, given):
        context.tries.fail(key)
        context.address_tries.fail(client)
        nobody = User(given.name[:64], "viewer", via)
        context.audit.write(nobody, "sign-in refused", given.name[:64], {"from": client})
        raise Problem(401, "Not signed in", "name, password or PIN are wrong")
    context.tries.succeed(key)
    context.address_tries.succeed(client)
    return _begin(request, response, given.name, via)


@router.delete("/session", status_code=204)
def sign_out(request: Request, response: Response) -> None:
    """End the session of this browser."""
    context = context_of(request)
    cookie = request.cookies.get(context.cookie)
    if cookie:
        user = context.sessions.find(cookie)
        context.sessions.close(cookie)
        if user is not None:
            context.audit.write(user, "sign-out", user.name)
    response.delete_cookie(
        context.cookie, secure=context.page.tls, httponly=True, samesite="strict"
    )


@router.post("/setup", responses=SET_UP)
def setup(request: Request, response: Response, given: Setup) -> SessionView:
    """Make the first user, an admin, with the code that the console shows."""
    context = context_of(request)
    with context.database.write():
        if not context.users.none:
            raise Problem(409, "Set up already", "sign in; an admin can add users")
        if not context.setup_code.fits(given.code):
            words = "that is not the code on the console; after ten tries restart the station"
            raise Problem(403, "Wrong code", words)
        context.users.add(given.name, "admin", given.password)
        admin = User(given.name, "admin", "setup")
        context.audit.write(admin, "user added", given.name, {"role": "admin"})
    return _begin(request, response, given.name, "setup")


@router.get("/browsers")
def browsers(request: Request, user: Admin) -> list[Browser]:
    """Return the browsers on which a PIN is enough."""
    found = context_of(request).sessions.browsers()
    return [Browser(id=id_, label=label, made=made, made_by=by) for id_, label, made, by in found]


@router.post("/browsers", status_code=201)
def enroll(
    request: Request,
    response: Response,
    given: NewBrowser,
    user: Engineer,
) -> SessionView:
    """Allow PINs on the browser that asks."""
    context = context_of(request)
    with context.database.write():
        secret = context.sessions.enroll(given.label, user.name)
        context.audit.write(user, "browser enrolled", given.label)
    _set_cookie(context, response, context.browser_cookie, secret, YEARS)
    return _view(request, user, request.cookies.get(context.cookie))


@router.delete("/browsers/{id_}", status_code=204, responses=NOT_FOUND)
def forget(request: Request, id_: str, user: Admin) -> None:
    """Allow no PINs on a browser any more."""
    context = context_of(request)
    with context.database.write():
        if not context.sessions.forget_browser(id_):
            raise Problem(404, "Not Found", f"there is no browser {id_}")
        context.audit.write(user, "browser forgotten", id_)


def _knows(request: Request, context: StationContext, given: SignIn) -> bool:
    if given.password is not None:
        return context.users.knows(given.name, given.password)
    browser = request.cookies.get(context.browser_cookie, "")
    if not context.sessions.is_enrolled(browser):
        raise Problem(403, "PIN not allowed", "this browser is not enrolled; use the password")
    return context.users.knows_pin(given.name, given.pin or "")


def _begin(request: Request, response: Response, name: str, via: Via) -> SessionView:
    context = context_of(request)
    old = request.cookies.get(context.cookie)
    with context.database.write():
        if old:
            context.sessions.close(old)
        secret = context.sessions.open(name, via)
        user = User(name, context.users.account(name).role, via)
        context.audit.write(user, "sign-in", name)
    _set_cookie(context, response, context.cookie, secret, int(LONGEST_SECONDS))
    return _view(request, user, secret)


def _view(request: Request, user: User | None, secret: str | None) -> SessionView:
    context = context_of(request)
    cookie = secret or request.cookies.get(context.cookie)
    view = SessionView(
        setup_needed=context.users.none,
        pin_allowed=context.sessions.is_enrolled(request.cookies.get(context.browser_cookie, "")),
    )
    if user is not None:
        view.name, view.role, view.via = user.name, user.role, user.via
        view.csrf = csrf_token(cookie) if cookie and user.via != "token" else None
    return view


def _set_cookie(
    context: StationContext, response: Response, name: str, value: str, seconds: int
) -> None:
    response.set_cookie(
        name, value, seconds, path="/", secure=context.page.tls, httponly=True, samesite="strict"
    )
