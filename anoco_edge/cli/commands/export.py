"""anoco-edge export: a backbone becomes a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.builtin import export_or_builtin
from anoco_edge.cli.commands.backbones import backbones
from anoco_edge.cli.commands.build import build_plan_for
from anoco_edge.cli.commands.package import (
    SingleFileOption,
    TritonOption,
    check_paths,
    package,
    write_package,
)
from anoco_edge.cli.console import emit_json, note, progress
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.requests import export as ask
from anoco_edge.cli.settings import OverlapOption, TileSizeOption, TilesOption
from anoco_edge.cli.views.export import export_report, show_export
from anoco_edge.cli.views.package import package_report, show_package
from anoco_edge.cli.views.plan import plan_report, show_plan
from anoco_edge.cli.views.product_change import change_report, show_change, warn_of_duplicates
from anoco_edge.errors import AnocoError
from anoco_edge.teaching import ProductChange, Teacher

if TYPE_CHECKING:
    from anoco_edge.engines.plan_trial import PlanTrial
    from anoco_edge_export import ExportedBundle


def export(
    context: typer.Context,
    backbone: ask.BackboneOption = None,
    list_: ask.ListOption = False,
    out_: ask.OutOption = None,
    size: ask.SizeOption = None,
    layer: ask.LayerOption = None,
    layers: ask.LayersOption = None,
    tap_norm: ask.TapNormOption = None,
    weights: ask.WeightsOption = None,
    precision: ask.PrecisionOption = "fp32",
    calib: ask.CalibOption = None,
    islands: ask.IslandsOption = None,
    allow_unfused: ask.AllowUnfusedOption = False,
    engine: ask.PlanEngineOption = "onnxruntime",
    target: ask.TargetOption = None,
    batch: ask.BatchOption = 1,
    fit: ask.FitOption = "stretch",
    input_: ask.InputOption = "uint8",
    prompts: ask.PromptsOption = None,
    refs: ask.RefsOption = None,
    shots: ask.ShotsOption = None,
    seed: ask.SeedOption = 0,
    product: ask.RefsProductOption = None,
    tiles: TilesOption = None,
    tile_size: TileSizeOption = None,
    overlap: OverlapOption = None,
    bundle: ask.PackagedBundleOption = None,
    single_file: SingleFileOption = None,
    triton: TritonOption = None,
    overwrite: ask.OverwriteOption = False,
    json_: JsonOption = False,
) -> None:
    """Trace a backbone to ONNX, check it against torch, and write a bundle.

    With --refs the pictures are enrolled at once. Nothing is written when the exported graph
    does not compute what torch computes (exit 5). Without torch, efficientnet-lite0 with default
    options is the built-in backbone.
    """
    if list_:
        backbones(json_)
        return
    if bundle is not None:
        ask.check_only_packages(context)
        package(bundle, product, single_file, triton, overwrite, json_)
        return
    check_paths(single_file, triton, overwrite)
    request = ask.read_export(context.params)
    preparation = _BundlePreparation(request)
    made = export_or_builtin(request, preparation.run, single_file=single_file, triton=triton)
    if not json_:
        preparation.show(made)
    files = None
    if single_file or triton:
        bundle_made = made if isinstance(made, Bundle) else made.bundle
        files = write_package(bundle_made, product, single_file, triton)
    if json_:
        emit_json({**preparation.report(made), **(package_report(files) if files else {})})
        return
    if files is not None:
        show_package(files)
    next_ = "infer {} PICTURES --out out" if refs else "enroll {} PICTURES_OF_GOOD_PARTS"
    note(f"next: anoco-edge {next_.format(request.path)}")


@dataclass
class _BundlePreparation:
    """Builds a plan in the new bundle and teaches it, before the bundle takes its place.

    What fails leaves nothing written.
    """

    request: ask.ExportRequest
    plan: PlanTrial | None = None
    change: ProductChange | None = None

    def run(self, bundle: Bundle) -> None:
        """Build the plan first, so that it runs when the pictures are enrolled."""
        request = self.request
        if request.engine == "tensorrt":
            self.plan = build_plan_for(bundle, "tensorrt", batch=request.batch)
        if request.pictures:
            self.change = self._enroll(bundle)

    def _enroll(self, bundle: Bundle) -> ProductChange:
        request = self.request
        try:
            with progress("enrolling", len(request.pictures) + 1) as step:
                teacher = Teacher.open(bundle, progress=step, on_choice=note)
                change = teacher.enroll(
                    request.pictures, request.product, request.settings, new_level="auto"
                )
        except AnocoError:
            note(f"{request.path.name} was not written: correct the references and export again")
            raise
        warn_of_duplicates(change)
        return change

    def report(self, made: ExportedBundle | Bundle) -> dict[str, object]:
        """Return the export, the plan and what was taught as JSON."""
        report = export_report(made)
        if self.plan is not None:
            report["plan"] = plan_report(self.plan, self.request.path)
        if self.change is not None:
            report["taught"] = change_report(self.change)
        return report

    def show(self, made: ExportedBundle | Bundle) -> None:
        """Print the same in words."""
        show_export(made)
        if self.plan is not None:
            show_plan(self.plan, self.request.path)
        if self.change is not None:
            show_change(self.change, self.request.path)
