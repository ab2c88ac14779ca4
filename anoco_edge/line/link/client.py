"""One connection of the station to the line: what it asks, and what waits for it."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator

from anoco_edge.line.buses.http_bus import Pace
from anoco_edge.line.link.messages import FromLine, encode

LARGEST_REQUEST = 8192
RATE, BURST = 100.0, 50  # requests a second
MOST_EVENTS, MOST_BYTES = 4 << 20, 256 << 20  # that wait: of events, and with all answers


class ProtocolError(Exception):
    """The other side does not speak the language of the link."""


class Client:
    """A connection that never makes its owner wait."""

    def __init__(self, link: socket.socket, selector: selectors.BaseSelector) -> None:
        link.setblocking(False)
        self._link, self._selector = link, selector
        self._in, self._out, self._waiting = bytearray(), deque[memoryview](), 0
        self._pace, self._rests_until = Pace(RATE, BURST), 0.0
        self.subscribed = False
        self._mask = selectors.EVENT_READ
        selector.register(link, self._mask, self)

    def turn(self, events: int) -> None:
        """Read and write what can be read and written now."""
        if events & selectors.EVENT_READ:
            found = self._link.recv(LARGEST_REQUEST)
            if not found:
                raise ProtocolError("it is gone")
            self._in += found
        if events & selectors.EVENT_WRITE:
            self._write()
        self._listen_for()

    def requests(self) -> Iterator[bytes]:
        """Yield the JSON of requests that are complete, no more than the pace allows."""
        now = time.monotonic()
        while now >= self._rests_until and (request := self._next()) is not None:
            self._rests_until = now + self._pace.pause(now)
            yield request
        self._listen_for()

    def offer(self, message: FromLine, payload: bytes = b"") -> bool:
        """Queue an event; False if too much waits already, and the event is lost."""
        if self._waiting > MOST_EVENTS:
            return False
        self._queue(message, payload)
        return True

    def answer(self, message: FromLine, payload: bytes = b"") -> None:
        """Queue an answer."""
        if self._waiting > MOST_BYTES:
            raise ProtocolError("it asks and does not read")
        self._queue(message, payload)

    def close(self) -> None:
        """End the connection."""
        if self._link.fileno() >= 0:
            if self._mask:
                self._selector.unregister(self._link)
            self._link.close()

    def _next(self) -> bytes | None:
        if len(self._in) < 4:
            return None
        size = int.from_bytes(self._in[:4], "big")
        if size > LARGEST_REQUEST:
            raise ProtocolError("its request is too long")
        if len(self._in) < 4 + size:
            return None
        text = bytes(self._in[4 : 4 + size])
        del self._in[: 4 + size]
        return text

    def _queue(self, message: FromLine, payload: bytes) -> None:
        for part in (encode(message.model_copy(update={"payload": len(payload)})), payload):
            if part:
                self._out.append(memoryview(part))
                self._waiting += len(part)
        self._listen_for()

    def _write(self) -> None:
        while self._out:
            try:
                done = self._link.send(self._out[0])
            except BlockingIOError:
                return
            self._waiting -= done
            if done < len(self._out[0]):
                self._out[0] = self._out[0][done:]
                return
            self._out.popleft()

    def _listen_for(self) -> None:
        """Wait for what there is room for: a client that asks too fast is not read."""
        mask = selectors.EVENT_WRITE if self._out else 0
        if len(self._in) < 2 * LARGEST_REQUEST:
            mask |= selectors.EVENT_READ
        if mask == self._mask:
            return
        if not mask:
            self._selector.unregister(self._link)
        elif not self._mask:
            self._selector.register(self._link, mask, self)
        else:
            self._selector.modify(self._link, mask, self)
        self._mask = mask
