"""The scorers that are compared with ANoCo on the same features.

Each family has a module, each scorer a `ScorerKind`. A name says what a patch is compared with:
`knn-...` with its nearest reference patch, `knn-...-5pct` with the nearest 5 % of the bank, which
is the setting of the paper's ablation, `subspace` with the principal subspace of the whole bank,
`winclip` with the nearest windows and with prompts. `anoco-...` is ANoCo with something changed, or
added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anoco_edge.scoring import Metric, Parameters, References, Scorer
from anoco_edge_calibration.evaluation.scorers.blend import Blend
from anoco_edge_calibration.evaluation.scorers.foreground import Foreground, foreground_bank
from anoco_edge_calibration.evaluation.scorers.graphs import (
    MOST_ROUNDS,
    KnnBipartite,
    MessagePassing,
)
from anoco_edge_calibration.evaluation.scorers.knn import Nearest, NearestShare
from anoco_edge_calibration.evaluation.scorers.neighbor_cache import NeighborCache, Space
from anoco_edge_calibration.evaluation.scorers.nonbipartite import KnnNonBipartite
from anoco_edge_calibration.evaluation.scorers.patchcore import PatchCore
from anoco_edge_calibration.evaluation.scorers.spade import Spade
from anoco_edge_calibration.evaluation.scorers.subspace import VARIANCE, Subspace, check_variance
from anoco_edge_calibration.evaluation.scorers.winclip import (
    TEMPERATURE,
    WinClip,
    WindowBank,
    check_temperature,
)

__all__ = [
    "ANOCO",
    "KINDS",
    "MOST_ROUNDS",
    "NeighborCache",
    "OwnSettings",
    "ScorerKind",
    "WindowBank",
    "check_temperature",
    "check_variance",
]

ANOCO = "anoco"

_ENERGY = ("lambda", "metric", "floor")
_POOLED = ("pooling",)


@dataclass(frozen=True)
class OwnSettings:
    """The settings of single scorers, which no product records."""

    rounds: int = 1
    """How often messages are passed."""
    variance: float = VARIANCE
    """The share of the bank's variance that a subspace explains."""
    temperature: float = TEMPERATURE
    """What WinCLIP divides the cosines with prompts by."""


ScorerFactory = Callable[[NeighborCache, Parameters, OwnSettings], Scorer]
OpenAnoco = Callable[[References], Scorer]
ScorerWrapper = Callable[[NeighborCache, References, Parameters, OwnSettings, OpenAnoco], Scorer]


@dataclass(frozen=True)
class ScorerKind:
    """A kind of scorer: what it computes, in words, and which settings it takes."""

    says: str
    takes: tuple[str, ...]
    make: ScorerFactory | None = None
    """Makes it from the bank, ANoCo's parameters and its own settings; None for ANoCo itself."""
    wrap: ScorerWrapper | None = None
    """Makes it around ANoCo, which it opens with the bank or with a part of it."""
    metric: Metric | None = None
    """The metric of the drift that replaces the one of the product."""
    prompted: bool = False
    """Whether it needs a bundle with windows and prompts."""


def _on_foreground(cache: NeighborCache, bank: References, anoco: OpenAnoco) -> Scorer:
    model, kept, part = foreground_bank(cache, bank)
    return Foreground(model, kept, anoco(part))


def _nearest(space: Space, says: str) -> ScorerKind:
    return ScorerKind(says, _POOLED, lambda cache, *_: Nearest(cache, space))


def _share(space: Space, says: str) -> ScorerKind:
    return ScorerKind(says, _POOLED, lambda cache, *_: NearestShare(cache, space))


KINDS: Mapping[str, ScorerKind] = {
    ANOCO: ScorerKind("the method of this toolkit", (*_ENERGY, *_POOLED)),
    "anoco-l2": ScorerKind("its drift by length alone", ("lambda", "floor", *_POOLED), metric="l2"),
    "anoco-cosine": ScorerKind(
        "its drift by direction alone", ("lambda", "floor", *_POOLED), metric="cosine"
    ),
    "knn-l2": _nearest("l2", "distance to the nearest patch"),
    "knn-cosine": _nearest("cosine", "1 - cosine to the nearest patch"),
    "knn-mahalanobis": _nearest("mahalanobis", "Mahalanobis distance to the nearest patch"),
    "knn-l2-5pct": _share(
        "l2", "mean distance to the nearest 5 % of the bank, as in the paper's ablation"
    ),
    "knn-cosine-5pct": _share("cosine", "the same with 1 - cosine"),
    "knn-mahalanobis-5pct": _share(
        "mahalanobis", "the same with Mahalanobis distances, as in the paper's ablation"
    ),
    "knn-bipartite": ScorerKind(
        "ANoCo's energy, neighbors are the most similar 5 % of the bank",
        (*_ENERGY, *_POOLED),
        lambda cache, parameters, _: KnnBipartite(cache, parameters),
    ),
    "knn-nonbipartite": ScorerKind(
        "the same with edges among queries and among references",
        (*_ENERGY, *_POOLED),
        lambda cache, parameters, _: KnnNonBipartite(cache, parameters),
    ),
    "message-passing": ScorerKind(
        "rounds of propagation on ANoCo's graph, 1 to 5",
        (*_ENERGY, *_POOLED, "rounds"),
        lambda cache, parameters, own: MessagePassing(cache, parameters, own.rounds),
    ),
    "patchcore": ScorerKind(
        "a coreset of a tenth, re-weighted", (), lambda cache, *_: PatchCore(cache)
    ),
    "spade": ScorerKind(
        "nearest pictures, then their nearest patch", (), lambda cache, *_: Spade(cache)
    ),
    "subspace": ScorerKind(
        "distance to the principal components of the bank that explain 99 % of its variance",
        (*_POOLED, "variance"),
        lambda cache, _, own: Subspace(cache, own.variance),
    ),
    "winclip": ScorerKind(
        "CLIP on windows: prompts, and the nearest window of the references",
        ("temperature",),
        lambda cache, _, own: WinClip(cache, own.temperature),
        prompted=True,
    ),
    "winclip-anoco": ScorerKind(
        "the same with ANoCo in place of the nearest window, as in the paper's supplement",
        ("lambda", "floor", "temperature"),
        lambda cache, parameters, own: WinClip(cache, own.temperature, parameters),
        metric="cosine",
        prompted=True,
    ),
    "anoco-subspace": ScorerKind(
        "geometric mean of ANoCo's energy and the distance to the subspace",
        (*_ENERGY, *_POOLED, "variance"),
        wrap=lambda cache, bank, parameters, own, anoco: Blend(
            cache, anoco(bank), str(parameters), Subspace(cache, own.variance)
        ),
    ),
    "anoco-foreground": ScorerKind(
        "ANoCo without the patches of an empty background",
        (*_ENERGY, *_POOLED),
        wrap=lambda cache, bank, _parameters, _own, anoco: _on_foreground(cache, bank, anoco),
    ),
}
