"""The socket between a line and its station: commands in, state, parts, pictures and log out.

The link has a thread of its own. The core and the cameras give it something by appending to a
queue, and never wait for it: what the link cannot pass on is lost and counted. A station that asks
too fast is read more slowly, one that does not read loses messages, one that breaks the rules loses
its connection.

A message is the length of its header in 4 bytes (big-endian), the header in JSON, and as many bytes
as the header's `payload` says. `link_messages` has all headers. Requests have an `id`, which the
answer repeats:

    {"id": 1, "do": "command", "name": "reset", "body": {}}
    {"event": "answer", "id": 1, "error": "", "payload": 0, ...}
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ValidationError

from anoco_edge.bundle.documents import place_of
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.json_messages import parse_command
from anoco_edge.line.core.effects import DecideCandidate, PartRecord
from anoco_edge.line.core.events import (
    Candidate,
    CandidateReport,
    Event,
    LivePicture,
    Maintenance,
    NewGeneration,
)
from anoco_edge.line.frame_memory import FrameMemory, Slot
from anoco_edge.line.link.client import Client, ProtocolError
from anoco_edge.line.link.frames import LinkFrames, preview
from anoco_edge.line.link.messages import (
    REQUEST,
    Answer,
    CandidateRequest,
    CommandRequest,
    DecisionEvent,
    FiguresRequest,
    FromLine,
    LineState,
    LogEvent,
    LogMessage,
    PartEvent,
    Request,
    StateEvent,
    SubscribeRequest,
    message_of_part,
)
from anoco_edge.line.store.database import wall_time

NAME = "line.sock"
COMMANDS = ("enable", "result_ack", "reset", "change_product", "simulate")
"""Commands of every bus that the station may give, too; triggers come by a bus."""
MOST_CLIENTS = 4
MOST_WAITING, MOST_PREVIEWS = 64, 2
STATE_SECONDS, BEAT_SECONDS, PREVIEW_SECONDS = 0.2, 1.0, 0.2
_LONGEST_PATH = 100  # of the name of a Unix socket; the limit of Linux is 107

State = Callable[[], LineState]


@dataclass(frozen=True)
class _DecidedPart:
    """A part on its way to the station: with the size of the frame of its first capture, and the
    frame itself where a preview of it is to be made."""

    record: PartRecord
    size: tuple[int, int] | None
    preview: Slot | None


class StationLink:
    """A thread that serves the station. `state` and `figures` are called in it; `note` gets lines
    for the log from any thread."""

    def __init__(
        self,
        path: Path,
        state: State,
        post: Callable[[Event], None],
        figures: Callable[[], str],
        memory: FrameMemory,
        note: Callable[[str], None],
    ) -> None:
        self._note = note
        self._path, self._state, self._post, self._figures = path, state, post, figures
        self._memory = memory
        self.frames = LinkFrames(memory)
        self._inbox: deque[_DecidedPart | DecideCandidate | LogMessage] = deque()
        self.lost = 0
        """How many messages the station did not get."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._clients: set[Client] = set()
        self._trier: Client | None = None
        """Who has told of a candidate, and so gets the decision about it."""
        self._subscribed = False
        self._held = 0
        self._shown = LineState()
        self._shown_at = self._looked_at = self._preview_at = 0.0
        self._jpegs: dict[str, tuple[float, bytes]] = {}
        self._listener = _listen(path)
        self._thread = threading.Thread(target=self._work, name="station link", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """End the thread, drop the station and let all frames go."""
        self._closing.set()
        if self._thread.ident is not None:
            self._ring()
            self._thread.join(5)
        for client in self._clients:
            client.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for each in self._inbox:
            if isinstance(each, _DecidedPart) and each.preview is not None:
                self._memory.let_go(each.preview)
        self._inbox.clear()
        self.frames.close()
        self._selector.close()
        os.close(self._wake)

    # ---- for the thread of the core, which waits for nothing here

    def offer_part(self, record: PartRecord, slot: Slot | None) -> None:
        """Pass on a part that was decided, and the frame of its first capture."""
        if not self._subscribed:
            return
        if len(self._inbox) >= MOST_WAITING:
            self.lost += 1
            return
        size = None if slot is None else (slot.width, slot.height)
        now = time.monotonic()
        if slot is not None and self._held < MOST_PREVIEWS and now >= self._preview_at:
            self._preview_at = now + PREVIEW_SECONDS
            self._held += 1
            self._memory.hold(slot)
        else:
            slot = None
        self._inbox.append(_DecidedPart(record, size, slot))
        self._ring()

    def offer_log(self, level: str, text: str) -> None:
        """Pass on a line of the log; any thread may call this."""
        if self._subscribed and len(self._inbox) < MOST_WAITING:
            self._inbox.append(LogMessage(level=level, text=text))
            self._ring()

    def offer_decision(self, decision: DecideCandidate) -> None:
        """Pass on what is to become of the candidate."""
        if len(self._inbox) >= MOST_WAITING:
            self._lose_decision(decision)
            return
        self._inbox.append(decision)
        self._ring()

    def _lose_decision(self, decision: DecideCandidate) -> None:
        self.lost += 1
        word = "TAKE" if decision.take else "DROP"
        self._note(f"warning: {word}_CANDIDATE by {decision.by} did not reach the page")

    def _ring(self) -> None:
        os.eventfd_write(self._wake, 1)

    # ---- the thread of the link

    def _work(self) -> None:
        while not self._closing.is_set():
            for key, events in self._selector.select(STATE_SECONDS / 2):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data is None:
                    os.eventfd_read(self._wake)
                else:
                    self._guarded(key.data, partial(key.data.turn, events))
            self._pass_on()
            self._show_state()
            for client in list(self._clients):
                self._guarded(client, partial(self._serve, client))

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        if len(self._clients) >= MOST_CLIENTS or not _is_ours(link):
            link.close()
            return
        self._clients.add(Client(link, self._selector))

    def _guarded(self, client: Client, work: Callable[[], None]) -> None:
        """Do something for a client, and drop it when it is gone or breaks the rules."""
        try:
            work()
        except (OSError, ProtocolError):
            client.close()
            self._clients.discard(client)
            self._subscribed = any(each.subscribed for each in self._clients)
            if client is self._trier:
                self._trier = None
                self._post(CandidateReport(None))

    def _pass_on(self) -> None:
        while self._inbox:
            each = self._inbox.popleft()
            if isinstance(each, LogMessage):
                self._publish(LogEvent(log=each))
            elif isinstance(each, DecideCandidate):
                decision = DecisionEvent(trial=each.trial, take=each.take, by=each.by)
                if self._trier is None or not self._trier.offer(decision):
                    self._lose_decision(each)
            else:
                self._pass_part_on(each)

    def _pass_part_on(self, decided: _DecidedPart) -> None:
        picture = b""
        if decided.preview is not None:
            picture = preview(self._memory.view(decided.preview))
            self._memory.let_go(decided.preview)
            self._held -= 1
        part = message_of_part(decided.record, wall_time(), decided.size)
        self._publish(PartEvent(part=part), picture)

    def _show_state(self) -> None:
        """Send the state when it has changed; the heartbeat alone is sent once a second."""
        now = time.monotonic()
        if not self._subscribed or now - self._looked_at < STATE_SECONDS:
            return
        self._looked_at = now
        state = self._state()
        if now - self._shown_at >= BEAT_SECONDS or state.without_beat() != self._shown:
            self._shown_at, self._shown = now, state.without_beat()
            self._publish(StateEvent(state=state, lost_messages=self.lost))

    def _publish(self, message: FromLine, payload: bytes = b"") -> None:
        for client in list(self._clients):
            if client.subscribed and not client.offer(message, payload):
                self.lost += 1

    def _serve(self, client: Client) -> None:
        for text in client.requests():
            try:
                request = REQUEST.validate_json(text)
            except ValidationError as error:
                client.answer(_refusal(text, error))
                continue
            try:
                answer, payload = self._answer(client, request)
            except ValueError as error:
                answer, payload = Answer(error=str(error) or "it cannot be done"), b""
            client.answer(answer.model_copy(update={"id": request.id}), payload)

    def _answer(self, client: Client, request: Request) -> tuple[Answer, bytes]:
        if isinstance(request, FiguresRequest):
            return Answer(), self._figures().encode()
        if isinstance(request, SubscribeRequest):
            client.subscribed = self._subscribed = True
            self._shown_at = 0.0
            return Answer(), b""
        if isinstance(request, CommandRequest):
            self._post(_command(request.name, json.dumps(request.body).encode()))
            return Answer(), b""
        if isinstance(request, CandidateRequest):
            self._trier = client
            found = Candidate(request.trial, request.stage, request.differences)
            self._post(CandidateReport(found))
            return Answer(), b""
        return self._frame(request.camera, request.full)

    def _frame(self, camera: str, full: bool) -> tuple[Answer, bytes]:
        now = time.monotonic()
        at, picture = self._jpegs.get(camera, (-1.0, b""))
        if not full and now - at < PREVIEW_SECONDS:
            return Answer(), picture
        self._post(LivePicture(camera))
        with self.frames.latest(camera) as pixels:
            if pixels is None:
                words = f"camera {camera} has taken no picture yet"
                return Answer(error=words, status=404), b""
            if full:
                height, width = pixels.shape[:2]
                return Answer(width=width, height=height), pixels.tobytes()
            picture = preview(pixels)
        self._jpegs[camera] = (now, picture)
        return Answer(), picture


def _command(name: str, body: bytes) -> Event:
    """Return the event of a command.

    >>> _command("maintenance", b'{"on": true}')
    Maintenance(on=True)
    >>> _command("trigger", b"{}")
    Traceback (most recent call last):
    ValueError: the station cannot give the command 'trigger'
    """
    if name == "new_generation":
        return NewGeneration()
    if name == "maintenance":
        switch = json.loads(body).get("on")
        if not isinstance(switch, bool):
            raise ValueError("on: Input should be a valid boolean")
        return Maintenance(switch)
    if name not in COMMANDS:
        raise ValueError(f"the station cannot give the command {name!r}")
    return parse_command(name, body)


class _Numbered(BaseModel):
    """What a request that is wrong may still say: which one it is."""

    id: int = 0


def _refusal(text: bytes, error: ValidationError) -> Answer:
    """Answer a request that is none. What is not even an object with a number breaks the rules."""
    try:
        number = _Numbered.model_validate_json(text).id
    except ValidationError:
        raise ProtocolError("its request is not a JSON object") from None
    first = error.errors(include_url=False)[0]
    return Answer(id=number, error=f"{place_of(first['loc'])}: {first['msg']}".removeprefix(": "))


def _is_ours(link: socket.socket) -> bool:
    """Whether the other side runs as the same user, or as root."""
    raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)[1] in (0, os.getuid())


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise EnvironmentMissingError(
            f"the path {path} is too long for a socket", hint="choose a folder with a shorter path"
        )
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        path.chmod(0o600)  # nobody can connect before `listen`
        listener.listen(MOST_CLIENTS)
    except OSError as error:
        listener.close()
        raise EnvironmentMissingError(
            f"cannot make the socket {path}: {error.strerror or error}",
            hint="choose a folder on a local disk",
        ) from None
    return listener
