"""The status that a station shows to the PLC at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from anoco_edge.line.core.events import Candidate, RegionWord
from anoco_edge.line.words.constants import Reason, StatusBit
from anoco_edge.line.words.registers import Value, pack
from anoco_edge.line.words.table import REGIONS

_NO_BITS = StatusBit(0)


@dataclass(frozen=True)
class Counters:
    """What became of all triggers. A trigger is counted once, and once more for its outcome.

    >>> Counters().plus("good").good
    1
    """

    triggers: int = 0
    good: int = 0
    fail: int = 0
    no_verdict: int = 0
    missed: int = 0

    def plus(self, name: str) -> Counters:
        """Return the counters with one of them advanced."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values[name] += 1
        return Counters(**values)

    def words(self) -> str:
        """Return the counters as a line for the log.

        >>> Counters(9, 5, 2, 1, 1).words()
        '9 triggers so far: 5 good, 2 anomalous, 1 without a verdict, 1 refused'
        """
        return (
            f"{self.triggers} triggers so far: {self.good} good, {self.fail} anomalous, "
            f"{self.no_verdict} without a verdict, {self.missed} refused"
        )

    @property
    def outcomes(self) -> int:
        """The number of triggers that have their outcome."""
        return self.good + self.fail + self.no_verdict + self.missed


@dataclass(frozen=True)
class ResultWords:
    """The words of the last result; they stay after RESULT_VALID has fallen."""

    seq: int = 0
    reason: Reason = Reason.NONE
    score: int = 0
    acquire_ms: int = 0
    total_ms: int = 0
    reserve_ms: int = 0
    part_code: str = ""
    regions: tuple[RegionWord, ...] = ()


@dataclass(frozen=True)
class Status:
    """All status words at one moment."""

    bits: StatusBit = _NO_BITS
    heartbeat: int = 0
    product: int = 0
    generation: int = 0
    checksum: int = 0
    result: ResultWords = field(default_factory=ResultWords)
    counters: Counters = field(default_factory=Counters)
    candidate: Candidate = field(default_factory=Candidate)

    def has(self, bit: StatusBit) -> bool:
        """Whether a bit is high."""
        return bool(self.bits & bit)

    def words(self) -> dict[str, Value]:
        """Return the words by their names in the table.

        >>> Status(heartbeat=7).words()["HEARTBEAT"]
        7
        """
        result, counters = self.result, self.counters
        words: dict[str, Value] = {
            "STATUS": int(self.bits),
            "HEARTBEAT": self.heartbeat,
            "RESULT_SEQ": result.seq,
            "REASON": int(result.reason),
            "SCORE": result.score,
            "PRODUCT": self.product,
            "GENERATION": self.generation & 0xFFFF,
            "SETTINGS_CHECKSUM": self.checksum,
            "ACQUIRE_MS": result.acquire_ms,
            "TOTAL_MS": result.total_ms,
            "RESERVE_MS": result.reserve_ms,
            "COUNT_TRIGGERS": counters.triggers & 0xFFFFFFFF,
            "COUNT_GOOD": counters.good & 0xFFFFFFFF,
            "COUNT_FAIL": counters.fail & 0xFFFFFFFF,
            "COUNT_NO_VERDICT": counters.no_verdict & 0xFFFFFFFF,
            "COUNT_MISSED": counters.missed & 0xFFFFFFFF,
            "CANDIDATE": int(self.candidate.stage),
            "CANDIDATE_DIFFERENCES": self.candidate.differences,
            "PART_CODE_ECHO": result.part_code,
        }
        for number, region in enumerate(result.regions[:REGIONS], start=1):
            for each in fields(region):
                words[f"REGION{number}_{each.name.upper()}"] = getattr(region, each.name)
        return words

    def registers(self) -> list[int]:
        """Return the 64 input registers."""
        return pack("status", self.words())
