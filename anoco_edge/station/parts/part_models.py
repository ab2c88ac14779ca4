"""Parts as the pages and programs see them: the same words as the line's store."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["good", "anomalous", "no-verdict"]
ReviewVerdict = Literal["good", "defect", "missed"]


class Model(BaseModel):
    """A value that is read and never changed; a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Review(Model):
    """What a person says about a part."""

    verdict: ReviewVerdict
    note: str
    by: str
    at: str


class Capture(Model):
    """One picture of a part; `picture` says whether it is still stored."""

    number: int
    camera: str
    verdict: str | None
    reason: str | None
    ratio: float | None
    generation: int | None
    picture: bool


class Part(Model):
    """One part, or a trigger that was refused (`accepted` is false then)."""

    uid: str
    at: str
    seq: int
    part_code: str
    accepted: bool
    verdict: str
    reason: str
    ratio: float | None
    product: int | None
    product_name: str | None
    generation: int | None
    acquire_ms: int | None
    total_ms: int | None
    reserve_ms: int | None
    simulated: bool
    late: bool
    review: Review | None
    pinned: bool
    captures: list[Capture]
    preview: str | None = None
    """The address of a small picture, which the latest parts have."""


class PartPage(Model):
    """A page of a search; `next` is where the next one begins, null at the end."""

    items: list[Part]
    next: str | None


class Counts(Model):
    """What was counted in a span of time.

    `yield` is the share of good ones among the accepted parts; null where there were none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    triggers: int
    good: int
    fail: int
    no_verdict: int
    missed: int
    yield_: float | None = Field(alias="yield")
    pace_per_minute: float


class SeriesEvent(Model):
    """Something that happened beside the scores: a new generation, or a line of the log."""

    at: str
    kind: Literal["generation", "warning", "error"]
    text: str


class ScoreSeries(Model):
    """Lowest and highest ratio in equal spans of time; null where no part was judged.

    A ratio is a score divided by the threshold of its time, so the threshold is 1 everywhere.
    """

    t: list[str]
    low: list[float | None]
    high: list[float | None]
    threshold: list[float]
    parts: int
    events: list[SeriesEvent]
