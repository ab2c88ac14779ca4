"""Bodies that are too large, requests that are too many, and clients that are too slow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from station_page import PATIENCE, Page, serve_page
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from anoco_edge.station.web import limits, server
from anoco_edge.station.web.live import MOST_TABS, MOST_WAITING, LiveHub
from anoco_edge.station.web.live_messages import LiveLog

FOUR_GB = 4 << 30


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serve_page(tmp_path_factory.mktemp("page")) as page:
        yield page


def raw(page: Page) -> socket.socket:
    return socket.create_connection(("127.0.0.1", page.port), PATIENCE)


def head(page: Page, *more: str) -> bytes:
    lines = ("POST /api/v1/session HTTP/1.1", f"Host: 127.0.0.1:{page.port}", *more, "", "")
    return "\r\n".join(lines).encode()


def test_an_upload_of_4_gb_is_refused_before_it_is_read(page: Page) -> None:
    for length in (str(FOUR_GB), str(limits.LARGEST_BODY + 1)):
        with closing(raw(page)) as link:
            link.sendall(head(page, f"Content-Length: {length}"))
            answer = link.recv(4096)
            assert answer.startswith(b"HTTP/1.1 413"), answer
            assert b"application/problem+json" in answer


def test_an_upload_without_a_length_is_refused_when_it_is_too_long(page: Page) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent, answer = 0, b""
    with closing(raw(page)) as link:
        link.sendall(head(page, "Transfer-Encoding: chunked", "Content-Type: application/json"))
        try:
            while sent < FOUR_GB:
                link.sendall(chunk)
                sent += len(chunk)
        except OSError:  # it hung up, as it should
            pass
        try:
            answer = link.recv(4096)
        except ConnectionError:
            answer = b""
    assert sent < limits.LARGEST_BODY + (32 << 20), "the rest lay in buffers of the kernel"
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413"), answer
    assert page.browser("vera").get("/api/v1/state").status == 200


def test_a_body_that_is_a_little_too_long_is_told_so(page: Page) -> None:
    program = page.token("engineer")
    body = b" " * (limits.LARGEST_BODY + 1)
    chunked = {"Transfer_Encoding": "chunked", "Content_Length": None}
    for _ in range(5):
        # What is on its way when the station hangs up resets the connection, and the answer can
        # be lost.
        with suppress(ConnectionResetError):
            answer = program.ask("POST", "/api/v1/line/enable", body, **chunked)
            assert answer.status in (400, 413)
            return
    pytest.fail("five connections were reset and none was answered")


def test_a_head_that_is_too_long_or_never_ends_is_dropped(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(raw(page)) as link:
        link.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (server.LARGEST_HEAD + 1000))
        assert link.recv(4096).startswith(b"HTTP/1.1 400")
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with closing(raw(page)) as silent, closing(raw(page)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        for link in (silent, slow):
            with suppress(ConnectionResetError):
                assert link.recv(4096) == b""


def test_who_asks_too_fast_waits_and_others_do_not(tmp_path: Path) -> None:
    buckets = limits.Buckets(rate=10, burst=5, clock=lambda: 0.0)
    assert [buckets.take("a") for _ in range(6)] == [True] * 5 + [False]
    assert buckets.take("b")
    with serve_page(tmp_path, paced=True) as page:
        browser = page.browser()
        statuses = [browser.sign_in("vera", password="wrong one!").status for _ in range(4)]
        assert statuses == [401] * 4
        page.context.tries.succeed("vera@127.0.0.1")
        for number in range(16):
            browser.sign_in(f"user {number}", password="wrong one!")
        deadline = time.monotonic() + PATIENCE
        number = 0
        while (answer := browser.sign_in(f"more {number}", password="wrong one!")).status == 401:
            number += 1
            assert time.monotonic() < deadline and number < 200
        assert answer.status == 429 and answer.headers["retry-after"]


def test_a_tab_that_does_not_read_is_dropped_and_others_are_not() -> None:
    hub = LiveHub()
    slow, quick = hub.join("slow"), hub.join("quick")
    assert slow is not None and quick is not None
    for number in range(MOST_WAITING + 1):
        hub.publish(LiveLog(level="info", text=f"line {number}"))
        assert quick.waiting.get_nowait() is not None
    assert slow.slow and not quick.slow
    assert hub.tabs == 1 and hub.dropped == 1
    assert slow.waiting.qsize() == MOST_WAITING


def test_there_are_only_so_many_tabs(page: Page) -> None:
    token = page.token("viewer").token
    address = f"ws://127.0.0.1:{page.port}/api/v1/live"
    headers = {"Authorization": f"Bearer {token}"}
    tabs = []
    try:
        for _ in range(MOST_TABS):
            tabs.append(connect(address, additional_headers=headers))
            tabs[-1].recv(PATIENCE)
        with connect(address, additional_headers=headers) as one_more:
            with pytest.raises(ConnectionClosed) as closed:
                one_more.recv(PATIENCE)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
    finally:
        for tab in tabs:
            tab.close()


def test_a_message_that_is_too_long_ends_its_web_socket(page: Page) -> None:
    headers = {"Authorization": f"Bearer {page.token('viewer').token}"}
    address = f"ws://127.0.0.1:{page.port}/api/v1/live"
    with connect(address, additional_headers=headers) as socket_:
        socket_.recv(PATIENCE)
        socket_.send("x" * (server.LARGEST_MESSAGE + 1))
        with pytest.raises(ConnectionClosed):
            socket_.recv(PATIENCE)
