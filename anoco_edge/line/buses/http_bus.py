"""HTTP on the line's own port: commands, the state, health and figures for Prometheus.

    POST /api/v1/trigger      {"seq": 7, "part_code": "A1"}, answered with the result of that part
    POST /api/v1/COMMAND      the other commands of the table of words
    GET  /api/v1/status       all status words
    GET  /health/live         200 while the heartbeat advances
    GET  /health/ready        200 while a trigger would be served, or one is
    GET  /metrics             for Prometheus

Errors are problem documents after RFC 9457; so is the answer to a trigger that was refused, with
the result beside it. Browsers are not served: a request with an Origin is refused.
"""

from __future__ import annotations

import hmac
import json
import queue
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.json_messages import (
    COMMANDS,
    LARGEST_COMMAND,
    bit_names,
    parse_command,
    state_message,
)
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import Event, Trigger
from anoco_edge.line.core.status import Status
from anoco_edge.line.metrics import CONTENT_TYPE
from anoco_edge.line.store.rows import part_message
from anoco_edge.line.words.constants import StatusBit

PROGRESS_SECONDS = 0.1
MOST_CLIENTS = 16
READS, WRITES = (20.0, 10), (100.0, 20)  # requests a second of all clients, and a burst
IDLE_SECONDS = 30.0
ALIVE_SECONDS = 1.0  # ten beats
API = "/api/v1/"
_JSON, _PROBLEM = "application/json", "application/problem+json"


class HttpBus:
    """A server of HTTP, with a thread for each connection and one that accepts them.

    `figures` returns the text of /metrics. A trigger waits `patience` seconds for its result.
    """

    def __init__(
        self,
        address: tuple[str, int],
        clients: Sequence[str],
        post: Callable[[Event], None],
        progress: Callable[[], None],
        *,
        figures: Callable[[], str],
        patience: float,
        token: str = "",
    ) -> None:
        self._address, self.allowed, self.token = address, set(clients), token
        self.post, self.progress, self.figures = post, progress, figures
        self.patience = patience
        self.status = Status()
        self._beat_at = -ALIVE_SECONDS
        self._waiting: dict[str, queue.SimpleQueue[PartRecord | None]] = {}
        self._serial = 0
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def start(self) -> None:
        """Listen; an address that cannot be had is an error now."""
        host, port = self._address
        try:
            self._server = _Server(self, host, port)
        except OSError as error:
            raise EnvironmentMissingError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="choose another port, or end what uses it",
            ) from None
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(PROGRESS_SECONDS,), name="http", daemon=True).start()

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""
        if status.heartbeat != self.status.heartbeat:
            self._beat_at = time.monotonic()
        self.status = status

    def reply(self, client: str, record: PartRecord) -> None:
        """Answer a trigger, if its client still waits."""
        waiting = self._waiting.get(client)
        if waiting is not None:
            waiting.put(record)

    def close(self) -> None:
        """Stop listening; who waits for a result gets none."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for waiting in list(self._waiting.values()):
            waiting.put(None)

    # ---- for the threads of connections

    @property
    def alive(self) -> bool:
        """Whether the heartbeat advances."""
        return time.monotonic() - self._beat_at < ALIVE_SECONDS

    @property
    def ready(self) -> bool:
        """Whether a trigger would be served, or one is."""
        return self.alive and bool(self.status.bits & (StatusBit.READY | StatusBit.BUSY))

    def command(self, name: str, raw: bytes, address: str) -> PartRecord | None:
        """Pass on a command of a client; a trigger is waited for and its result returned."""
        with self._lock:
            self._serial += 1
            client = f"http:{self._serial}"
        event = parse_command(name, raw, client, f"http {address}")
        if not isinstance(event, Trigger):
            self.post(event)
            return None
        waiting: queue.SimpleQueue[PartRecord | None] = queue.SimpleQueue()
        self._waiting[client] = waiting
        try:
            self.post(event)
            record = waiting.get(timeout=self.patience)
        except queue.Empty:
            record = None
        finally:
            del self._waiting[client]
        if record is None:
            raise NoResultError
        return record


class NoResultError(Exception):
    """The line gave no result: it was stopped, or its core has failed."""


class Pace:
    """Spreads requests over time: what comes faster than `rate` a second waits, after a burst.

    Threads that compute compete with the core for the interpreter. Eight clients that asked for
    /metrics without a pause made the line's median six times as long.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._step, self._ahead = 1 / rate, burst / rate
        self._next = 0.0
        self._lock = threading.Lock()

    def pause(self, now: float) -> float:
        """Return how long a request that comes now has to wait.

        >>> pace = Pace(rate=10, burst=1)
        >>> [round(pace.pause(5.0), 3) for _ in range(3)]
        [0.0, 0.0, 0.1]
        """
        with self._lock:
            self._next = max(self._next, now - self._ahead) + self._step
            return max(self._next - self._step - now, 0.0)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CLIENTS

    def __init__(self, bus: HttpBus, host: str, port: int) -> None:
        self.bus = bus
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        self.paces = {"GET": Pace(*READS), "POST": Pace(*WRITES)}
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self.address_family = family
        super().__init__((host, port), _Handler)

    def service_actions(self) -> None:
        self.bus.progress()

    def verify_request(self, request: object, client_address: tuple[str, int]) -> bool:
        allowed = self.bus.allowed
        return not allowed or client_address[0] in allowed

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop a connection that broke; the line does not print about it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "anoco-edge", ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    server: _Server

    def log_message(self, *_: object) -> None:
        """Say nothing: the log of a line is about parts."""

    def do_GET(self) -> None:
        time.sleep(self.server.paces["GET"].pause(time.monotonic()))
        bus = self.server.bus
        if self.path == "/metrics":
            self._send(HTTPStatus.OK, CONTENT_TYPE, bus.figures())
        elif self.path == f"{API}status":
            self._send(HTTPStatus.OK, _JSON, state_message(bus.status))
        elif self.path in ("/health/live", "/health/ready"):
            name = self.path.rpartition("/")[2]
            well = bus.alive if name == "live" else bus.ready
            body = {name: well, "bits": bit_names(bus.status)}
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, _JSON, json.dumps(body))
        elif self.path.startswith(API) and self.path.removeprefix(API) in COMMANDS:
            self._problem(HTTPStatus.METHOD_NOT_ALLOWED, "commands are given by POST")
        else:
            self._problem(HTTPStatus.NOT_FOUND, "GET serves /metrics, /health and /api/v1/status")

    def do_POST(self) -> None:
        time.sleep(self.server.paces["POST"].pause(time.monotonic()))
        size = self.headers.get("Content-Length", "")
        if not size.isascii() or not size.isdecimal() or int(size) > LARGEST_COMMAND:
            self.close_connection = True  # what follows is no request
            words = f"Content-Length must be a number up to {LARGEST_COMMAND}"
            self._problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
            return
        raw = self.rfile.read(int(size))
        name = self.path.removeprefix(API)
        if not self.path.startswith(API) or name not in COMMANDS:
            words = f"the commands are {', '.join(COMMANDS)} under {API}"
            self._problem(HTTPStatus.NOT_FOUND, words)
        elif "Origin" in self.headers:
            self._problem(HTTPStatus.FORBIDDEN, "pages in a browser must not command a line")
        elif not self._is_known():
            self._problem(HTTPStatus.UNAUTHORIZED, "the token of the station is needed")
        else:
            self._command(name, raw)

    def _is_known(self) -> bool:
        given = self.headers.get("Authorization", "").encode()
        token = self.server.bus.token
        return not token or hmac.compare_digest(given, f"Bearer {token}".encode())

    def _command(self, name: str, raw: bytes) -> None:
        try:
            record = self.server.bus.command(name, raw, self.client_address[0])
        except ValueError as error:
            self._problem(HTTPStatus.BAD_REQUEST, str(error))
        except NoResultError:
            self._problem(HTTPStatus.SERVICE_UNAVAILABLE, "the station gave no result")
        else:
            if record is None:
                self._send(HTTPStatus.ACCEPTED, _JSON, "{}")
            elif record.accepted:
                self._send(HTTPStatus.OK, _JSON, json.dumps(part_message(record)))
            else:
                words = f"the trigger was refused: {record.reason.name}"
                self._problem(HTTPStatus.CONFLICT, words, result=part_message(record))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what http.server itself refuses, such as a method or a head that is too long."""
        self.close_connection = True
        self._problem(HTTPStatus(code), message or HTTPStatus(code).description)

    def _problem(self, status: HTTPStatus, detail: str, **others: object) -> None:
        document = {"title": status.phrase, "status": int(status), "detail": detail, **others}
        self._send(status, _PROBLEM, json.dumps(document))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
