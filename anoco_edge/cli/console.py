"""Two channels: results on stdout, everything else (progress, notes, warnings) on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def emit_json(value: Any) -> None:
    """JSON on stdout, for machines."""
    out.file.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def note(text: str) -> None:
    """A remark for the person at the terminal."""
    err.print(text, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Something the person should act on."""
    err.print(f"[yellow]warning:[/yellow] {_plain(text)}", soft_wrap=True)


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "reference"), counted(4, "reference")
    ('1 reference', '4 references')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


class Steps:
    """Moves a progress bar on; called with what is being done."""

    def __init__(self, bar: Progress, title: str, total: int | None) -> None:
        self._bar, self._title = bar, title
        self._task = bar.add_task(_plain(title), total=total)
        self._part: TaskID | None = None

    def __call__(self, text: str = "") -> None:
        if text:
            self._bar.update(self._task, description=_plain(f"{self._title}: {text}"))
        self._bar.advance(self._task)

    def phase(self, text: str, done: int, total: int) -> None:
        """A bar of its own for the long part of a step; the next part takes it over."""
        if self._part is None:  # not before, so that it shows the time of this part
            self._part = self._bar.add_task("")
        self._bar.update(self._part, description=_plain(text), completed=done, total=total)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Steps]:
    """A progress bar on stderr; yields what moves it on. Silent when not a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        yield Steps(bar, title, total)
