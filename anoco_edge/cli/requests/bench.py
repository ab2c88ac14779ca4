"""The options of `anoco-edge bench`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anoco_edge.errors import UsageError

if TYPE_CHECKING:
    from anoco_edge.diagnostics.bench.features import FeatureSource
    from anoco_edge.diagnostics.bench.real import RealFeatures
    from anoco_edge.diagnostics.bench.scoring import Size
    from anoco_edge.engines import EngineSettings

ScoringOption = Annotated[
    str | None,
    typer.Option(metavar="NQxNRxD", help="Measure scorers alone, at these sizes (commas)."),
]
ScorersOption = Annotated[
    str | None, typer.Option(help="With --scoring: which (commas); default: the best here.")
]
BaselinesOption = Annotated[
    str | None,
    typer.Option(help="With --scoring: numpy-sgemm, torch-sort, faiss, onnx (commas)."),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        help="With --scoring: clustered, isotropic, crowd, and with BUNDLE and --pictures real "
        "(commas); default: all. References come from the first pictures, queries from others."
    ),
]


@dataclass(frozen=True)
class ScoringRequest:
    """Which scorers to measure beside which baselines, at which sizes and on which features."""

    sizes: list[Size]
    scorers: list[str]
    baselines: list[str]
    features: dict[str, FeatureSource]


def check_bench(options: Mapping[str, Any]) -> None:
    """Refuse options that make no sense together."""
    if options["scoring"] is not None:
        if options["profile"] or options["max_p99"] is not None:
            raise UsageError(
                "--scoring measures scorers alone: --profile and --max-p99 do not go with it",
                hint="run bench twice",
            )
        return
    if any(options[name] is not None for name in ("rivals", "scorers", "features")):
        raise UsageError(
            "--rivals, --scorers and --features belong to --scoring", hint="add --scoring NQxNRxD"
        )
    max_p99 = options["max_p99"]
    if max_p99 is not None and not max_p99 > 0:
        raise UsageError(f"--max-p99 is {max_p99}", hint="give milliseconds, more than 0")


def read_scoring(options: Mapping[str, Any], settings: EngineSettings) -> ScoringRequest:
    """Read what to measure with --scoring."""
    from anoco_edge.diagnostics.bench.baselines import parse_rivals
    from anoco_edge.diagnostics.bench.features import parse_features
    from anoco_edge.diagnostics.bench.scoring import parse_scorers, parse_sizes

    real = _real_features(options["bundle"], options["pictures"], options["engine"], settings)
    features = parse_features(options["features"], real)
    return ScoringRequest(
        parse_sizes(options["scoring"]),
        parse_scorers(options["scorers"]),
        parse_rivals(options["rivals"] or ""),
        features,
    )


def _real_features(
    bundle: str | Path | None, pictures: Sequence[str], engine: str, settings: EngineSettings
) -> RealFeatures | None:
    """Return features of real pictures, where a bundle and pictures were given."""
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
