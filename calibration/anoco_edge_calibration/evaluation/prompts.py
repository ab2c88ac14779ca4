"""What a bundle of WinCLIP has beside features: windows in them, and the features of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.store import PROMPTS
from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.scoring.types import Floats

_WINDOWS = "windows."
_EXPORT = "export the bundle again"


@dataclass(frozen=True)
class WindowLayout:
    """Where the features of patches, windows and the whole picture lie in a row of features.

    The row of a patch holds the window of each scale whose upper left patch it is.
    """

    rows: int
    cols: int
    patch_dim: int
    window_dim: int
    scales: tuple[int, ...]
    """The sides of the windows, in patches."""

    def patches(self, features: Floats) -> Floats:
        """Return the features of the patches."""
        return features[:, : self.patch_dim]

    def windows(self, features: Floats, scale: int) -> Floats:
        """Return the features of the windows of one scale."""
        start = self.patch_dim + self.scales.index(scale) * self.window_dim
        return features[:, start : start + self.window_dim]

    def picture(self, features: Floats) -> Floats:
        """Return the features of the whole picture, as one row."""
        return features[:1, self.patch_dim + len(self.scales) * self.window_dim :]


@dataclass(frozen=True)
class BundlePrompts:
    """The layout of a bundle's features, and for each object those of its prompts.

    The two rows of an object are unit vectors: a good object and a damaged one.
    """

    layout: WindowLayout
    objects: Mapping[str, NDArray[np.float32]]

    @staticmethod
    def read(bundle: Bundle) -> BundlePrompts:
        """Read what `export` wrote; a bundle that has no windows or no prompts is an error."""
        taps = bundle.manifest.backbone.tap.split("+")
        scales = tuple(int(t.removeprefix(_WINDOWS)) for t in taps if t.startswith(_WINDOWS))
        shape = [taps[0].startswith("blocks."), *(t.startswith(_WINDOWS) for t in taps[1:-1])]
        if not scales or not all(shape) or taps[-1] != "picture":
            raise UsageError(
                f"{bundle.path} has no windows: its taps are {', '.join(taps)}",
                hint="WinCLIP needs a bundle of `backbone=winclip-b-plus`",
            )
        if not any(record.path == PROMPTS for record in bundle.manifest.files):
            raise UsageError(
                f"{bundle.path} has no prompts", hint="export it with `prompts=OBJECT,OBJECT`"
            )
        objects = read_tensors(bundle.read(bundle.file(PROMPTS)), f"{PROMPTS} is broken")
        contract = bundle.manifest.input
        dims = {rows.shape for rows in objects.values()}
        (shape_of_all, *others) = dims or {(0,)}
        if others or len(shape_of_all) != 2 or shape_of_all[0] != 2:
            raise BundleError(f"{PROMPTS} does not hold two rows for each object", hint=_EXPORT)
        window = shape_of_all[1]
        patch = contract.dim - (len(scales) + 1) * window
        if patch <= 0 or not all(np.isfinite(rows).all() for rows in objects.values()):
            raise BundleError(f"{PROMPTS} does not fit the features of the bundle", hint=_EXPORT)
        layout = WindowLayout(contract.rows, contract.cols, patch, window, scales)
        return BundlePrompts(layout, objects)

    def about(self, category: str) -> NDArray[np.float32]:
        """Return the features of the prompts about the objects of a category."""
        name = object_name(category)
        if name not in self.objects:
            known = ", ".join(self.objects)
            raise UsageError(
                f"the bundle has no prompts about {name!r}, but about {known}",
                hint=f"export it with `prompts={name}`, or leave this category out",
            )
        return self.objects[name]


def object_name(category: str) -> str:
    """Return the name that prompts have for the objects of a category.

    >>> object_name("metal_nut")
    'metal nut'
    """
    return " ".join(category.replace("_", " ").split()).lower()


def check_prompts(bundle: Bundle, categories: Sequence[str]) -> None:
    """Raise UsageError unless the bundle has windows, and prompts about all these categories."""
    prompts = BundlePrompts.read(bundle)
    for category in categories:
        prompts.about(category)
