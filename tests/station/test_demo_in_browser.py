"""`anoco-edge serve --demo` as a newcomer meets it, in a real Chromium."""

from __future__ import annotations

import socket

import pytest
from chromium import needs_driver
from demo_in_browser import opened_demo
from paths import ROOT
from PIL import Image

from anoco_edge.line.demo_station import free_port


@pytest.mark.full
@needs_driver
def test_the_demo_shows_its_first_verdict_to_who_types_the_code() -> None:
    with opened_demo() as demo:
        browser = demo.browser
        words = browser.run("return document.getElementById('plate').innerText")
        assert words in ("Good", "Reject")
        browser.until("return document.getElementById('line-state').innerText", "Running")
        browser.until("return document.querySelectorAll('#strip button img').length > 2", True)
        assert browser.messages() == []
        assert demo.page_after < demo.verdict_after


def test_a_demo_that_is_started_again_has_the_same_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        assert free_port(port) != port, "somebody listens there"
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = server.accept()
        connection.close()  # the side that closes first keeps the port for a minute
        assert client.recv(1) == b""
        client.close()
    assert free_port(port) == port


def test_the_picture_in_the_readme_is_a_minute_and_small() -> None:
    path = ROOT / "docs" / "station-minute.webp"
    assert path.stat().st_size < 1_500_000
    seconds = 0.0
    with Image.open(path) as picture:
        for frame in range(picture.n_frames):  # type: ignore[attr-defined]
            picture.seek(frame)
            picture.load()
            seconds += picture.info["duration"] / 1000
    assert 45 < seconds < 75
    assert "docs/station-minute.webp" in (ROOT / "README.md").read_text(encoding="utf-8")
