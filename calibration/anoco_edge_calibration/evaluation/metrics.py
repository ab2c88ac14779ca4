"""Metrics of labelled pictures: how well scores separate anomalous pictures from good ones.

Equal scores count as one threshold, as in scikit-learn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anoco_edge.errors import ScoringError, UsageError

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def auroc(scores: ArrayLike, anomalous: ArrayLike) -> float:
    """Return the chance that an anomalous picture scores above a good one; ties count half.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.75
    """
    found, rejected = _counts("AUROC", scores, anomalous)
    pairs = int(np.diff(rejected) @ (found[1:] + found[:-1]))  # twice the area
    return pairs / (2 * int(found[-1]) * int(rejected[-1]))


def aupr(scores: ArrayLike, anomalous: ArrayLike) -> float:
    """Return the average precision: the precision at each threshold, weighted by its new recall.

    >>> aupr([0.1, 0.4, 0.35, 0.8], [False, True, False, True])
    1.0
    """
    found, rejected = _counts("AUPR", scores, anomalous)
    precision = found[1:] / (found[1:] + rejected[1:])
    return float(np.diff(found) @ precision / found[-1])


def f1_max(scores: ArrayLike, anomalous: ArrayLike) -> float:
    """Return the best F1 score of all thresholds.

    >>> f1_max([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.8
    """
    found, rejected = _counts("F1-max", scores, anomalous)
    return float((2 * found / (found + rejected + found[-1])).max())


def roc_curve(scores: ArrayLike, anomalous: ArrayLike) -> Curve:
    """Return false and true positive rate at every threshold, from (0, 0) up to (1, 1).

    >>> fpr, tpr = roc_curve([1, 2, 2, 3], [False, False, True, True])
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    found, rejected = _counts("a ROC curve", scores, anomalous)
    return rejected / rejected[-1], found / found[-1]


def pr_curve(scores: ArrayLike, anomalous: ArrayLike) -> Curve:
    """Return recall and precision at every threshold, from the lowest to recall 0, precision 1.

    >>> recall, precision = pr_curve([1, 2, 2, 3], [False, False, True, True])
    >>> recall.tolist(), precision.tolist()
    ([1.0, 1.0, 0.5, 0.0], [0.5, 0.6666666666666666, 1.0, 1.0])
    """
    found, rejected = _counts("a precision-recall curve", scores, anomalous)
    precision = np.append(found[:0:-1] / (found + rejected)[:0:-1], 1.0)
    return found[::-1] / found[-1], precision


def _counts(
    what: str, scores: ArrayLike, anomalous: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count anomalous and good pictures at or above each score, highest first, after a zero."""
    values = np.asarray(scores, dtype=np.float64)
    labels = np.asarray(anomalous, dtype=np.bool_)
    if values.ndim != 1 or values.shape != labels.shape:
        raise UsageError(
            f"{what} needs one label for each score: shapes {values.shape} and {labels.shape}",
            hint="give two lists of the same length",
        )
    if not np.isfinite(values).all():
        raise ScoringError(
            f"{what}: the score {values[~np.isfinite(values)][0]} is not finite",
            hint="leave out what gives no number",
        )
    if labels.all() or not labels.any():
        raise UsageError(
            f"{what} needs at least one good and one anomalous picture", hint="give one of each"
        )
    distinct, place = np.unique(-values, return_inverse=True)
    found, rejected = np.zeros((2, distinct.size + 1), np.int64)
    found[1:] = np.cumsum(np.bincount(place[labels], minlength=distinct.size))
    rejected[1:] = np.cumsum(np.bincount(place[~labels], minlength=distinct.size))
    return found, rejected
