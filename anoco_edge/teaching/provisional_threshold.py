"""The provisional threshold that enrolment sets, until `calibrate` replaces it by a real one.

It rests on the references alone, so it promises no false-reject rate: with two or more pictures
each is scored against the others, with one its gentle augmentations are scored against it; the
largest of these scores times MARGIN is the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.bank import Bank
from anoco_edge.bundle.evidence import EqualReferencesEvidence, ProvisionalEvidence
from anoco_edge.bundle.schema import Product, Threshold

# A held-out picture meets one reference less than a part on the line will, so its score is already
# on the high side; but the worst of a few good parts is not the worst of all. Measured with four
# references and EfficientNet-Lite0 at 256 px (good parts rejected, defects missed):
#
#   margin      five real sets, three draws     rendered parts, five seeds
#    1.0             14 %        0 %                 11 %        3 %
#    1.1              7 %        0 %                  9 %        4 %
#    1.2              4 %      0.3 %                  7 %        5 %
#    1.5              1 %      1.6 %                  4 %        6 %
MARGIN = 1.2
MOST_HELD_OUT = 32  # pictures that are scored; the cost grows with their number times the bank
AUGMENTATIONS = 8
# Energies are squares: of a difference that is zero float32 leaves (1e-7)^2 of the patch's |q|^2.
ROUNDING = 1e-12


def references_to_leave_out(pictures: int) -> list[int]:
    """Which of so many references are scored: all, or MOST_HELD_OUT of them, evenly spaced.

    >>> references_to_leave_out(3), len(references_to_leave_out(1000))
    ([0, 1, 2], 32)
    """
    spaced = np.linspace(0, pictures - 1, min(pictures, MOST_HELD_OUT)).round()
    return [int(number) for number in np.unique(spaced)]


def gentle_views(rgb: NDArray[np.uint8], seed: int = 0) -> list[NDArray[np.uint8]]:
    """Seeded small turns, shifts and changes of light, as a fixture and a lamp would cause."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rgb)
    edge = tuple(int(v) for v in np.median(rgb[[0, -1]].reshape(-1, 3), axis=0))
    views = []
    for _ in range(AUGMENTATIONS):
        shift = rng.uniform(-0.01, 0.01, 2) * image.size
        turned = image.rotate(
            float(rng.uniform(-2, 2)),
            resample=Image.Resampling.BILINEAR,
            translate=(round(shift[0]), round(shift[1])),
            fillcolor=edge,
        )
        light = rng.uniform(0.95, 1.05)
        views.append((np.asarray(turned) * light).clip(0, 255).round().astype(np.uint8))
    return views


def provisional(method: str, scores: Sequence[float], bank: Bank, product: Product) -> Threshold:
    """The largest score with its margin; none where the pictures show no difference at all."""
    worst = max(scores)
    # Pictures without a difference that the backbone sees: nothing was learnt about spread.
    if worst <= rounding(bank, product):
        return Threshold(evidence=EqualReferencesEvidence(method=method, scores=tuple(scores)))
    evidence = ProvisionalEvidence(method=method, scores=tuple(scores), margin=MARGIN)
    return Threshold(kind="provisional", value=worst * MARGIN, evidence=evidence)


def rounding(bank: Bank, product: Product) -> float:
    """Scores up to this are zero but for rounding."""
    scale = 1.0 if product.metric == "cosine" else float(bank.references.norms.max()) ** 2
    return ROUNDING * scale
