"""Chooses the runtime of a detector where the choice is left to `auto`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from anoco_edge.bundle import Bundle, Product
from anoco_edge.engines import ENGINES
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.pipeline.base import RUNTIMES, Runtime

RuntimeName = Literal["auto", "native", "python"]


class RuntimeChoice(NamedTuple):
    """The runtime that a detector takes, and the reason, for people."""

    name: Runtime
    reason: str


def choose_runtime(
    bundle: Bundle,
    asked: str = "auto",
    engine: str = "auto",
    product: str | Product | None = None,
) -> RuntimeChoice:
    """Choose the runtime for a product: with `auto` the native one where it can run the bundle with
    this engine, else Python with the reason why.

    >>> from anoco_edge.bundle import open_builtin
    >>> choose_runtime(open_builtin(), "python")
    RuntimeChoice(name='python', reason='asked for')
    >>> choose_runtime(open_builtin(), engine="onnxruntime").name
    'python'
    """
    if asked == "auto":
        why = why_not_native(bundle, engine, product)
        return RuntimeChoice("python", why) if why else RuntimeChoice("native", "it runs here")
    for name in RUNTIMES:
        if name == asked:
            return RuntimeChoice(name, "asked for")
    raise UsageError(f"unknown runtime {asked!r}", hint=f"use auto, {' or '.join(RUNTIMES)}")


def why_not_native(
    bundle: Bundle, engine: str = "auto", product: str | Product | None = None
) -> str:
    """Say why the native runtime cannot run a product here; empty if nothing is known against it.

    A TensorRT plan that is missing on a Jetson is no reason: see `choose_parts`.
    """
    if bundle.manifest.input.pixels != "uint8":
        return f"{bundle.path.name} takes float32 pixels, and the native runtime gives uint8"
    if isinstance(product, Product):
        current = bundle.product(product.name).generation
        if product.generation != current:
            return (
                f"the native runtime opens generation {current}, the current one, and this is "
                f"generation {product.generation}"
            )
    from anoco_edge.pipeline.native import choose_parts, load_openvino, load_runtime

    try:
        load_runtime()
        chosen = choose_parts(engine, bundle=bundle)["engine"].name
        if ENGINES.get(chosen).native == "openvino":
            load_openvino()
    except AnocoError as error:
        return str(error)
    return ""
