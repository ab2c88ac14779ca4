"""Made-up features of any size, the same ones for the same size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError

Data = Literal["clustered", "isotropic"]
DATA: tuple[str, ...] = get_args(Data)
_CLUSTERS, _SPREAD, _OUTLIERS = 64, 0.6, 0.05
_SEED = 20


@dataclass(frozen=True)
class Size:
    """N_q queries against N_r references of d numbers."""

    queries: int
    references: int
    dim: int

    def __str__(self) -> str:
        return f"{self.queries}x{self.references}x{self.dim}"


def parse_sizes(text: str) -> list[Size]:
    """`NQxNRxD`, several with commas.

    >>> [str(size) for size in parse_sizes("2304x9216x1024, 64X128x8")]
    ['2304x9216x1024', '64x128x8']
    """
    sizes = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})\s*", part.lower())
        if match is None:
            raise UsageError(
                f"{part.strip()!r} is not a size",
                hint="give queries x references x numbers a patch, such as 2304x9216x1024",
            )
        sizes.append(Size(*(int(number) for number in match.groups())))
    return sizes


def make_features(size: Size, data: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Queries and references. `clustered` resembles real patches, and 1 query in 20 nothing.

    >>> query, references = make_features(Size(20, 30, 4), "clustered")
    >>> query.shape, references.shape, query.dtype
    ((20, 4), (30, 4), dtype('float32'))
    """
    if data not in DATA:
        raise UsageError(f"unknown data {data!r}", hint=f"use {' or '.join(DATA)}")
    rng = np.random.default_rng(_SEED)
    if data == "isotropic":
        return _noise(rng, size.queries, size.dim), _noise(rng, size.references, size.dim)
    centres = _noise(rng, _CLUSTERS, size.dim)
    query, references = (
        centres[rng.integers(_CLUSTERS, size=n)] + np.float32(_SPREAD) * _noise(rng, n, size.dim)
        for n in (size.queries, size.references)
    )
    alien = rng.permutation(size.queries)[: round(_OUTLIERS * size.queries)]
    query[alien] = _noise(rng, len(alien), size.dim)
    return query, references


def _noise(rng: np.random.Generator, rows: int, dim: int) -> NDArray[np.float32]:
    return rng.standard_normal((rows, dim), dtype=np.float32)
