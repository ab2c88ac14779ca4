"""A part from its accepted trigger to its one outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anoco_edge.line.core.effects import CaptureRecord, PartRecord
from anoco_edge.line.core.events import Opinion, PreparedProduct, RegionWord, Verdict
from anoco_edge.line.core.settings import MS
from anoco_edge.line.words.constants import Reason
from anoco_edge.line.words.table import REGIONS


@dataclass(frozen=True)
class Outcome:
    """What a part is decided to be."""

    verdict: Verdict
    reason: Reason = Reason.NONE


@dataclass
class Part:
    """A part that was accepted; `outcome` is None while it is pending."""

    uid: str
    seq: int
    part_code: str
    client: str
    trigger_at: int
    deadline: int
    acquire_until: int
    product: PreparedProduct
    captures: list[CaptureRecord]
    simulated: bool = False
    acquired_at: int = 0
    outcome: Outcome | None = None
    repeats: list[str] = field(default_factory=list)
    """Clients that sent the same trigger again and get the same answer."""

    def decide(self, outcome: Outcome) -> bool:
        """Set the outcome if the part is pending. The second caller gets False."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        return True

    @property
    def acquired(self) -> bool:
        """Whether all pictures are there."""
        return all(capture.frame is not None for capture in self.captures)

    def add_opinion(self, capture: int, opinion: Opinion) -> None:
        """Note the opinion about one capture."""
        self.captures[capture] = replace(self.captures[capture], opinion=opinion)

    def verdict(self) -> Outcome | None:
        """Return the outcome that follows from all opinions: the worst; None if one is missing.

        An opinion of another product or generation than the part's own is no opinion. A code in a
        picture that is not the trigger's shows another part.
        """
        opinions = [capture.opinion for capture in self.captures]
        found = [opinion for opinion in opinions if opinion is not None]
        if len(found) < len(opinions):
            return None
        for opinion in found:
            if opinion.product != self.product:
                return Outcome("no-verdict", Reason.WRONG_PRODUCT)
            if opinion.verdict == "no-verdict":
                return Outcome("no-verdict", opinion.reason or Reason.JUDGE_ERROR)
        if len({self.part_code, *(opinion.part_code for opinion in found)} - {""}) > 1:
            return Outcome("no-verdict", Reason.PART_CODE)
        if all(opinion.verdict == "good" for opinion in found):
            return Outcome("good")
        return Outcome("anomalous")

    def record(self, now: int) -> PartRecord:
        """Return the life of the part, which must be decided."""
        assert self.outcome is not None
        opinions = [capture.opinion for capture in self.captures if capture.opinion is not None]
        return PartRecord(
            self.uid,
            self.seq,
            self.part_code or max((opinion.part_code for opinion in opinions), default=""),
            self.client,
            accepted=True,
            trigger_at=self.trigger_at,
            decided_at=now,
            verdict=self.outcome.verdict,
            reason=self.outcome.reason,
            ratio=max((opinion.ratio for opinion in opinions), default=0.0),
            product=self.product,
            captures=tuple(self.captures),
            regions=_strongest(opinions),
            acquire_ms=max(self.acquired_at - self.trigger_at, 0) // MS,
            total_ms=(now - self.trigger_at) // MS,
            reserve_ms=max(self.deadline - now, 0) // MS,
            simulated=self.simulated,
        )


def _strongest(opinions: list[Opinion]) -> tuple[RegionWord, ...]:
    """Return the strongest regions of all captures."""
    regions = [region for opinion in opinions for region in opinion.regions]
    return tuple(sorted(regions, key=lambda region: -region.peak)[:REGIONS])
