"""What the core wants to be done: the values that actors carry out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anoco_edge.line.core.events import Opinion, PreparedProduct, RegionWord, Verdict
from anoco_edge.line.core.states import Cause, State
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.constants import Reason

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class FrameKey:
    """A frame, by its camera and the camera's own counter; a stored picture has another counter."""

    camera: str
    counter: int
    simulated: bool = False


@dataclass(frozen=True)
class CaptureRecord:
    """One picture of a part: the frame, when it was exposed, and what the judge said."""

    camera: str
    frame: FrameKey | None = None
    exposed_from: int = 0
    exposed_to: int = 0
    opinion: Opinion | None = None


@dataclass(frozen=True)
class PartRecord:
    """The whole life of a part, or of a trigger that was refused (`accepted` is False then)."""

    uid: str
    seq: int
    part_code: str
    client: str
    accepted: bool
    trigger_at: int
    decided_at: int
    verdict: Verdict
    reason: Reason
    ratio: float = 0.0
    product: PreparedProduct | None = None
    captures: tuple[CaptureRecord, ...] = ()
    regions: tuple[RegionWord, ...] = ()
    acquire_ms: int = 0
    total_ms: int = 0
    reserve_ms: int = 0
    simulated: bool = False


@dataclass(frozen=True)
class TakePicture:
    """Ask a camera, or with `simulated` its stored pictures, for one frame. `uid` is empty where
    the picture only tests the camera."""

    camera: str
    uid: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class JudgePicture:
    """Ask the judge for its opinion about a frame by this very generation of a product."""

    judge: int
    uid: str
    capture: int
    frame: FrameKey
    product: PreparedProduct


@dataclass(frozen=True)
class PrepareProduct:
    """Let the judge open a product beside those that it holds."""

    judge: int
    number: int


@dataclass(frozen=True)
class ForgetProduct:
    """Let the judge close a product that no part needs any more."""

    judge: int
    product: PreparedProduct


@dataclass(frozen=True)
class ReplaceJudge:
    """Kill the judge if it still lives, and start another."""

    judge: int
    why: str


@dataclass(frozen=True)
class PutOut:
    """Put this status on every bus now. It is never repeated later."""

    status: Status


@dataclass(frozen=True)
class Reply:
    """Answer the client that triggered, on a bus with messages."""

    client: str
    record: PartRecord


@dataclass(frozen=True)
class TellStatus:
    """Tell a client that asked for it the status that was put out last."""

    client: str


@dataclass(frozen=True)
class DecideCandidate:
    """Let the station take or drop the candidate of a trial, as `by` wants it."""

    trial: int
    take: bool
    by: str


@dataclass(frozen=True)
class RecordAccepted:
    """Note that a part was accepted, so that a restart knows what it interrupted."""

    uid: str
    seq: int
    part_code: str
    trigger_at: int
    client: str = ""


@dataclass(frozen=True)
class RecordPart:
    """Write the one outcome of a part or of a refused trigger."""

    record: PartRecord


@dataclass(frozen=True)
class RecordLate:
    """Write an opinion that came after its part was decided; it changes no output."""

    uid: str
    capture: int
    opinion: Opinion
    received_at: int


@dataclass(frozen=True)
class ReleaseFrame:
    """A frame that belongs to no part: its memory may be used again."""

    frame: FrameKey


@dataclass(frozen=True)
class StateChange:
    """The state machine has gone from one state to another."""

    before: State
    after: State
    cause: Cause


@dataclass(frozen=True)
class Say:
    """A line for the log and the table of I/O events."""

    level: Level
    text: str


Effect = (
    TakePicture
    | JudgePicture
    | PrepareProduct
    | ForgetProduct
    | ReplaceJudge
    | PutOut
    | Reply
    | TellStatus
    | DecideCandidate
    | RecordAccepted
    | RecordPart
    | RecordLate
    | ReleaseFrame
    | StateChange
    | Say
)
