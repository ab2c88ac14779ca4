"""Prints to two channels: results on stdout, and progress, notes and warnings on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.errors import MarkupError
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from anoco_edge.cli.flags import with_flags
from anoco_edge.text.plain_text import plain_json, plain_text


class PlainConsole(Console):
    """A console on which no text from outside can control the terminal.

    Put names of files and products through `plain()` where they enter a line or a table: it keeps
    them on their line and their brackets visible. Where that was forgotten, this class still
    removes control characters.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments whose texts hold no control characters."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(plain_text, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render markup, or the text as it is where its brackets are not markup."""
        try:
            return super().render_str(text, **options)
        except MarkupError:
            return super().render_str(text, **{**options, "markup": False})


# Without `emoji=False` a file called :key:.png would be shown with a picture of a key.
out = PlainConsole(highlight=False, emoji=False)
err = PlainConsole(stderr=True, highlight=False, emoji=False)


def plain(value: object) -> str:
    """Return text from outside for a line or a table with markup, to be shown as it is.

    >>> plain("[red]a\\nb")
    '\\\\[red]a\\\\nb'
    """
    return escape(plain_text(str(value)))


def emit_json(value: Any) -> None:
    """Print JSON on stdout, for machines."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    out.file.write(plain_json(text) + "\n")


def note(text: str) -> None:
    """Print a remark for the person at the terminal."""
    err.print(plain_text(text), soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print something that the person should act on; parameters it names are shown as options."""
    err.print(f"[yellow]warning:[/yellow] {plain(with_flags(text))}", soft_wrap=True)


def plural(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> plural(1, "reference"), plural(4, "reference")
    ('1 reference', '4 references')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Steps:
    """Advances a progress bar by one step when called, with what is being done."""

    def __init__(self, bar: Progress, title: str, total: int | None) -> None:
        self._bar, self._title = bar, title
        self._task = bar.add_task(plain(title), total=total)
        self._part: TaskID | None = None

    def __call__(self, text: str = "") -> None:
        if text:
            self._bar.update(self._task, description=plain(f"{self._title}: {text}"))
        self._bar.advance(self._task)

    def phase(self, text: str, done: int, total: int) -> None:
        """Show a second bar for the long part of a step. The next such part reuses it."""
        if self._part is None:  # added late, so that its clock starts with this part
            self._part = self._bar.add_task("")
        self._bar.update(self._part, description=plain(text), completed=done, total=total)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Steps]:
    """Show a progress bar on stderr and yield what advances it; silent without a terminal."""
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
