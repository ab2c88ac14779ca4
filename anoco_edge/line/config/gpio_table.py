"""[gpio] of station.toml: bits of the table of words as lines of a GPIO chip."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anoco_edge.line.config.fields import Milliseconds, Table, Text

CommandName = Literal["ENABLE", "TRIGGER", "RESULT_ACK", "RESET", "SIMULATE"]
StatusName = Literal[
    "READY",
    "TRIGGER_ACK",
    "EXPOSING",
    "ACQ_DONE",
    "BUSY",
    "RESULT_VALID",
    "PASS",
    "FAIL",
    "NO_VERDICT",
    "FAULT",
    "WARNING",
    "MISSED_TRIGGER",
    "RESULT_TOGGLE",
    "PLC_LINK",
    "MAINTENANCE",
    "SIMULATED",
]
GpioLine = Annotated[int, Field(ge=0, le=1023)]


class GpioTable(Table):
    """[gpio]: bits of the table of words as lines of a chip."""

    chip: Text = "/dev/gpiochip0"
    inputs: dict[CommandName, GpioLine] = Field(default_factory=dict)
    outputs: dict[StatusName, GpioLine] = Field(default_factory=dict)
    alive: GpioLine | None = None
    pulse_ms: Milliseconds = 100
    debounce_ms: int = Field(default=0, ge=0, le=1000)

    @model_validator(mode="after")
    def _lines_fit(self) -> GpioTable:
        lines = [*self.inputs.values(), *self.outputs.values()]
        lines += [] if self.alive is None else [self.alive]
        twice = [line for line in lines if lines.count(line) > 1]
        if twice:
            raise ValueError(f"line {twice[0]} comes twice")
        if not lines:
            raise ValueError("[gpio] uses no line; give inputs, outputs or alive")
        return self
