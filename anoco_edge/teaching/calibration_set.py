"""The good parts that calibrate: which are accepted, and what of them is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anoco_edge.bundle import Product
from anoco_edge.bundle.schema import Calibration, CalibrationPicture
from anoco_edge.conformal import parts_needed
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.teaching.burst_detection import NARROW, PartMatcher, Thumbnail
from anoco_edge.teaching.new_pictures import NewPicture, new_ones


@dataclass(frozen=True)
class Findings:
    """What the pictures of a calibration look like."""

    copies: frozenset[str] = frozenset()
    """Pixel hashes of pictures that look like a reference."""
    parts_found: int | None = None
    doubts: tuple[str, ...] = ()
    """Why the parts may be fewer than they seem: no rate is promised then."""
    notes: tuple[str, ...] = ()

    def evidence(self) -> dict[str, Any]:
        """As a threshold keeps it."""
        kept: dict[str, Any] = {"doubts": list(self.doubts)} if self.doubts else {}
        if self.parts_found is not None:
            kept["parts_found"] = self.parts_found
        return kept

    @staticmethod
    def kept(evidence: Mapping[str, Any]) -> Findings:
        """From the evidence of a threshold that rests on the same pictures."""
        return Findings(
            parts_found=evidence.get("parts_found"), doubts=tuple(evidence.get("doubts", ()))
        )


def ask_calibration(
    product: Product,
    matcher: PartMatcher,
    pictures: Sequence[NewPicture],
    groups: Sequence[str] | None,
    keep: bool,
    *,
    false_reject: float,
    accept_fewer: bool,
    sigmas: float | None,
) -> Calibration:
    """What is to be calibrated from; pictures that are references are refused, and copies too.

    Without `groups`, pictures that look like one part become one group.
    """
    parts_needed(false_reject)  # refuses what is no rate
    if sigmas is not None and not 0 <= sigmas < math.inf:
        raise UsageError(f"a baseline of {sigmas} sigmas", hint="give a number such as 3")
    if sigmas is not None and not pictures:
        raise UsageError("a baseline needs pictures", hint="give other good parts")
    source = "pictures" if pictures else "references"
    if groups is not None and len(groups) != len(pictures):
        raise UsageError(
            f"{len(groups)} groups for {len(pictures)} pictures", hint="give one for each picture"
        )
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
    _refuse_near_copies(product, matcher, fresh)
    if groups is None:
        parts = matcher.parts([p.thumbnail for p in fresh])
        groups = [fresh[first].name for first in parts]
    return Calibration(
        false_reject=false_reject,
        accept_fewer=accept_fewer,
        sigmas=sigmas,
        source=source,
        pictures=tuple(_picture(p, groups[k], keep) for k, p in enumerate(fresh)),
    )


def examine_pictures(
    product: Product,
    matcher: PartMatcher,
    calibration: Calibration,
    thumbnails: Sequence[Thumbnail],
) -> Findings:
    """Whether the groups of a calibration look like as many parts."""
    if calibration.source == "references":
        one = (references_in_doubt(product),) if matcher.references_are_one_part() else ()
        return Findings(doubts=one)
    copies = set(matcher.copies(thumbnails))
    left = [k for k in range(len(thumbnails)) if k not in copies]
    pictures = [calibration.pictures[k] for k in left]
    groups = [p.group for p in pictures]
    parts = matcher.parts([thumbnails[k] for k in left], groups)
    found, stated = len(set(parts)), len(set(groups))
    doubts = []
    if found < stated:
        example = _across_groups(pictures, parts)
        doubts.append(f"they look like {found} ({example[0]} and {example[1]} for example)")
    spread = matcher.spread([thumbnails[left[first]] for first in sorted(set(parts))])
    if spread is not None and spread <= NARROW:
        doubts.append(
            f"they differ from each other by {spread:.0%} of what they differ from the references, "
            "as pictures of few parts do"
        )
    return Findings(
        copies=frozenset(calibration.pictures[k].pixels for k in copies),
        parts_found=found,
        doubts=tuple(doubts),
        notes=_grouping_notes(pictures),
    )


def found_by_likeness(pictures: Sequence[CalibrationPicture]) -> bool:
    """Whether the groups were found, not stated: then each has the name of one of its pictures."""
    names = {p.name for p in pictures}
    groups = {p.group for p in pictures}
    return len(groups) < len(pictures) and groups <= names


def references_in_doubt(product: Product) -> str:
    """What is said of references that look like one part."""
    return f"the {len(product.references)} references look like one part"


def kept_files(calibration: Calibration | None, pictures: Sequence[NewPicture]) -> dict[str, bytes]:
    """The pictures that go into the bundle, by their place below the product."""
    data = {p.pixels: p.data for p in pictures}
    listed = calibration.pictures if calibration else ()
    return {p.file.path: data[p.pixels] for p in listed if p.file is not None}


def _refuse_near_copies(
    product: Product, matcher: PartMatcher, pictures: Sequence[NewPicture]
) -> None:
    copies = matcher.copies([p.thumbnail for p in pictures])
    if not copies:
        return
    named = [f"{pictures[k].name} (like {product.references[r].name})" for k, r in copies.items()]
    raise PictureError(
        f"{len(copies)} of {len(pictures)} calibration pictures look like copies of references: "
        + _few(named),
        hint="calibrate with other good parts: a part that is known scores too low",
    )


def _across_groups(pictures: Sequence[CalibrationPicture], parts: Sequence[int]) -> tuple[str, str]:
    """The names of two pictures of one part that are in different groups."""
    for picture, first in zip(pictures, parts, strict=True):
        if picture.group != pictures[first].group:
            return pictures[first].name, picture.name
    raise AssertionError("every part is one group")


def _grouping_notes(pictures: Sequence[CalibrationPicture]) -> tuple[str, ...]:
    if not found_by_likeness(pictures):
        return ()
    parts = len({p.group for p in pictures})
    second = next(p for p in pictures if p.group != p.name)
    return (
        f"{len(pictures)} pictures look like {parts} part{'s' if parts > 1 else ''} (for example "
        f"{second.group} and {second.name}): pictures of one part count once",
    )


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
