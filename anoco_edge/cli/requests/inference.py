"""The options of `anoco-edge infer`, and what they ask for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anoco_edge.errors import BundleError, UsageError
from anoco_edge.sinks import LIVE_KEEP, OWN_SINKS

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle

NEW_BUNDLE = "line.anoco"
"""The bundle that is made in the current directory where frames teach and none is named."""

InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BUNDLE] [PICTURES...]",
        help="A bundle (default: the one in this directory; --teach makes one where there is "
        "none), then pictures, folders, globs, videos, or the address of a stream.",
    ),
]
CameraOption = Annotated[
    str | None,
    typer.Option(help="Camera number, device, address, or GStreamer pipeline."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Folder for results, overlays and report.html. An earlier run in it moves to "
        "runs/0001 there.",
    ),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=TARGET]",
        help=f"Another place for the rows: {', '.join(one.usage for one in OWN_SINKS)}, or a "
        "sink that another package adds. May be given more than once.",
    ),
]
ThresholdOption = Annotated[
    float | None, typer.Option(help="Use this threshold instead of the product's.")
]
TeachOption = Annotated[
    int, typer.Option(min=0, help="Take the first so many frames as good references.")
]
TeachEveryOption = Annotated[
    float, typer.Option(min=0, max=3600, help="Seconds between them, on a live source.")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Stop after so many pictures.")]
SaveOption = Annotated[
    Literal["anomalous", "all", "none"], typer.Option(help="Which overlays to write.")
]
KeepOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Most overlays kept, of all runs in --out together; the oldest go first, rows "
        f"stay. 0 keeps all. Default: {LIVE_KEEP} for live sources.",
    ),
]
BatchOption = Annotated[int, typer.Option(min=1, help="Pictures per run of the backbone.")]
TimeoutOption = Annotated[
    float,
    typer.Option(max=86_400, help="Seconds without a frame after which a stream is lost."),
]
DriftOption = Annotated[
    bool,
    typer.Option(help="Warn when the scores of good parts move away from calibration's."),
]
FailOnAnomalyOption = Annotated[
    bool, typer.Option(help="Exit 10 when a part is anomalous, 11 when one has no verdict.")
]
AllowRandomOption = Annotated[
    bool, typer.Option(help="Accept a bundle with random weights.", hidden=True)
]


def split_inputs(inputs: list[str], camera: str | None, teach: int) -> tuple[Path, list[str]]:
    """Split the words into the bundle and the pictures; the first is a bundle if it looks so.

    The bundle need not exist where frames teach it.
    """
    from anoco_edge.bundle.store import SUFFIX

    first = Path(inputs[0]) if inputs else None
    if first and (first.name.endswith(SUFFIX) or (first / "manifest.json").is_file()):
        bundle, pictures = first, inputs[1:]
    else:
        bundle, pictures = _bundle_here(camera, teach), inputs
    if not pictures and camera is None:
        raise UsageError("there is nothing to inspect", hint="give pictures, or --camera 0")
    return bundle, pictures


def _bundle_here(camera: str | None, teach: int) -> Path:
    from anoco_edge.bundle.store import find_bundle, find_bundles

    if find_bundles():
        return find_bundle()
    if teach:
        return Path(NEW_BUNDLE)
    make = f"run: anoco-edge enroll {NEW_BUNDLE} GOOD_PICTURES/"
    if camera is not None:
        look = f"anoco-edge infer {_camera_option(camera)} --teach 4"
        make = f"put a good part in view and run: {look}, or {make}"
    raise UsageError("no bundle was named and there is none in this directory", hint=make)


def _camera_option(camera: str) -> str:
    """Return the option as it must be typed, for instance where a pipeline holds spaces.

    >>> _camera_option("0"), _camera_option("v4l2src ! appsink")
    ('--camera 0', "--camera 'v4l2src ! appsink'")
    """
    return f"--camera {shlex.quote(camera)}"


def check_references(bundle: Bundle, product: str | None, camera: str | None) -> None:
    """Refuse a bundle that was never taught, and say how to teach it from the same source."""
    if product is None and not bundle.products():
        source = _camera_option(camera) if camera is not None else "PICTURES"
        run = f"anoco-edge infer {bundle.path} {source} --teach 4"
        raise BundleError(
            f"{bundle.path} has no references yet", hint=f"put a good part in view and run: {run}"
        )


def check_fleet_options(camera: str | None, teach: int, out: Path | None, sinks: list[str]) -> Path:
    """Refuse what many workers cannot do; return the folder of the results."""
    if camera is not None or teach or out is None:
        raise UsageError(
            "--on takes folders of pictures and needs --out",
            hint="watch a camera, and teach from it, on the machine that it is plugged in to",
        )
    if sinks:
        raise UsageError(
            "--sink does not work with --on: workers do not send pictures back",
            hint="leave one of them out",
        )
    return out
