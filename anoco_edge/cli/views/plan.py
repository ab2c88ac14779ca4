"""A TensorRT plan that was built, as a table or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from anoco_edge.cli.console import note, out, plain
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge.engines.plan_trial import PlanTrial


def plan_report(trial: PlanTrial, bundle: Path) -> dict[str, Any]:
    """Return a plan and the result of its self-test as JSON."""
    record = trial.outcome.record
    return {
        "bundle": str(bundle),
        "engine": record.plan_engine,
        "version": record.fingerprint.version,
        "gpu": record.fingerprint.gpu,
        "targets": list(record.targets),
        "batch": record.max_batch,
        "built": trial.outcome.built,
        "seconds": record.seconds,
        "peak_memory_mb": record.peak_memory_mb,
        "plan": str(record.path),
        "size": record.size,
        "sha256": record.sha256,
        "selftest": asdict(trial.selftest) if trial.selftest else None,
        "not_run": trial.not_run,
    }


def show_plan(trial: PlanTrial, bundle: Path) -> None:
    """Print a plan, what building it took, and what its self-test found."""
    record = trial.outcome.record
    if not trial.outcome.built:
        note("the plan exists already (--force builds it again)")
    table = Table(show_header=False, title=plain(bundle))
    table.add_row("engine", plain(f"{record.plan_engine} {record.fingerprint.version}"))
    table.add_row("for", plain(", ".join(record.targets) or record.fingerprint.gpu))
    table.add_row("batch", f"up to {record.max_batch}")
    table.add_row("time", f"{record.seconds:.1f} s")
    table.add_row("memory", f"{record.peak_memory_mb:.0f} MB at most")
    table.add_row("plan", f"{record.size / 1e6:.1f} MB")
    if trial.selftest:
        cosine = f"worst cosine {trial.selftest.min_cosine:.6f}"
        table.add_row("self-test", f"[green]passed[/green], {cosine}")
    else:
        table.add_row("self-test", f"[yellow]not run[/yellow]: {plain(trial.not_run)}")
    out.print(table)
    out.print(plain_text(str(record.path)), soft_wrap=True, markup=False)
