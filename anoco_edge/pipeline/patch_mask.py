"""Which patches are scored: the picture's shape, the region of interest and the ignore mask."""

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
from anoco_edge.pipeline.rotations import turned_patches

# A picture that was cropped by hand is off by a few percent. A larger difference, such as 4:3
# against 3:2 or 16:9, means that the camera ran in another mode.
ASPECT_TOLERANCE = 0.05


class PatchMask:
    """Decides which patches of a picture are scored, for one generation of a product."""

    def __init__(self, contract: InputContract, product: Product, ignore: Mask | None) -> None:
        """Keep the masks of a product; `contract` describes the input of all tiles together."""
        self._contract = contract
        self._product = product
        self._ignore = ignore
        self._scored: dict[tuple[Placement, Affine], Mask] = {}

    @staticmethod
    def of(bundle: Bundle, product: Product) -> PatchMask:
        """Make the patch mask of a product, whose ignore mask is read from the bundle."""
        ignore = None
        if product.mask is not None:
            data = bundle.read(product.mask, bundle.product_folder(product.name))
            ignore = decode_mask(data, product.mask.path)
        return PatchMask(bundle.manifest.input.tiled(product.tiles), product, ignore)

    def scored(self, placement: Placement, view: Affine = IDENTITY) -> Mask:
        """Return which patches of a picture, or of a view of it, are enrolled and scored.

        It is an error if no patch of a picture is left. A view may have none.
        """
        known = self._scored.get((placement, view))
        if known is None:
            known = self._count(placement, view)
            if len(self._scored) > 256:  # the pictures have many different sizes
                self._scored.clear()
            self._scored[placement, view] = known
        return known

    def _count(self, placement: Placement, view: Affine) -> Mask:
        what = (self._contract, placement, self._product.region, self._ignore)
        if view != IDENTITY:
            inside, wanted = inspected_pixels(*what)
            if self._product.has_turned_views:
                return turned_patches(self._contract, placement, view, wanted)
            return visible_patches(self._contract, view, inside, wanted)
        known = inspected_patches(*what)
        if not known.any():
            raise UsageError(
                "region of interest and mask leave no patch to inspect",
                hint="widen them with: anoco-edge product set",
            )
        return known

    def cells(self, side: int) -> Mask:
        """Return which of `side` x `side` cells of a whole picture are inspected.

        Those are the cells inside the region of interest and outside the ignore mask.
        """
        grid = InputContract(width=side, height=side, stride=1, rows=side, cols=side, dim=1)
        _, wanted = inspected_pixels(
            grid, place(grid, side, side), self._product.region, self._ignore
        )
        return wanted

    def is_covered(self, seen: Mask) -> bool:
        """Whether every patch that is scored lies in the pixels of a picture that are `seen`."""
        contract = self._contract
        placement = place(contract, seen.shape[1], seen.shape[0])
        pixels = np.zeros((contract.height, contract.width), np.bool_)
        size = (placement.width, placement.height)
        scaled = Image.fromarray(seen).resize(size, Image.Resampling.NEAREST)
        rows = slice(placement.top, placement.top + placement.height)
        pixels[rows, placement.left : placement.left + placement.width] = np.asarray(scaled)
        whole: Mask = np.all(_by_patch(pixels, contract), axis=(1, 3))
        return bool(whole[self.scored(placement)].all())

    def check_size(self, width: int, height: int, name: str) -> None:
        """Raise an error if a picture does not have the aspect ratio of the references.

        The same camera gives pictures of the same shape, so another ratio means another scene.
        """
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
    """Return which pixels of the input are picture, not fill, and which of these are wanted.

    Wanted pixels lie inside the region of interest and outside the ignore mask, which is given in
    pixels of the picture itself.
    """
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
    """Return the scored patches: those that touch no fill and of which more than half is wanted."""
    inside, wanted = inspected_pixels(contract, placement, region, ignore)
    whole = _by_patch(inside, contract).all(axis=(1, 3))
    share = _by_patch(wanted, contract).mean(axis=(1, 3))
    result: Mask = whole & (share > 0.5)
    return result


def _fill_polygon(contract: InputContract, placement: Placement, region: Region) -> Mask:
    """Return the pixels whose centre lies inside the polygon, by the even-odd rule.

    Pillow's polygon is not used because it also draws the outline, which is one pixel too much on
    the left and on top.
    """
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
    """Read an ignore mask from any picture file; pixels that are white (above 127) are ignored."""
    mask: Mask = decode_picture(data, name).max(axis=2) > 127
    return mask


def region_from_pixels(points: Sequence[tuple[float, float]], width: int, height: int) -> Region:
    """Make a region from a polygon in pixels of the reference pictures.

    Two points are opposite corners of a rectangle.

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
