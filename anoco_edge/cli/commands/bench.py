"""`anoco-edge bench`: how fast, and where the time goes."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli import console
from anoco_edge.cli.options import (
    ArenaOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    ProductOption,
    RuntimeOption,
    ScorerOption,
    ThreadsOption,
    example,
)
from anoco_edge.errors import BudgetMissedError, UsageError

if TYPE_CHECKING:
    from anoco_edge.diagnostics.bench.features import FeatureSource
    from anoco_edge.diagnostics.bench.real import RealFeatures
    from anoco_edge.engines import EngineSettings
    from anoco_edge.pipeline.base import Runtime


class Format(str, Enum):
    """How the figures are written."""

    table = "table"
    md = "md"
    json = "json"
    csv = "csv"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("anoco-edge bench hazelnut.anoco --profile --max-p99 100"))(bench)


def bench(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle; default: the only one in this directory.")
    ] = None,
    pictures: Annotated[
        list[str] | None,
        typer.Option(help="Pictures or folders (repeatable); default: the product's references."),
    ] = None,
    product: ProductOption = None,
    engine: EngineOption = "auto",
    device: DeviceOption = "CPU",
    scorer: ScorerOption = "auto",
    runtime: RuntimeOption = "python",
    threads: ThreadsOption = 0,
    arena: ArenaOption = True,
    frames: Annotated[int, typer.Option(min=1, help="Frames to measure.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Frames before that.")] = 5,
    profile: Annotated[
        bool, typer.Option("--profile", help="Split scoring into retrieval and graph.")
    ] = False,
    max_p99: Annotated[
        float | None,
        typer.Option("--max-p99", metavar="MS", help="Exit with 6 if a frame's p99 exceeds this."),
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(metavar="NQxNRxD", help="Measure scorers alone, at these sizes (commas)."),
    ] = None,
    scorers: Annotated[
        str | None, typer.Option(help="With --scoring: which (commas); default: the best here.")
    ] = None,
    rivals: Annotated[
        str | None,
        typer.Option(help="With --scoring: numpy-sgemm, torch-sort, faiss, onnx (commas)."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="With --scoring: clustered, isotropic, crowd, and with BUNDLE and --pictures real "
            "(commas); default: all. References come from the first pictures, queries from others."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="With --scoring: rounds.")] = 7,
    form: Annotated[
        Format, typer.Option("--format", case_sensitive=False, help="How to write the figures.")
    ] = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Measure a frame stage by stage, or with --scoring the scorers beside their rivals."""
    from anoco_edge.diagnostics.bench.features import parse_features
    from anoco_edge.engines import EngineSettings

    if as_json:
        form = Format.json
    if scoring is not None:
        if profile or max_p99 is not None:
            raise UsageError(
                "--scoring measures scorers alone: --profile and --max-p99 do not go with it",
                hint="run bench twice",
            )
        settings = EngineSettings(threads=threads, arena=arena, device=device)
        real = _real_features(bundle, pictures or [], engine, settings)
        _bench_scoring(
            scoring, scorers, rivals, parse_features(features, real), repeat, threads, form
        )
        return
    if rivals is not None or scorers is not None or features is not None:
        raise UsageError(
            "--rivals, --scorers and --features belong to --scoring", hint="add --scoring NQxNRxD"
        )
    if max_p99 is not None and not max_p99 > 0:
        raise UsageError(f"--max-p99 is {max_p99}", hint="give milliseconds, more than 0")
    p99 = _bench_frames(
        bundle,
        pictures or [],
        product,
        engine,
        scorer,
        runtime,
        EngineSettings(threads=threads, arena=arena, device=device),
        frames,
        warmup,
        profile,
        form,
    )
    if max_p99 is not None and p99 > max_p99:
        raise BudgetMissedError(
            f"p99 of a frame is {p99:.1f} ms, over the {max_p99:g} ms allowed",
            hint="a smaller input, a smaller bank or another engine makes it faster",
        )


def _bench_frames(
    path: Path | None,
    inputs: list[str],
    product: str | None,
    engine: str,
    scorer: str,
    runtime: Runtime,
    settings: EngineSettings,
    frames: int,
    warmup: int,
    profile: bool,
    form: Format,
) -> float:
    """Measure and print; gives the p99 of a whole frame."""
    from anoco_edge.bundle import find_bundle
    from anoco_edge.detector import Detector
    from anoco_edge.diagnostics.bench.frames import bench_frames, bench_pictures
    from anoco_edge.diagnostics.bench.profiling import split_scoring
    from anoco_edge.diagnostics.bench.tables import (
        csv_text,
        facts,
        frame_rows,
        markdown,
        rich_table,
    )

    # Random weights compute nothing of use, but they do it in the same time.
    detector = Detector.open(
        path or find_bundle(),
        product,
        engine,
        scorer,
        runtime=runtime,
        settings=settings,
        allow_random=True,
    )
    paths, what = bench_pictures(detector.bundle, detector.product, inputs)
    with console.progress("measuring", frames + warmup) as step:
        result = bench_frames(
            detector,
            paths,
            frames=frames,
            warmup=warmup,
            settings=settings,
            pictures_are=what,
            step=step,
        )
    for text in detector.remarks:
        console.warn(text)
    if profile:
        with console.progress("profiling the scorer") as step:
            parts, how = split_scoring(detector, paths, frames=frames, settings=settings, step=step)
        result = result.with_scoring_split(parts, how)
    rows, memory = frame_rows(result), result.memory
    words = [
        f"{result.in_words()}; {result.throughput:.1f} frames a second",
        f"memory: {memory.loaded_mb:.0f} MB loaded, {memory.peak_mb:.0f} MB at most, "
        f"{memory.growth_mb:.0f} MB more while running",
    ]
    if form is Format.json:
        console.emit_json(result.to_dict())
    elif form is Format.csv:
        _write(csv_text(rows))
    elif form is Format.md:
        lines = [markdown(rows), "", *words, "", *(f"- {f}" for f in facts(result.settings))]
        _write("\n".join(lines) + "\n")
    else:
        console.out.print(rich_table(rows, "milliseconds a frame"))
        _lines([*words, "", *facts(result.settings)])
    return result.stages["total"].p99


def _real_features(
    bundle: Path | None, pictures: list[str], engine: str, settings: EngineSettings
) -> RealFeatures | None:
    from anoco_edge.bundle import Bundle
    from anoco_edge.diagnostics.bench.real import RealFeatures
    from anoco_edge.sources.files import find_pictures

    if bundle is None and not pictures:
        return None
    if bundle is None or not pictures:
        raise UsageError(
            "real features take a bundle and --pictures",
            hint="give both, the pictures for references first, or neither",
        )
    found = find_pictures(pictures, "bench takes pictures and folders of them")
    return RealFeatures(Bundle.open(bundle), [Path(path) for path in found], engine, settings)


def _bench_scoring(
    sizes: str,
    scorers: str | None,
    rivals: str | None,
    features: dict[str, FeatureSource],
    repeat: int,
    threads: int,
    form: Format,
) -> None:
    from anoco_edge.diagnostics.bench.baselines import parse_rivals
    from anoco_edge.diagnostics.bench.scoring import bench_scoring, parse_scorers, parse_sizes
    from anoco_edge.diagnostics.bench.tables import (
        csv_text,
        facts,
        markdown,
        rich_table,
        scoring_rows,
        scoring_tables,
    )

    wanted = parse_sizes(sizes)
    with console.progress("measuring") as step:
        result = bench_scoring(
            wanted,
            scorers=parse_scorers(scorers),
            rivals=parse_rivals(rivals or ""),
            features=features,
            repeat=repeat,
            threads=threads,
            step=step,
        )
    for remark in result.remarks:
        console.warn(remark)
    if form is Format.json:
        console.emit_json(asdict(result))
    elif form is Format.csv:
        _write(csv_text(scoring_rows(result)))
    elif form is Format.md:
        tables = scoring_tables(result).items()
        lines = [f"{title}\n\n{markdown(rows)}\n" for title, rows in tables]
        _write("\n".join([*lines, *(f"- {f}" for f in facts(result.settings))]) + "\n")
    else:
        for title, rows in scoring_tables(result).items():
            console.out.print(rich_table(rows, title))
        _lines(["median of interleaved runs", *facts(result.settings)])


def _write(text: str) -> None:
    console.out.file.write(text)


def _lines(lines: list[str]) -> None:
    for line in lines:
        console.out.print(line, soft_wrap=True, markup=False)
