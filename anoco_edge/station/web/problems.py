"""Errors as problem documents after RFC 9457."""

from __future__ import annotations

import logging
import sqlite3
from http import HTTPStatus
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from anoco_edge.bundle.documents import place_of
from anoco_edge.errors import AnocoError
from anoco_edge.station.people.passwords import TooBusyError
from anoco_edge.station.web.error_status import status_of

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("anoco.station")


class ProblemDocument(BaseModel):
    """What a client gets in place of an answer."""

    title: str
    status: int
    detail: str
    hint: str | None = None


class Problem(Exception):  # noqa: N818 (an answer, of which an error is one kind)
    """An answer that is an error: its status, a title, and what was wrong in one sentence."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **others: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail = status, title, detail
        self.headers, self.others = headers, others

    def response(self) -> Response:
        """Return the problem as an answer."""
        document = {"title": self.title, "status": self.status, "detail": self.detail}
        return JSONResponse(
            {**document, **self.others}, self.status, self.headers, media_type=MEDIA_TYPE
        )


def of_error(error: AnocoError) -> Problem:
    """Return the problem that an error of the package is.

    >>> from anoco_edge.errors import UsageError
    >>> of_error(UsageError("there is no part 7", hint="look at the list")).status
    422
    """
    status = status_of(error)
    return Problem(status, HTTPStatus(status).phrase, error.what, hint=error.hint or None)


Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""Descriptions of the answers of a route by their status, as FastAPI takes them."""

RESPONSES: Responses = {
    status: {"model": ProblemDocument, "content": {MEDIA_TYPE: {}}, "description": words}
    for status, words in (
        (400, "The request cannot be read."),
        (401, "Nobody is signed in, or the token is not known."),
        (403, "The role is too low, or the request came from another page."),
        (422, "The request does not fit."),
        (429, "Too many requests."),
    )
}
"""The problems that every route may answer with, for the OpenAPI document."""

NOT_FOUND: Responses = {404: {"description": "There is no such thing."}}
JPEG: Responses = {200: {"content": {"image/jpeg": {}}}}
NO_LINE: Responses = {503: {"description": "The line does not answer."}}


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(AnocoError)
    async def anoco(_: Request, error: AnocoError) -> Response:
        return of_error(error).response()

    @app.exception_handler(TooBusyError)
    async def busy(_: Request, __: TooBusyError) -> Response:
        words = "too many passwords are being checked"
        return Problem(503, "Busy", words, headers={"Retry-After": "2"}).response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_allowed(request))
        return Problem(error.status_code, phrase, str(error.detail), headers=headers).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place, message = place_of(first["loc"][1:]), str(first["msg"])
        words = f"{place}: {message}" if place else message
        return Problem(422, "The request does not fit", words).response()

    @app.exception_handler(sqlite3.Error)
    async def stored(_: Request, error: sqlite3.Error) -> Response:
        _log.error("the data base failed: %s", error)
        return Problem(
            507, "The data base failed", "nothing was changed", hint="check the disk"
        ).response()

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        return Problem(500, "Internal error", "the log of the station has the details").response()


def _allowed(request: Request) -> list[str]:
    """Return the methods that an address answers to: Starlette names those of one route alone."""
    return [
        method
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
