"""Which good pictures choose the settings of a product, and which stay for its calibration.

A threshold that rests on pictures that chose the settings promises too much: of several settings
the one is taken in which just these pictures score low. So half of the parts choose, drawn by a
seed, and the product records them. `calibrate` leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anoco_edge.bundle import Product
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.burst_detection import PartMatcher
from anoco_edge.teaching.calibration_set import CalibrationRequest, refuse_references
from anoco_edge.teaching.new_pictures import NewPicture, separate_duplicates

LEAST_PARTS = 8  # with fewer, hardly any difference between two settings is beyond noise
MOST_PARTS = 32  # more cost time and hardly narrow the noise; they stay for the calibration


@dataclass(frozen=True)
class TuningPictures:
    """Good pictures, divided into those that choose and those that stay for a calibration."""

    scored: tuple[NewPicture, ...]
    """One picture of each part that chooses."""
    choosing: tuple[str, ...]
    """The pixel hashes of all pictures of these parts."""
    left: int
    """How many parts choose nothing."""


def divide_pictures(
    product: Product,
    matcher: PartMatcher,
    pictures: Sequence[NewPicture],
    seed: int,
    groups: Sequence[str] | None = None,
) -> TuningPictures:
    """Draw the half of the parts that chooses.

    Pictures that look like one part stay together, and so do those of one group. Pictures that
    calibrate the product never choose. Parts that chose before choose first, so that the others
    stay for a calibration.
    """
    if groups is not None and len(groups) != len(pictures):
        raise UsageError(
            f"{len(groups)} groups for {len(pictures)} pictures", hint="give one for each picture"
        )
    refuse_references(product, matcher, pictures, "pictures to tune with")
    fresh, _ = separate_duplicates(pictures, ())
    parts: dict[int, list[NewPicture]] = {}
    firsts = matcher.parts([p.thumbnail for p in fresh], groups)
    for picture, first in zip(fresh, firsts, strict=True):
        parts.setdefault(first, []).append(picture)
    calibrating = {p.pixels for p in product.calibration.pictures} if product.calibration else set()
    chose = set(product.tuning.pictures) if product.tuning else set()
    free = [
        sorted(part, key=lambda p: _rank(p, seed))
        for part in parts.values()
        if not any(p.pixels in calibrating for p in part)
    ]
    free.sort(key=lambda part: (not any(p.pixels in chose for p in part), _rank(part[0], seed)))
    count = min(len(parts) // 2, len(free), MOST_PARTS)
    if count < LEAST_PARTS:
        raise _too_few(len(pictures), len(parts), len(parts) - len(free))
    taken = free[:count]
    return TuningPictures(
        scored=tuple(part[0] for part in taken),
        choosing=tuple(sorted(p.pixels for part in taken for p in part)),
        left=len(parts) - count,
    )


def leave_out_choosing(
    product: Product, matcher: PartMatcher, request: CalibrationRequest
) -> tuple[CalibrationRequest, tuple[str, ...]]:
    """Take the parts that chose the settings out of a request to calibrate.

    Returns the request that is left, and a sentence about what was taken out.
    """
    chose = set(product.tuning.pictures) if product.tuning else set()
    pictures = request.pictures
    if not any(p.pixels in chose for p in pictures):
        return request, ()
    # The other pictures of a part resemble the one that chose, so the whole part is left out.
    groups = request.groups or [str(k) for k in matcher.parts([p.thumbnail for p in pictures])]
    tuned = {group for p, group in zip(pictures, groups, strict=True) if p.pixels in chose}
    kept = [k for k, group in enumerate(groups) if group not in tuned]
    if not kept:
        raise PictureError(
            f"all {len(pictures)} calibration pictures chose the settings of product "
            f"{product.name!r}",
            hint="calibrate with other good parts: a threshold from these would promise too much",
        )
    note = (
        f"{len(pictures) - len(kept)} of {len(pictures)} pictures chose the settings (tune) and do "
        "not calibrate: a threshold from them would promise too much"
    )
    left = replace(
        request,
        pictures=[pictures[k] for k in kept],
        groups=None if request.groups is None else [groups[k] for k in kept],
    )
    return left, (note,)


def _rank(picture: NewPicture, seed: int) -> str:
    """The place of a picture in a random order that does not depend on names or the order given."""
    return sha256_bytes(f"{seed} {picture.pixels}".encode())


def _too_few(pictures: int, parts: int, calibrating: int) -> UsageError:
    found = f"{pictures} picture{'s' if pictures != 1 else ''}"
    if parts < pictures:
        found += f" of {parts} part{'s' if parts != 1 else ''}"
    if calibrating:
        found += f", of which {calibrating} calibrate{'s' if calibrating == 1 else ''} the product"
    return UsageError(
        f"{found}: too few to choose settings by",
        hint=f"give pictures of at least {2 * LEAST_PARTS} good parts that are neither references "
        "nor calibrate: half of them choose, the others stay for a calibration",
    )
