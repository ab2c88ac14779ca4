"""A station that asks for signatures: what it refuses, where, and what it signs itself."""

from __future__ import annotations

import queue
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import fails, ok
from signed_bundle import ENGINEER, STRANGER, TAMPERINGS, lower_threshold
from station_page import page_config, serve_page
from taught_station import TaughtStation, make_taught_station

from anoco_edge import Bundle
from anoco_edge.bundle.signatures.keys import SecretKey
from anoco_edge.bundle.signatures.signing import sign_bundle
from anoco_edge.errors import AnocoError, SignatureError, UsageError
from anoco_edge.line.config.station_config import EXAMPLE, StationConfig
from anoco_edge.line.core.effects import PrepareProduct
from anoco_edge.line.core.events import Event, JudgeUp, PreparationFailure, ProductReady
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.frame_memory import FrameMemory
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.process import JudgeProcess
from anoco_edge.line.server import LineServer
from anoco_edge.line.signed_bundles import BundleTrust, trust_of
from anoco_edge.line.station_check import check_station
from anoco_edge.station.jobs.job_models import Change, CommitRequest, ThresholdChange, Undo
from anoco_edge.station.products.product_view import SignatureView, signature_view
from anoco_edge.station.web import services

PATIENCE = 240.0
PRODUCT = "/api/v1/products/1/captures/0"


def signed_config(*keys: SecretKey) -> StationConfig:
    texts = [key.public.line for key in keys]
    return page_config(free_port(), f"require_signature = true\npublic_keys = {texts}\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    station = make_taught_station(tmp_path_factory.mktemp("signed"))
    sign_bundle(station.bundle, ENGINEER)
    return replace(station, config=signed_config(ENGINEER))


@pytest.fixture
def station(made: TaughtStation, tmp_path: Path) -> TaughtStation:
    """A copy that a test may change, with a key of its own."""
    shutil.copytree(made.base, tmp_path / "copy")
    copy = replace(made, base=tmp_path / "copy")
    trust(copy).make_own_key()
    return copy


def trust(station: TaughtStation) -> BundleTrust:
    found = trust_of(station.config, station.base)
    assert found is not None
    return found


def path_of(station: TaughtStation) -> Path:
    return station.base / "line.anoco"


def commit(station: TaughtStation, change: Change, expected: int) -> None:
    request = CommitRequest(product=1, capture=0, expected=expected, change=change)
    station.tasks().do(request, lambda _progress, _note: None)


def capture_finding(station: TaughtStation) -> tuple[str, str]:
    """What `serve` and `station check` say about the bundle."""
    report = check_station(station.config, station.base)
    (found,) = (finding for finding in report.findings if finding.group == "products")
    return found.state, found.detail


# ---- configuration


def test_the_keys_are_checked_with_the_configuration() -> None:
    config = signed_config(ENGINEER, STRANGER)
    assert config.page is not None and len(config.page.public_keys) == 2
    assert trust_of(page_config(free_port()), Path()) is None
    for more, words in (
        ("require_signature = true\n", "needs the public_keys"),
        ('public_keys = ["RWQx"]\n', "is not a public key of minisign"),
        ('public_keys = "RWQx"\n', "public_keys"),
    ):
        with pytest.raises(UsageError, match=words):
            page_config(free_port(), more)


# ---- refused


def test_the_command_does_not_start_and_says_why(station: TaughtStation) -> None:
    text = f"{EXAMPLE}\n[page]\nport = {free_port()}\nrequire_signature = true\n"
    path = station.base / "station.toml"
    path.write_text(f'{text}public_keys = ["{STRANGER.public.line}"]\n')
    line = fails(3, "serve", path)
    assert f"is signed by key {ENGINEER.public.number}, which is not accepted" in line
    assert "signed by key" in fails(3, "serve", path), "again: nothing was remembered"


@pytest.mark.parametrize("what", TAMPERINGS)
def test_serve_does_not_start_with_what_was_tampered_with(
    station: TaughtStation, what: str
) -> None:
    state, detail = capture_finding(station)
    assert state == "ok" and f"signed by key {ENGINEER.public.number}" in detail
    tamper, words = TAMPERINGS[what]
    tamper(path_of(station))
    state, detail = capture_finding(station)
    assert state == "broken" and words in detail, detail


def test_the_line_opens_no_bundle_that_was_tampered_with(station: TaughtStation) -> None:
    """The judge checks at every start, change of product and new generation."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    memory = FrameMemory(slots=1, slot_bytes=1 << 20)
    specs = {1: (CaptureSpec(str(path_of(station))),)}
    judge = JudgeProcess(specs, "c0ffee", memory, events.put, trust=trust(station))

    def prepare() -> Event:
        judge.carry_out(PrepareProduct(number, 1))
        while not isinstance(event := events.get(timeout=PATIENCE), kinds):
            pass
        return event

    kinds = (ProductReady, PreparationFailure)
    try:
        judge.start()
        while not isinstance(up := events.get(timeout=PATIENCE), JudgeUp):
            pass
        number = up.judge
        assert isinstance(prepare(), ProductReady)
        shutil.copytree(path_of(station), station.base / "before")
        for what, (tamper, words) in TAMPERINGS.items():
            tamper(path_of(station))
            event = prepare()
            assert isinstance(event, PreparationFailure) and words in event.why, what
            shutil.rmtree(path_of(station))
            shutil.copytree(station.base / "before", path_of(station))
        assert isinstance(prepare(), ProductReady)
        commit(station, ThresholdChange(value=0.5), expected=2)
        event = prepare()
        assert isinstance(event, ProductReady) and event.product.generation == 3

        # The whole state before, with the signature that it had, is put back.
        shutil.rmtree(path_of(station))
        shutil.copytree(station.base / "before", path_of(station))
        event = prepare()
        assert isinstance(event, PreparationFailure) and "is an older state" in event.why
        assert capture_finding(station)[0] == "broken"
    finally:
        judge.close()
        memory.close()
    sign_bundle(station.bundle, ENGINEER)  # who wants it back signs it again
    while capture_finding(station)[0] == "broken":  # in the very second of the station's signature
        time.sleep(0.5)
        sign_bundle(station.bundle, ENGINEER)


@pytest.fixture(scope="module")
def archives(made: TaughtStation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The signed bundle as it is, and after each tampering, as archives."""
    found = {}
    cases = {"": lambda _: None, **{what: tamper for what, (tamper, _) in TAMPERINGS.items()}}
    for number, (what, tamper) in enumerate(cases.items()):
        folder = tmp_path_factory.mktemp("sent")
        shutil.copytree(made.base / "line.anoco", folder / "line.anoco")
        tamper(folder / "line.anoco")
        name = str(folder / f"sent-{number}")
        found[what] = Path(shutil.make_archive(name, "tar", folder, "line.anoco"))
    return found


def test_an_upload_needs_a_signature(station: TaughtStation, archives: dict[str, Path]) -> None:
    with serve_page(station.base, config=station.config) as page:
        eve = page.browser("eve")
        kind = {"Content_Type": "application/octet-stream"}
        for number, (what, archive) in enumerate(archives.items()):
            name = f"/api/v1/bundles/sent-{number}.anoco"
            sent = eve.ask("PUT", name, archive.read_bytes(), **kind)
            if not what:
                assert sent.status == 201, sent.body
                continue
            # What the manifest or a document contradicts is a damaged bundle before all.
            assert sent.status in (403, 422), what
        refused = {"threshold", "no signature", "no minisig", "another key", "statement", "extra"}
        for what in refused:
            sent = eve.ask("PUT", "/api/v1/bundles/x.anoco", archives[what].read_bytes(), **kind)
            assert sent.status == 403 and TAMPERINGS[what][1] in sent.json["detail"], sent.json
        assert eve.get("/api/v1/bundles").json == ["sent-0.anoco"]


# ---- the key of the station


def test_the_first_start_makes_a_key_that_only_its_owner_may_read(
    made: TaughtStation, tmp_path: Path
) -> None:
    base = tmp_path / "copy"
    shutil.copytree(made.base, base)
    said: list[str] = []
    for _ in range(2):
        LineServer(made.config, base, say=said.append).stop()
    (line,) = (text for text in said if "made a key" in text)
    key = base / "press-3/signing/station.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700
    found = trust(replace(made, base=base))
    own = found.own_key
    assert own is not None and own.line in line
    (base / "press-3/signing/station.pub").unlink()
    assert found.own_key is None and found.make_own_key() is None and found.own_key == own
    unsigned = page_config(free_port())
    LineServer(unsigned, tmp_path / "other", say=said.append).stop()
    assert not (tmp_path / "other/press-3/signing").exists(), "nobody asks for signatures here"


def test_what_is_taught_is_signed_by_the_station_and_says_so(
    station: TaughtStation, tmp_path: Path
) -> None:
    before = signature_view(station.bundle, trust(station))
    assert before == SignatureView(
        key=ENGINEER.public.number, own=False, at=before.at, after="", problem=None
    )
    commit(station, ThresholdChange(value=0.5), expected=2)
    state = trust(station).check(path_of(station))
    assert trust(station).is_own(state) and state.comment.signer == "press-3"
    assert state.comment.generations == {"default": 3}
    seen = signature_view(station.bundle, trust(station))
    assert seen.own and seen.after == ENGINEER.public.number
    assert capture_finding(station)[0] == "ok"
    commit(station, Undo(), expected=3)
    later = trust(station).check(path_of(station))
    assert later.comment.timestamp > state.comment.timestamp
    assert later.comment.after == trust(station).own_key.number  # type: ignore[union-attr]

    # No other station takes it, nor does the engineer's key fit.
    other = replace(station, base=tmp_path / "other")
    shutil.copytree(path_of(station), path_of(other))
    trust(other).make_own_key()
    with pytest.raises(SignatureError, match="which is not accepted"):
        trust(other).check(path_of(other))
    public = tmp_path / "engineer.pub"
    public.write_text(ENGINEER.public.to_text())
    fails(4, "verify", path_of(station), "--key", public)
    ok("verify", path_of(station), "--key", station.folder / "signing/station.pub")


def test_the_station_signs_nothing_that_was_tampered_with(station: TaughtStation) -> None:
    lower_threshold(path_of(station))
    with pytest.raises(SignatureError, match="was changed"):
        commit(station, ThresholdChange(value=0.5), expected=2)
    assert Bundle.open(path_of(station)).product().generation == 2
    problem = signature_view(station.bundle, trust(station)).problem
    assert problem is not None and "was changed" in problem


def test_a_station_without_its_key_teaches_nothing(station: TaughtStation) -> None:
    (station.folder / "signing/station.key").chmod(0o644)
    with pytest.raises(AnocoError, match="others than its owner"):
        commit(station, ThresholdChange(value=0.5), expected=2)
    shutil.rmtree(station.folder / "signing")
    with pytest.raises(AnocoError, match="cannot read the key"):
        commit(station, ThresholdChange(value=0.5), expected=2)
    assert capture_finding(station)[0] == "ok", "the line goes on"


def test_a_damaged_memory_of_signatures_is_an_error(station: TaughtStation) -> None:
    trust(station).remember(trust(station).check(path_of(station)))
    (station.folder / "signing/accepted.json").write_text("{")
    with pytest.raises(AnocoError, match="it is damaged; bring it back"):
        trust(station).check(path_of(station))


def test_the_api_says_who_signed(station: TaughtStation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "NICENESS", 0)  # a loaded machine would never come to it
    with serve_page(station.base, config=station.config) as page:
        eve = page.browser("eve")
        signed = eve.get(PRODUCT).json["signature"]
        assert (signed["key"], signed["own"]) == (ENGINEER.public.number, False)
        job = eve.post(f"{PRODUCT}/threshold", {"value": 0.5}, If_Match='"2"')
        assert job.status in (200, 202), job.json
        page.context.services.jobs.wait(job.json["id"], PATIENCE)
        signed = eve.get(PRODUCT).json["signature"]
        assert signed["own"] is True and signed["after"] == ENGINEER.public.number
        lower_threshold(path_of(station))
        assert "was changed" in eve.get(PRODUCT).json["signature"]["problem"]


@pytest.fixture(autouse=True)
def _no_trust_is_left(made: TaughtStation) -> Iterator[None]:
    yield
    assert not (made.folder / "signing").exists(), "tests change copies alone"
