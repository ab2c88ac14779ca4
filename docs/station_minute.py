"""Makes docs/station-minute.webp: a minute of `anoco-edge serve --demo` in a browser.

    python docs/station_minute.py --write    # needs Chromium and its driver

The demo is started and set up as a newcomer would, every page is shown, a reject is tried as a
reference and a threshold is moved; pictures of the screen are taken all the while.
"""

from __future__ import annotations

import base64
import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from chromium import Browser  # noqa: E402 (the browser of the tests)
from demo_in_browser import opened_demo  # noqa: E402

PICTURE = ROOT / "docs/station-minute.webp"
WIDTH, HEIGHT = 800, 469  # of a screen of 1024x600
PAUSE = 0.5  # seconds between two pictures
QUALITY = 45


@dataclass
class Film:
    """The pictures of a browser, and for how many milliseconds each of them is shown."""

    browser: Browser
    frames: list[Image.Image] = field(default_factory=list)
    lasting: list[int] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Take pictures for so long; equal ones become one that lasts longer."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            shot = self.browser.tools("Page.captureScreenshot", format="png")
            frame = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
            frame = frame.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
            time.sleep(max(0.0, now + PAUSE - time.monotonic()))
            if self.frames and frame.tobytes() == self.frames[-1].tobytes():
                self.lasting[-1] += round(1000 * PAUSE)
            else:
                self.frames.append(frame)
                self.lasting.append(round(1000 * PAUSE))

    def page(self, number: int, loaded: str, seconds: float) -> None:
        """Go to a page by its key and look at it."""
        self.browser.press(str(number))
        self.browser.until(f"return Boolean({loaded})", True)
        self.run(seconds)

    def save(self, path: Path) -> None:
        """Write the pictures as an animated WebP that goes on from the beginning."""
        first, *others = self.frames
        options = {"duration": self.lasting, "loop": 0, "quality": QUALITY, "method": 6}
        first.save(path, save_all=True, append_images=others, minimize_size=True, **options)


def record(film: Film) -> None:
    """Show what an operator and an engineer do."""
    browser = film.browser
    film.run(9)
    browser.until("return Boolean(document.querySelector('#strip button.anomalous'))", True)
    browser.click("#strip button.anomalous")
    browser.until("return document.querySelectorAll('#part dl dd').length > 3", True)
    film.run(4)
    browser.click(
        "#part .actions-last, #part .row button:last-child"
    )  # a reference of it: what if?
    browser.until("return Boolean(document.querySelector('#correction .promise'))", True)
    film.run(4)
    browser.press("Escape")
    browser.press("Escape")
    film.page(2, "document.querySelectorAll('#grid .card img').length > 1", 2)
    browser.run("document.querySelector('#grid .card').focus()")
    browser.press("ArrowRight")
    browser.press("Shift", "ArrowRight")
    film.run(2)
    browser.press("d")
    film.run(3)
    film.page(3, "document.querySelector('.u-over')", 5)
    film.page(4, "document.querySelector('[role=slider]')", 3)
    browser.press("t")
    for _ in range(8):
        browser.press("Shift", "ArrowRight")
        film.run(0.4)
    browser.press("w")
    browser.until("return document.querySelector('#what-if').textContent.length > 20", True)
    film.run(3)
    film.page(5, "document.querySelector('#step select option')", 3)
    film.page(6, "document.querySelector('#bits li')", 6)
    film.page(7, "document.querySelector('#health .note')", 3)
    film.page(1, "document.querySelectorAll('#facts dd').length", 9)


def main() -> None:
    """Record the minute, and keep it if asked to."""
    with opened_demo() as demo:
        film = Film(demo.browser)
        record(film)
    seconds = sum(film.lasting) / 1000
    sys.stdout.write(f"{len(film.frames)} pictures, {seconds:.0f} s\n")
    if "--write" in sys.argv[1:]:
        film.save(PICTURE)
        sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
