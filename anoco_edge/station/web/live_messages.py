"""What a tab is told over its WebSocket."""

from __future__ import annotations

from typing import Literal

from anoco_edge.line.link.messages import LineState, LogMessage, PartMessage
from anoco_edge.station.jobs.job_models import Job


class StationState(LineState):
    """The state of the line as the station knows it: the last one, if the line is not there."""

    connected: bool


class LiveState(StationState):
    """The state has changed, or is told again."""

    type: Literal["state"] = "state"


class LivePart(PartMessage):
    """A part was decided; `preview` is the address of a small picture."""

    type: Literal["part"] = "part"
    preview: str | None = None


class LiveLog(LogMessage):
    """The log has one more line."""

    type: Literal["log"] = "log"


class LiveJob(Job):
    """A job of the worker has moved on; its result is to be asked for."""

    type: Literal["job"] = "job"


LiveMessage = LiveState | LivePart | LiveLog | LiveJob


def text_of(message: LiveMessage) -> str:
    """Return a message as JSON.

    >>> text_of(LiveLog(level="info", text="on"))
    '{"level":"info","text":"on","type":"log"}'
    """
    return message.model_dump_json(by_alias=True)
