"""The web process's side of the socket to the line: events come, commands and questions go."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from pydantic import JsonValue

from anoco_edge.line.link.messages import (
    FROM_LINE,
    Answer,
    CommandRequest,
    DecisionEvent,
    FrameRequest,
    FromLine,
    LineState,
    PartEvent,
    Request,
    StateEvent,
    SubscribeRequest,
    encode,
)
from anoco_edge.station.web.live import LiveHub
from anoco_edge.station.web.live_messages import LiveLog, LivePart, LiveState
from anoco_edge.station.web.problems import Problem

ANSWER_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
LARGEST_HEADER, LARGEST_PAYLOAD = 1 << 20, 256 << 20
_log = logging.getLogger("anoco.station")


class LineClient:
    """Stays connected to the line, follows its state and asks it things.

    While there is no connection, `state` is the last one known with `connected` false, and every
    question is a Problem with status 503.
    """

    def __init__(self, socket: Path, live: LiveHub) -> None:
        self._socket, self._live = socket, live
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[tuple[Answer, bytes]]] = {}
        self._serial = 0
        self._state = LineState()
        self.lost_messages = 0
        """How many messages the line did not keep for the station."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_connect: Callable[[], None] = lambda: None
        self.on_decision: Callable[[DecisionEvent], None] = lambda _: None
        """Both are called by the event loop, which they must not make wait."""

    @property
    def connected(self) -> bool:
        """Whether the line can be asked now."""
        return self._writer is not None

    @property
    def state(self) -> LiveState:
        """The state of the line, as it was sent last."""
        return LiveState(**dict(self._state), connected=self.connected)

    async def run(self) -> None:
        """Connect, and connect again whenever the line was restarted, until cancelled."""
        self._loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._socket)
            except OSError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            try:
                await self._follow(reader, writer)
            except (OSError, EOFError, ValueError) as error:
                _log.warning("the line is gone: %s", error)
            finally:
                self._lose(writer)
            await asyncio.sleep(pause)

    async def command(self, name: str, body: dict[str, JsonValue] | None = None) -> None:
        """Give the line a command; what it refuses is a Problem."""
        await self.ask(CommandRequest(name=name, body=body or {}))

    async def frame(self, camera: str, *, full: bool = False) -> bytes:
        """Return the latest picture of a camera: a JPEG of at most 960 pixels width, or the whole
        frame as PNG."""
        answer, payload = await self.ask(FrameRequest(camera=camera, full=full))
        if not full:
            return payload
        return await asyncio.to_thread(_png, (answer.width, answer.height), payload)

    async def ask(self, request: Request) -> tuple[Answer, bytes]:
        """Ask the line something and return its answer with the payload."""
        writer = self._writer
        if writer is None:
            raise Problem(503, "No connection", "the line does not answer; is it running?")
        self._serial += 1
        number = self._serial
        answer: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            writer.write(encode(request.model_copy(update={"id": number})))
            found, payload = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except (TimeoutError, asyncio.TimeoutError, OSError):
            raise Problem(503, "No answer", "the line did not answer in time") from None
        finally:
            self._asked.pop(number, None)
        if found.error:
            raise Problem(found.status, "The line refused", found.error)
        return found, payload

    def ask_from_thread(self, request: Request) -> tuple[Answer, bytes]:
        """Ask from a thread that is not that of the event loop."""
        assert self._loop is not None, "the client runs"
        asked = asyncio.run_coroutine_threadsafe(self.ask(request), self._loop)
        return asked.result(2 * ANSWER_SECONDS)

    # ---- the connection

    async def _follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.write(encode(SubscribeRequest()))
        self.on_connect()
        while True:
            self._happen(*await _receive(reader))

    def _happen(self, message: FromLine, payload: bytes) -> None:
        if isinstance(message, Answer):
            if (answer := self._asked.get(message.id)) and not answer.done():
                answer.set_result((message, payload))
        elif isinstance(message, StateEvent):
            self._state, self.lost_messages = message.state, message.lost_messages
            self._live.publish(self.state)
        elif isinstance(message, PartEvent):
            self._live.note_decided(message.part.uid)
            if payload:
                self._live.keep_preview(message.part.uid, payload)
            preview = self._live.preview_address(message.part.uid)
            self._live.publish(LivePart(**dict(message.part), preview=preview))
        elif isinstance(message, DecisionEvent):
            self.on_decision(message)
        else:
            self._live.publish(LiveLog(**dict(message.log)))

    def _lose(self, writer: asyncio.StreamWriter) -> None:
        self._writer = None
        writer.close()
        for answer in self._asked.values():
            if not answer.done():
                words = "the line ended before it answered"
                answer.set_exception(Problem(503, "No answer", words))
        with contextlib.suppress(RuntimeError):
            self._live.publish(self.state)


def _png(size: tuple[int, int], rgb: bytes) -> bytes:
    written = io.BytesIO()
    Image.frombytes("RGB", size, rgb).save(written, "PNG", compress_level=1)
    return written.getvalue()


async def _receive(reader: asyncio.StreamReader) -> tuple[FromLine, bytes]:
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > LARGEST_HEADER:
        raise ValueError(f"a header of {size} bytes")
    message = FROM_LINE.validate_json(await reader.readexactly(size))
    if message.payload > LARGEST_PAYLOAD:
        raise ValueError(f"a payload of {message.payload} bytes")
    return message, await reader.readexactly(message.payload) if message.payload else b""
