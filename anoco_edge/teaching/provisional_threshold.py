"""The provisional threshold that enrollment sets, until `calibrate` replaces it.

It rests on the references alone, so it promises no false-reject rate. With two or more references,
each is scored against the others. With a single one, mild augmentations of it are scored against
it. The largest of these scores times MARGIN is the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle.bank import Bank
from anoco_edge.bundle.evidence import EqualReferencesEvidence, ProvisionalEvidence
from anoco_edge.bundle.schema import Product, Threshold
from anoco_edge.teaching.bank_builder import Load
from anoco_edge.teaching.draft_scorer import DraftScorer

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
MOST_HELD_OUT = 32  # references that are scored; the cost grows with their number times the bank
AUGMENTATIONS = 8
# Energies are squares. Where the true difference is zero, float32 leaves (1e-7)^2 of the patch's
# squared norm.
ROUNDING = 1e-12


def provisional_threshold(draft_scorer: DraftScorer, load: Load) -> Threshold:
    """Compute the threshold from the references alone, for a product without a calibration."""
    draft, bank = draft_scorer.draft, draft_scorer.bank
    if len(draft.references) > 1:
        scores = list(draft_scorer.leave_one_out(references_to_leave_out(len(draft.references))))
        return threshold_from_scores("leave-one-picture-out", scores, bank, draft)
    scores = list(draft_scorer.variations(mild_augmentations(load(draft.references[0]))))
    # The text is part of the file format.
    method = "gentle augmentations of the only reference"
    return threshold_from_scores(method, scores, bank, draft)


def references_to_leave_out(pictures: int) -> list[int]:
    """Choose the references that are scored: all, or MOST_HELD_OUT of them, evenly spaced.

    >>> references_to_leave_out(3), len(references_to_leave_out(1000))
    ([0, 1, 2], 32)
    """
    spaced = np.linspace(0, pictures - 1, min(pictures, MOST_HELD_OUT)).round()
    return [int(number) for number in np.unique(spaced)]


def mild_augmentations(rgb: NDArray[np.uint8], seed: int = 0) -> list[NDArray[np.uint8]]:
    """Turn, shift and brighten a picture a little, as a fixture and a lamp would; all by seed."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rgb)
    edge = tuple(int(v) for v in np.median(rgb[[0, -1]].reshape(-1, 3), axis=0))
    augmented = []
    for _ in range(AUGMENTATIONS):
        shift = rng.uniform(-0.01, 0.01, 2) * image.size
        turned = image.rotate(
            float(rng.uniform(-2, 2)),
            resample=Image.Resampling.BILINEAR,
            translate=(round(shift[0]), round(shift[1])),
            fillcolor=edge,
        )
        light = rng.uniform(0.95, 1.05)
        augmented.append((np.asarray(turned) * light).clip(0, 255).round().astype(np.uint8))
    return augmented


def threshold_from_scores(
    method: str, scores: Sequence[float], bank: Bank, product: Product
) -> Threshold:
    """Take the largest score times the margin as threshold.

    There is no threshold where the backbone sees no difference between the pictures: such pictures
    do not show how much good parts differ.
    """
    worst = max(scores)
    if worst <= rounding_limit(bank, product):
        return Threshold(evidence=EqualReferencesEvidence(method=method, scores=tuple(scores)))
    evidence = ProvisionalEvidence(method=method, scores=tuple(scores), margin=MARGIN)
    return Threshold(kind="provisional", value=worst * MARGIN, evidence=evidence)


def rounding_limit(bank: Bank, product: Product) -> float:
    """The largest score that rounding alone can give to a patch without any difference."""
    scale = 1.0 if product.metric == "cosine" else float(bank.references.norms.max()) ** 2
    return ROUNDING * scale
