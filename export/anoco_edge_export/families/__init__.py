"""What differs between architectures: where to tap the model, and how weight files name things.

A new family is one module here with the functions of `Family`, and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class FamilyEntry:
    """Where a family's module is, and the norms its taps can be given."""

    module: str
    norms: tuple[str, ...]


_CNN = ("none", "layernorm")
_VIT = ("none", "model")

FAMILIES = {
    "efficientnet": FamilyEntry("anoco_edge_export.families.efficientnet", _CNN),
    "mobilenet": FamilyEntry("anoco_edge_export.families.mobilenet", _CNN),
    "resnet": FamilyEntry("anoco_edge_export.families.resnet", _CNN),
    "vit": FamilyEntry("anoco_edge_export.families.vit", _VIT),
}


class Family(Protocol):
    """A module of this package, seen as a value."""

    def official(self, model: Any, taps: Sequence[str], norm: bool) -> Any:
        """timm's model, untouched, as a torch module: normalised NCHW in, the taps out.

        A tap is [batch, d, rows, cols] (CNN) or [batch, rows * cols, d] (ViT); with `norm` the
        model's own final norm is applied to each.
        """

    def rewritten(
        self,
        model: Any,
        taps: Sequence[str],
        norm: bool,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> Any:
        """The same computation in the form that exports best: raw pixels (0..255) NCHW in.

        Gives the taps, then every layer up to the last tap by name. May change `model`.
        """

    def convert(
        self, layout: str, state: Mapping[str, Any], wanted: Sequence[str]
    ) -> dict[str, Any]:
        """A weights file of `layout` under timm's names; keys without a rule stay as they are.

        `wanted` are the names of the model that is to be filled.
        """

    def draw(self, state: dict[str, Any], generator: Any) -> None:
        """Redraw in place what timm initialises far from a trained model's scale."""


def family(name: str) -> Family:
    """The family a recipe names.

    >>> list(family("efficientnet").convert("timm", {"bn1.bias": 0}, []))
    ['bn1.bias']
    """
    return cast(Family, import_module(FAMILIES[name].module))
