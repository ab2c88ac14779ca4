"""Scores features that you bring: once, or many times against the same references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from anoco_edge.errors import UsageError
from anoco_edge.scoring.device_array import DeviceArray, OnDevice, device_array, on_device
from anoco_edge.scoring.registry import open_scorer
from anoco_edge.scoring.types import (
    DeviceScorer,
    Floats,
    Metric,
    Parameters,
    References,
    Scorer,
    Scores,
)


class PatchScorer:
    """Scores query patches against one set of reference patches, again and again.

    Use it where many pictures are scored against the same references: it is prepared once, which
    at 2304 references takes as long as scoring three to five pictures, and then takes a half to two
    thirds of the time of `score_patches`, if references form clusters as those of parts do. For a
    single picture `score_patches` is faster.

    `references` are raw features, one row per patch; those of zero norm are left out, and `anchor`
    counts all rows. `scorer` is a name of `SCORERS` or "auto". `threads` (0: all cores) and
    `memory_mb` limit what it takes. `half` says that queries are computed in FP16, which the cuda
    scorer uses. `once` leaves out the preparation that pays only if many pictures are scored.

    >>> scorer = PatchScorer([[1.0, 0.0], [1.0, 0.1]], scorer="reference")
    >>> for query in ([[1.0, 0.0]], [[0.0, 2.0]]):
    ...     print(scorer.score(query).anchor.tolist())
    [0]
    [1]
    """

    def __init__(
        self,
        references: ArrayLike,
        lam: float = 1.0,
        metric: Metric = "product",
        scorer: str = "auto",
        *,
        floor: float = 0.05,
        threads: int = 0,
        memory_mb: int | None = None,
        half: bool = False,
        once: bool = False,
    ) -> None:
        bank, self._kept = References.of(_features(references))
        self._scorer: Scorer = open_scorer(
            scorer,
            bank,
            Parameters(lam=lam, metric=metric, floor=floor),
            threads=threads,
            memory_mb=memory_mb,
            half=half,
            once=once,
        )

    @property
    def name(self) -> str:
        """The name of the scorer that runs."""
        return self._scorer.name

    def score(self, query: ArrayLike | OnDevice) -> Scores:
        """Score query patches, which are raw features, one row per patch.

        With scorer="cuda" the query may be an array on the GPU (of torch, cupy, ...), and stays
        there.

        >>> scores = PatchScorer([[1.0, 0.0]], scorer="reference").score([[1.0, 0.0], [0.0, 2.0]])
        >>> bool(scores.energy[1] > scores.energy[0])
        True
        """
        rows = _rows(query)
        if isinstance(self._scorer, DeviceScorer):
            scores = self._scorer.score(rows)
        elif isinstance(rows, DeviceArray):
            raise UsageError(
                f"the query lies on a GPU, where the scorer {self.name} does not reach",
                hint='use scorer="cuda", or copy it first: .cpu().numpy() in torch, .get() in cupy',
            )
        else:
            scores = self._scorer.score(rows)
        return replace(scores, anchor=self._kept[scores.anchor])


def score_patches(
    query: ArrayLike | OnDevice,
    references: ArrayLike,
    lam: float = 1.0,
    metric: Metric = "product",
    scorer: str = "auto",
    *,
    floor: float = 0.05,
) -> Scores:
    """Score query patches against reference patches once; `PatchScorer` is for many times.

    Both are raw features, one row per patch. Reference patches of zero norm are left out; `anchor`
    counts rows of `references`. With scorer="cuda" the query may be an array on the GPU (of torch,
    cupy, ...), and stays there.

    >>> s = score_patches([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 0.1]], scorer="reference")
    >>> s.anchor.tolist(), bool(s.energy[1] > s.energy[0])
    ([0, 1], True)
    """
    rows = _rows(query)
    half = rows.dtype == np.float16
    opened = PatchScorer(references, lam, metric, scorer, floor=floor, half=half, once=True)
    return opened.score(rows)


def _rows(query: ArrayLike | OnDevice) -> Floats | DeviceArray:
    if isinstance(query, DeviceArray):
        return query
    return device_array(query) if on_device(query) else _features(query)


def _features(values: ArrayLike | OnDevice) -> Floats:
    array = np.asarray(values)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
