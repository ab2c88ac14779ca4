"""The options of `anoco-edge bench`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anoco_edge.cli.option_groups import RunOptions
from anoco_edge.errors import UsageError

if TYPE_CHECKING:
    from anoco_edge.diagnostics.bench.features import FeatureSource
    from anoco_edge.diagnostics.bench.real import RealFeatures
    from anoco_edge.diagnostics.bench.scoring import Size
    from anoco_edge.engines import EngineSettings

RIVAL = "anomalib"
"""The one rival for whole frames; the others are for scorers."""

ScoringOption = Annotated[
    str | None,
    typer.Option(metavar="NQxNRxD", help="Measure scorers alone, at these sizes (commas)."),
]
ScorersOption = Annotated[
    str | None, typer.Option(help="With --scoring: which (commas); default: the best here.")
]
BaselinesOption = Annotated[
    str | None,
    typer.Option(
        help="With --scoring: numpy-sgemm, torch-sort, faiss, onnx (commas). Without: anomalib, "
        "whose PatchCore then runs the same frames in turn."
    ),
]
LineOption = Annotated[
    bool,
    typer.Option(
        "--line",
        help="Measure a whole station over TCP and Modbus: from the accepted trigger to the output "
        "word, beyond the detector. Without BUNDLE with rendered parts.",
    ),
]
FloodOption = Annotated[
    bool,
    typer.Option(
        "--flood", help="With --line: once more while the page of the station is flooded."
    ),
]
RivalPythonOption = Annotated[
    str | None,
    typer.Option(
        metavar="PYTHON",
        help="With --rivals anomalib: the Python of an environment that has it; default: this one.",
    ),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        help="With --scoring: clustered, isotropic, crowd, and with BUNDLE and --pictures real, "
        "with --wrong-pictures wrong-part (commas); default: all. References come from the first "
        "pictures, queries from others."
    ),
]
WrongPicturesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="With --scoring: pictures or folders of another product (repeatable); --features "
        "wrong-part takes queries from them."
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
    if options["line"]:
        _check_line(options)
        return
    if options["flood"]:
        raise UsageError("--flood belongs to --line", hint="add --line")
    if options["scoring"] is not None:
        if options["profile"] or options["max_p99"] is not None:
            raise UsageError(
                "--scoring measures scorers alone: --profile and --max-p99 do not go with it",
                hint="run bench twice",
            )
        return
    max_p99 = options["max_p99"]
    if options["rivals"] == RIVAL:
        if options["profile"] or max_p99 is not None:
            raise UsageError(
                f"--rivals {RIVAL} measures whole frames: --profile and --max-p99 do not go with "
                "it",
                hint="run bench twice",
            )
        return
    if options["rival_python"] is not None:
        raise UsageError("--rival-python belongs to --rivals anomalib", hint="add that")
    if any(options[name] is not None for name in ("rivals", "scorers", "features")):
        raise UsageError(
            "--rivals, --scorers and --features belong to --scoring", hint="add --scoring NQxNRxD"
        )
    if options["wrong_pictures"]:
        raise UsageError(
            "--wrong-pictures belong to --scoring", hint="add --scoring NQxNRxD and --pictures"
        )
    if max_p99 is not None and not max_p99 > 0:
        raise UsageError(f"--max-p99 is {max_p99}", hint="give milliseconds, more than 0")


def _check_line(options: Mapping[str, Any]) -> None:
    """Refuse what chooses the detector: the line runs it as `serve` does."""
    others: dict[str, object] = {"profile": False, **asdict(RunOptions())}
    others |= dict.fromkeys(("scoring", "rivals", "scorers", "features"))
    given = [name for name, default in others.items() if options[name] != default]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"--line runs a station as serve does: {flag} does not go with it", hint="leave it out"
        )
    if options["pictures"] and (options["bundle"] is None or len(options["pictures"]) > 1):
        raise UsageError(
            "--line takes a bundle and one folder of pictures", hint="give both, or neither"
        )


def read_scoring(options: Mapping[str, Any], settings: EngineSettings) -> ScoringRequest:
    """Read what to measure with --scoring."""
    from anoco_edge.diagnostics.bench.baselines import parse_rivals
    from anoco_edge.diagnostics.bench.features import parse_features
    from anoco_edge.diagnostics.bench.scoring import parse_scorers, parse_sizes

    real = _real_features(options["bundle"], options["pictures"], options["engine"], settings)
    wrong_part = _wrong_part(real, options["wrong_pictures"] or [])
    features = parse_features(options["features"], real, wrong_part)
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


def _wrong_part(real: RealFeatures | None, pictures: Sequence[str]) -> RealFeatures | None:
    """Return features whose queries come from pictures of another product, if there are any."""
    from anoco_edge.sources.files import find_pictures

    if not pictures:
        return None
    if real is None:
        raise UsageError(
            "a wrong part is compared with references of pictures",
            hint="give a bundle and --pictures too",
        )
    found = find_pictures(pictures, "bench takes pictures and folders of them")
    return real.of_wrong_part([Path(path) for path in found])
