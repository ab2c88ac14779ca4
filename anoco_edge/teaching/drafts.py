"""The draft of a generation: a product with its new settings, before bank and threshold."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import numpy as np
from PIL import Image
from pydantic import ValidationError

from anoco_edge.bundle import Bank, Bundle, Product, Reference
from anoco_edge.bundle.augmentation_choice import AugmentationChoice
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.masks import decode_mask
from anoco_edge.bundle.schema import (
    Affine,
    BankDtype,
    Coreset,
    FileRecord,
    Manifest,
    Region,
    Threshold,
    Tuning,
)
from anoco_edge.bundle.store import now
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.contract import InputContract, Tiles
from anoco_edge.images.preprocess import Placement, place
from anoco_edge.pipeline.augmentation import own_views, paired_views
from anoco_edge.pipeline.patch_mask import PatchMask, read_mask, region_from_pixels
from anoco_edge.pipeline.rotations import ROTATIONS, mirrored_views, rotation_views
from anoco_edge.pipeline.tiling import plan_tiles
from anoco_edge.scoring.lambdas import LambdaKind
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import Metric
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.near_duplicates import MERGE_DISTANCE

Points = Sequence[tuple[float, float]]

_ENROL_FIRST = "enrol a picture of a good part first: anoco-edge enroll BUNDLE PICTURES"

AskedLevel = Literal["auto", "none", "rotations", "references", "paper"]
"""The augmentation that a person asks for; `auto` chooses `none` or `rotations`."""

AskedLimits = Literal["learn", "none"]
"""What a person asks for about the limits of picture quality."""

# The syntax of a call, because `lambda` cannot be the name of a class attribute.
ProductFields = TypedDict(
    "ProductFields",
    {
        "lambda": float,
        "lambda_kind": LambdaKind,
        "floor": float,
        "metric": Metric,
        "pooling": Pooling,
        "min_area": float,
        "any_size": bool,
        "bank_dtype": BankDtype,
        "tta": AskedLevel,
        "tta_seed": int,
        "rotations": int,
        "tuning": Tuning,
        "flips": bool,
        "merge_distance": float,
    },
    total=False,
)
"""Values for plain fields of Product. They are checked when the draft is made."""


@dataclass(frozen=True)
class TileSettings:
    """How pictures are split into tiles: by a number of columns and rows, or by the size of a tile
    in pixels of the references. With neither, there are no tiles."""

    grid: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    overlap: int | None = None


@dataclass(frozen=True)
class Settings:
    """Changes to the settings of a product; None leaves a setting as it is."""

    fields: ProductFields
    region: Points | None = None
    """The region of interest, in pixels of the reference pictures; an empty sequence removes it."""
    mask: bytes | None = None
    """A picture file of the size of the reference pictures; empty bytes remove the mask."""
    threshold: float | None = None
    """A manual threshold; 0 goes back to a computed one."""
    tiles: TileSettings | None = None
    max_patches: int | None = None
    """The largest number of patches in the bank; 0 removes the limit."""
    picture_limits: AskedLimits | None = None
    """`learn` takes limits of picture quality from good pictures, `none` removes them."""


NO_CHANGE = Settings({})


@dataclass(frozen=True)
class Draft:
    """A generation that is not committed: the product, and the files that a commit writes."""

    product: Product
    bank: Bank | None
    patch_mask: PatchMask
    files: Mapping[str, bytes] = field(repr=False)
    baseline: BaselineGrid | None = None
    notes: tuple[str, ...] = ()
    """Sentences that a person should read about the change."""


def draft_product(
    manifest: Manifest,
    name: str,
    old: Product | None,
    references: Sequence[Reference],
    settings: Settings,
    *,
    generation: int,
    change: str,
) -> tuple[Product, dict[str, bytes]]:
    """Make the next generation, still without bank and threshold.

    Returns the product and its new files by their paths: the mask, where the settings change it.
    """
    if (threshold := settings.threshold) is not None:
        if not 0 <= threshold < float("inf"):
            raise UsageError(f"threshold is {threshold}", hint="give 0 or more; 0 computes it")
        if not references:
            raise UsageError("a threshold needs a reference picture", hint=_ENROL_FIRST)
    window = manifest.input
    fields: dict[str, object] = {"name": name, "pooling": manifest.backbone.image_pooling}
    if old is not None:
        fields = old.model_dump(by_alias=True)
    if "lambda" in settings.fields:
        fields["lambda_kind"] = "absolute"  # what a lambda alone means, also after a relative one
    fields.update(settings.fields)
    fields["rotations"] = rotations_of(settings, old)
    if fields.get("flips") and fields.get("tta") in ("references", "paper"):
        raise UsageError(
            f"the views of {fields['tta']!r} are mirrored already",
            hint="`flips=True` is for 'none', 'rotations' and 'auto'",
        )
    turned = bool(fields["rotations"] or fields.get("flips"))
    if "merge_distance" in settings.fields and not turned:
        raise UsageError(
            f"merge_distance is {fields['merge_distance']} and references are not turned",
            hint="give `tta='rotations'` or `flips=True` too",
        )
    if "merge_distance" not in settings.fields and not (old and old.has_turned_views):
        fields["merge_distance"] = MERGE_DISTANCE if turned else 0.0
    if "tta" in settings.fields:
        fields["augmentation_choice"] = None
    if asked_level(settings, old) == "auto":  # `augmentation_choice` holds what decides
        known = old.augmentation_choice if old else None
        fields["augmentation_choice"] = known or AugmentationChoice()
        fields["tta"] = "rotations" if fields["rotations"] else "none"
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
    """Convert a mask of any format to an 8-bit gray PNG of 0 and 255, so that a device needs to
    read no other format."""
    buffer = io.BytesIO()
    Image.fromarray(read_mask(data, "the mask").astype(np.uint8) * 255).save(buffer, "PNG")
    return buffer.getvalue()


def rotations_of(settings: Settings, old: Product | None) -> int | None:
    """Return how many angles each reference has once the settings are applied; None without
    rotations.

    >>> rotations_of(Settings({"tta": "rotations"}), None), rotations_of(Settings({}), None)
    (8, None)
    """
    given = settings.fields.get("rotations")
    level = asked_level(settings, old)
    known = old.rotations if old else None
    if level == "rotations":
        return given if given is not None else known or ROTATIONS
    if given is not None:
        raise UsageError(
            f"{given} rotations of references that are not turned",
            hint="give `tta='rotations'` too",
        )
    return known if level == "auto" else None


def asked_level(settings: Settings, old: Product | None) -> AskedLevel:
    """Return the augmentation that is asked for: by the settings, or else by the product before.

    >>> asked_level(Settings({"tta": "auto"}), None), asked_level(Settings({}), None)
    ('auto', 'none')
    """
    if "tta" in settings.fields:
        return settings.fields["tta"]
    if old is None:
        return "none"
    return old.tta if old.augmentation_choice is None else "auto"


def with_views(product: Product, window: InputContract) -> Product:
    """The product with the views of its augmentation."""
    contract, seed = window.tiled(product.tiles), product.tta_seed
    size = (contract.width, contract.height)
    if product.has_turned_views:
        turned = tuple(
            r.model_copy(update={"views": _turned_views(product, place(contract, *_size(r)))})
            for r in product.references
        )
        return product.model_copy(update={"views": (), "references": turned})
    augmented = product.tta != "none"
    product = product.model_copy(update={"merge_distance": 0.0})
    references = tuple(
        r.model_copy(update={"views": own_views(seed, r.pixels, *size) if augmented else ()})
        for r in product.references
    )
    shared = paired_views(seed, *size) if augmented else ()
    return product.model_copy(update={"views": shared, "references": references})


def _turned_views(product: Product, placement: Placement) -> tuple[Affine, ...]:
    turned = rotation_views(product.rotations or 1, placement)
    return turned + (mirrored_views(turned, placement) if product.flips else ())


def _size(reference: Reference) -> tuple[int, int]:
    return reference.width, reference.height


def picture_size(references: Sequence[Reference]) -> tuple[int, int] | None:
    """The width and height that regions and tiles refer to: those of the first reference."""
    return (references[0].width, references[0].height) if references else None


def tiles_for(
    asked: TileSettings, picture: tuple[int, int] | None, window: InputContract
) -> Tiles | None:
    """Plan the tiles for pictures of this size; None where the settings ask for none."""
    if asked.grid is None and asked.size is None:
        if asked.overlap is not None:
            raise UsageError("an overlap without tiles", hint="give `tiles` or `tile_size` too")
        return None
    if picture is None:
        raise UsageError("tiles need a reference picture", hint=_ENROL_FIRST)
    return plan_tiles(window, picture, grid=asked.grid, size=asked.size, overlap=asked.overlap)


def draft_patch_mask(bundle: Bundle, draft: Product, files: Mapping[str, bytes]) -> PatchMask:
    """Open the region and the mask of a draft. A new mask is in `files` and not on disk yet."""
    contract = bundle.manifest.input.tiled(draft.tiles)
    if draft.mask is None:
        return PatchMask(contract, draft, None)
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
    patch_mask = PatchMask(contract, draft, mask)
    # An older mask may stay when its references go, but it must have the shape of the new ones.
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
