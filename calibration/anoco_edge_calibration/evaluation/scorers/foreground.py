"""ANoCo on the part alone: patches of an empty background are neither in the bank nor scored.

What is background is decided by the first principal component of the references' patches, without
training: where a part lies on an empty background, this component tells one from the other. The
border of the references says which side is the background. A mask is used only where the two are
far apart and the border is background almost everywhere; a surface that fills the picture has no
background, and every patch of it is scored. So is every patch of a picture without a part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anoco_edge.images.preprocess import Mask
from anoco_edge.scoring import References, Scorer
from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.subspace import principal

BORDER = 0.9  # the least share of the references' border that is background where there is one
# The least share of the component's variance that lies between the two sides. It is 0.75 for values
# spread evenly; surfaces have 0.74 to 0.77, where the component tells the border from the middle
# (the backbone pads pictures with zeros), and parts on a background 0.82 to 0.89.
APART = 0.8


@dataclass(frozen=True)
class ForegroundModel:
    """A patch is part of the foreground if its projection exceeds the threshold."""

    direction: NDArray[np.float32]
    threshold: float

    def mask(self, features: Floats) -> Mask:
        """Return which patches are foreground; all of them where none would be."""
        inside: Mask = features.astype(np.float32, copy=False) @ self.direction > self.threshold
        return inside if inside.any() else np.ones_like(inside)


def find_foreground(features: Floats, border: Mask) -> ForegroundModel | None:
    """Tell the part from its background, or return None where there is no background.

    `border` marks the patches at the border of the references.

    >>> rng = np.random.default_rng(0)
    >>> patches = rng.normal(size=(100, 8)).astype(np.float32)
    >>> border = np.arange(100) < 30
    >>> find_foreground(patches, border) is None
    True
    >>> patches[60:] += 20  # the part
    >>> find_foreground(patches, border).mask(patches).nonzero()[0].tolist() == list(range(60, 100))
    True
    """
    _, components, _ = principal(features.astype(np.float32, copy=False))
    direction = components[:, 0].astype(np.float32)
    projected = (features.astype(np.float32, copy=False) @ direction).astype(np.float64)
    if not border.any():
        return None
    if projected[border].mean() > projected.mean():
        direction, projected = -direction, -projected
    threshold, apart = otsu(projected)
    if apart < APART or (projected[border] <= threshold).mean() < BORDER:
        return None
    return ForegroundModel(direction, threshold)


def otsu(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the threshold that leaves the most variance between its two sides, and its share.

    >>> threshold, share = otsu(np.array([0.0, 1.0, 9.0, 10.0]))
    >>> threshold, round(share, 3)
    (5.0, 0.988)
    """
    ordered = np.sort(values)
    total = ordered.sum()
    below = np.arange(1, ordered.size)
    low = np.cumsum(ordered)[:-1]
    between = (low * ordered.size - total * below) ** 2 / (below * (ordered.size - below))
    variance = ordered.size**2 * float(ordered.var())
    if not variance > 0:
        return float(ordered[0]), 0.0
    best = int(np.argmax(between))
    return float((ordered[best] + ordered[best + 1]) / 2), float(between[best] / variance)


class Foreground:
    """ANoCo's energy where the part is, and 0 elsewhere."""

    name = "anoco-foreground"

    def __init__(
        self, model: ForegroundModel | None, kept: NDArray[np.intp], anoco: Scorer
    ) -> None:
        """`anoco` scores with the bank's rows `kept` alone."""
        self._model = model
        self._kept = kept
        self._anoco = anoco

    def score(self, query: Floats) -> Scores:
        """Score each row of `query` that is foreground."""
        found = self._anoco.score(query)
        energy = found.energy
        if self._model is not None:
            energy = np.where(self._model.mask(query), energy, 0).astype(np.float32)
        return replace(found, energy=energy, anchor=self._kept[found.anchor])


def foreground_bank(
    cache: NeighborCache, bank: References
) -> tuple[ForegroundModel | None, NDArray[np.intp], References]:
    """Return the model of a bank, the rows of its foreground, and the bank of these rows."""
    model = cache.once("foreground", lambda: find_foreground(cache.features, cache.border))
    if model is None:
        return None, np.arange(len(bank.norms)), bank
    kept = np.flatnonzero(model.mask(cache.features))
    return model, kept, References(bank.features[kept], bank.norms[kept])
