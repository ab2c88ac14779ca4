"""`anoco-edge serve --demo` as a newcomer meets it: started, set up and watched in Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chromium import Browser, started_browser
from command_line import environment

PASSWORD = "a password for the demo"
SIZE = (1024, 600)


@dataclass(frozen=True)
class OpenedDemo:
    """A browser that shows the page of a demo, and the seconds until it got that far."""

    browser: Browser
    address: str
    page_after: float
    """Until the console named the address of the page."""
    verdict_after: float
    """Until the page showed a verdict; signing in took a part of it."""


@contextmanager
def opened_demo(python: Path | str = sys.executable) -> Iterator[OpenedDemo]:
    """Start the demo of an environment, make the first user, and wait for a part."""
    with started_browser() as browser:
        browser.size(*SIZE)
        begin = time.monotonic()
        command = [str(python), "-m", "anoco_edge", "serve", "--demo"]
        demo = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        try:
            assert demo.stderr is not None
            address = _told(demo.stderr, r"the page of demo: (\S+)")
            page_after = time.monotonic() - begin
            code = _told(demo.stderr, r"code to set it up: (\S+)")
            _set_up(browser, address, code)
            browser.until("return (document.querySelector('#plate')?.innerText ?? '') !== ''", True)
            browser.until("return document.querySelectorAll('#facts dd').length > 0", True)
            yield OpenedDemo(browser, address, page_after, time.monotonic() - begin)
        finally:
            demo.terminate()
            demo.communicate()


def _told(lines: Iterator[str], pattern: str) -> str:
    said = []
    for line in lines:
        said.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(said))


def _set_up(browser: Browser, address: str, code: str) -> None:
    browser.open(address)
    browser.until("return location.pathname", "/setup")
    for name, text in (("code", code), ("name", "mia"), ("password", PASSWORD)):
        browser.type(f"[name={name}]", text)
    browser.type("[name=again]", PASSWORD)
    browser.press("Enter")
    browser.until("return location.pathname", "/")


if __name__ == "__main__":
    with opened_demo(*sys.argv[1:2]) as opened:
        print(
            f"the address of the page after {opened.page_after:.1f} s, "
            f"its first verdict after {opened.verdict_after:.1f} s"
        )
