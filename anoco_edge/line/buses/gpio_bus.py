"""GPIO: command and status bits as wires, a pulse for PASS and a square wave for ALIVE.

    inputs     bits of the command word; a rising edge acts as it does in the register
    outputs    bits of the status word as levels; PASS is high for `pulse_ms` at most
    alive      the lowest bit of HEARTBEAT, which changes 10 times a second while the station lives

A part is released by power on the PASS wire only, so a wire that breaks rejects.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from anoco_edge.errors import EnvironmentMissingError, missing
from anoco_edge.line.buses.command_edges import CommandEdges
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import Enable, Event, PlcBeat
from anoco_edge.line.core.settings import MS
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.constants import CommandBit, StatusBit
from anoco_edge.line.words.registers import CommandImage

try:
    import gpiod
    from gpiod.line import Direction, Edge, Value
except ImportError:
    raise missing("gpiod", "gpio", "to use GPIO lines") from None

PROGRESS_SECONDS = 0.1
_CONSUMER = "anoco-edge"
_LEVEL = {True: Value.ACTIVE, False: Value.INACTIVE}
_RISING = gpiod.EdgeEvent.Type.RISING_EDGE


@dataclass(frozen=True)
class GpioSettings:
    """The chip and its lines by the names of the bits; `alive` is None where nobody looks at it."""

    chip: str
    inputs: Mapping[CommandBit, int] = field(default_factory=dict)
    outputs: Mapping[StatusBit, int] = field(default_factory=dict)
    alive: int | None = None
    pulse_ms: int = 100
    debounce_ms: int = 0


class GpioBus:
    """The wires of a station. Outputs are set by the caller of `put_out`, without another thread
    between; a thread reads the inputs and ends the pulse.

    Where ENABLE has no wire and TRIGGER has one, the station is enabled from the start.
    """

    def __init__(
        self,
        settings: GpioSettings,
        post: Callable[[Event], None],
        progress: Callable[[], None],
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._settings, self._post, self._progress, self._now = settings, post, progress, now
        self._edges = CommandEdges()
        self._bits = CommandBit(0)
        self._lock = threading.Lock()  # a request must not be used by two threads at once
        self._status = Status()
        self._levels: dict[int, bool] = {}
        self._pulse_until: int | None = None
        self._toggle = StatusBit(0)
        self._closing = self._broken = False
        self._woken, self._wake = os.pipe()
        self._inputs: gpiod.LineRequest | None = None
        self._outputs: gpiod.LineRequest | None = None
        self._thread = threading.Thread(target=self._work, name="gpio", daemon=True)

    def start(self) -> None:
        """Take the lines, all outputs low; lines that cannot be had are an error now."""
        settings = self._settings
        inputs = tuple(settings.inputs.values())
        alive = () if settings.alive is None else (settings.alive,)
        outputs = (*settings.outputs.values(), *alive)
        debounce = timedelta(milliseconds=settings.debounce_ms)
        reading = gpiod.LineSettings(
            direction=Direction.INPUT, edge_detection=Edge.BOTH, debounce_period=debounce
        )
        writing = gpiod.LineSettings(direction=Direction.OUTPUT, output_value=Value.INACTIVE)
        try:
            self._outputs = self._request(outputs, writing)
            self._inputs = self._request(inputs, reading)
            self._read_levels()
        except (OSError, ValueError) as error:
            self._release()
            raise EnvironmentMissingError(
                f"cannot use the lines of {settings.chip}: {error}",
                hint="check chip and line numbers with gpioinfo, who uses them, and your rights",
            ) from None
        if CommandBit.TRIGGER in settings.inputs and CommandBit.ENABLE not in settings.inputs:
            self._post(Enable(True))
        self._thread.start()

    def put_out(self, status: Status) -> None:
        """Put this status on the wires."""
        with self._lock:
            self._status = status
            toggle = status.bits & StatusBit.RESULT_TOGGLE
            if toggle != self._toggle:  # one pulse for each result
                self._toggle = toggle
                self._pulse_until = self._now() + self._settings.pulse_ms * MS
                os.write(self._wake, b"p")
            self._set_levels()

    def reply(self, client: str, record: PartRecord) -> None:
        """Do nothing: a PLC sees its result on the wires."""

    def close(self) -> None:
        """Let all outputs fall and give the lines back."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._status = Status()
            self._set_levels()
        os.write(self._wake, b"c")
        if self._thread.ident is not None:
            self._thread.join(5)
        self._release()
        for end in (self._woken, self._wake):
            os.close(end)

    def _request(self, lines: tuple[int, ...], settings: gpiod.LineSettings) -> gpiod.LineRequest:
        if not lines:
            return None
        return gpiod.request_lines(self._settings.chip, {lines: settings}, consumer=_CONSUMER)

    def _release(self) -> None:
        for request in (self._outputs, self._inputs):
            if request is not None:
                request.release()
        self._outputs = self._inputs = None

    # ---- outputs, under the lock

    def _set_levels(self) -> None:
        """Set what has changed; a chip that fails ends the signs of life."""
        wanted = {line: bool(self._status.bits & bit) for bit, line in self._levelled()}
        if self._settings.alive is not None:
            wanted[self._settings.alive] = bool(self._status.heartbeat & 1)
        changed = {line: on for line, on in wanted.items() if self._levels.get(line, False) != on}
        if not changed or self._outputs is None:
            return
        try:
            self._outputs.set_values({line: _LEVEL[on] for line, on in changed.items()})
        except OSError:
            self._broken = True
            return
        self._levels.update(changed)

    def _levelled(self) -> list[tuple[StatusBit, int]]:
        """The bits that are high when the status says so: PASS only during its pulse, and never
        for a simulated picture."""
        never = self._pulse_until is None or self._status.has(StatusBit.SIMULATED)
        return [
            (StatusBit(0) if bit is StatusBit.PASS and never else bit, line)
            for bit, line in self._settings.outputs.items()
        ]

    # ---- the thread

    def _work(self) -> None:
        with contextlib.suppress(OSError):  # a chip that is gone: no sign of life any more
            while not (self._closing or self._broken):
                self._wait()
                self._progress()

    def _wait(self) -> None:
        """Wait for an edge, for a pulse that begins or for one that ends."""
        with self._lock:
            until = self._pulse_until
        left = PROGRESS_SECONDS if until is None else max((until - self._now()) / 1e9, 0.0)
        waited = [self._woken] if self._inputs is None else [self._woken, self._inputs.fd]
        ready = select.select(waited, [], [], min(left, PROGRESS_SECONDS))[0]
        if self._woken in ready:
            os.read(self._woken, 64)
        if len(ready) > (self._woken in ready):
            self._read_edges()
        with self._lock:
            if self._pulse_until is not None and self._now() >= self._pulse_until:
                self._pulse_until = None
                self._set_levels()

    def _read_levels(self) -> None:
        """Note what is high already; only ENABLE and SIMULATE act by their level."""
        if self._inputs is None:
            return
        for bit, line in self._settings.inputs.items():
            if self._inputs.get_value(line) == Value.ACTIVE:
                self._bits |= bit
        self._tell()

    def _read_edges(self) -> None:
        bits = {line: bit for bit, line in self._settings.inputs.items()}
        assert self._inputs is not None
        for edge in self._inputs.read_edge_events():
            bit = bits[edge.line_offset]
            high = edge.event_type is _RISING
            self._bits = self._bits | bit if high else self._bits & ~bit
            self._tell()

    def _tell(self) -> None:
        for event in self._edges.read(CommandImage(self._bits)):
            if not isinstance(event, PlcBeat):  # there is no heartbeat on these wires
                self._post(event)
