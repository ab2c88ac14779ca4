"""What a picture must be like to be judged on a line, as product.json records it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PictureLimits(BaseModel):
    """The limits that were learned from good pictures; outside of them a picture has no verdict.

    >>> day = PictureLimits(min_brightness=60, max_saturated=0.1, min_sharpness=0.01, pictures=4)
    >>> night = day.model_copy(update={"min_brightness": 40.0, "min_likeness": 0.8})
    >>> both = day.widened(night)
    >>> both.min_brightness, both.min_likeness, both.pictures
    (40.0, 0.8, 8)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_brightness: float = Field(ge=0, le=255, allow_inf_nan=False)
    """The least mean gray level of the inspected patches."""
    max_saturated: float = Field(ge=0, le=1, allow_inf_nan=False)
    """The largest share of their pixels with a channel at its end."""
    min_sharpness: float = Field(ge=0, allow_inf_nan=False)
    """The least median over the patches of the squared gradient, in squared mean gray levels."""
    min_likeness: float | None = Field(default=None, ge=-1, le=1, allow_inf_nan=False)
    """The least median similarity of a patch and its anchor; None where it was not learned."""
    pictures: int = Field(ge=1)
    """The number of good pictures that the limits rest on."""

    def widened(self, other: PictureLimits) -> PictureLimits:
        """Return limits that accept what either accepts."""
        likeness = [x for x in (self.min_likeness, other.min_likeness) if x is not None]
        return PictureLimits(
            min_brightness=min(self.min_brightness, other.min_brightness),
            max_saturated=max(self.max_saturated, other.max_saturated),
            min_sharpness=min(self.min_sharpness, other.min_sharpness),
            min_likeness=min(likeness, default=None),
            pictures=self.pictures + other.pictures,
        )
