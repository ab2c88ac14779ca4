"""The words of the table as JSON: commands that HTTP and MQTT take, and the state that they show.

A command is named as its bit in `anoco_edge/line/words/table.py`, in lower case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anoco_edge.bundle.documents import place_of
from anoco_edge.line.core.events import (
    Acknowledge,
    CandidateDecision,
    ChangeProduct,
    Enable,
    Event,
    PlcBeat,
    Reset,
    Simulate,
    Trigger,
)
from anoco_edge.line.core.status import Status

LARGEST_COMMAND = 4096


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Nothing(_Body):
    """The body of a command that has nothing to add."""


class _Switch(_Body):
    on: bool


class _Trigger(_Body):
    seq: int = Field(default=0, ge=0, le=65535)
    part_code: str = Field(default="", max_length=64)


class _Acknowledge(_Body):
    seq: int = Field(default=0, ge=0, le=65535)


class _Product(_Body):
    number: int = Field(ge=1, le=65535)


class _Beat(_Body):
    value: int = Field(ge=0, le=65535)


Read = Callable[[str, str, str], Event]
B = TypeVar("B", bound=_Body)


def _command(body: type[B], event: Callable[[B, str, str], Event]) -> Read:
    return lambda text, client, by: event(body.model_validate_json(text), client, by)


COMMANDS: dict[str, Read] = {
    "enable": _command(_Switch, lambda body, *_: Enable(body.on)),
    "trigger": _command(_Trigger, lambda body, who, _: Trigger(body.seq, body.part_code, who)),
    "result_ack": _command(_Acknowledge, lambda body, *_: Acknowledge(body.seq)),
    "reset": _command(_Nothing, lambda *_: Reset()),
    "change_product": _command(_Product, lambda body, *_: ChangeProduct(body.number)),
    "simulate": _command(_Switch, lambda body, *_: Simulate(body.on)),
    "take_candidate": _command(_Nothing, lambda _, __, by: CandidateDecision(True, by)),
    "drop_candidate": _command(_Nothing, lambda _, __, by: CandidateDecision(False, by)),
    "plc_heartbeat": _command(_Beat, lambda body, *_: PlcBeat(body.value)),
}
"""What reads the JSON of each command."""


def parse_command(name: str, raw: bytes, client: str = "", by: str = "") -> Event:
    """Return the event of a command; no body is an empty object. What is wrong is a ValueError of
    one line. `client` gets the reply; `by` names it where a person reads it.

    >>> parse_command("trigger", b'{"seq": 7}', "http:1")
    Trigger(seq=7, part_code='', client='http:1')
    >>> parse_command("enable", b'{"on": 1}')
    Traceback (most recent call last):
    ValueError: on: Input should be a valid boolean
    """
    if name not in COMMANDS:
        raise ValueError(f"the commands are {', '.join(COMMANDS)}")
    if len(raw) > LARGEST_COMMAND:
        raise ValueError(f"a command has at most {LARGEST_COMMAND} bytes")
    try:
        return COMMANDS[name](raw.decode() or "{}", client, by)
    except UnicodeDecodeError:
        raise ValueError("the command is not UTF-8") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place_of(first["loc"])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None


def state_message(status: Status, **others: bool) -> str:
    """Return all status words as JSON; `BITS` names the bits of STATUS that are high.

    >>> from anoco_edge.line.words.constants import StatusBit
    >>> state = json.loads(state_message(Status(StatusBit.READY | StatusBit.WARNING, 7)))
    >>> state["BITS"], state["STATUS"], state["HEARTBEAT"]
    (['READY', 'WARNING'], 1025, 7)
    """
    return json.dumps({**others, "BITS": bit_names(status), **status.words()})


def bit_names(status: Status) -> list[str]:
    """Return the names of the status bits that are high, the lowest first."""
    return [bit.name for bit in type(status.bits) if bit.name and status.has(bit)]
