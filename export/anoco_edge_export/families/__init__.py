"""What differs between architectures: where a model is tapped, and how weights files name tensors.

To add a family, write a module with the functions of `Family` and add a line to `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast


@dataclass(frozen=True)
class FamilyEntry:
    """The module of a family, and the norms that its taps can have."""

    module: str
    norms: tuple[str, ...]


Module = Any
"""A torch.nn.Module; torch is imported late."""
Tensor = Any
"""A torch.Tensor, or anything else in doctests; torch is imported late."""
StateDict = dict[str, Tensor]
"""The tensors of a model by their names."""

_CNN = ("none", "layernorm")
_VIT = ("none", "layernorm", "model")

FAMILIES = {
    "clip-windows": FamilyEntry("anoco_edge_export.families.clip_windows", ("model",)),
    "efficientnet": FamilyEntry("anoco_edge_export.families.efficientnet", _CNN),
    "mobilenet": FamilyEntry("anoco_edge_export.families.mobilenet", _CNN),
    "resnet": FamilyEntry("anoco_edge_export.families.resnet", _CNN),
    "vit": FamilyEntry("anoco_edge_export.families.vit", _VIT),
}


class Family(Protocol):
    """The functions that a module of this package has."""

    def official(self, model: Any, taps: Sequence[str], norm: bool) -> Any:
        """Return timm's unchanged model as a torch module from normalized NCHW to the taps.

        A tap is [batch, d, rows, cols] (CNN) or [batch, rows * cols, d] (ViT). With `norm` the
        model's own final norm is applied to each.
        """

    def rewritten(
        self,
        model: Any,
        taps: Sequence[str],
        norm: bool,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        whole: bool = False,
    ) -> Any:
        """Return the same computation in the form that exports best; it takes raw NCHW pixels.

        It gives the taps, then every layer up to the last tap by name. It may change `model`. With
        `whole`, no operation is cut into pieces for the cache of a CPU.
        """

    def convert(self, layout: str, state: Mapping[str, Tensor], wanted: Sequence[str]) -> StateDict:
        """Return the tensors of a file in `layout` under timm's names.

        A key without a rule stays as it is. `wanted` are the names of the model to be filled.
        """

    def draw(self, state: StateDict, generator: Any) -> None:
        """Redraw in place the tensors that timm initializes unlike those of a trained model."""


def family(name: str) -> Family:
    """Return the family that a recipe names.

    >>> list(family("efficientnet").convert("timm", {"bn1.bias": 0}, []))
    ['bn1.bias']
    """
    return cast(Family, import_module(FAMILIES[name].module))
