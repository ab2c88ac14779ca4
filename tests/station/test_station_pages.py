"""Every page of the station in a real Chromium: it works, and for everybody."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from chromium import Browser, needs_driver, started_browser
from fake_line import FakeLine
from fake_station import PASSWORD, serving
from page_checks import SIZES, WIDE, axe_script, obstacles
from PIL import Image

from anoco_edge.station.web.context import StationContext

pytestmark = needs_driver

PAGES = {
    "station": "/",
    "rejects": "/rejects",
    "history": "/history",
    "product": "/products/1",
    "teach": "/teach",
    "line": "/line",
    "system": "/system",
}
# What a page shows once its data has come.
LOADED = {
    "station": "return document.querySelectorAll('#strip button').length",
    "rejects": "return document.querySelectorAll('#grid .card').length",
    "history": "return document.querySelectorAll('#parts tbody tr').length && "
    "document.querySelectorAll('.u-over').length",
    "product": "return document.querySelectorAll('#shadow p').length && "
    "document.querySelectorAll('#editor .outline').length",
    "teach": "return document.querySelectorAll('#step select option').length",
    "line": "return document.querySelectorAll('#bits li').length && "
    "document.querySelectorAll('#cameras canvas').length",
    "system": "return document.querySelectorAll('#health .note').length",
}
SAVED = "return document.getElementById('generations').textContent.includes('Generation {}')"
EVIL = "<img src=x onerror=\"document.title='owned'\"><b id=evil>&amp;"


class Pages:
    """A browser that is signed in to a station with a made-up line."""

    def __init__(self, browser: Browser, context: StationContext, line: FakeLine) -> None:
        self.browser, self.context, self.line = browser, context, line
        self.base = context.address.rstrip("/")

    def sign_in(self, name: str = "mia") -> None:
        """Begin a session; the cookie is set as the page for signing in would have it set."""
        self.browser.tools("Network.clearBrowserCookies")
        secret = self.context.sessions.open(name, "password")
        self.cookie(self.context.cookie, secret)

    def cookie(self, name: str, value: str) -> None:
        self.browser.tools("Network.setCookie", name=name, value=value, url=self.base)

    def open(self, page: str, lang: str = "en") -> None:
        self.cookie("lang", lang)
        self.browser.open(self.base + PAGES[page])
        self.browser.until(f"return Boolean((() => {{ {LOADED[page]} }})())", True)

    def text(self, css: str) -> str:
        return str(self.browser.run(f"return document.querySelector('{css}').textContent"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_script(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Pages]:
    line = FakeLine()
    with serving(tmp_path_factory.mktemp("station"), line) as context:
        yield Pages(browser, context, line)


def begin(pages: Pages) -> Pages:
    """Begin a test with a line as new, on a panel in light colors, signed in."""
    line = pages.line
    line.__dict__.update({**FakeLine().__dict__, "sockets": line.sockets})
    pages.browser.open("about:blank")  # the page of the test before asks for more, without a cookie
    pages.browser.size(*SIZES["panel"])
    pages.browser.colors("light")
    pages.sign_in()
    pages.browser.messages()
    return pages


@pytest.fixture
def pages(served: Pages) -> Pages:
    return begin(served)


@pytest.fixture
def pages_alone(served: Pages) -> Iterator[Pages]:
    """The pages in a browser of the test's own: one whose network was emulated once sends neither
    pictures nor files any more."""
    with started_browser() as own:
        yield begin(Pages(own, served.context, served.line))


def check(pages: Pages, axe: str, page: str, lang: str, size: str, colors: str) -> None:
    browser = pages.browser
    browser.size(*SIZES[size])
    browser.colors(colors)
    pages.open(page, lang)
    assert obstacles(browser, axe) == []
    assert browser.run("return document.documentElement.lang") == lang
    assert browser.messages() == []


@pytest.mark.parametrize(
    ("page", "lang", "size", "colors"),
    [
        (page, ("en", "de")[at % 2], list(SIZES)[at % 3], ("light", "dark")[at % 4 // 2])
        for at, page in enumerate(PAGES)
    ],
)
def test_a_page_can_be_used_by_all(
    pages: Pages, axe: str, page: str, lang: str, size: str, colors: str
) -> None:
    check(pages, axe, page, lang, size, colors)


@pytest.mark.parametrize(
    ("lang", "size"), [("en", "panel"), ("de", "panel"), ("en", "phone"), ("de", "phone")]
)
def test_tables_of_parts_and_users_need_no_scrolling_sideways(
    pages: Pages, lang: str, size: str
) -> None:
    browser = pages.browser
    browser.size(*SIZES[size])
    for page, table in (("history", "#parts .scroll"), ("system", "#users .scroll")):
        pages.open(page, lang)
        found = f"document.querySelector('{table}')"
        browser.until(f"return Boolean({found})", True)
        assert browser.run(f"return {found}.scrollWidth - {found}.clientWidth") <= 0, page


def test_the_names_of_pages_fit_into_the_rail(pages: Pages) -> None:
    pages.open("rejects", "de")
    rail = "document.querySelector('.rail')"
    assert pages.browser.run(f"return {rail}.scrollWidth - {rail}.clientWidth") <= 0
    long = "document.querySelector('.card .line .num').textContent = '122,08\\u00a0 x'"
    card = "document.querySelector('.card')"
    pages.browser.run(long)
    assert pages.browser.run(f"return {card}.scrollWidth - {card}.clientWidth") <= 0


@pytest.mark.parametrize(
    ("page", "size"), [("station", "panel"), ("station", "phone"), ("line", "phone")]
)
def test_large_figures_lie_beside_each_other(pages: Pages, page: str, size: str) -> None:
    browser = pages.browser
    browser.size(*SIZES[size])
    pages.open(page)
    figures = "[...document.querySelectorAll('.figures dd')]"
    texts = ["97.4 %", "1,234,567", "123,456", "1,234", "1,234", "120", "1,930 ms", "1,234,567"]
    if page == "line":
        texts = ["2,000 ms"] * 5
    browser.run(f"{figures}.forEach((each, at) => {{ each.textContent = {texts}[at]; }})")
    too_wide = "each.scrollWidth > each.clientWidth || each.clientHeight > 40"
    assert browser.run(f"return {figures}.filter(each => {too_wide}).length") == 0
    assert browser.run(WIDE) <= 0


def test_the_marks_of_axes_are_where_their_figures_say(pages: Pages) -> None:
    browser = pages.browser
    pages.open("product")
    histogram = f"import('{pages.base}/static/js/histogram.js')"
    for end in (0.0031, 0.7, 2.1, 9.9, 10.5, 130, 4200):
        found = browser.run(f"return {histogram}.then(it => it.roundStep({end}, 6))")
        step, digits = found["step"], found["digits"]
        assert 2 <= end / step <= 6 and round(step, digits) == pytest.approx(step, rel=1e-9)
    text = f"import('{pages.base}/static/js/text.js')"
    marks = browser.run(f"return {text}.then(it => it.axisTimes([60, 65, 70, 75]))")
    assert len(set(marks)) == 4, marks


@pytest.mark.full
@pytest.mark.parametrize("colors", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lang", ["en", "de"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_in_every_way(
    pages: Pages, axe: str, page: str, lang: str, size: str, colors: str
) -> None:
    check(pages, axe, page, lang, size, colors)


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Pages]:
    line = FakeLine(EVIL)
    with serving(tmp_path_factory.mktemp("evil"), line) as context:
        context.users.add("<b id=evil>", "admin", PASSWORD)
        yield Pages(browser, context, line)


@pytest.mark.parametrize("page", PAGES)
def test_names_with_markup_stay_text(evil: Pages, page: str) -> None:
    browser = evil.browser
    # The policy of the pages would stop a script as well; here only the escaping can.
    browser.tools("Page.setBypassCSP", enabled=True)
    try:
        evil.sign_in("<b id=evil>")
        evil.open(page)
        if page in ("station", "rejects"):
            browser.run("document.querySelector('#strip button, #grid .card').focus()")
            browser.press("Enter")
            browser.until(
                "return document.querySelectorAll('#part .facts, #part dl dd').length > 3", True
            )
        browser.until("return document.body.textContent.includes('onerror=')", True)
        assert browser.run("return document.getElementById('evil')") is None
        assert browser.run("return document.querySelectorAll('img[onerror]').length") == 0
        assert "owned" not in browser.run("return document.title")
    finally:
        browser.tools("Page.setBypassCSP", enabled=False)


def test_a_part_appears_at_once_with_its_verdict(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    for number, verdict, word in ((67, "anomalous", "Reject"), (68, "good", "Good")):
        part = pages.line.make(number)
        pages.line.parts.insert(0, part)
        pages.line.send({"type": "part", **part})
        browser.until("return document.getElementById('plate').textContent", word)
        browser.until("return document.getElementById('plate').classList[1]", verdict)
        browser.until(
            "return document.getElementById('reference-figure').hidden", verdict == "good"
        )
    assert browser.run("return document.querySelectorAll('#strip button').length") == 12
    assert "W0068" in browser.run("return document.querySelector('#picture canvas').ariaLabel")


# Explanations are answered when the test says so; `asked` holds the uids in their order.
HELD = """
window.asked = []; window.answer = {}; const real = window.fetch;
window.fetch = (path, options) => {
  const uid = /parts\\/([^/]+)\\/captures\\/0\\/explanation/.exec(path)?.[1];
  if (!uid) return real(path, options);
  window.asked.push(uid);
  return new Promise((go) => { window.answer[uid] = () => go(real(path, options)); });
};
window.boxes = 0; const stroke = CanvasRenderingContext2D.prototype.strokeRect;
CanvasRenderingContext2D.prototype.strokeRect = function (...at) {
  if (this.strokeStyle === "#7cff5c") window.boxes += 1;  // the patch that was compared
  stroke.apply(this, at);
}"""
MISSING = "return document.querySelector('#reference .missing:not([hidden])')?.textContent"
SOON = "Looking for the reference …"


def test_a_slow_reference_is_never_shown_beside_another_part(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    browser.run(HELD)
    first, second = pages.line.make(67), pages.line.make(74)
    for part in (first, second):
        pages.line.parts.insert(0, part)
        pages.line.send({"type": "part", **part})
        browser.until(f"return document.body.textContent.includes('{part['part_code']}')", True)
        browser.until(MISSING, SOON)
        browser.until("return window.asked", [first["uid"]])
    browser.run(f"window.answer['{first['uid']}']()")
    browser.until("return window.asked", [first["uid"], second["uid"]])
    assert browser.run(MISSING) == SOON
    assert browser.run("return window.boxes") == 0, "drawn over the picture of another part"
    browser.run(f"window.answer['{second['uid']}']()")
    browser.until(MISSING, None)
    assert browser.run("return window.boxes") > 0


def test_a_session_that_ended_asks_to_sign_in_and_returns(pages: Pages) -> None:
    browser = pages.browser
    pages.open("rejects")
    pages.browser.tools("Network.clearBrowserCookies")
    browser.click("[data-show=near]")
    browser.until("return location.pathname + location.search", "/login?next=%2Frejects")
    browser.type("[name=name]", "mia")
    browser.type("[name=secret]", "wrong")
    browser.press("Enter")
    browser.until("return document.getElementById('wrong').hidden", False)
    assert "name, password or PIN are wrong" in pages.text("#wrong")
    browser.type("[name=secret]", PASSWORD)
    browser.press("Enter")
    browser.until("return location.pathname", "/rejects")


@pytest.mark.parametrize(
    "address",
    [
        "//example.com/",
        "https://example.com/",
        "javascript:alert(1)",
        "/.//example.com/",
        "/\\x.com",
    ],
)
def test_signing_in_leads_nowhere_else(pages: Pages, address: str) -> None:
    browser = pages.browser
    browser.tools("Network.clearBrowserCookies")
    browser.open(f"{pages.base}/login?next={quote(address, safe='')}")
    script = f"{pages.base}/static/js/door.js"
    found = f"import('{script}').then(door => new URL(door.destination(), location.href).origin)"
    assert browser.run(f"return {found}") == pages.base


def test_rejects_are_reviewed_with_keys_alone(pages: Pages) -> None:
    browser = pages.browser
    pages.open("rejects")
    browser.run("document.getElementById('content').focus()")
    while not browser.run("return document.activeElement.matches('.card')"):
        browser.press("Tab")
    first = browser.run("return document.activeElement.dataset.uid")
    browser.press("ArrowRight")
    browser.press("Shift", "ArrowRight")
    chosen = browser.run(
        "return [...document.querySelectorAll('[aria-selected=true]')].map(c => c.dataset.uid)"
    )
    assert len(chosen) == 2 and first not in chosen
    browser.press("d")
    browser.until("return document.querySelectorAll('[aria-selected=true]').length", 0)
    assert {uid: each["verdict"] for uid, each in pages.line.reviews.items()} == dict.fromkeys(
        chosen, "defect"
    )
    assert {each["by"] for each in pages.line.reviews.values()} == {"mia"}
    browser.press("u")
    browser.until("return document.getElementById('undo').disabled", True)
    assert pages.line.reviews == {}
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    assert "Is a defect" in pages.text("#help-keys")
    inside = pages.text("#help-keys").partition("With a part open")[2]
    assert "Keep for ever" in inside and "Space" not in inside
    browser.press("d")  # a key of the page does nothing below a dialog
    browser.press("Escape")
    assert not browser.run("return document.getElementById('help').open")
    assert pages.line.reviews == {}


def test_good_becomes_a_reference_after_a_dry_run(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    browser.until("return document.getElementById('was-good').disabled", False)
    browser.press("g")
    browser.until("return document.querySelectorAll('#correction .flips li').length", 2)
    shown = pages.text("#correction")
    assert "2 would get another verdict" in shown and "2 to 13" in shown
    assert pages.line.reviews["r1-000060"]["verdict"] == "good"
    assert not any(name == "apply" for name, _ in pages.line.commands), "nothing before it is asked"
    browser.press("Enter")
    browser.until("return document.getElementById('correction').open", False)
    assert [name for name, _ in pages.line.commands] == ["references", "apply"]


def test_a_dry_run_that_nobody_waits_for_opens_no_dialog(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    browser.until("return document.getElementById('was-good').disabled", False)
    browser.run(
        """const real = window.fetch; window.jobs = [];
        window.fetch = (path, options) => path.includes('/jobs/')
          ? new Promise((go) => window.jobs.push(() => go(real(path, options))))
          : real(path, options)"""
    )
    browser.press("g")
    browser.until("return window.jobs.length", 1)
    browser.press("Escape")
    browser.until("return document.getElementById('correction').open", False)
    browser.run("window.jobs[0](); return new Promise((go) => setTimeout(go, 500))")
    assert not browser.run("return document.getElementById('correction').open")


def test_a_trial_is_followed_without_moving_its_buttons(pages: Pages) -> None:
    browser = pages.browser
    pages.open("product")
    browser.run("window.take = document.querySelector('#shadow .row button.main')")
    pages.line.seen = 313
    pages.line.send({"type": "job", "kind": "shadow"})
    found = "document.getElementById('shadow').textContent.includes('313 of 500')"
    browser.until(f"return {found}", True)
    assert browser.run("return document.querySelector('#shadow progress').value") == 313
    assert browser.run("return window.take.isConnected")


def test_a_press_that_meant_the_part_before_notes_nothing(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    browser.until("return document.getElementById('was-good').disabled", False)
    part = pages.line.make(68)
    pages.line.parts.insert(0, part)
    # The key comes with the part, as it does when somebody decided about the one before.
    browser.run(
        """window.pressed = false;
        new MutationObserver(() => {
          if (window.pressed) return;
          window.pressed = true;
          document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'g', bubbles: true}));
        }).observe(document.getElementById('facts'), {childList: true})"""
    )
    pages.line.send({"type": "part", **part})
    browser.until("return document.getElementById('toasts').textContent.includes('below')", True)
    assert pages.line.reviews == {}
    assert not browser.run("return Boolean(document.querySelector('dialog[open]'))")


@pytest.mark.parametrize(
    ("bits", "word"),
    [
        (["READY"], "running"),
        (["BUSY"], "running"),
        (["RESULT_VALID", "PASS"], "running"),  # the PLC has not acknowledged it yet
        ([], "Ready"),
        (["RESULT_VALID", "MAINTENANCE"], "paused"),
        (["RESULT_VALID", "FAULT"], "fault"),
    ],
)
def test_the_chip_says_how_the_line_is(pages: Pages, bits: list[str], word: str) -> None:
    pages.open("station")
    module = f"import('{pages.base}/static/js/shell.js')"
    state = json.dumps({"bits": bits, "state": "Ready"})
    found = pages.browser.run(f"return {module}.then(shell => shell.lineState({state})[0])")
    assert found == word


def test_an_alarm_that_stands_there_is_not_repeated(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    for text in ("the camera is lost", "the disk is full", "the camera is lost"):
        pages.line.send({"type": "log", "level": "error", "text": text})
    alarms = "[...document.querySelectorAll('#alarms span')].map(each => each.textContent)"
    browser.until(f"return {alarms}", ["the disk is full", "the camera is lost"])


def test_pause_is_one_key_and_shows(pages: Pages) -> None:
    browser = pages.browser
    pages.open("station")
    browser.press("?")
    assert "pPause" in pages.text("#help-keys").replace(" ", "").partition("With")[0]
    browser.press("Escape")
    browser.until("return document.getElementById('help').open", False)
    browser.press("p")
    browser.until("return document.getElementById('line-state').textContent", "Paused")
    browser.until("return document.getElementById('pause').textContent", "Resume")
    browser.until("return document.getElementById('pause').disabled", False)  # it was answered
    browser.press("p")
    browser.until("return document.getElementById('line-state').textContent", "Running")
    assert pages.line.commands == [("maintenance", {"on": True}), ("maintenance", {"on": False})]


def test_the_threshold_is_moved_tried_and_saved_with_keys(pages: Pages) -> None:
    browser = pages.browser
    pages.open("product")
    before = pages.text("#promise")
    browser.press("t")
    for _ in range(5):
        browser.press("ArrowRight")
    handle = "document.querySelector('[role=slider]')"
    assert float(browser.run(f"return {handle}.ariaValueNow")) == pytest.approx(1.6 * 1.01**5)
    assert pages.text("#promise") != before
    assert pages.text("#promise") in browser.run(f"return {handle}.ariaValueText")
    browser.press("w")
    browser.until("return document.querySelectorAll('#what-if .flips li').length", 2)
    browser.click("#save-threshold")
    browser.until(
        "return document.getElementById('generations').textContent.includes('Generation 5')", True
    )
    assert pages.line.threshold == pytest.approx(1.6 * 1.01**5, rel=1e-3)


def test_two_engineers_save_at_once(pages: Pages) -> None:
    browser = pages.browser
    pages.open("product")
    pages.line.generation, pages.line.threshold = 5, 2.2  # somebody else saved
    browser.press("t")
    browser.press("ArrowLeft")
    browser.click("#save-threshold")
    browser.until(
        "return document.getElementById('alarms').textContent.includes('Nothing was overwritten')",
        True,
    )
    assert pages.line.threshold == 2.2
    assert browser.run("return document.getElementById('threshold').value") == "2.2"


def test_region_and_mask_are_drawn_with_keys(pages: Pages) -> None:
    browser = pages.browser
    pages.open("product")
    browser.click("#draw-mask")
    browser.until("return document.activeElement.dataset.corner", "0")
    browser.press("Shift", "ArrowLeft")
    browser.press("ArrowDown")
    browser.press("+")
    browser.press("Tab")
    browser.press("Delete")
    browser.run("document.getElementById('save-area').focus()")
    browser.press("Enter")
    browser.until(SAVED.format(5), True)
    assert pages.line.mask is not None
    with Image.open(io.BytesIO(pages.line.mask)) as mask:
        white = {at: mask.convert("L").getpixel(at) for at in ((40, 340), (185, 190), (140, 220))}
    # The saved corner, the corner that was moved out, and a place that moved with the other edge.
    assert white == {(40, 340): 255, (185, 190): 255, (140, 220): 0}
    browser.click("#whole")
    browser.run("document.getElementById('save-area').focus()")
    browser.press("Enter")
    browser.until(SAVED.format(7), True)
    assert (pages.line.region, pages.line.mask) == ([], None)


def test_a_product_is_taught_in_four_steps(pages: Pages) -> None:
    browser = pages.browser
    pages.open("teach")
    browser.click("#step button.main")
    browser.until("return document.querySelectorAll('#slots li').length", 4)
    for number in range(1, 5):
        browser.press("c")
        browser.until("return document.querySelectorAll('#slots img').length", number)
    assert pages.text("#missing") == "That is enough. More pictures make it better."
    browser.click("#step button.main")
    browser.until("return document.querySelector('[aria-current=step]').dataset.step", "done")
    assert "With 95 more good parts" in pages.text("#step")


def test_a_viewer_sees_and_changes_nothing(pages: Pages) -> None:
    browser = pages.browser
    pages.sign_in("vera")
    pages.open("station")
    hidden = (
        "return [...document.querySelectorAll('[data-needs]')]"
        ".every(each => !each.checkVisibility())"
    )
    assert browser.run(hidden)
    browser.press("p")
    browser.press("g")
    pages.open("product")
    assert browser.run(hidden)
    assert not browser.run("return document.querySelector('#editor [tabindex]')")
    assert (pages.line.commands, pages.line.reviews) == ([], {})


def test_colors_and_language_are_kept(pages: Pages) -> None:
    browser = pages.browser
    pages.open("line")
    page = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(page)
    browser.click(".menu summary")
    browser.click("[data-theme-choice=dark]")
    dark = browser.run(page)
    assert dark != light
    browser.click("[data-lang-choice=de]")
    browser.until("return document.documentElement.lang", "de")
    browser.open(pages.base + "/history")
    assert (browser.run(page), browser.run("return document.querySelector('h1').textContent")) == (
        dark,
        "Verlauf",
    )


# The last one: after an emulated network this Chromium sends no more files.
def test_the_browser_sleeps_and_comes_back(pages_alone: Pages) -> None:
    pages, browser = pages_alone, pages_alone.browser
    pages.open("station")
    browser.until("return document.body.dataset.lost === undefined", True)
    browser.tools("Network.enable")
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.tools("Network.emulateNetworkConditions", offline=True, **network)
    browser.until("return document.getElementById('lost').hidden", False)
    assert "What you see is old" in pages.text("#lost-text")
    missed = pages.line.make(69)
    pages.line.parts.insert(0, missed)  # a part that came meanwhile
    browser.tools("Network.emulateNetworkConditions", offline=False, **network)
    browser.until("return document.getElementById('lost').hidden", True)
    browser.until("return document.querySelector('#facts').textContent.includes('W0069')", True)
    # A computer that slept: nothing of the page ran, and the station closed the connection.
    browser.tools("Page.setWebLifecycleState", state="frozen")
    pages.line.hang_up()
    pages.line.parts.insert(0, pages.line.make(70))
    browser.tools("Page.setWebLifecycleState", state="active")
    browser.until("return document.querySelector('#facts').textContent.includes('W0070')", True)
    browser.until("return document.body.dataset.lost === undefined", True)
