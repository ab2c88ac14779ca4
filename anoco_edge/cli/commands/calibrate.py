"""anoco-edge calibrate: good parts that are not references set the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import Steps, emit_json, note, progress, warn
from anoco_edge.cli.option_groups import StageOptions
from anoco_edge.cli.options import BundleArgument, DryRunOption, JsonOption, ProductOption
from anoco_edge.cli.requests import calibration as ask
from anoco_edge.cli.requests.calibration import (
    check_calibration_package,
    check_report_folder,
    find_parts,
    read_groups,
    refuse_glob,
)
from anoco_edge.cli.views.calibration import (
    CalibrationResult,
    calibration_report,
    show_calibration,
    write_calibration_page,
)
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.scoring.conformal import parts_needed
from anoco_edge.teaching import NewPicture, ProductChange, Teacher
from anoco_edge.teaching.calibration_scores import read_calibration_scores
from anoco_edge.teaching.defects import read_defects, score_defects


def calibrate(
    bundle: BundleArgument,
    pictures: ask.PartsArgument = None,
    product: ProductOption = None,
    *,
    false_reject: ask.FalseRejectOption = 0.01,
    accept_fewer: ask.AcceptFewerOption = False,
    group: ask.GroupOption = None,
    with_defects: ask.WithDefectsOption = None,
    baseline: ask.BaselineOption = None,
    keep: ask.KeepOption = True,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for report.html and scores.png.")
    ] = None,
    dry_run: DryRunOption = False,
    stages: StageOptions,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another process that teaches.")
    ] = 600.0,
    json_: JsonOption = False,
) -> None:
    """Set the threshold so that on average at most a stated share of good parts is rejected.

    The pictures must be of good parts, as the line makes them, and not references.

    `infer --threshold` overrides the result for one run.
    """
    parts_needed(false_reject)  # refuses an impossible rate before minutes of work
    if with_defects or out_ is not None:
        check_calibration_package()
    refuse_glob(pictures or (), with_defects or ())
    paths, bad = find_parts(pictures), find_parts(with_defects)
    groups = read_groups(paths, group)
    opened = Bundle.open(bundle)
    if out_ is not None:
        check_report_folder(out_)
    with progress("calibrating", 2 * (len(paths) + len(bad)) + 1) as step:
        good = _read(paths, step)
        defects = read_defects(bad, opened, product, good, step)
        teacher = Teacher.open(
            opened,
            stages.engine,
            stages.scorer,
            settings=stages.settings(),
            wait=wait,
            progress=step,
            on_wait=note,
            on_choice=note,
        )
        change = teacher.calibrate(
            good,
            product,
            false_reject=false_reject,
            groups=groups,
            accept_fewer=accept_fewer,
            keep=keep,
            sigmas=baseline,
            commit=not dry_run,
        )
        scores = score_defects(teacher, change, defects, warn=warn, step=step)
    result = CalibrationResult(change, scores, _warnings(change, baseline), dry_run)
    for text in result.warnings:
        warn(text)
    warn_if_random(opened)
    if json_:
        emit_json(calibration_report(result))
    else:
        show_calibration(result, bundle)
    if out_ is not None:
        write_calibration_page(result, out_, opened.name)


def _read(paths: Sequence[str], step: Steps) -> list[NewPicture]:
    pictures = []
    for path in paths:
        pictures.append(NewPicture.from_file(path))
        step(pictures[-1].name)
    return pictures


def _warnings(change: ProductChange, baseline: float | None) -> list[str]:
    scores = [p.score for p in read_calibration_scores(change.product)]
    if baseline is not None and not any(scores):
        return ["no good part exceeds the baseline: lower --baseline", *change.notes]
    return list(change.notes)
