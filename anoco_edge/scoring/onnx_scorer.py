"""Runs the scoring graph in ONNX Runtime, some rows at a time so that memory is limited."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from anoco_edge.scoring.types import (
    Floats,
    Parameters,
    References,
    ScorerOptions,
    Scores,
    check_query,
)

Rows = NDArray[np.intp]

MEMORY_MB = 96
"""Megabytes that scoring takes beside the bank in float32."""

_MIN_THREAD_ROWS = 64  # fewer query rows are not worth a thread of their own

# Rows of a chunk. More rows have more neighbors together, so that fewer references can be left out;
# fewer rows make the matrix products slow.
_MAX_ROWS = 128

_MANY_NEIGHBORS = 32  # nine in ten rows of real features have fewer neighbors

# How many matrices of chunk x bank and of chunk x dim are alive at once; from measured peaks.
_LIVE_BANK, _LIVE_DIM = 6, 12


@cache
def scoring_model(name: str = "scoring") -> bytes:
    """Read a graph of this package: `scoring`, which bundles hold a copy of, or one of its halves.

    >>> len(scoring_model("retrieval")) < len(scoring_model())
    True
    """
    return resources.files("anoco_edge.scoring").joinpath(f"{name}.onnx").read_bytes()


def open_scorer(bank: References, parameters: Parameters, options: ScorerOptions) -> OnnxScorer:
    """Make a scorer for one bank."""
    budget = MEMORY_MB if options.memory_mb is None else options.memory_mb
    return OnnxScorer(bank, parameters, threads=options.threads, memory_mb=budget)


@dataclass(frozen=True)
class _ChunkScores:
    """The scores of a chunk as columns: rows, energy, anchor, similarity, neighbors.

    `deferred` are rows with many neighbors, which are scored later. `seconds` are those of the two
    halves of the graph.
    """

    columns: tuple[Any, ...]
    deferred: Rows
    seconds: tuple[float, float]


class OnnxScorer:
    """Scores exactly in float32, with any number of neighbors.

    The two halves of the graph run one after the other. References that are no neighbor of any
    patch of the chunk are left out of the second half. Rows with many neighbors would keep most
    references in, so they are deferred: they run together at the end, against the whole bank.
    Chunks run in parallel, one thread each: while one multiplies matrices, another reads memory.
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
        # A row brings at most _MANY_NEIGHBORS references, beside its anchor, into the second half.
        row = 4 * (_LIVE_BANK * references + (_LIVE_DIM + _MANY_NEIGHBORS) * dim) * self._workers
        self._rows = min(_MAX_ROWS, max(1, memory_mb * 1_000_000 // row))

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        check_query(query, self._units.shape[1])
        query = np.ascontiguousarray(query, dtype=np.float32)
        parts = self._run(query, np.arange(len(query)), late=False)
        deferred = np.concatenate([part.deferred for part in parts])
        if len(deferred):
            parts += self._run(query, deferred, late=True)
        columns = [np.concatenate(c) for c in zip(*(p.columns for p in parts), strict=True)]
        order = np.argsort(columns[0])
        energy, anchor, similarity, neighbors = (column[order] for column in columns[1:])
        seconds = np.sum([part.seconds for part in parts], axis=0)
        share = float(seconds[0] / seconds.sum())
        return Scores(energy, anchor, similarity, neighbors, retrieval=share)

    def chunks(self, patches: int) -> int:
        """Compute into how many chunks query patches are cut.

        It is the least number that memory allows and that gives every thread work.
        """
        fewest = -(-patches // self._rows)
        busy = min(self._workers, -(-patches // _MIN_THREAD_ROWS))
        return min(-(-fewest // busy) * busy, patches) if patches else 1

    def _run(self, query: NDArray[np.float32], rows: Rows, *, late: bool) -> list[_ChunkScores]:
        chunks = np.array_split(rows, self.chunks(len(rows)))
        return list(self._pool.map(lambda chunk: self._chunk(query, chunk, late), chunks))

    def _chunk(self, query: NDArray[np.float32], rows: Rows, late: bool) -> _ChunkScores:
        """Score these rows; those with many neighbors only if `late` is set, or if most have."""
        start = time.perf_counter()
        inputs = {"query": query[rows], "reference_units": self._units}
        s, t, s_best, anchor = _run(self._retrieval, None, inputs)
        near = s > t
        deferred = near.sum(axis=1) > _MANY_NEIGHBORS
        if late or 2 * deferred.sum() > len(rows):
            deferred[:] = False
            bank = {"reference_units": self._units, "reference_norms": self._norms}
            found = {"s": s, "anchor": anchor}
        else:
            wanted = near[~deferred].any(axis=0)
            wanted[anchor[~deferred]] = True
            kept = np.flatnonzero(wanted)
            bank = {"reference_units": self._units[kept], "reference_norms": self._norms[kept]}
            found = {"s": s[~deferred][:, kept], "anchor": np.searchsorted(kept, anchor[~deferred])}
        retrieved = time.perf_counter()
        done = ~deferred
        energy, similarity, neighbors = _run(
            self._solve,
            self._outputs,
            {"query": query[rows[done]], "t": t[done], "s_best": s_best[done]}
            | bank
            | found
            | self._settings,
        )
        return _ChunkScores(
            (rows[done], energy, anchor[done], similarity, neighbors),
            rows[deferred],
            (retrieved - start, time.perf_counter() - retrieved),
        )


def _run(session: Any, outputs: list[str] | None, inputs: Mapping[str, NDArray[Any]]) -> list[Any]:
    try:
        found: list[Any] = session.run(outputs, inputs)
    except Exception as error:  # noqa: BLE001 (the binding's exceptions have no public base)
        raise EngineError(
            f"the onnx scorer failed: {str(error)[:400]}",
            hint="free memory, or use `scorer='native'`",
        ) from None
    return found


def directions(bank: References) -> NDArray[np.float32]:
    """Scale the references to length one, rounded once; float64 is used in small pieces."""
    units = np.empty(bank.features.shape, np.float32)
    for start in range(0, len(units), 1024):
        rows = slice(start, start + 1024)
        block = bank.features[rows].astype(np.float64)
        units[rows] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return units
