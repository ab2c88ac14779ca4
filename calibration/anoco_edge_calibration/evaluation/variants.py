"""The variants that are compared on a data set: scorers with one choice of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anoco_edge.bundle import Product
from anoco_edge.errors import UsageError
from anoco_edge.scoring import POOLINGS, Parameters, References, Scorer, open_scorer
from anoco_edge.scoring.lambdas import Lambda
from anoco_edge_calibration.evaluation.scorers import (
    ANOCO,
    KINDS,
    MOST_ROUNDS,
    NeighborCache,
    OwnSettings,
    check_temperature,
    check_variance,
)

ALL = "all"
_OWN = ("rounds", "variance", "temperature")  # settings that no product records
SWEPT = ("lambda", "metric", "floor", "pooling", *_OWN)
_NUMBERS = ("floor", "variance", "temperature")
_CHECKS = {"variance": check_variance, "temperature": check_temperature}
_ROUNDS = tuple(range(1, MOST_ROUNDS + 1))

SettingValue = str | float


@dataclass(frozen=True)
class Variant:
    """A scorer, and the settings in which it differs from the product it scores for."""

    kind: str
    choices: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the variant in tables.

        >>> Variant("anoco", {"lambda": 0.1, "pooling": "top5"}).name
        'anoco lambda=0.1 pooling=top5'
        """
        return " ".join([self.kind, *(f"{k}={_text(v)}" for k, v in self.choices.items())])

    def without(self, setting: str) -> Variant:
        """Return the variant with the product's own value of a setting.

        >>> Variant("anoco", {"lambda": 0.1, "pooling": "top5"}).without("pooling").name
        'anoco lambda=0.1'
        """
        return Variant(self.kind, {k: v for k, v in self.choices.items() if k != setting})

    @property
    def prompted(self) -> bool:
        """Whether it needs a bundle with windows and prompts."""
        return KINDS[self.kind].prompted

    def product(self, product: Product) -> Product:
        """Return the product with the settings of this variant."""
        update: dict[str, Any] = {k: v for k, v in self.choices.items() if k not in _OWN}
        if "lambda" in update:
            lam = Lambda.parse(str(update.pop("lambda")))
            update |= {"lam": lam.value, "lambda_kind": lam.kind}
        return product.model_copy(update=update)

    def scorer(
        self,
        bank: References,
        neighbor_cache: NeighborCache,
        product: Product,
        name: str,
        threads: int,
    ) -> Scorer:
        """Return a scorer with the parameters of `product`.

        `name` and `threads` are those of `open_scorer`. Scorers of one bank share `neighbor_cache`.
        """
        kind = KINDS[self.kind]
        parameters = product.parameters(bank)
        if kind.metric is not None:
            parameters = replace(parameters, metric=kind.metric)

        def anoco(bank: References) -> Scorer:
            return open_scorer(name, bank, parameters, threads=threads)

        own: dict[str, Any] = {k: v for k, v in self.choices.items() if k in _OWN}
        if kind.wrap is not None:
            return kind.wrap(neighbor_cache, bank, parameters, OwnSettings(**own), anoco)
        if kind.make is None:
            return anoco(bank)
        return kind.make(neighbor_cache, parameters, OwnSettings(**own))


def parse_variants(
    scorers: str, sweeps: Sequence[str] = (), *, sweep_label: str = "a sweep of"
) -> list[Variant]:
    """Combine scorers, such as `anoco,knn-l2`, with all sweeps, such as `lambda=0.1,1`.

    A setting is swept for the scorers that take it. `all` stands for all scorers but those that
    need prompts, which few bundles have. Message passing is tried with every number of rounds
    unless they are swept. Errors about a sweep begin with
    `sweep_label` and the setting.

    >>> [v.name for v in parse_variants("anoco,knn-l2", ["lambda=0.1,1"])]
    ['anoco lambda=0.1', 'anoco lambda=1', 'knn-l2']
    """
    named = list(dict.fromkeys(part.strip() for part in scorers.split(",")))
    kinds = [k for k in KINDS if not KINDS[k].prompted] if named == [ALL] else named
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"unknown scorer {kind!r}", hint=f"use {', '.join(KINDS)}, or {ALL}")
    swept = _parse_sweeps(sweeps)
    for name in swept:
        check_taken(name, kinds, f"{sweep_label} {name}")
    swept.setdefault("rounds", list(_ROUNDS))
    variants = []
    for kind in kinds:
        own = {k: v for k, v in swept.items() if k in KINDS[kind].takes}
        combined = itertools.product(*own.values())
        variants += [Variant(kind, dict(zip(own, values, strict=True))) for values in combined]
    return variants


def check_taken(name: str, kinds: Sequence[str], option: str) -> None:
    """Raise UsageError if no scorer takes this setting; the error calls it `option`."""
    takers = [kind for kind in KINDS if name in KINDS[kind].takes]
    if not set(takers) & set(kinds):
        raise UsageError(
            f"{option} is for {', '.join(takers)}: none of them is among the scorers",
            hint=f"add {ANOCO if ANOCO in takers else takers[0]} to the scorers",
        )


def _parse_sweeps(sweeps: Sequence[str]) -> dict[str, list[SettingValue]]:
    swept: dict[str, list[SettingValue]] = {}
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


def _value(name: str, text: str) -> SettingValue:
    """Parse one value; a value that the scorer would refuse later is refused now."""
    if name == "pooling":
        if text not in POOLINGS:
            raise UsageError(f"unknown pooling {text!r}", hint=f"use {', '.join(POOLINGS)}")
        return text
    if name == "rounds":
        if not (text.isdecimal() and int(text) in _ROUNDS):
            raise UsageError(f"rounds are {text!r}", hint=f"use 1 to {MOST_ROUNDS}")
        return int(text)
    if name == "lambda":
        lam = Lambda.parse(text)
        return lam.value if lam.kind == "absolute" else str(lam)
    value: Any = text
    if name in _NUMBERS:
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{name} is {text!r}", hint="it must be a number") from None
    if name in _CHECKS:
        _CHECKS[name](value)
        return float(value)
    Parameters(**{name: value})
    return value  # type: ignore[no-any-return]


def _text(value: SettingValue) -> str:
    """Format a value in short form, unless two values would then look the same."""
    if isinstance(value, str):
        return value
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
