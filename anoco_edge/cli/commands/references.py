"""anoco-edge references list, remove, undo and prune: what a product was taught."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.generations import prune as prune_generations
from anoco_edge.bundle.generations import undo as undo_generation
from anoco_edge.cli.console import emit_json, note, out, plain, plural, progress
from anoco_edge.cli.options import BundleArgument, DryRunOption, JsonOption, ProductOption
from anoco_edge.cli.views.dry_run import find_effects, threshold_with_kind
from anoco_edge.cli.views.product_change import change_report, report_change
from anoco_edge.cli.views.references import references_report, show_references
from anoco_edge.storage.locks import locked
from anoco_edge.teaching import ProductChange, Teacher
from anoco_edge.text.plain_text import utf8_text

LOCK_SECONDS = 60.0


def list_(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Show the references and the generations of a product."""
    opened = Bundle.open(bundle)
    current = opened.product(product)
    history = opened.generations(current.name)
    if json_:
        emit_json(references_report(current, history))
    else:
        show_references(current, opened.bank(current) if current.bank else None, history)


def remove(
    bundle: BundleArgument,
    names: Annotated[list[str], typer.Argument(help="Names, as `references list` shows them.")],
    product: ProductOption = None,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Take references away; bank and threshold follow."""
    with progress("removing", 1) as step:
        teacher = Teacher.open(
            bundle,
            progress=step,
            thinning=partial(step.phase, "thinning the bank"),
            on_choice=note,
        )
        change = teacher.remove([utf8_text(name) for name in names], product, commit=not dry_run)
        effects = find_effects(teacher, change, None) if dry_run else None
    report_change(change, bundle, effects, json_=json_)


def undo(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Go back to the generation before the current one."""
    opened = Bundle.open(bundle)
    name = opened.product(product).name
    with locked(opened.product_folder(name), LOCK_SECONDS, note):
        previous = undo_generation(opened, name)
    if json_:
        emit_json(change_report(ProductChange(previous)))
    else:
        out.print(
            f"product [bold]{plain(name)}[/bold] is back at generation {previous.generation}: "
            f"{plural(len(previous.references), 'reference')}, "
            f"threshold {threshold_with_kind(previous)}"
        )


def prune(bundle: BundleArgument, product: ProductOption = None, json_: JsonOption = False) -> None:
    """Delete what only older generations need; undo cannot go back to them afterwards."""
    opened = Bundle.open(bundle)
    name = opened.product(product).name
    with locked(opened.product_folder(name), LOCK_SECONDS, note):
        deleted = prune_generations(opened, name)
    if json_:
        emit_json({"product": name, "deleted": [str(p.relative_to(opened.path)) for p in deleted]})
    else:
        out.print(f"deleted {len(deleted)} files of older generations")
