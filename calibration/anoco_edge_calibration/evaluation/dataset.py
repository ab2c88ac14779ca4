"""Data sets: good parts to learn from, good and defective parts to test; `layouts` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import Mask


@dataclass(frozen=True)
class TestPicture:
    """A picture to be scored, its kind of defect (None for a good part), and its mask."""

    __test__ = False  # otherwise pytest takes the class for a test

    path: Path
    defect: str | None
    mask: Path | None = None


@dataclass(frozen=True)
class Category:
    """One kind of part, with its training and test pictures."""

    name: str
    train: tuple[Path, ...]
    test: tuple[TestPicture, ...]

    @property
    def has_masks(self) -> bool:
        """Whether any test picture has a mask of its defect."""
        return any(picture.mask for picture in self.test)

    @property
    def has_both(self) -> bool:
        """Whether there are good and defective test pictures, which image metrics need."""
        defective = [picture.defect is not None for picture in self.test]
        return any(defective) and not all(defective)

    def draw(self, shots: int | None, seed: int) -> list[Path]:
        """Draw so many training pictures (None: all) by the seed; a draw of 4 contains that of 2.

        The pictures are those that an export with the same shots and seed takes.

        >>> parts = Category("nut", tuple(Path(f"{k}.png") for k in range(9)), ())
        >>> set(parts.draw(2, seed=5)) < set(parts.draw(4, seed=5))
        True
        """
        if shots is None:
            return list(self.train)
        drawn = np.random.default_rng(seed).permutation(len(self.train))[:shots]
        return [self.train[k] for k in sorted(drawn)]


@dataclass(frozen=True)
class DataSet:
    """Categories that are measured together, and the layout they were read from."""

    name: str
    categories: tuple[Category, ...]
    layout: str = "mvtec"


def read_defect_mask(path: Path, size: tuple[int, int]) -> Mask:
    """Read a mask that is True where a picture of this width and height is defective.

    A pixel counts if it is white (over 127). A mask without white holds labels, and every label
    but 0 counts.
    """
    red, green, blue = np.moveaxis(read_picture(path), 2, 0)
    values = np.maximum(np.maximum(red, green), blue)  # many times faster than max(axis=2)
    height, width = values.shape
    if (width, height) != size:
        raise PictureError(
            f"the mask {path} is {width}x{height}, its picture {size[0]}x{size[1]}",
            hint="masks have the size of their picture",
        )
    mask: Mask = values > (127 if values.max() > 127 else 0)
    if not mask.any():
        raise PictureError(f"the mask {path} marks nothing", hint="a defect is white in it")
    return mask
