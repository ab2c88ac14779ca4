"""anoco-edge product list and product set: the settings of products."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, note, progress
from anoco_edge.cli.options import BundleArgument, JsonOption, ProductOption
from anoco_edge.cli.settings import ProductOptions, YesOption
from anoco_edge.cli.views.augmentation_cost import accept_cost
from anoco_edge.cli.views.product_change import report_change
from anoco_edge.cli.views.products import product_report, show_products
from anoco_edge.teaching import Teacher


def list_(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Show the products of a bundle."""
    opened = Bundle.open(bundle)
    products = [opened.product(name) for name in opened.products()]
    if json_:
        emit_json([product_report(product) for product in products])
    else:
        show_products(products)


def set_(
    bundle: BundleArgument,
    product: ProductOption = None,
    *,
    options: ProductOptions,
    threshold: Annotated[
        float | None, typer.Option(help="A threshold of your own; 0 computes it again.")
    ] = None,
    yes: YesOption = False,
    json_: JsonOption = False,
) -> None:
    """Change settings; bank and threshold are computed again if they depend on them."""
    settings = options.settings(threshold)
    opened = Bundle.open(bundle)
    accept_cost(opened, product, settings, yes=yes)
    with progress("rebuilding") as step:
        teacher = Teacher.open(
            opened,
            progress=step,
            thinning=partial(step.phase, "thinning the bank"),
            on_choice=note,
        )
        change = teacher.configure(settings, product)
    report_change(change, bundle, json_=json_)
