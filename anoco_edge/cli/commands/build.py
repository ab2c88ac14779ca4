"""anoco-edge build: builds plans ahead of time, so that the first frame never waits for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anoco_edge.bundle import Bundle, find_bundle
from anoco_edge.cli.console import emit_json, note, progress
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.plan import plan_report, show_plan
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import UsageError

if TYPE_CHECKING:
    from anoco_edge.engines.plan_trial import PlanTrial

PlanEngine = Literal["tensorrt", "tensorrt-rtx"]


def build(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle directory; default: the one that is here.")
    ] = None,
    engine: Annotated[
        PlanEngine | None,
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
    from anoco_edge.plans.tensorrt_builder import parse_targets

    trial, opened = None, None
    if bundle is not None or not clean:
        targets = parse_targets(target) if target is not None else ()
        opened = Bundle.open(bundle or find_bundle())
        trial = build_plan_for(
            opened, engine, targets=targets, batch=batch, workspace_mb=workspace, force=force
        )
    removed = clean_cache() if clean else None
    if json_:
        report = plan_report(trial, opened.path) if trial and opened else {}
        if removed is not None:
            report["removed"] = [str(path) for path in removed]
        emit_json(report)
        return
    if trial and opened:
        show_plan(trial, opened.path)
    if removed is not None:
        _say_removed(removed)


def build_plan_for(
    bundle: Bundle,
    engine: PlanEngine | None,
    *,
    targets: tuple[str, ...] = (),
    batch: int = 1,
    workspace_mb: int | None = None,
    force: bool = False,
) -> PlanTrial:
    """Build a plan with progress on stderr, and run the self-test where that is possible."""
    from anoco_edge.engines.plan_trial import build_tested_plan
    from anoco_edge.plans.build import default_plan_engine

    plan_engine = engine or default_plan_engine(for_targets=bool(targets))
    if targets and plan_engine == "tensorrt":
        raise UsageError("TensorRT builds for the GPU that it runs on", hint="leave out --target")
    warn_if_random(bundle)
    with progress(f"building {bundle.path.name} for {plan_engine}") as step:
        return build_tested_plan(
            bundle,
            plan_engine,
            targets=targets,
            batch=batch,
            force=force,
            workspace_mb=workspace_mb,
            progress=step.phase,
            tell=note,
        )


def _say_removed(paths: list[Path]) -> None:
    for path in paths:
        note(f"removed {path}")
    if not paths:
        note("no stale plans")
