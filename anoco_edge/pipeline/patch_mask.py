"""What a product says about the picture: its shape, region of interest and ignore mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from anoco_edge.bundle import Bundle, InputContract, Product, Region
from anoco_edge.bundle.masks import decode_mask
from anoco_edge.bundle.schema import Affine
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.images.preprocess import Mask, Placement, place
from anoco_edge.pipeline.augmentation import IDENTITY, visible_patches

# A hand-cropped picture is off by a few percent; 4:3 against 3:2 or 16:9 is another camera mode.
ASPECT_TOLERANCE = 0.05


class PatchMask:
    """Knows which patches of a picture count, for one generation of a product."""

    def __init__(self, contract: InputContract, product: Product, ignore: Mask | None) -> None:
        """`contract` is that of the canvas."""
        self._contract = contract
        self._product = product
        self._ignore = ignore
        self._scored: dict[tuple[Placement, Affine], Mask] = {}

    @staticmethod
    def of(bundle: Bundle, product: Product) -> PatchMask:
        """Reads the product's mask from the bundle."""
        ignore = None
        if product.mask is not None:
            data = bundle.read(product.mask, bundle.product_folder(product.name))
            ignore = decode_mask(data, product.mask.path)
        return PatchMask(bundle.manifest.input.tiled(product.tiles), product, ignore)

    def scored(self, placement: Placement, view: Affine = IDENTITY) -> Mask:
        """Which patches of a picture, or of a view of it, are enrolled and scored.

        None at all is an error; a view may see none.
        """
        known = self._scored.get((placement, view))
        if known is None:
            known = self._count(placement, view)
            if len(self._scored) > 256:  # a folder of pictures of many sizes
                self._scored.clear()
            self._scored[placement, view] = known
        return known

    def _count(self, placement: Placement, view: Affine) -> Mask:
        what = (self._contract, placement, self._product.region, self._ignore)
        if view != IDENTITY:
            return visible_patches(self._contract, view, *inspected_pixels(*what))
        known = inspected_patches(*what)
        if not known.any():
            raise UsageError(
                "region of interest and mask leave no patch to inspect",
                hint="widen them with: anoco-edge product set",
            )
        return known

    def cells(self, side: int) -> Mask:
        """Which of `side` x `side` cells of a whole picture lie inside the region and outside the
        mask."""
        grid = InputContract(width=side, height=side, stride=1, rows=side, cols=side, dim=1)
        _, wanted = inspected_pixels(
            grid, place(grid, side, side), self._product.region, self._ignore
        )
        return wanted

    def check_size(self, width: int, height: int, name: str) -> None:
        """The same camera gives the same shape: another aspect ratio is another scene."""
        if self._product.any_size or not self._product.references:
            return
        first = self._product.references[0]
        check_shape((width, height), name, (first.width, first.height))


def inspected_pixels(
    contract: InputContract,
    placement: Placement,
    region: Region | None = None,
    ignore: Mask | None = None,
) -> tuple[Mask, Mask]:
    """Which pixels of the input are picture and not fill, and which of them are wanted: inside the
    region of interest and outside the ignore mask (given in the picture's own pixels)."""
    right, bottom = placement.left + placement.width, placement.top + placement.height
    inside = np.zeros((contract.height, contract.width), np.bool_)
    inside[placement.top : bottom, placement.left : right] = True
    wanted = inside.copy()
    if region is not None:
        wanted &= _fill_polygon(contract, placement, region)
    if ignore is not None:
        size = (placement.width, placement.height)
        scaled = Image.fromarray(ignore).resize(size, Image.Resampling.NEAREST)
        wanted[placement.top : bottom, placement.left : right] &= ~np.asarray(scaled)
    return inside, wanted


def inspected_patches(
    contract: InputContract,
    placement: Placement,
    region: Region | None = None,
    ignore: Mask | None = None,
) -> Mask:
    """Which patches count: those that touch no fill, and of which more than half is wanted."""
    inside, wanted = inspected_pixels(contract, placement, region, ignore)
    whole = _by_patch(inside, contract).all(axis=(1, 3))
    share = _by_patch(wanted, contract).mean(axis=(1, 3))
    result: Mask = whole & (share > 0.5)
    return result


def _fill_polygon(contract: InputContract, placement: Placement, region: Region) -> Mask:
    """Pixels whose centre lies inside, by the even-odd rule (Pillow's polygon draws its outline
    too, which is a pixel too much on the left and on top)."""
    x = (np.arange(contract.width) + 0.5 - placement.left) / placement.width
    y = (np.arange(contract.height) + 0.5 - placement.top) / placement.height
    inside = np.zeros((contract.height, contract.width), np.bool_)
    for (x0, y0), (x1, y1) in zip(region.points, region.points[-1:] + region.points, strict=False):
        crossed = np.flatnonzero((y0 <= y) != (y1 <= y))
        edge = x0 + (y[crossed] - y0) * (x1 - x0) / ((y1 - y0) or 1)
        inside[crossed] ^= x < edge[:, None]
    return inside


def _by_patch(mask: Mask, contract: InputContract) -> Mask:
    return mask.reshape(contract.rows, contract.stride, contract.cols, contract.stride)


def check_shape(size: tuple[int, int], name: str, references: tuple[int, int]) -> None:
    """Refuse a picture whose aspect ratio is not that of the references.

    >>> check_shape((400, 100), "wide.png", (96, 80))
    Traceback (most recent call last):
        ...
    anoco_edge.errors.PictureError: wide.png is 400x100, the references are 96x80; inspect ...
    """
    (width, height), (known_width, known_height) = size, references
    if abs(width * known_height / (height * known_width) - 1) > ASPECT_TOLERANCE:
        raise PictureError(
            f"{name} is {width}x{height}, the references are {known_width}x{known_height}",
            hint="inspect pictures of the same shape, or let the product accept all of them "
            "with `any_size=True`: anoco-edge product set",
        )


def read_mask(data: bytes, name: str) -> Mask:
    """An ignore mask in any picture file: what is white (above 127) is left out."""
    mask: Mask = decode_picture(data, name).max(axis=2) > 127
    return mask


def region_from_pixels(points: Sequence[tuple[float, float]], width: int, height: int) -> Region:
    """A polygon in pixels of the reference pictures, or a rectangle by two opposite corners.

    >>> region_from_pixels([(10, 20), (60, 80)], 100, 100).points[2]
    (0.6, 0.8)
    """
    if any(not (0 <= x <= width and 0 <= y <= height) for x, y in points):
        raise UsageError(
            f"the region of interest leaves the picture, which is {width}x{height}",
            hint="give it in pixels of the reference pictures",
        )
    if len(points) == 2:
        (x0, y0), (x1, y1) = points
        points = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    if len(points) < 3 or _area(points) < 1:
        raise UsageError("the region of interest has no area", hint="give x,y,width,height")
    return Region(points=tuple((x / width, y / height) for x, y in points))


def _area(points: Sequence[tuple[float, float]]) -> float:
    x, y = np.array(points, dtype=float).T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
