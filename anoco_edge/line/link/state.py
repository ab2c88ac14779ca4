"""The state of a line as its station shows it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict

from anoco_edge.line.buses.json_messages import bit_names
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.core.line_core import LineCore
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.link.messages import CameraState, CounterState, LineState, ProductState
from anoco_edge.text.address import mask_address

PACE_SECONDS = 60.0


class LinkState:
    """Reads what the core shows, from the thread of the link; the core does nothing for it."""

    def __init__(self, config: StationConfig, core: LineCore) -> None:
        self._core = core
        self._name, self._deadline = config.station.name, config.line.deadline_ms
        self._products = {product.number: product.name for product in config.products}
        self._sources = {each.name: mask_address(each.source) for each in config.cameras}
        self._pace = Pace()

    def message(self, status: Status) -> LineState:
        """Return the state with the status that was put out last."""
        counters, connected = status.counters, self._core.connected_cameras
        judged = counters.good + counters.fail + counters.no_verdict
        return LineState(
            name=self._name,
            state=self._core.state.value,
            bits=bit_names(status),
            words=status.words(),
            product=ProductState(
                number=status.product,
                name=self._products.get(status.product, ""),
                generation=status.generation,
            ),
            counters=CounterState(**asdict(counters)),
            yield_=round(counters.good / judged, 6) if judged else None,
            pace_per_minute=self._pace.per_minute(counters, time.monotonic()),
            deadline_ms=self._deadline,
            reserve_ms=status.result.reserve_ms,
            warnings=sorted(self._core.warnings),
            cameras=[
                CameraState(name=name, source=source, up=name in connected)
                for name, source in self._sources.items()
            ],
        )


class Pace:
    """How many parts a minute the line decided, over the last minute.

    >>> pace = Pace()
    >>> pace.per_minute(Counters(), 0.0), pace.per_minute(Counters(good=10), 30.0)
    (0.0, 20.0)
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def per_minute(self, counters: Counters, now: float) -> float:
        """Return the pace; called a few times a second."""
        decided = counters.good + counters.fail + counters.no_verdict
        if not self._seen or now - self._seen[-1][0] >= 1.0:
            self._seen.append((now, decided))
        while len(self._seen) > 2 and self._seen[1][0] <= now - PACE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return round((decided - before) * 60 / (now - began), 1) if now > began else 0.0
