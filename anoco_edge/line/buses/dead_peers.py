"""Connections whose other end is gone without a word: a PLC without power, a cable that was cut.

Nothing arrives from such a client, and without probes the connection would stand for ever: with the
commands of a master that no other client may replace, and in one of the few places for clients.
"""

from __future__ import annotations

import socket
from typing import Any

QUIET_SECONDS = 2  # then the other end is probed
PROBES = 3  # one a second
UNANSWERED_MS = 5000  # for what was sent and never acknowledged


def notice_dead_peer(transport: Any) -> None:
    """Let the kernel end the connection of an asyncio transport some 5 s after its client is gone.

    >>> import asyncio
    >>> async def probed() -> bool:
    ...     server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    ...     port = server.sockets[0].getsockname()[1]
    ...     _, writer = await asyncio.open_connection("127.0.0.1", port)
    ...     notice_dead_peer(writer.transport)
    ...     link = writer.get_extra_info("socket")
    ...     writer.close(); server.close()
    ...     return bool(link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    >>> asyncio.run(probed())
    True
    """
    link = transport.get_extra_info("socket")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, QUIET_SECONDS),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, PROBES),
        (socket.TCP_USER_TIMEOUT, UNANSWERED_MS),
    ):
        link.setsockopt(socket.IPPROTO_TCP, option, value)
