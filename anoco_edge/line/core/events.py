"""What happens to a line: the values that buses, cameras, judges and clocks give to the core."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from anoco_edge.line.words.constants import Reason

Verdict = Literal["good", "anomalous", "no-verdict"]


@dataclass(frozen=True)
class PreparedProduct:
    """A product that a judge holds ready: number, generation, and 16 bits of its checksum, the
    SHA-256 of which is `sha256` where the judge said so."""

    number: int
    generation: int
    checksum: int
    sha256: str = ""


@dataclass(frozen=True)
class RegionWord:
    """A region of a part: capture from 1, box in pixels, peak in per mille of the threshold."""

    capture: int
    left: int
    top: int
    right: int
    bottom: int
    peak: int


@dataclass(frozen=True)
class Opinion:
    """What the judge says about one picture; `ratio` is the score divided by the threshold."""

    verdict: Verdict
    product: PreparedProduct
    reason: Reason = Reason.NONE
    ratio: float = 0.0
    regions: tuple[RegionWord, ...] = ()
    part_code: str = ""
    """The code that was read from the picture; empty if none was."""


class CandidateStage(IntEnum):
    """How far the trial of a candidate is, as the word CANDIDATE has it."""

    NONE = 0
    JUDGING = 1
    WAITING = 2


@dataclass(frozen=True)
class Candidate:
    """What the PLC is told of the candidate that judges beside the current generation, and by which
    number the station knows its trial."""

    trial: int = 0
    stage: CandidateStage = CandidateStage.NONE
    differences: int = 0


# ---- the PLC


@dataclass(frozen=True)
class Trigger:
    """A part is in front of the cameras. `seq` 0 lets the station count. `client` names who gets
    the reply on a bus with messages; it is empty for the TRIGGER bit. `received` is when it came,
    which is before the core handles it; 0 where nobody noted it."""

    seq: int = 0
    part_code: str = ""
    client: str = ""
    received: int = field(default=0, repr=False)


@dataclass(frozen=True)
class TriggerRelease:
    """The TRIGGER bit fell."""


@dataclass(frozen=True)
class Enable:
    """The ENABLE bit changed."""

    on: bool


@dataclass(frozen=True)
class Acknowledge:
    """The PLC has taken the result, of this part if `seq` is not 0."""

    seq: int = 0


@dataclass(frozen=True)
class Reset:
    """Give up what is pending, forget faults, begin again with the self-test."""


@dataclass(frozen=True)
class Abort:
    """Give up the pending part and nothing else."""


@dataclass(frozen=True)
class Halt:
    """Stop until RESET."""


@dataclass(frozen=True)
class ChangeProduct:
    """Judge the next parts by another product."""

    number: int


@dataclass(frozen=True)
class Simulate:
    """Take simulated pictures in place of the cameras', or stop it."""

    on: bool


@dataclass(frozen=True)
class CandidateDecision:
    """Take or drop the candidate; `by` names the bus and the PLC, for the audit."""

    take: bool
    by: str


@dataclass(frozen=True)
class PlcBeat:
    """The value of PLC_HEARTBEAT."""

    value: int


@dataclass(frozen=True)
class StatusQuery:
    """A client on a bus with messages wants the status as it is after all that it sent before."""

    client: str


@dataclass(frozen=True)
class IoProgress:
    """The loop that serves the buses has just run."""


# ---- people


@dataclass(frozen=True)
class Maintenance:
    """A person paused the station, or lets it go on."""

    on: bool


@dataclass(frozen=True)
class LivePicture:
    """A person looks at a camera: take a picture now, if the station is paused."""

    camera: str


@dataclass(frozen=True)
class NewGeneration:
    """The current product was taught again: prepare it beside the old generation."""


# ---- the station


@dataclass(frozen=True)
class CandidateReport:
    """What the station says of its candidate; None while no station is connected."""

    candidate: Candidate | None


# ---- cameras


@dataclass(frozen=True)
class CameraUp:
    """A camera was connected; its counter starts anywhere."""

    camera: str


@dataclass(frozen=True)
class CameraDown:
    """A camera is not there any more."""

    camera: str
    why: str = ""


@dataclass(frozen=True)
class CameraProgress:
    """The camera itself has answered, with or without a picture."""

    camera: str


@dataclass(frozen=True)
class Picture:
    """A frame with the camera's own counter, exposed between two times of our clock. The interval
    holds what is not known exactly about the camera's clock."""

    camera: str
    counter: int
    exposed_from: int
    exposed_to: int
    complete: bool = True
    simulated: bool = False


# ---- the judge


@dataclass(frozen=True)
class JudgeUp:
    """A judge with this number was started; it holds no product yet."""

    judge: int


@dataclass(frozen=True)
class JudgeDown:
    """The judge with this number ended."""

    judge: int
    why: str = ""


@dataclass(frozen=True)
class JudgeProgress:
    """The judge has answered while it had nothing to do."""

    judge: int


@dataclass(frozen=True)
class ProductReady:
    """The judge holds a product that it was asked to prepare."""

    judge: int
    product: PreparedProduct


@dataclass(frozen=True)
class PreparationFailure:
    """The judge could not open a product."""

    judge: int
    number: int
    why: str = ""


@dataclass(frozen=True)
class JudgeAnswer:
    """The judge's opinion about one capture of a part; `took` is the time of its detector in
    nanoseconds, 0 where nobody measured it."""

    judge: int
    uid: str
    capture: int
    opinion: Opinion
    took: int = 0


# ---- the recorder and the clock


@dataclass(frozen=True)
class RecorderRoom:
    """Whether the recorder can take another row, and what else it cannot do, in words."""

    rows: bool
    trouble: str = ""


@dataclass(frozen=True)
class Tick:
    """Nothing but time has passed."""


Event = (
    Trigger
    | TriggerRelease
    | Enable
    | Acknowledge
    | Reset
    | Abort
    | Halt
    | ChangeProduct
    | Simulate
    | CandidateDecision
    | PlcBeat
    | StatusQuery
    | IoProgress
    | Maintenance
    | LivePicture
    | NewGeneration
    | CandidateReport
    | CameraUp
    | CameraDown
    | CameraProgress
    | Picture
    | JudgeUp
    | JudgeDown
    | JudgeProgress
    | ProductReady
    | PreparationFailure
    | JudgeAnswer
    | RecorderRoom
    | Tick
)
