"""The options of `anoco-edge calibrate`, and the pictures that they name."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.text.plain_text import utf8_text

PartsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Pictures, folders or globs of good parts that are not references. Without any, "
        "the references are held out in turn, which carries no exact guarantee."
    ),
]
FalseRejectOption = Annotated[float, typer.Option(help="Share of good parts that may be rejected.")]
AcceptFewerOption = Annotated[
    bool,
    typer.Option("--accept-fewer", help="Settle for the rate that too few pictures support."),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        help="Which pictures show the same part: 'folder', or a pattern whose (group) in the "
        "name says so, as '(.*)_frame'. Without it, pictures that look like one part count "
        "as one."
    ),
]
WithDefectsOption = Annotated[
    list[str] | None,
    typer.Option(help="Pictures of defective parts: shows how many would be missed."),
]
BaselineOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=100,
        help="For parts that always lie in the same place: only energy over what is usual at "
        "that place by so many sigmas counts. Half of the pictures learn what is usual.",
    ),
]
KeepOption = Annotated[
    bool,
    typer.Option(
        "--keep-pictures/--scores-only",
        help="Keep the pictures in the bundle, to calibrate again with new references.",
    ),
]


def find_parts(inputs: Sequence[str] | None) -> list[str]:
    """Return the picture files that the arguments name; none where there are no arguments."""
    if not inputs:
        return []
    from anoco_edge.sources.files import find_pictures

    return find_pictures(inputs, "give pictures of good parts")


def refuse_glob(pictures: Sequence[str], with_defects: Sequence[str]) -> None:
    """Refuse defects beside good parts, as an unquoted glob after --with-defects makes them.

    The option takes only the first file of such a glob; the others would become good parts.
    """
    files = filter(os.path.isfile, with_defects)  # unlike Path.is_file it takes any pattern
    beside = {Path(bad).parent.resolve(): bad for bad in files}
    for good in filter(os.path.isfile, pictures):
        bad = beside.get(Path(good).parent.resolve())
        if bad is not None:
            raise UsageError(
                f"{good} counts as a good part, but lies beside {bad} of --with-defects",
                hint=f"quote the glob, or give the folder: --with-defects {Path(bad).parent}/",
            )


def read_groups(paths: Sequence[str], group: str | None) -> list[str] | None:
    """Return the part that each picture shows, or None where --group was not given.

    >>> read_groups(["a/nut7_frame2.png"], "(.*)_frame"), read_groups(["a/1.png"], "folder")
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
            f"--group {group!r} is not a valid pattern: {error}",
            hint="write 'folder', or as '(.*)_frame'",
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


def check_calibration_package() -> None:
    """Refuse to go on where the package that measures and makes reports is missing."""
    try:
        import anoco_edge_calibration.evaluation
        import anoco_edge_calibration.thresholds.calibration_report  # noqa: F401
    except ImportError:
        what = "anoco_edge_calibration, a part of anoco-edge, is missing"
        raise EnvironmentMissingError(what, hint="reinstall anoco-edge") from None


def check_report_folder(folder: Path) -> None:
    """Make the folder and write to it, so that a report that cannot be written costs no minute."""
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
