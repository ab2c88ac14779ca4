"""The pages of the station: templates filled with words; the data comes from the API by script."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.templating import Jinja2Templates

from anoco_edge.station.people.passwords import SHORTEST_PASSWORD
from anoco_edge.station.people.roles import User
from anoco_edge.station.people.sessions import csrf_token
from anoco_edge.station.web.access import find_user, require_page
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.page_text import choose_language, text, texts

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
Viewer = Annotated[User, Depends(require_page("viewer"))]
THEMES = ("light", "dark")
_templates = Jinja2Templates(Path(__file__).parent / "templates")


def render(
    request: Request, page: str, user: User | None = None, number: int | None = None
) -> Response:
    """Fill the template of a page in the reader's language and colors."""
    context = context_of(request)
    language = choose_language(
        request.headers.get("accept-language", ""), request.cookies.get("lang", "")
    )
    theme = request.cookies.get("theme", "")
    session = request.cookies.get(context.cookie, "")
    values = {
        "page": page,
        "lang": language,
        "t": partial(text, language),
        "texts": json.dumps(texts(language), ensure_ascii=False, separators=(",", ":")),
        "theme": theme if theme in THEMES else "",
        "user": user,
        "csrf": csrf_token(session) if user is not None else "",
        "station_name": context.config.station.name,
        "number": number,
        "least": SHORTEST_PASSWORD,
    }
    # The language depends on both, so that no cache between hands out the other one.
    headers = {"Content-Language": language, "Vary": "Accept-Language, Cookie"}
    return _templates.TemplateResponse(request, f"{page}.html", values, headers=headers)


def _page(name: str) -> Callable[[Request, User], Response]:
    def show(request: Request, user: Viewer) -> Response:
        return render(request, name, user)

    return show


for _path, _name in {
    "/": "station",
    "/rejects": "rejects",
    "/history": "history",
    "/products": "product",
    "/teach": "teach",
    "/line": "line",
    "/system": "system",
}.items():
    router.add_api_route(_path, _page(_name), name=_name)


@router.get("/products/{number}")
def product(request: Request, number: int, user: Viewer) -> Response:
    """Show one product; /products shows the one that the line inspects now."""
    return render(request, "product", user, number)


@router.get("/login")
def login(request: Request) -> Response:
    """Show the form to log in; before there is any user, the one for the first."""
    context = context_of(request)
    if context.users.none:
        return RedirectResponse("/setup", 303)
    return RedirectResponse("/", 303) if find_user(request) else render(request, "login")


@router.get("/setup")
def setup(request: Request) -> Response:
    """Show the form for the first user, as long as there is none."""
    if not context_of(request).users.none:
        return RedirectResponse("/login", 303)
    return render(request, "setup")
