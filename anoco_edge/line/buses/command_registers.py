"""The registers of a station as a bus with registers serves them, and who may write them.

The first client that writes is the master until it disconnects: two masters would take turns in
starting and acknowledging each other's parts. When it disconnects, its commands fall with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from anoco_edge.line.buses.command_edges import CommandEdges
from anoco_edge.line.core.events import Event
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.registers import read_commands
from anoco_edge.line.words.table import REGISTERS

Refusal = Literal["", "address", "busy"]


class CommandRegisters:
    """Status for everybody, commands of one master.

    >>> events: list[Event] = []
    >>> registers = CommandRegisters(events.append)
    >>> registers.write("plc", 0, [1], "modbus 10.0.0.5"), registers.write("panel", 0, [0], "")
    ('', 'busy')
    >>> events[-1]
    Enable(on=True)
    """

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._status = Status().registers()
        self._commands = [0] * REGISTERS["command"]
        self._edges = CommandEdges()
        self._edges.read(read_commands(self._commands))
        self.master: object | None = None

    def put_out(self, status: Status) -> None:
        """Show this status from now on; a reader gets all of one moment."""
        self._status = status.registers()

    def read_status(self, address: int, count: int) -> list[int] | None:
        """Return input registers; None where there are none."""
        return _part(self._status, address, count)

    def read_commands(self, address: int, count: int) -> list[int] | None:
        """Return holding registers; None where there are none."""
        return _part(self._commands, address, count)

    def write(self, client: object, address: int, values: Sequence[int], by: str) -> Refusal:
        """Write holding registers at once, and tell the core what that means; `by` names the
        client where a person reads it."""
        if _part(self._commands, address, len(values)) is None:
            return "address"
        if self.master is None:
            self.master = client
        elif self.master != client:
            return "busy"
        self._commands[address : address + len(values)] = values
        self._tell(by)
        return ""

    def disconnect(self, client: object) -> None:
        """Note that a client is gone; the commands of the master fall."""
        if self.master == client:
            self.master = None
            self._commands = [0] * len(self._commands)
            self._tell("")

    def _tell(self, by: str) -> None:
        for event in self._edges.read(read_commands(self._commands), by):
            self._post(event)


def _part(registers: list[int], address: int, count: int) -> list[int] | None:
    if count < 1 or address < 0 or address + count > len(registers):
        return None
    return registers[address : address + count]
