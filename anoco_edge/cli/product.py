"""anoco-edge product: settings of a product."""

from __future__ import annotations

from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, progress
from anoco_edge.cli.enroll import show_taught, taught_report
from anoco_edge.cli.info import product_report, show_products
from anoco_edge.cli.options import BundleArgument, JsonOption, ProductOption, example
from anoco_edge.cli.settings import (
    AnySizeOption,
    BankOption,
    FloorOption,
    LambdaOption,
    MaskOption,
    MetricOption,
    MinAreaOption,
    PoolingOption,
    RoiOption,
    read_settings,
)
from anoco_edge.teaching import Teacher

app = typer.Typer(help="Show or change the settings of a product.", no_args_is_help=True)


@app.command("list", epilog=example("anoco-edge product list line.anoco"))
def list_(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Show the products of a bundle."""
    opened = Bundle.open(bundle)
    products = [opened.product(name) for name in opened.products()]
    if json_:
        emit_json([product_report(product) for product in products])
    else:
        show_products(products)


@app.command("set", epilog=example("anoco-edge product set line.anoco --roi 40,40,560,400"))
def set_(
    bundle: BundleArgument,
    product: ProductOption = None,
    roi: RoiOption = None,
    mask: MaskOption = None,
    min_area: MinAreaOption = None,
    any_size: AnySizeOption = None,
    threshold: Annotated[
        float | None, typer.Option(help="A threshold of your own; 0 computes it anew.")
    ] = None,
    pooling: PoolingOption = None,
    metric: MetricOption = None,
    lam: LambdaOption = None,
    floor: FloorOption = None,
    bank_dtype: BankOption = None,
    json_: JsonOption = False,
) -> None:
    """Change settings; bank and threshold are made anew where they depend on them."""
    settings = read_settings(
        roi=roi,
        mask=mask,
        threshold=threshold,
        min_area=min_area,
        any_size=any_size,
        pooling=pooling,
        metric=metric,
        floor=floor,
        bank_dtype=bank_dtype,
        **{"lambda": lam},
    )
    with progress("rebuilding") as step:
        taught = Teacher.open(bundle, progress=step).configure(settings, product)
    if json_:
        emit_json(taught_report(taught))
    else:
        show_taught(taught, bundle)
