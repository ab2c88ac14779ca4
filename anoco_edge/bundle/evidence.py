"""The evidence of a product's threshold, with one type for each kind that product.json holds.

The file names no kind. The keys tell the kinds apart, so they are tried from the one with the most
characteristic keys to the one with the fewest. Evidence explains a threshold and decides nothing,
so a file is never refused because of it: a key that this version does not know stays with its
evidence, and an object that is of no known kind becomes `UnknownEvidence`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)


class ThresholdEvidence(BaseModel):
    """The base of every kind of evidence.

    A field that has a default and holds nothing is not written, because older versions and the
    native library write files without it. Dumps hold lists, as JSON does.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    @property
    def explanation(self) -> str | None:
        """What a person should know about the threshold, where there is something to say."""
        return None

    @model_serializer(mode="wrap")
    def _without_empty_defaults(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        fields: dict[str, object] = serialize(self)
        known = type(self).model_fields
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if name not in known or known[name].is_required() or value not in (None, (), [])
        }


class ConformalEvidence(ThresholdEvidence):
    """A calibration: which false-reject rate was asked for, and which rate the scores support."""

    method: str
    exact: bool
    """Whether the rate is guaranteed: the parts were held out, and nothing speaks against them."""
    asked: float
    false_reject: float
    """The share of good parts that are rejected, on average over calibrations of so many parts."""
    interval: tuple[float, float]
    """The rates between which the rate of this one calibration lies with 90 % probability."""
    parts: int
    order: int
    """The rank of the score that became the threshold, counted from the lowest, which has 1."""
    words: str
    doubts: tuple[str, ...] = ()
    """Reasons to believe that the pictures show fewer parts than they should."""

    @property
    def explanation(self) -> str | None:
        """What the threshold promises, in words."""
        return self.words


class HeldOutEvidence(ConformalEvidence):
    """A calibration with pictures of good parts that are not references."""

    method: Literal["held-out pictures"]
    parts_found: int | None = None
    """How many parts the pictures look like. Older versions did not count them."""
    pictures: int | None = None
    """How many pictures were scored. Older versions did not write it."""


class LeaveOneOutEvidence(ConformalEvidence):
    """A calibration with the references, each of which is scored against the others."""

    method: Literal["leave-one-picture-out"]
    scores: tuple[float, ...]


class ProvisionalEvidence(ThresholdEvidence):
    """The references alone: the highest of their scores times a margin is the threshold."""

    method: str
    scores: tuple[float, ...]
    margin: float
    words: str | None = None
    doubts: tuple[str, ...] = ()

    @property
    def explanation(self) -> str | None:
        """Why the threshold is in doubt, where it is."""
        return self.words


class EqualReferencesEvidence(ThresholdEvidence):
    """References without any difference that the backbone sees, so they give no threshold."""

    model_config = ConfigDict(extra="forbid")

    method: str
    scores: tuple[float, ...]


class LostCalibrationEvidence(ThresholdEvidence):
    """A calibration that could not be repeated after a change of the bank."""

    lost: str
    """The reason why it could not be repeated."""

    @property
    def explanation(self) -> str | None:
        """Why there is no threshold."""
        return self.lost


class ManualEvidence(ThresholdEvidence):
    """What the last calibration found about its pictures before a person set the threshold.

    The findings stay with the product because its calibration stays too and may be used again.
    """

    model_config = ConfigDict(extra="forbid")

    doubts: tuple[str, ...] = ()
    parts_found: int | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ManualEvidence:
        if not self.doubts and self.parts_found is None:
            raise ValueError("evidence of a manual threshold holds doubts or a number of parts")
        return self


class NoEvidence(ThresholdEvidence):
    """An empty object: there is no threshold, or a person set it without a calibration."""

    model_config = ConfigDict(extra="forbid")


class UnknownEvidence(ThresholdEvidence):
    """Evidence of another version of the program. It is kept as it is."""


Evidence = Annotated[
    HeldOutEvidence
    | LeaveOneOutEvidence
    | ProvisionalEvidence
    | EqualReferencesEvidence
    | LostCalibrationEvidence
    | ManualEvidence
    | NoEvidence
    | UnknownEvidence,
    Field(union_mode="left_to_right"),
]
