"""The settings of the line's core: times, rules, cameras and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anoco_edge.errors import UsageError

MS = 1_000_000
"""Nanoseconds in a millisecond. All times of the core are integers of CLOCK_MONOTONIC."""

TriggerMode = Literal["bus", "camera"]


@dataclass(frozen=True)
class CameraSettings:
    """A camera and the range of its frame counter: 16 bits count from 1 to 65535 and again from 1,
    0 bits never wrap. With `simulates` stored pictures take its place while SIMULATE is high."""

    name: str
    counter_bits: Literal[0, 16] = 0
    simulates: bool = False


@dataclass(frozen=True)
class LineProduct:
    """A product that the PLC knows by its number, and the cameras that take a picture of it."""

    number: int
    name: str
    cameras: tuple[str, ...]


@dataclass(frozen=True)
class LineSettings:
    """The times and rules of a line.

    With `trigger` "bus" a trigger makes the part and asks the cameras for pictures. With "camera"
    the camera is triggered by a wire and its picture makes the part. `deadline_ms` and `acquire_ms`
    count from when the trigger came, with a wired trigger from the exposure.
    """

    cameras: tuple[CameraSettings, ...]
    products: tuple[LineProduct, ...]
    trigger: TriggerMode = "bus"
    deadline_ms: int = 500
    acquire_ms: int = 200
    hold_ms: int = 1000
    acknowledge: bool = True
    strict_sequence: bool = False
    fault_after: int = 3
    plc_timeout_ms: int = 0
    judge_hang_ms: int = 2000
    prepare_ms: int = 120_000
    alive_ms: int = 1000

    def __post_init__(self) -> None:
        known = {camera.name for camera in self.cameras}
        if not self.products:
            raise UsageError("the line has no product", hint="give it at least one")
        for product in self.products:
            if not product.cameras or not set(product.cameras) <= known:
                raise UsageError(
                    f"product {product.name} needs cameras {product.cameras}",
                    hint=f"use one or more of: {', '.join(sorted(known))}",
                )
        if self.trigger == "camera" and len(known) > 1:
            raise UsageError(
                f"a wired trigger makes a part of each picture, and there are {len(known)} cameras",
                hint="use one camera, or let the PLC trigger over a bus",
            )
        if not 0 < self.acquire_ms <= self.deadline_ms:
            raise UsageError(
                f"acquire_ms {self.acquire_ms} is not within deadline_ms {self.deadline_ms}",
                hint="give the picture less time than the verdict",
            )

    def product(self, number: int) -> LineProduct | None:
        """Return the product of this number; None where there is none."""
        return next((each for each in self.products if each.number == number), None)
