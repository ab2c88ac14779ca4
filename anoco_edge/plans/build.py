"""Building a bundle's plan ahead of time, into the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.plans import cache
from anoco_edge.plans.device import Device, current_device
from anoco_edge.plans.tensorrt_builder import RTX_TARGETS, Progress, backbone_profile, build_plan
from anoco_edge.plans.tensorrt_modules import FLAVOURS, Flavour, is_installed, load_module


@dataclass(frozen=True)
class BuildOutcome:
    """A plan in the cache, and whether it was built just now."""

    record: cache.PlanRecord
    built: bool


def default_flavour(*, for_targets: bool = False) -> Flavour:
    """The module that is installed; only one of them can build for other machines."""
    if for_targets:
        return "tensorrt-rtx"
    for flavour in FLAVOURS:
        if is_installed(flavour):
            return flavour
    raise EnvironmentMissingError(
        "neither tensorrt nor tensorrt_rtx is installed, so no plan can be built",
        hint="on a Jetson install JetPack's TensorRT; on a PC: pip install 'anoco-edge[rtx]'",
    )


def build_ahead(
    bundle: Bundle,
    flavour: Flavour,
    *,
    targets: tuple[str, ...] = (),
    batch: int = 1,
    force: bool = False,
    workspace_mb: int | None = None,
    progress: Progress | None = None,
) -> BuildOutcome:
    """Build the backbone's plan unless it is there already; without targets, for this GPU."""
    version = str(load_module(flavour).__version__)
    if not targets:
        device = _device_to_build_for(flavour)
        if flavour == "tensorrt-rtx" and device.capability in RTX_TARGETS:
            targets = (device.capability,)
        fingerprint = cache.Fingerprint.of(version, device)
    if targets:
        # Bound to a generation of GPUs, not to this machine: the same wherever it is built.
        fingerprint = cache.Fingerprint.of(version, None)
    graph = bundle.graph_identity()
    profile = backbone_profile(bundle.manifest.input, batch)
    there = cache.stored_plan(cache.plan_key(graph, flavour, fingerprint, targets, profile))
    if there is not None and not force:
        cache.read_plan(there)  # a changed plan is not there, it is refused
        return BuildOutcome(there, built=False)
    built = build_plan(
        bundle.graph(),
        profile,
        flavour=flavour,
        targets=targets,
        name=str(bundle.path / "backbone.onnx"),
        workspace_mb=workspace_mb,
        timing_cache=cache.read_timing(flavour, fingerprint),
        progress=progress,
    )
    cache.write_timing(flavour, fingerprint, built.timing_cache)
    record = cache.store_plan(
        built, name=bundle.name, graph=graph, fingerprint=fingerprint, profile=profile
    )
    return BuildOutcome(record, built=True)


def clean_cache() -> list[Path]:
    """Remove plans that the installed modules and the GPU at hand can no longer use."""
    device = _device_if_any()
    here = {
        flavour: cache.Fingerprint.of(str(load_module(flavour).__version__), device)
        for flavour in FLAVOURS
        if is_installed(flavour)
    }
    return cache.remove_stale(here)


def _device_to_build_for(flavour: Flavour) -> Device:
    try:
        return current_device()
    except EnvironmentMissingError as error:
        if flavour == "tensorrt":
            raise
        raise EnvironmentMissingError(
            error.what, hint="say with --target (sm86,sm89) which GPUs the plan is for"
        ) from None


def _device_if_any() -> Device | None:
    try:
        return current_device()
    except EnvironmentMissingError:
        return None
