"""Data sets: good parts to learn from, good and defective ones to test. `layouts` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import Mask


@dataclass(frozen=True)
class TestPicture:
    """A picture to be scored: what is wrong with the part (None: nothing), and where."""

    __test__ = False  # pytest takes the name for a test's

    path: Path
    defect: str | None
    mask: Path | None = None


@dataclass(frozen=True)
class Category:
    """One kind of part."""

    name: str
    train: tuple[Path, ...]
    test: tuple[TestPicture, ...]

    @property
    def has_masks(self) -> bool:
        """Whether it says anywhere where a defect is."""
        return any(picture.mask for picture in self.test)

    @property
    def has_both(self) -> bool:
        """Whether there are good and defective test pictures, which image metrics need."""
        defective = [picture.defect is not None for picture in self.test]
        return any(defective) and not all(defective)

    def draw(self, shots: int | None, seed: int) -> list[Path]:
        """So many training pictures (None: all), drawn by the seed: 4 of them contain the 2.

        The pictures are those that `anoco-edge export --refs --shots --seed` takes.

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
    """Categories that are measured together."""

    name: str
    categories: tuple[Category, ...]
    layout: str = "mvtec"


def read_mask(path: Path, size: tuple[int, int]) -> Mask:
    """Where a picture of this width and height is defective: True.

    White (over 127) counts; a mask without white holds labels, of which all but 0 count.
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
