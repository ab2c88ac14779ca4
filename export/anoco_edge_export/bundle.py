"""Exports and checks a backbone, and writes it as a bundle, with plans for other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle, create_bundle
from anoco_edge.bundle.schema import Plan
from anoco_edge.errors import UsageError
from anoco_edge.plans.tensorrt_builder import BuiltPlan, Progress, backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import load_module
from anoco_edge.scoring.onnx_scorer import scoring_model
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.staging import Staging, staging
from anoco_edge_export.export import DEFAULTS, ExportedBackbone, check_input_size, export_backbone
from anoco_edge_export.options import ExportOptions
from anoco_edge_export.recipe import load_recipe


@dataclass(frozen=True)
class ExportedBundle:
    """A bundle that was just written, how it was exported, and the plans that were built for it."""

    bundle: Bundle
    exported: ExportedBackbone
    plans: tuple[BuiltPlan, ...]


def export_bundle(
    backbone_id: str,
    target: Path,
    options: ExportOptions = DEFAULTS,
    *,
    targets: Sequence[str] = (),
    batch: int = 1,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    building: Progress | None = None,
    prepare: Callable[[Bundle], object] | None = None,
) -> ExportedBundle:
    """Export a backbone, build plans for the GPUs `targets`, and write the bundle `target`.

    Everything is made in a folder beside `target` that is removed again whatever happens; `prepare`
    is called with the new bundle while it is still there. The bundle appears by one rename or not
    at all. `building` is told the progress of plans, `batch` is the most pictures that they take.
    """
    if target.exists() and not overwrite:  # checked now, before minutes of work
        raise UsageError(
            f"{target} exists already",
            hint="choose another `target`, or pass `overwrite=True`",
        )
    if target.exists() and not (target / "manifest.json").is_file():
        raise UsageError(f"{target} exists and is not a bundle", hint="choose another `target`")
    if targets:
        load_module("tensorrt-rtx")
    recipe = load_recipe(backbone_id)
    taps = recipe.tapped(options.layers, options.tap_norm)
    check_input_size(taps, options.size or recipe.size)
    with _workspace(target) as stage:
        workspace = stage.folder
        exported = export_backbone(
            backbone_id, workspace, options, target=target, progress=progress
        )
        files: dict[str, bytes | Path] = {**exported.files, "scoring.onnx": scoring_model()}
        plans, built = [], []
        for name in targets:
            progress(f"building a plan for {name}")
            one = _plan(exported, workspace, name, batch, building)
            plans.append(_record(one, name, batch))
            files[plans[-1].path] = bytes(one.content)
            built.append(one)
        progress("writing the bundle")
        bundle = create_bundle(
            target,
            backbone=exported.backbone,
            contract=exported.input,
            parity=exported.parity,
            tools=exported.tools,
            files=files,
            plans=plans,
            overwrite=overwrite,
            prepare=prepare,
            stage=stage,
        )
    return ExportedBundle(bundle, exported, tuple(built))


def _plan(
    exported: ExportedBackbone, workspace: Path, target: str, batch: int, building: Progress | None
) -> BuiltPlan:
    return build_plan(
        workspace / "backbone.onnx",
        backbone_profile(exported.input, batch),
        plan_engine="tensorrt-rtx",
        targets=(target,),
        name="the exported graph",
        progress=building,
    )


def _record(built: BuiltPlan, target: str, batch: int) -> Plan:
    return Plan(
        path=f"plans/backbone-{target}.plan",
        engine="tensorrt-rtx",
        version=built.version,
        target=target,
        max_batch=batch,
    )


@contextmanager
def _workspace(target: Path) -> Iterator[Staging]:
    """Make a folder on the same disk as `target`, so that moving a file there costs nothing."""
    with ExitStack() as stack:
        with writing(str(target)):
            stage = stack.enter_context(staging(target))
        yield stage
