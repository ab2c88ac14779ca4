"""A client that asks the page for as much as it can: what `bench --line --flood` and tests use.

    python -m anoco_edge.station.bench.flood PORT TOKEN REQUESTS SOCKETS

It makes requests over many connections at once and opens WebSockets, of which every second one
never reads. It ends after so many requests (0: when standard input ends) and prints what came back.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import Counter

CONNECTIONS = 24
PATHS = ("/api/v1/state", "/", "/api/v1/session", "/health/ready", "/login", "/metrics")
PATIENCE = 60.0
NICENESS = 10  # a client on another machine would cost this one nothing


class Flood:
    """Counts what the answers to a flood were, by their status."""

    def __init__(self, port: int, token: str, requests: int) -> None:
        self._port, self._token, self._left = port, token, requests or sys.maxsize
        self.answers: Counter[str] = Counter()
        self._silent: list[socket.socket] = []

    async def run(self, sockets: int) -> None:
        """Flood until all requests were answered."""
        tabs = [asyncio.create_task(self._tab(reads=number % 2 == 0)) for number in range(sockets)]
        await asyncio.gather(*(self._ask(number) for number in range(CONNECTIONS)))
        for tab in tabs:
            tab.cancel()
        await asyncio.gather(*tabs, return_exceptions=True)

    def stop(self) -> None:
        """Make no more requests."""
        self._left = 0

    async def _ask(self, number: int) -> None:
        while self._left > 0:
            self._left -= 1
            path = PATHS[number % len(PATHS)]
            number += 1
            try:
                status = await asyncio.wait_for(self._one(path), PATIENCE)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                status = type(error).__name__
                await asyncio.sleep(0.05)
            self.answers[status] += 1

    async def _one(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._head(path, "Connection: close"))
            status = (await reader.readline()).decode().split(" ")[1]
            while await reader.read(65_536):
                pass
        except IndexError:
            raise EOFError from None
        finally:
            writer.close()
        return status

    async def _tab(self, *, reads: bool) -> None:
        """Open a WebSocket, again and again if it is closed."""
        more = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1)
                writer.write(self._head("/api/v1/live", *more, key))
                while not reads or await reader.read(65_536):
                    await asyncio.sleep(0 if reads else 1)
            except OSError:
                pass
            await asyncio.sleep(0.2)

    def _head(self, path: str, *more: str) -> bytes:
        host = f"Host: 127.0.0.1:{self._port}"
        lines = (f"GET {path} HTTP/1.1", host, f"Authorization: Bearer {self._token}", *more)
        return "\r\n".join((*lines, "", "")).encode()


def main(arguments: list[str]) -> None:
    """Flood the page of a station on this machine."""
    os.nice(NICENESS)
    port, token, requests, sockets = arguments
    flood = Flood(int(port), token, int(requests))
    asyncio.run(_run(flood, int(sockets), until_stdin_ends=requests == "0"))
    sys.stdout.write(json.dumps(flood.answers) + "\n")


async def _run(flood: Flood, sockets: int, *, until_stdin_ends: bool) -> None:
    if until_stdin_ends:
        asyncio.get_running_loop().run_in_executor(None, _wait_for_the_end, flood)
    await flood.run(sockets)


def _wait_for_the_end(flood: Flood) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    flood.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
