"""What the convolutional families share: a stem and then stages; a tap is the end of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anoco_edge_export.families import Module, StateDict, Tensor
from anoco_edge_export.lazy_import import lazy_import


def official(stem: Sequence[Module], stages: Mapping[str, Module], taps: Sequence[str]) -> Any:
    """Return a module from normalized NCHW to the outputs of `taps`, cut after the last of them."""
    torch = lazy_import("torch")
    base: Any = torch.nn.Module

    class OfficialBackbone(base):  # type: ignore[misc]  # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Sequential(*stem)
            self.names = _upto(list(stages), taps)
            self.stages = torch.nn.ModuleList(stages[name] for name in self.names)

        def forward(self, x: Any) -> tuple[list[Tensor], StateDict]:
            x = self.stem(x)
            ends = {}
            for name, stage in zip(self.names, self.stages, strict=True):
                ends[name] = x = stage(x)
            return [ends[tap] for tap in taps], ends

    return OfficialBackbone()


def rewritten(trunk: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """Return a module that normalizes raw pixels and runs `trunk`.

    The normalization is not folded into the first convolution, because that convolution pads the
    normalized picture with zeros: folding would be wrong along the border.
    """
    torch = lazy_import("torch")
    base: Any = torch.nn.Module

    class RewrittenBackbone(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trunk = trunk
            self.register_buffer("mean", 255 * torch.tensor(mean).reshape(3, 1, 1))
            self.register_buffer("std", 255 * torch.tensor(std).reshape(3, 1, 1))

        def forward(self, pixels: Any) -> tuple[list[Tensor], StateDict]:
            taps, ends = self.trunk((pixels - self.mean) / self.std)
            return taps, ends

    return RewrittenBackbone()


def draw(state: StateDict, generator: Any) -> None:
    """Redraw the statistics of batch norms, which timm sets to one and zero."""
    torch = lazy_import("torch")
    for key, value in state.items():
        if key.endswith("running_var"):
            value.copy_(torch.empty_like(value).uniform_(0.5, 2.0, generator=generator))
        elif key.endswith("running_mean"):
            value.copy_(torch.empty_like(value).normal_(0.0, 0.2, generator=generator))


def _upto(names: list[str], taps: Sequence[str]) -> list[str]:
    return names[: max(names.index(tap) for tap in taps) + 1]
