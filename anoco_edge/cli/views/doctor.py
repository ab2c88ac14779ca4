"""What doctor found, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table

from anoco_edge.cli.console import out, plain

if TYPE_CHECKING:
    from anoco_edge.diagnostics.doctor import Finding

_MARKS = {
    "ok": "[green]\N{CHECK MARK}[/green]",
    "missing": "[red]\N{BALLOT X}[/red]",
    "broken": "[red]\N{BALLOT X}[/red]",
    "absent": "[dim]\N{EN DASH}[/dim]",
}


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the findings group by group, each with what helps where something does not work."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, members in groupby(findings, key=lambda finding: finding.group):
        table.add_row("", f"[bold]{plain(group)}[/bold]", "")
        for finding in members:
            detail = plain(finding.detail)
            if finding.help and finding.state != "ok":
                detail += f"\n[cyan]{plain(finding.help)}[/cyan]"
            table.add_row(_MARKS[finding.state], plain(finding.name), detail)
    out.print(table)
