"""Limits on what clients may send, how fast, and how slowly they may read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anoco_edge.station.web.context import Traffic
from anoco_edge.station.web.problems import Problem

LARGEST_BODY = 1 << 20
UPLOADS = {"/api/v1/uploads": 64 << 20, "/api/v1/bundles": 1 << 30}
"""Paths below which pictures may be sent, and how much of them at once."""
READ_SECONDS, WRITE_SECONDS = 20.0, 30.0
BODY_SECONDS, BODY_RATE = 60.0, 200_000  # a whole body; more of it may take longer
RATE, BURST = 50.0, 200  # requests a second of one address
SIGN_INS = frozenset({"/api/v1/session", "/api/v1/setup", "/api/v1/password"})
SIGN_IN_RATE, SIGN_IN_BURST = 1.0, 20  # each costs 0.1 s and 32 MB
MOST_BUCKETS = 2048
PENALTY_SECONDS = 0.5
MOST_PENALTIES = 32


class Buckets:
    """Lets each client make `rate` requests a second, after a burst.

    >>> now = 0.0
    >>> buckets = Buckets(rate=1, burst=2, clock=lambda: now)
    >>> [buckets.take("a") for _ in range(3)], buckets.take("b")
    ([True, True, False], True)
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> bool:
        """Whether this client may make a request now."""
        now = self._clock()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(left + (now - at) * self._rate, self._burst)
        allowed = left >= 1
        self._left[client] = (left - allowed, now)
        if len(self._left) > MOST_BUCKETS:
            del self._left[next(iter(self._left))]
        return allowed


class Limits:
    """Refuses bodies that are too large before they are read, requests that come too fast, and
    connections that stand still."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app, self._traffic = app, traffic
        self._buckets, self._sign_ins = Buckets(RATE, BURST), Buckets(SIGN_IN_RATE, SIGN_IN_BURST)
        self._penalties = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within the limits."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self._traffic.requests += 1
        client = (scope.get("client") or ("", 0))[0]
        signs_in = scope["path"] in SIGN_INS and scope.get("method") in ("POST", "PUT")
        if not self._buckets.take(client) or (signs_in and not self._sign_ins.take(client)):
            await self._refuse(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, largest_body(scope["path"]))
        if not body.may_have(Headers(scope=scope).get("content-length")):
            await _too_large(body.limit).response()(scope, receive, send)
            return
        await self._app(scope, body.receive, _impatient(send))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer late, so that a client that floods waits instead of asking again at once."""
        self._traffic.refused += 1
        if self._penalties < MOST_PENALTIES:
            self._penalties += 1
            try:
                await asyncio.sleep(PENALTY_SECONDS)
            finally:
                self._penalties -= 1
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1013, "reason": "too many requests"})
            return
        headers = {"Retry-After": "1", "Connection": "close"}
        problem = Problem(429, "Too many requests", "wait a second", headers=headers)
        await problem.response()(scope, receive, send)


def largest_body(path: str) -> int:
    """Return how many bytes the body of a request may have.

    >>> largest_body("/api/v1/session"), largest_body("/api/v1/uploads") > 1 << 20
    (1048576, True)
    """
    found = [size for start, size in UPLOADS.items() if path.startswith(start)]
    return max(found, default=LARGEST_BODY)


def _too_large(limit: int) -> Problem:
    words = f"at most {limit} bytes are taken here"
    return Problem(413, "Content Too Large", words, headers={"Connection": "close"})


class _Body:
    """Counts what of a body arrives, and waits only so long for more."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self.limit = receive, limit
        self._got, self._whole = 0, False
        self._until = time.monotonic() + BODY_SECONDS + limit / BODY_RATE

    def may_have(self, length: str | None) -> bool:
        return length is None or (length.isdecimal() and int(length) <= self.limit)

    async def receive(self) -> Message:
        if self._whole:  # what comes now is the end of the connection, which may take its time
            return await self._receive()
        try:
            patience = min(READ_SECONDS, self._until - time.monotonic())
            message = await asyncio.wait_for(self._receive(), patience)
        except (TimeoutError, asyncio.TimeoutError):
            return {"type": "http.disconnect"}
        self._got += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._got > self.limit:
            problem = _too_large(self.limit)  # FastAPI passes its own kind of error on
            raise HTTPException(problem.status, problem.detail, problem.headers)
        return message


def _impatient(send: Send) -> Send:
    async def within(message: Message) -> None:
        await asyncio.wait_for(send(message), WRITE_SECONDS)

    return within
