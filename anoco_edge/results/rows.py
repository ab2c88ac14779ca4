"""The rows of results.jsonl as types.

A run gives one row for every picture: a `ResultRow` for a picture that was inspected, a `FailedRow`
for one that was not. `to_json` gives the object that results.jsonl holds, and `row_from_json` in
`row_reader` reads it back. docs/schemas/results.schema.json is made from the types whose names end
in `Json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from typing_extensions import NotRequired, TypedDict

from anoco_edge.drift import DriftReading
from anoco_edge.drift.readings import DriftReadingJson
from anoco_edge.errors import AnocoError
from anoco_edge.pipeline.inspection import (
    EvidenceJson,
    Inspection,
    InspectionJson,
    RegionJson,
    Verdict,
)
from anoco_edge.text.plain_text import utf8_text

SCHEMA_VERSION = 1
"""The version that rows carry in `schema`. Rows without that field were written before version 1
and have the same fields."""

Pair: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[float, float, float, float]


class ResultJson(InspectionJson):
    """A row of a picture that was inspected, as it stands in results.jsonl."""

    id: int
    picture: NotRequired[str]
    overlay: NotRequired[str]
    overlay_error: NotRequired[str]
    drift: DriftReadingJson | None
    schema: int


class FailedJson(TypedDict):
    """A row of a picture that could not be inspected; it has the same keys as the other rows."""

    id: int
    source: str
    score: None
    threshold: None
    ratio: None
    verdict: None
    evidence: None
    regions: list[RegionJson]
    timings: dict[str, float]
    error: str
    drift: DriftReadingJson | None
    schema: int


@dataclass(frozen=True)
class RegionRow:
    """A region as a row shows it: its box in pixels, its area, its highest energy, its patch."""

    box: Box
    area: float
    peak: float
    patch: Pair

    def to_json(self) -> RegionJson:
        """Return the region as an item of `regions`."""
        return {
            "box": list(self.box),
            "area": self.area,
            "peak": self.peak,
            "patch": list(self.patch),
        }


@dataclass(frozen=True)
class EvidenceRow:
    """The strongest patch of a picture and the reference patch that it was compared with."""

    patch: Pair
    box: Box
    reference: str
    reference_patch: Pair
    reference_box: Box
    similarity: float

    def to_json(self) -> EvidenceJson:
        """Return the `evidence` field."""
        return {
            "patch": list(self.patch),
            "box": list(self.box),
            "reference": self.reference,
            "reference_patch": list(self.reference_patch),
            "reference_box": list(self.reference_box),
            "similarity": self.similarity,
        }


@dataclass(frozen=True)
class ResultRow:
    """The row of a picture that was inspected.

    `picture` is the path of its file, or of the frame that was kept, relative to results.jsonl.
    `overlay` is the path of its overlay, relative to results.jsonl; `overlay_error` says why an
    overlay that was wanted could not be drawn. `timings` are milliseconds by stage.
    `cpu_precision` is the one in which a processor computed the features, where one did. `error` is
    always None: code that only asks for it can treat both kinds of rows alike.
    """

    id: int
    source: str
    product: str
    generation: int
    score: float
    threshold: float | None
    threshold_kind: str
    ratio: float | None
    verdict: Verdict
    regions: tuple[RegionRow, ...]
    evidence: EvidenceRow | None
    timings: Mapping[str, float]
    picture: str | None = None
    overlay: str | None = None
    overlay_error: str | None = None
    drift: DriftReading | None = None
    cpu_precision: str | None = None

    error: ClassVar[None] = None

    @staticmethod
    def from_inspection(
        inspection: Inspection, number: int = 0, picture: str | None = None
    ) -> ResultRow:
        """Make the row of an inspection; `number` becomes its id."""
        known = inspection.to_row()
        evidence = known["evidence"]
        return ResultRow(
            id=number,
            source=utf8_text(known["source"]),
            product=known["product"],
            generation=known["generation"],
            score=known["score"],
            threshold=known["threshold"],
            threshold_kind=known["threshold_kind"],
            ratio=known["ratio"],
            verdict=known["verdict"],
            regions=tuple(map(_region, known["regions"])),
            evidence=None if evidence is None else _evidence(evidence),
            timings=known["timings"],
            picture=picture,
            cpu_precision=known.get("cpu_precision"),
        )

    @property
    def total_ms(self) -> float | None:
        """Milliseconds that the picture took, where that is known."""
        return self.timings.get("total")

    def to_json(self) -> ResultJson:
        """Return the object that results.jsonl holds; what is not there has no key."""
        row: ResultJson = {
            "id": self.id,
            "source": self.source,
            "product": self.product,
            "generation": self.generation,
            "score": self.score,
            "threshold": self.threshold,
            "threshold_kind": self.threshold_kind,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "regions": [region.to_json() for region in self.regions],
            "evidence": self.evidence.to_json() if self.evidence else None,
            "timings": dict(self.timings),
            "drift": self.drift.to_json() if self.drift else None,
            "schema": SCHEMA_VERSION,
        }
        if self.cpu_precision is not None:
            row["cpu_precision"] = self.cpu_precision
        if self.picture is not None:
            row["picture"] = self.picture
        if self.overlay is not None:
            row["overlay"] = self.overlay
        if self.overlay_error is not None:
            row["overlay_error"] = self.overlay_error
        return row


@dataclass(frozen=True)
class FailedRow:
    """The row of a picture that could not be inspected; `error` names the picture and the reason.

    It has neither score nor verdict; the constants let code that only asks for these treat both
    kinds of rows alike.
    """

    id: int
    source: str
    error: str
    drift: DriftReading | None = None

    score: ClassVar[None] = None
    threshold: ClassVar[None] = None
    ratio: ClassVar[None] = None
    verdict: ClassVar[None] = None

    @staticmethod
    def from_error(number: int, source: str, error: AnocoError | str) -> FailedRow:
        """Make the row of a picture from what went wrong; its message always names the picture.

        >>> FailedRow.from_error(3, "a.png", "the disk is gone").error
        'a.png: the disk is gone'
        """
        name, message = utf8_text(source), utf8_text(str(error))
        return FailedRow(number, name, message if name in message else f"{name}: {message}")

    def to_json(self) -> FailedJson:
        """Return the object that results.jsonl holds."""
        return {
            "id": self.id,
            "source": self.source,
            "score": None,
            "threshold": None,
            "ratio": None,
            "verdict": None,
            "evidence": None,
            "regions": [],
            "timings": {},
            "error": self.error,
            "drift": self.drift.to_json() if self.drift else None,
            "schema": SCHEMA_VERSION,
        }


Row: TypeAlias = ResultRow | FailedRow


def _region(region: RegionJson) -> RegionRow:
    return RegionRow(box(region["box"]), region["area"], region["peak"], pair(region["patch"]))


def _evidence(evidence: EvidenceJson) -> EvidenceRow:
    return EvidenceRow(
        patch=pair(evidence["patch"]),
        box=box(evidence["box"]),
        reference=evidence["reference"],
        reference_patch=pair(evidence["reference_patch"]),
        reference_box=box(evidence["reference_box"]),
        similarity=evidence["similarity"],
    )


def pair(values: Sequence[int]) -> Pair:
    """Return the row and column of a patch as a tuple."""
    row, col = values
    return row, col


def box(values: Sequence[float]) -> Box:
    """Return the corners of a box as a tuple."""
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1
