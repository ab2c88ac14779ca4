"""anoco-edge doctor: what works here, and what helps where something does not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anoco_edge.cli.console import emit_json, out
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.doctor import show_findings
from anoco_edge.errors import EnvironmentMissingError


def doctor(
    camera: Annotated[
        bool,
        typer.Option("--camera/--no-camera", help="Open each camera for a moment."),
    ] = True,
    json_: JsonOption = False,
) -> None:
    """Show what is installed and works; exits with 3 when parts cannot be inspected here."""
    from anoco_edge.diagnostics.doctor import examine, usable

    findings = examine(cameras=camera)
    if json_:
        emit_json([asdict(finding) for finding in findings])
    else:
        show_findings(findings)
    if not usable(findings):
        raise EnvironmentMissingError(
            "no engine or no scorer works here, so parts cannot be inspected",
            hint="pip install 'anoco-edge[cpu]'",
        )
    if not json_:
        out.print("Parts can be inspected on this machine.")
