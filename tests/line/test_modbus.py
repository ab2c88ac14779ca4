"""The Modbus TCP server, with pymodbus' client as the PLC."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymodbus.client import ModbusTcpClient

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.command_registers import CommandRegisters
from anoco_edge.line.buses.modbus_bus import ModbusBus
from anoco_edge.line.core.events import (
    Candidate,
    CandidateDecision,
    CandidateStage,
    Enable,
    Event,
    PlcBeat,
    Reset,
    Trigger,
    TriggerRelease,
)
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.words.constants import CommandBit, StatusBit
from anoco_edge.line.words.registers import unpack

PATIENCE = 60.0


class Plant:
    """A Modbus server, the events that it gave, and clients."""

    def __init__(self, clients: tuple[str, ...] = ()) -> None:
        self.events: list[Event] = []
        self.turns = 0
        self.port = free_port()
        self.bus = ModbusBus("127.0.0.1", self.port, clients, self.events.append, self._turn)
        self.bus.start()
        self.clients: list[ModbusTcpClient] = []

    def _turn(self) -> None:
        self.turns += 1

    def client(self) -> ModbusTcpClient:
        made = ModbusTcpClient("127.0.0.1", port=self.port, timeout=PATIENCE)
        assert made.connect()
        self.clients.append(made)
        return made

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.bus.close()


@pytest.fixture
def plant() -> Iterator[Plant]:
    made = Plant()
    yield made
    made.close()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def without_beats(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, PlcBeat)]


def test_one_read_is_one_state_and_a_write_is_a_command(plant: Plant) -> None:
    plc = plant.client()
    counters = Counters(70000, 5, 4, 3, 2)
    plant.bus.put_out(Status(StatusBit.READY, heartbeat=9, counters=counters))
    words = unpack("status", plc.read_input_registers(0, count=64).registers)
    assert (words["STATUS"], words["HEARTBEAT"], words["COUNT_TRIGGERS"]) == (1, 9, 70000)
    bits = int(CommandBit.ENABLE | CommandBit.TRIGGER)
    code = [0x4131, 0x4200, 0, 0, 0, 0, 0, 0]
    assert not plc.write_registers(0, [bits, 17, 0, 5, 0, 0, 0, 0, *code]).isError()
    assert plant.events == [PlcBeat(5), Enable(True), Trigger(17, "A1B")]
    assert plc.read_holding_registers(0, count=4).registers == [bits, 17, 0, 5]
    plc.write_register(0, int(CommandBit.ENABLE))
    assert plant.events[-1] == TriggerRelease()
    wait_until(lambda: plant.turns > 2)


def test_the_plc_sees_a_candidate_and_decides_by_an_edge(plant: Plant) -> None:
    plc = plant.client()
    plant.bus.put_out(Status(candidate=Candidate(7, CandidateStage.WAITING, 70000)))
    assert plc.read_input_registers(22, count=2).registers == [2, 65535]
    for bits in (CommandBit.TAKE_CANDIDATE, CommandBit.TAKE_CANDIDATE, CommandBit(0)):
        plc.write_register(0, int(bits))
    assert without_beats(plant.events) == [CandidateDecision(True, "modbus 127.0.0.1")]
    plc.write_register(0, int(CommandBit.DROP_CANDIDATE))
    assert plant.events[-1] == CandidateDecision(False, "modbus 127.0.0.1")


def test_what_is_not_there_is_refused(plant: Plant) -> None:
    plc = plant.client()
    answers: list[Any] = [
        plc.read_input_registers(60, count=10),
        plc.read_holding_registers(32, count=1),
        plc.write_registers(31, [1, 2]),
        plc.read_coils(0, count=1),
        plc.write_coil(0, True),
    ]
    assert [answer.exception_code for answer in answers] == [2, 2, 2, 1, 1]
    assert not plant.events


def test_only_one_master_commands_and_its_commands_fall_with_it(plant: Plant) -> None:
    plc, other = plant.client(), plant.client()
    plc.write_register(0, int(CommandBit.ENABLE))
    answer = other.write_register(0, int(CommandBit.RESET))
    assert answer.exception_code == 6, "busy"
    assert not other.read_input_registers(0, count=64).isError(), "everybody may read"
    assert without_beats(plant.events) == [Enable(True)]
    plc.close()
    wait_until(lambda: Enable(False) in plant.events)
    assert not other.write_register(0, int(CommandBit.RESET)).isError()
    assert plant.events[-1] == Reset()


def test_a_client_that_is_not_allowed_gets_nothing() -> None:
    plant = Plant(("10.0.0.5",))
    plc = ModbusTcpClient("127.0.0.1", port=plant.port, timeout=1, retries=0)
    plc.connect()
    with pytest.raises(Exception, match=r"(?i)connect|response|modbus"):
        plc.read_input_registers(0, count=1)
    plc.close()
    plant.close()


def test_a_port_that_is_taken(plant: Plant) -> None:
    second = ModbusBus("127.0.0.1", plant.port, (), plant.events.append, lambda: None)
    with pytest.raises(EnvironmentMissingError, match="cannot listen on"):
        second.start()


def test_registers_without_a_network() -> None:
    events: list[Event] = []
    registers = CommandRegisters(events.append)
    assert registers.read_status(0, 64) == [0] * 64 and registers.read_status(0, 0) is None
    assert registers.write("a", 0, [int(CommandBit.TRIGGER)], "") == ""
    assert events[-1] == Trigger(0), "the registers were low before, so this is an edge"
    registers.disconnect("b")
    assert registers.master == "a"
