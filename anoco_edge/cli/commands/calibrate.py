"""anoco-edge calibrate: good parts that are no references set the threshold."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.evidence import ConformalEvidence, LeaveOneOutEvidence
from anoco_edge.cli.console import Steps, emit_json, note, out, plain, progress, warn
from anoco_edge.cli.options import (
    BundleArgument,
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    ScorerOption,
    example,
)
from anoco_edge.cli.views.defects import Scored, read_defects, refuse_glob, score_defects
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import (
    BundleError,
    EnvironmentMissingError,
    StorageError,
    UsageError,
)
from anoco_edge.scoring.conformal import Conformal, group_maxima, parts_needed, percent
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.teaching import NewPicture, ProductChange, Teacher
from anoco_edge.text.plain_text import utf8_text

if TYPE_CHECKING:
    from anoco_edge_calibration.thresholds.tradeoff import Tradeoff

SHOWN = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=example(
            "anoco-edge calibrate line.anoco good/ --false-reject 0.01 --out calibration"
        )
    )(calibrate)


def calibrate(
    bundle: BundleArgument,
    pictures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Pictures, folders or globs of good parts that are not references. Without any, "
            "the references are held out in turn, which carries no exact guarantee."
        ),
    ] = None,
    product: ProductOption = None,
    false_reject: Annotated[
        float, typer.Option(help="Share of good parts that may be rejected.")
    ] = 0.01,
    accept_fewer: Annotated[
        bool,
        typer.Option("--accept-fewer", help="Settle for the rate that too few pictures support."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            help="Which pictures show the same part: 'folder', or a pattern whose (group) in the "
            "name says so, as '(.*)_frame'. Without it, pictures that look like one part count "
            "as one."
        ),
    ] = None,
    with_defects: Annotated[
        list[str] | None,
        typer.Option(help="Pictures of defective parts: shows how many would be missed."),
    ] = None,
    baseline: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            help="For parts that always lie in the same place: only energy over what is usual at "
            "that place by so many sigmas counts. Half of the pictures learn what is usual.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep-pictures/--scores-only",
            help="Keep the pictures in the bundle, so that new references can be calibrated anew.",
        ),
    ] = True,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for report.html and scores.png.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another process that teaches.")
    ] = 600.0,
    json_: JsonOption = False,
) -> None:
    """Set the threshold so that on average at most a stated share of good parts is rejected.

    The pictures must be of good parts, as the line makes them, and not references.

    `infer --threshold` overrides the result for one run.
    """
    parts_needed(false_reject)  # an impossible rate should not cost a minute
    if with_defects or out_ is not None:
        _check_installed()
    refuse_glob(pictures or (), with_defects or ())
    paths, bad = _files(pictures), _files(with_defects)
    groups = _groups(paths, group)
    opened = Bundle.open(bundle)
    if out_ is not None:
        _check_folder(out_)
    with progress("calibrating", 2 * (len(paths) + len(bad)) + 1) as step:
        given = _read(paths, step)
        defects = read_defects(bad, opened, product, given, step)
        teacher = Teacher.open(
            bundle,
            engine,
            scorer,
            settings=EngineSettings(device=device),
            wait=wait,
            progress=step,
            on_wait=note,
        )
        change = teacher.calibrate(
            given,
            product,
            false_reject=false_reject,
            groups=groups,
            accept_fewer=accept_fewer,
            keep=keep,
            sigmas=baseline,
            commit=not dry_run,
        )
        wrong = score_defects(teacher, change, defects, step)
    warnings = []
    if baseline is not None and not any(score for _, _, score in scored_parts(change.product)):
        warnings.append("no good part exceeds the baseline: lower --baseline")
    for text in (*warnings, *change.notes):
        warn(text)
    warn_if_random(opened)
    curve = _tradeoff(change.product, wrong)
    if json_:
        emit_json(_report(change, wrong, curve, warnings, dry_run))
    else:
        _show(change, wrong, curve, bundle, dry_run)
    if out_ is not None:
        _write(out_, change.product, wrong, [*warnings, *change.notes], opened.name, dry_run)


def _files(inputs: Sequence[str] | None) -> list[str]:
    if not inputs:
        return []
    from anoco_edge.sources.files import find_pictures

    return find_pictures(inputs, "give pictures of good parts")


def _groups(paths: Sequence[str], group: str | None) -> list[str] | None:
    """The part each picture shows.

    >>> _groups(["a/nut7_frame2.png"], "(.*)_frame"), _groups(["a/1.png"], "folder")
    (['nut7'], ['a'])
    """
    if group is None:
        return None
    if not paths:
        raise UsageError("--group is for pictures", hint="give some, or leave it out")
    if group == "folder":
        return [utf8_text(str(Path(path).parent)) for path in paths]
    try:
        pattern = re.compile(group)
    except re.error as error:
        raise UsageError(
            f"--group {group!r} is no pattern: {error}", hint="write 'folder', or as '(.*)_frame'"
        ) from None
    found = [pattern.search(Path(path).name) for path in paths]
    parts = [match and (match[1] if pattern.groups else match[0]) for match in found]
    strange = [path for path, part in zip(paths, parts, strict=True) if part is None]
    if strange:
        raise UsageError(
            f"--group {group!r} does not fit {len(strange)} of {len(paths)} pictures, "
            f"{strange[0]} for one",
            hint="every picture must belong to a part",
        )
    return [utf8_text(part) for part in parts if part is not None]


def _check_installed() -> None:
    """Charts and the report are made by a part of the package that may be missing."""
    try:
        import anoco_edge_calibration.thresholds.calibration_report  # noqa: F401
    except ImportError:
        what = "anoco_edge_calibration, a part of anoco-edge, is missing"
        raise EnvironmentMissingError(what, hint="reinstall anoco-edge") from None


def _read(paths: Sequence[str], step: Steps) -> list[NewPicture]:
    given = []
    for path in paths:
        given.append(NewPicture.from_file(path))
        step(given[-1].name)
    return given


def scored_parts(product: Product) -> list[Scored]:
    """Name, part and score of every picture that the threshold rests on."""
    evidence = product.threshold.evidence
    if isinstance(evidence, LeaveOneOutEvidence):
        names = [r.name for r in product.references]
        return [(name, name, score) for name, score in zip(names, evidence.scores, strict=True)]
    pictures = product.calibration.pictures if product.calibration is not None else ()
    return [(p.name, p.group, p.score) for p in pictures if p.score is not None]


def _evidence(product: Product) -> ConformalEvidence:
    evidence = product.threshold.evidence
    if not isinstance(evidence, ConformalEvidence):
        raise BundleError(f"product {product.name!r} is not calibrated", hint="calibrate it again")
    return evidence


def _conformal(product: Product) -> Conformal:
    evidence, value = _evidence(product), product.threshold.value
    if value is None:
        raise BundleError(f"product {product.name!r} has no threshold", hint="calibrate it again")
    return Conformal(
        threshold=value,
        false_reject=evidence.false_reject,
        asked=evidence.asked,
        parts=evidence.parts,
        order=evidence.order,
        interval=evidence.interval,
    )


def _tradeoff(product: Product, defects: Sequence[Scored]) -> Tradeoff | None:
    if not defects:
        return None
    from anoco_edge_calibration.thresholds.tradeoff import tradeoff

    good = scored_parts(product)
    parts = group_maxima([score for _, _, score in good], [group for _, group, _ in good])
    return tradeoff(parts, [score for _, _, score in defects], _conformal(product).threshold)


def _check_folder(folder: Path) -> None:
    """A report that cannot be written should not cost a minute either."""
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def _write(
    folder: Path,
    product: Product,
    defects: Sequence[Scored],
    warnings: Sequence[str],
    name: str,
    dry_run: bool,
) -> None:
    from anoco_edge_calibration.thresholds.calibration_report import (
        score_histogram,
        write_calibration_report,
    )

    good, found, evidence = scored_parts(product), _conformal(product), _evidence(product)
    chart = score_histogram(found, good, defects, exact=evidence.exact)
    try:
        with writing(str(folder)):
            write_atomic(folder / "scores.png", chart.png())
        write_calibration_report(
            folder / "report.html",
            title=f"Calibration of {name}",
            product=product.name,
            found=found,
            words=evidence.words,
            exact=evidence.exact,
            pictures=good,
            defects=defects,
            warnings=warnings,
        )
    except StorageError as error:
        done = "nothing was changed" if dry_run else "the threshold is set, only the report is not"
        raise StorageError(error.what, hint=f"{done}: choose another --out") from None
    note(f"report: {folder / 'report.html'}")


def _report(
    change: ProductChange,
    defects: Sequence[Scored],
    curve: Tradeoff | None,
    warnings: Sequence[str],
    dry_run: bool,
) -> dict[str, Any]:
    product = change.product
    return {
        "product": product.name,
        "generation": product.generation,
        "dry_run": dry_run,
        "threshold": product.threshold.model_dump(),
        "threshold_before": change.before.threshold.model_dump() if change.before else None,
        "scores": [
            {"picture": name, "part": part, "score": score}
            for name, part, score in scored_parts(product)
        ],
        "defects": [{"picture": name, "score": score} for name, _, score in defects],
        "tradeoff": asdict(curve) if curve else None,
        "notes": [*warnings, *change.notes],
    }


def _show(
    change: ProductChange,
    defects: Sequence[Scored],
    curve: Tradeoff | None,
    bundle: Path,
    dry_run: bool,
) -> None:
    product, before, threshold = change.product, change.before, change.product.threshold
    was = ""
    if before is not None and before.threshold.value is not None:
        was = f" (was {before.threshold.value:.4g}, {before.threshold.kind})"
    out.print(
        f"product [bold]{plain(product.name)}[/bold]"
        + ("" if dry_run else f", generation {product.generation}")
        + f": threshold [bold]{threshold.value:.4g}[/bold]{was}"
    )
    out.print(plain(_evidence(product).words), soft_wrap=True)
    highest = sorted(scored_parts(product), key=lambda scored: -scored[2])[:SHOWN]
    named = ", ".join(f"{name} {score:.4g}" for name, _, score in highest)
    out.print(
        plain(f"highest scores: {named}; look at them: are these parts good?"), soft_wrap=True
    )
    if product.baseline is not None:
        out.print(
            f"scores are energy over what is usual at its place by {product.baseline.sigmas:g} "
            f"sigmas, learnt from {product.baseline.pictures} more pictures",
            soft_wrap=True,
        )
    if curve is not None:
        missed = [name for name, _, score in defects if score <= curve.threshold]
        which = f": {', '.join(missed[:SHOWN])}" if missed else ""
        which += " ..." if len(missed) > SHOWN else ""
        text = f"{len(missed)} of {curve.defects} defective parts would be missed"
        out.print(plain(f"{text} ({percent(curve.at)}){which}"), soft_wrap=True)
    if dry_run:
        note("nothing was changed")
    else:
        _say_kept(product)
        note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")


def _say_kept(product: Product) -> None:
    """What a later change of the references will do to the threshold."""
    assert product.calibration is not None
    files = [p.file for p in product.calibration.pictures]
    if None in files:
        note("the pictures were not kept: calibrate again after every change of the references")
    elif files:
        size = sum(file.size for file in files if file) / 1e6
        note(
            f"{len(files)} pictures are kept ({size:.1f} MB), to calibrate anew with new references"
        )
