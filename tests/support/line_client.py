"""A PLC on the TCP line protocol, for tests of whole stations."""

from __future__ import annotations

import socket
import time

from anoco_edge.line.words.constants import StatusBit

PATIENCE = 240.0


class Client:
    """A PLC on the TCP line protocol."""

    modbus = http = 0

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.lines = self.socket.makefile("r", encoding="ascii")

    def send(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def ask(self, line: str) -> list[str]:
        self.send(line)
        return self.lines.readline().strip().split(",")

    def bits(self) -> int:
        return int(self.ask("S")[1], 16)

    def wait_for(self, bit: StatusBit, *, high: bool = True) -> None:
        end = time.monotonic() + PATIENCE
        while bool(self.bits() & bit) != high:
            assert time.monotonic() < end, self.ask("S")
            time.sleep(0.02)
