"""What is compared on a data set: scorers, each with one choice of its parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anoco_edge.bundle import Product
from anoco_edge.errors import UsageError
from anoco_edge.scoring import POOLINGS, Parameters, References, Scorer, open_scorer
from anoco_edge_calibration.knn import KnnCosine, KnnL2

KINDS = ("anoco", "knn-l2", "knn-cosine")
SWEPT = ("lambda", "metric", "floor", "pooling")
_OF_ALL = ("pooling",)  # says how energies become a score, whatever computed them
_NUMBERS = ("lambda", "floor")

Choice = str | float


@dataclass(frozen=True)
class Variant:
    """A scorer, and the settings in which it differs from the product it scores for."""

    kind: str
    choices: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As tables call it.

        >>> Variant("anoco", {"lambda": 0.1, "pooling": "top5"}).name
        'anoco lambda=0.1 pooling=top5'
        """
        return " ".join([self.kind, *(f"{k}={_text(v)}" for k, v in self.choices.items())])

    def product(self, product: Product) -> Product:
        """The product with this variant's settings."""
        own = {"lam" if k == "lambda" else k: v for k, v in self.choices.items()}
        return product.model_copy(update=own)

    def scorer(self, bank: References, product: Product, name: str, threads: int) -> Scorer:
        """A scorer with the parameters of `product`; `name` and `threads` are `open_scorer`'s."""
        if self.kind == "knn-l2":
            return KnnL2(bank)
        if self.kind == "knn-cosine":
            return KnnCosine(bank)
        parameters = Parameters(product.lam, product.metric, product.floor)
        return open_scorer(name, bank, parameters, threads=threads)


def parse_variants(scorers: str, sweeps: Sequence[str] = ()) -> list[Variant]:
    """`anoco,knn-l2` and any number of `lambda=0.1,1`: every combination of what is swept.

    ANoCo's parameters are swept for ANoCo alone, the pooling for every scorer.

    >>> [v.name for v in parse_variants("anoco,knn-l2", ["lambda=0.1,1"])]
    ['anoco lambda=0.1', 'anoco lambda=1', 'knn-l2']
    """
    kinds = list(dict.fromkeys(part.strip() for part in scorers.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"unknown scorer {kind!r}", hint=f"use {', '.join(KINDS)}")
    swept = _parse_sweeps(sweeps)
    idle = [name for name in swept if name not in _OF_ALL]
    if idle and "anoco" not in kinds:
        raise UsageError(
            f"--sweep {idle[0]} is for anoco, which is not among the scorers",
            hint="add anoco to --scorers",
        )
    variants = []
    for kind in kinds:
        own = {k: v for k, v in swept.items() if kind == "anoco" or k in _OF_ALL}
        combined = itertools.product(*own.values())
        variants += [Variant(kind, dict(zip(own, values, strict=True))) for values in combined]
    return variants


def _parse_sweeps(sweeps: Sequence[str]) -> dict[str, list[Choice]]:
    swept: dict[str, list[Choice]] = {}
    for text in sweeps:
        name, equals, values = text.partition("=")
        if name not in SWEPT or not equals or not all(values.split(",")):
            raise UsageError(
                f"{text!r} is not a sweep",
                hint=f"write lambda=0.1,1,10; what can be swept is {', '.join(SWEPT)}",
            )
        if name in swept:
            raise UsageError(f"{name} is swept twice", hint="give all its values at once")
        swept[name] = list(dict.fromkeys(_value(name, part) for part in values.split(",")))
    return swept


def _value(name: str, text: str) -> Choice:
    """One value, refused now if the scorer would refuse it later."""
    if name == "pooling":
        if text not in POOLINGS:
            raise UsageError(f"unknown pooling {text!r}", hint=f"use {', '.join(POOLINGS)}")
        return text
    value: Any = text
    if name in _NUMBERS:
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{name} is {text!r}", hint="it must be a number") from None
    Parameters(**{"lam" if name == "lambda" else name: value})
    return value  # type: ignore[no-any-return]


def _text(value: Choice) -> str:
    """Short, unless that makes two values look the same."""
    if isinstance(value, str):
        return value
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
