"""The result of inspecting one picture, and its form as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired, TypedDict

from anoco_edge.errors import UsageError
from anoco_edge.images.preprocess import Box, Mask, Placement
from anoco_edge.pipeline.anomaly_map import Map, enlarge
from anoco_edge.pipeline.regions import FoundRegion

Verdict = Literal["good", "anomalous", "uncalibrated"]
Timings = dict[str, float]


def verdict(threshold: float | None, regions: Sequence[FoundRegion]) -> Verdict:
    """Return `uncalibrated` without a threshold, `anomalous` if there are regions, else `good`.

    >>> verdict(None, []), verdict(1.0, [])
    ('uncalibrated', 'good')
    """
    if threshold is None:
        return "uncalibrated"
    return "anomalous" if regions else "good"


@dataclass(frozen=True)
class Evidence:
    """The patch of a reference picture that a query patch was compared with."""

    reference: str
    file: Path
    row: int
    col: int
    box: Box
    similarity: float
    query_row: int
    query_col: int
    query_box: Box


class RegionJson(TypedDict):
    """A region of an inspected picture: its box in pixels, area, highest energy and patch."""

    box: list[float]
    area: float
    peak: float
    patch: list[int]


class EvidenceJson(TypedDict):
    """The strongest patch of a picture, and the patch of a reference it was compared with."""

    patch: list[int]
    box: list[float]
    reference: str
    reference_patch: list[int]
    reference_box: list[float]
    similarity: float


class InspectionJson(TypedDict):
    """What a row of results.jsonl says about the picture itself."""

    source: str
    product: str
    generation: int
    score: float
    threshold: float | None
    threshold_kind: str
    ratio: float | None
    verdict: Verdict
    regions: list[RegionJson]
    evidence: EvidenceJson | None
    timings: dict[str, float]
    cpu_precision: NotRequired[str]


class EvidenceSource(Protocol):
    """Knows where the patches of the bank come from."""

    def evidence(
        self, anchor: int, similarity: float, row: int, col: int, placement: Placement
    ) -> Evidence: ...


@dataclass(frozen=True)
class Inspection:
    """The score and the verdict of one picture, where its defects are and the evidence for them.

    Grids have one entry for each patch, which is 0 (in `anchor`, -1) where no patch was scored.
    `cpu_precision` is the one in which a processor computed the features; None where no processor
    did.
    """

    source: str
    product: str
    generation: int
    score: float
    threshold: float | None
    threshold_kind: str
    energy: Map
    scored: Mask
    regions: tuple[FoundRegion, ...]
    timings: Timings
    placement: Placement = field(repr=False)
    input_map: Map = field(repr=False)
    outline: Mask | None = field(repr=False)
    anchor: NDArray[np.int64] = field(repr=False)
    similarity: NDArray[np.float32] = field(repr=False)
    evidence_lookup: EvidenceSource = field(repr=False)
    cpu_precision: str | None = None

    @property
    def verdict(self) -> Verdict:
        return verdict(self.threshold, self.regions)

    @property
    def ratio(self) -> float | None:
        """The score divided by the threshold, so above 1 where it exceeds the threshold."""
        return None if self.threshold is None else self.score / self.threshold

    @property
    def provisional(self) -> bool:
        return self.threshold_kind == "provisional"

    @cached_property
    def map(self) -> Map:
        """The anomaly map at the picture's size."""
        return enlarge(self.input_map, self.placement)

    @cached_property
    def outline_at_picture(self) -> Mask | None:
        """The regions as a mask at the picture's size."""
        if self.outline is None:
            return None
        mask: Mask = enlarge(self.outline.astype(np.float32), self.placement) > 0.5
        return mask

    @property
    def peak(self) -> tuple[int, int]:
        """The row and column of the strongest patch among those that were inspected."""
        # All energies of a reference picture are zero. Without the -1, its peak would be the first
        # patch of the grid, even if that one is not scored.
        inspected = np.where(self.scored, self.energy, -1)
        row, col = np.unravel_index(int(np.argmax(inspected)), inspected.shape)
        return int(row), int(col)

    def evidence(self, row: int, col: int) -> Evidence:
        """Return the reference patch that patch `row, col` was compared with."""
        rows, cols = self.scored.shape
        if not (0 <= row < rows and 0 <= col < cols):
            raise UsageError(
                f"patch {row}, {col} is outside the grid of {rows} x {cols}",
                hint="rows and columns count from 0",
            )
        if not self.scored[row, col]:
            raise UsageError(
                f"patch {row}, {col} was not inspected (outside region or masked)",
                hint="ask for a patch that `scored` marks",
            )
        anchor, similarity = int(self.anchor[row, col]), float(self.similarity[row, col])
        return self.evidence_lookup.evidence(anchor, similarity, row, col, self.placement)

    @cached_property
    def peak_evidence(self) -> Evidence | None:
        """The evidence of the strongest patch; None where no patch was inspected."""
        return self.evidence(*self.peak) if self.scored[self.peak] else None

    def to_row(self) -> InspectionJson:
        """Return the fields of a row of results.jsonl that follow from this inspection."""
        row: InspectionJson = {
            "source": self.source,
            "product": self.product,
            "generation": self.generation,
            "score": self.score,
            "threshold": self.threshold,
            "threshold_kind": self.threshold_kind,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "regions": [
                {
                    "box": [round(v, 1) for v in r.box],
                    "area": round(r.area, 1),
                    "peak": r.peak,
                    "patch": [r.row, r.col],
                }
                for r in self.regions
            ],
            "evidence": _evidence_json(self.peak_evidence),
            "timings": {k: round(v, 3) for k, v in self.timings.items()},
        }
        if self.cpu_precision is not None:
            row["cpu_precision"] = self.cpu_precision
        return row


def _evidence_json(evidence: Evidence | None) -> EvidenceJson | None:
    if evidence is None:
        return None
    return {
        "patch": [evidence.query_row, evidence.query_col],
        "box": [round(v, 1) for v in evidence.query_box],
        "reference": evidence.reference,
        "reference_patch": [evidence.row, evidence.col],
        "reference_box": [round(v, 1) for v in evidence.box],
        "similarity": evidence.similarity,
    }
