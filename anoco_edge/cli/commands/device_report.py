"""anoco-edge device-report: builds, tests, compares and measures on a device at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.cli.console import emit_json, note, out, progress, warn
from anoco_edge.cli.options import (
    EngineOption,
    JsonOption,
    OptionalBundleArgument,
    PicturesOption,
    ProductOption,
    RuntimeOption,
    ScorerOption,
    ThreadsOption,
)
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import UsageError


def device_report(
    bundle: OptionalBundleArgument = None,
    product: ProductOption = None,
    engine: EngineOption = "auto",
    scorer: ScorerOption = "auto",
    runtime: RuntimeOption = "python",
    pictures: PicturesOption = None,
    frames: Annotated[int, typer.Option(min=1, help="Frames to measure.")] = 200,
    batch: Annotated[int, typer.Option(min=1, help="Most pictures at once, for the plan.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Build the plan again.")] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Also inspect under compute-sanitizer: minutes.")
    ] = False,
    threads: ThreadsOption = 0,
    out_: Annotated[Path, typer.Option("--out", "-o", help="Folder for the two files.")] = Path(
        "device-report"
    ),
    rows: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only print the table of the reports in this folder."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Build, test, compare and measure on this device; write a report to send in.

    It builds the plan if it is missing, runs the self-test, holds scoring against the reference
    and measures a frame by stages, with power mode, clocks, memory and temperatures. Then come the
    hard cases: the wrong part, no part, and two cameras while products change. Without a GPU
    --engine onnxruntime measures the processor, and the report says what it did not measure.
    """
    from anoco_edge.bundle import Bundle, find_bundle
    from anoco_edge.diagnostics.device_report import (
        ReportRequest,
        measure_device,
        write_device_report,
    )
    from anoco_edge.engines import EngineSettings

    if rows is not None:
        _print_rows(rows)
        return
    opened = Bundle.open(bundle or find_bundle())
    warn_if_random(opened)
    request = ReportRequest(
        bundle=opened,
        product=product,
        engine=engine,
        scorer=scorer,
        runtime=runtime,
        frames=frames,
        pictures=tuple(pictures or ()),
        batch=batch,
        force=force,
        sanitize=sanitize,
        settings=EngineSettings(threads=threads),
    )
    with progress("measuring") as step:
        report, problems = measure_device(request, step)
    data, page = write_device_report(report, out_)
    for text in report.not_measured:
        warn(f"not measured: {text}")
    if json_:
        emit_json(report.model_dump(mode="json"))
    else:
        out.print(page.read_text(), soft_wrap=True, markup=False)
    note(f"please send in: {data} and {page}")
    if problems:
        raise problems[0]


def _print_rows(folder: Path) -> None:
    from anoco_edge.diagnostics.device_report import device_table, read_device_report

    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="give the one that holds the reports")
    reports = [read_device_report(path) for path in sorted(folder.glob("*.json"))]
    out.print(device_table(reports), soft_wrap=True, markup=False)
