"""References and generations of a product, as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from anoco_edge.bundle import Bank, Product
from anoco_edge.cli.console import out, plain
from anoco_edge.cli.views.products import kind_and_threshold


def references_report(product: Product, history: Sequence[Product]) -> dict[str, object]:
    """Return the references of a product and its generations as JSON."""
    return {
        "product": product.name,
        "generation": product.generation,
        "references": [reference.model_dump() for reference in product.references],
        "generations": [
            {
                "generation": generation.generation,
                "parent": generation.parent,
                "change": generation.change,
                "changed": generation.changed,
                "references": len(generation.references),
                "current": generation.generation == product.generation,
            }
            for generation in history
        ],
    }


def show_references(product: Product, bank: Bank | None, history: Sequence[Product]) -> None:
    """Print a table of the references with their patches, and one of the generations."""
    title = f"{plain(product.name)}, generation {product.generation}"
    table = Table("reference", "size", "patches", title=title)
    for number, reference in enumerate(product.references):
        patches = int((bank.reference == number).sum()) if bank else 0
        table.add_row(plain(reference.name), f"{reference.width}x{reference.height}", str(patches))
    out.print(table)
    table = Table("generation", "change", "when", "references", "threshold")
    for generation in history:
        mark = " (now)" if generation.generation == product.generation else ""
        table.add_row(
            f"{generation.generation}{mark}",
            plain(generation.change),
            plain(generation.changed),
            str(len(generation.references)),
            kind_and_threshold(generation),
        )
    out.print(table)
