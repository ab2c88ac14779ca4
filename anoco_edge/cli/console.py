"""Two channels: results on stdout, everything else (progress, notes, warnings) on stderr."""

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
    """A console on which no text from outside controls the terminal, wherever it is printed.

    Names belong in `plain()` where they are put into a line or a table: that keeps them in their
    line and their brackets visible. What was forgotten there does no harm here.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments with a style and without control characters of their own."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(plain_text, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)

    def render_str(self, text: str, **options: Any) -> Text:
        """Markup, or the text as it is when its brackets are none."""
        try:
            return super().render_str(text, **options)
        except MarkupError:
            return super().render_str(text, **{**options, "markup": False})


# A file called :key:.png is not to be shown with a picture of a key.
out = PlainConsole(highlight=False, emoji=False)
err = PlainConsole(stderr=True, highlight=False, emoji=False)


def plain(value: object) -> str:
    """Text from outside for a line or a table with markup: shown as it is, on one line.

    >>> plain("[red]a\\nb")
    '\\\\[red]a\\\\nb'
    """
    return escape(plain_text(str(value)))


def emit_json(value: Any) -> None:
    """JSON on stdout, for machines."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    out.file.write(plain_json(text) + "\n")


def note(text: str) -> None:
    """A remark for the person at the terminal."""
    err.print(plain_text(text), soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print something that the person should act on; parameters it names are shown as options."""
    err.print(f"[yellow]warning:[/yellow] {plain(with_flags(text))}", soft_wrap=True)


def plural(number: int, what: str) -> str:
    """A number with its noun.

    >>> plural(1, "reference"), plural(4, "reference")
    ('1 reference', '4 references')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Steps:
    """Moves a progress bar on; called with what is being done."""

    def __init__(self, bar: Progress, title: str, total: int | None) -> None:
        self._bar, self._title = bar, title
        self._task = bar.add_task(plain(title), total=total)
        self._part: TaskID | None = None

    def __call__(self, text: str = "") -> None:
        if text:
            self._bar.update(self._task, description=plain(f"{self._title}: {text}"))
        self._bar.advance(self._task)

    def phase(self, text: str, done: int, total: int) -> None:
        """A bar of its own for the long part of a step; the next part takes it over."""
        if self._part is None:  # not before, so that it shows the time of this part
            self._part = self._bar.add_task("")
        self._bar.update(self._part, description=plain(text), completed=done, total=total)


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
