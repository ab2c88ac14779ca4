"""The scoring graph run by ONNX Runtime, in row chunks so that memory stays within a budget."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from anoco_edge.onnx_session import open_session
from anoco_edge.scoring.types import Floats, Parameters, References, Scores, check_query

MEMORY_MB = 160
"""Extra memory while scoring, beside the bank in float32."""

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
    """Exact in float32, three matrix products; the whole tail of neighbours is kept."""

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
        self._session = open_session(
            model or scoring_model(),
            "the scoring graph",
            threads=threads,
            patterns=False,
            profile=profile,
        )
        self._bank: dict[str, Any] = {
            "references": np.ascontiguousarray(bank.features, dtype=np.float32),
            "reference_norms": bank.norms,
            "lambda": np.array(parameters.lam, np.float32),
            "floor": np.array(parameters.floor, np.float32),
        }
        self._outputs = [parameters.metric, "anchor", "similarity", "neighbors"]
        row = 4 * len(bank.norms) * _LIVE_MATRICES
        self._rows = max(1, memory_mb * 1_000_000 // row)

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        check_query(query, self._bank["references"].shape[1])
        query = np.ascontiguousarray(query, dtype=np.float32)
        size = -(-len(query) // self.chunks(len(query))) or 1  # even: no small, slow last one
        parts = [
            self._session.run(self._outputs, {**self._bank, "query": query[i : i + size]})
            for i in range(0, max(len(query), 1), size)
        ]
        return Scores(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def chunks(self, patches: int) -> int:
        """How many runs of the graph so many query patches take."""
        return -(-patches // self._rows) or 1

    def end_profile(self) -> Path:
        """Stop the trace that `profile` asked for, and say where it is."""
        return Path(self._session.end_profiling())
