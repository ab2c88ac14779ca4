"""Data sets: good parts to learn from, good and defective parts to test; `layouts` reads them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import Mask, Pixels
from anoco_edge_calibration.evaluation.turning import draw_angle, turned, turned_mask


@dataclass(frozen=True)
class TestPicture:
    """A picture to be scored, its kind of defect (None for a good part), and its mask."""

    __test__ = False  # otherwise pytest takes the class for a test

    path: Path
    defect: str | None
    mask: Path | None = None
    degrees: float = 0.0
    """The angle that the picture and its mask are turned by before they are measured."""

    def turn(self, rgb: Pixels) -> Pixels:
        """Return the pixels of the picture's file as they are measured."""
        return turned(rgb, self.degrees) if self.degrees else rgb

    def read_mask(self, size: tuple[int, int]) -> Mask:
        """Read the mask as it is measured, for a picture of this width and height."""
        if self.mask is None:
            raise PictureError(f"{self.path} has no mask", hint="draw where the defect is")
        mask = read_defect_mask(self.mask, size)
        return turned_mask(mask, self.degrees) if self.degrees else mask


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
    turn_seed: int | None = None
    """What draws the angles of the test pictures; None if they are measured as they lie."""

    def turn_tests(self, seed: int) -> DataSet:
        """Return the data set with every test picture turned by an angle of its own.

        An angle follows from the seed, the category, the kind of defect and the file name. Masks
        are read, because an angle that turns most of a defect out of the picture is not taken.
        """
        categories = tuple(
            replace(category, test=tuple(_turn(seed, category.name, one) for one in category.test))
            for category in self.categories
        )
        return replace(self, categories=categories, turn_seed=seed)


def _turn(seed: int, category: str, picture: TestPicture) -> TestPicture:
    mask = None
    if picture.mask is not None:
        with suppress(PictureError):  # a mask that cannot be read is reported when it is measured
            mask = _read_marks(picture.mask)
    name = f"{category}/{picture.defect or 'good'}/{picture.path.name}"
    return replace(picture, degrees=draw_angle(seed, name, mask))


def read_defect_mask(path: Path, size: tuple[int, int]) -> Mask:
    """Read a mask that is True where a picture of this width and height is defective.

    A pixel counts if it is white (over 127). A mask without white holds labels, and every label
    but 0 counts.
    """
    mask = _read_marks(path)
    height, width = mask.shape
    if (width, height) != size:
        raise PictureError(
            f"the mask {path} is {width}x{height}, its picture {size[0]}x{size[1]}",
            hint="masks have the size of their picture",
        )
    return mask


def _read_marks(path: Path) -> Mask:
    red, green, blue = np.moveaxis(read_picture(path), 2, 0)
    values = np.maximum(np.maximum(red, green), blue)  # many times faster than max(axis=2)
    mask: Mask = values > (127 if values.max() > 127 else 0)
    if not mask.any():
        raise PictureError(f"the mask {path} marks nothing", hint="a defect is white in it")
    return mask
