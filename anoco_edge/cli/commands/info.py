"""anoco-edge info: what is in a bundle."""

from __future__ import annotations

from anoco_edge.bundle import Bundle, Product
from anoco_edge.cli.console import emit_json
from anoco_edge.cli.options import (
    BundleArgument,
    CpuPrecisionOption,
    EngineOption,
    JsonOption,
)
from anoco_edge.cli.views.bundle_info import show_bundle
from anoco_edge.cli.views.expected_engines import expected_engines, show_expected_engines
from anoco_edge.cli.views.products import (
    effective_lambda,
    product_report,
    show_effective_lambda,
    show_products,
)


def info(
    bundle: BundleArgument,
    engine: EngineOption = "auto",
    cpu_precision: CpuPrecisionOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Show backbone, input, parity report and products of a bundle, and what would run here."""
    opened = Bundle.open(bundle)
    products = [opened.product(name) for name in opened.products()]
    expected = expected_engines(opened, products, engine, cpu_precision)
    if json_:
        document = opened.manifest.model_dump(mode="json")
        reports = [_report(opened, product) for product in products]
        emit_json({**document, "products": reports, "runs": expected})
        return
    show_bundle(opened)
    show_products(products)
    for product in products:
        show_effective_lambda(opened, product)
    show_expected_engines(expected)


def _report(bundle: Bundle, product: Product) -> dict[str, object]:
    lam = effective_lambda(bundle, product)
    found = product_report(product)
    return found if lam is None else {**found, "effective_lambda": lam}
