"""The API of parts and products, over real sockets and with a real worker."""

from __future__ import annotations

import io
import shutil
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from picture_files import bomb, png
from PIL import Image
from station_page import Page, serve_page
from taught_station import TaughtStation, make_taught_station

from anoco_edge.line.link.messages import DecisionEvent
from anoco_edge.line.store.database import open_database
from anoco_edge.station.jobs.shadow import Rule, ShadowOutcome, ShadowPart
from anoco_edge.station.parts.history import History
from anoco_edge.station.people.roles import User
from anoco_edge.station.web import live, services
from anoco_edge.station.web.problems import Problem

PRODUCT = "/api/v1/products/1/captures/0"
PATIENCE = 900.0


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    return make_taught_station(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def page(station: TaughtStation) -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "NICENESS", 0)  # a loaded machine would never come to it
        with serve_page(station.base, config=station.config) as page:
            yield page


def over(page: Page, job: dict[str, Any]) -> dict[str, Any]:
    done = page.context.services.jobs.wait(job["id"], PATIENCE)
    assert done.state == "done", done.problem
    return done.model_dump()


def test_parts_are_searched_shown_reviewed_and_pinned(station: TaughtStation, page: Page) -> None:
    vera, otto = page.browser("vera"), page.browser("otto")
    found = vera.get("/api/v1/parts?verdict=anomalous&limit=1").json
    assert found["items"][0]["uid"] == station.uid(11)
    second = vera.get(f"/api/v1/parts?verdict=anomalous&limit=1&after={found['next']}").json
    assert second["items"][0]["uid"] == station.uid(10)
    one = f"/api/v1/parts/{station.uid(10)}"
    assert vera.ask("PUT", f"{one}/review", {"verdict": "good"}).status == 403
    said = otto.ask("PUT", f"{one}/review", {"verdict": "good", "note": "<b>dust</b>"})
    assert said.status == 200 and said.json["by"] == "otto"
    assert otto.ask("PUT", f"{one}/pin", {"on": True}).json == {"on": True}
    part = vera.get(one).json
    assert part["review"]["note"] == "<b>dust</b>" and part["pinned"] is True
    assert [p["uid"] for p in vera.get("/api/v1/parts?review=good").json["items"]] == [part["uid"]]
    assert otto.ask("DELETE", f"{one}/review").status == 204
    assert vera.get(one).json["review"] is None
    actions = [entry.action for entry in page.context.audit.entries(limit=3)]
    assert actions == ["review withdrawn", "pin", "review"]
    assert vera.get("/api/v1/parts/nobody").status == 404
    for wrong in ("after=x", "limit=0", "reason=NEVER", "verdict=x", "min_ratio=nan", "from=x"):
        assert vera.get(f"/api/v1/parts?{wrong}").status == 422, wrong


def test_pictures_counts_charts_and_csv(station: TaughtStation, page: Page) -> None:
    vera = page.browser("vera")
    picture = vera.get(f"/api/v1/parts/{station.uid(1)}/captures/0/picture")
    assert picture.status == 200 and picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.body)).size == (96, 80)
    assert vera.get(f"/api/v1/parts/{station.uid(1)}/captures/5/picture").status == 404
    span = "from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00"
    counts = vera.get(f"/api/v1/counts?{span}").json
    assert counts["fail"] >= 2 and counts["triggers"] == 12 and 0 < counts["yield"] < 1
    series = vera.get(f"/api/v1/scores?{span}&points=10&product=1").json
    assert len(series["t"]) == 10 and series["parts"] == 12
    first = vera.get("/api/v1/parts?limit=50").json["items"][-1]["at"]
    began = vera.get(f"/api/v1/scores?{span.partition('&')[2]}&points=1").json
    assert began["parts"] == 0 and not began["t"][0].startswith(first[:10]), "the last day alone"
    page.clock.now, before = datetime.fromisoformat(first).timestamp() + 3600, page.clock.now
    began = page.browser("vera").get("/api/v1/scores?points=1").json
    page.clock.now = before
    assert (began["t"], began["parts"]) == ([first], 12), "it begins with the first part"
    text = vera.get("/api/v1/parts.csv?verdict=anomalous").body.decode()
    assert station.uid(10) in text and text.startswith("uid,at,seq")
    assert vera.get(f"/api/v1/counts?{span}&product=0").status == 422


@pytest.mark.parametrize(
    ("number", "table", "column", "find", "rest"),
    [
        (7, "part", "verdict", "part", ""),
        (8, "capture", "picture", "picture_of", "/captures/0/picture?width=160"),
        (9, "capture", "picture", "picture_of", "/captures/0/explanation"),
    ],
)
def test_what_is_written_after_the_verdict_is_waited_for(
    station: TaughtStation,
    page: Page,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    table: str,
    column: str,
    find: str,
    rest: str,
) -> None:
    uid, asked, found = station.uid(number), threading.Event(), getattr(History, find)
    hub = page.context.live
    with closing(open_database(station.folder, print)) as data, data:
        (value,) = data.execute(f"SELECT {column} FROM {table} WHERE uid = ?", (uid,)).fetchone()
        data.execute(f"UPDATE {table} SET {column} = NULL WHERE uid = ?", (uid,))

    def write_later() -> None:
        assert asked.wait(PATIENCE)
        with closing(open_database(station.folder, print)) as data, data:
            data.execute(f"UPDATE {table} SET {column} = ? WHERE uid = ?", (value, uid))

    def look(history: History, *which: Any) -> Any:
        there = found(history, *which)
        asked.set()
        return there

    vera, path = page.browser("vera"), f"/api/v1/parts/{uid}{rest}"
    assert vera.get(path).status in (404, 422), "it was decided long ago"
    monkeypatch.setattr(live, "LATELY_SECONDS", PATIENCE)
    monkeypatch.setattr(History, find, look)
    writing = threading.Thread(target=write_later)
    writing.start()
    hub.note_decided(uid)
    answer = vera.get(path)
    writing.join(PATIENCE)
    assert answer.status in (200, 202), answer.body
    assert vera.get("/api/v1/parts/nobody").status == 404


def test_a_product_with_its_references_histogram_and_promise(
    station: TaughtStation, page: Page
) -> None:
    vera = page.browser("vera")
    (product,) = vera.get("/api/v1/products").json
    assert product["captures"][0]["references"] == 4 and product["captures"][0]["calibrated"]
    answer = vera.get(PRODUCT)
    view = answer.json
    assert answer.headers["etag"] == f'"{view["generation"]}"' and view["undo"] is True
    digest = view["references"][0]["digest"]
    reference = vera.get(f"{PRODUCT}/reference/{digest}?width=100")
    assert reference.headers["content-type"] in ("image/png", "image/jpeg")
    assert vera.get(f"{PRODUCT}/reference/{'0' * 64}").status == 422
    found = vera.get(f"{PRODUCT}/histogram").json
    assert sum(found["calibration"]) == found["promise"]["parts"] and found["live_parts"] == 12
    at = found["promise"]["at"]
    assert all(a["false_reject_high"] >= b["false_reject_high"] for a, b in zip(at, at[1:]))  # noqa: B905, RUF007
    for unknown in ("/api/v1/products/9/captures/0", "/api/v1/products/1/captures/3"):
        assert vera.get(unknown).status == 404


def test_a_change_needs_a_role_and_the_generation_it_was_made_for(
    station: TaughtStation, page: Page
) -> None:
    eve, ada, otto = page.browser("eve"), page.browser("ada"), page.browser("otto")
    generation = eve.get(PRODUCT).json["generation"]
    new = {"value": 0.75}
    assert otto.post(f"{PRODUCT}/threshold", new, If_Match=str(generation)).status == 403
    assert eve.post(f"{PRODUCT}/threshold", new).status == 428
    assert eve.post(f"{PRODUCT}/threshold", {"value": -1}, If_Match="1").status == 422
    assert eve.post(f"{PRODUCT}/threshold", new, If_Match='"x"').status == 412
    saved = eve.post(f"{PRODUCT}/threshold", new, If_Match=f'"{generation}"')
    assert saved.status in (200, 202)
    over(page, saved.json)
    late = ada.post(f"{PRODUCT}/threshold", {"value": 0.8}, If_Match=f'"{generation}"')
    assert late.status == 412 and "Somebody else" in late.json["title"]
    assert station.bundle.product().threshold.value == 0.75
    entry = page.context.audit.entries(limit=1)[0]
    assert (entry.user, entry.action) == ("eve", "product threshold")
    changed = ada.get(PRODUCT).json["generation"]
    over(page, ada.post(f"{PRODUCT}/undo", None, If_Match=f'"{changed}"').json)
    assert ada.get(PRODUCT).json["generation"] == generation


def test_a_reject_becomes_a_reference_after_its_dry_run(station: TaughtStation, page: Page) -> None:
    eve = page.browser("eve")
    generation = eve.get(PRODUCT).json["generation"]
    good = {"pictures": [{"part": station.uid(11)}]}
    tried = over(page, eve.post(f"{PRODUCT}/references?last=3", good).json)
    assert station.uid(11) in [flip["uid"] for flip in tried["result"]["flips"]]
    apply = {"job": tried["id"]}
    assert eve.post(f"{PRODUCT}/apply", apply, If_Match=f'"{generation + 7}"').status == 409
    made = eve.post(f"{PRODUCT}/apply", apply, If_Match=f'"{generation}"')
    assert over(page, made.json)["result"]["references"] == 5
    why = eve.get(f"/api/v1/parts/{station.uid(11)}/captures/0/explanation")
    if why.status == 202:
        over(page, why.json)
        why = eve.get(f"/api/v1/parts/{station.uid(11)}/captures/0/explanation")
    assert why.json["verdict"] == "anomalous", "as it was judged then"
    applied = eve.get(PRODUCT).json["generation"]
    over(page, eve.post(f"{PRODUCT}/undo", None, If_Match=f'"{applied}"').json)
    assert eve.get(PRODUCT).json["generation"] == generation
    jobs = eve.get("/api/v1/jobs").json
    assert {"explanation", "commit", "dry-run"} <= {job["kind"] for job in jobs}
    assert eve.get(f"/api/v1/jobs/{tried['id']}").json["result"]["compared"] == 3
    assert eve.get("/api/v1/jobs/unknown").status == 404


def test_uploads_are_checked(page: Page, tmp_path: Path) -> None:
    otto, eve = page.browser("otto"), page.browser("eve")
    kind = {"Content_Type": "image/png"}
    sent = otto.ask("POST", "/api/v1/uploads", png(40, 30), **kind)
    assert sent.status == 201 and (sent.json["width"], sent.json["height"]) == (40, 30)
    assert otto.get(f"/api/v1/uploads/{sent.json['digest']}/picture").status == 200
    for data in (bomb(60_000, 60_000), bomb(10_000, 6000), b"<html>"):
        assert otto.ask("POST", "/api/v1/uploads", data, **kind).status == 422
    huge = {**kind, "Content_Length": str(5 << 30)}
    assert otto.ask("POST", "/api/v1/uploads", b"x", **huge).status == 413
    assert page.browser("vera").ask("POST", "/api/v1/uploads", png(40, 30), **kind).status == 403
    wrong = {"product": 1, "pictures": [{"upload": "../../../../etc/passwd"}]}
    assert eve.post("/api/v1/teach", wrong).status == 422
    assert eve.post("/api/v1/uploads/camera", {"camera": "nobody"}).status == 404
    assert eve.post("/api/v1/uploads/camera", {"camera": "top"}).status == 503, "no line here"


def test_an_archive_is_unpacked_by_engineers_alone_and_cannot_escape(
    station: TaughtStation, page: Page, tmp_path: Path
) -> None:
    eve = page.browser("eve")
    archive = tmp_path / "line.zip"
    shutil.make_archive(str(archive.with_suffix("")), "zip", station.base, "line.anoco")
    kind = {"Content_Type": "application/zip"}
    sent = eve.ask("PUT", "/api/v1/bundles/other.anoco", archive.read_bytes(), **kind)
    assert sent.status == 201 and sent.json["products"] == ["default"]
    assert eve.get("/api/v1/bundles").json == ["other.anoco"]
    with zipfile.ZipFile(archive, "a") as more:
        more.writestr("../../escaped", b"x")
    refused = eve.ask("PUT", "/api/v1/bundles/bad.anoco", archive.read_bytes(), **kind)
    assert refused.status == 422 and "leads out" in refused.json["detail"]
    assert not list(station.base.rglob("escaped"))
    names = [path.name for path in (station.folder / "bundles").iterdir()]
    assert names == ["other.anoco"], "nothing is left of it"
    otto = page.browser("otto")
    assert otto.ask("PUT", "/api/v1/bundles/x.anoco", b"x", **kind).status == 403
    assert eve.ask("PUT", "/api/v1/bundles/..%2Fx.anoco", b"x", **kind).status in (404, 422)


def test_a_trial_is_begun_and_dropped(station: TaughtStation, page: Page) -> None:
    eve = page.browser("eve")
    before = eve.get("/api/v1/shadow").json
    assert before is None or before["state"] == "dropped"
    new = {"product": 1, "candidate": "0" * 16}
    assert eve.post("/api/v1/shadow", new).status == 422
    gone = {"product": 1, "candidate": "bundle:no.anoco"}
    assert eve.post("/api/v1/shadow", gone).status == 404
    out = {"product": 1, "candidate": "bundle:../x.anoco"}
    assert eve.post("/api/v1/shadow", out).status == 422
    asked = {"change": {"what": "threshold", "value": 0.5}}
    job = over(page, eve.post(f"{PRODUCT}/what-if", asked).json)
    begun = eve.post("/api/v1/shadow", {"product": 1, "candidate": job["id"], "parts": 5})
    assert begun.status == 201 and begun.json["state"] == "running"
    again = eve.post("/api/v1/shadow", {"product": 1, "candidate": job["id"]})
    assert again.status == 422 and "under way" in again.json["detail"]
    assert page.browser("vera").post("/api/v1/shadow/drop").status == 403
    assert eve.post("/api/v1/shadow/drop").json["state"] == "dropped"
    assert eve.post("/api/v1/shadow/take").status == 404


def test_a_plc_decides_about_the_trial_that_it_was_shown(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    shadows, trials = page.context.services.shadows, page.context.trials
    begun = shadows.begin(1, 0, "bundle:new.anoco", 5, Rule(), "eve")
    plc = "modbus 10.0.0.5"
    trials.decide(DecisionEvent(trial=begun.id - 1, take=False, by=plc))
    trials.decide(DecisionEvent(trial=begun.id, take=True, by=plc))
    assert [record.getMessage() for record in caplog.records] == [
        "DROP_CANDIDATE by modbus 10.0.0.5 has no effect: there is no trial to decide about",
        "TAKE_CANDIDATE by modbus 10.0.0.5 has no effect: "
        "a bundle is taken by naming it in station.toml",
    ]
    assert shadows.current() == begun
    trials.decide(DecisionEvent(trial=begun.id, take=False, by=plc))
    over = shadows.current()
    assert over is not None and (over.state, over.note) == ("dropped", f"dropped by {plc}")
    (entry,) = page.context.audit.entries(limit=1)
    assert (entry.action, entry.user, entry.via) == ("trial dropped", plc, "plc")


def begin_and_judge(page: Page, rule: Rule, new_verdict: str = "good") -> int:
    """Begin a trial of one part, which is judged, and which nobody has decided about."""
    shadows = page.context.services.shadows
    begun = shadows.begin(1, 0, "0123456789abcdef", 1, rule, "eve")
    part = ShadowPart(uid="a-1", verdict="good", ratio=0.1, new_verdict=new_verdict, new_ratio=0.2)
    shadows.note(begun.id, ShadowOutcome(parts=[part]))
    return begun.id


def test_the_rule_of_a_trial_and_a_person_decide_one_after_the_other(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person drops the candidate while the rule is about to take it: one of them is too late."""
    all_, trials = page.context.services, page.context.trials
    begin_and_judge(page, Rule(take_at_most=0))
    eve, late = User("eve", "engineer", "session"), []

    def drop() -> None:
        try:
            trials.drop(eve)
        except Problem as error:
            late.append(error.status)

    person = threading.Thread(target=drop)
    commits: list[str] = []

    def decide(rule: Rule, differences: int) -> str:
        person.start()
        person.join(0.3)
        return "take"

    def submit(request: object, by: str) -> object:
        commits.append(by)
        return SimpleNamespace(id="0" * 16)

    monkeypatch.setattr(Rule, "decide", decide)
    monkeypatch.setattr(services, "commit_of", lambda jobs, dry_run: None)
    monkeypatch.setattr(all_.jobs, "submit", submit)
    all_.follow_rule()
    person.join()
    over = all_.shadows.current()
    assert over is not None
    assert (over.state, commits, late) == ("taken", ["the rule of the trial"], [404])
    (entry,) = page.context.audit.entries(limit=1)
    assert (entry.action, entry.subject, entry.via) == ("trial taken", "product 1", "rule")


def test_a_candidate_that_its_rule_drops_is_in_the_audit(page: Page) -> None:
    begin_and_judge(page, Rule(drop_above=0), "anomalous")
    page.context.services.follow_rule()
    over = page.context.services.shadows.current()
    (entry,) = page.context.audit.entries(limit=1)
    assert over is not None and (over.state, entry.action) == ("dropped", "trial dropped")
    assert (entry.user, entry.via) == ("the rule of the trial", "rule")


def test_a_rule_that_an_earlier_run_could_not_follow_is_followed_at_the_start(page: Page) -> None:
    """The process was killed between the last part and the decision."""
    trial = begin_and_judge(page, Rule(take_at_most=0))
    page.context.services.start()
    over = page.context.services.shadows.current()
    assert over is not None and over.id == trial
    assert over.state == "failed" and "this change has no dry run" in over.note
