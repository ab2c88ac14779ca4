"""anoco-edge enroll: pictures of good parts become references."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import note, progress
from anoco_edge.cli.options import (
    BundleArgument,
    DeviceOption,
    DryRunOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
)
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
from anoco_edge.cli.views.augmentation_cost import accept_cost
from anoco_edge.cli.views.dry_run import find_effects
from anoco_edge.cli.views.product_change import report_change, warn_of_duplicates
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import UsageError
from anoco_edge.teaching import NewPicture, Teacher

if TYPE_CHECKING:
    pass


def enroll(
    context: typer.Context,
    bundle: BundleArgument,
    pictures: Annotated[
        list[str] | None, typer.Argument(help="Pictures, folders or globs of good parts.")
    ] = None,
    product: ProductOption = None,
    from_results: Annotated[
        Path | None, typer.Option(help="results.jsonl of a run: 'this reject was good'.")
    ] = None,
    id_: Annotated[
        list[int] | None, typer.Option("--id", help="Which pictures of that run, by id.")
    ] = None,
    roi: RoiOption = None,
    mask: MaskOption = None,
    min_area: MinAreaOption = None,
    any_size: AnySizeOption = None,
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
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
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

    Bank and threshold change together or not at all. Pictures that are references already are
    refused. The threshold is provisional until it is calibrated, and a calibrated one is computed
    again.
    """
    if past is not None and not dry_run:
        raise UsageError("--past is for --dry-run", hint="pass that, or leave it out")
    settings = read_settings(context.params)
    paths = _find_pictures(pictures or [], from_results, id_ or [])
    opened = Bundle.open(bundle)
    accept = yes or dry_run
    accept_cost(opened, product, settings, paths, engine=engine, device=device, yes=accept)
    with progress("enrolling", len(paths) * 2 + 1) as step:
        new = []
        for path in paths:
            new.append(NewPicture.from_file(path))
            step(Path(path).name)
        teacher = Teacher.open(
            opened,
            engine,
            scorer,
            settings=EngineSettings(device=device),
            wait=wait,
            progress=step,
            on_wait=note,
            thinning=partial(step.phase, "thinning the bank"),
        )
        change = teacher.enroll(new, product, settings, commit=not dry_run)
        effects = find_effects(teacher, change, past) if dry_run else None
    warn_of_duplicates(change)
    warn_if_random(opened)
    report_change(change, bundle, effects, json_=json_)


def _find_pictures(pictures: list[str], results: Path | None, ids: list[int]) -> list[str]:
    if results is not None:
        if pictures:
            raise UsageError("pictures and --from-results together", hint="give one or the other")
        if not ids:
            raise UsageError("--from-results needs --id", hint="the id column of the report")
        from anoco_edge.results.past_pictures import picture_of

        return [str(picture_of(results, number)) for number in ids]
    if ids:
        raise UsageError("--id needs --from-results", hint="give the run's results.jsonl")
    if not pictures:
        raise UsageError("there are no reference pictures", hint="give pictures of good parts")
    from anoco_edge.sources.files import find_pictures

    return find_pictures(pictures, "teach from it with: anoco-edge infer --teach K")
