"""WinCLIP (Jeong et al., CVPR 2023), and WinCLIP with ANoCo (supplement S6 of ANoCo's paper).

CLIP compares windows of the picture with prompts about a good and a damaged object, and with the
windows of the references. With f the embedding of a window, g+ and g- those of the prompts, the
prompts' score of the window is

    a(f) = exp(cos(f, g-) / T) / (exp(cos(f, g+) / T) + exp(cos(f, g-) / T)),

and its score by association is half of 1 - cos(f, r) with the nearest reference window r of the
same scale. A patch gets the harmonic mean of the windows that cover it. The maps of all scales are
joined: those of the prompts, and a(picture) as the largest scale, by their harmonic mean, those of
association, and that of the patches themselves, by their mean. The energy of a patch is the mean of
both maps. The score of the picture is the mean of a(picture) and the largest association.

`winclip-anoco` replaces the nearest reference by where ANoCo moves the window: the association is
half of 1 - cos(f, f~), with f~ the minimum of ANoCo's energy on the bank of this scale. That is the
`cosine` metric of ANoCo, which alone has the range of WinCLIP's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring import Parameters, References, open_scorer
from anoco_edge.scoring.types import Floats, Scores
from anoco_edge_calibration.evaluation.prompts import WindowLayout
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache
from anoco_edge_calibration.evaluation.scorers.search import Indices, Search, unit_rows

Doubles = NDArray[np.float64]

TEMPERATURE = 0.07  # where CLIP's training begins; the paper of WinCLIP gives none


@dataclass(frozen=True)
class WindowBank:
    """What WinCLIP needs beside the bank's features.

    `row` and `col` are the places of the bank's patches, `text` holds the features of the prompts
    about a good and a damaged object.
    """

    layout: WindowLayout
    text: NDArray[np.float32]
    row: NDArray[np.int16]
    col: NDArray[np.int16]


@dataclass(frozen=True)
class Associated:
    """How far each row is from the references, from 0 to 1, and the row of the bank it is nearest
    to."""

    score: Doubles
    anchor: Indices
    similarity: Floats


class Association(Protocol):
    """Compares rows with the references of one scale."""

    def __call__(self, rows: Floats) -> Associated: ...


class WinClip:
    """Prompts and reference windows, each with half the weight."""

    def __init__(
        self,
        cache: NeighborCache,
        temperature: float = TEMPERATURE,
        anoco: Parameters | None = None,
    ) -> None:
        """With `anoco`, the parameters of ANoCo, its energy replaces the nearest reference."""
        check_temperature(temperature)
        if cache.windows is None:
            raise UsageError(
                "WinCLIP needs windows and prompts", hint="use a bundle of winclip-b-plus"
            )
        self.name = "winclip" if anoco is None else "winclip-anoco"
        self._cache = cache
        self._bank = cache.windows
        self._temperature = temperature
        self._anoco = anoco
        self._key = f"{self.name} {anoco}"
        self._associations = cache.once(self._key, self._make_associations)

    def score(self, query: Floats) -> Scores:
        """Score the patches of one whole picture, row by row of its grid."""
        layout = self._bank.layout
        if len(query) != layout.rows * layout.cols:
            raise ScoringError(
                f"WinCLIP scores pictures of {layout.rows}x{layout.cols} patches, and "
                f"{len(query)} patches were given",
                hint="leave out region, mask, tiles and letterbox",
            )
        grid, nearest = self._cache.latest(self._key, query, lambda: self._associate(query))
        whole = float(self._prompted(layout.picture(query))[0])
        maps = [np.full((layout.rows, layout.cols), whole)]
        for scale in layout.scales:
            windows = _upper_left(layout, layout.windows(query, scale), scale)
            maps.append(spread(self._prompted(windows), layout, scale))
        energy = (harmonic_mean(maps) + grid) / 2
        return Scores(
            energy=energy.reshape(-1).astype(np.float32),
            anchor=nearest.anchor,
            similarity=nearest.similarity,
            neighbors=np.ones(len(query), np.int64),
            picture=float((whole + grid.max()) / 2),
        )

    def _prompted(self, rows: Floats) -> Doubles:
        """Return how much more rows resemble a damaged object than a good one, from 0 to 1."""
        good, damaged = (unit_rows(rows).astype(np.float64) @ self._bank.text.T).T
        with np.errstate(over="ignore"):  # the score is 0 where the exponential is infinite
            return np.asarray(1 / (1 + np.exp((good - damaged) / self._temperature)))

    def _associate(self, query: Floats) -> tuple[Doubles, Associated]:
        layout = self._bank.layout
        patches, *windows = self._associations
        nearest = patches(layout.patches(query))
        maps = [nearest.score.reshape(layout.rows, layout.cols)]
        for scale, association in zip(layout.scales, windows, strict=True):
            rows = _upper_left(layout, layout.windows(query, scale), scale)
            maps.append(spread(association(rows).score, layout, scale))
        return np.mean(maps, axis=0), nearest

    def _make_associations(self) -> list[Association]:
        layout, features = self._bank.layout, self._cache.features
        parts = [layout.patches(features)]
        for scale in layout.scales:
            complete = complete_windows(self._cache.pictures, self._bank, scale)
            if not complete.any():
                raise ScoringError(
                    f"the bank holds no complete window of {scale}x{scale} patches",
                    hint="teach whole pictures: leave out `max_patches`, region and mask",
                )
            parts.append(layout.windows(features, scale)[complete])
        if self._anoco is None:
            return [_Nearest(part) for part in parts]
        return [_Conforming(part, self._anoco) for part in parts]


class _Nearest:
    """Half of 1 - cosine to the nearest reference."""

    def __init__(self, references: Floats) -> None:
        self._search = Search(unit_rows(references))

    def __call__(self, rows: Floats) -> Associated:
        anchor, squared = self._search.nearest(unit_rows(rows))
        # 1 - cos(u, v) = |u - v|^2 / 2 for unit vectors, which does not cancel.
        return Associated(squared / 4, anchor, (1 - squared / 2).astype(np.float32))


class _Conforming:
    """Half of 1 - cosine to where ANoCo moves the row."""

    def __init__(self, references: Floats, parameters: Parameters) -> None:
        bank, kept = References.of(np.ascontiguousarray(references))
        self._kept = kept
        self._scorer = open_scorer("auto", bank, parameters)

    def __call__(self, rows: Floats) -> Associated:
        found = self._scorer.score(np.ascontiguousarray(rows))
        energy = found.energy.astype(np.float64)
        return Associated(energy / 2, self._kept[found.anchor], found.similarity)


def check_temperature(temperature: float) -> None:
    """Raise UsageError unless cosines can be divided by this temperature."""
    if not 1e-4 <= temperature <= 1e4:
        raise UsageError(
            f"temperature is {temperature}", hint="it must be a number from 0.0001 to 10000"
        )


def complete_windows(
    pictures: NDArray[np.integer[Any]], bank: WindowBank, scale: int
) -> NDArray[np.bool_]:
    """Say for each patch of the bank whether all patches of its window are in the bank too.

    A patch that touches fill or lies under a mask is not in the bank, and a window with such a
    patch is no reference.
    """
    _, number = np.unique(pictures, return_inverse=True)
    layout = bank.layout
    shape = (int(number.max()) + 1, layout.rows + scale, layout.cols + scale)
    there = np.zeros(shape, bool)
    there[number, bank.row, bank.col] = True
    complete = np.ones(len(number), bool)
    for down in range(scale):
        for right in range(scale):
            complete &= there[number, bank.row + down, bank.col + right]
    return complete


def spread(scores: Doubles, layout: WindowLayout, scale: int) -> Doubles:
    """Return the grid of patches: the harmonic mean of the windows that cover each of them.

    >>> layout = WindowLayout(2, 3, 1, 1, (2,))
    >>> spread(np.array([0.25, 0.75]), layout, 2).tolist()  # two windows of 2x2 patches
    [[0.25, 0.375, 0.75], [0.25, 0.375, 0.75]]
    """
    rows, cols = layout.rows - scale + 1, layout.cols - scale + 1
    with np.errstate(divide="ignore"):  # a window that equals a reference makes the mean 0
        inverse = 1 / scores.reshape(rows, cols)
    total, count = np.zeros((2, layout.rows, layout.cols))
    for down in range(scale):
        for right in range(scale):
            total[down : down + rows, right : right + cols] += inverse
            count[down : down + rows, right : right + cols] += 1
    return np.asarray(count / total)


def harmonic_mean(maps: Sequence[Doubles]) -> Doubles:
    """Return the harmonic mean of maps, entry by entry.

    >>> harmonic_mean([np.array([0.25, 0.0]), np.array([0.75, 1.0])]).tolist()
    [0.375, 0.0]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(len(maps) / np.sum([1 / one for one in maps], axis=0))


def _upper_left(layout: WindowLayout, rows: Floats, scale: int) -> Floats:
    """Return the rows of the patches that begin a window."""
    grid = rows.reshape(layout.rows, layout.cols, -1)
    windows = grid[: layout.rows - scale + 1, : layout.cols - scale + 1]
    return np.ascontiguousarray(windows.reshape(-1, rows.shape[1]))
