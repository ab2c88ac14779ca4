"""What doctor found, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table

from anoco_edge.cli.console import out, plain
from anoco_edge.cli.flags import with_flags

if TYPE_CHECKING:
    from anoco_edge.diagnostics.findings import Finding

_MARKS = {
    "ok": "[green]\N{CHECK MARK}[/green]",
    "missing": "[red]\N{BALLOT X}[/red]",
    "broken": "[red]\N{BALLOT X}[/red]",
    "absent": "[dim]\N{EN DASH}[/dim]",
}
_NAME_WIDTH = 25  # TensorrtExecutionProvider; a longer name goes on in the next line


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the findings group by group, with advice for each that does not work."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=_NAME_WIDTH)
    table.add_column(overflow="fold")
    for group, members in groupby(findings, key=lambda finding: finding.group):
        table.add_row("", f"[bold]{plain(group)}[/bold]", "")
        for finding in members:
            detail = plain(with_flags(finding.detail))
            if finding.help and finding.state != "ok":
                detail += f"\n[cyan]{plain(with_flags(finding.help))}[/cyan]"
            table.add_row(_MARKS[finding.state], plain(finding.name), detail)
    out.print(table)


def show_advice(advice: Finding) -> None:
    """Print that parts can be inspected here and, as the last line, what to do next."""
    out.print("Parts can be inspected on this machine.")
    out.print(
        f"[bold]next[/bold], {plain(advice.detail)}: {plain(with_flags(advice.help))}",
        soft_wrap=True,
    )
