"""The clients of `anoco-edge bench --line`, in a process of their own: a PLC over TCP and one over
Modbus, which take turns. They print one line of JSON for each part.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import asdict, dataclass

from anoco_edge.errors import missing
from anoco_edge.line.words.constants import CommandBit, StatusBit, StatusRegister

try:
    from pymodbus.client import ModbusTcpClient
except ImportError:
    raise missing("pymodbus", "line", "to measure Modbus TCP") from None

SCAN_SECONDS = 0.002
PATIENCE = 60.0
_ENABLE = int(CommandBit.ENABLE)
_TRIGGER = int(CommandBit.ENABLE | CommandBit.TRIGGER)
_TAKEN = int(CommandBit.ENABLE | CommandBit.RESULT_ACK)


@dataclass(frozen=True)
class ClientPart:
    """One part as its client saw it: when the trigger left and when the result was there, in
    nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share."""

    bus: str
    seq: int
    sent: int
    received: int


class TcpClient:
    """A PLC on the TCP line protocol."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._link.makefile("r", encoding="ascii")
        self._link.sendall(b"E,1\n")

    def wait_until_ready(self) -> None:
        """Ask until a trigger would be served."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self._link.sendall(b"S\n")
            if int(self._lines.readline().split(",")[1], 16) & StatusBit.READY:
                return
            time.sleep(SCAN_SECONDS)
        raise TimeoutError("the station does not become ready")

    def part(self, seq: int) -> ClientPart:
        """Trigger a part, wait for its answer and take it."""
        sent = time.monotonic_ns()
        self._link.sendall(f"T,{seq}\n".encode())
        answer = self._lines.readline()
        received = time.monotonic_ns()
        if not answer.startswith(f"R,{seq},"):
            raise ValueError(f"part {seq} was answered by {answer!r}")
        self._link.sendall(f"A,{seq}\n".encode())
        return ClientPart("tcp", seq, sent, received)


class ModbusClient:
    """A PLC that reads all input registers every two milliseconds."""

    def __init__(self, port: int) -> None:
        self._plc = ModbusTcpClient("127.0.0.1", port=port, timeout=PATIENCE)
        self._plc.connect()
        self._plc.write_registers(0, [_ENABLE, 0])

    def part(self, seq: int) -> ClientPart:
        """Trigger a part, wait for its result in the registers and take it."""
        sent = time.monotonic_ns()
        self._plc.write_registers(0, [_TRIGGER, seq])
        self._wait(seq, valid=True)
        received = time.monotonic_ns()
        self._plc.write_register(0, _TAKEN)
        self._wait(seq, valid=False)
        self._plc.write_register(0, _ENABLE)
        return ClientPart("modbus", seq, sent, received)

    def _wait(self, seq: int, *, valid: bool) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            words: list[int] = self._plc.read_input_registers(0, count=64).registers
            ours = words[StatusRegister.RESULT_SEQ] == seq
            if (ours and bool(words[0] & StatusBit.RESULT_VALID)) == valid:
                return
            time.sleep(SCAN_SECONDS)
        raise TimeoutError(f"part {seq} has no result")


def main() -> None:
    """Run with the ports of TCP and Modbus, the number of parts and the pause between two."""
    tcp_port, modbus_port, parts, pause_ms = map(int, sys.argv[1:])
    tcp, modbus = TcpClient(tcp_port), ModbusClient(modbus_port)
    for seq in range(1, parts + 1):
        tcp.wait_until_ready()
        time.sleep(pause_ms / 1e3)  # the rows of the part before are on their way to the disk
        part = (tcp if seq % 2 else modbus).part(seq)
        sys.stdout.write(json.dumps(asdict(part)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
