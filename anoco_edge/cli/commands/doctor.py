"""`anoco-edge doctor`: what works here, and what helps where something does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli import console
from anoco_edge.cli.options import JsonOption, example
from anoco_edge.errors import EnvironmentMissingError

if TYPE_CHECKING:
    from rich.table import Table

    from anoco_edge.diagnostics.doctor import Finding

_MARKS = {
    "ok": "[green]\N{CHECK MARK}[/green]",
    "missing": "[red]\N{BALLOT X}[/red]",
    "broken": "[red]\N{BALLOT X}[/red]",
    "absent": "[dim]\N{EN DASH}[/dim]",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("anoco-edge doctor"))(doctor)


def doctor(
    camera: Annotated[
        bool,
        typer.Option("--camera/--no-camera", help="Open each camera for a moment."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Show what is installed and works; exits with 3 when parts cannot be inspected here."""
    from anoco_edge.diagnostics.doctor import examine, usable

    findings = examine(cameras=camera)
    if as_json:
        console.emit_json([asdict(finding) for finding in findings])
    else:
        console.out.print(_table(findings))
    if not usable(findings):
        raise EnvironmentMissingError(
            "no engine or no scorer works here, so parts cannot be inspected",
            hint="pip install 'anoco-edge[cpu]'",
        )
    if not as_json:
        console.out.print("Parts can be inspected on this machine.")


def _table(findings: Sequence[Finding]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, members in groupby(findings, key=lambda finding: finding.group):
        table.add_row("", f"[bold]{console.plain(group)}[/bold]", "")
        for finding in members:
            detail = console.plain(finding.detail)
            if finding.help and finding.state != "ok":
                detail += f"\n[cyan]{console.plain(finding.help)}[/cyan]"
            table.add_row(_MARKS[finding.state], console.plain(finding.name), detail)
    return table
