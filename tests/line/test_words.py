"""The table of words is consistent, registers hold it, and generated files say what it says."""

from __future__ import annotations

import csv
import importlib
import io
import re
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from anoco_edge.line.words.constants import CommandBit, Reason, StatusBit
from anoco_edge.line.words.registers import clean_part_code, pack, read_commands, unpack
from anoco_edge.line.words.table import COMMANDS, REASONS, REGISTERS, STATUS, Word

WORDS = {"command": COMMANDS, "status": STATUS}


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generators"))
    return importlib.import_module("line_words")


def test_generated_files_are_what_the_table_says(generator: ModuleType) -> None:
    for path, text in generator.files().items():
        assert path.read_text(encoding="utf-8") == text, (
            "run: python docs/generators/line_words.py --write"
        )


@pytest.mark.parametrize("direction", WORDS)
def test_words_do_not_overlap_and_fit(direction: str) -> None:
    taken = [place for word in WORDS[direction] for place in range(word.address, word.last + 1)]
    assert len(taken) == len(set(taken))
    assert max(taken) < REGISTERS[direction]
    names = [word.name for word in WORDS[direction]]
    assert len(names) == len(set(names))


def test_every_word_and_bit_of_the_design_is_there() -> None:
    commands = (
        "ENABLE TRIGGER RESULT_ACK RESET CHANGE_PRODUCT SIMULATE TAKE_CANDIDATE DROP_CANDIDATE"
    )
    status = (
        "READY TRIGGER_ACK EXPOSING ACQ_DONE BUSY RESULT_VALID PASS FAIL NO_VERDICT FAULT WARNING "
        "MISSED_TRIGGER RESULT_TOGGLE PLC_LINK MAINTENANCE SIMULATED"
    )
    assert [bit.name for bit in CommandBit] == commands.split()
    assert [bit.name for bit in StatusBit] == status.split()
    assert [b.position for b in STATUS[0].bits] == list(range(16))


def test_numbers_and_names_of_reasons_are_unique() -> None:
    assert len({r.number for r in REASONS}) == len({r.name for r in REASONS}) == len(Reason)


def test_the_csv_file_has_a_row_for_every_word_bit_and_reason() -> None:
    text = (ROOT / "docs/reference/line-words.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    names = {row["name"] for row in rows}
    assert {word.name for words in WORDS.values() for word in words} <= names
    assert {bit.name for bit in (*CommandBit, *StatusBit)} <= names
    assert len(rows) == len(COMMANDS) + len(STATUS) + 8 + 16 + len(REASONS)


def test_structured_text_uses_only_what_it_declares() -> None:
    text = (ROOT / "docs/reference/line-words.st").read_text()
    code = re.sub(r"\(\*.*?\*\)", " ", text, flags=re.S)
    declared = set(re.findall(r"^\s+(\w+)\s*: ", code, flags=re.M))
    body = code.split("VAR_GLOBAL CONSTANT")[1]
    used = set(re.findall(r"\b(?:command|status|reason)_\w+", body))
    assert used <= declared, used - declared
    for opens, closes in (("IF", "END_IF"), ("CASE", "END_CASE"), ("VAR\\w*", "END_VAR")):
        starts = re.findall(rf"(?<!\w){opens}(?!\w)", code)
        assert len(starts) == len(re.findall(rf"\b{closes}\b", code)), opens


def values(word: Word) -> st.SearchStrategy[int | str]:
    if word.kind == "ascii":
        return st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=16)
    return st.integers(0, (1 << 16 * word.registers) - 1)


@pytest.mark.parametrize("direction", WORDS)
def test_words_come_back_from_registers(direction: str) -> None:
    @given(st.fixed_dictionaries({word.name: values(word) for word in WORDS[direction]}))
    def holds(words: dict[str, int | str]) -> None:
        registers = pack(direction, words)
        assert all(0 <= register <= 0xFFFF for register in registers)
        assert unpack(direction, registers) == words

    holds()


def test_a_number_that_is_too_large_becomes_the_largest() -> None:
    assert unpack("status", pack("status", {"SCORE": 70000, "REASON": -1}))["SCORE"] == 65535


@given(st.lists(st.integers(0, 0xFFFF), min_size=32, max_size=32))
def test_any_registers_of_a_plc_can_be_read(registers: list[int]) -> None:
    image = read_commands(registers)
    assert image.part_code == clean_part_code(image.part_code)
    assert image.bits == registers[0] & 0xFF
