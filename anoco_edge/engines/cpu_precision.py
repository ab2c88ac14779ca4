"""In which precision a processor computes the backbone: what it has, and what `auto` takes.

BF16 products take half the time where the processor has them, and round features in the third
digit. A threshold holds for the scores that it was computed from, so the precision belongs to the
product: it is recorded when a product is taught, and `auto` follows it. Only a product that is new
is free to take BF16.
"""

from __future__ import annotations

import os
from typing import Literal

from anoco_edge.bundle import Bundle, Product
from anoco_edge.engines.base import EngineSettings, graph_precision
from anoco_edge.engines.registry import ENGINES, EngineSpec
from anoco_edge.errors import BundleError, EnvironmentMissingError, UsageError
from anoco_edge.machine import cpu_flags, cpu_model
from anoco_edge.plugins import Choice

VARIABLE = "ANOCO_EDGE_CPU_PRECISION"
"""The environment variable that, set to `fp32`, keeps `auto` from BF16 for new products."""

BF16_ENGINE = "openvino"
"""The one engine that has BF16 products on a processor."""

# The instruction sets of which one is needed, as the kernel names them, and what people call them.
INSTRUCTIONS = {
    "bf16": (("avx512_bf16", "amx_bf16"), "AVX512-BF16 or AMX"),
    "int8": (("avx512_vnni", "avx_vnni", "amx_int8"), "VNNI or AMX"),
}


class PrecisionChoice(Choice):
    """The precision in which the processor computes the backbone, and why."""


def why_not_here(precision: str) -> str:
    """Say why the processor lacks the products of a precision; empty if it has them.

    >>> why_not_here("fp32")
    ''
    """
    sets, title = INSTRUCTIONS.get(precision, ((), ""))
    if not sets or cpu_flags().intersection(sets):
        return ""
    return f"this processor ({cpu_model()}) has no {title}"


def on_processor(spec: EngineSpec, settings: EngineSettings) -> bool:
    """Whether an engine computes on the processor, and says in which precision."""
    return bool(spec.cpu_precisions) and settings.device.upper() == "CPU"


def check_asked(spec: EngineSpec, bundle: Bundle, settings: EngineSettings) -> None:
    """Refuse a precision that was asked for by its name and that is not there."""
    asked, graph = settings.cpu_precision, bundle.manifest.backbone.precision
    if asked == "auto":
        return
    if not on_processor(spec, settings):
        where = settings.device if spec.cpu_precisions else spec.name
        raise UsageError(
            f"{asked} on the processor was asked for, and {where} computes elsewhere",
            hint="leave `cpu_precision` out, or use an engine on the processor",
        )
    if asked == "int8" and graph != "int8":
        raise BundleError(
            f"INT8 was asked for, and the graph of {bundle.path} is {graph.upper()}: only a graph "
            "that was exported so is computed in INT8",
            hint="export the bundle again in INT8, with pictures of good parts to calibrate it",
        )
    if asked != "int8" and graph == "int8":
        raise BundleError(
            f"{asked.upper()} was asked for, and the graph of {bundle.path} is INT8",
            hint="leave `cpu_precision` out, or export the bundle again in FP32",
        )
    if asked not in spec.cpu_precisions:
        raise UsageError(
            f"{spec.name} has no {asked.upper()} products on a processor",
            hint=f"use `engine='{BF16_ENGINE}'`",
        )
    if missing := why_not_here(asked):
        raise EnvironmentMissingError(missing, hint="use `cpu_precision='auto'`")


def why_not_bf16(engine: str, settings: EngineSettings) -> str:
    """Say why `auto` cannot compute in BF16 with this engine, `auto` or by its name."""
    if engine not in ("auto", BF16_ENGINE):
        return f"{engine} has no BF16 products"
    if settings.device.upper() != "CPU":
        return f"{settings.device} is not the processor"
    if missing := why_not_here("bf16"):
        return missing
    spec = ENGINES.get(BF16_ENGINE)
    if spec.missing_package():
        return f"{BF16_ENGINE}, which alone has BF16 products, is not installed"
    return ""


def kept_from_bf16() -> str:
    """Say that the environment keeps new products in FP32; empty if it does not."""
    value = os.environ.get(VARIABLE, "auto") or "auto"
    if value not in ("auto", "fp32"):
        raise UsageError(f"{VARIABLE} is {value!r}", hint="set it to fp32 or auto, or unset it")
    return f"{VARIABLE} is fp32" if value == "fp32" else ""


def plan_precision(
    engine: str, bundle: Bundle, settings: EngineSettings, product: Product | None
) -> PrecisionChoice:
    """Choose the precision for an engine on the processor, before the self-test has a say.

    `product` is the one that is inspected or changed; None where a new one is taught.
    """
    own = graph_precision(bundle)
    if settings.cpu_precision != "auto":
        return PrecisionChoice(settings.cpu_precision, "asked for")
    if own == "int8":
        slow = why_not_here("int8")
        return PrecisionChoice(own, f"the graph is INT8{f', but slow: {slow}' if slow else ''}")
    if product is not None and product.cpu_precision is None:
        return PrecisionChoice(own, "the product was taught in it")
    if reason := why_not_bf16(engine, settings):
        return PrecisionChoice(own, reason)
    if product is not None:
        return PrecisionChoice("bf16", "the product was taught in it")
    if reason := kept_from_bf16():
        return PrecisionChoice(own, reason)
    return PrecisionChoice("bf16", "the processor has it, and the self-test passes its limits")


def mismatch(product: Product | None, computed: str | None, why: str) -> str:
    """Say that a product is judged in another precision than it was taught in; empty if not.

    `computed` is the precision that runs, None for an engine that computes elsewhere.
    """
    if product is None or product.cpu_precision == taught_in(computed):
        return ""
    taught = "BF16" if product.cpu_precision else "the precision of its graph"
    runs = computed.upper() if computed else "the precision of its graph"
    return (
        f"product {product.name!r} was taught in {taught} and is judged in {runs} ({why}): scores "
        "differ by some percent, and its threshold was not computed from such scores; calibrate it "
        "again on this machine"
    )


def taught_in(precision: str | None) -> Literal["bf16"] | None:
    """Return what a product records that was taught with an engine of this precision.

    >>> taught_in("bf16"), taught_in("fp32"), taught_in(None)
    ('bf16', None, None)
    """
    return "bf16" if precision == "bf16" else None
