"""Real features for the bench of scorers: a bundle's backbone on pictures, brought to any size."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anoco_edge.bundle import Bundle
from anoco_edge.diagnostics.bench.features import Features, Size
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.errors import UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import prepare

_SEED = 21


class RealFeatures:
    """Makes references from the first pictures, and queries evenly from those that follow.

    Queries of a wrong part come from pictures of their own, see `of_wrong_part`.

    Backbones with free weights have fewer features per patch than the 1024 of DINOv3-L. So a patch
    is joined with as many of its neighbors as fit, 3 x 3 or 5 x 5, and then mapped to the wanted
    dimension by a seeded matrix with orthonormal rows, which keeps every length and every angle.
    """

    def __init__(
        self,
        bundle: Bundle,
        pictures: Sequence[Path],
        engine: str = "auto",
        settings: EngineSettings | None = None,
    ) -> None:
        self._contract = bundle.manifest.input
        self._pictures = pictures
        self._engine = open_engine(engine, bundle, settings or EngineSettings())
        self._wrong: Sequence[Path] = ()
        self._grids: dict[Path, Features] = {}
        self._backbone = bundle.manifest.backbone.id

    def __call__(self, size: Size) -> tuple[Features, Features]:
        """Make queries and references of this size."""
        self.check(size)
        each, first, rest = self._split(size)
        # If there are many pictures, a few patches of each are enough.
        some = rest[:: max(1, len(rest) * each // (8 * size.queries))]
        references = self._patches(self._pictures[:first], size.dim)[: size.references]
        queries = self._patches(some, size.dim)
        chosen = np.linspace(0, len(queries) - 1, size.queries).astype(np.int64)
        return np.ascontiguousarray(queries[chosen]), np.ascontiguousarray(references)

    def check(self, size: Size) -> None:
        """Check that there are pictures enough for a size."""
        each, first, rest = self._split(size)
        if first > len(self._pictures) or size.queries > each * len(rest):
            whose = f", and {len(self._wrong)} of a wrong part," if self._wrong else ""
            raise UsageError(
                f"{len(self._pictures)} pictures{whose} of {each} patches are too few for {size}: "
                f"it takes {first} for references and {math.ceil(size.queries / each)} for queries",
                hint="give more `pictures`, or a smaller size",
            )
        self._beside(size.dim)

    def _split(self, size: Size) -> tuple[int, int, Sequence[Path]]:
        """Return the patches of a picture, how many pictures are references, and the others."""
        each = self._contract.rows * self._contract.cols
        first = math.ceil(size.references / each)
        return each, first, self._wrong or self._pictures[first:]

    def of_wrong_part(self, pictures: Sequence[Path]) -> RealFeatures:
        """Make features with the same references, and queries from pictures of another product."""
        wrong = copy.copy(self)
        wrong._wrong = pictures
        return wrong

    def describe(self, dim: int) -> str:
        """Say what a patch of `dim` features is made of."""
        beside, own = self._beside(dim), self._contract.dim
        width = beside * beside * own
        lifted = "" if width == dim else f", lifted to {dim}"
        whose = ", queries of another product" if self._wrong else ""
        patches = f"{beside} x {beside} patches of {own} side by side"
        return f"{self._backbone}, {patches}{lifted}{whose}"

    def _beside(self, dim: int) -> int:
        """Compute the side of the neighborhood: the largest odd one that fits."""
        fits = math.isqrt(dim // self._contract.dim)
        if fits < 1:
            raise UsageError(
                f"the backbone has {self._contract.dim} numbers per patch, more than {dim}",
                hint="give a larger size, or a bundle of a smaller backbone",
            )
        return fits - 1 + fits % 2

    def _patches(self, pictures: Sequence[Path], dim: int) -> Features:
        side = self._beside(dim)
        rows = np.concatenate([side_by_side(self._grid(path), side) for path in pictures])
        return rows if rows.shape[1] == dim else rows @ orthonormal(rows.shape[1], dim)

    def _grid(self, picture: Path) -> Features:
        if picture not in self._grids:
            pixels, _ = prepare(read_picture(picture), self._contract)
            features = self._engine.features(pixels[None])[0].astype(np.float32)
            shape = (self._contract.rows, self._contract.cols, -1)
            self._grids[picture] = features.reshape(shape)
        return self._grids[picture]


def side_by_side(grid: Features, side: int) -> Features:
    """Join each patch of a grid with its side x side neighborhood; the border is repeated.

    >>> side_by_side(np.arange(4, dtype=np.float32).reshape(2, 2, 1), 3)[0].tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 2.0, 2.0, 3.0]
    """
    rows, cols, dim = grid.shape
    around = side // 2
    wide = np.pad(grid, ((around, around), (around, around), (0, 0)), mode="edge")
    shifted = [wide[i : i + rows, j : j + cols] for i in range(side) for j in range(side)]
    return np.concatenate(shifted, axis=2).reshape(rows * cols, side * side * dim)


def orthonormal(rows: int, dim: int) -> Features:
    """Make `rows` orthonormal directions, the same ones each time.

    >>> basis = orthonormal(3, 5)
    >>> bool(np.allclose(basis @ basis.T, np.eye(3), atol=1e-6))
    True
    """
    noise = np.random.default_rng(_SEED).standard_normal((dim, rows))
    turned: Features = np.linalg.qr(noise)[0].T.astype(np.float32)
    return turned
