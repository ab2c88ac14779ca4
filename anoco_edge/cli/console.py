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


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Any]:
    """A progress bar on stderr; yields `step(text="")`. Silent when not a terminal."""
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
        task = bar.add_task(_plain(title), total=total)

        def step(text: str = "") -> None:
            if text:
                bar.update(task, description=_plain(f"{title}: {text}"))
            bar.advance(task)

        yield step
