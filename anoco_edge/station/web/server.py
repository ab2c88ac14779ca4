"""The server of HTTP under the application, with limits on what a connection may cost."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.station.web.context import StationContext
from anoco_edge.station.web.tls import Certificate

MOST_CONNECTIONS = 128
LARGEST_HEAD = 16_384
HEAD_SECONDS = 10.0
KEEP_SECONDS = 15
LARGEST_MESSAGE = 4096


class _Connection(H11Protocol):
    """A connection that has to send the whole head of a request soon. uvicorn waits forever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch_head(ended=True)
        super().connection_lost(exc)

    def _watch_head(self, *, ended: bool = False) -> None:
        incomplete = self.conn.their_state is h11.IDLE and not ended
        if incomplete and self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif not incomplete and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class StationServer(uvicorn.Server):
    """uvicorn with the settings of a station; `should_exit` stops it. `on_start` is called once
    browsers can connect."""

    def __init__(
        self,
        app: FastAPI,
        context: StationContext,
        certificate: Certificate | None = None,
        *,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.context, self._on_start = context, on_start
        settings = uvicorn.Config(
            app,
            host=context.page.listen,
            port=context.page.port,
            http=_Connection,
            ws="websockets-sansio",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=MOST_CONNECTIONS,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_SECONDS,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            ws_max_size=LARGEST_MESSAGE,
            ws_max_queue=4,
            ws_per_message_deflate=False,
            ssl_certfile=certificate.certificate if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        super().__init__(settings)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on a socket of our own: uvicorn ends the process where a port is taken."""
        await super().serve([_listen(self.config.host, self.config.port)])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and call `on_start` once browsers can connect."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    @property
    def port(self) -> int:
        """The port that the server listens on, once it does."""
        return int(self.servers[0].sockets[0].getsockname()[1])


async def serve_until(server: StationServer, stop: asyncio.Event) -> None:
    """Serve until an event is set, or until serving has failed."""
    serving, stopping = asyncio.create_task(server.serve()), asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    server.should_exit = True
    await serving


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            made = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            stack.pop_all()
        return made
    except OSError as error:
        raise EnvironmentMissingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another port, or end what uses it",
        ) from None


def quiet_logging() -> None:
    """Let libraries say what went wrong, and nothing about each request."""
    logging.basicConfig(level=logging.WARNING, format="station: %(levelname)s %(message)s")
