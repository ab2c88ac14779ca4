"""The counts of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from anoco_edge.drift import DriftSummary
from anoco_edge.drift.readings import DriftSummaryJson
from anoco_edge.errors import AnocoError
from anoco_edge.results.rows import FailedRow, Row


class RunSummaryJson(TypedDict):
    """The summary of a run as `infer --json` prints it."""

    pictures: int
    good: int
    anomalous: int
    uncalibrated: int
    failed: int
    skipped: int
    seconds: float
    interrupted: bool
    drift: DriftSummaryJson | None
    lost: str | None


@dataclass
class RunSummary:
    """How many pictures of a run had which verdict, and how the run ended.

    `lost` says why the run ended before its time: the stream broke off, the engine stopped working
    or the disk is full. `interrupted` says that a person stopped it. `skipped` counts frames of a
    live source that came while another one was inspected.
    """

    skipped: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    drift: DriftSummary | None = None
    lost: AnocoError | None = None
    first_error: str = ""
    _counts: Counter[str] = field(default_factory=Counter)

    @property
    def pictures(self) -> int:
        """How many pictures have a row, inspected or not."""
        return self._counts.total()

    @property
    def good(self) -> int:
        """How many pictures were good."""
        return self._counts["good"]

    @property
    def anomalous(self) -> int:
        """How many pictures were anomalous."""
        return self._counts["anomalous"]

    @property
    def uncalibrated(self) -> int:
        """How many pictures have a score and, for want of a threshold, no verdict."""
        return self._counts["uncalibrated"]

    @property
    def failed(self) -> int:
        """How many pictures could not be inspected."""
        return self._counts["failed"]

    def count(self, row: Row) -> None:
        """Count one more row."""
        self._counts[row.verdict or "failed"] += 1
        if isinstance(row, FailedRow):
            self.first_error = self.first_error or row.error

    def to_json(self) -> RunSummaryJson:
        """Return the summary for `infer --json`.

        >>> RunSummary(seconds=1.23456).to_json()["seconds"]
        1.235
        """
        return {
            "pictures": self.pictures,
            "good": self.good,
            "anomalous": self.anomalous,
            "uncalibrated": self.uncalibrated,
            "failed": self.failed,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "drift": self.drift.to_json() if self.drift else None,
            "lost": str(self.lost) if self.lost else None,
        }
