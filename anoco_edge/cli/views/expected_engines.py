"""Which engine would run the products of a bundle on this machine, and in which precision."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypedDict

from anoco_edge.bundle import Bundle, Product
from anoco_edge.cli.console import out
from anoco_edge.engines import CpuPrecision, EngineSettings
from anoco_edge.engines.opening import plan_engine
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.text.plain_text import plain_text

NEW = "a new product"


class ExpectedEngine(TypedDict):
    """The engine for one product, or for a new one, before the self-test has a say."""

    product: str
    engine: str | None
    cpu_precision: str | None
    reason: str


def expected_engines(
    bundle: Bundle, products: Sequence[Product], engine: str, cpu_precision: CpuPrecision
) -> list[ExpectedEngine]:
    """Find out for each product, and for one that is taught next, what would run here.

    A precision that is asked for by its name and is not there is an error.
    """
    settings = EngineSettings(cpu_precision=cpu_precision)
    return [_expected(bundle, product, engine, settings) for product in (*products, None)]


def _expected(
    bundle: Bundle, product: Product | None, engine: str, settings: EngineSettings
) -> ExpectedEngine:
    name = NEW if product is None else product.name
    try:
        choice, precision = plan_engine(engine, bundle, settings, product)
    except EnvironmentMissingError as error:
        if settings.cpu_precision != "auto":
            raise
        return ExpectedEngine(product=name, engine=None, cpu_precision=None, reason=error.what)
    if precision is None:
        return ExpectedEngine(
            product=name, engine=choice.name, cpu_precision=None, reason=choice.reason
        )
    return ExpectedEngine(
        product=name, engine=choice.name, cpu_precision=precision.name, reason=precision.reason
    )


def show_expected_engines(expected: Sequence[ExpectedEngine]) -> None:
    """Print a line for each of them."""
    for one in expected:
        what = " in ".join(filter(None, (one["engine"] or "nothing", one["cpu_precision"])))
        words = f"{one['product']}: {what} would run here ({one['reason']})"
        out.print(plain_text(words), soft_wrap=True, markup=False)
