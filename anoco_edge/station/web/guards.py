"""Refuses requests that other sites have a browser make.

A browser says where a request comes from: `Host` names the site that it believes to talk to,
`Origin` and `Sec-Fetch-Site` the page that asked. Programs send none of the latter two; they have
no cookie either and send a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anoco_edge.line.config.page_table import is_loopback
from anoco_edge.station.people.sessions import csrf_token
from anoco_edge.station.web.context import StationContext
from anoco_edge.station.web.problems import Problem

CSRF_HEADER = "x-anoco-csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
WITHOUT_SESSION = frozenset({"/api/v1/session", "/api/v1/setup"})
"""Who signs in has no session yet; the origin is checked all the same."""


class Guards:
    """Checks every request and every WebSocket before the application sees it."""

    def __init__(self, app: ASGIApp, context: StationContext) -> None:
        self._app, self._context = app, context
        self._names = own_names(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except Problem as problem:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": problem.title})
            else:
                await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            raise Problem(
                421, "Another host", "the page is not served under this name; see hosts in [page]"
            )
        scheme = "https" if self._context.page.tls else "http"
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE
        if origin is not None and origin.lower() != f"{scheme}://{host}".lower() and changes:
            raise Problem(403, "Another origin", "the request came from another site")
        navigates = headers.get("sec-fetch-mode") == "navigate" and not changes
        if site not in (None, "same-origin", "none") and not navigates:
            raise Problem(403, "Another origin", "the request came from another site")
        has_token = "authorization" in headers
        cookie = _cookie(headers, self._context.cookie)
        if not changes or has_token or cookie is None:
            return
        if origin is None and site is None:
            raise Problem(403, "No origin", "a browser says where a request comes from")
        if scope["type"] == "http" and scope["path"] not in WITHOUT_SESSION:
            given = headers.get(CSRF_HEADER, "").encode()
            if not hmac.compare_digest(given, csrf_token(cookie).encode()):
                raise Problem(403, "No CSRF token", f"send the page's token as {CSRF_HEADER}")

    def _is_own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        default = 443 if self._context.page.tls else 80
        if (port or default) != self._context.page.port:
            return False
        return name in self._names or (not is_loopback(self._context.page.listen) and _is_ip(name))


def own_names(context: StationContext) -> frozenset[str]:
    """Return the names under which the page may be reached.

    Names of others would let their owner point them here, and read the page as their own site.
    """
    names = {context.page.listen, "localhost", "127.0.0.1", "::1", *context.page.hosts}
    if not is_loopback(context.page.listen):
        names |= {socket.gethostname(), f"{socket.gethostname()}.local"}
    return frozenset(name.lower() for name in names)


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(headers: Headers, name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found else None
