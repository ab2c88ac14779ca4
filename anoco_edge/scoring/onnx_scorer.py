"""The scoring graph run by ONNX Runtime, in row chunks so that memory stays within a budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.machine import cores
from anoco_edge.onnx_session import open_session
from anoco_edge.scoring.types import Floats, Parameters, References, Scores, check_query

MEMORY_MB = 160
"""Extra memory while scoring, beside the bank in float32."""

_WORTH_A_THREAD = 64  # query rows; fewer are not worth handing over

# Matrices of chunk x bank that are alive at once in the graph, measured (peak memory over one).
_LIVE_MATRICES = 5


@cache
def scoring_model() -> bytes:
    """The scoring graph this version ships; bundles carry a copy.

    >>> scoring_model()[:1] != b""
    True
    """
    return resources.files("anoco_edge.scoring").joinpath("scoring.onnx").read_bytes()


class OnnxScorer:
    """Exact in float32, three matrix products; the whole tail of neighbours is kept.

    Chunks of query rows run side by side, one thread each: while one multiplies matrices the other
    walks through memory, and neither waits for the other (7 % less time than chunks in a row).
    """

    name = "onnx"

    def __init__(
        self,
        bank: References,
        parameters: Parameters,
        *,
        model: bytes | None = None,
        threads: int = 0,
        memory_mb: int = MEMORY_MB,
        profile: Path | None = None,
    ) -> None:
        threads = threads or cores()
        # A trace of runs side by side cannot be told apart, so then they come one after another.
        self._workers = 1 if profile else threads
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="anoco-scorer")
        self._session = open_session(
            model or scoring_model(),
            "the scoring graph",
            threads=threads // self._workers,
            patterns=False,
            profile=profile,
        )
        self._bank: dict[str, Any] = {
            "reference_units": _directions(bank),
            "reference_norms": bank.norms,
            "lambda": np.array(parameters.lam, np.float32),
            "floor": np.array(parameters.floor, np.float32),
        }
        self._outputs = [parameters.metric, "anchor", "similarity", "neighbors"]
        row = 4 * len(bank.norms) * _LIVE_MATRICES * self._workers
        self._rows = max(1, memory_mb * 1_000_000 // row)

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        check_query(query, self._bank["reference_units"].shape[1])
        query = np.ascontiguousarray(query, dtype=np.float32)
        parts = list(self._pool.map(self._run, np.array_split(query, self.chunks(len(query)))))
        return Scores(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _run(self, query: NDArray[np.float32]) -> Any:
        return self._session.run(self._outputs, {**self._bank, "query": query})

    def chunks(self, patches: int) -> int:
        """How many runs of the graph so many query patches take: as few as memory allows, but
        work for every thread."""
        fewest = -(-patches // self._rows)
        busy = min(self._workers, -(-patches // _WORTH_A_THREAD))
        return min(-(-fewest // busy) * busy, patches) if patches else 1

    def end_profile(self) -> Path:
        """Stop the trace that `profile` asked for, and say where it is."""
        return Path(self._session.end_profiling())


def _directions(bank: References) -> NDArray[np.float32]:
    """The references at length one, rounded once; float64 only in small pieces."""
    units = np.empty(bank.features.shape, np.float32)
    for start in range(0, len(units), 1024):
        rows = slice(start, start + 1024)
        block = bank.features[rows].astype(np.float64)
        units[rows] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return units
