"""The bits, addresses and reasons of the table of words, as constants.

docs/generators/line_words.py writes this from `line/words/table.py`: change that.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class CommandBit(IntFlag):
    """The bits of the command word, PLC to station."""

    ENABLE = 1 << 0
    TRIGGER = 1 << 1
    RESULT_ACK = 1 << 2
    RESET = 1 << 3
    CHANGE_PRODUCT = 1 << 4
    SIMULATE = 1 << 5
    TAKE_CANDIDATE = 1 << 6
    DROP_CANDIDATE = 1 << 7


class CommandRegister(IntEnum):
    """The first register of each word among the holding registers."""

    COMMAND = 0
    TRIGGER_SEQ = 1
    PRODUCT_NUMBER = 2
    PLC_HEARTBEAT = 3
    PART_CODE = 8


class StatusBit(IntFlag):
    """The bits of the status word, Station to PLC."""

    READY = 1 << 0
    TRIGGER_ACK = 1 << 1
    EXPOSING = 1 << 2
    ACQ_DONE = 1 << 3
    BUSY = 1 << 4
    RESULT_VALID = 1 << 5
    PASS = 1 << 6
    FAIL = 1 << 7
    NO_VERDICT = 1 << 8
    FAULT = 1 << 9
    WARNING = 1 << 10
    MISSED_TRIGGER = 1 << 11
    RESULT_TOGGLE = 1 << 12
    PLC_LINK = 1 << 13
    MAINTENANCE = 1 << 14
    SIMULATED = 1 << 15


class StatusRegister(IntEnum):
    """The first register of each word among the input registers."""

    STATUS = 0
    HEARTBEAT = 1
    RESULT_SEQ = 2
    REASON = 3
    SCORE = 4
    PRODUCT = 5
    GENERATION = 6
    SETTINGS_CHECKSUM = 7
    ACQUIRE_MS = 8
    TOTAL_MS = 9
    RESERVE_MS = 10
    COUNT_TRIGGERS = 12
    COUNT_GOOD = 14
    COUNT_FAIL = 16
    COUNT_NO_VERDICT = 18
    COUNT_MISSED = 20
    CANDIDATE = 22
    CANDIDATE_DIFFERENCES = 23
    PART_CODE_ECHO = 24
    REGION1_CAPTURE = 32
    REGION1_LEFT = 33
    REGION1_TOP = 34
    REGION1_RIGHT = 35
    REGION1_BOTTOM = 36
    REGION1_PEAK = 37
    REGION2_CAPTURE = 40
    REGION2_LEFT = 41
    REGION2_TOP = 42
    REGION2_RIGHT = 43
    REGION2_BOTTOM = 44
    REGION2_PEAK = 45
    REGION3_CAPTURE = 48
    REGION3_LEFT = 49
    REGION3_TOP = 50
    REGION3_RIGHT = 51
    REGION3_BOTTOM = 52
    REGION3_PEAK = 53
    REGION4_CAPTURE = 56
    REGION4_LEFT = 57
    REGION4_TOP = 58
    REGION4_RIGHT = 59
    REGION4_BOTTOM = 60
    REGION4_PEAK = 61


class Reason(IntEnum):
    """Why a part has no verdict, or why a trigger was refused."""

    NONE = 0
    DEADLINE = 1
    NO_PICTURE = 2
    OUT_OF_STEP = 3
    PICTURE_INCOMPLETE = 4
    CAMERA_DOWN = 5
    JUDGE_DOWN = 6
    JUDGE_ERROR = 7
    WRONG_PRODUCT = 8
    NOT_ALIVE = 9
    RESET = 10
    HALTED = 11
    RESTARTED = 12
    UNCALIBRATED = 13
    TOO_DARK = 20
    SATURATED = 21
    BLURRED = 22
    UNLIKE_REFERENCES = 23
    NOT_FOUND = 24
    PART_CODE = 25
    BUSY = 40
    DISABLED = 41
    NOT_READY = 42
    FAULT = 43
    MAINTENANCE = 44
    PRODUCT_CHANGE = 45
    NOT_ACKNOWLEDGED = 46
    PLC_LINK_LOST = 47
    SEQUENCE_REPEATED = 48
    SEQUENCE_JUMP = 49
    RECORDER_FULL = 50
    WIRED = 51
    FRAME_LOST = 52
