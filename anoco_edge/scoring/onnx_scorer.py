"""The scoring graph run by ONNX Runtime, in row chunks so that memory stays within a budget."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import EngineError
from anoco_edge.machine import cores
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.scoring.types import Floats, Parameters, References, Scores, check_query

Rows = NDArray[np.intp]

MEMORY_MB = 96
"""Extra memory while scoring, beside the bank in float32."""

_WORTH_A_THREAD = 64  # query rows; fewer are not worth handing over

# More rows have more neighbours between them, so fewer references can be left out; fewer rows make
# the matrix products slow.
_MOST_ROWS = 128

_MANY = 32  # neighbours of one row; nine in ten rows of real features have fewer

# Matrices of chunk x bank, and of chunk x dim, that are alive at once, measured by peak memory.
_LIVE_BANK, _LIVE_DIM = 6, 12


@cache
def scoring_model(name: str = "scoring") -> bytes:
    """A graph this version ships: `scoring`, which bundles carry a copy of, or one of its halves.

    >>> len(scoring_model("retrieval")) < len(scoring_model())
    True
    """
    return resources.files("anoco_edge.scoring").joinpath(f"{name}.onnx").read_bytes()


@dataclass(frozen=True)
class _Part:
    """What one chunk gave: columns (which rows, energy, anchor, similarity, neighbours), the rows
    that have to wait, and the seconds of both halves."""

    columns: tuple[Any, ...]
    crowded: Rows
    seconds: tuple[float, float]


class OnnxScorer:
    """Exact in float32, whatever the number of neighbours.

    The two halves of the graph run one after the other; the references that are no neighbour of
    any patch of the chunk are left out of the second. Rows with many neighbours would spoil that
    for the others, so they wait and run together at the end, against the whole bank. Chunks run
    side by side, one thread each: while one multiplies matrices the other walks through memory.
    """

    name = "onnx"

    def __init__(
        self,
        bank: References,
        parameters: Parameters,
        *,
        threads: int = 0,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        self._workers = threads or cores()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="anoco-scorer")
        self._retrieval, self._solve = (
            open_session(scoring_model(half), f"the {half} graph", threads=1, patterns=False)
            for half in ("retrieval", "solve")
        )
        self._units = directions(bank)
        self._norms = bank.norms
        self._settings = {
            "lambda": np.array(parameters.lam, np.float32),
            "floor": np.array(parameters.floor, np.float32),
        }
        self._outputs = [parameters.metric, "similarity", "neighbors"]
        references, dim = self._units.shape
        # A row brings at most _MANY references into the second half, beside its anchor.
        row = 4 * (_LIVE_BANK * references + (_LIVE_DIM + _MANY) * dim) * self._workers
        self._rows = min(_MOST_ROWS, max(1, memory_mb * 1_000_000 // row))

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        check_query(query, self._units.shape[1])
        query = np.ascontiguousarray(query, dtype=np.float32)
        parts = self._run(query, np.arange(len(query)), late=False)
        crowded = np.concatenate([part.crowded for part in parts])
        if len(crowded):
            parts += self._run(query, crowded, late=True)
        columns = [np.concatenate(c) for c in zip(*(p.columns for p in parts), strict=True)]
        order = np.argsort(columns[0])
        energy, anchor, similarity, neighbors = (column[order] for column in columns[1:])
        seconds = np.sum([part.seconds for part in parts], axis=0)
        share = float(seconds[0] / seconds.sum())
        return Scores(energy, anchor, similarity, neighbors, retrieval=share)

    def chunks(self, patches: int) -> int:
        """Into how many chunks so many query patches are cut: as few as memory allows, but work
        for every thread."""
        fewest = -(-patches // self._rows)
        busy = min(self._workers, -(-patches // _WORTH_A_THREAD))
        return min(-(-fewest // busy) * busy, patches) if patches else 1

    def _run(self, query: NDArray[np.float32], rows: Rows, *, late: bool) -> list[_Part]:
        chunks = np.array_split(rows, self.chunks(len(rows)))
        return list(self._pool.map(lambda chunk: self._chunk(query, chunk, late), chunks))

    def _chunk(self, query: NDArray[np.float32], rows: Rows, late: bool) -> _Part:
        """Score these rows; those with many neighbours only when it is late, or most are such."""
        start = time.perf_counter()
        inputs = {"query": query[rows], "reference_units": self._units}
        s, t, s_best, anchor = _run(self._retrieval, None, inputs)
        near = s > t
        crowded = near.sum(axis=1) > _MANY
        if late or 2 * crowded.sum() > len(rows):
            crowded[:] = False
            bank = {"reference_units": self._units, "reference_norms": self._norms}
            found = {"s": s, "anchor": anchor}
        else:
            wanted = near[~crowded].any(axis=0)
            wanted[anchor[~crowded]] = True
            kept = np.flatnonzero(wanted)
            bank = {"reference_units": self._units[kept], "reference_norms": self._norms[kept]}
            found = {"s": s[~crowded][:, kept], "anchor": np.searchsorted(kept, anchor[~crowded])}
        retrieved = time.perf_counter()
        done = ~crowded
        energy, similarity, neighbors = _run(
            self._solve,
            self._outputs,
            {"query": query[rows[done]], "t": t[done], "s_best": s_best[done]}
            | bank
            | found
            | self._settings,
        )
        return _Part(
            (rows[done], energy, anchor[done], similarity, neighbors),
            rows[crowded],
            (retrieved - start, time.perf_counter() - retrieved),
        )


def _run(session: Any, outputs: list[str] | None, inputs: dict[str, Any]) -> list[Any]:
    try:
        found: list[Any] = session.run(outputs, inputs)
    except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
        raise EngineError(
            f"the onnx scorer failed: {str(error)[:400]}",
            hint="free memory, or use --scorer native",
        ) from None
    return found


def directions(bank: References) -> NDArray[np.float32]:
    """The references at length one, rounded once; float64 only in small pieces."""
    units = np.empty(bank.features.shape, np.float32)
    for start in range(0, len(units), 1024):
        rows = slice(start, start + 1024)
        block = bank.features[rows].astype(np.float64)
        units[rows] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return units
