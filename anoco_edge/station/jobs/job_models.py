"""Jobs of the worker, as requests, as rows and as the API shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StrictBool, StrictFloat, StrictInt, TypeAdapter

from anoco_edge.errors import AnocoError
from anoco_edge.station.parts.part_models import Model

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Position = Annotated[StrictFloat, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
MOST_PICTURES = 2000
MOST_PARTS = 5000


class PartPicture(Model):
    """The stored picture of a part."""

    part: str = Field(max_length=200)
    number: StrictInt = Field(default=0, ge=0, le=63)


class UploadedPicture(Model):
    """A picture that was sent to the station or taken from a camera."""

    upload: Digest


PictureSource = PartPicture | UploadedPicture


class ThresholdChange(Model):
    """Set the threshold by hand; null goes back to the one that is computed."""

    what: Literal["threshold"] = "threshold"
    value: StrictFloat | None = Field(gt=0, allow_inf_nan=False)


class RegionChange(Model):
    """Inspect inside a polygon alone, in pixels of the references; no points remove it."""

    what: Literal["region"] = "region"
    points: list[tuple[Position, Position]] = Field(max_length=1000)


class MaskChange(Model):
    """Leave out what a picture of the references' size shows white; null removes the mask."""

    what: Literal["mask"] = "mask"
    upload: Digest | None


class AddReferences(Model):
    """Add pictures of good parts to the references."""

    what: Literal["add"] = "add"
    pictures: list[PictureSource] = Field(min_length=1, max_length=MOST_PICTURES)


class RemoveReferences(Model):
    """Remove references, each named by the hash of its pixels."""

    what: Literal["remove"] = "remove"
    references: list[str] = Field(min_length=1, max_length=MOST_PICTURES)


class Calibrate(Model):
    """Set the threshold from pictures of good parts that are not references."""

    what: Literal["calibrate"] = "calibrate"
    pictures: list[PictureSource] = Field(min_length=1, max_length=MOST_PICTURES)
    false_reject: StrictFloat = Field(default=0.01, gt=0, lt=1)
    accept_fewer: StrictBool = False


class Undo(Model):
    """Go back to the generation before."""

    what: Literal["undo"] = "undo"


Change = Annotated[
    ThresholdChange
    | RegionChange
    | MaskChange
    | AddReferences
    | RemoveReferences
    | Calibrate
    | Undo,
    Field(discriminator="what"),
]


class ExplanationRequest(Model):
    """Say why a capture got its verdict, by the generation that gave it."""

    kind: Literal["explanation"] = "explanation"
    uid: str
    number: StrictInt


class DryRunRequest(Model):
    """Say what a change would do to the last parts and to the promise, and change nothing."""

    kind: Literal["dry-run"] = "dry-run"
    product: int
    capture: int
    expected: int
    change: Change
    last: int = Field(default=1000, ge=1, le=MOST_PARTS)


class CommitRequest(Model):
    """Make a change to a product that is at the generation `expected` (0: it does not exist)."""

    kind: Literal["commit"] = "commit"
    product: int
    capture: int
    expected: int
    change: Change


class ShadowRequest(Model):
    """Let the candidate of a trial judge the parts that came since."""

    kind: Literal["shadow"] = "shadow"
    shadow: int
    product: int
    capture: int
    candidate: str
    """A dry run by its id, or a bundle below the folder of bundles by its name."""
    uids: list[str]


JobRequest = Annotated[
    ExplanationRequest | DryRunRequest | CommitRequest | ShadowRequest,
    Field(discriminator="kind"),
]
REQUEST: TypeAdapter[JobRequest] = TypeAdapter(JobRequest)
RANKS = {"commit": 0, "explanation": 1, "dry-run": 2, "shadow": 3}
"""Which of the jobs that wait is done first."""


class TooManyJobsError(AnocoError):
    """So many jobs wait that another one is refused."""


class JobProblem(Model):
    """Why a job failed: its error in words, what to do, and the status that it stands for."""

    status: int
    detail: str
    hint: str = ""


class Job(Model):
    """A job of the worker."""

    id: str
    kind: str
    state: JobState
    by: str
    at: str
    progress: float
    note: str
    result: JsonValue = None
    problem: JobProblem | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("done", "failed", "cancelled")
