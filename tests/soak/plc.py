"""The PLC of the soak: triggers as fast as the station answers, over TCP and Modbus, and errs."""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pymodbus.client import ModbusTcpClient
from pymodbus.exceptions import ModbusException

from anoco_edge.line.words.constants import CommandBit, StatusBit
from anoco_edge.line.words.registers import pack, unpack
from tests.soak.material import PRODUCTS, Material

PATIENCE = 120.0
POLL_SECONDS = 0.005
ENABLE_AGAIN_SECONDS = 0.2
RESULT_SECONDS = 3.0
_ENABLE, _TRIGGER = CommandBit.ENABLE, CommandBit.ENABLE | CommandBit.TRIGGER
_MOSTLY = "part"
_ODDS = {
    "same sequence twice": 0.01,
    "sequence of the part before": 0.005,
    "jump of the sequence": 0.01,
    "RESET with a part pending": 0.003,
    "change of product": 0.005,
    "client dropped": 0.004,
    "trigger while not ready": 0.01,
    "parts over Modbus": 0.02,
    "Modbus client dropped": 0.002,
}


@dataclass
class Sent:
    """A trigger, by the part code that no other one has, and what was answered."""

    code: str
    seq: int
    bus: str
    product: int
    """The product that it has to be judged by; 0 where RESET may have given up a change."""
    arrived: bool = True
    """False where the connection was dropped, so that nobody knows."""
    repeat: bool = False
    answer: tuple[str, int] | None = None
    """PASS, FAIL or NOVERDICT, and the number of the reason."""


class Plc:
    """Two clients in one thread; `sent` has every trigger, `errors` what must not happen."""

    def __init__(self, material: Material, seed: int) -> None:
        self._material, self._random = material, random.Random(seed)
        self.sent: list[Sent] = []
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self.counters: list[int] = []
        self._seq = 0
        self._product = PRODUCTS[0]
        self._changing = False
        self._connect()
        self._connect_modbus()

    def run(self, parts: int, until: float) -> None:
        """Send this many triggers, or as many as there is time for."""
        kinds, odds = [_MOSTLY, *_ODDS], [1 - sum(_ODDS.values()), *_ODDS.values()]
        while len(self.sent) < parts and time.monotonic() < until:
            kind = self._random.choices(kinds, odds)[0]
            self.done[kind] += 1
            try:
                if kind != "trigger while not ready":
                    self.wait_until_ready()
                self._send(kind)
            except (OSError, ModbusException, EOFError) as error:
                self.errors.append(f"{kind}: {error!r}")
                self._connect()
                self._connect_modbus()
        self.wait_until_ready()

    def close(self) -> None:
        """Drop both clients."""
        self._link.close()
        self._modbus.close()

    # ---- what is sent

    def _send(self, kind: str) -> None:
        if kind == "same sequence twice":
            first = self._new()
            self._ask([first, self._new(first.seq, repeat=True)])
        elif kind == "sequence of the part before":
            self._ask([self._new(max(self._seq, 1))])
        elif kind == "jump of the sequence":
            self._seq = (self._seq + self._random.randrange(2, 500)) % 65535
            self._ask([self._new()])
        elif kind == "RESET with a part pending":
            self._ask([self._new()], "X")
        elif kind == "change of product":
            self._change_product()
        elif kind == "client dropped":
            sent = self._new()
            sent.arrived = False
            self._write(f"T,{sent.seq},{sent.code}")
            time.sleep(self._random.choice((0.0, 0.005, 0.02)))
            self._link.close()
            self._connect()
        elif kind == "parts over Modbus":
            for _ in range(self._random.randrange(1, 6)):
                self.wait_until_ready()
                self._part_over_modbus()
        elif kind == "Modbus client dropped":
            self._part_over_modbus(drop=True)
        else:
            self._ask([self._new()])

    def _new(self, seq: int = 0, *, bus: str = "tcp", repeat: bool = False) -> Sent:
        self._seq = seq or self._seq % 65535 + 1
        sent = Sent(f"K{len(self.sent):09d}", self._seq, bus, self._product, repeat=repeat)
        self.sent.append(sent)
        return sent

    def _ask(self, triggers: list[Sent], *more: str) -> None:
        """Send triggers in one packet and take one answer for each."""
        if "X" in more:
            self._note_reset()
        self._write(*(f"T,{sent.seq},{sent.code}" for sent in triggers), *more)
        for sent in triggers:
            _, seq, verdict, reason, *_ = self._read("R")
            if int(seq) != sent.seq:
                self.errors.append(f"part {sent.seq} was answered as {seq}")
            sent.answer = (verdict, int(reason))
        self._write(f"A,{triggers[0].seq}")

    def _part_over_modbus(self, *, drop: bool = False) -> None:
        sent = self._new(bus="modbus")
        words = {"TRIGGER_SEQ": sent.seq, "PART_CODE": sent.code}
        missed = self._status()["COUNT_MISSED"]
        self._modbus.write_registers(0, pack("command", {"COMMAND": int(_TRIGGER), **words})[:16])
        if drop:
            self._connect_modbus()
            return
        end = time.monotonic() + RESULT_SECONDS
        while time.monotonic() < end:
            status = self._status()
            bits = int(status["STATUS"])
            if bits & StatusBit.RESULT_VALID and status["PART_CODE_ECHO"] == sent.code:
                verdict = "FAIL" if bits & StatusBit.FAIL else "PASS"
                if bits & StatusBit.NO_VERDICT:
                    verdict = "NOVERDICT"
                sent.answer = (verdict, int(status["REASON"]))
                break
            if status["COUNT_MISSED"] != missed:
                break
            time.sleep(POLL_SECONDS)
        self._modbus.write_register(0, int(_ENABLE | CommandBit.RESULT_ACK))
        self._modbus.write_register(0, int(_ENABLE))

    # ---- the station

    def wait_until_ready(self) -> None:
        """Take results that nobody took, end faults, enable, until a trigger would be served.

        S is answered at once and may be older than a command that was sent before it.
        """
        end, enable, fault = time.monotonic() + PATIENCE, 0.0, False
        if self._product == 0:
            self._change_product()
        while time.monotonic() < end:
            _, bits, _, product, *counters = self._ask_status()
            self.counters = [int(count) for count in counters]
            if bits & StatusBit.READY and product == self._product:
                self._changing = False
                return
            if bits & StatusBit.FAULT and not fault:
                self.done["FAULT, ended by RESET"] += 1
                self._write("X")
                self._note_reset()
                if self._product == 0:
                    self._change_product()
            fault = bool(bits & StatusBit.FAULT)
            if bits & StatusBit.RESULT_VALID:
                self._write("A")
            if time.monotonic() >= enable:
                enable = time.monotonic() + ENABLE_AGAIN_SECONDS
                self._write("E,1")
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"the station did not become ready with product {self._product}")

    def _change_product(self) -> None:
        self._product, self._changing = self._random.choice(PRODUCTS), True
        self._write(f"P,{self._product}")

    def _note_reset(self) -> None:
        if self._changing:
            self._product = 0

    def _ask_status(self) -> tuple[str, int, int, int, int, int, int, int, int]:
        self._write("S")
        kind, bits, *rest = self._read("S")
        numbers: Iterator[int] = map(int, rest)
        return kind, int(bits, 16), *numbers  # type: ignore[return-value]

    def _status(self) -> dict[str, int | str]:
        return unpack("status", self._modbus.read_input_registers(0, count=64).registers)

    # ---- connections

    def _connect(self) -> None:
        self._link = socket.create_connection(("127.0.0.1", self._material.tcp), PATIENCE)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._link.makefile("r", encoding="ascii")

    def _connect_modbus(self) -> None:
        with suppress(AttributeError):
            self._modbus.close()
        self._modbus = ModbusTcpClient("127.0.0.1", port=self._material.modbus, timeout=PATIENCE)
        self._modbus.connect()
        end = time.monotonic() + PATIENCE
        while self._modbus.write_register(0, int(_ENABLE)).isError():  # the master before is there
            if time.monotonic() > end:
                raise TimeoutError("Modbus stays busy")
            time.sleep(POLL_SECONDS)

    def _write(self, *lines: str) -> None:
        self._link.sendall("".join(f"{line}\n" for line in lines).encode())

    def _read(self, kind: str) -> list[str]:
        fields = self._lines.readline().strip().split(",")
        if fields[0] != kind:
            raise EOFError(f"{kind} was expected, {fields} came")
        return fields
