"""The words of the table as registers: what a bus with registers reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anoco_edge.line.words.constants import CommandBit, CommandRegister
from anoco_edge.line.words.table import COMMANDS, REGISTERS, STATUS, Word

_WORDS = {
    "command": {word.name: word for word in COMMANDS},
    "status": {word.name: word for word in STATUS},
}
Value = int | str
_NO_BITS = CommandBit(0)


@dataclass(frozen=True)
class CommandImage:
    """What the PLC says at one moment: the command bits and the words beside them."""

    bits: CommandBit = _NO_BITS
    trigger_seq: int = 0
    product_number: int = 0
    plc_heartbeat: int = 0
    part_code: str = ""


def pack(direction: str, values: dict[str, Value]) -> list[int]:
    """Write words into the registers of one direction; a number that is too large becomes the
    largest, and a text is cut.

    >>> pack("status", {"HEARTBEAT": 7, "COUNT_GOOD": 65538, "PART_CODE_ECHO": "A1"})[:16]
    [0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    """
    registers = [0] * REGISTERS[direction]
    for name, value in values.items():
        word = _WORDS[direction][name]
        registers[word.address : word.last + 1] = _encode(word, value)
    return registers


def unpack(direction: str, registers: Sequence[int]) -> dict[str, Value]:
    """Read all words of one direction from its registers.

    >>> unpack("command", pack("command", {"TRIGGER_SEQ": 9, "PART_CODE": "A1"}))["PART_CODE"]
    'A1'
    """
    words = _WORDS[direction].values()
    return {word.name: _decode(word, registers[word.address : word.last + 1]) for word in words}


def read_commands(registers: Sequence[int]) -> CommandImage:
    """Read the holding registers; bits that the table does not know are ignored.

    >>> read_commands([3, 17] + 30 * [0]).trigger_seq
    17
    """
    bits = CommandBit(registers[CommandRegister.COMMAND] & sum(CommandBit))
    code = _decode(_WORDS["command"]["PART_CODE"], registers[CommandRegister.PART_CODE :][:8])
    return CommandImage(
        bits,
        trigger_seq=registers[CommandRegister.TRIGGER_SEQ],
        product_number=registers[CommandRegister.PRODUCT_NUMBER],
        plc_heartbeat=registers[CommandRegister.PLC_HEARTBEAT],
        part_code=str(code),
    )


def clean_part_code(text: str) -> str:
    """Return a part code as every bus can carry it: 16 printable ASCII characters at most.

    >>> clean_part_code("  Größe\\x00 42 ")
    'Gr??e 42'
    """
    kept = "".join(c if " " <= c <= "~" else "?" for c in text.replace("\0", ""))
    return kept.strip()[:16].rstrip()


def _encode(word: Word, value: Value) -> list[int]:
    if word.kind == "ascii":
        raw = clean_part_code(str(value)).encode("ascii").ljust(2 * word.registers, b"\0")
        return [raw[i] << 8 | raw[i + 1] for i in range(0, len(raw), 2)]
    number = min(max(int(value), 0), (1 << 16 * word.registers) - 1)
    return [number >> 16 * i & 0xFFFF for i in reversed(range(word.registers))]


def _decode(word: Word, registers: Sequence[int]) -> Value:
    if word.kind == "ascii":
        raw = b"".join(register.to_bytes(2, "big") for register in registers)
        return clean_part_code(raw.partition(b"\0")[0].decode("latin-1"))
    number = 0
    for register in registers:
        number = number << 16 | register
    return number
