"""Runs one soak: starts the station, the PLC, the faults and the sink, and checks the end."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from paths import PACKAGES, SUPPORT, python_path

from tests.soak import checks
from tests.soak.checks import Outcome
from tests.soak.faults import Faults, Sink
from tests.soak.material import Material, make_material
from tests.soak.memory import FEWEST_PARTS, RISE_MB, SHORTEST_SECONDS, MemoryLog, over_time, rise
from tests.soak.plc import Plc
from tests.soak.station import EXPOSURES

OUTBOX_PATIENCE = 300.0


@dataclass(frozen=True)
class SoakPlan:
    """How many parts, for how long at most, and how many seconds lie between two faults."""

    folder: Path
    parts: int
    seconds: float
    seed: int = 0
    pause: float = 3.0


@dataclass(frozen=True)
class SoakReport:
    """What happened and what was checked."""

    seconds: float
    happened: dict[str, int]
    verdicts: dict[str, int]
    memory: dict[str, list[float]]
    outcomes: tuple[Outcome, ...]

    @property
    def held(self) -> bool:
        """Whether nothing was broken."""
        return not any(outcome.broken for outcome in self.outcomes)


def soak(plan: SoakPlan) -> SoakReport:
    """Run a station under faults, and check it."""
    material = make_material(plan.folder)
    sink = Sink(material.hook)
    environment = {**os.environ, "PYTHONPATH": python_path(*PACKAGES, SUPPORT)}
    station = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.station", str(material.config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert station.stdout is not None and station.stdout.readline() == "started\n"
        faults = Faults(station, material, sink, seed=plan.seed, pause=plan.pause)
        memory = MemoryLog(station.pid)
        plc = Plc(material, plan.seed)
        began = time.monotonic()
        faults.start()
        memory.start()
        plc.run(plan.parts, began + plan.seconds)
        seconds = time.monotonic() - began
        memory.end()
        faults.end()
        plc.wait_until_ready()  # parts of clients that were dropped are decided too
        plc.close()
        _wait_for_outbox(material)
        assert station.stdin is not None
        station.stdin.close()
        code = station.wait(60)
    finally:
        station.kill()
        station.wait()
        sink.shutdown()
        sink.server_close()
    outcomes = (*_outcomes(material, plc, faults, sink), _ends_well(code, plc))
    rows = checks.read_rows(material.folder / "store")
    usual = {"line": over_time(memory.station), "judge": over_time(memory.judge)}
    return SoakReport(
        seconds,
        {**plc.done, **faults.done},
        dict(Counter(row.verdict or "" for row in rows if row.accepted)),
        usual,
        (*outcomes, memory_is_flat(usual, seconds, len(plc.sent))),
    )


def _wait_for_outbox(material: Material) -> None:
    end = time.monotonic() + OUTBOX_PATIENCE
    query = "SELECT count(*) FROM part WHERE verdict IS NULL"
    unsent = "SELECT count(*) FROM outbox WHERE sent = 0"
    time.sleep(0.5)  # the rows of the last parts are committed
    with closing(sqlite3.connect(material.folder / "store" / "line.db", timeout=10)) as data:
        while time.monotonic() < end:
            if not any(data.execute(text).fetchone()[0] for text in (query, unsent)):
                return
            time.sleep(0.5)


def _outcomes(material: Material, plc: Plc, faults: Faults, sink: Sink) -> tuple[Outcome, ...]:
    store = material.folder / "store"
    rows = checks.read_rows(store)
    exposures = checks.read_exposures(material.folder / EXPOSURES)
    return (
        checks.check_outcomes(plc.sent, rows),
        checks.check_answers(plc.sent, rows),
        checks.check_good(plc.sent, rows, material, exposures, faults.stops),
        checks.check_opinions(rows, material),
        checks.check_counters(rows, plc.counters, store),
        checks.check_outbox(rows, sink.got, store),
    )


def _ends_well(code: int, plc: Plc) -> Outcome:
    broken = list(plc.errors) + ([f"the station ended with {code}"] if code else [])
    return Outcome("the PLC was served", len(plc.sent), tuple(broken))


def memory_is_flat(usual: dict[str, list[float]], seconds: float, parts: int) -> Outcome:
    """Memory is flat by the rule of `tests.soak.memory`; a short run is not judged."""
    if seconds < SHORTEST_SECONDS or parts < FEWEST_PARTS:
        return Outcome("memory is flat", 0)
    broken = [
        f"{name} took {rise(sizes):.1f} MB more in the last third than in the second"
        for name, sizes in usual.items()
        if rise(sizes) > RISE_MB
    ]
    return Outcome("memory is flat", len(usual), tuple(broken))
