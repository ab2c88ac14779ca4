"""Signing in: the first user, passwords, PINs, sessions, and who guesses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from station_page import PASSWORD, Browser, Clock, Page, serve_page

from anoco_edge.errors import UsageError
from anoco_edge.station.people.sessions import IDLE_SECONDS, LONGEST_SECONDS
from anoco_edge.station.people.tries import Tries
from anoco_edge.station.people.users import MOST_PIN_FAILURES
from anoco_edge.station.web.context import SetupCode


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serve_page(tmp_path_factory.mktemp("page")) as page:
        yield page


def test_the_first_user_needs_the_code_of_the_console(tmp_path: Path) -> None:
    code = SetupCode("aaaa-bbbb-cccc")
    with serve_page(tmp_path, users=False, setup_code=code) as page:
        browser = page.browser()
        assert browser.get("/").headers["location"] == "/setup"
        assert browser.get("/api/v1/session").json["setup_needed"] is True
        first = {"code": "aaaa-bbbb-cccd", "name": "mia", "password": PASSWORD}
        assert browser.post("/api/v1/setup", first).status == 403
        short = {**first, "code": "aaaa-bbbb-cccc", "password": "short"}
        assert browser.post("/api/v1/setup", short).status == 422
        made = browser.post("/api/v1/setup", {**first, "code": "AAAA bbbb cccc"})
        assert made.status == 200 and made.json["role"] == "admin"
        assert browser.get("/api/v1/session").json["name"] == "mia"
        again = {**first, "code": "aaaa-bbbb-cccc", "name": "eve"}
        assert page.browser().post("/api/v1/setup", again).status == 409
        assert page.browser().get("/").headers["location"] == "/login"


def test_a_code_is_worth_nothing_after_ten_tries() -> None:
    code = SetupCode("aaaa-bbbb-cccc")
    assert not any(code.fits(f"wrong {number}") for number in range(10))
    assert not code.fits("aaaa-bbbb-cccc")


def test_a_session_begins_and_ends(page: Page) -> None:
    browser = page.browser()
    assert browser.get("/api/v1/state").status == 401
    assert browser.sign_in("vera", password="another password").status == 401
    answer = browser.sign_in("vera")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and PASSWORD not in cookie
    assert browser.get("/api/v1/state").status == 200
    stolen = Browser(page.port, cookies=dict(browser.cookies), csrf=browser.csrf)
    assert browser.ask("DELETE", "/api/v1/session").status == 204
    assert stolen.get("/api/v1/state").status == 401, "a copy of the cookie is worth nothing"


def test_unknown_and_known_users_are_refused_alike(page: Page) -> None:
    browser = page.browser()
    answers = [browser.sign_in(name, password="another password") for name in ("vera", "nobody")]
    assert answers[0].status == answers[1].status == 401
    assert answers[0].body == answers[1].body


@pytest.mark.parametrize(
    ("passed", "status"),
    [
        (60.0, 200),
        (IDLE_SECONDS + 1, 401),
        (LONGEST_SECONDS + 1, 401),
        (-100.0, 200),  # set right by a time server
        (-86400.0, 401),  # the clock was wrong before, or is now
    ],
)
def test_a_session_ends_by_the_clock(page: Page, passed: float, status: int) -> None:
    browser = page.browser("vera")
    page.clock.now += passed
    try:
        assert browser.get("/api/v1/state").status == status
    finally:
        page.clock.now -= passed


def test_a_session_that_is_used_goes_on_for_a_week_at_most(page: Page) -> None:
    browser, began = page.browser("vera"), page.clock.now
    try:
        for _ in range(int(LONGEST_SECONDS / IDLE_SECONDS)):
            page.clock.now += IDLE_SECONDS - 1
            assert browser.get("/api/v1/state").status == 200
        page.clock.now = began + LONGEST_SECONDS + 1
        assert browser.get("/api/v1/state").status == 401
    finally:
        page.clock.now = began


def test_a_tab_that_is_only_open_keeps_no_session(tmp_path: Path) -> None:
    with serve_page(tmp_path) as page:
        sessions, began = page.context.sessions, page.clock.now
        secret = sessions.open("vera", "password")
        page.clock.now = began + IDLE_SECONDS - 60
        assert sessions.find(secret, active=False) is not None
        page.clock.now = began + IDLE_SECONDS + 60
        assert sessions.find(secret) is None


def test_a_wrong_password_makes_the_next_try_wait(tmp_path: Path) -> None:
    clock = Clock(100.0)
    with serve_page(tmp_path, tries=Tries(clock)) as page:
        browser = page.browser()
        wrong = [browser.sign_in("ada", password="wrong password").status for _ in range(6)]
        assert wrong == [401] * 5 + [429]
        refused = browser.sign_in("ada")
        assert refused.status == 429 and refused.headers["retry-after"] == "2", "the right one, too"
        assert browser.sign_in("eve").status == 200, "others go on"
        clock.now += 2
        assert browser.sign_in("ada").status == 200


def test_a_pin_is_for_operators_on_an_enrolled_browser(page: Page) -> None:
    admin = page.browser("ada")
    assert admin.ask("PUT", "/api/v1/users/otto/pin", {"pin": "4711"}).status == 200
    assert admin.ask("PUT", "/api/v1/users/eve/pin", {"pin": "4711"}).status == 422
    assert admin.ask("PUT", "/api/v1/users/otto/pin", {"pin": "1234"}).status == 422
    panel = page.browser()
    assert panel.sign_in("otto", pin="4711").status == 403
    panel = page.browser("eve")
    assert panel.post("/api/v1/browsers", {"label": "panel 3"}).status == 201
    assert panel.ask("DELETE", "/api/v1/session").status == 204
    view = panel.get("/api/v1/session").json
    assert view["pin_allowed"] is True and view["name"] is None
    answer = panel.sign_in("otto", pin="4711")
    assert answer.json["via"] == "pin" and answer.json["role"] == "operator"
    (browser,) = admin.get("/api/v1/browsers").json
    assert browser["label"] == "panel 3" and browser["made_by"] == "eve"
    assert admin.ask("DELETE", f"/api/v1/browsers/{browser['id']}").status == 204
    assert panel.sign_in("otto", pin="4711").status == 403


def test_a_guessed_pin_is_locked_until_the_password_is_given(tmp_path: Path) -> None:
    clock = Clock(100.0)
    with serve_page(tmp_path, tries=Tries(clock)) as page:
        page.context.users.set_pin("otto", "4711")
        panel = page.browser("eve")
        panel.post("/api/v1/browsers", {"label": "panel"})
        wrong = [panel.sign_in("otto", pin=f"815{n}").status for n in range(MOST_PIN_FAILURES)]
        assert wrong == [401] * MOST_PIN_FAILURES
        clock.now += 3600
        assert panel.sign_in("otto", pin="4711").status == 401, "waiting does not help"
        assert page.context.users.account("otto").pin_locked
        clock.now += 3600
        assert panel.sign_in("otto").status == 200, "the password does"
        assert panel.sign_in("otto", pin="4711").status == 200


def test_a_role_that_is_taken_is_gone_at_once(page: Page) -> None:
    admin, operator = page.browser("ada"), page.browser()
    new = {"name": "ben", "role": "operator", "password": PASSWORD}
    assert admin.post("/api/v1/users", new).status == 201
    assert admin.post("/api/v1/users", new).status == 422
    operator.sign_in("ben")
    assert operator.post("/api/v1/line/reset").status == 503, "allowed; there is no line here"
    assert admin.ask("PUT", "/api/v1/users/ben/role", {"role": "viewer"}).status == 200
    assert operator.post("/api/v1/line/reset").status == 403
    assert admin.ask("DELETE", "/api/v1/users/ben").status == 204
    assert operator.get("/api/v1/state").status == 401
    assert admin.ask("DELETE", "/api/v1/users/ben").status == 404


def test_the_last_admin_stays(page: Page) -> None:
    admin = page.browser("ada")
    assert admin.ask("DELETE", "/api/v1/users/ada").status == 422
    assert admin.ask("PUT", "/api/v1/users/ada/role", {"role": "viewer"}).status == 422
    with pytest.raises(UsageError, match="the last admin"):
        page.context.users.remove("ada")


def test_ones_own_password_ends_all_sessions(page: Page) -> None:
    one, other = page.browser("vera"), page.browser("vera")
    change = {"old": "wrong", "new": "another password"}
    assert one.ask("PUT", "/api/v1/password", change).status == 403
    assert one.ask("PUT", "/api/v1/password", {**change, "old": PASSWORD}).status == 204
    assert one.get("/api/v1/state").status == other.get("/api/v1/state").status == 401
    page.context.users.set_password("vera", PASSWORD)


@pytest.mark.parametrize(
    ("role", "method", "path"),
    [
        ("operator", "POST", "/api/v1/line/maintenance"),
        ("operator", "POST", "/api/v1/line/reset"),
        ("operator", "POST", "/api/v1/line/change_product"),
        ("engineer", "POST", "/api/v1/line/enable"),
        ("engineer", "POST", "/api/v1/line/simulate"),
        ("engineer", "POST", "/api/v1/browsers"),
        ("admin", "GET", "/api/v1/users"),
        ("admin", "POST", "/api/v1/tokens"),
        ("admin", "GET", "/api/v1/audit"),
        ("viewer", "GET", "/api/v1/state"),
        ("metrics", "GET", "/metrics"),
    ],
)
def test_each_route_needs_its_role(page: Page, role: str, method: str, path: str) -> None:
    ranks = ["metrics", "viewer", "operator", "engineer", "admin"]
    names = {"admin": "ada", "engineer": "eve", "operator": "otto", "viewer": "vera"}
    assert Browser(page.port, origin=None).ask(method, path).status == 401
    for rank in ranks[: ranks.index(role)]:
        scope = page.token("metrics") if rank == "metrics" else page.token("engineer", names[rank])
        assert scope.ask(method, path).status == 403, rank
    if role != "admin":  # a token never is one
        assert page.token(role).ask(method, path).status not in (401, 403)
