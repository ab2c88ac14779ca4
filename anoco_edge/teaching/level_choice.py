"""Chooses for `auto` whether the references of a product are turned, from pictures of good parts.

Two good pictures are compared at a time. The mean energy of one is computed against the other as it
lies and against the other at each of eight angles, one angle at a time. Where parts lie turned, an
angle fits far better than none. Each bank holds one view, so that a larger bank, which lowers the
energy of any picture, has no part in it. Parts that look alike at every angle, such as an even
texture, gain nothing by turning, so their references are not turned.

Good pictures that are not references are compared with references where there are some. They must
not set the threshold too: see `choice_pictures`. Otherwise references are compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from anoco_edge.bundle import Bank, InputContract, Product
from anoco_edge.bundle.augmentation_choice import AugmentationChoice, ChoiceMethod
from anoco_edge.bundle.schema import CalibrationPicture, Reference
from anoco_edge.pipeline.rotations import ROTATIONS
from anoco_edge.scoring.types import Floats, References
from anoco_edge.teaching.bank_builder import join_views
from anoco_edge.teaching.drafts import with_views
from anoco_edge.teaching.near_duplicates import MERGE_DISTANCE

Level = Literal["none", "rotations"]

# Of all pairs the lower quartile counts, so that parts are found turned of which half lie alike.
# Measured with EfficientNet-Lite0, 16 pairs of each set: screws 0.26; parts turned at random by us
# 0.06 to 0.51 (cloth, circuits, hazelnuts); parts as they lie 1.00 (cloth, circuits, hazelnuts);
# textures without a direction 0.90 to 0.95, turned or not (tiles, the four sets of PIPED).
QUARTILE = 25
LIMIT = 0.7
# How many references are compared. Each takes ROTATIONS runs of the backbone, with tiles as many
# for each tile. Views of tiled pictures are large, so only one of them is held at a time.
MOST_REFERENCES = 4
MOST_TILED_REFERENCES = 2
MOST_PATCHES = 4096  # of a picture, evenly spaced, that are compared with a whole bank


class ChosenLevel(NamedTuple):
    """A draft at the level that was chosen, and what was computed for it already."""

    draft: Product
    banks: dict[str, Bank]
    """Banks of single references at this level, by the hash of their pixels."""


class Comparison(NamedTuple):
    """How pictures are compared. A comparison takes a draft, because masks depend on it."""

    view_banks: Callable[[Product, Reference], Iterator[Bank]]
    """Yields a bank for each view of a reference; the first is the reference as it lies."""
    features: Callable[[Product, CalibrationPicture], Floats]
    """The features of a picture that is not a reference."""
    energy: Callable[[Floats, References], float]
    """The mean energy of a picture against a bank."""


def choose_level(
    draft: Product,
    window: InputContract,
    held_out: Sequence[CalibrationPicture],
    comparison: Comparison,
) -> ChosenLevel:
    """Choose the level of a draft, by good pictures that set no threshold where there are some
    (`held_out`), or else by the references against each other."""
    if not draft.references:
        return ChosenLevel(_at_level(draft, window, "none", AugmentationChoice()), {})
    if len(draft.references) == 1 and not held_out:
        return ChosenLevel(_at_level(draft, window, *without_evidence()), {})
    few = _compared_references(draft)
    update = {"references": few, "coreset": None, "flips": False}
    sample = _at_level(draft.model_copy(update=update), window, "rotations", AugmentationChoice())
    held: dict[str, list[Bank]] = {}
    if draft.tiles is None:
        held = {r.pixels: list(comparison.view_banks(sample, r)) for r in sample.references}

    def view_banks(reference: Reference) -> Iterator[Bank]:
        known = held.get(reference.pixels)
        return comparison.view_banks(sample, reference) if known is None else iter(known)

    plain, turned = [], []
    for energies in _energies(sample, view_banks, held_out, comparison):
        plain.append(energies[0])
        turned.append(min(energies))
    method: ChoiceMethod = "held-out pictures" if held_out else "references against each other"
    level, choice = compare_levels(method, plain, turned)
    chosen = _at_level(draft, window, level, choice)
    known: dict[str, Bank] = {}
    if not draft.flips:
        many = ROTATIONS if level == "rotations" else 1
        known = {p: join_views(b[:many], chosen.merge_distance) for p, b in held.items()}
    return ChosenLevel(chosen, known)


def compare_levels(
    method: ChoiceMethod, plain: Sequence[float], turned: Sequence[float]
) -> tuple[Level, AugmentationChoice]:
    """Decide by the energies of pairs of pictures, as they lie and at the angle that fits best.

    >>> level, choice = compare_levels("held-out pictures", [2.0, 4.0, 2.0], [1.0, 1.0, 2.0])
    >>> level, choice.ratio
    ('rotations', 0.375)
    """
    ratios = [b / a if a > 0 else 1.0 for a, b in zip(plain, turned, strict=True)]
    ratio = float(np.percentile(ratios, QUARTILE))
    level: Level = "rotations" if ratio < LIMIT else "none"
    compared = (
        f"{len(ratios)} good pictures, each with a reference"
        if method == "held-out pictures"
        else f"{len(ratios)} pairs of references"
    )
    verdict = (
        f"parts lie turned, so each reference is taken at {ROTATIONS} angles, and a part that is "
        "only turned is good"
        if level == "rotations"
        else "parts need no turning, so references are taken as they are"
    )
    words = (
        f"auto compared {compared}: at the angle that fits best the energy falls to {ratio:.2f} "
        f"(lower quartile; rotations are for less than {LIMIT:g}): {verdict}"
    )
    choice = AugmentationChoice(
        method=method,
        plain=tuple(plain),
        turned=tuple(turned),
        ratio=ratio,
        limit=LIMIT,
        words=words,
    )
    return level, choice


def without_evidence() -> tuple[Level, AugmentationChoice]:
    """Decide for a single reference, which cannot show how parts lie.

    >>> without_evidence()[0]
    'rotations'
    """
    words = (
        f"auto takes the only reference at {ROTATIONS} angles, because it cannot show whether "
        "parts lie turned: a part that is only turned is good until more references or a "
        "calibration show how parts lie"
    )
    return "rotations", AugmentationChoice(method="one reference", limit=LIMIT, words=words)


def _compared_references(draft: Product) -> tuple[Reference, ...]:
    """Some references of a draft, evenly spaced."""
    count = len(draft.references)
    most = MOST_REFERENCES if draft.tiles is None else MOST_TILED_REFERENCES
    spaced = np.unique(np.linspace(0, count - 1, min(count, most)).round())
    return tuple(draft.references[int(number)] for number in spaced)


def _energies(
    sample: Product,
    view_banks: Callable[[Reference], Iterator[Bank]],
    held_out: Sequence[CalibrationPicture],
    comparison: Comparison,
) -> Iterator[list[float]]:
    """Yield for each pair the energies of its picture against each view of its reference.

    Each held-out picture is compared with one reference, which take turns; without held-out
    pictures each reference is compared with each other.
    """
    references = sample.references
    asking: list[Sequence[int]]
    if held_out:
        queries = [_evenly(comparison.features(sample, picture)) for picture in held_out]
        step = len(references)
        asking = [list(range(k, len(queries), step)) for k in range(step)]
    else:
        queries = [_evenly(next(view_banks(r)).references.features) for r in references]
        everyone = range(len(queries))
        asking = [[q for q in everyone if q != k] for k in everyone]
    for reference, numbers in zip(references, asking, strict=True):
        found: list[list[float]] = [[] for _ in numbers]
        for bank in view_banks(reference):
            for energies, number in zip(found, numbers, strict=True):
                energies.append(comparison.energy(queries[number], bank.references))
        yield from found


def _evenly(features: Floats) -> Floats:
    """At most MOST_PATCHES rows, evenly spaced."""
    if len(features) <= MOST_PATCHES:
        return features
    return features[np.linspace(0, len(features) - 1, MOST_PATCHES).astype(np.intp)]


def _at_level(
    draft: Product, window: InputContract, level: Level, choice: AugmentationChoice
) -> Product:
    rotations = ROTATIONS if level == "rotations" else None
    merge = draft.merge_distance if draft.has_turned_views else MERGE_DISTANCE
    update = {
        "tta": level,
        "rotations": rotations,
        "merge_distance": merge,
        "augmentation_choice": choice,
    }
    return with_views(draft.model_copy(update=update), window)
