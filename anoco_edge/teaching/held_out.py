"""The good parts that calibrate: which are accepted, and what of them is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anoco_edge.bundle import Product
from anoco_edge.bundle.schema import Calibration, CalibrationPicture
from anoco_edge.conformal import parts_needed
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.teaching.pictures import NewPicture, new_ones


def ask_calibration(
    product: Product,
    pictures: Sequence[NewPicture],
    groups: Sequence[str] | None,
    keep: bool,
    *,
    false_reject: float,
    accept_fewer: bool,
    sigmas: float | None,
) -> Calibration:
    """What is to be calibrated from; pictures that are references are refused, and copies too."""
    parts_needed(false_reject)  # refuses what is no rate
    if sigmas is not None and not 0 <= sigmas < math.inf:
        raise UsageError(f"a baseline of {sigmas} sigmas", hint="give a number such as 3")
    if sigmas is not None and not pictures:
        raise UsageError("a baseline needs pictures", hint="give other good parts")
    source = "pictures" if pictures else "references"
    if groups is not None and len(groups) != len(pictures):
        raise UsageError(f"{len(groups)} groups for {len(pictures)} pictures")
    fresh, copies = new_ones(pictures, ())  # each with a name of its own
    known = {r.pixels: r.name for r in product.references}
    references = [f"{p.name} (same as {known[p.pixels]})" for p in pictures if p.pixels in known]
    if references:
        raise PictureError(
            f"{len(references)} of {len(pictures)} calibration pictures are references: "
            + _few(references),
            hint="calibrate with other good parts: a part that is known scores too low",
        )
    if copies:
        raise PictureError(
            f"{len(copies)} of {len(pictures)} calibration pictures are copies: {_few(copies)}",
            hint="give every picture once: a copy is not one more good part",
        )
    return Calibration(
        false_reject=false_reject,
        accept_fewer=accept_fewer,
        sigmas=sigmas,
        source=source,
        pictures=tuple(
            _picture(p, p.name if groups is None else groups[k], keep) for k, p in enumerate(fresh)
        ),
    )


def kept_files(calibration: Calibration | None, pictures: Sequence[NewPicture]) -> dict[str, bytes]:
    """The pictures that go into the bundle, by their place below the product."""
    data = {p.pixels: p.data for p in pictures}
    listed = calibration.pictures if calibration else ()
    return {p.file.path: data[p.pixels] for p in listed if p.file is not None}


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")


def _picture(picture: NewPicture, group: str, keep: bool) -> CalibrationPicture:
    return CalibrationPicture(
        name=picture.name,
        group=group,
        pixels=picture.pixels,
        width=picture.width,
        height=picture.height,
        file=picture.file("calibration") if keep else None,
    )
