"""MQTT against a real broker and its own clients."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mosquitto_broker import MISSING, BrokerProcess, wait_until

from anoco_edge.errors import SourceError
from anoco_edge.line.buses.mqtt_bus import Broker, MqttBus
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import CandidateDecision, Enable, Event, Trigger
from anoco_edge.line.core.settings import MS
from anoco_edge.line.core.status import Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.store.database import open_database
from anoco_edge.line.store.outbox import Outbox
from anoco_edge.line.store.rows import PartRow, RowWriter
from anoco_edge.line.words.constants import Reason, StatusBit

needs_broker = pytest.mark.skipif(MISSING, reason="mosquitto or mosquitto-clients is missing")
TOPIC = "anoco/press-3"


def record(number: int) -> PartRecord:
    uid = f"r1-{number:06d}"
    return PartRecord(uid, number, "", "", True, 0, 9 * MS, "good", Reason.NONE, ratio=0.5)


class Station:
    """A client of the broker, the events that it gave, and what a trigger is answered with."""

    def __init__(self, port: int, *, commands: bool = True, **others: str) -> None:
        self.events: list[Event] = []
        self.turns = 0
        self.said: list[str] = []
        broker = Broker("127.0.0.1", port, TOPIC, commands=commands, **others)  # type: ignore[arg-type]
        self.bus = MqttBus(broker, self._post, self._turn, say=self.said.append)
        self.bus.start()

    def _turn(self) -> None:
        self.turns += 1

    def _post(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Trigger):
            self.bus.reply(event.client, record(event.seq))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, free_port())
    made.start()
    yield made
    made.close()


@pytest.fixture
def station(broker: BrokerProcess) -> Iterator[Station]:
    made = Station(broker.port)
    wait_until(lambda: made.bus.connected)
    yield made
    made.bus.close()


@needs_broker
def test_the_state_is_retained_and_the_broker_says_when_the_station_is_gone(
    broker: BrokerProcess, station: Station
) -> None:
    station.bus.put_out(Status(StatusBit.READY, heartbeat=5))
    first = broker.listen(f"{TOPIC}/state")
    wait_until(lambda: first.got and "READY" in first.got[-1]["BITS"])
    assert first.got[-1]["ONLINE"] is True and first.got[-1]["HEARTBEAT"] == 5
    assert first.got[-1]["STATUS"] == int(StatusBit.READY)

    link = station.bus._client.socket()
    assert isinstance(link, socket.socket)
    link.shutdown(socket.SHUT_RDWR)  # as if the cable were cut: nobody says good-bye
    wait_until(lambda: {"ONLINE": False} in first.got)
    gone = len(first.got)
    wait_until(lambda: first.got[gone:] and first.got[-1]["ONLINE"])

    station.bus.close()
    later = broker.listen(f"{TOPIC}/state")
    wait_until(lambda: later.got)
    assert later.got[0] == {"ONLINE": False}


@needs_broker
def test_a_trigger_is_answered_on_its_response_topic(
    broker: BrokerProcess, station: Station
) -> None:
    answer = broker.ask(f"{TOPIC}/command/trigger", '{"seq": 7, "part_code": "A1"}')
    assert (answer["seq"], answer["verdict"], answer["uid"]) == (7, "good", "r1-000007")
    assert station.events[0] == Trigger(7, "A1", "mqtt:1")
    assert "seq" in broker.ask(f"{TOPIC}/command/trigger", '{"seq": 70000}')["error"]
    assert "commands are" in broker.ask(f"{TOPIC}/command/halt", "{}")["error"]
    assert broker.ask(f"{TOPIC}/command/enable", '{"on": true}') == {}
    assert broker.ask(f"{TOPIC}/command/take_candidate", "") == {}
    broker.publish(f"{TOPIC}/command/trigger", '{"seq": 8}', "-r")  # would come again and again
    broker.publish(f"{TOPIC}/command/trigger", '{"seq": 9}')  # nobody wants an answer
    wait_until(lambda: len(station.events) == 4)
    decision = CandidateDecision(True, "mqtt 127.0.0.1")
    assert station.events[1:] == [Enable(True), decision, Trigger(9, "", "mqtt:6")]
    assert any("retained" in text for text in station.said)


@needs_broker
def test_commands_are_off_unless_they_are_wanted(broker: BrokerProcess) -> None:
    station = Station(broker.port, commands=False)
    wait_until(lambda: station.bus.connected)
    broker.publish(f"{TOPIC}/command/trigger", "{}")
    station.bus.send("r1-000001", "{}")  # the broker has handled the command before this
    station.bus.close()
    assert not station.events


@needs_broker
def test_a_broker_that_is_gone_for_an_hour_gets_every_result(
    broker: BrokerProcess, station: Station, tmp_path: Path
) -> None:
    results = broker.listen(f"{TOPIC}/result")
    data = open_database(tmp_path / "store", print)
    box = Outbox(data, "mqtt", station.bus.send)
    add_parts(data, range(1, 4))
    wait_until(lambda: results_drained(box, 0.0))
    wait_until(lambda: len(results.got) == 3)

    broker.stop()
    wait_until(lambda: not station.bus.connected)
    turns = station.turns
    for second in range(3600):  # of the injected clock
        if second % 60 == 0:
            add_parts(data, range(4 + second // 60, 5 + second // 60))
        assert box.drain(100.0 + second) == 0
    assert box.waiting() == 60 and "not connected" in box.last_error
    (attempts,) = data.execute("SELECT max(attempts) FROM outbox").fetchone()
    assert 60 <= attempts <= 70, "a minute between two attempts"
    wait_until(lambda: station.turns > turns + 2)

    broker.start()
    wait_until(lambda: station.bus.connected)
    again = broker.listen(f"{TOPIC}/result")
    probe = broker.listen(f"{TOPIC}/state")
    wait_until(lambda: probe.got)  # both subscribers are there: they were started in this order
    wait_until(lambda: results_drained(box, 5000.0))
    data.execute("UPDATE outbox SET sent = 0 WHERE uid = 'r1-000063'")  # killed before it was noted
    wait_until(lambda: results_drained(box, 6000.0))
    wait_until(lambda: [part["uid"] for part in again.got].count("r1-000063") == 2)
    data.close()
    unique = list(dict.fromkeys(part["uid"] for part in again.got))
    assert unique == [f"r1-{number:06d}" for number in range(4, 64)]


def add_parts(data: sqlite3.Connection, numbers: range) -> None:
    writer = RowWriter("c0ffee", ("mqtt",))
    with data:
        data.execute("BEGIN")
        for number in numbers:
            writer.write(data, PartRow(record(number)))


def results_drained(box: Outbox, now: float) -> bool:
    box.drain(now)
    return box.waiting() == 0


@needs_broker
def test_a_broker_with_passwords(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "press-3", "s3cret"], check=True)
    passwords.chmod(0o644)
    tmp_path.chmod(0o755)
    rules = f"allow_anonymous false\npassword_file {passwords}\nuser root"
    broker = BrokerProcess(tmp_path, free_port(), rules)
    broker.start()
    wrong = Station(broker.port, username="press-3", password="other")
    right = Station(broker.port, username="press-3", password="s3cret")
    try:
        wait_until(lambda: any("refuses" in text for text in wrong.said))
        assert not wrong.bus.connected
        wait_until(lambda: right.bus.connected)
    finally:
        wrong.bus.close()
        right.bus.close()
        broker.close()


def test_a_station_lives_without_its_broker() -> None:
    station = Station(free_port())
    wait_until(lambda: station.turns > 3)
    station.bus.put_out(Status(StatusBit.READY, heartbeat=1))
    with pytest.raises(SourceError, match="not connected"):
        station.bus.send("r1-000001", "{}")
    station.bus.close()


@needs_broker
def test_a_whole_station_with_no_bus_but_the_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    text = EXAMPLE.replace("[tcp]\nport = 7700", '[mqtt]\nhost = "127.0.0.1"\ncommands = true')
    text += f"port = {broker.port}\n"
    said: list[str] = []
    server = LineServer(parse_config(text, "station.toml"), tmp_path, say=said.append)
    results = broker.listen(f"{TOPIC}/result")
    server.start()
    try:
        wait_until(lambda: any("connected" in line for line in said))
        answer = broker.ask(f"{TOPIC}/command/trigger", '{"seq": 3}')
        assert (answer["accepted"], answer["reason"]) == (False, "DISABLED")
        wait_until(lambda: results.got)
        assert (results.got[0]["uid"], results.got[0]["seq"]) == (answer["uid"], 3)
        wait_until(lambda: 'queue="outbox mqtt"} 0' in server.figures())
    finally:
        server.stop()
