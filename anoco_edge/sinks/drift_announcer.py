"""Announces what the drift watch notices, at the row at which it notices it."""

from __future__ import annotations

from collections.abc import Callable

from anoco_edge.drift import DriftWatch
from anoco_edge.images.frame import Frame
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import Row
from anoco_edge.results.summary import RunSummary


class DriftAnnouncer:
    """Tells a person when the scores of good parts move, and when they are back.

    `warn` gets what the person should act on, `note` what is good to know.
    """

    def __init__(
        self, watch: DriftWatch, note: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self._watch = watch
        self._note = note
        self._warn = warn
        self._state = "steady"

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Announce a change that this row brought."""
        self.announce(row)

    def announce(self, row: Row) -> None:
        """Announce a change that this row brought, for rows that come without their frame."""
        if row.drift is None or row.drift.state == self._state:
            return
        before, self._state = self._state, row.drift.state
        if before == "blind":
            self._note(f"a part is good again (row {row.id})")
        elif self._state == "steady":
            self._note(f"good parts score as in calibration again (row {row.id})")
        else:
            self._warn(str(self._watch.warned))

    def finish(self, summary: RunSummary) -> None:
        """Do nothing, because the summary of the run says how often the watch warned."""
