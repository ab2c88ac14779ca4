"""Measures on the GPU how the banks of a bundle are multiplied fastest."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.bundle import Bundle
from anoco_edge.scoring.cuda import ProductTimes, measure_products
from anoco_edge.scoring.half_operands import half_operands


@dataclass(frozen=True)
class ProductTrial:
    """What was measured with the bank of one product."""

    product: str
    references: int
    patches: int
    times: ProductTimes


def measure_banks(bundle: Bundle) -> tuple[ProductTrial, ...]:
    """Measure both ways with the bank of each product that has one, and record the faster."""
    found = []
    for name in bundle.products():
        product = bundle.product(name)
        if product.bank is None:
            continue
        bank = bundle.bank(product).references
        half = half_operands(bundle.manifest.backbone.precision)
        half = half and bank.features.dtype == "float16"
        grid = bundle.manifest.input.tiled(product.tiles)
        patches = grid.rows * grid.cols
        times = measure_products(bank, patches, half=half)
        found.append(ProductTrial(name, len(bank.features), patches, times))
    return tuple(found)
