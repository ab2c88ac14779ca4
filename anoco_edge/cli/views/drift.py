"""What the drift watch says while a run goes on, and of the run as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anoco_edge.cli.console import note, warn
from anoco_edge.drift import DriftWatch


def announcer(watch: DriftWatch | None) -> Callable[[dict[str, Any]], None]:
    """Called with every row; speaks when the scores move, and when they are back."""
    state = "steady"

    def announce(row: dict[str, Any]) -> None:
        nonlocal state
        if watch is None or row["drift"]["state"] == state:
            return
        before, state = state, row["drift"]["state"]
        if before == "blind":
            note(f"a part is good again (row {row['id']})")
        elif state == "steady":
            note(f"good parts score as in calibration again (row {row['id']})")
        else:
            warn(str(watch.warned))

    return announce


def in_words(drift: dict[str, Any] | None) -> str:
    """The run as a whole; nothing where all was well.

    >>> in_words({"state": "steady", "watched": 9, "warnings": 0, "latest": None})
    ''
    >>> in_words({"state": "steady", "watched": 99, "warnings": 1, "latest": {"since": 40}})
    'the drift watch warned once, about parts since row 40'
    """
    if drift is None or not drift["warnings"]:
        return ""
    times = "once" if drift["warnings"] == 1 else f"{drift['warnings']} times, the last"
    return f"the drift watch warned {times}, about parts since row {drift['latest']['since']}"
