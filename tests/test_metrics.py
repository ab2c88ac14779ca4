"""Accuracy figures against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anoco_edge.errors import UsageError
from anoco_edge_calibration.metrics import auroc


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_equals_scikit_learn_ties_included(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([s for s, _ in pairs], dtype=float)
    labels = np.array([b for _, b in pairs])
    if labels.all() or not labels.any():
        with pytest.raises(UsageError, match="at least one"):
            auroc(scores, labels)
    else:
        assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
