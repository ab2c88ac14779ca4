"""Measures how long a line takes from the accepted trigger to its output, beside the detector.

A whole station runs: judge, store, TCP and Modbus. Its clients are a process of their own, and take
turns. What is reported is time beyond the detector's own, which the judge measures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from typing_extensions import TypedDict

from anoco_edge.diagnostics.bench.statistics import LatencySummary, summarize
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.bench.clients import SCAN_SECONDS, ClientPart
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.core.effects import Effect, PutOut, RecordPart
from anoco_edge.line.core.events import Event, JudgeAnswer
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import StatusBit
from anoco_edge.machine import machine

PAUSE_MS = 20
BUSES = ("tcp", "modbus")
OUTPUT, CLIENT, DETECTOR = "line", "client", "detector"
MEANINGS = (
    "line: from the accepted trigger to the output word, beyond the time of the detector",
    "client: from sending the trigger to seeing the result, beyond the time of the detector",
)


@dataclass(frozen=True)
class LatencyRow:
    """What one time is, on which bus, and its distribution in milliseconds."""

    bus: str
    what: str
    parts: int
    milliseconds: LatencySummary


class LatencyDocument(TypedDict):
    """The figures as JSON."""

    rows: list[dict[str, object]]
    settings: dict[str, object]


@dataclass(frozen=True)
class LineBench:
    """The times of all parts that were measured, and what they depend on."""

    rows: tuple[LatencyRow, ...]
    settings: dict[str, object]

    @property
    def worst_p99(self) -> float:
        """The larger p99 of the two buses, from the accepted trigger to the output word."""
        return max(row.milliseconds.p99 for row in self.rows if row.what == OUTPUT)

    def to_dict(self) -> LatencyDocument:
        """Return the figures as JSON values."""
        return {"rows": [asdict(row) for row in self.rows], "settings": self.settings}


@dataclass
class _Times:
    """When things happened to a part, in nanoseconds."""

    accepted: int = 0
    put_out: int = 0
    detector: int = 0


class _MeasuredStation(LineServer):
    """A station that notes when results are put out; `parts` has the times by sequence number."""

    def __init__(self, config: StationConfig, base: Path, say: Callable[[str], None]) -> None:
        self.parts: dict[int, _Times] = {}
        self._detector: dict[str, int] = {}
        self._shown = 0
        super().__init__(config, base, say=say, watch=self._note_part)

    def post(self, event: Event) -> None:
        if isinstance(event, JudgeAnswer):
            self._detector[event.uid] = event.took
        super().post(event)

    def _carry_out_first(self, effect: Effect) -> None:
        super()._carry_out_first(effect)
        if isinstance(effect, PutOut) and effect.status.has(StatusBit.RESULT_VALID):
            seq = effect.status.result.seq
            if seq != self._shown:
                self._shown = seq
                self._times(seq).put_out = time.monotonic_ns()

    def _note_part(self, effect: Effect) -> None:
        if isinstance(effect, RecordPart):
            times = self._times(effect.record.seq)
            times.accepted = effect.record.trigger_at
            times.detector = self._detector.pop(effect.record.uid, 0)

    def _times(self, seq: int) -> _Times:
        return self.parts.setdefault(seq, _Times())


def station_config(
    bundle: Path, product: str | None, source: str, folder: str, *, page: bool = False
) -> StationConfig:
    """Return the configuration of a station with one camera, the two buses and perhaps a page."""
    capture: dict[str, object] = {"camera": "top", "bundle": str(bundle)}
    if product is not None:
        capture["product"] = product
    values = {
        "station": {"name": "bench", "folder": folder},
        "line": {
            "deadline_ms": 30_000,
            "acquire_ms": 10_000,
            "hold_ms": 10_000,
            "judge_hang_ms": 60_000,
            "alive_ms": 10_000,
            "fault_after": 1000,
        },
        "cameras": [{"name": "top", "source": source}],
        "products": [{"number": 1, "name": "part", "captures": [capture]}],
        **{bus: {"port": free_port()} for bus in BUSES},
        **({"page": {"port": free_port()}} if page else {}),
    }
    return StationConfig.model_validate(values)


def bench_line(
    config: StationConfig,
    base: Path,
    parts: int,
    warmup: int = 5,
    step: Callable[[str], None] = lambda _: None,
    beside: AbstractContextManager[object] | None = None,
) -> LineBench:
    """Run a station and its clients until `parts` parts were measured over each bus. What happens
    `beside` begins before the first part and ends after the last."""
    said: list[str] = []
    station = _MeasuredStation(config, base, said.append)
    station.start()
    try:
        with beside or nullcontext():
            seen = list(_run_clients(config, 2 * (parts + warmup), step))
    finally:
        station.stop()
    unjudged = [seq for seq, times in station.parts.items() if not times.detector]
    if unjudged:
        raise EnvironmentMissingError(
            f"{len(unjudged)} parts were not judged, the first was part {unjudged[0]}",
            hint=said[-1] if said else "run serve with a station.toml and look at its log",
        )
    rows = []
    for bus in BUSES:
        pairs = [(part, station.parts[part.seq]) for part in seen if part.bus == bus][warmup:]
        for what, times in (
            (OUTPUT, [t.put_out - t.accepted - t.detector for _, t in pairs]),
            (CLIENT, [part.received - part.sent - t.detector for part, t in pairs]),
            (DETECTOR, [t.detector for _, t in pairs]),
        ):
            rows.append(LatencyRow(bus, what, len(pairs), summarize([t / 1e6 for t in times])))
    facts: dict[str, object] = {
        "camera": config.cameras[0].source,
        "judge": station.judge.remarks[1][0],
        "pause between parts": f"{PAUSE_MS} ms",
        "scan of the Modbus client": f"{SCAN_SECONDS * 1e3:g} ms",
        **machine(),
    }
    return LineBench(tuple(rows), facts)


def _run_clients(
    config: StationConfig, parts: int, step: Callable[[str], None]
) -> Iterator[ClientPart]:
    ports = [str(bus.port) for bus in config.buses.values()]
    command = [sys.executable, "-m", "anoco_edge.line.bench.clients", *ports, str(parts)]
    clients = subprocess.Popen(
        [*command, str(PAUSE_MS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert clients.stdout is not None and clients.stderr is not None
    with clients:
        for line in clients.stdout:
            step("parts")
            yield ClientPart(**json.loads(line))
        words = clients.stderr.read().strip().splitlines()
    if clients.returncode:
        raise EnvironmentMissingError(
            f"the clients failed: {words[-1] if words else clients.returncode}",
            hint="run serve with a station.toml and look at its log",
        )
