"""What a line and its station say to each other, as the types of both sides.

The station asks with one of the requests. The line answers, and tells what happens by events. Each
header is one of these in JSON; `payload` says how many bytes follow it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from anoco_edge.line.core.effects import CaptureRecord, PartRecord
from anoco_edge.line.core.events import CandidateStage
from anoco_edge.line.store.rows import part_message


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: int = 0


class FiguresRequest(_Request):
    """Asks for the figures of /metrics, which are the payload of the answer."""

    do: Literal["figures"] = "figures"


class SubscribeRequest(_Request):
    """Asks to be told of all that happens from now on."""

    do: Literal["subscribe"] = "subscribe"


class CommandRequest(_Request):
    """Gives the line a command, with the body that it has over HTTP."""

    do: Literal["command"] = "command"
    name: str
    body: dict[str, JsonValue] = {}


class CandidateRequest(_Request):
    """Tells the line of the candidate that judges beside the current generation, if there is one.

    The line forgets it when this connection ends.
    """

    do: Literal["candidate"] = "candidate"
    trial: int = Field(default=0, ge=0)
    stage: CandidateStage = CandidateStage.NONE
    differences: int = Field(default=0, ge=0)


class FrameRequest(_Request):
    """Asks for the latest picture of a camera: a small JPEG, or the whole frame as it is."""

    do: Literal["frame"] = "frame"
    camera: str
    full: bool = False


Request = FiguresRequest | SubscribeRequest | CommandRequest | CandidateRequest | FrameRequest
REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])


class ProductState(BaseModel):
    """The product that the line judges by now."""

    number: int
    name: str
    generation: int


class CounterState(BaseModel):
    """What became of all triggers."""

    triggers: int
    good: int
    fail: int
    no_verdict: int
    missed: int


class CameraState(BaseModel):
    """A camera: its source without passwords, and whether it is there."""

    name: str
    source: str
    up: bool


class LineState(BaseModel):
    """The state of the line; one with all defaults stands for a line that has never been heard."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = ""
    state: str = ""
    bits: list[str] = []
    words: dict[str, int | str] = {}
    product: ProductState | None = None
    counters: CounterState | None = None
    yield_: float | None = Field(default=None, alias="yield")
    pace_per_minute: float = 0.0
    deadline_ms: int = 0
    reserve_ms: int = 0
    warnings: list[str] = []
    cameras: list[CameraState] = []

    def without_beat(self) -> LineState:
        """Return the state without the word that changes ten times a second.

        >>> LineState(words={"HEARTBEAT": 7, "REASON": 0}).without_beat().words
        {'REASON': 0}
        """
        words = {name: value for name, value in self.words.items() if name != "HEARTBEAT"}
        return self.model_copy(update={"words": words})


class RegionMessage(BaseModel):
    """A region in pixels of the camera; `peak` is in units of the threshold."""

    left: int
    top: int
    right: int
    bottom: int
    peak: float


class CaptureMessage(BaseModel):
    """A picture of a part; without a verdict the judge had no opinion."""

    number: int
    camera: str
    verdict: str | None = None
    reason: str | None = None
    ratio: float | None = None
    regions: list[RegionMessage] = []
    width: int | None = None
    height: int | None = None
    """Of the picture in whose pixels regions are; known of the first capture with a picture."""


class PartMessage(BaseModel):
    """A part that was decided: what sinks get, the time, and its captures."""

    at: str
    uid: str
    seq: int
    part_code: str
    accepted: bool
    verdict: str
    reason: str
    ratio: float
    product: int | None
    generation: int | None
    acquire_ms: int
    total_ms: int
    reserve_ms: int
    simulated: bool
    captures: list[CaptureMessage]


class LogMessage(BaseModel):
    """A line of the log."""

    level: str
    text: str


class _FromLine(BaseModel):
    payload: int = Field(default=0, ge=0)


class Answer(_FromLine):
    """The answer to the request with this `id`; with an `error` nothing was done.

    `status` is the HTTP status that fits the error; `width` and `height` are those of a whole
    frame.
    """

    event: Literal["answer"] = "answer"
    id: int = 0
    error: str = ""
    status: int = 422
    width: int = 0
    height: int = 0


class StateEvent(_FromLine):
    """The state has changed; `lost_messages` were not kept for the station since the start."""

    event: Literal["state"] = "state"
    state: LineState
    lost_messages: int = 0


class PartEvent(_FromLine):
    """A part was decided; the payload is a preview of its first picture, or nothing."""

    event: Literal["part"] = "part"
    part: PartMessage


class LogEvent(_FromLine):
    """The log has one more line."""

    event: Literal["log"] = "log"
    log: LogMessage


class DecisionEvent(_FromLine):
    """A PLC takes or drops the candidate of a trial; `by` names the PLC and its bus."""

    event: Literal["decision"] = "decision"
    trial: int
    take: bool
    by: str


FromLine = Answer | StateEvent | PartEvent | LogEvent | DecisionEvent
FROM_LINE: TypeAdapter[FromLine] = TypeAdapter(Annotated[FromLine, Field(discriminator="event")])


def encode(message: Request | FromLine) -> bytes:
    """Return the header of a message with its length before it.

    >>> encode(SubscribeRequest(id=1))
    b'\\x00\\x00\\x00\\x19{"id":1,"do":"subscribe"}'
    """
    text = message.model_dump_json(by_alias=True).encode()
    return len(text).to_bytes(4, "big") + text


def message_of_part(
    record: PartRecord, at: str, size: tuple[int, int] | None = None
) -> PartMessage:
    """Return the message about a part that was decided at a time of day.

    `size` is the width and height of the frame of its first capture.
    """
    captures = [_capture(number, each) for number, each in enumerate(record.captures)]
    if captures and size is not None:
        captures[0].width, captures[0].height = size
    return PartMessage.model_validate({"at": at, **part_message(record), "captures": captures})


def _capture(number: int, capture: CaptureRecord) -> CaptureMessage:
    opinion = capture.opinion
    if opinion is None:
        return CaptureMessage(number=number, camera=capture.camera)
    regions = [
        RegionMessage(
            left=each.left,
            top=each.top,
            right=each.right,
            bottom=each.bottom,
            peak=each.peak / 1000,
        )
        for each in opinion.regions
    ]
    return CaptureMessage(
        number=number,
        camera=capture.camera,
        verdict=opinion.verdict,
        reason=opinion.reason.name,
        ratio=round(opinion.ratio, 6),
        regions=regions,
    )
