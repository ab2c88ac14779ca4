"""anoco-edge station check: what a station would run, and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.cli.console import emit_json, out
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.doctor import show_findings

ConfigArgument = Annotated[Path, typer.Argument(help="Configuration of a station (station.toml).")]


def check(config: ConfigArgument, json_: JsonOption = False) -> None:
    """Show what a station would run, what is missing and why (exit 3 if something is)."""
    from anoco_edge.line.config.station_config import read_config
    from anoco_edge.line.station_check import check_station

    read = read_config(config)
    report = check_station(read, config.parent)
    if json_:
        findings = [asdict(finding) for finding in report.findings]
        emit_json({"revision": report.revision, "runs": report.runs, "findings": findings})
    else:
        show_findings(report.findings)
        out.print("Everything is there." if report.runs else "Something is missing.")
    if not report.runs:
        raise typer.Exit(3)
