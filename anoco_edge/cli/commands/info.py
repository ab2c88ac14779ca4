"""anoco-edge info: what is in a bundle."""

from __future__ import annotations

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json
from anoco_edge.cli.options import BundleArgument, JsonOption
from anoco_edge.cli.views.bundle_info import show_bundle
from anoco_edge.cli.views.products import product_report, show_products


def info(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Show backbone, input, parity report and products of a bundle."""
    opened = Bundle.open(bundle)
    products = [opened.product(name) for name in opened.products()]
    if json_:
        document = opened.manifest.model_dump(mode="json")
        emit_json({**document, "products": [product_report(product) for product in products]})
        return
    show_bundle(opened)
    show_products(products)
