"""anoco-edge product: settings of a product."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.commands.info import product_report, show_products
from anoco_edge.cli.console import emit_json, progress
from anoco_edge.cli.options import BundleArgument, JsonOption, ProductOption, example
from anoco_edge.cli.settings import (
    AnySizeOption,
    BankOption,
    FloorOption,
    LambdaOption,
    MaskOption,
    MaxPatchesOption,
    MetricOption,
    MinAreaOption,
    OverlapOption,
    PoolingOption,
    RoiOption,
    TileSizeOption,
    TilesOption,
    TtaOption,
    TtaSeedOption,
    YesOption,
    read_settings,
)
from anoco_edge.cli.views.product_change import tell
from anoco_edge.teaching import Teacher
from anoco_edge.teaching.augmentation_cost import accept_cost

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
    tta: TtaOption = None,
    tta_seed: TtaSeedOption = None,
    tiles: TilesOption = None,
    tile_size: TileSizeOption = None,
    overlap: OverlapOption = None,
    max_patches: MaxPatchesOption = None,
    yes: YesOption = False,
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
        lam=lam,
        tta=tta,
        tta_seed=tta_seed,
        tiles=tiles,
        tile_size=tile_size,
        overlap=overlap,
        max_patches=max_patches,
    )
    accept_cost(bundle, product, settings, 0, yes=yes)
    with progress("rebuilding") as step:
        teacher = Teacher.open(
            bundle, progress=step, thinning=partial(step.phase, "thinning the bank")
        )
        change = teacher.configure(settings, product)
    tell(change, bundle, json_=json_)
