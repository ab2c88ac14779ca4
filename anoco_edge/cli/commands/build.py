"""anoco-edge build: plans outcome of time, so that the first frame never waits for one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anoco_edge.cli.console import emit_json, note, out, plain, progress
from anoco_edge.cli.options import JsonOption, example
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import ParityError, UsageError
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle
    from anoco_edge.plans.build import BuildOutcome
    from anoco_edge.plans.cache import PlanRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("build", epilog=example("anoco-edge build line.anoco"))(build)


def build(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle directory; default: the one that is here.")
    ] = None,
    engine: Annotated[
        Literal["tensorrt", "tensorrt-rtx"] | None,
        typer.Option(help="What to build for; default: what is installed."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="GPUs of other machines, for tensorrt-rtx: sm86,sm89; default: this."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most pictures at once.")] = 1,
    workspace: Annotated[
        int | None, typer.Option(min=1, help="Most GPU memory for scratch, in MB.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if it is there.")] = False,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="Remove plans that no longer run; alone: do only that."),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Build the plan that TensorRT needs on this device, and check what it computes.

    Plans go to the user's cache. With --target a plan for other machines is built, which needs no
    GPU here; it is not run then.
    """
    from anoco_edge.plans.build import clean_cache

    report: dict[str, Any] = {}
    if bundle is not None or not clean:
        report = build_report(bundle, engine, target, batch, workspace, force)
    if clean:
        report["removed"] = [str(path) for path in clean_cache()]
    if json_:
        emit_json(report)
    else:
        _show(report)


def build_report(
    path: Path | None,
    engine: Literal["tensorrt", "tensorrt-rtx"] | None,
    target: str | None,
    batch: int,
    workspace: int | None,
    force: bool,
) -> dict[str, Any]:
    """Build, run the self-test where that is possible, and say what came of it."""
    from anoco_edge.bundle import Bundle, find_bundle
    from anoco_edge.plans.build import build_bundle_plan, default_plan_engine
    from anoco_edge.plans.tensorrt_builder import parse_targets

    targets = parse_targets(target) if target is not None else ()
    bundle = Bundle.open(path or find_bundle())
    plan_engine = engine or default_plan_engine(for_targets=bool(targets))
    if targets and plan_engine == "tensorrt":
        raise UsageError("TensorRT builds for the GPU that it runs on", hint="leave out --target")
    warn_if_random(bundle)
    with progress(f"building {bundle.path.name} for {plan_engine}") as step:
        outcome = build_bundle_plan(
            bundle,
            plan_engine,
            targets=targets,
            batch=batch,
            force=force,
            workspace_mb=workspace,
            progress=step.phase,
        )
    return _report(bundle, outcome) | _try(bundle, outcome)


def _try(bundle: Bundle, outcome: BuildOutcome) -> dict[str, Any]:
    """The self-test, where the plan can run; a plan that fails it does not stay."""
    from anoco_edge.engines import EngineSettings
    from anoco_edge.engines.selftest import check_engine
    from anoco_edge.engines.tensorrt import TensorRtEngine, why_not
    from anoco_edge.plans.cache import remove_plan

    record = outcome.record
    reason = why_not(record.plan_engine) or _made_for_others(record)
    if reason:
        return {"selftest": None, "not_run": reason}
    engine = TensorRtEngine(record.plan_engine, bundle, EngineSettings(), plan=record)
    try:
        return {
            "selftest": asdict(check_engine(bundle, engine, force=outcome.built)),
            "not_run": "",
        }
    except ParityError:
        remove_plan(record)
        note(f"the plan was removed: {record.path}")
        raise
    finally:
        engine.close()


def _made_for_others(record: PlanRecord) -> str:
    from anoco_edge.plans.device import current_device

    here = current_device().capability
    if record.targets and here not in record.targets:
        return f"it is for {', '.join(record.targets)}, and this GPU is {here}"
    return ""


def _report(bundle: Bundle, outcome: BuildOutcome) -> dict[str, Any]:
    record = outcome.record
    return {
        "bundle": str(bundle.path),
        "engine": record.plan_engine,
        "version": record.fingerprint.version,
        "gpu": record.fingerprint.gpu,
        "targets": list(record.targets),
        "batch": record.max_batch,
        "built": outcome.built,
        "seconds": record.seconds,
        "peak_memory_mb": record.peak_memory_mb,
        "plan": str(record.path),
        "size": record.size,
        "sha256": record.sha256,
    }


def _show(report: dict[str, Any]) -> None:
    if "plan" in report:
        show_plan(report)
    for path in report.get("removed", ()):
        note(f"removed {path}")
    if "removed" in report and not report["removed"]:
        note("no stale plans")


def show_plan(report: dict[str, Any]) -> None:
    """The plan and what it took, as a table."""
    from rich.table import Table

    if not report["built"]:
        note("the plan is there already (--force builds it anew)")
    table = Table(show_header=False, title=plain(report["bundle"]))
    table.add_row("engine", plain(f"{report['engine']} {report['version']}"))
    table.add_row("for", plain(", ".join(report["targets"]) or report["gpu"]))
    table.add_row("batch", f"up to {report['batch']}")
    table.add_row("time", f"{report['seconds']:.1f} s")
    table.add_row("memory", f"{report['peak_memory_mb']:.0f} MB at most")
    table.add_row("plan", f"{report['size'] / 1e6:.1f} MB")
    tested = report["selftest"]
    if tested:
        cosine = f"worst cosine {tested['min_cosine']:.6f}"
        table.add_row("self-test", f"[green]passed[/green], {cosine}")
    else:
        table.add_row("self-test", f"[yellow]not run[/yellow]: {plain(report['not_run'])}")
    out.print(table)
    out.print(plain_text(report["plan"]), soft_wrap=True, markup=False)
