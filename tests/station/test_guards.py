"""Requests that another site has a browser make, and what every answer forbids a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from station_page import Browser, Page, page_config, serve_page
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from anoco_edge.station.api.session import SessionView

RESET = "/api/v1/line/reset"
NO_LINE = 503  # what an allowed command gets where no line runs


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serve_page(tmp_path_factory.mktemp("page")) as page:
        yield page


@pytest.fixture(scope="module")
def operator(page: Page) -> Browser:
    return page.browser("otto")


def test_the_page_itself_may(operator: Browser) -> None:
    assert operator.post(RESET).status == NO_LINE
    assert operator.post(RESET, Sec_Fetch_Site="same-origin").status == NO_LINE
    assert operator.post(RESET, Origin=None, Sec_Fetch_Site="same-origin").status == NO_LINE


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
        {"Origin": None},
        {"X_Anoco_CSRF": None},
        {"X_Anoco_CSRF": "0" * 64},
    ],
)
def test_a_session_is_of_no_use_to_another_origin(
    operator: Browser, headers: dict[str, str | None]
) -> None:
    given = {name: value and value.format(port=operator.port) for name, value in headers.items()}
    assert operator.post(RESET, **given).status == 403


def test_another_session_has_another_csrf_token(page: Page, operator: Browser) -> None:
    other = page.browser("eve")
    assert operator.post(RESET, X_Anoco_CSRF=other.csrf).status == 403


def test_another_site_cannot_sign_anybody_in(page: Page) -> None:
    browser = page.browser(origin="https://evil.example")
    assert browser.sign_in("vera").status == 403
    assert browser.cookies == {}


def test_another_site_reads_nothing(operator: Browser) -> None:
    answer = operator.get("/api/v1/state", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")
    assert answer.status == 403
    assert "access-control-allow-origin" not in operator.get("/api/v1/state").headers
    link = operator.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert link.status == 200, "a link on another site may lead here"


@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1", "192.0.2.7:{port}"]
)
def test_a_name_that_is_not_ours_is_not_served(operator: Browser, host: str) -> None:
    assert operator.get("/api/v1/state", Host=host.format(port=operator.port)).status == 421


def test_names_of_the_configuration_are_ours(tmp_path: Path) -> None:
    with serve_page(tmp_path) as page:
        text = 'hosts = ["Press-3.plant.example"]'
        config = page_config(page.port, text)
    with serve_page(tmp_path, config=config) as page:
        host = f"press-3.plant.example:{page.port}"
        browser = page.browser(origin=f"http://{host}")
        browser.post("/api/v1/session", {"name": "vera", "password": "a long password"}, Host=host)
        assert browser.get("/api/v1/state", Host=host).status == 200


def test_a_token_needs_no_origin(page: Page) -> None:
    program = page.token("operator")
    assert program.post(RESET).status == NO_LINE
    assert program.post(RESET, Origin="https://evil.example").status == 403, "a browser has none"


def test_a_token_that_is_wrong_is_not_saved_by_a_cookie(operator: Browser) -> None:
    assert operator.post(RESET, Authorization="Bearer anoco_0_x").status == 401


def test_nothing_changes_by_get(page: Page) -> None:
    """What can be asked for by GET has no other effect than an answer."""
    paths = page.server.config.app.openapi()["paths"]  # type: ignore[union-attr]
    getters = {path for path, methods in paths.items() if "get" in methods}
    changers = {path for path, methods in paths.items() if set(methods) - {"get"}}
    assert {"/api/v1/users", "/api/v1/state"} <= getters
    assert not getters & {path for path in changers if "/line/" in path}
    before = page.context.audit.check().head
    admin = page.browser("ada")
    after = page.context.audit.check().head
    for path in sorted(getters):
        assert admin.get(path.replace("{", "").replace("}", "")).status < 600
    assert page.context.audit.check().head == after != before


def live_address(browser: Browser) -> str:
    return f"ws://127.0.0.1:{browser.port}/api/v1/live"


def cookie(browser: Browser) -> dict[str, str]:
    return {"Cookie": browser.headers("GET")["Cookie"]}


def test_a_web_socket_is_for_the_page_itself(page: Page, operator: Browser) -> None:
    address, ours = live_address(operator), operator.origin
    for origin in ("https://evil.example", "null", None):
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(address, origin=origin, additional_headers=cookie(operator)),
        ):
            pass
        assert refused.value.response.status_code == 403
    with connect(address, origin=ours, additional_headers=cookie(operator)) as socket:
        assert json.loads(socket.recv(30))["type"] == "state"
    with connect(address, origin=ours) as socket, pytest.raises(ConnectionClosed):
        socket.recv(30)
    token = page.token("viewer").token
    with connect(address, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        assert json.loads(socket.recv(30))["connected"] is False


@pytest.mark.parametrize("path", ["/login", "/api/v1/session", "/nothing", "/static/nothing"])
def test_every_answer_says_what_a_browser_may_do(page: Page, path: str) -> None:
    headers = page.browser().get(path).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    assert headers["cache-control"] in ("no-store", "no-cache")


def test_errors_are_problems_without_details_of_the_inside(page: Page, operator: Browser) -> None:
    for answer in (
        operator.get("/api/v1/nothing"),
        operator.post("/api/v1/line/change_product", {"number": "<b>"}),
        operator.post("/api/v1/session", b"{"),
        page.browser().get("/api/v1/state"),
    ):
        assert answer.headers["content-type"] == "application/problem+json", answer.body
        assert {"title", "status", "detail"} <= set(answer.json)
        assert answer.json["status"] == answer.status and b"Traceback" not in answer.body


def test_the_view_of_a_session_has_what_a_page_needs() -> None:
    fields = {"name", "role", "via", "csrf", "setup_needed", "pin_allowed"}
    assert set(SessionView.model_fields) == fields


def test_another_method_is_told_which_there_are(operator: Browser) -> None:
    answer = operator.ask("PATCH", "/api/v1/session", {})
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE")


def test_a_number_is_neither_a_switch_nor_a_time(operator: Browser) -> None:
    answer = operator.post("/api/v1/line/maintenance", {"on": 0})
    assert (answer.status, answer.json["detail"][:4]) == (422, "on: ")
    answer = operator.get("/api/v1/parts?to=0.5")
    assert answer.status == 422 and "2026-01-31T08:00:00Z" in answer.json["detail"]
    assert operator.get("/api/v1/parts?to=2026-01-31").status != 422
