"""The result that stands on the wires, and the bits around it."""

from __future__ import annotations

from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.settings import MS, LineSettings
from anoco_edge.line.core.status import ResultWords
from anoco_edge.line.words.constants import StatusBit

_LARGEST_RATIO = 65.535  # per mille in 16 bits


class Outputs:
    """The last result, until when it is held, and the bits of the handshake."""

    def __init__(self, settings: LineSettings) -> None:
        self._hold = settings.hold_ms * MS
        self._acknowledge = settings.acknowledge
        self.words = ResultWords()
        self.trigger_ack = False
        self.acquired = False
        self.missed = False
        self._toggle = False
        self._verdict = StatusBit(0)
        self.held_until: int | None = None

    @property
    def awaits_acknowledge(self) -> bool:
        """Whether a result must be taken before the next trigger."""
        return self._acknowledge and self.held_until is not None

    @property
    def bits(self) -> StatusBit:
        """The bits of the result and of the handshake."""
        bits = StatusBit(0)
        if self.held_until is not None:
            bits |= StatusBit.RESULT_VALID | self._verdict
        for on, bit in (
            (self.trigger_ack, StatusBit.TRIGGER_ACK),
            (self.acquired, StatusBit.ACQ_DONE),
            (self.missed, StatusBit.MISSED_TRIGGER),
            (self._toggle, StatusBit.RESULT_TOGGLE),
        ):
            bits |= bit if on else StatusBit(0)
        return bits

    def begin_part(self, *, trigger_ack: bool) -> None:
        """Take the result before from the wires: a trigger was accepted."""
        self.held_until = None
        self.trigger_ack = trigger_ack
        self.acquired = self.missed = False

    def put(self, record: PartRecord, now: int) -> None:
        """Put a result on the wires. PASS alone means that the part may be used."""
        self._verdict = {
            "good": StatusBit.PASS,
            "anomalous": StatusBit.FAIL,
            "no-verdict": StatusBit.FAIL | StatusBit.NO_VERDICT,
        }[record.verdict]
        self._toggle = not self._toggle
        self.held_until = now + self._hold
        self.words = ResultWords(
            record.seq,
            record.reason,
            round(1000 * min(max(record.ratio, 0.0), _LARGEST_RATIO)),
            record.acquire_ms,
            record.total_ms,
            record.reserve_ms,
            record.part_code,
            record.regions,
        )

    def acknowledge(self, seq: int) -> bool:
        """Take the result from the wires if it is the one that the PLC has taken."""
        if self.held_until is None or seq not in (0, self.words.seq):
            return False
        self.held_until = None
        return True

    def expire(self, now: int) -> bool:
        """Take a result from the wires that was held long enough; True if nobody took it that
        should have."""
        if self.held_until is None or now < self.held_until:
            return False
        self.held_until = None
        return self._acknowledge

    def reset(self) -> None:
        """Take everything from the wires but the toggle, which the PLC compares."""
        self.held_until = None
        self.trigger_ack = self.acquired = self.missed = False
