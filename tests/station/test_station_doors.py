"""The two pages in front of the others: the first user is made, and everybody signs in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, needs_driver, started_browser
from fake_line import FakeLine
from fake_station import PASSWORD, serving
from page_checks import SIZES, axe_script, obstacles

from anoco_edge.station.web.context import StationContext

pytestmark = needs_driver
WAYS = [
    (door, lang, size, colors)
    for door in ("setup", "login")
    for lang, size, colors in (
        ("en", "panel", "dark"),
        ("de", "phone", "light"),
        ("de", "desktop", "dark"),
    )
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_script(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def stations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, StationContext]]:
    """A station without any user, and one with users."""
    folder = tmp_path_factory.mktemp("doors")
    for name in ("setup", "login"):
        (folder / name).mkdir()
    with (
        serving(folder / "setup", FakeLine(), {}) as new,
        serving(folder / "login", FakeLine()) as old,
    ):
        yield {"setup": new, "login": old}


@pytest.mark.parametrize(("door", "lang", "size", "colors"), WAYS)
def test_a_door_can_be_used_by_all(
    browser: Browser,
    axe: str,
    stations: dict[str, StationContext],
    door: str,
    lang: str,
    size: str,
    colors: str,
) -> None:
    base = stations[door].address.rstrip("/")
    browser.tools("Network.clearBrowserCookies")
    browser.tools("Network.setCookie", name="lang", value=lang, url=base)
    browser.size(*SIZES[size])
    browser.colors(colors)
    browser.messages()
    browser.open(f"{base}/")
    browser.until("return location.pathname", f"/{door}")
    assert obstacles(browser, axe) == []
    assert browser.run("return document.documentElement.lang") == lang
    assert browser.messages() == []


def test_the_first_user_is_made_with_the_code_and_keys_alone(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, FakeLine(), {}) as context:
        browser.tools("Network.clearBrowserCookies")
        browser.open(context.address)
        browser.until("return document.activeElement.name", "code")
        for name, text in (("code", "wrong"), ("name", "mia"), ("password", PASSWORD)):
            browser.type(f"[name={name}]", text)
        browser.type("[name=again]", PASSWORD + "x")
        browser.press("Enter")
        browser.until("return document.getElementById('wrong').hidden", False)
        assert context.users.none, "the passwords differ"
        for name in ("password", "again"):
            browser.type(f"[name={name}]", PASSWORD)
        browser.press("Enter")
        wrong = "return document.getElementById('wrong').textContent.includes('console')"
        browser.until(wrong, True)
        assert context.users.none, "the code is wrong"
        browser.run("document.querySelector('[name=code]').value = ''")
        browser.type("[name=code]", context.setup_code.text)
        for name in ("password", "again"):
            browser.type(f"[name={name}]", PASSWORD)
        browser.press("Enter")
        browser.until("return location.pathname", "/")
        assert [(each.name, each.role) for each in context.users.all()] == [("mia", "admin")]
