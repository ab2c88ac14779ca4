"""Data sets in the layout of MVTec AD: good parts to learn from, good and defective ones to test.

CATEGORY/train/good/*            CATEGORY/test/good/*            CATEGORY/test/DEFECT/*
CATEGORY/ground_truth/DEFECT/*   masks, named like their picture or with `_mask` behind it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anoco_edge.errors import PictureError, UsageError
from anoco_edge.pictures import PICTURE_SUFFIXES, read_picture
from anoco_edge.preprocess import Mask
from anoco_edge.sources.files import natural_key

GOOD = "good"
LAYOUT = (
    "expected is [CATEGORY/]train/good/*.png, test/good/*.png, test/DEFECT/*.png and "
    "ground_truth/DEFECT/*.png (masks, white is defective)"
)


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


def open_dataset(folder: Path, wanted: Sequence[str] = ()) -> DataSet:
    """One category, or a folder of them; `wanted` names those to take (default: all)."""
    if not folder.is_dir():
        raise UsageError(f"there is no data set at {folder}", hint=LAYOUT)
    if _is_category(folder):
        found = {folder.resolve().name: folder}
    else:
        found = {path.name: path for path in sorted(folder.iterdir()) if _is_category(path)}
    if not found:
        raise UsageError(f"{folder} is not a data set: there is no train/good in it", hint=LAYOUT)
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise UsageError(
            f"{folder} has no category {', '.join(unknown)}", hint=f"it has {', '.join(found)}"
        )
    names = list(dict.fromkeys(wanted)) or list(found)
    categories = tuple(_read_category(name, found[name]) for name in names)
    return DataSet(folder.resolve().name, categories)


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


def _is_category(folder: Path) -> bool:
    return (folder / "train" / GOOD).is_dir()


def _read_category(name: str, folder: Path) -> Category:
    train = _pictures(folder / "train" / GOOD)
    if not train:
        raise UsageError(f"{folder / 'train' / GOOD} holds no picture", hint=LAYOUT)
    test: list[TestPicture] = []
    kinds = (folder / "test").iterdir() if (folder / "test").is_dir() else ()
    for kind in sorted(path for path in kinds if path.is_dir()):
        if kind.name == GOOD:
            test += [TestPicture(path, None) for path in _pictures(kind)]
            continue
        masks = {path.stem: path for path in _pictures(folder / "ground_truth" / kind.name)}
        for path in _pictures(kind):
            mask = masks.get(f"{path.stem}_mask") or masks.get(path.stem)
            test.append(TestPicture(path, kind.name, mask))
    if not test:
        raise UsageError(f"{folder / 'test'} holds no pictures", hint=LAYOUT)
    return Category(name, tuple(train), tuple(test))


def _pictures(folder: Path) -> list[Path]:
    """In natural order; what is hidden or no picture by its name is left alone."""
    if not folder.is_dir():
        return []
    files = (p for p in folder.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES)
    shown = (p for p in files if not p.name.startswith(".") and p.is_file())
    return sorted(shown, key=lambda path: natural_key(path.name))
