"""What the drift watch reports: a reading for every row, a warning, and a summary of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

State = Literal["steady", "higher", "lower", "blind"]


class DriftReadingJson(TypedDict):
    """The `drift` field of a row in results.jsonl."""

    state: State
    level: float


class DriftWarningJson(TypedDict):
    """The latest warning in the summary of a run; both numbers are ids of rows."""

    state: State
    id: int
    since: int


class DriftSummaryJson(TypedDict):
    """The `drift` field in the summary of a run."""

    state: State
    watched: int
    warnings: int
    latest: DriftWarningJson | None


@dataclass(frozen=True)
class DriftReading:
    """The state of the watch after one row, and how near a warning is: at level 1 it comes."""

    state: State
    level: float

    def to_json(self) -> DriftReadingJson:
        """Return the `drift` field of a row."""
        return {"state": self.state, "level": self.level}


@dataclass(frozen=True)
class DriftWarning:
    """The scores of good parts have moved, or there are no good parts left to compare.

    `row` is the id of the row at which this was noticed. `since` is the id of the row from which
    on the sum was never 0, which is about where the change began.
    """

    state: State
    row: int
    since: int

    def to_json(self) -> DriftWarningJson:
        """Return the warning as the summary of a run shows it."""
        return {"state": self.state, "id": self.row, "since": self.since}

    def __str__(self) -> str:
        if self.state == "blind":
            return (
                f"no part was good since row {self.since}, so there is nothing to compare with "
                "calibration: if these parts are good, light or camera have moved"
            )
        return (
            f"good parts score {self.state} than in calibration since about row {self.since} "
            f"(noticed at row {self.row}): light, camera or parts have changed; put it right, or "
            "calibrate again"
        )


@dataclass(frozen=True)
class DriftSummary:
    """The drift watch at the end of a run: how many parts it compared and how often it warned."""

    state: State
    watched: int
    warnings: int
    latest: DriftWarning | None

    def to_json(self) -> DriftSummaryJson:
        """Return the `drift` field of the summary."""
        return {
            "state": self.state,
            "watched": self.watched,
            "warnings": self.warnings,
            "latest": self.latest.to_json() if self.latest else None,
        }

    def __str__(self) -> str:
        """Say it in words; the text is empty when there was no warning.

        >>> str(DriftSummary("steady", 9, 0, None))
        ''
        >>> str(DriftSummary("steady", 99, 1, DriftWarning("higher", 52, 40)))
        'the drift watch warned once, about parts since row 40'
        """
        if self.latest is None:
            return ""
        times = "once" if self.warnings == 1 else f"{self.warnings} times, the last"
        return f"the drift watch warned {times}, about parts since row {self.latest.since}"
