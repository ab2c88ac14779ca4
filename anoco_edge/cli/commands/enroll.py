"""anoco-edge enroll: pictures of good parts become references."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle, open_builtin
from anoco_edge.bundle.builtin import can_create
from anoco_edge.cli.builtin import change_new_bundle, describe_builtin
from anoco_edge.cli.console import note, progress
from anoco_edge.cli.option_groups import StageOptions
from anoco_edge.cli.options import BundleArgument, DryRunOption, JsonOption, ProductOption
from anoco_edge.cli.requests.enrollment import find_references
from anoco_edge.cli.settings import ProductOptions, YesOption
from anoco_edge.cli.views.augmentation_cost import accept_cost
from anoco_edge.cli.views.dry_run import find_effects
from anoco_edge.cli.views.product_change import report_change, warn_of_duplicates
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import UsageError
from anoco_edge.teaching import Effect, NewPicture, ProductChange, Teacher


def enroll(
    bundle: BundleArgument,
    pictures: Annotated[
        list[str] | None, typer.Argument(help="Pictures, folders or globs of good parts.")
    ] = None,
    product: ProductOption = None,
    *,
    from_results: Annotated[
        Path | None, typer.Option(help="results.jsonl of a run: 'this reject was good'.")
    ] = None,
    id_: Annotated[
        list[int] | None, typer.Option("--id", help="Which pictures of that run, by id.")
    ] = None,
    options: ProductOptions,
    yes: YesOption = False,
    stages: StageOptions,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another process that enrols.")
    ] = 600.0,
    dry_run: DryRunOption = False,
    past: Annotated[
        Path | None,
        typer.Option(help="With --dry-run: results.jsonl of a run, whose verdicts might flip."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Teach a product with pictures of good parts.

    A bundle that does not exist is made from the built-in backbone; `export` makes others.
    Bank and threshold change together or not at all. Pictures that are references already are
    refused. The threshold is provisional until it is calibrated, and a calibrated one is computed
    again.
    """
    if past is not None and not dry_run:
        raise UsageError("--past is for --dry-run", hint="pass that, or leave it out")
    settings = options.settings()
    paths = find_references(pictures or [], from_results, id_ or [])
    new = can_create(bundle)
    opened = open_builtin() if new else Bundle.open(bundle)
    accept = yes or dry_run
    accept_cost(
        opened, product, settings, paths, engine=stages.engine, device=stages.device, yes=accept
    )
    with progress("enrolling", len(paths) * 2 + 1) as step:
        good = []
        for path in paths:
            good.append(NewPicture.from_file(path))
            step(Path(path).name)

        def teach(target: Bundle) -> tuple[ProductChange, list[Effect] | None]:
            teacher = Teacher.open(
                target,
                stages.engine,
                stages.scorer,
                settings=stages.settings(),
                wait=wait,
                progress=step,
                on_wait=note,
                thinning=partial(step.phase, "thinning the bank"),
                on_choice=note,
            )
            change = teacher.enroll(good, product, settings, new_level="auto", commit=not dry_run)
            return change, find_effects(teacher, change, past) if dry_run else None

        if new and not dry_run:
            _, (change, effects) = change_new_bundle(bundle, teach)
        else:
            change, effects = teach(opened)
    if new and dry_run:
        note(f"{bundle} would be made from {describe_builtin(opened)}")
    warn_of_duplicates(change)
    warn_if_random(opened)
    report_change(change, bundle, effects, json_=json_)
