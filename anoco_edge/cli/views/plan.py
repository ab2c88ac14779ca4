"""A TensorRT plan that was built, as a table or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from anoco_edge.cli.console import note, out, plain
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge.engines.plan_trial import PlanTrial
    from anoco_edge.engines.product_trial import ProductTrial


def plan_report(trial: PlanTrial, bundle: Path) -> dict[str, object]:
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
        "fp32_logits": trial.outcome.fp32_logits,
        "scoring_not_run": trial.scoring_not_run,
        "products": [asdict(measured) for measured in trial.products],
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
    if trial.outcome.fp32_logits:
        table.add_row("attention", plain(f"FP32 logits: {trial.outcome.fp32_logits}"))
    if trial.selftest:
        cosine = f"worst cosine {trial.selftest.min_cosine:.6f}"
        table.add_row("self-test", f"[green]passed[/green], {cosine}")
        if trial.selftest.device_path:
            table.add_row("", plain(f"equal bit for bit: {', '.join(trial.selftest.device_path)}"))
        if trial.scoring_not_run:
            table.add_row(
                "scoring", f"[yellow]not on the GPU[/yellow]: {plain(trial.scoring_not_run)}"
            )
        else:
            table.add_row("scoring", "on the GPU, with the energies of the reference")
        for measured in trial.products:
            table.add_row("", plain(_times(measured)))
    else:
        table.add_row("self-test", f"[yellow]not run[/yellow]: {plain(trial.not_run)}")
    out.print(table)
    out.print(plain_text(str(record.path)), soft_wrap=True, markup=False)


def _times(measured: ProductTrial) -> str:
    times = measured.times
    own = f"{times.own_ms:.2f} ms with our kernels"
    cublas = "no cuBLAS" if times.cublas_ms is None else f"{times.cublas_ms:.2f} ms with cuBLAS"
    return f"{measured.product}, {measured.references} references: {own}, {cublas}"
