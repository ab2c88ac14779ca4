"""A generation that is being made: the product as asked for, before bank and threshold."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from pydantic import ValidationError

from anoco_edge.bundle import Bank, Bundle, Product, Reference
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.masks import decode_mask
from anoco_edge.bundle.schema import Coreset, FileRecord, Region, Threshold
from anoco_edge.bundle.store import now
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.contract import InputContract, Tiles
from anoco_edge.pipeline.augmentation import own_views, paired_views
from anoco_edge.pipeline.patch_mask import PatchMask, read_mask, region_from_pixels
from anoco_edge.pipeline.tiling import plan_tiles
from anoco_edge.storage.hashes import sha256_bytes

Points = Sequence[tuple[float, float]]

_ENROL_FIRST = "enrol a picture of a good part first: anoco-edge enroll BUNDLE PICTURES"


@dataclass(frozen=True)
class TileSettings:
    """So many columns and rows, or tiles of a size (in pixels of the references); neither: none."""

    grid: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    overlap: int | None = None


@dataclass(frozen=True)
class Settings:
    """Changes to a product; None leaves a setting as it is."""

    fields: Mapping[str, Any]
    """Plain fields of Product: lambda, floor, metric, pooling, min_area, any_size, bank_dtype,
    tta, tta_seed."""
    region: Points | None = None
    """In pixels of the reference pictures; an empty sequence takes the region away."""
    mask: bytes | None = None
    """A picture file of the size of the reference pictures; empty bytes take the mask away."""
    threshold: float | None = None
    """A manual threshold; 0 goes back to a computed one."""
    tiles: TileSettings | None = None
    max_patches: int | None = None
    """The largest bank; 0 takes the limit away."""


NO_CHANGE = Settings({})


@dataclass(frozen=True)
class Draft:
    """A generation that was not committed: what it says, and what it would write."""

    product: Product
    bank: Bank | None
    patch_mask: PatchMask
    files: Mapping[str, bytes] = field(repr=False)
    baseline: BaselineGrid | None = None
    notes: tuple[str, ...] = ()
    """What a person should know about the change."""


def draft_product(
    window: InputContract,
    name: str,
    old: Product | None,
    references: Sequence[Reference],
    settings: Settings,
    *,
    generation: int,
    change: str,
) -> tuple[Product, dict[str, bytes]]:
    """The next generation without bank and threshold, and its new mask file."""
    if (threshold := settings.threshold) is not None:
        if not 0 <= threshold < float("inf"):
            raise UsageError(f"threshold is {threshold}", hint="0 or more; 0 computes it anew")
        if not references:
            raise UsageError("a threshold needs a reference picture", hint=_ENROL_FIRST)
    fields: dict[str, Any] = dict(old.model_dump(by_alias=True)) if old else {"name": name}
    fields.update(settings.fields)
    fields.update(
        generation=generation,
        parent=old.generation if old else None,
        changed=now(),
        change=change,
        references=references,
        bank=None,
    )
    if not references:
        fields["threshold"] = Threshold()
    files: dict[str, bytes] = {}
    if settings.region is not None:
        fields["region"] = _region(settings.region, references)
    if settings.mask is not None:
        fields["mask"] = None
        if settings.mask:
            data = _plain_mask(settings.mask)
            digest = sha256_bytes(data)
            path = f"mask-{digest[:16]}.png"
            fields["mask"] = FileRecord(path=path, sha256=digest, size=len(data))
            files[path] = data
    if settings.tiles is not None:
        fields["tiles"] = tiles_for(settings.tiles, picture_size(references), window)
    if settings.max_patches is not None:
        fields["coreset"] = _coreset(settings.max_patches)
    try:
        return with_views(Product.model_validate(fields), window), files
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        hint = "give a value that this setting allows"
        raise UsageError(f"{where}: {first['msg']}", hint=hint) from None


def _plain_mask(data: bytes) -> bytes:
    """A mask in whatever format, as an 8-bit grey PNG of 0 and 255: all that a device need read."""
    buffer = io.BytesIO()
    Image.fromarray(read_mask(data, "the mask").astype(np.uint8) * 255).save(buffer, "PNG")
    return buffer.getvalue()


def with_views(product: Product, window: InputContract) -> Product:
    """The same with the views that its test-time augmentation asks for."""
    canvas, seed = window.tiled(product.tiles), product.tta_seed
    size = (canvas.width, canvas.height)
    augmented = product.tta != "none"
    references = tuple(
        r.model_copy(update={"views": own_views(seed, r.pixels, *size) if augmented else ()})
        for r in product.references
    )
    shared = paired_views(seed, *size) if augmented else ()
    return product.model_copy(update={"views": shared, "references": references})


def picture_size(references: Sequence[Reference]) -> tuple[int, int] | None:
    """Width and height that regions and tiles are planned for: the first picture's."""
    return (references[0].width, references[0].height) if references else None


def tiles_for(
    asked: TileSettings, picture: tuple[int, int] | None, window: InputContract
) -> Tiles | None:
    """Tiles of pictures of this size, as asked for; None where none are."""
    if asked.grid is None and asked.size is None:
        if asked.overlap is not None:
            raise UsageError("an overlap without tiles", hint="give `tiles` or `tile_size` too")
        return None
    if picture is None:
        raise UsageError("tiles need a reference picture", hint=_ENROL_FIRST)
    return plan_tiles(window, picture, grid=asked.grid, size=asked.size, overlap=asked.overlap)


def draft_geometry(bundle: Bundle, draft: Product, files: Mapping[str, bytes]) -> PatchMask:
    """Region and mask of a draft, whose mask may not be on disk yet."""
    canvas = bundle.manifest.input.tiled(draft.tiles)
    if draft.mask is None:
        return PatchMask(canvas, draft, None)
    folder = bundle.product_folder(draft.name)
    new = draft.mask.path in files
    data = files[draft.mask.path] if new else bundle.read(draft.mask, folder)
    mask = decode_mask(data, "the mask")
    height, width = mask.shape
    if new and draft.references:
        first = draft.references[0]
        if (width, height) != (first.width, first.height):
            raise PictureError(
                f"the mask is {width}x{height}, the references are {first.width}x{first.height}",
                hint="draw it on one of the reference pictures",
            )
    if new and not mask.any():
        raise PictureError(
            "the mask ignores nothing: no pixel of it is white",
            hint="paint what is to be left out white (255) and the rest black",
        )
    patch_mask = PatchMask(canvas, draft, mask)
    # An older mask may outlive the references it was drawn on, but not their shape.
    patch_mask.check_size(width, height, "the mask")
    return patch_mask


def _region(points: Points, references: Sequence[Reference]) -> Region | None:
    if not points:
        return None
    if not references:
        raise UsageError("a region of interest needs a reference picture", hint=_ENROL_FIRST)
    return region_from_pixels(points, references[0].width, references[0].height)


def _coreset(max_patches: int) -> Coreset | None:
    if max_patches < 0:
        raise UsageError(f"a bank of {max_patches} patches", hint="give 1 or more; 0 for no limit")
    return Coreset(max_patches=max_patches, seed=0) if max_patches else None
