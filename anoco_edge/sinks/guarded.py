"""Keeps a sink that fails from ending the run."""

from __future__ import annotations

from collections.abc import Callable

from anoco_edge.errors import AnocoError, StorageError
from anoco_edge.images.frame import Frame
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import Row
from anoco_edge.results.sink import Sink
from anoco_edge.results.summary import RunSummary


class GuardedSink:
    """Passes rows on to a sink that a person asked for by name, and survives its errors.

    The first error is reported at once through `report`, and `error` sums all of them up at the
    end. The sink gets the following rows all the same, because what it writes to may come back. A
    StorageError is passed on and ends the run, as a full disk does everywhere.
    """

    def __init__(self, name: str, sink: Sink, report: Callable[[str], None]) -> None:
        self._name = name
        self._sink = sink
        self._report = report
        self._rows = 0
        self._failed = 0
        self._first = ""

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> Row | None:
        """Pass the row on."""
        self._rows += 1
        try:
            return self._sink.write(row, frame, overlay)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - the sink may be another package's
            self._failed += 1
            self._note(error, f"row {row.id}")
            return None

    def finish(self, summary: RunSummary) -> None:
        """Pass the summary on."""
        try:
            self._sink.finish(summary)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001
            self._note(error, "the end of the run")

    @property
    def error(self) -> AnocoError | None:
        """The error that sums up what went wrong; None where nothing did."""
        if not self._first:
            return None
        lost = f"missed {self._failed} of {self._rows} rows" if self._failed else "failed"
        return AnocoError(f"the sink {self._name!r} {lost}, the first error: {self._first}")

    def _note(self, error: Exception, where: str) -> None:
        text = str(error) if isinstance(error, AnocoError) else f"{type(error).__name__}: {error}"
        if not self._first:
            self._first = text
            self._report(f"the sink {self._name!r} failed at {where}: {text}")
