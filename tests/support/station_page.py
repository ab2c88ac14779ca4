"""A station's web process in a thread of the test, and browsers on real sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from anoco_edge.line.config.station_config import EXAMPLE, StationConfig, parse_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.station.people import passwords
from anoco_edge.station.web import limits
from anoco_edge.station.web.app import create_app
from anoco_edge.station.web.context import StationContext, open_context
from anoco_edge.station.web.server import StationServer
from anoco_edge.station.web.tls import certificate_for

PATIENCE = 60
PASSWORD = "a long password"


@dataclass
class Clock:
    """A clock of the test: what `time.time` and `time.monotonic` would say."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Answer:
    """An answer: status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    """Keeps cookies and sends the headers of a browser; `origin` None is a program."""

    port: int
    origin: str | None = ""
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""
    token: str = ""

    def __post_init__(self) -> None:
        if self.origin == "":
            self.origin = f"http://127.0.0.1:{self.port}"

    def headers(self, method: str) -> dict[str, str]:
        found = {"Host": f"127.0.0.1:{self.port}"}
        if self.cookies:
            found["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if self.origin is not None and method != "GET":
            found["Origin"] = self.origin
        if self.csrf and method != "GET":
            found["X-Anoco-CSRF"] = self.csrf
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        return found

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """Make a request; headers are given with _ for -, and None leaves one out."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        given = self.headers(method)
        raw = None
        if body is not None:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            given["Content-Type"] = "application/json"
        for name, value in headers.items():
            given.pop(name.replace("_", "-"), None)
            if value is not None:
                given[name.replace("_", "-")] = value
        try:
            link.request(method, path, raw, given)
            answer = link.getresponse()
            found = Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            link.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                for key, morsel in SimpleCookie(value).items():
                    self.cookies[key] = morsel.value
        return found

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str | None) -> Answer:
        return self.ask("POST", path, {} if body is None else body, **headers)

    def sign_in(self, name: str, **secret: str) -> Answer:
        """Sign in with a password (that of all tests, if none is given) or a PIN."""
        answer = self.post("/api/v1/session", {"name": name, **(secret or {"password": PASSWORD})})
        if answer.status == 200:
            self.csrf = answer.json["csrf"]
        return answer


@dataclass
class Page:
    """A page that is served, and what it works with."""

    context: StationContext
    server: StationServer
    port: int
    clock: Clock

    def browser(self, name: str = "", **options: Any) -> Browser:
        """Return a new browser, in which a user is signed in if one is named."""
        browser = Browser(self.port, **options)
        if name:
            answer = browser.sign_in(name)
            assert answer.status == 200, answer.body
        return browser

    def token(self, scope: Any, owner: str = "ada") -> Browser:
        """Return a program with a token."""
        _, token = self.context.tokens.add("test", scope, owner, None)
        return Browser(self.port, origin=None, token=token)


def page_config(port: int, more: str = "", folder: str = "press-3") -> StationConfig:
    text = EXAMPLE.replace('folder = "press-3"', f'folder = "{folder}"')
    return parse_config(f"{text}\n[page]\nport = {port}\n{more}", "station.toml")


@contextmanager
def serve_page(
    folder: Path,
    *,
    config: StationConfig | None = None,
    users: bool = True,
    paced: bool = False,
    **changes: Any,
) -> Iterator[Page]:
    """Serve the page of a station whose users are ada (admin), eve (engineer), otto (operator) and
    vera (viewer). Only with `paced` are requests limited as they are for users."""
    passwords.COST = 16  # a real one takes 0.1 s
    limits.BURST, limits.SIGN_IN_BURST = (200, 20) if paced else (100_000, 100_000)
    port, clock = free_port(), Clock()
    config = config or page_config(port)
    assert config.page is not None
    context = open_context(config, folder, clock=clock)
    for name, value in changes.items():
        object.__setattr__(context, name, value)
    if users:
        for name, role in (
            ("ada", "admin"),
            ("eve", "engineer"),
            ("otto", "operator"),
            ("vera", "viewer"),
        ):
            if context.users.none or name not in {each.name for each in context.users.all()}:
                context.users.add(name, role, PASSWORD)  # type: ignore[arg-type]
    certificate = certificate_for(config.page, folder, context.folder)
    server = StationServer(create_app(context), context, certificate)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started:
        assert thread.is_alive() and time.monotonic() < until
        time.sleep(0.01)
    try:
        yield Page(context, server, config.page.port, clock)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        context.close()
        assert not thread.is_alive()
