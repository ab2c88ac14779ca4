"""How like each other the references of a bank are, to learn what is nothing like them."""

from __future__ import annotations

import numpy as np

from anoco_edge.bundle import Bank

MOST_REFERENCES = 8
MOST_PATCHES = 256  # of each; a median needs no more
_ROWS_AT_ONCE = 1 << 16


def reference_likeness(bank: Bank) -> list[float]:
    """Return for some references the median similarity of their patches and the most similar patch
    of any other reference; nothing where there is only one reference."""
    numbers = np.unique(bank.reference)
    if len(numbers) < 2:
        return []
    spaced = np.linspace(0, len(numbers) - 1, min(len(numbers), MOST_REFERENCES)).round()
    found = (_likeness(bank, int(number)) for number in numbers[np.unique(spaced.astype(int))])
    return [value for value in found if value is not None]


def _likeness(bank: Bank, number: int) -> float | None:
    own = bank.reference == number
    itself = np.flatnonzero(own & (bank.view == 0))
    if not len(itself):  # a thinned bank may hold turned views of it only
        return None
    some = itself[np.linspace(0, len(itself) - 1, min(len(itself), MOST_PATCHES)).astype(int)]
    features, norms = bank.references.features, bank.references.norms
    query = features[some].astype(np.float32) / norms[some, None]
    best = np.full(len(some), -1.0, np.float32)
    others = np.flatnonzero(~own)
    for first in range(0, len(others), _ROWS_AT_ONCE):
        rows = others[first : first + _ROWS_AT_ONCE]
        unit = features[rows].astype(np.float32) / norms[rows, None]
        best = np.maximum(best, (query @ unit.T).max(axis=1))
    return round(float(np.median(best)), 6)
