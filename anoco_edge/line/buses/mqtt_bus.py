"""MQTT 5: the state of a station, its results, and commands with an answer.

    TOPIC/state             retained; all status words, ONLINE false when the station is gone (will)
    TOPIC/result            QoS 1, through the outbox: every part once or more often, by its uid
    TOPIC/command/COMMAND   JSON as over HTTP; a trigger is answered on its response topic

State and answers are now or never: what cannot be sent at once is not sent later. Commands come
with QoS 0 and a retained one is ignored, so that no trigger arrives after its time.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from anoco_edge.errors import SourceError, missing
from anoco_edge.line.buses.json_messages import parse_command, state_message
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import Event, Trigger
from anoco_edge.line.core.status import Status
from anoco_edge.line.store.rows import part_message

try:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode
    from paho.mqtt.subscribeoptions import SubscribeOptions
except ImportError:
    raise missing("paho-mqtt", "mqtt", "to speak MQTT") from None

PROGRESS_SECONDS = 0.1
STATE_SECONDS = 1.0  # at least this often, with the heartbeat
KEEPALIVE_SECONDS = 10
LOOP_SECONDS = 3.0  # paho's loop turns every second while it is connected
ACKNOWLEDGE_SECONDS = 5.0
LONGEST_PAUSE = 30
_OFFLINE = json.dumps({"ONLINE": False})


@dataclass(frozen=True)
class Broker:
    """Where the broker is, and how a station signs in; with `ca_file` by TLS."""

    host: str
    port: int
    topic: str
    username: str = ""
    password: str = ""
    ca_file: str = ""
    commands: bool = False


@dataclass(frozen=True)
class _Asker:
    """Who gets the answer to a command."""

    topic: str
    correlation: bytes | None


class _TimedClient(Client):
    """Notes when its loop turned last."""

    turned = 0.0

    def loop_misc(self) -> int:  # type: ignore[override]
        self.turned = time.monotonic()
        return super().loop_misc()


class MqttBus:
    """A client of a broker, with paho's thread for the network and one that sends.

    `progress` is called while both run, connected or not: a broker that is gone stops no line.
    """

    def __init__(
        self,
        broker: Broker,
        post: Callable[[Event], None],
        progress: Callable[[], None],
        *,
        say: Callable[[str], None],
    ) -> None:
        self._broker, self._post, self._progress, self._say = broker, post, progress, say
        self._client = client = _TimedClient(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        if broker.username:
            client.username_pw_set(broker.username, broker.password or None)
        if broker.ca_file:
            client.tls_set(broker.ca_file)
        client.will_set(f"{broker.topic}/state", _OFFLINE, retain=True)
        client.reconnect_delay_set(1, LONGEST_PAUSE)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_message, client.on_publish = self._on_message, self._on_publish
        self._connected = False
        self._said = ""
        self._status, self._sent = Status(), Status()
        self._sent_at = -STATE_SECONDS
        self._askers: dict[str, _Asker] = {}
        self._answers: queue.SimpleQueue[tuple[_Asker, str]] = queue.SimpleQueue()
        self._refused: dict[int, str] = {}
        self._serial = 0
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="mqtt", daemon=True)

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted this station."""
        return self._connected

    def start(self) -> None:
        """Begin to connect; a broker that is not there is tried again and again."""
        self._client.connect_async(self._broker.host, self._broker.port, KEEPALIVE_SECONDS)
        self._client.loop_start()
        self._thread.start()

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""
        self._status = status
        self._wake.set()

    def reply(self, client: str, record: PartRecord) -> None:
        """Answer a trigger, if its sender named a response topic."""
        asker = self._askers.pop(client, None)
        if asker is not None:
            self._answer(asker, part_message(record))

    def send(self, uid: str, body: str) -> None:
        """Publish a result and wait until the broker has taken it; for the outbox."""
        where = f"the broker {self._broker.host}:{self._broker.port}"
        if not self._connected:
            raise SourceError(f"{where} is not connected", hint="it is tried again")
        properties = _properties(UserProperty=[("uid", uid)])
        info = self._client.publish(f"{self._broker.topic}/result", body, 1, properties=properties)
        with contextlib.suppress(ValueError, RuntimeError):  # then it is not published
            info.wait_for_publish(ACKNOWLEDGE_SECONDS)
        refusal = self._refused.pop(info.mid, "" if info.is_published() else "no answer")
        if refusal:
            raise SourceError(f"{where} did not take {uid}: {refusal}", hint="it is tried again")

    def close(self) -> None:
        """Say that the station is gone, and disconnect."""
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(5)
        if self._connected:
            info = self._client.publish(f"{self._broker.topic}/state", _OFFLINE, 1, retain=True)
            with contextlib.suppress(ValueError, RuntimeError):
                info.wait_for_publish(1.0)
        self._client.disconnect()
        self._client.loop_stop()

    # ---- the thread that sends

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait(PROGRESS_SECONDS)
            self._wake.clear()
            recent = time.monotonic() - self._client.turned < LOOP_SECONDS
            if recent or not self._connected:
                self._progress()
            self._send_answers()
            if self._connected:
                self._send_state()

    def _send_answers(self) -> None:
        while not self._answers.empty():
            asker, text = self._answers.get()
            if self._connected:
                same = {"CorrelationData": asker.correlation} if asker.correlation else {}
                self._client.publish(asker.topic, text, 0, properties=_properties(**same))

    def _send_state(self) -> None:
        status, now = self._status, time.monotonic()
        same = replace(status, heartbeat=self._sent.heartbeat) == self._sent
        if same and now - self._sent_at < STATE_SECONDS:
            return
        self._sent, self._sent_at = status, now
        self._client.publish(
            f"{self._broker.topic}/state", state_message(status, ONLINE=True), 0, retain=True
        )

    # ---- in paho's thread

    def _on_connect(
        self, client: Client, _: object, flags: ConnectFlags, code: ReasonCode, __: object
    ) -> None:
        if code.is_failure:
            self._say_once(f"warning: the broker refuses this station: {code}")
            return
        self._say_once(f"connected to the broker {self._broker.host}:{self._broker.port}")
        if self._broker.commands:
            options = SubscribeOptions(
                qos=0,
                retainAsPublished=True,
                retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND,
            )
            client.subscribe(f"{self._broker.topic}/command/+", options=options)
        self._sent_at = -STATE_SECONDS
        self._connected = True
        self._wake.set()

    def _on_disconnect(
        self, client: Client, _: object, flags: DisconnectFlags, code: ReasonCode, __: object
    ) -> None:
        self._connected = False
        if not self._closing:
            self._say_once(f"warning: the connection to the broker is lost: {code}")

    def _on_publish(
        self, client: Client, _: object, mid: int, code: ReasonCode, __: object
    ) -> None:
        if code.is_failure:
            self._refused[mid] = str(code)

    def _on_message(self, client: Client, _: object, message: MQTTMessage) -> None:
        if message.retain:
            self._say_once(f"warning: a retained message on {message.topic} is no command")
            return
        topic = getattr(message.properties, "ResponseTopic", "")
        correlation = getattr(message.properties, "CorrelationData", None)
        asker = _Asker(topic, correlation) if topic else None
        self._serial += 1
        name = f"mqtt:{self._serial}"
        try:
            command = message.topic.rpartition("/")[2]
            by = f"mqtt {self._broker.host}"  # which does not say who published
            event = parse_command(command, bytes(message.payload), name, by)
        except ValueError as error:
            self._answer(asker, {"error": str(error)})
            return
        if isinstance(event, Trigger) and asker is not None:
            self._askers[name] = asker
        else:
            self._answer(asker, {})
        self._post(event)

    def _answer(self, asker: _Asker | None, document: object) -> None:
        if asker is not None:
            self._answers.put((asker, json.dumps(document)))
            self._wake.set()

    def _say_once(self, text: str) -> None:
        """Say what is new: a broker that is gone for an hour is tried many times."""
        if text != self._said:
            self._said = text
            self._say(text)


def _properties(**values: object) -> Properties:
    made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made
