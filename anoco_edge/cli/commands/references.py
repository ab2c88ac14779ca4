"""anoco-edge references: what a product was taught, and how to take it back."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import prune as prune_generations
from anoco_edge.bundle.generations import undo as undo_generation
from anoco_edge.cli.console import counted, emit_json, note, out, plain, progress
from anoco_edge.cli.options import BundleArgument, JsonOption, ProductOption, example
from anoco_edge.cli.views.dry_run import effects_of, named_threshold
from anoco_edge.cli.views.product_change import change_report, tell
from anoco_edge.storage.atomic_files import locked
from anoco_edge.teaching import ProductChange, Teacher
from anoco_edge.text.plain_text import utf8_text

app = typer.Typer(help="List, remove, undo or prune references.", no_args_is_help=True)


@app.command("list", epilog=example("anoco-edge references list line.anoco"))
def list_(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Show the references and the generations of a product."""
    opened = Bundle.open(bundle)
    current = opened.product(product)
    history = opened.generations(current.name)
    if json_:
        emit_json(
            {
                "product": current.name,
                "generation": current.generation,
                "references": [r.model_dump() for r in current.references],
                "generations": [_generation(g, current) for g in history],
            }
        )
        return
    title = f"{plain(current.name)}, generation {current.generation}"
    table = Table("reference", "size", "patches", title=title)
    bank = opened.bank(current) if current.bank else None
    for number, reference in enumerate(current.references):
        patches = int((bank.reference == number).sum()) if bank else 0
        table.add_row(plain(reference.name), f"{reference.width}x{reference.height}", str(patches))
    out.print(table)
    table = Table("generation", "change", "when", "references", "threshold")
    for g in history:
        mark = " (now)" if g.generation == current.generation else ""
        value = f"{g.threshold.kind} {g.threshold.value:.4g}" if g.threshold.value else "none"
        when, change = plain(g.changed), plain(g.change)
        table.add_row(f"{g.generation}{mark}", change, when, str(len(g.references)), value)
    out.print(table)


@app.command(epilog=example("anoco-edge references remove line.anoco scratched.png"))
def remove(
    bundle: BundleArgument,
    names: Annotated[list[str], typer.Argument(help="Names, as `references list` shows them.")],
    product: ProductOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Take references away; bank and threshold follow."""
    with progress("removing", 1) as step:
        teacher = Teacher.open(
            bundle, progress=step, thinning=partial(step.phase, "thinning the bank")
        )
        change = teacher.remove([utf8_text(name) for name in names], product, commit=not dry_run)
        effects = effects_of(teacher, change, None) if dry_run else None
    tell(change, bundle, effects, json_=json_)


@app.command(epilog=example("anoco-edge references undo line.anoco"))
def undo(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Go back to the generation before the current one."""
    opened = Bundle.open(bundle)
    name = opened.product(product).name
    with locked(opened.product_folder(name), 60, note):
        previous = undo_generation(opened, name)
    if json_:
        emit_json(change_report(ProductChange(previous)))
    else:
        out.print(
            f"product [bold]{plain(name)}[/bold] is back at generation {previous.generation}: "
            f"{counted(len(previous.references), 'reference')}, "
            f"threshold {named_threshold(previous)}"
        )


@app.command(epilog=example("anoco-edge references prune line.anoco"))
def prune(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Delete what only older generations need; undo cannot go back to them afterwards."""
    opened = Bundle.open(bundle)
    name = opened.product(product).name
    with locked(opened.product_folder(name), 60, note):
        gone = prune_generations(opened, name)
    if json_:
        emit_json({"product": name, "deleted": [str(p.relative_to(opened.path)) for p in gone]})
    else:
        out.print(f"deleted {len(gone)} files of older generations")


def _generation(product: Product, current: Product) -> dict[str, Any]:
    return {
        "generation": product.generation,
        "parent": product.parent,
        "change": product.change,
        "changed": product.changed,
        "references": len(product.references),
        "current": product.generation == current.generation,
    }
