"""Makes rows of results.jsonl for tests that need no inspection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anoco_edge.images.frame import Frame
from anoco_edge.results.rows import EvidenceRow, RegionRow, ResultRow

EVIDENCE = EvidenceRow((1, 2), (0, 0, 9, 9), "good/001.png", (1, 2), (0, 0, 9, 9), 0.8)
REGION = RegionRow((1, 2, 3, 4), 9.0, 2.0, (1, 2))


def result_row(number: int, score: float = 0.5, verdict: str = "good", **more: Any) -> ResultRow:
    """Return the row of part `number`, with a threshold of 1; `more` replaces fields."""
    row = ResultRow(
        id=number,
        source=f"part{number}.png",
        product="nut",
        generation=1,
        score=score,
        threshold=1.0,
        threshold_kind="manual",
        ratio=score,
        verdict=verdict,  # type: ignore[arg-type]
        regions=(REGION,) if verdict == "anomalous" else (),
        evidence=EVIDENCE,
        timings={"backbone": 8.0, "total": 10.0 * number},
    )
    return replace(row, **more)


def frame(source: str = "part.png", rgb: np.ndarray | None = None) -> Frame:
    """Return a frame with these pixels, or with a black picture."""
    return Frame(source, 0, np.zeros((20, 30, 3), np.uint8) if rgb is None else rgb, None, 0.0, 0.0)
