"""Writes rows as JSON, one object per line, into a file or to a program that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from anoco_edge.errors import UsageError
from anoco_edge.images.frame import Frame
from anoco_edge.results.atomic_lines import WholeLines
from anoco_edge.results.json_text import json_line
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import Row
from anoco_edge.results.sink import RunInfo
from anoco_edge.results.storage_errors import writing_results
from anoco_edge.results.summary import RunSummary
from anoco_edge.storage.regular_file import NotRegularFileError, open_regular


class JsonLinesStream:
    """Writes rows to an open stream as they come; the summary of the run is the last line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Write the row, and flush it so that the reader gets it at once."""
        self._send(json_line(row.to_json()))

    def finish(self, summary: RunSummary) -> None:
        """Write the summary; the stream stays open."""
        self._send(json_line(summary.to_json()))

    def _send(self, line: str) -> None:
        self._stream.write(line)
        self._stream.flush()


class JsonLinesFile:
    """Appends rows to a file, which can be read like a results.jsonl.

    A last line that a killed run left unfinished is removed first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing_results(path):
            self._lines = WholeLines(path, _whole_bytes(path))

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Append the row; afterwards it is in the file."""
        with writing_results(self._path):
            self._lines.write(json_line(row.to_json()))

    def finish(self, summary: RunSummary) -> None:
        """Close the file."""
        with writing_results(self._path):
            self._lines.close()


def open_sink(target: str, run: RunInfo) -> JsonLinesFile:
    """Open the file that a person named as a sink."""
    if not target:
        raise UsageError("the sink 'json-lines' needs a file", hint="write json-lines=FILE")
    return JsonLinesFile(Path(target))


def _whole_bytes(path: Path) -> int:
    """Return how many bytes of the file are whole lines; 0 where there is no file."""
    try:
        with open_regular(path) as file:
            return sum(len(line) for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return 0
    except NotRegularFileError:
        raise UsageError(
            f"{path} is not a regular file", hint="name a file that may be written"
        ) from None
