"""Builds the plan of a bundle's backbone ahead of time, into the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.plans import cache
from anoco_edge.plans.device import Device, current_device
from anoco_edge.plans.tensorrt_builder import RTX_TARGETS, Progress, backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import PLAN_ENGINES, PlanEngine, is_installed, load_module


@dataclass(frozen=True)
class BuildOutcome:
    """A plan in the cache; `built` is False for one that was there already.

    `fp32_logits` says why its attention computes logits in FP32; it is empty where the plan is as
    the graph was exported.
    """

    record: cache.PlanRecord
    built: bool
    fp32_logits: str = ""


def default_plan_engine(*, for_targets: bool = False) -> PlanEngine:
    """Choose the module that is installed; only TensorRT-RTX can build for other machines."""
    if for_targets:
        return "tensorrt-rtx"
    for plan_engine in PLAN_ENGINES:
        if is_installed(plan_engine):
            return plan_engine
    raise EnvironmentMissingError(
        "neither tensorrt nor tensorrt_rtx is installed, so no plan can be built",
        hint="on a Jetson install JetPack's TensorRT; on a PC: pip install 'anoco-edge[rtx]'",
    )


def build_bundle_plan(
    bundle: Bundle,
    plan_engine: PlanEngine,
    *,
    targets: tuple[str, ...] = (),
    batch: int = 1,
    force: bool = False,
    workspace_mb: int | None = None,
    progress: Progress | None = None,
    fp32_logits: str = "",
) -> BuildOutcome:
    """Build the backbone's plan for these targets, or for this GPU if none are given.

    A plan that is in the cache already is not built again, unless `force` asks for it.
    `fp32_logits` is the reason to build with FP32 logits, from now on; `force` alone forgets it.
    """
    version = str(load_module(plan_engine).__version__)
    if not targets:
        device = _device_to_build_for(plan_engine)
        if plan_engine == "tensorrt-rtx" and device.capability in RTX_TARGETS:
            targets = (device.capability,)
        fingerprint = cache.Fingerprint.of(version, device)
    if targets:
        # Such a plan is bound to generations of GPUs, not to the machine that it is built on.
        fingerprint = cache.Fingerprint.of(version, None)
    graph = bundle.graph_identity()
    profile = backbone_profile(bundle.manifest.input, batch)
    stored = cache.stored_plan(cache.plan_key(graph, plan_engine, fingerprint, targets, profile))
    about = (graph, plan_engine, fingerprint)
    if force and not fp32_logits:
        cache.forget_fp32_logits(*about)
    known = cache.why_fp32_logits(*about)
    if stored is not None and not force:
        cache.read_plan(stored)  # raises for a plan that was changed since
        return BuildOutcome(stored, built=False, fp32_logits=known)
    built = build_plan(
        bundle.graph_file(),
        profile,
        plan_engine=plan_engine,
        targets=targets,
        name=str(bundle.path / "backbone.onnx"),
        workspace_mb=workspace_mb,
        timing_cache=cache.read_timing(plan_engine, fingerprint),
        progress=progress,
        fp32_logits=bool(fp32_logits or known),
    )
    cache.write_timing(plan_engine, fingerprint, built.timing_cache)
    if fp32_logits:
        cache.remember_fp32_logits(*about, why=fp32_logits)
    record = cache.store_plan(
        built, name=bundle.name, graph=graph, fingerprint=fingerprint, profile=profile
    )
    return BuildOutcome(record, built=True, fp32_logits=fp32_logits or known)


def clean_cache() -> list[Path]:
    """Remove plans that neither the installed modules nor this GPU can use; returns the paths."""
    device = _device_if_any()
    here = {
        plan_engine: cache.Fingerprint.of(str(load_module(plan_engine).__version__), device)
        for plan_engine in PLAN_ENGINES
        if is_installed(plan_engine)
    }
    return cache.remove_stale(here)


def _device_to_build_for(plan_engine: PlanEngine) -> Device:
    try:
        return current_device()
    except EnvironmentMissingError as error:
        if plan_engine == "tensorrt":
            raise
        raise EnvironmentMissingError(
            error.what, hint="say with `targets` (sm86,sm89) which GPUs the plan is for"
        ) from None


def _device_if_any() -> Device | None:
    try:
        return current_device()
    except EnvironmentMissingError:
        return None
