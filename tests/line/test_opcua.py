"""OPC UA: the address space of OPC 40100-1, its methods, users and encryption."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from asyncua import Client, ua
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from asyncua.crypto.security_policies import SecurityPolicyBasic256Sha256
from command_line import ok
from cryptography.x509.oid import ExtendedKeyUsageOID
from npm_packages import with_packages
from paths import SUPPORT
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.opcua.bus import OpcuaBus, OpcuaSettings
from anoco_edge.line.buses.opcua.model import NODESET, OURS, VISION
from anoco_edge.line.buses.opcua.transitions import transition_of
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.effects import PartRecord, StateChange
from anoco_edge.line.core.events import (
    Abort,
    Candidate,
    CandidateDecision,
    CandidateStage,
    ChangeProduct,
    Enable,
    Event,
    Halt,
    PreparedProduct,
    Reset,
    Trigger,
    Verdict,
)
from anoco_edge.line.core.states import TRANSITIONS, Cause, State
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import Reason, StatusBit
from anoco_edge.line.words.table import STATUS

PATIENCE = 240
MACHINE = "VisionStateMachine"
AUTOMATIC = f"{MACHINE}/AutomaticModeStateMachine"


class Plant:
    """A server, the events that it gave, and what becomes of a trigger."""

    def __init__(self, folder: Path, username: str = "", password: str = "") -> None:
        self.events: list[Event] = []
        self.state = State.PREOPERATIONAL
        self.product: PreparedProduct | None = None
        self.refusal = Reason.NONE
        self.port = free_port()
        products = {"washer": 1, "nut": 2}
        self.settings = OpcuaSettings(
            *("127.0.0.1", self.port, "press-3", products, False, folder, username, password)
        )
        self.bus = OpcuaBus(
            self.settings, self._post, lambda: None, lambda: (self.state, self.product)
        )
        self.bus.start()

    def _post(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Trigger):
            accepted = self.refusal is Reason.NONE
            verdict: Any = "anomalous" if accepted else "no-verdict"
            record = PartRecord(
                *("r1-000007", 7, event.part_code, event.client, accepted, 0, 9, verdict),
                self.refusal,
            )
            if accepted:
                self.bus.accept(event.client, record.uid)
                self.bus.announce(record)
            self.bus.reply(event.client, record)

    @property
    def url(self) -> str:
        return f"opc.tcp://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    folder = tmp_path_factory.mktemp("opcua")
    asyncio.run(make_certificate(folder))
    made = Plant(folder / "station", "plc", "s3cret")
    yield made
    made.bus.close()


async def make_certificate(folder: Path) -> None:
    """Make the certificate of the client."""
    await setup_self_signed_certificate(
        *(folder / "client.pem", folder / "client.der", "urn:test:client", "localhost"),
        [ExtendedKeyUsageOID.CLIENT_AUTH],
        {"commonName": "client"},
    )


async def client_of(
    plant: Plant, password: str | None = "s3cret", *, encrypted: bool = True
) -> Client:
    # A client that hears nothing for a while on a loaded machine must not give up.
    client = Client(plant.url, timeout=PATIENCE, watchdog_intervall=PATIENCE)
    client.application_uri = "urn:test:client"
    if encrypted:
        folder = plant.settings.folder.parent
        files = (str(folder / "client.der"), str(folder / "client.pem"))
        await client.set_security(SecurityPolicyBasic256Sha256, *files)
    if password is not None:
        client.set_user("plc")
        client.set_password(password)
    return client


@pytest.fixture
def plant(served: Plant) -> Plant:
    served.events.clear()
    served.state, served.product = State.PREOPERATIONAL, None
    served.bus.change_state(StateChange(State.READY, State.PREOPERATIONAL, Cause.RESET))
    served.refusal = Reason.NONE
    return served


class Panel:
    """A client and the system that it looks at."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def open(self) -> Panel:
        self.vision = await self.client.get_namespace_index(VISION)
        self.ours = await self.client.get_namespace_index(OURS)
        await self.client.load_data_type_definitions()
        self.system = self.client.get_node(ua.NodeId("press-3", self.ours))
        return self

    async def node(self, path: str) -> Any:
        node = self.system
        for name in path.split("/"):
            space = 0 if name in ("CurrentState", "Id") else self.vision
            space = self.ours if path.startswith("Candidate") else space
            node = await node.get_child(f"{space}:{name}")
        return node

    async def word(self, name: str) -> Any:
        node = self.client.get_node(ua.NodeId(f"press-3/Words/{name}", self.ours))
        return await node.read_value()

    async def call(self, path: str, *values: Any) -> Any:
        above, _, _ = path.rpartition("/")
        return await (await self.node(above)).call_method(await self.node(path), *values)

    async def start_single_job(self, part: str = "", recipe: str = "") -> Any:
        return await self.call(
            f"{AUTOMATIC}/StartSingleJob",
            ua.MeasIdDataType(Id=""),
            ua.PartIdDataType(Id=part),
            ua.RecipeIdExternalDataType(Id=recipe),
            ua.ProductIdDataType(Id=""),
            ua.Variant([], ua.VariantType.Variant, is_array=True),
        )


def test_state_and_words_are_those_of_the_table(plant: Plant) -> None:
    async def look() -> None:
        async with await client_of(plant) as client:
            panel = await Panel(client).open()
            current = await panel.node(f"{MACHINE}/CurrentState")
            while (await current.read_value()).Text != "Preoperational":
                await asyncio.sleep(0.02)
            inner = await panel.node(f"{AUTOMATIC}/CurrentState")
            with pytest.raises(ua.UaStatusCodeError, match="BadStateNotActive"):
                await inner.read_value()

            await the_station_gets_ready(plant, panel)
            plant.bus.put_out(Status(StatusBit.READY, 9, counters=Counters(70000)))
            while (await panel.word("HEARTBEAT")) != 9:
                await asyncio.sleep(0.02)
            assert (await current.read_value()).Text == "Operational"
            assert (await inner.read_value()).Text == "Ready"
            kind = client.get_node(
                await (await panel.node(f"{AUTOMATIC}/CurrentState/Id")).read_value()
            )
            assert (await kind.read_browse_name()).Name == "Ready"
            found = {word.name: await panel.word(word.name) for word in STATUS}
            assert (found["STATUS"], found["COUNT_TRIGGERS"]) == (1, 70000)
            with pytest.raises(ua.UaStatusCodeError):
                await client.get_node(ua.NodeId("press-3/Words/STATUS", panel.ours)).write_value(
                    1, ua.VariantType.UInt16
                )

    asyncio.run(asyncio.wait_for(look(), PATIENCE))


async def the_station_gets_ready(plant: Plant, panel: Panel) -> None:
    """Go through both transitions to Ready and compare the events with the nodes of their type."""
    heard: list[Any] = []

    class Ear:
        def event_notification(self, event: Any) -> None:
            heard.append(event)

    subscription = await panel.client.create_subscription(50, Ear())
    kind = await event_type(panel.client, "StateChangedEventType")
    await subscription.subscribe_events(await panel.node(MACHINE), kind)
    for step in (
        StateChange(State.PREOPERATIONAL, State.INITIALIZED, Cause.SELECT_MODE_AUTOMATIC),
        StateChange(State.INITIALIZED, State.READY, Cause.PREPARE_RECIPE),
    ):
        plant.bus.change_state(step)
    while len(heard) < 2:
        await asyncio.sleep(0.02)
    found = [
        (event.SourceNode, event.FromState.Text, event.ToState.Text, event.Transition.Text)
        for event in heard
    ]
    machine, automatic = [(await panel.node(path)).nodeid for path in (MACHINE, AUTOMATIC)]
    assert found == [
        (machine, "Preoperational", "Operational", "PreoperationalToOperationalAuto"),
        (automatic, "Initialized", "Ready", "InitializedToReadyAuto"),
    ]
    for event in heard:
        for field in ("FromState", "ToState", "Transition"):
            node = panel.client.get_node(getattr(event, f"{field}/Id"))
            assert (await node.read_browse_name()).Name == getattr(event, field).Text


def test_every_transition_of_the_core_is_one_of_the_standard() -> None:
    nodes = gzip.decompress(NODESET.read_bytes()).decode()
    for (before, cause), after in TRANSITIONS.items():
        if before is not after:
            *_, name = transition_of(StateChange(before, after, cause))
            assert f'BrowseName="1:{name}"' in nodes, (before, cause)


def test_methods_command_the_line_and_results_are_events(plant: Plant) -> None:
    got: list[Any] = []

    class Ear:
        def event_notification(self, event: Any) -> None:
            got.append(event)

    async def drive() -> None:
        async with await client_of(plant) as client:
            panel = await Panel(client).open()
            subscription = await client.create_subscription(50, Ear())
            results = await panel.node("ResultManagement")
            kind = await event_type(client, "ResultReadyEventType")
            await subscription.subscribe_events(results, kind)
            assert await panel.call(f"{MACHINE}/SelectModeAutomatic") == 0
            job, error = await panel.start_single_job("A1")
            assert (job.Id, error) == ("r1-000007", 0)
            other = PartRecord("r1-000008", 8, "B1", "tcp:1", True, 0, 9, "good", Reason.NONE)
            plant.bus.announce(other)
            while len(got) < 2:
                await asyncio.sleep(0.02)
            plant.refusal = Reason.BUSY
            job, error = await panel.start_single_job()
            assert (job.Id, error) == ("", -int(Reason.BUSY))
            job, error = await panel.start_single_job("A2", recipe="nut")
            assert error == -int(Reason.PRODUCT_CHANGE), "nut is not the product of now"
            recipe = ua.RecipeIdExternalDataType(Id="nut")
            found = await panel.call(
                "RecipeManagement/PrepareRecipe", recipe, ua.RecipeIdInternalDataType(Id="")
            )
            assert (found[0].Id, found[1:]) == ("2", [False, 0])
            unknown = ua.RecipeIdExternalDataType(Id="bolt")
            found = await panel.call(
                "RecipeManagement/PrepareRecipe", unknown, ua.RecipeIdInternalDataType(Id="")
            )
            assert found[2] < 0
            assert await panel.call(f"{AUTOMATIC}/Abort", 0, "") < 0, "nothing runs"
            plant.state = State.SINGLE_EXECUTION
            assert await panel.call(f"{AUTOMATIC}/Abort", 0, "") == 0
            plant.state = State.CONTINUOUS_EXECUTION
            assert await panel.call(f"{AUTOMATIC}/Abort", 0, "") == 0
            assert await panel.call(f"{MACHINE}/Halt", 0, "") == 0
            assert await panel.call(f"{MACHINE}/Reset", 0, "") == 0
            assert await panel.call("Candidate/Take") < 0, "there is none"
            plant.bus.put_out(Status(candidate=Candidate(7, CandidateStage.JUDGING, 3)))
            assert await panel.call("Candidate/Drop") == 0
            while await panel.word("CANDIDATE_DIFFERENCES") != 3:
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(drive(), PATIENCE))
    assert plant.events == [
        Enable(True),
        Trigger(0, "A1", "opcua:1"),
        Trigger(0, "", "opcua:2"),
        ChangeProduct(2),
        Abort(),
        *(Enable(False), Abort()),
        Halt(),
        Reset(),
        *(CandidateDecision(take, "opcua plc") for take in (True, False)),
    ]
    results = [(event.ResultId.Id, event.PartId.Id, event.ResultContent[0]) for event in got]
    assert results == [("r1-000007", "A1", "anomalous"), ("r1-000008", "B1", "good")]


def test_start_continuous_and_stop_belong_to_a_wired_line(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe that the client names is not judged by another one in its place."""
    monkeypatch.setattr(plant.bus, "_status", Status(product=1))

    def call(method: str, recipe: str = "", product: str = "", *, wired: bool = True) -> int:
        monkeypatch.setattr(plant.bus, "_settings", replace(plant.settings, wired=wired))
        asked = (ua.RecipeIdExternalDataType(Id=recipe), ua.ProductIdDataType(Id=product))
        answer = asyncio.run(plant.bus._methods()[f"{AUTOMATIC}/{method}"](None, None, *asked, []))
        return int(answer[-1].Value)

    plant.state = State.READY
    assert call("StartContinuous", wired=False) == -int(Reason.NOT_READY)
    assert call("StartContinuous", "nut") == -int(Reason.PRODUCT_CHANGE)
    assert call("StartContinuous", "", "nut") == -int(Reason.PRODUCT_CHANGE)
    assert call("Stop") == -int(Reason.NOT_READY), "nothing runs"
    assert call("StartContinuous", "washer") == 0
    plant.state = State.CONTINUOUS_EXECUTION
    assert call("StartContinuous") == call("Stop") == 0
    plant.state = State.HALTED
    assert call("StartContinuous") == -int(Reason.NOT_READY)
    assert plant.events == [Enable(True), Enable(True), Enable(False)]


async def event_type(client: Client, name: str) -> Any:
    async def below(node: Any) -> Any:
        for child in await node.get_children(refs=ua.ObjectIds.HasSubtype):
            if (await child.read_browse_name()).Name == name:
                return child
            found = await below(child)
            if found is not None:
                return found
        return None

    return await below(client.nodes.base_event_type)


class Ear:
    """Hears events: their name, and the Id of what they are about."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def event_notification(self, event: Any) -> None:
        about = event.ExternalId if hasattr(event, "ExternalId") else event.JobId
        self.heard.append((event.Message.Text, about.Id))

    async def wait_for(self, number: int) -> list[tuple[str, str]]:
        while len(self.heard) < number:
            await asyncio.sleep(0.02)
        return sorted(self.heard)


def uint32(*numbers: int) -> list[ua.Variant]:
    return [ua.Variant(number, ua.VariantType.UInt32) for number in numbers]


def int32(number: int) -> ua.Variant:
    return ua.Variant(number, ua.VariantType.Int32)


def test_recipes_results_and_the_events_of_a_job(plant: Plant) -> None:
    async def look() -> None:
        async with await client_of(plant) as client:
            panel = await Panel(client).open()
            await recipes_are_the_products(plant, panel)
            await results_can_be_asked_for_again(plant, panel)
            await events_tell_about_the_parts_of_all_buses(plant, panel)

    asyncio.run(asyncio.wait_for(look(), PATIENCE))
    assert plant.events == [ChangeProduct(2)]


async def recipes_are_the_products(plant: Plant, panel: Panel) -> None:
    ear = Ear()
    subscription = await panel.client.create_subscription(50, ear)
    kind = await event_type(panel.client, "RecipePreparedEventType")
    await subscription.subscribe_events(await panel.node("RecipeManagement"), kind)

    def recipe(name: str) -> Any:
        return panel.client.get_node(ua.NodeId(f"press-3/Recipes/{name}", panel.ours))

    async def value(name: str, field: str) -> Any:
        return await (await recipe(name).get_child(f"{panel.vision}:{field}")).read_value()

    async def listed(name: str, prepared: int, most: int, first: int) -> Any:
        found = await panel.call(
            "RecipeManagement/GetRecipeListFiltered",
            *(ua.RecipeIdExternalDataType(Id=name), ua.ProductIdDataType(Id="")),
            *(int32(prepared), *uint32(most, first), int32(0)),
        )
        return [each.Id for each in found[3]], found[0], found[4]

    assert not await value("washer", "IsPrepared")
    assert await listed("", 2, 0, 0) == (["1", "2"], True, 0)
    plant.product = PreparedProduct(1, 4, 0xBEEF, "beef" * 16)
    while not await value("washer", "IsPrepared"):
        await asyncio.sleep(0.02)
    external = await value("washer", "ExternalId")
    assert (external.Id, external.Version) == ("washer", "4")
    assert (external.HashAlgorithm, external.Hash.hex()) == ("SHA-256", "beef" * 16)
    assert await listed("", 1, 0, 0) == (["1"], True, 0)
    assert await listed("", 0, 0, 0) == (["2"], True, 0)
    assert await listed("", 2, 1, 0) == (["1"], False, 0)
    assert await listed("", 2, 1, 1) == (["2"], True, 0)
    assert await listed("nut", 2, 0, 0) == (["2"], True, 0)
    plant.product = PreparedProduct(2, 1, 0xF00D, "f00d" * 16)
    while await value("washer", "IsPrepared"):
        await asyncio.sleep(0.02)
    assert (await value("washer", "ExternalId")).Version == "4", "it was prepared before"
    assert await ear.wait_for(2) == [("nut 1", "nut"), ("washer 4", "washer")]
    assert await recipe("nut").call_method(f"{panel.vision}:Prepare") == [False, 0]
    assert await recipe("nut").call_method(f"{panel.vision}:Unprepare") < 0


async def results_can_be_asked_for_again(plant: Plant, panel: Panel) -> None:
    washer = PreparedProduct(1, 4, 0xBEEF, "beef" * 16)
    verdicts: list[Verdict] = ["good", "no-verdict", "good"]
    for number, verdict in enumerate(verdicts, 1):
        names = (f"r2-{number}", number, f"C{number}", "tcp:1")
        record = PartRecord(*names, True, 0, 9, verdict, Reason.NONE, product=washer)
        plant.bus.announce(replace(record, acquire_ms=20, total_ms=80))

    async def by_id(uid: str) -> Any:
        path = "ResultManagement/GetResultById"
        return await panel.call(path, ua.ResultIdDataType(Id=uid), int32(0))

    async def listed(state: int, part: str, most: int) -> list[str]:
        configurations = (ua.ConfigurationIdDataType(Id=""), ua.ConfigurationIdDataType(Id=""))
        found = await panel.call(
            "ResultManagement/GetResultListFiltered",
            *(int32(state), ua.MeasIdDataType(Id=""), ua.PartIdDataType(Id=part)),
            ua.RecipeIdExternalDataType(Id="washer"),
            *(ua.RecipeIdInternalDataType(Id=""), *configurations),
            *(ua.ProductIdDataType(Id=""), ua.JobIdDataType(Id="")),
            *(*uint32(most, 0), int32(0)),
        )
        return [result.ResultId.Id for result in found[3]]

    while (await by_id("r2-3"))[2]:
        await asyncio.sleep(0.02)
    _, result, error = await by_id("r2-2")
    assert error == 0 and result.PartId.Id == "C2" and result.ResultState == 3
    assert (result.ExternalRecipeId.Id, result.ExternalRecipeId.Version) == ("washer", "4")
    assert result.ProcessingTimes.ProcessingDuration == 60.0
    assert (await by_id("r2-9"))[2] < 0
    assert await listed(0, "", 0) == ["r2-3", "r2-2", "r2-1"]
    assert await listed(0, "", 1) == ["r2-3"] and await listed(3, "", 0) == ["r2-2"]
    assert await listed(0, "C1", 0) == ["r2-1"] and await listed(3, "C1", 0) == []


async def events_tell_about_the_parts_of_all_buses(plant: Plant, panel: Panel) -> None:
    ear = Ear()
    subscription = await panel.client.create_subscription(50, ear)
    machine = await panel.node(MACHINE)
    for name in ("JobStarted", "AcquisitionDone", "Ready"):
        kind = await event_type(panel.client, f"{name}EventType")
        await subscription.subscribe_events(machine, kind)
    plant.bus.put_out(Status())
    plant.bus.accept("tcp:1", "r3-1")
    for bits in (StatusBit.ACQ_DONE, StatusBit.ACQ_DONE, StatusBit.ACQ_DONE | StatusBit.READY):
        plant.bus.put_out(Status(bits))
    names = ("AcquisitionDone", "JobStarted", "Ready")
    assert await ear.wait_for(3) == [(name, "r3-1") for name in names]


def test_others_are_refused(plant: Plant) -> None:
    async def attempts() -> None:
        for password, encrypted in (("other", True), (None, True), ("s3cret", False)):
            client = await client_of(plant, password, encrypted=encrypted)
            with pytest.raises((ua.UaError, ConnectionError)):
                await client.connect()

    asyncio.run(asyncio.wait_for(attempts(), PATIENCE))
    assert (plant.settings.folder / "key.pem").stat().st_mode & 0o077 == 0


@pytest.mark.full
def test_without_a_user_everybody_is_served(tmp_path: Path) -> None:
    plant = Plant(tmp_path)

    async def look() -> str:
        async with await client_of(plant, None, encrypted=False) as client:
            panel = await Panel(client).open()
            return str((await (await panel.node(f"{MACHINE}/CurrentState")).read_value()).Text)

    try:
        assert asyncio.run(asyncio.wait_for(look(), PATIENCE)) == "Preoperational"
    finally:
        plant.bus.close()


def test_a_port_that_is_taken(plant: Plant) -> None:
    second = OpcuaBus(plant.settings, print, lambda: None, lambda: (State.READY, None))
    with pytest.raises(EnvironmentMissingError, match="cannot serve OPC UA"):
        second.start()
    second.close()


def test_a_client_of_another_maker_drives_a_station(tmp_path: Path) -> None:
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", str(tmp_path / "line.anoco"), *write_good_pictures(tmp_path / "good", 3))
    secret = tmp_path / "opcua.password"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    port = free_port()
    text = EXAMPLE.replace("rendered:washer", "folder:good").replace("[tcp]", "[opcua]")
    text = text.replace("port = 7700", f'port = {port}\nusername = "plc"')
    text += 'password_file = "opcua.password"\n\n[line]\ndeadline_ms = 30000\nacquire_ms = 30000\n'
    text += "judge_hang_ms = 60000\nalive_ms = 10000\nacknowledge = false\n"
    folder = with_packages(SUPPORT / "opcua_client", tmp_path / "client")
    server = LineServer(parse_config(text, "station.toml"), tmp_path, say=lambda _: None)
    server.start()
    try:
        command = ["node", "client.js", str(port), "plc", "s3cret", "3"]
        done = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(folder)},
        )
        with done, killed_after(done):
            assert done.stdout is not None and done.stdin is not None
            lines = (json.loads(line) for line in done.stdout if line.startswith("{"))
            results = list(islice(lines, 3))
            asked = next(lines)
            judge = server.judge.pid
            assert judge is not None
            os.kill(judge, signal.SIGSTOP)
            done.stdin.write("the judge stands still\n")
            done.stdin.flush()
            given_up = next(lines)
            transitions = next(lines)["transitions"]
            os.kill(judge, signal.SIGCONT)
        counters = server.status.counters
    finally:
        server.stop()
    assert [result["verdict"] for result in results] == ["good"] * 3
    assert all(result["job"] == result["result"] for result in results)
    recipe = asked["recipe"]
    assert (recipe["name"], recipe["generation"]) == ("washer", "1")
    assert len(recipe["hash"]) == 64 and int(recipe["hash"][:4], 16) == asked["checksum"]
    assert asked["again"] == results[-1]["result"]
    assert given_up == {
        "idle": -int(Reason.NOT_READY),
        "error": 0,
        "aborted": True,
        "content": ["no-verdict", "RESET"],
    }
    assert counters == Counters(4, 3, 0, 1, 0)
    job = ["Ready", "SingleExecution", "ReadyToSingleExecution"]
    done = ["SingleExecution", "Ready", "SingleExecutionToReadyAuto"]
    parts = [job, done] * 3 + [job, ["SingleExecution", "Ready", "SingleExecutionToReadyAbort"]]
    # The client may come while the station still gets ready.
    assert transitions[-len(parts) :] == parts
    assert all("SingleExecution" not in step for step in transitions[: -len(parts)])


@contextmanager
def killed_after(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that takes too long."""
    timer = Timer(PATIENCE, process.kill)
    timer.start()
    try:
        yield
        assert process.wait() == 0
    finally:
        timer.cancel()
        process.kill()
