"""A real Chromium, driven through chromedriver by the few calls of its protocol that tests need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from command_line import PATIENCE

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs: apt-get install chromium")
needs_driver = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs: apt-get install chromium chromium-driver"
)
KEYS = {
    "Escape": "\ue00c",
    "ArrowRight": "\ue014",
    "ArrowLeft": "\ue012",
    "Enter": "\ue007",
    "ArrowUp": "\ue013",
    "ArrowDown": "\ue015",
    "Tab": "\ue004",
    "Shift": "\ue008",
    "Delete": "\ue017",
    "Home": "\ue011",
}
# What a page of the station says to its reader: its alarms, messages and lost connection.
SAID = (
    "return [...document.querySelectorAll('.toast, #lost:not([hidden]), dialog[open]')]"
    ".map(each => each.textContent.trim())"
)


class Browser:
    """A client with the few calls of the WebDriver protocol that these tests need."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        options = {"args": [*QUIET, "--window-size=1200,900"], "binary": CHROMIUM}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += "/session/" + answer["sessionId"]

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the driver; what it refuses is an error with its own words."""
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data=data, method=method)
        # A proxy of the environment must not be used for requests to this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            words = json.load(error)["value"]["message"].splitlines()[0]
            raise AssertionError(f"{method} {path}: {words}") from None

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("POST", "/url", {"url": "about:blank"})
        self.call("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script in the page and return what it returns, a promise when it is kept."""
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def element(self, css: str) -> str:
        """Return the path of an element."""
        found = self.call("POST", "/element", {"using": "css selector", "value": css})
        return f"/element/{next(iter(found.values()))}"

    def click(self, css: str) -> None:
        """Click an element as a person does: it must be visible and not covered."""
        self.call("POST", self.element(css) + "/click", {})

    def type(self, css: str, text: str) -> None:
        """Type into a field."""
        self.call("POST", self.element(css) + "/value", {"text": text})

    def press(self, *names: str) -> None:
        """Press keys together and release them; a key of one letter is its own name."""
        values = [KEYS.get(name, name) for name in names]
        keys = [{"type": "keyDown", "value": value} for value in values]
        keys += [{"type": "keyUp", "value": value} for value in reversed(values)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": keys}]})

    def until(self, script: str, expected: object) -> None:
        """Wait until a script returns what is expected."""
        deadline = time.monotonic() + PATIENCE
        while (seen := self.run(script)) != expected:
            if time.monotonic() >= deadline:
                said = [*self.run(SAID), *self.messages()]
                raise AssertionError(f"{script}: {seen!r} instead of {expected!r}; said: {said}")
            time.sleep(0.05)

    def tools(self, command: str, **values: Any) -> Any:
        """Call the developer tools of Chromium."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": values})

    def size(self, width: int, height: int) -> None:
        """Give the page a screen of this size."""
        self.tools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def colors(self, scheme: str) -> None:
        """Prefer light or dark colors."""
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tools("Emulation.setEmulatedMedia", features=wanted)

    def messages(self) -> list[str]:
        """Return and forget what the console says that is an error or a warning."""
        entries = self.call("POST", "/se/log", {"type": "browser"})
        return [each["message"] for each in entries if each["level"] in ("SEVERE", "WARNING")]


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Start a browser and end it."""
    with subprocess.Popen(
        [DRIVER or "", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as driver:
        assert driver.stdout is not None
        try:
            ready = (re.search(r"on port (\d+)\.", line) for line in driver.stdout)
            browser = Browser(int(next(m for m in ready if m)[1]))
            try:
                yield browser
            finally:
                browser.call("DELETE", "")
        finally:
            driver.terminate()
