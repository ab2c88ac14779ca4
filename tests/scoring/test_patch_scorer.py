"""`PatchScorer` scores many times what `score_patches` scores once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from anoco_edge.errors import ScoringError, UsageError
from anoco_edge.scoring import Parameters, PatchScorer, ScorerOptions, native, score_patches
from anoco_edge.scoring.types import References

FIELDS = ("energy", "anchor", "similarity", "neighbors")


def test_many_queries_against_one_bank() -> None:
    rng = np.random.default_rng(4)
    bank = rng.normal(size=(30, 8))
    scorer = PatchScorer(bank, 2.0, "l2", scorer="reference", floor=0.1)
    assert scorer.name == "reference"
    for rows in (1, 5, 12):
        query = rng.normal(size=(rows, 8))
        got = scorer.score(query)
        expected = score_patches(query, bank, 2.0, "l2", scorer="reference", floor=0.1)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_anchors_count_the_rows_that_were_given() -> None:
    bank = [[0, 0], [1, 0], [0, 0], [0, 3]]
    assert PatchScorer(bank, scorer="reference").score([[0, 1], [5, 0]]).anchor.tolist() == [3, 1]


def test_a_query_on_a_gpu_needs_a_scorer_there() -> None:
    interface = {"version": 3, "shape": (1, 2), "typestr": "<f4", "data": (4096, False)}
    query = SimpleNamespace(__cuda_array_interface__=interface)
    with pytest.raises(UsageError, match="the scorer reference does not reach"):
        PatchScorer([[1.0, 0.0]], scorer="reference").score(query)


def test_bad_references_are_refused_when_it_is_made() -> None:
    with pytest.raises(ScoringError, match="there is no reference patch"):
        PatchScorer([[0.0, 0.0]], scorer="reference")


def test_only_what_scores_many_times_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(
        native, "NativeScorer", lambda *_, directions, **__: found.append(directions)
    )
    bank, _ = References.of(np.ones((3, 2)))
    for once in (False, True):
        native.open_scorer(bank, Parameters(), ScorerOptions(once=once))
    assert found == [-1, 0]


def test_score_patches_scores_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from anoco_edge.scoring import patches, reference

    found: list[bool] = []

    def open_scorer(name: str, bank: References, *_: object, once: bool, **__: object) -> object:
        found.append(once)
        return reference.open_scorer(bank, Parameters(), ScorerOptions())

    monkeypatch.setattr(patches, "open_scorer", open_scorer)
    score_patches([[1.0, 0.0]], [[1.0, 0.0]])
    PatchScorer([[1.0, 0.0]])
    assert found == [True, False]
