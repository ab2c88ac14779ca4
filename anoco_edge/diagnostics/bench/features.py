"""Synthetic features of any size to measure with; the same size gives the same features."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import UsageError

Features = NDArray[np.float32]
_CLUSTERS, _SPREAD, _OUTLIERS = 64, 0.6, 0.05
_REFERENCE_SHIFT, _QUERY_SHIFT = 3.0, 0.3
_SEED = 20


@dataclass(frozen=True)
class Size:
    """The size of a scoring problem: N_q queries against N_r references of d features."""

    queries: int
    references: int
    dim: int

    def __str__(self) -> str:
        return f"{self.queries}x{self.references}x{self.dim}"


FeatureSource = Callable[[Size], "tuple[Features, Features]"]
"""Makes queries and references of a size."""


def parse_sizes(text: str) -> list[Size]:
    """Read sizes of the form `NQxNRxD`, separated by commas.

    >>> [str(size) for size in parse_sizes("2304x9216x1024, 64X128x8")]
    ['2304x9216x1024', '64x128x8']
    """
    sizes = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})\s*", part.lower())
        if match is None:
            raise UsageError(
                f"{part.strip()!r} is not a size",
                hint="give queries x references x numbers per patch, such as 2304x9216x1024",
            )
        sizes.append(Size(*(int(number) for number in match.groups())))
    return sizes


def clustered(size: Size) -> tuple[Features, Features]:
    """Make 64 clusters like those of a part's patches; 1 query in 20 resembles nothing.

    >>> query, references = clustered(Size(20, 30, 4))
    >>> query.shape, references.shape, query.dtype
    ((20, 4), (30, 4), dtype('float32'))
    """
    rng = np.random.default_rng(_SEED)
    centers = _noise(rng, _CLUSTERS, size.dim)
    query, references = (
        centers[rng.integers(_CLUSTERS, size=n)] + np.float32(_SPREAD) * _noise(rng, n, size.dim)
        for n in (size.queries, size.references)
    )
    alien = rng.permutation(size.queries)[: round(_OUTLIERS * size.queries)]
    query[alien] = _noise(rng, len(alien), size.dim)
    return query, references


def isotropic(size: Size) -> tuple[Features, Features]:
    """Make noise that is equal in all directions, so that no reference can be left out early."""
    rng = np.random.default_rng(_SEED)
    return _noise(rng, size.queries, size.dim), _noise(rng, size.references, size.dim)


def all_neighbors(size: Size) -> tuple[Features, Features]:
    """Make references in one direction and queries far from it, so that all are neighbors."""
    query, references = isotropic(size)
    return query + np.float32(_QUERY_SHIFT), references + np.float32(_REFERENCE_SHIFT)


SYNTHETIC: dict[str, FeatureSource] = {
    "clustered": clustered,
    "isotropic": isotropic,
    "crowd": all_neighbors,
}
DESCRIPTIONS: dict[FeatureSource, str] = {
    clustered: "64 clusters as patches of a part form them; 1 query in 20 resembles nothing",
    isotropic: "Noise in all directions alike, in which no reference can be left out early",
    all_neighbors: "References in one direction, queries far from it: every reference is a "
    "neighbor of each",
}
"""What a report says of these features."""


def parse_features(
    text: str | None, real: FeatureSource | None = None, wrong_part: FeatureSource | None = None
) -> dict[str, FeatureSource]:
    """Read names of features, separated by commas; without any, all are taken.

    >>> list(parse_features("crowd, clustered"))
    ['crowd', 'clustered']
    """
    pictured = {"real": real, "wrong-part": wrong_part}
    known = {**SYNTHETIC, **{name: source for name, source in pictured.items() if source}}
    names = [name.strip() for name in (text or ",".join(known)).split(",") if name.strip()]
    for name in names:
        if name == "real" and real is None:
            raise UsageError(
                "real features come from pictures",
                hint="give a bundle and `pictures`: first those for references, then others",
            )
        if name == "wrong-part" and wrong_part is None:
            raise UsageError(
                "features of a wrong part come from pictures of another product",
                hint="give a bundle, `pictures` for references, and `wrong_pictures`",
            )
        if name not in known:
            raise UsageError(f"unknown features {name!r}", hint=f"use {', '.join(known)}")
    return {name: known[name] for name in names}


def _noise(rng: np.random.Generator, rows: int, dim: int) -> Features:
    return rng.standard_normal((rows, dim), dtype=np.float32)
