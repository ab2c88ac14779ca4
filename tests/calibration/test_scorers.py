"""The baseline scorers equal a literal, dense implementation of what their docstrings say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anoco_edge.bundle import Product
from anoco_edge.errors import EnvironmentMissingError, ScoringError, UsageError
from anoco_edge.scoring import Parameters, References, Scorer, Scores
from anoco_edge.scoring.reference import ReferenceScorer, edge_weights, non_conformity, retrieve
from anoco_edge_calibration.evaluation.scorers import (
    KINDS,
    NeighborCache,
    OwnSettings,
    graphs,
    neighbor_cache,
    nonbipartite,
    search,
)
from anoco_edge_calibration.evaluation.scorers.blend import Blend
from anoco_edge_calibration.evaluation.scorers.foreground import find_foreground, otsu
from anoco_edge_calibration.evaluation.scorers.graphs import KnnBipartite, MessagePassing
from anoco_edge_calibration.evaluation.scorers.knn import Nearest, NearestShare
from anoco_edge_calibration.evaluation.scorers.nonbipartite import KnnNonBipartite
from anoco_edge_calibration.evaluation.scorers.patchcore import PatchCore
from anoco_edge_calibration.evaluation.scorers.spade import Spade
from anoco_edge_calibration.evaluation.scorers.subspace import Subspace
from anoco_edge_calibration.evaluation.variants import Variant

SPACES = ("l2", "cosine", "mahalanobis")
Matrix = np.ndarray

shapes = st.tuples(st.integers(2, 30), st.integers(1, 60), st.integers(2, 12))
seeds = st.integers(0, 10**6)


def features(rows: int, dim: int, seed: int, offset: float = 0.5) -> Matrix:
    """Draw features with differing norms that are not centred, like those of a network."""
    rng = np.random.default_rng(seed)
    return ((rng.normal(size=(rows, dim)) + offset) * rng.uniform(1, 4)).astype(np.float32)


def bank_of(rows: Matrix, pictures: Matrix | None = None) -> NeighborCache:
    return NeighborCache(References.of(rows)[0], pictures)


def dense(rows: Matrix) -> Matrix:
    return rows.astype(np.float64)


def cosines(q: Matrix, r: Matrix) -> Matrix:
    q, r = dense(q), dense(r)
    return (q / np.linalg.norm(q, axis=1)[:, None]) @ (r / np.linalg.norm(r, axis=1)[:, None]).T


def distances(space: str, q: Matrix, r: Matrix) -> Matrix:
    """Compute the distance of every query to every reference, pair by pair."""
    if space == "cosine":
        return 1 - cosines(q, r)
    inverse = np.eye(q.shape[1])
    if space == "mahalanobis":
        covariance = np.atleast_2d(np.cov(dense(r).T)) if len(r) > 1 else 0 * inverse
        spread = np.trace(covariance) / len(inverse)
        inverse = np.linalg.inv(covariance + (0.01 * spread or 1.0) * np.eye(len(inverse)))
    difference = dense(q)[:, None] - dense(r)[None]
    squared = np.einsum("ijk,kl,ijl->ij", difference, inverse, difference)
    return np.sqrt(np.maximum(squared, 0))


def weights(q: Matrix, r: Matrix, floor: float) -> Matrix:
    """Compute Eq. 2 for every pair."""
    s, q_norm, r_norm = cosines(q, r), *(np.linalg.norm(dense(x), axis=1) for x in (q, r))
    return np.stack([edge_weights(n, s[i], r_norm, floor) for i, n in enumerate(q_norm)])


def nearest_share(s: Matrix, count: int) -> Matrix:
    """Return the mask of the `count` largest entries of each row, by sorting."""
    mask = np.zeros(s.shape, bool)
    for i, row in enumerate(s):
        mask[i, sorted(range(len(row)), key=lambda j: (-row[j], j))[:count]] = True
    return mask


def energies(q: Matrix, moved: Matrix, metric: str) -> Matrix:
    """Compute Eq. 10 row by row, with the reference's own function."""
    return np.array(
        [non_conformity(a, b - a, b, metric) for a, b in zip(dense(q), moved, strict=True)]
    )


def close(scores: Scores, expected: Matrix, rel: float = 1e-4) -> bool:
    """Compare relative to the row, or to the largest energy where the row is nearly zero."""
    return scores.energy == pytest.approx(expected, rel=rel, abs=1e-6 * max(expected.max(), 1e-6))


# ---- distances


@settings(max_examples=25, deadline=None)
@given(shape=shapes, seed=seeds, offset=st.sampled_from([0.0, 30.0]))
def test_nearest_references_equal_brute_force(
    shape: tuple[int, int, int], seed: int, offset: float
) -> None:
    """Far from the origin (`offset`), the usual |q|^2 - 2qr + |r|^2 would cancel."""
    queries, references, dim = shape
    q, r = features(queries, dim, seed, offset), features(references, dim, seed + 1, offset)
    for space in ("l2", "cosine"):
        expected = distances(space, q, r)
        scores = Nearest(bank_of(r), space).score(q)
        assert scores.energy == pytest.approx(expected.min(axis=1), rel=1e-6, abs=3e-7)
        assert expected[np.arange(queries), scores.anchor] == pytest.approx(
            expected.min(axis=1), abs=1e-7
        )
        assert (scores.energy >= 0).all() and (scores.neighbors == 1).all()
        evidence = cosines(q, r)[np.arange(queries), scores.anchor]
        assert scores.similarity == pytest.approx(evidence, abs=3e-7)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, seed=seeds)
def test_the_mahalanobis_distance_is_that_of_the_covariance_of_the_bank(
    shape: tuple[int, int, int], seed: int
) -> None:
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    expected = distances("mahalanobis", q, r)
    scores = Nearest(bank_of(r), "mahalanobis").score(q)
    assert scores.energy == pytest.approx(expected.min(axis=1), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=20, deadline=None)
@given(shape=shapes, seed=seeds)
def test_the_5_percent_are_the_mean_over_the_nearest(
    space: str, shape: tuple[int, int, int], seed: int
) -> None:
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    count = int(np.ceil(0.05 * references))
    expected = np.sort(distances(space, q, r), axis=1)[:, :count].mean(axis=1)
    scores = NearestShare(bank_of(r), space).score(q)
    assert scores.energy == pytest.approx(expected, rel=2e-3, abs=2e-3 * expected.max())
    assert (scores.neighbors == count).all()


def test_the_5_percent_of_a_small_bank_are_its_nearest_patch() -> None:
    q, r = features(9, 6, 0), features(20, 6, 1)
    for space in SPACES:
        one, share = (kind(bank_of(r), space).score(q) for kind in (Nearest, NearestShare))
        assert one.energy == pytest.approx(share.energy, rel=1e-4)
        assert one.anchor.tolist() == share.anchor.tolist()
    more = NearestShare(bank_of(np.concatenate([r, features(1, 6, 2)])), "l2").score(q)
    assert (more.neighbors == 2).all()


@pytest.mark.parametrize("space", ["l2", "cosine"])
def test_a_query_that_is_a_reference_has_energy_zero(space: str) -> None:
    """It also holds among references that differ in the last bit only."""
    base = features(1, 256, 3) * 100
    close_by = np.repeat(base, 50, axis=0)
    close_by[np.arange(50), np.arange(50)] *= np.float32(1 + 1e-6)
    scores = Nearest(bank_of(np.concatenate([features(20, 256, 4), close_by])), space).score(
        close_by
    )
    assert (scores.energy == 0).all()
    if space == "l2":
        assert scores.anchor.tolist() == list(range(20, 70))


def test_the_first_of_equal_references_is_the_anchor() -> None:
    rows = features(3, 8, 0)
    bank = bank_of(np.concatenate([rows, rows, rows]))
    for space in ("l2", "cosine"):
        assert Nearest(bank, space).score(rows).anchor.tolist() == [0, 1, 2]


# ---- graphs


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes,
    seed=seeds,
    lam=st.sampled_from([0.01, 1.0, 100.0]),
    metric=st.sampled_from(["product", "l2", "cosine"]),
)
def test_the_bipartite_graph_is_eq_9_and_10_on_the_most_similar_5_percent(
    shape: tuple[int, int, int], seed: int, lam: float, metric: str
) -> None:
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    w = weights(q, r, 0.05) * nearest_share(cosines(q, r), int(np.ceil(0.05 * references)))
    # Solve Eq. 9 as it is printed: the diagonal system.
    moved = np.linalg.solve(np.diag(w.sum(axis=1) + lam), lam * dense(q) + w @ dense(r))
    scores = KnnBipartite(bank_of(r), Parameters(lam, metric, 0.05)).score(q)
    assert close(scores, energies(q, moved, metric))
    assert scores.similarity == pytest.approx(cosines(q, r).max(axis=1), abs=1e-6)


def test_with_one_neighbour_the_bipartite_graph_is_anocos() -> None:
    """In a bank of patches that resemble only themselves, N(i) is the anchor alone."""
    r = np.diag(np.arange(1, 21)).astype(np.float32)
    q = (r + features(20, 20, 0) / 50).astype(np.float32)
    parameters = Parameters()
    anoco = ReferenceScorer(References.of(r)[0], parameters).score(q)
    assert (anoco.neighbors == 1).all()
    assert close(KnnBipartite(bank_of(r), parameters).score(q), anoco.energy)


@settings(max_examples=20, deadline=None)
@given(shape=shapes, seed=seeds, lam=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_nonbipartite_system_is_solved(
    shape: tuple[int, int, int], seed: int, lam: float
) -> None:
    """The result equals that of (L + Lambda) F~ = Lambda F with the whole Laplacian."""
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    nodes = np.concatenate([q, r])
    total = weights(nodes, nodes, 0.05)
    mask = np.zeros(total.shape, bool)
    mask[:queries, queries:] = nearest_share(cosines(q, r), int(np.ceil(0.05 * references)))
    for part in (slice(0, queries), slice(queries, None)):
        s = cosines(nodes[part], nodes[part])
        np.fill_diagonal(s, -np.inf)
        mask[part, part] = nearest_share(s, int(np.ceil(0.05 * (len(s) - 1))))
    w = np.where(mask | mask.T, total, 0)
    degree = w.sum(axis=1)
    anchor = np.where(np.arange(len(nodes)) < queries, lam, 10 * degree)
    anchor[anchor == 0] = 1.0  # a reference without an edge stays unchanged
    laplacian = np.diag(degree) - w
    moved = np.linalg.solve(laplacian + np.diag(anchor), anchor[:, None] * dense(nodes))[:queries]
    for metric in ("l2", "product"):
        expected = energies(q, moved, metric)
        scores = KnnNonBipartite(bank_of(r), Parameters(lam, metric)).score(q)
        # The drift has six digits, and fewer where the turn is nearly zero.
        assert scores.energy == pytest.approx(expected, rel=1e-3, abs=1e-4 * expected.max())


def test_a_bank_with_too_many_edges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonbipartite, "MOST_EDGES", 100)
    with pytest.raises(UsageError, match="would connect 60 references by 180 edges; thin the bank"):
        KnnNonBipartite(bank_of(features(60, 8, 0)), Parameters())


def graph(seed: int) -> tuple[Matrix, Matrix, Matrix]:
    """Compute queries, references and the weights of ANoCo's graph with the reference."""
    q, r = features(14, 6, seed), features(40, 6, seed + 1)
    units = [dense(x) / np.linalg.norm(dense(x), axis=1)[:, None] for x in (q, r)]
    return q, r, weights(q, r, 0.05) * retrieve(*units).neighbors


@pytest.mark.parametrize("rounds", [1, 2, 5])
@settings(max_examples=10, deadline=None)
@given(seed=seeds, lam=st.sampled_from([0.1, 1.0, 7.0]))
def test_messages_are_passed_by_the_normalised_matrix(rounds: int, seed: int, lam: float) -> None:
    q, r, w = graph(seed)
    count = len(q) + len(r)
    whole = lam * np.eye(count)
    whole[: len(q), len(q) :] = w
    whole[len(q) :, : len(q)] = w.T
    root = np.sqrt(whole.sum(axis=1))
    normalised = whole / root[:, None] / root[None]
    moved = (np.linalg.matrix_power(normalised, rounds) @ dense(np.concatenate([q, r])))[: len(q)]
    scores = MessagePassing(bank_of(r), Parameters(lam), rounds).score(q)
    assert close(scores, energies(q, moved, "product"))


def test_messages_converge_to_the_stationary_state() -> None:
    """In a connected graph it is u u^T F, with u the roots of the degrees, normalized."""
    from scipy.sparse import csr_matrix

    q, r, _ = graph(3)
    w = weights(q, r, 0.05)  # every pair has an edge, so the graph is connected
    u = np.sqrt(1 + np.concatenate([w.sum(axis=1), w.sum(axis=0)]))
    u /= np.linalg.norm(u)
    expected = np.outer(u, u @ dense(np.concatenate([q, r])))[: len(q)]
    states = graphs.propagate(csr_matrix(w), dense(q), dense(r), 1.0, 500)
    assert states[-1] == pytest.approx(expected, rel=1e-9)
    assert states[0] != pytest.approx(expected, rel=0.01)


def test_rows_normalised_one_round_would_be_anoco() -> None:
    """`MessagePassing` is not normalized by rows, because one round of that is Eq. 9."""
    q, r, w = graph(8)
    moved = (dense(q) + w @ dense(r)) / (1 + w.sum(axis=1, keepdims=True))
    anoco = ReferenceScorer(References.of(r)[0], Parameters()).score(q)
    assert energies(q, moved, "product") == pytest.approx(anoco.energy, rel=1e-9)
    assert not close(MessagePassing(bank_of(r), Parameters(), 1).score(q), anoco.energy, rel=0.1)


@settings(max_examples=20, deadline=None)
@given(shape=shapes, seed=seeds)
def test_anocos_neighbours_are_those_of_the_reference(
    shape: tuple[int, int, int], seed: int
) -> None:
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    units = [dense(x) / np.linalg.norm(dense(x), axis=1)[:, None] for x in (q, r)]
    expected = retrieve(*units)
    found = bank_of(r).conforming(q)
    sure = expected.margin > 2e-6
    sets = [set(found.columns[a:b]) for a, b in zip(found.starts, found.starts[1:], strict=False)]
    for i in np.flatnonzero(sure):
        assert sets[i] == set(np.flatnonzero(expected.neighbors[i]))


def test_ties_among_the_5_percent_go_to_the_lowest_index() -> None:
    r = np.repeat(features(2, 5, 1), 30, axis=0)
    edges = bank_of(r).retrieved(r[[0, 59]])
    assert edges.columns.tolist() == [0, 1, 2, 30, 31, 32]


def test_scipy_is_asked_for_only_by_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    q, r = features(4, 6, 0), features(9, 6, 1)
    for name, kind in KINDS.items():
        if kind.make is None or kind.prompted:
            continue
        if name in ("knn-bipartite", "knn-nonbipartite", "message-passing"):
            with pytest.raises(EnvironmentMissingError, match=r"scipy is needed .*\[eval\]"):
                kind.make(bank_of(r), Parameters(), OwnSettings())
        else:
            kind.make(bank_of(r), Parameters(), OwnSettings()).score(q)


# ---- PatchCore and SPADE


@settings(max_examples=20, deadline=None)
@given(shape=st.tuples(st.integers(2, 30), st.integers(1, 250), st.integers(2, 12)), seed=seeds)
def test_patchcore_is_the_nearest_of_a_tenth_and_reweights_the_picture(
    shape: tuple[int, int, int], seed: int
) -> None:
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    from anoco_edge.teaching.coreset import thin

    kept = thin(r, int(np.ceil(0.1 * references))).rows
    d = distances("l2", q, r[kept])
    scores = PatchCore(bank_of(r)).score(q)
    assert scores.energy == pytest.approx(d.min(axis=1), rel=1e-6)
    assert set(scores.anchor) <= set(kept)
    i = int(d.min(axis=1).argmax())
    nearest = int(d[i].argmin())
    around = np.argsort(distances("l2", r[kept][[nearest]], r[kept])[0])[:9]
    weight = 1 - np.exp(d[i, nearest]) / np.exp(d[i, around]).sum() if len(kept) > 1 else 1.0
    assert scores.picture == pytest.approx(weight * d[i, nearest], rel=1e-5)


def test_a_lonely_anchor_weighs_more_than_one_in_a_crowd() -> None:
    """The distance is the same, once to a patch among similar ones and once to an isolated one."""
    crowd = features(300, 3, 0, 40.0)
    alone = crowd[:1] + np.float32(500)
    near_both = bank_of(np.concatenate([crowd, alone]))
    step = np.float32([3, 0, 0])
    at_crowd = PatchCore(near_both)
    reference = at_crowd.score(crowd[:1] + step)
    lonely = at_crowd.score(alone + step)
    assert lonely.picture == pytest.approx(lonely.energy[0], rel=1e-6)
    assert reference.picture < reference.energy[0]


@settings(max_examples=20, deadline=None)
@given(pictures=st.integers(1, 6), retrieved=st.integers(1, 6), seed=seeds)
def test_spade_retrieves_pictures_and_then_patches_of_these(
    pictures: int, retrieved: int, seed: int
) -> None:
    q, r = features(8, 5, seed), features(10 * pictures, 5, seed + 1)
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(pictures) * 3, 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anoco_edge_calibration.evaluation.scorers.spade.RETRIEVED", retrieved)
        scores = Spade(bank_of(r, numbers)).score(q)
    means = np.stack([dense(r)[numbers == k].mean(axis=0) for k in np.unique(numbers)])
    away = np.linalg.norm(means - dense(q).mean(axis=0), axis=1)
    taken = np.argsort(away)[:retrieved]
    assert scores.picture == pytest.approx(away[taken].mean(), rel=1e-6)
    of_these = np.isin(numbers, np.unique(numbers)[taken])
    d = np.where(of_these[None], distances("l2", q, r), np.inf)
    assert scores.energy == pytest.approx(d.min(axis=1), rel=1e-5)
    assert (d.argmin(axis=1) == scores.anchor).all()


# ---- the principal subspace


def literal_residuals(q: Matrix, r: Matrix, variance: float) -> Matrix:
    """Add component after component to the subspace until it explains enough; then subtract."""
    mean = dense(r).mean(axis=0)
    centred = dense(r) - mean
    _, _, directions = np.linalg.svd(centred, full_matrices=True)
    subspace = np.zeros((q.shape[1], 0))
    for direction in directions[:-1]:  # one direction always stays outside
        left = centred - centred @ subspace @ subspace.T
        if (left**2).sum() <= (1 - variance) * (centred**2).sum() + 1e-9:
            break
        subspace = np.column_stack([subspace, direction])
    moved = dense(q) - mean
    return np.linalg.norm(moved - moved @ subspace @ subspace.T, axis=1)


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes, seed=seeds, variance=st.sampled_from([0.5, 0.9, 0.99]), flat=st.integers(1, 12)
)
def test_the_subspace_leaves_what_the_leading_components_do_not_explain(
    shape: tuple[int, int, int], seed: int, variance: float, flat: int
) -> None:
    """Banks have fewer patches than features, all directions, or a few and a little noise."""
    queries, references, dim = shape
    q, r = features(queries, dim, seed), features(references, dim, seed + 1)
    mixing = np.random.default_rng(seed).normal(size=(dim, dim)) * (np.arange(dim) < flat)
    r = (r @ mixing.T + 0.01 * features(references, dim, seed + 2)).astype(np.float32)
    expected = literal_residuals(q, r, variance)
    scores = Subspace(bank_of(r), variance).score(q)
    assert scores.energy == pytest.approx(expected, rel=1e-4, abs=1e-5 * float(np.abs(r).max()))
    d = distances("l2", q, r)
    assert d[np.arange(queries), scores.anchor] == pytest.approx(d.min(axis=1), rel=1e-5, abs=1e-5)


def test_a_patch_beyond_the_bank_has_no_energy_as_long_as_it_lies_in_its_plane() -> None:
    plane = features(2, 40, 0)
    inside = (features(60, 2, 1) @ plane).astype(np.float32)
    far = (np.float32([[50, -30], [-80, 10]]) @ plane).astype(np.float32)
    scorer = Subspace(bank_of(inside), 0.9999)
    assert scorer.score(far).energy == pytest.approx([0, 0], abs=1e-3)
    beside = np.linalg.qr(np.concatenate([plane, features(1, 40, 2)]).T)[0][:, 2]
    moved = far + np.float32(3) * beside.astype(np.float32)
    assert scorer.score(moved).energy == pytest.approx([3, 3], rel=1e-3)
    assert (Nearest(bank_of(inside), "l2").score(far).energy > 100).all()


def test_one_patch_or_copies_of_it_are_a_subspace_of_one_point() -> None:
    q, r = features(5, 6, 0), features(1, 6, 1)
    for bank in (r, np.repeat(r, 9, axis=0)):
        expected = np.linalg.norm(dense(q) - dense(r), axis=1)
        assert Subspace(bank_of(bank)).score(q).energy == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("variance", [0.0, 1.0, -0.5, float("nan")])
def test_the_explained_variance_is_a_share(variance: float) -> None:
    with pytest.raises(UsageError, match=r"variance is .*; it is a share"):
        Subspace(bank_of(features(9, 4, 0)), variance)


# ---- what they share


MADE: dict[str, Callable[[NeighborCache], Scorer]] = {
    name: (lambda bank, make=kind.make: make(bank, Parameters(), OwnSettings(rounds=2)))
    for name, kind in KINDS.items()
    if kind.make is not None and not kind.prompted  # WinCLIP has tests of its own
}


@pytest.mark.parametrize("name", MADE)
def test_a_name_makes_the_scorer_of_that_name(name: str) -> None:
    assert MADE[name](bank_of(features(30, 8, 0))).name == name


@pytest.mark.parametrize("name", MADE)
def test_blocks_and_pairs_do_not_change_the_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, r = features(50, 12, 0), features(70, 12, 1)
    whole = MADE[name](bank_of(r)).score(q)
    monkeypatch.setattr(neighbor_cache, "BLOCK_BYTES", 3 * 4 * 70)
    monkeypatch.setattr(search, "BLOCK_BYTES", 3 * 4 * 70)
    monkeypatch.setattr(search, "_PAIRS", 3)
    pieces = MADE[name](bank_of(r)).score(q)
    assert pieces.energy == pytest.approx(whole.energy, rel=1e-5)
    assert np.array_equal(whole.anchor, pieces.anchor)


@pytest.mark.parametrize("name", MADE)
def test_what_is_kept_of_one_picture_is_not_taken_for_the_next(name: str) -> None:
    r = features(60, 8, 1)
    shared = bank_of(r)
    scorer, other = MADE[name](shared), MADE[name](shared)
    for seed in (2, 3):
        q = features(20, 8, seed)
        alone = MADE[name](bank_of(r)).score(q)
        assert np.array_equal(scorer.score(q).energy, alone.energy)
        assert np.array_equal(other.score(q.copy()).energy, alone.energy)


def test_scorers_of_a_bank_compare_a_picture_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    for what in ("_distances", "_retrieved", "_conforming"):
        plain = getattr(NeighborCache, what)

        def spy(*args: object, what: str = what, plain: Callable[..., object] = plain) -> object:
            passes.append(what)
            return plain(*args)

        monkeypatch.setattr(NeighborCache, what, spy)
    shared, q = bank_of(features(60, 8, 1)), features(20, 8, 2)
    for _ in range(2):
        for make in MADE.values():
            make(shared).score(q)
    assert sorted(passes) == ["_conforming", *["_distances"] * 3, "_retrieved"]


@pytest.mark.parametrize("name", MADE)
def test_features_that_mean_nothing_are_refused(name: str) -> None:
    scorer = MADE[name](bank_of(features(30, 8, 0)))
    for bad in (np.nan, np.inf):
        query = features(2, 8, 1)
        query[1, 3] = bad
        with pytest.raises(ScoringError, match="query patch 1 contains NaN"):
            scorer.score(query)
    with pytest.raises(ScoringError, match="zero norm"):
        scorer.score(np.zeros((1, 8), np.float32))


@pytest.mark.parametrize("name", MADE)
def test_a_bank_of_one_patch_and_a_picture_of_one_patch(name: str) -> None:
    scores = MADE[name](bank_of(features(1, 8, 0))).score(features(1, 8, 1))
    assert np.isfinite(scores.energy).all() and scores.anchor.tolist() == [0]


def test_the_blend_is_the_geometric_mean_of_two_fourth_powers() -> None:
    q, r = features(40, 8, 1), features(60, 8, 2)
    cache, bank = bank_of(r), References.of(r)[0]
    calls: list[int] = []

    class Counted(ReferenceScorer):
        def score(self, query: Matrix) -> Scores:
            calls.append(len(query))
            return super().score(query)

    anoco = Counted(bank, Parameters())
    blends = [Blend(cache, anoco, "", Subspace(cache, share)) for share in (0.5, 0.9)]
    plain = ReferenceScorer(bank, Parameters()).score(q)
    for blend, share in zip(blends, (0.5, 0.9), strict=True):
        found = blend.score(q)
        length = Subspace(cache, share).score(q).energy.astype(np.float64)
        wanted = np.sqrt(plain.energy.astype(np.float64) * length**4)
        np.testing.assert_allclose(found.energy, wanted, rtol=1e-5)
        assert found.anchor.tolist() == plain.anchor.tolist()
    assert calls == [40]  # once for all blends of the same picture


# ---- foreground


def on_a_background(parts: int, seed: int) -> Matrix:
    """Return 64 patches in rows of 8, the last `parts` of the inner ones of a part."""
    patches = features(64, 12, seed, offset=0.2)
    inner = np.flatnonzero(~ring())
    patches[inner[len(inner) - parts :]] += 15
    return patches


def ring() -> np.ndarray:
    border = np.ones((8, 8), np.bool_)
    border[1:-1, 1:-1] = False
    return border.ravel()


def foreground(patches: Matrix) -> Scorer:
    bank, _ = References.of(patches)
    cache = NeighborCache(bank, border=ring())
    product = Product(name="nut", generation=1, changed="now", change="draft")
    return Variant("anoco-foreground").scorer(bank, cache, product, "reference", 1)


def test_the_background_is_neither_in_the_bank_nor_scored() -> None:
    bank, query = on_a_background(20, 0), on_a_background(12, 1)
    found = foreground(bank).score(query)
    part = query.mean(axis=1) > 8
    assert part.sum() == 12
    own, kept = bank[bank.mean(axis=1) > 8], np.flatnonzero(bank.mean(axis=1) > 8)
    wanted = ReferenceScorer(References.of(own)[0], Parameters()).score(query[part])
    assert found.energy[~part].tolist() == [0.0] * 52
    np.testing.assert_allclose(found.energy[part], wanted.energy, rtol=1e-6)
    assert found.anchor[part].tolist() == kept[wanted.anchor].tolist()


def test_a_picture_without_a_part_is_scored_as_a_whole_and_never_good_by_that() -> None:
    scorer = foreground(on_a_background(20, 0))
    found = scorer.score(on_a_background(0, 1))
    assert (found.energy > 0).all()
    assert found.energy.min() > scorer.score(on_a_background(20, 2)).energy.max()


def test_a_surface_has_no_background() -> None:
    surface = features(64, 12, 3)
    assert find_foreground(surface, ring()) is None
    plain = ReferenceScorer(References.of(surface)[0], Parameters())
    query = features(64, 12, 4)
    assert foreground(surface).score(query).energy.tolist() == plain.score(query).energy.tolist()
    touching = on_a_background(36, 5)
    touching[:32] += 15  # the part reaches over the border
    assert find_foreground(touching, ring()) is None
    assert find_foreground(on_a_background(20, 0), np.zeros(64, np.bool_)) is None


def test_patches_that_are_all_alike_have_no_threshold() -> None:
    assert otsu(np.ones(5)) == (1.0, 0.0)
    assert find_foreground(np.ones((64, 3), np.float32), ring()) is None
