"""Measures the extra memory of one score call, in a process of its own.

In the caller's process, arenas and buffers of the other scorers would hide what this one needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from anoco_edge.diagnostics.bench.features import Features
from anoco_edge.errors import AnocoError
from anoco_edge.machine import give_back_memory, peak_mb, reset_peak, resident_mb
from anoco_edge.scoring import References, open_scorer


def extra_memory_mb(scorer: str, query: Features, references: Features, threads: int) -> float:
    """Measure the megabytes that scoring one frame takes beside the loaded bank."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "query.npy"), query)
        np.save(Path(folder, "references.npy"), references)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"from {__name__} import main; main()",
                json.dumps([scorer, folder, threads]),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        return float(json.loads(done.stdout)["extra_mb"])
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise AnocoError(
            f"the memory of scorer {scorer} with {len(references)} references could not be "
            f"measured: {last}",
            hint="the machine may be too small for this size: try a smaller one",
        ) from None


def measure_here(scorer: str, query: Features, references: Features, threads: int) -> float:
    """Measure the same in this process, which must have scored nothing before."""
    bank, _ = References.of(references)
    opened = open_scorer(scorer, bank, threads=threads)
    opened.score(query[:1])
    give_back_memory()
    reset = reset_peak()
    before = resident_mb() if reset else peak_mb()
    opened.score(query)
    return max(0.0, peak_mb() - before)


def main() -> None:
    """Answer the request of `extra_memory_mb` on the command line, as JSON on stdout."""
    scorer, folder, threads = json.loads(sys.argv[1])
    query, references = (np.load(Path(folder, f"{name}.npy")) for name in ("query", "references"))
    sys.stdout.write(json.dumps({"extra_mb": measure_here(scorer, query, references, threads)}))
