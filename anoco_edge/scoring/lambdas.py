"""Lambda, as a number of its own or in units of the bank's norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anoco_edge.errors import UsageError
from anoco_edge.scoring.types import LAMBDA_RANGE, References

LambdaKind: TypeAlias = Literal["absolute", "relative"]


@dataclass(frozen=True)
class Lambda:
    """How strongly a patch holds its place: `value`, or so many median norms of the bank.

    Lambda is compared with sums of edge weights, which are in units of feature norms. A relative
    value therefore means the same for every backbone.

    >>> import numpy as np
    >>> bank, _ = References.of(np.array([[3.0, 4.0], [0.0, 9.0], [6.0, 8.0]]))
    >>> Lambda(2.0).of(bank), Lambda(0.5, "relative").of(bank)
    (2.0, 4.5)
    """

    value: float = 1.0
    kind: LambdaKind = "absolute"

    @staticmethod
    def parse(text: str) -> Lambda:
        """Read a number, or a relative one, which ends in x.

        >>> Lambda.parse("2"), str(Lambda.parse("0.050x"))
        (Lambda(value=2.0, kind='absolute'), '0.05x')
        """
        relative = text.endswith("x")
        low, high = LAMBDA_RANGE
        rule = f"it must be a number from {low:g} to {high:g}, or such a number of the bank's "
        rule += "median norms, which ends in x: 0.05x"
        try:
            value = float(text.removesuffix("x"))
        except ValueError:
            raise UsageError(f"lambda is {text!r}", hint=rule) from None
        if not low <= value <= high:
            raise UsageError(f"lambda is {text}", hint=rule)
        return Lambda(value, "relative" if relative else "absolute")

    def of(self, bank: References) -> float:
        """Return the number that scorers take."""
        return self.value * bank.median_norm if self.kind == "relative" else self.value

    def __str__(self) -> str:
        short = f"{self.value:g}"
        exact = short if float(short) == self.value else repr(self.value)
        return exact + ("x" if self.kind == "relative" else "")
