"""anoco-edge doctor: what works here, what helps where something does not, what to do next."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli.console import emit_json
from anoco_edge.cli.flags import with_flags
from anoco_edge.cli.options import CpuPrecisionOption, JsonOption
from anoco_edge.cli.views.doctor import show_advice, show_findings
from anoco_edge.errors import EnvironmentMissingError

if TYPE_CHECKING:
    from anoco_edge.diagnostics.findings import Finding


def doctor(
    camera: Annotated[
        bool,
        typer.Option("--camera/--no-camera", help="Open each camera for a moment."),
    ] = True,
    cpu_precision: CpuPrecisionOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Show what is installed and works, and what to do next.

    Exits with 3 when parts cannot be inspected here, or not in the precision that is asked for.
    """
    from anoco_edge.diagnostics.advice import advise
    from anoco_edge.diagnostics.cpu_precisions import require_precision
    from anoco_edge.diagnostics.doctor import examine, usable

    findings = examine(cameras=camera)
    advice = advise(findings)
    if json_:
        emit_json([_row(finding) for finding in (*findings, advice)])
    else:
        show_findings(findings)
    if not usable(findings):
        raise EnvironmentMissingError(
            "no engine or no scorer works here, so parts cannot be inspected", hint=advice.help
        )
    require_precision(findings, cpu_precision)
    if not json_:
        show_advice(advice)


def _row(finding: Finding) -> dict[str, str]:
    texts = {"detail": with_flags(finding.detail), "help": with_flags(finding.help)}
    return {**asdict(finding), **texts}
