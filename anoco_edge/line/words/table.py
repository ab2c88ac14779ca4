"""The table of all bits and words that a station and a PLC exchange.

Every bus carries these words with this meaning. `anoco_edge/line/words/constants.py`, the tables on
docs/reference/line-words.md, the CSV file and the Structured Text example beside that page are
written from this table by

    python docs/generators/line_words.py --write

Addresses are those of Modbus: holding registers for commands, input registers for the status. A
PLC that reads all input registers in one request sees one consistent state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bits", "uint16", "uint32", "ascii"]
REGISTERS = {"command": 32, "status": 64}
"""The number of registers of each direction; those without a word read as 0."""


@dataclass(frozen=True)
class Bit:
    """A bit of the command word or of the status word; bit 0 is the lowest."""

    name: str
    position: int
    meaning: str


@dataclass(frozen=True)
class Word:
    """A value in one or more 16-bit registers, the high register and the high byte first."""

    name: str
    address: int
    kind: Kind
    meaning: str
    registers: int = 1
    bits: tuple[Bit, ...] = ()

    @property
    def last(self) -> int:
        """The address of the last register of the word."""
        return self.address + self.registers - 1


@dataclass(frozen=True)
class ReasonCode:
    """Why a part has no verdict, or why a trigger was refused: a number for the word REASON."""

    name: str
    number: int
    meaning: str


COMMAND_BITS = (
    Bit("ENABLE", 0, "The PLC wants parts to be inspected. Without it READY stays low."),
    Bit("TRIGGER", 1, "A rising edge is the trigger of one part. Hold it until TRIGGER_ACK."),
    Bit("RESULT_ACK", 2, "A rising edge says that the PLC has taken the result."),
    Bit("RESET", 3, "A rising edge clears FAULT and warnings, gives up the part, starts again."),
    Bit("CHANGE_PRODUCT", 4, "A rising edge changes over to the product in PRODUCT_NUMBER."),
    Bit("SIMULATE", 5, "While high, stored pictures take the place of the cameras."),
    Bit("TAKE_CANDIDATE", 6, "A rising edge takes the candidate that CANDIDATE tells of."),
    Bit("DROP_CANDIDATE", 7, "A rising edge drops it, also if TAKE_CANDIDATE rises with it."),
)
STATUS_BITS = (
    Bit("READY", 0, "A trigger would be served now."),
    Bit("TRIGGER_ACK", 1, "The trigger was accepted. It falls when TRIGGER falls."),
    Bit("EXPOSING", 2, "A picture of this part is awaited; the part must not move."),
    Bit("ACQ_DONE", 3, "All pictures of this part have arrived; the part may move."),
    Bit("BUSY", 4, "A part was accepted and is not decided yet."),
    Bit("RESULT_VALID", 5, "The result words belong to RESULT_SEQ. It falls on RESULT_ACK."),
    Bit("PASS", 6, "The part is good. Never together with FAIL; both low is no result."),
    Bit("FAIL", 7, "The part is not to be used: it is anomalous or has no verdict."),
    Bit("NO_VERDICT", 8, "With FAIL: nobody knows whether the part is good; see REASON."),
    Bit("FAULT", 9, "The station has stopped and needs RESET."),
    Bit("WARNING", 10, "The station works, and something needs attention."),
    Bit("MISSED_TRIGGER", 11, "A trigger was refused. It falls with the next accepted one."),
    Bit("RESULT_TOGGLE", 12, "Changes with every result."),
    Bit("PLC_LINK", 13, "PLC_HEARTBEAT changes as it should, or is not watched."),
    Bit("MAINTENANCE", 14, "A person has paused the station."),
    Bit("SIMULATED", 15, "The pictures are simulated: do not release a part by this result."),
)
COMMANDS = (
    Word("COMMAND", 0, "bits", "The command bits.", bits=COMMAND_BITS),
    Word("TRIGGER_SEQ", 1, "uint16", "The number of the part, 1 to 65535; 0: count here."),
    Word("PRODUCT_NUMBER", 2, "uint16", "The product that CHANGE_PRODUCT asks for."),
    Word("PLC_HEARTBEAT", 3, "uint16", "Any value that the PLC changes while it lives."),
    Word("PART_CODE", 8, "ascii", "The code of the part, up to 16 ASCII characters.", 8),
)


def _region(number: int, address: int) -> tuple[Word, ...]:
    """Return the words of one region of the result."""
    fields = (
        ("CAPTURE", "the capture that shows it, counted from 1; 0: there is no such region"),
        ("LEFT", "its left edge, in pixels"),
        ("TOP", "its upper edge, in pixels"),
        ("RIGHT", "its right edge, in pixels"),
        ("BOTTOM", "its lower edge, in pixels"),
        ("PEAK", "its highest energy, in per mille of the threshold"),
    )
    return tuple(
        Word(f"REGION{number}_{name}", address + place, "uint16", f"Region {number}: {meaning}.")
        for place, (name, meaning) in enumerate(fields)
    )


REGIONS = 4
STATUS = (
    Word("STATUS", 0, "bits", "The status bits.", bits=STATUS_BITS),
    Word("HEARTBEAT", 1, "uint16", "Counts 10 times a second while camera, judge and I/O work."),
    Word("RESULT_SEQ", 2, "uint16", "The TRIGGER_SEQ of the part that the result belongs to."),
    Word("REASON", 3, "uint16", "Why the part has no verdict; 0 where it has one."),
    Word("SCORE", 4, "uint16", "The score in per mille of the threshold, 65535 at most."),
    Word("PRODUCT", 5, "uint16", "The product that parts are judged by now; 0: none."),
    Word("GENERATION", 6, "uint16", "The lower 16 bits of the generation of that product."),
    Word("SETTINGS_CHECKSUM", 7, "uint16", "16 bits of SHA-256 over bundle, product and config."),
    Word("ACQUIRE_MS", 8, "uint16", "From the trigger until all pictures were there."),
    Word("TOTAL_MS", 9, "uint16", "From the trigger until the result."),
    Word("RESERVE_MS", 10, "uint16", "What was left of the time until the deadline."),
    Word("COUNT_TRIGGERS", 12, "uint32", "All triggers; a repeated one counts once.", 2),
    Word("COUNT_GOOD", 14, "uint32", "Parts that passed.", 2),
    Word("COUNT_FAIL", 16, "uint32", "Parts that are anomalous.", 2),
    Word("COUNT_NO_VERDICT", 18, "uint32", "Accepted parts without a verdict.", 2),
    Word("COUNT_MISSED", 20, "uint32", "Triggers that were refused.", 2),
    Word("CANDIDATE", 22, "uint16", "0: none; 1: one judges beside the product; 2: it is done."),
    Word("CANDIDATE_DIFFERENCES", 23, "uint16", "How many parts the candidate judged otherwise."),
    Word("PART_CODE_ECHO", 24, "ascii", "The PART_CODE of the part of the result.", 8),
    *(word for n in range(REGIONS) for word in _region(n + 1, 32 + 8 * n)),
)
REASONS = (
    ReasonCode("NONE", 0, "The part has a verdict."),
    # Parts that were accepted and got no verdict.
    ReasonCode("DEADLINE", 1, "There was no verdict at the deadline."),
    ReasonCode("NO_PICTURE", 2, "No picture was exposed and received within acquire_ms."),
    ReasonCode(
        "OUT_OF_STEP", 3, "Exposure time and frame counter disagree, or wait for a test picture."
    ),
    ReasonCode("PICTURE_INCOMPLETE", 4, "A part of the picture was lost on its way."),
    ReasonCode("CAMERA_DOWN", 5, "The camera does not answer."),
    ReasonCode("JUDGE_DOWN", 6, "The judge hung or crashed and is being replaced."),
    ReasonCode("JUDGE_ERROR", 7, "The detector refused the picture or failed."),
    ReasonCode("WRONG_PRODUCT", 8, "The picture was judged by another product or generation."),
    ReasonCode("NOT_ALIVE", 9, "Camera, judge or I/O made no progress while the part was judged."),
    ReasonCode("RESET", 10, "RESET, or Abort of OPC UA, came before the verdict."),
    ReasonCode("HALTED", 11, "The station was halted before the verdict."),
    ReasonCode("RESTARTED", 12, "The station was restarted before the verdict."),
    ReasonCode("UNCALIBRATED", 13, "The product has no threshold."),
    # What the judge says about a picture.
    ReasonCode("TOO_DARK", 20, "The picture is too dark."),
    ReasonCode("SATURATED", 21, "Too much of the picture is saturated."),
    ReasonCode("BLURRED", 22, "The picture is blurred."),
    ReasonCode("UNLIKE_REFERENCES", 23, "The picture shows nothing like the references."),
    ReasonCode("NOT_FOUND", 24, "The part was not found in the search window."),
    ReasonCode("PART_CODE", 25, "The code on the part was not read, or is not the trigger's."),
    # Triggers that were refused.
    ReasonCode("BUSY", 40, "A part is pending."),
    ReasonCode("DISABLED", 41, "ENABLE is low."),
    ReasonCode("NOT_READY", 42, "The station has not finished its self-test, or was halted."),
    ReasonCode("FAULT", 43, "The station has stopped and needs RESET."),
    ReasonCode("MAINTENANCE", 44, "A person has paused the station."),
    ReasonCode("PRODUCT_CHANGE", 45, "A change of product is not finished, or failed."),
    ReasonCode("NOT_ACKNOWLEDGED", 46, "The result before was not acknowledged yet."),
    ReasonCode("PLC_LINK_LOST", 47, "PLC_HEARTBEAT does not change."),
    ReasonCode(
        "SEQUENCE_REPEATED", 48, "TRIGGER_SEQ is that of a decided part, or came with two codes."
    ),
    ReasonCode("SEQUENCE_JUMP", 49, "TRIGGER_SEQ jumped, and strict_sequence is on."),
    ReasonCode("RECORDER_FULL", 50, "The recorder cannot take another row."),
    ReasonCode("WIRED", 51, "The camera is triggered by a wire; its picture makes the part."),
    ReasonCode("FRAME_LOST", 52, "The camera exposed a part, and its picture never came."),
)
"""The numbers are part of the interface: new reasons get new ones, and none is used again."""
