"""The buses of a station: what each has to do, and how the configured ones are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from anoco_edge.line.config.gpio_table import GpioTable
from anoco_edge.line.config.station_config import (
    BusTable,
    HttpTable,
    ListenTable,
    MqttTable,
    OpcuaTable,
    StationConfig,
    optional_secret,
)
from anoco_edge.line.core.effects import PartRecord, StateChange
from anoco_edge.line.core.events import Event, IoProgress, PreparedProduct
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Status
from anoco_edge.line.store.outbox import Send
from anoco_edge.line.words.constants import CommandBit, StatusBit

GRACE_SECONDS = 5.0
"""How much longer than the deadline a client over HTTP waits: a station that hangs gives nothing"""


class Bus(Protocol):
    """Something that a PLC or another program is connected by. No call may wait for a client."""

    def start(self) -> None:
        """Serve; an address that cannot be had is an error now."""

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""

    def reply(self, client: str, record: PartRecord) -> None:
        """Answer a trigger, if its client is still there."""

    def close(self) -> None:
        """Stop and drop all clients."""


class Buses:
    """All buses of a station; `post` gets what clients command."""

    def __init__(
        self,
        config: StationConfig,
        base: Path,
        post: Callable[[Event], None],
        figures: Callable[[], str],
        state: Callable[[], tuple[State, PreparedProduct | None]],
        say: Callable[[str], None],
    ) -> None:
        self._config, self._base, self._post = config, base, post
        self._figures, self._state = figures, state
        self._tell_status: Callable[[str], None] = lambda _: None
        self._accept: list[Callable[[str, str], None]] = []
        self._change_state: list[Callable[[StateChange], None]] = []
        self._announce: list[Callable[[PartRecord], None]] = []
        self._made: dict[str, Bus] = {}
        for name, table in config.buses.items():
            self._made[name] = self._make(name, table)
        if config.gpio is not None:
            self._made["gpio"] = self._make_gpio(config.gpio)
        self._live = set(self._made)
        self.senders: dict[str, Send] = {}
        """What takes results from the outbox, by the name of the bus."""
        if config.mqtt is not None:
            self._add_mqtt(config.mqtt, say)
        self._turned: set[str] = set()

    def start(self) -> None:
        """Start all buses; an address that cannot be had is an error now."""
        for bus in self._made.values():
            bus.start()

    def put_out(self, status: Status) -> None:
        """Show this status on every bus from now on. A bus that fails takes it from no other; the
        first error is raised when all others have it."""
        failures: list[Exception] = []
        for bus in self._made.values():
            try:
                bus.put_out(status)
            except Exception as error:  # noqa: BLE001 (whatever a driver raises)
                failures.append(error)
        if failures:
            raise failures[0]

    def reply(self, client: str, record: PartRecord) -> None:
        """Answer a trigger on the bus that it came by."""
        self._made[client.partition(":")[0]].reply(client, record)

    def tell_status(self, client: str) -> None:
        """Tell a client of the line protocol the status, which it asked for."""
        self._tell_status(client)

    def accept(self, client: str, uid: str) -> None:
        """Say that a part was accepted, on the buses whose clients see the parts of all buses."""
        for accept in self._accept:
            accept(client, uid)

    def change_state(self, change: StateChange) -> None:
        """Show the state of the line on the buses that have state machines."""
        for change_state in self._change_state:
            change_state(change)

    def announce(self, record: PartRecord) -> None:
        """Announce a result on the buses whose clients see the parts of all buses."""
        for announce in self._announce:
            announce(record)

    def close(self) -> None:
        """Stop all buses and drop their clients."""
        for bus in self._made.values():
            bus.close()

    def _make(self, name: str, table: ListenTable) -> Bus:
        progress = partial(self._turn, name)
        if isinstance(table, OpcuaTable):
            return self._make_opcua(table, progress)
        assert isinstance(table, BusTable)
        address = (table.listen, table.port)
        if isinstance(table, HttpTable):
            from anoco_edge.line.buses.http_bus import HttpBus

            return HttpBus(
                address,
                table.clients,
                self._post,
                progress,
                figures=self._figures,
                patience=self._config.line.deadline_ms / 1e3 + GRACE_SECONDS,
                token=optional_secret(self._base, table.token_file),
            )
        if name == "modbus":
            from anoco_edge.line.buses.modbus_bus import ModbusBus

            return ModbusBus(*address, table.clients, self._post, progress)
        from anoco_edge.line.buses.tcp_bus import TcpBus

        bus = TcpBus(*address, table.clients, self._post, progress)
        self._tell_status = bus.tell_status
        return bus

    def _make_opcua(self, table: OpcuaTable, progress: Callable[[], None]) -> Bus:
        from anoco_edge.line.buses.opcua.bus import OpcuaBus, OpcuaSettings

        config = self._config
        settings = OpcuaSettings(
            table.listen,
            table.port,
            config.station.name,
            {product.name: product.number for product in config.products},
            config.line.trigger == "camera",
            self._base / config.station.folder / "opcua",
            table.username or "",
            optional_secret(self._base, table.password_file),
        )
        bus = OpcuaBus(settings, self._post, progress, self._state)
        self._accept.append(bus.accept)
        self._change_state.append(bus.change_state)
        self._announce.append(bus.announce)
        return bus

    def _make_gpio(self, table: GpioTable) -> Bus:
        from anoco_edge.line.buses.gpio_bus import GpioBus, GpioSettings

        settings = GpioSettings(
            table.chip,
            {CommandBit[name]: line for name, line in table.inputs.items()},
            {StatusBit[name]: line for name, line in table.outputs.items()},
            table.alive,
            table.pulse_ms,
            table.debounce_ms,
        )
        return GpioBus(settings, self._post, partial(self._turn, "gpio"))

    def _add_mqtt(self, table: MqttTable, say: Callable[[str], None]) -> None:
        """Add a client of a broker, which proves life only if it may command."""
        from anoco_edge.line.buses.mqtt_bus import Broker, MqttBus

        if table.commands:
            self._live.add("mqtt")
        broker = Broker(
            table.host,
            table.port,
            table.topic or f"anoco/{self._config.station.name}",
            table.username or "",
            optional_secret(self._base, table.password_file),
            "" if table.ca_file is None else str(self._base / table.ca_file),
            table.commands,
        )
        bus = MqttBus(broker, self._post, partial(self._turn, "mqtt"), say=say)
        self._made["mqtt"] = bus
        self.senders["mqtt"] = bus.send

    def _turn(self, name: str) -> None:
        """Say that I/O makes progress when every bus that a PLC may use has."""
        self._turned.add(name)
        if self._turned >= self._live:
            self._turned.clear()
            self._post(IoProgress())
