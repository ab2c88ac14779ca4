"""anoco-edge enroll: pictures of good parts become references."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import counted, emit_json, note, out, progress, warn
from anoco_edge.cli.cost import accept_cost
from anoco_edge.cli.options import (
    BundleArgument,
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
    example,
)
from anoco_edge.cli.preview import effects_of, preview_report, show_preview
from anoco_edge.cli.randomness import warn_if_random
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
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import UsageError
from anoco_edge.teaching import NewPicture, Taught, Teacher


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("anoco-edge enroll line.anoco good/*.png --roi 40,40,560,400"))(
        enroll
    )


def enroll(
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    past: Annotated[
        Path | None,
        typer.Option(help="With --dry-run: results.jsonl of a run, whose verdicts might flip."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Teach a product with pictures of good parts.

    Bank and threshold change together or not at all. Pictures that are references already are
    refused. The threshold is provisional until it is calibrated; a calibrated one is computed anew.
    """
    if past is not None and not dry_run:
        raise UsageError("--past is for --dry-run", hint="pass that, or leave it out")
    settings = read_settings(
        roi=roi,
        mask=mask,
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
    paths = _chosen(pictures or [], from_results, id_ or [])
    accept_cost(
        bundle,
        product,
        settings,
        len(paths),
        first=paths[0],
        engine=engine,
        device=device,
        yes=yes or dry_run,
    )
    with progress("enrolling", len(paths) * 2 + 1) as step:
        new = []
        for path in paths:
            new.append(NewPicture.from_file(path))
            step(Path(path).name)
        teacher = Teacher.open(
            bundle,
            engine,
            scorer,
            settings=EngineSettings(device=device),
            wait=wait,
            progress=step,
            on_wait=note,
            thinning=partial(step.phase, "thinning the bank"),
        )
        taught = teacher.enroll(new, product, settings, commit=not dry_run)
        effects = effects_of(teacher, taught, past) if dry_run else []
    for name in taught.duplicates:
        warn(f"refused a picture that is there already: {name}")
    warn_if_random(Bundle.open(bundle))
    if dry_run:
        emit_json(preview_report(taught, effects)) if json_ else show_preview(taught, effects)
    elif json_:
        emit_json(taught_report(taught))
    else:
        show_taught(taught, bundle)


def taught_report(taught: Taught) -> dict[str, Any]:
    """A change as JSON."""
    product = taught.product
    return {
        "product": product.name,
        "generation": product.generation,
        "added": list(taught.added),
        "duplicates": list(taught.duplicates),
        "references": [r.name for r in product.references],
        "dropped_patches": product.dropped_patches,
        "threshold": product.threshold.model_dump(),
        "notes": list(taught.notes),
    }


def show_taught(taught: Taught, bundle: Path) -> None:
    """A change in words."""
    product, threshold = taught.product, taught.product.threshold
    out.print(
        f"product [bold]{product.name}[/bold], generation {product.generation}: "
        f"{counted(len(product.references), 'reference')}"
        + (f" ({len(taught.added)} new)" if taught.added else "")
    )
    for text in taught.notes:
        warn(text)
    if threshold.value is not None:
        out.print(f"{threshold.kind} threshold {threshold.value:.4g}")
    elif not taught.notes:
        warn("there is no threshold: verdicts will be 'uncalibrated'")
    if (coreset := product.coreset) is not None and taught.added:
        kept = min(coreset.max_patches, coreset.considered - coreset.duplicates)
        out.print(f"{kept:,} of {coreset.considered:,} patches kept, {coreset.duplicates} copies")
    if product.dropped_patches:
        warn(f"{product.dropped_patches} patches without any signal were left out")
    note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")


def _chosen(pictures: list[str], results: Path | None, ids: list[int]) -> list[str]:
    if results is not None:
        if pictures:
            raise UsageError("pictures and --from-results together", hint="give one or the other")
        if not ids:
            raise UsageError("--from-results needs --id", hint="the id column of the report")
        return [_picture_of(results, number) for number in ids]
    if ids:
        raise UsageError("--id needs --from-results", hint="give the run's results.jsonl")
    if not pictures:
        raise UsageError("there are no reference pictures", hint="give pictures of good parts")
    from anoco_edge.sources.files import find_pictures

    return find_pictures(pictures, "teach from it with: anoco-edge infer --teach K")


def _picture_of(results: Path, number: int) -> str:
    from anoco_edge.results.folder import read_results

    if not results.is_file():
        raise UsageError(f"there is no {results}", hint="it lies in the --out folder of infer")
    for row in read_results(results):
        if row["id"] == number:
            if row.get("error"):
                raise UsageError(
                    f"id {number} could not be inspected: {row['error']}",
                    hint="enrol pictures that can",
                )
            if "picture" not in row:
                raise UsageError(
                    f"the frame of id {number} was not kept",
                    hint="run infer with --save all, or enrol the picture itself",
                )
            path = results.parent / row["picture"]  # an absolute path stays what it is
            if not path.is_file():
                raise UsageError(
                    f"{path}, the picture of id {number}, is no longer there",
                    hint="newer overlays replaced it (--keep), or it was moved",
                )
            return str(path)
    raise UsageError(f"{results} has no id {number}", hint="ids are its first column")
