"""A relative lambda follows the norms of the bank, so that it means the same for every backbone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from anoco_edge.bundle import Product
from anoco_edge.errors import UsageError
from anoco_edge.scoring import Parameters, References, open_scorer
from anoco_edge.scoring.lambdas import Lambda

Matrix = NDArray[np.float64]


def bank_of(*norms: float) -> References:
    return References.of(np.diag(norms).astype(np.float32))[0]


def test_the_median_norm_of_odd_and_even_numbers_of_patches() -> None:
    assert bank_of(9, 2, 5).median_norm == 5
    assert bank_of(9, 2, 5, 6).median_norm == 5.5
    assert bank_of(7).median_norm == 7
    # The mean of two is not rounded to float32.
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert bank_of(low, high).median_norm == (float(low) + float(high)) / 2


def energies(query: Matrix, references: Matrix, lam: Lambda) -> Matrix:
    bank, _ = References.of(references)
    scorer = open_scorer("reference", bank, Parameters(lam.of(bank)))
    return np.asarray(scorer.score(query).energy)


@pytest.mark.parametrize("scale", [0.01, 40.0])
def test_features_of_another_scale_give_the_same_energies(scale: float) -> None:
    """An energy is a squared length times a number that has no unit."""
    rng = np.random.default_rng(0)
    query, references = rng.normal(size=(30, 8)), rng.normal(size=(50, 8))
    relative, absolute = Lambda(0.3, "relative"), Lambda(0.3)
    once = energies(query, references, relative)
    again = energies(scale * query, scale * references, relative)
    np.testing.assert_allclose(again, scale**2 * once, rtol=1e-6)  # norms are float32
    other = energies(scale * query, scale * references, absolute)
    assert np.abs(other / scale**2 / energies(query, references, absolute) - 1).max() > 0.1


def test_what_is_read_and_written() -> None:
    for text in ("1", "0.05x", "1e-24", "2.5x", "0.30000000000000004x"):
        assert str(Lambda.parse(text)) == text
    assert Lambda.parse("3x") == Lambda(3.0, "relative")
    for text in ("", "x", "1 x y", "0.05X", "much", "0", "-1x", "nan", "infx", "1e30"):
        with pytest.raises(UsageError, match=r"lambda is .*it must be a number.*0\.05x"):
            Lambda.parse(text)


def product(**fields: object) -> Product:
    common = {"name": "part", "generation": 1, "changed": "", "change": ""}
    return Product.model_validate({**common, **fields})


def test_a_product_says_whether_its_lambda_is_relative_and_else_is_written_as_before() -> None:
    assert "lambda_kind" not in product().model_dump(by_alias=True)
    assert "lambda_kind" not in product(lambda_kind="absolute").model_dump_json()
    relative = product(**{"lambda": 0.5, "lambda_kind": "relative"})
    assert relative.model_dump(by_alias=True)["lambda_kind"] == "relative"
    assert Product.model_validate(relative.model_dump(by_alias=True)) == relative
    bank = bank_of(9, 2, 5)
    assert relative.parameters(bank) == Parameters(2.5)
    assert product(**{"lambda": 0.5}).parameters(bank) == Parameters(0.5)
