"""The good parts that calibrate a product: which are accepted, and what is recorded of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anoco_edge.bundle import Product
from anoco_edge.bundle.evidence import (
    ConformalEvidence,
    HeldOutEvidence,
    ManualEvidence,
    NoEvidence,
    ProvisionalEvidence,
    ThresholdEvidence,
)
from anoco_edge.bundle.schema import Calibration, CalibrationPicture
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.scoring.conformal import parts_needed
from anoco_edge.teaching.burst_detection import NARROW, PartMatcher, Thumbnail
from anoco_edge.teaching.new_pictures import NewPicture, separate_duplicates


@dataclass(frozen=True)
class CalibrationRequest:
    """The pictures and the rate that a person asks to calibrate with."""

    pictures: Sequence[NewPicture]
    """Good parts that are not references. Without any, the references calibrate."""
    false_reject: float
    groups: Sequence[str] | None = None
    """For each picture a name that pictures of the same part share. Without it, pictures that look
    like one part count as one."""
    accept_fewer: bool = False
    """Whether to accept the best rate that too few pictures support."""
    keep: bool = True
    """Whether the pictures go into the bundle, so that they can be scored again later."""
    sigmas: float | None = None
    """How many standard deviations of a baseline are subtracted; None for no baseline."""


@dataclass(frozen=True)
class CalibrationFindings:
    """What a comparison of the calibration pictures found."""

    copies: frozenset[str] = frozenset()
    """Pixel hashes of pictures that look like a reference."""
    parts_found: int | None = None
    doubts: tuple[str, ...] = ()
    """Reasons to believe that there are fewer parts than stated. With a doubt, no rate is
    promised."""
    notes: tuple[str, ...] = ()

    def manual_evidence(self) -> ManualEvidence | NoEvidence:
        """The findings as the evidence of a threshold that a person sets."""
        if not self.doubts and self.parts_found is None:
            return NoEvidence()
        return ManualEvidence(doubts=self.doubts, parts_found=self.parts_found)

    @staticmethod
    def from_evidence(evidence: ThresholdEvidence) -> CalibrationFindings:
        """The findings in the evidence of a threshold that rests on the same pictures."""
        if isinstance(evidence, (HeldOutEvidence, ManualEvidence)):
            return CalibrationFindings(parts_found=evidence.parts_found, doubts=evidence.doubts)
        if isinstance(evidence, (ConformalEvidence, ProvisionalEvidence)):
            return CalibrationFindings(doubts=evidence.doubts)
        return CalibrationFindings()


def new_calibration(
    product: Product, matcher: PartMatcher, request: CalibrationRequest
) -> Calibration:
    """Turn a request that was checked into the record that the product keeps.

    Pictures that are references, or look like one, are refused. Where the request names no groups,
    pictures that look like one part become one group.
    """
    pictures, groups = request.pictures, request.groups
    refuse_references(product, matcher, pictures, "calibration pictures")
    fresh, _ = separate_duplicates(pictures, ())  # gives each picture a name of its own
    if groups is None:
        parts = matcher.parts([p.thumbnail for p in fresh])
        groups = [fresh[first].name for first in parts]
    return Calibration(
        false_reject=request.false_reject,
        accept_fewer=request.accept_fewer,
        sigmas=request.sigmas,
        source="pictures" if pictures else "references",
        pictures=tuple(_picture(p, groups[k], request.keep) for k, p in enumerate(fresh)),
    )


def check_request(request: CalibrationRequest) -> None:
    """Refuse a request that no pictures could meet."""
    parts_needed(request.false_reject)  # refuses a value that is not a rate
    sigmas, pictures, groups = request.sigmas, request.pictures, request.groups
    if sigmas is not None and not 0 <= sigmas < math.inf:
        raise UsageError(f"a baseline of {sigmas} sigmas", hint="give a number such as 3")
    if sigmas is not None and not pictures:
        raise UsageError("a baseline needs pictures", hint="give other good parts")
    if groups is not None and len(groups) != len(pictures):
        raise UsageError(
            f"{len(groups)} groups for {len(pictures)} pictures", hint="give one for each picture"
        )


def examine_pictures(
    product: Product,
    matcher: PartMatcher,
    calibration: Calibration,
    thumbnails: Sequence[Thumbnail],
) -> CalibrationFindings:
    """Compare the pictures of a calibration: do its groups look like as many different parts?"""
    if calibration.source == "references":
        one = (references_in_doubt(product),) if matcher.references_are_one_part() else ()
        return CalibrationFindings(doubts=one)
    copies = set(matcher.copies(thumbnails))
    left = [k for k in range(len(thumbnails)) if k not in copies]
    pictures = [calibration.pictures[k] for k in left]
    groups = [p.group for p in pictures]
    parts = matcher.parts([thumbnails[k] for k in left], groups)
    found = len(set(parts))
    spread = matcher.spread([thumbnails[left[first]] for first in sorted(set(parts))])
    return CalibrationFindings(
        copies=frozenset(calibration.pictures[k].pixels for k in copies),
        parts_found=found,
        doubts=(*_merged_group_doubts(pictures, parts), *_spread_doubts(spread)),
        notes=_grouping_notes(pictures),
    )


def groups_were_detected(pictures: Sequence[CalibrationPicture]) -> bool:
    """Whether the groups were found by comparing the pictures and not stated by a person: then
    each group has the name of one of its pictures."""
    names = {p.name for p in pictures}
    groups = {p.group for p in pictures}
    return len(groups) < len(pictures) and groups <= names


def references_in_doubt(product: Product) -> str:
    """The doubt about references that all look like one part."""
    return f"the {len(product.references)} references look like one part"


def kept_files(calibration: Calibration | None, pictures: Sequence[NewPicture]) -> dict[str, bytes]:
    """The contents of the pictures that go into the bundle, by their path below the product."""
    data = {p.pixels: p.data for p in pictures}
    listed = calibration.pictures if calibration else ()
    return {p.file.path: data[p.pixels] for p in listed if p.file is not None}


def refuse_references(
    product: Product, matcher: PartMatcher, pictures: Sequence[NewPicture], what: str
) -> None:
    """Refuse pictures that are references or look like one, and pictures that are given twice.

    `what` says what the pictures are for.
    """
    known = {r.pixels: r.name for r in product.references}
    references = [f"{p.name} (same as {known[p.pixels]})" for p in pictures if p.pixels in known]
    hint = "take other good parts: a part that is known scores too low"
    if references:
        raise PictureError(
            f"{len(references)} of {len(pictures)} {what} are references: {_few(references)}",
            hint=hint,
        )
    fresh, twice = separate_duplicates(pictures, ())
    if twice:
        raise PictureError(
            f"{len(twice)} of {len(pictures)} {what} are copies: {_few(twice)}",
            hint="give every picture once: a copy is not one more good part",
        )
    copies = matcher.copies([p.thumbnail for p in fresh])
    if copies:
        named = [f"{fresh[k].name} (like {product.references[r].name})" for k, r in copies.items()]
        raise PictureError(
            f"{len(copies)} of {len(fresh)} {what} look like copies of references: {_few(named)}",
            hint=hint,
        )


def _merged_group_doubts(
    pictures: Sequence[CalibrationPicture], parts: Sequence[int]
) -> tuple[str, ...]:
    """A doubt where pictures of different groups look like one part, with two such pictures.

    `parts` holds for each picture the first one of the same part.
    """
    for picture, first in zip(pictures, parts, strict=True):
        if picture.group != pictures[first].group:
            example = f"{pictures[first].name} and {picture.name} for example"
            return (f"they look like {len(set(parts))} ({example})",)
    return ()


def _spread_doubts(spread: float | None) -> tuple[str, ...]:
    if spread is None or spread > NARROW:
        return ()
    return (
        f"they differ from each other by {spread:.0%} of what they differ from the references, "
        "as pictures of few parts do",
    )


def _grouping_notes(pictures: Sequence[CalibrationPicture]) -> tuple[str, ...]:
    if not groups_were_detected(pictures):
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
