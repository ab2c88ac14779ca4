"""anoco-edge tune: good parts choose augmentation and pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, note, progress
from anoco_edge.cli.option_groups import StageOptions
from anoco_edge.cli.options import BundleArgument, DryRunOption, JsonOption, ProductOption
from anoco_edge.cli.requests.calibration import GroupOption, find_parts, read_groups
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.cli.views.tuning import show_tuning, tuning_report
from anoco_edge.teaching import NewPicture, Teacher
from anoco_edge.teaching import tune as tune_product


def tune(
    bundle: BundleArgument,
    pictures: Annotated[
        list[str],
        typer.Argument(
            metavar="GOOD...",
            help="Pictures, folders or globs of good parts that are not references.",
        ),
    ],
    product: ProductOption = None,
    *,
    also: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another bundle to compare, exported with other taps or another size "
            "(repeatable). It is not changed."
        ),
    ] = None,
    group: GroupOption = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Draws other defects, and another half of the parts.")
    ] = 0,
    dry_run: DryRunOption = False,
    stages: StageOptions,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another process that teaches.")
    ] = 600.0,
    json_: JsonOption = False,
) -> None:
    """Choose augmentation and pooling by good parts with defects drawn on them.

    A setting is changed only if another one is better beyond noise. Half of the parts choose; the
    product records them, and `calibrate` leaves them out.

    Drawn defects are not the defects of your line: measure with `eval` where you have pictures of
    real ones.
    """
    paths = find_parts(pictures)
    groups = read_groups(paths, group)
    opened, others = Bundle.open(bundle), [Bundle.open(path) for path in also or ()]
    opened.product(product)  # refuses a product that does not exist before any picture is read
    with progress("tuning") as step:

        def open_teacher(one: Bundle) -> Teacher:
            return Teacher.open(
                one,
                stages.engine,
                stages.scorer,
                settings=stages.settings(),
                wait=wait,
                progress=step,
                on_wait=note,
            )

        outcome = tune_product(
            open_teacher(opened),
            [NewPicture.from_file(path) for path in paths],
            product,
            also=[open_teacher(one) for one in others],
            groups=groups,
            seed=seed,
            commit=not dry_run,
            step=step,
        )
    warn_if_random(opened)
    if json_:
        emit_json(tuning_report(outcome, dry_run=dry_run))
    else:
        show_tuning(outcome, bundle, dry_run=dry_run)
