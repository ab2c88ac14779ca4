"""Figures of a running line for Prometheus, in its text format.

The thread of the core counts, after the outputs of an event were carried out. The text is written
in the thread of the client that asks for it, from a copy.
"""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anoco_edge import __version__
from anoco_edge.line.core.effects import Effect, PartRecord, RecordLate, RecordPart, ReplaceJudge
from anoco_edge.line.core.events import CameraDown, Event, Picture
from anoco_edge.line.core.settings import MS
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.constants import StatusBit

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper ends of the buckets of all times, in seconds."""

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # what is added to the name of the family, labels and value


@dataclass
class Histogram:
    """How many values lie below each bound, and their sum.

    >>> times = Histogram()
    >>> times.add(0.03); times.add(9.0)
    >>> times.counts[3], times.counts[-1], times.total
    (1, 1, 9.03)
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def samples(self) -> list[Sample]:
        """Return the samples of the histogram, whose buckets are cumulative."""
        found: list[Sample] = []
        below = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            below += count
            found.append(("_bucket", {"le": bound}, below))
        return [*found, ("_sum", {}, self.total), ("_count", {}, below)]


@dataclass
class _Figures:
    """Everything that is counted since the start of the station."""

    output: Histogram = field(default_factory=Histogram)
    reserve: Histogram = field(default_factory=Histogram)
    acquire: Histogram = field(default_factory=Histogram)
    no_verdict: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    pictures: Counter[str] = field(default_factory=Counter)
    incomplete: Counter[str] = field(default_factory=Counter)
    disconnected: Counter[str] = field(default_factory=Counter)
    late: int = 0
    judges_replaced: int = 0


@dataclass(frozen=True)
class Depths:
    """What waits now, by queue, and how many pictures were dropped because too many waited."""

    queues: Mapping[str, int]
    dropped: int


class LineMetrics:
    """Counts what happens to a line; `cameras` are the names of its cameras."""

    def __init__(self, station: str, deadline_ms: int, cameras: Iterable[str]) -> None:
        self._station, self._deadline = station, deadline_ms * MS
        self._cameras = tuple(cameras)
        self._figures = _Figures()
        self._lock = threading.Lock()

    def count(self, event: Event, effects: Iterable[Effect], now: int) -> None:
        """Count an event and its effects; `now` is when the outputs had been carried out."""
        with self._lock:
            figures = self._figures
            if isinstance(event, Picture):
                figures.pictures[event.camera] += 1
                figures.incomplete[event.camera] += not event.complete
            elif isinstance(event, CameraDown):
                figures.disconnected[event.camera] += 1
            for effect in effects:
                if isinstance(effect, RecordPart):
                    self._count_part(effect.record, now)
                elif isinstance(effect, RecordLate):
                    figures.late += 1
                elif isinstance(effect, ReplaceJudge):
                    figures.judges_replaced += 1

    def _count_part(self, record: PartRecord, now: int) -> None:
        figures = self._figures
        if not record.accepted:
            figures.refused[record.reason.name] += 1
            return
        figures.output.add((now - record.trigger_at) / 1e9)
        figures.reserve.add(max(record.trigger_at + self._deadline - now, 0) / 1e9)
        if all(capture.frame is not None for capture in record.captures):
            figures.acquire.add(record.acquire_ms / 1e3)
        if record.verdict == "no-verdict":
            figures.no_verdict[record.reason.name] += 1

    def text(self, status: Status, state: State, depths: Depths) -> str:
        """Return all figures in the text format of Prometheus."""
        with self._lock:
            figures = copy.deepcopy(self._figures)
        return _Page(self._station, self._cameras).write(figures, status, state, depths)


class _Page:
    def __init__(self, station: str, cameras: tuple[str, ...]) -> None:
        self._station, self._cameras = station, cameras
        self._lines: list[str] = []

    def write(self, figures: _Figures, status: Status, state: State, depths: Depths) -> str:
        counters = status.counters
        product = {
            "version": __version__,
            "product": str(status.product),
            "generation": str(status.generation),
            "settings_checksum": f"{status.checksum:04x}",
        }
        self._add("info", "gauge", "What runs.", [("", product, 1)])
        bits = [("", {"bit": bit.name or ""}, float(status.has(bit))) for bit in StatusBit]
        self._add("status", "gauge", "The bits of the status word.", bits)
        states = [("", {"state": each.value}, float(each is state)) for each in State]
        self._add("state", "gauge", "The state after OPC 40100-1.", states)
        self._one("heartbeat", "gauge", "The heartbeat, modulo 65536.", status.heartbeat)
        self._one("triggers_total", "counter", "All triggers.", counters.triggers)
        verdicts = {
            "good": counters.good,
            "anomalous": counters.fail,
            "no-verdict": counters.no_verdict,
        }
        self._by("parts_total", "Accepted parts by verdict.", "verdict", verdicts)
        self._one("missed_total", "counter", "Triggers that were refused.", counters.missed)
        words = "Parts without a verdict since the start, by reason."
        self._by("no_verdicts_total", words, "reason", figures.no_verdict)
        words = "Triggers that were refused since the start, by reason."
        self._by("refusals_total", words, "reason", figures.refused)
        words = "From the accepted trigger until the result was put out."
        self._add("output_seconds", "histogram", words, figures.output.samples())
        words = "What was left of the time until the deadline."
        self._add("reserve_seconds", "histogram", words, figures.reserve.samples())
        words = "From the accepted trigger until all pictures were there."
        self._add("acquire_seconds", "histogram", words, figures.acquire.samples())
        self._one("late_verdicts_total", "counter", "Verdicts after the outcome.", figures.late)
        words = "Judges that hung or crashed."
        self._one("judge_replacements_total", "counter", words, figures.judges_replaced)
        for name, meaning, found in (
            ("camera_pictures_total", "Pictures that arrived.", figures.pictures),
            ("camera_incomplete_total", "Pictures with lost parts.", figures.incomplete),
            ("camera_losses_total", "How often a camera was lost.", figures.disconnected),
        ):
            self._by(name, meaning, "camera", {each: found[each] for each in self._cameras})
        self._by("queue_depth", "What waits now.", "queue", depths.queues, "gauge")
        words = "Pictures that were not kept because too many waited."
        self._one("pictures_dropped_total", "counter", words, depths.dropped)
        return "\n".join(self._lines) + "\n"

    def _one(self, name: str, kind: str, meaning: str, value: float) -> None:
        self._add(name, kind, meaning, [("", {}, value)])

    def _by(
        self,
        name: str,
        meaning: str,
        label: str,
        values: Mapping[str, float],
        kind: str = "counter",
    ) -> None:
        samples = [("", {label: key}, value) for key, value in sorted(values.items())]
        self._add(name, kind, meaning, samples)

    def _add(self, name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> None:
        full = f"anoco_line_{name}"
        self._lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
        for suffix, labels, value in samples:
            pairs = {"station": self._station, **labels}
            inside = ",".join(f'{key}="{text}"' for key, text in pairs.items())
            self._lines.append(f"{full}{suffix}{{{inside}}} {value}")
