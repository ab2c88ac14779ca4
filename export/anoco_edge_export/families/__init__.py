"""What differs between architectures: where to cut the model, and how weight files name things.

A new family is one module here with the functions of `Family`, and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

FAMILIES = {"efficientnet": "anoco_edge_export.families.efficientnet"}


class Family(Protocol):
    """A module of this package, seen as a value."""

    def cut(self, model: Any, tap: str) -> Any:
        """A torch module: normalised NCHW in, NCHW output of `tap` out, nothing after it."""

    def rename(self, layout: str, key: str, wanted: Sequence[str]) -> str:
        """The model's name for a weights file's `key`; a key without a rule stays as it is."""


def family(name: str) -> Family:
    """The family a recipe names.

    >>> family("efficientnet").rename("timm", "bn1.bias", [])
    'bn1.bias'
    """
    return cast(Family, import_module(FAMILIES[name]))
