"""What the web process and its worker say to each other, as JSON over a pair of sockets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter

from anoco_edge.station.jobs.job_models import JobProblem, JobRequest
from anoco_edge.station.parts.part_models import Model


class WorkerSetup(Model):
    """All that a worker has to know when it starts."""

    do: Literal["setup"] = "setup"
    config: str
    """The configuration of the station, as JSON."""
    base: str
    folder: str
    engine: str = "auto"
    niceness: int = 0
    """How much less urgent it is than the web process."""


class WorkOrder(Model):
    """Do this job."""

    do: Literal["work"] = "work"
    job: str
    request: JobRequest


class CancelOrder(Model):
    """End the job that is under way, as soon as nothing is left half done."""

    do: Literal["cancel"] = "cancel"


class Progress(Model):
    """How far a job is."""

    say: Literal["progress"] = "progress"
    job: str
    progress: float
    note: str


class Finished(Model):
    """A job is done: its result, or why it failed; `cancelled` says that it was ended."""

    say: Literal["finished"] = "finished"
    job: str
    result: JsonValue = None
    problem: JobProblem | None = None
    cancelled: bool = False


ORDER: TypeAdapter[WorkerSetup | WorkOrder | CancelOrder] = TypeAdapter(
    Annotated[WorkerSetup | WorkOrder | CancelOrder, Field(discriminator="do")]
)
ANSWER: TypeAdapter[Progress | Finished] = TypeAdapter(
    Annotated[Progress | Finished, Field(discriminator="say")]
)
