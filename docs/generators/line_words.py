"""What PLC programmers and our own code read of the table in `anoco_edge/line/words/table.py`.

    python docs/generators/line_words.py --write

writes the constants for our code, the CSV file and the Structured Text example. The site builder
calls `markdown` for the page docs/reference/line-words.md.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from anoco_edge.line.words.table import COMMANDS, REASONS, REGISTERS, STATUS, Word

ROOT = Path(__file__).parents[2]
_TITLES = {
    "command": ("PLC to station", "Holding registers", COMMANDS),
    "status": ("Station to PLC", "Input registers", STATUS),
}
_ST_TYPES = {"bits": "WORD", "uint16": "UINT", "uint32": "UDINT", "ascii": "STRING(16)"}


def files() -> dict[Path, str]:
    """Return the content of every generated file by its path."""
    return {
        ROOT / "anoco_edge/line/words/constants.py": constants(),
        ROOT / "docs/reference/line-words.csv": table(),
        ROOT / "docs/reference/line-words.st": structured_text(),
    }


def markdown() -> str:
    """Return the tables of registers, bits and reasons."""
    lines: list[str] = []
    for direction, (title, registers, words) in _TITLES.items():
        lines += [f"## {title} {{ #{direction} }}", ""]
        lines += [f"{registers} 0 to {REGISTERS[direction] - 1}; those not listed read as 0.", ""]
        lines += ["| register | word | type | meaning |", "|---|---|---|---|"]
        lines += [f"| {_place(w)} | `{w.name}` | {w.kind} | {w.meaning} |" for w in words]
        for word in words:
            if word.bits:
                lines += ["", f"### Bits of {word.name} {{ #{direction}-bits }}", ""]
                lines += ["| bit | name | meaning |", "|---:|---|---|"]
                lines += [f"| {b.position} | `{b.name}` | {b.meaning} |" for b in word.bits]
        lines.append("")
    lines += ["## Reasons", "", "| number | name | meaning |", "|---:|---|---|"]
    lines += [f"| {r.number} | `{r.name}` | {r.meaning} |" for r in REASONS]
    return "\n".join(lines)


def table() -> str:
    """Return all words, bits and reasons as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("direction", "address", "registers", "bit", "name", "type", "meaning"))
    for direction, (_, _, words) in _TITLES.items():
        for w in words:
            rows.writerow((direction, w.address, w.registers, "", w.name, w.kind, w.meaning))
            for b in w.bits:
                rows.writerow((direction, w.address, 1, b.position, b.name, "bit", b.meaning))
    for r in REASONS:
        rows.writerow(("reason", r.number, "", "", f"REASON_{r.name}", "value", r.meaning))
    return text.getvalue()


def constants() -> str:
    """Return the module of constants that our own code uses."""
    lines = [
        '"""The bits, addresses and reasons of the table of words, as constants.',
        "",
        "docs/generators/line_words.py writes this from `line/words/table.py`: change that.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum, IntFlag",
    ]
    for direction, (title, registers, words) in _TITLES.items():
        kind = direction.capitalize()
        lines += ["", "", f"class {kind}Bit(IntFlag):"]
        lines += [f'    """The bits of the {direction} word, {title}."""', ""]
        lines += [f"    {b.name} = 1 << {b.position}" for w in words for b in w.bits]
        lines += ["", "", f"class {kind}Register(IntEnum):"]
        lines += [f'    """The first register of each word among the {registers.lower()}."""', ""]
        lines += [f"    {w.name} = {w.address}" for w in words]
    lines += ["", "", "class Reason(IntEnum):"]
    lines += ['    """Why a part has no verdict, or why a trigger was refused."""', ""]
    lines += [f"    {r.name} = {r.number}" for r in REASONS]
    return "\n".join(lines) + "\n"


def structured_text() -> str:
    """Return a function block in Structured Text (IEC 61131-3) that drives a station."""
    return "\n".join((*_st_declarations(), *_ST_BODY.strip("\n").split("\n"), ""))


def _st_declarations() -> Iterator[str]:
    yield "(* Drives an anoco-edge station over Modbus TCP. In every cycle, let the Modbus client"
    yield "   of your PLC read input registers 0 to 63 into `status` and write `command` to holding"
    yield "   registers 0 to 31. No PLC tool has compiled this file yet: read it before you use it."
    yield "   Written by docs/generators/line_words.py. *)"
    yield ""
    yield "VAR_GLOBAL CONSTANT"
    for direction, (_, _, words) in _TITLES.items():
        for word in words:
            for bit in word.bits:
                name = f"{direction}_{bit.name}"
                yield f"    {name} : WORD := 16#{1 << bit.position:04X}; (* {bit.meaning} *)"
            place = f"{direction}_at_{word.name}"
            note = f"{_ST_TYPES[word.kind]}, {_place(word)}. {word.meaning}"
            yield f"    {place} : INT := {word.address}; (* {note} *)"
    for r in REASONS:
        yield f"    reason_{r.name} : WORD := {r.number}; (* {r.meaning} *)"
    yield "END_VAR"
    yield ""


_ST_BODY = """
FUNCTION_BLOCK AnocoStation
VAR_INPUT
    enable      : BOOL;   (* inspect parts *)
    inspect     : BOOL;   (* a rising edge inspects the part in front of the camera *)
    clear_fault : BOOL;
    timeout     : TIME := T#2S; (* longer than deadline_ms of the station *)
END_VAR
VAR_OUTPUT
    done     : BOOL;      (* the outputs below belong to this part *)
    release  : BOOL;      (* TRUE only where the station said PASS for this very part *)
    reason   : WORD;
    fault    : BOOL;      (* the station does not answer or has stopped *)
END_VAR
VAR_IN_OUT
    status  : ARRAY[0..63] OF WORD;
    command : ARRAY[0..31] OF WORD;
END_VAR
VAR
    seq         : UINT;
    beat        : UINT;
    step        : INT;
    edge        : R_TRIG;
    answer      : TON;
    alive       : TON;
    last_beat   : WORD;
    bits        : WORD;
END_VAR

bits := status[status_at_STATUS];
beat := beat + 1;
command[command_at_PLC_HEARTBEAT] := UINT_TO_WORD(beat);

(* The heartbeat of the station changes ten times a second while all of it works. *)
alive(IN := status[status_at_HEARTBEAT] = last_beat, PT := T#500MS);
last_beat := status[status_at_HEARTBEAT];
fault := alive.Q OR (bits AND status_FAULT) <> 0;

command[command_at_COMMAND] := 0;
IF enable THEN
    command[command_at_COMMAND] := command_ENABLE;
END_IF;
IF clear_fault THEN
    command[command_at_COMMAND] := command[command_at_COMMAND] OR command_RESET;
    step := 0;
END_IF;

edge(CLK := inspect);
answer(IN := step = 1 OR step = 2, PT := timeout);

IF edge.Q AND step <> 1 AND step <> 2 THEN
    done := FALSE;
    release := FALSE;
    reason := reason_NONE;
    IF fault OR (bits AND status_READY) = 0 THEN
        done := TRUE;           (* not ready: the part is rejected *)
        reason := reason_NOT_READY;
        step := 0;
    ELSE
        seq := seq + 1;
        IF seq = 0 THEN seq := 1; END_IF;
        step := 1;
    END_IF;
END_IF;

command[command_at_TRIGGER_SEQ] := UINT_TO_WORD(seq);
CASE step OF
1:  (* hold TRIGGER until the station says that it has it *)
    command[command_at_COMMAND] := command[command_at_COMMAND] OR command_TRIGGER;
    IF (bits AND status_TRIGGER_ACK) <> 0 THEN
        step := 2;
    END_IF;
2:  (* wait for the result of this very part *)
    IF (bits AND status_RESULT_VALID) <> 0 AND status[status_at_RESULT_SEQ] = UINT_TO_WORD(seq) THEN
        release := (bits AND status_PASS) <> 0 AND (bits AND status_FAIL) = 0
            AND (bits AND status_SIMULATED) = 0 AND NOT fault;
        reason := status[status_at_REASON];
        done := TRUE;
        step := 3;
    END_IF;
3:  (* acknowledge until the station takes its result back *)
    command[command_at_COMMAND] := command[command_at_COMMAND] OR command_RESULT_ACK;
    IF (bits AND status_RESULT_VALID) = 0 THEN
        step := 0;
    END_IF;
END_CASE;

IF answer.Q THEN                (* no answer in time: the part is rejected *)
    release := FALSE;
    reason := reason_DEADLINE;
    done := TRUE;
    step := 0;
END_IF;
END_FUNCTION_BLOCK
"""


def _place(word: Word) -> str:
    return f"{word.address}" if word.registers == 1 else f"{word.address} to {word.last}"


def main() -> None:
    """Write the files, or say which ones are not what the table says."""
    for path, text in files().items():
        if "--write" in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.relative_to(ROOT)} is old; run it with --write")


if __name__ == "__main__":
    main()
