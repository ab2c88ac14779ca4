"""Teaching a product: add or remove references, change its settings.

Each change is one generation: features, bank and threshold are computed first and committed
together, under the product's lock. Whatever goes wrong before the commit changes nothing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from anoco_edge.bundle import Bank, Bundle, Product, Reference
from anoco_edge.bundle.bank import join
from anoco_edge.bundle.checksum import sha256_bytes
from anoco_edge.bundle.disk import locked
from anoco_edge.bundle.generations import commit, next_generation
from anoco_edge.bundle.schema import FileRecord, Threshold
from anoco_edge.bundle.store import DEFAULT_PRODUCT, now
from anoco_edge.engines import Engine, EngineSettings, open_engine
from anoco_edge.errors import PictureError, ScoringError, UsageError
from anoco_edge.geometry import Geometry, read_mask, region_from_pixels
from anoco_edge.pictures import decode_picture, read_picture
from anoco_edge.preprocess import place, prepare
from anoco_edge.scoring.types import Floats, References
from anoco_edge.selftest import check_engine
from anoco_edge.threshold import from_augmentations, leave_one_out

Pixels = NDArray[np.uint8]
Progress = Callable[[str], None]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class NewPicture:
    """A picture of a good part that is to become a reference."""

    name: str
    data: bytes
    suffix: str
    rgb: Pixels

    @staticmethod
    def from_file(path: str | Path) -> NewPicture:
        """The file as it is; its bytes are kept in the bundle."""
        path = Path(path)
        try:
            data = path.read_bytes()
        except OSError:
            read_picture(path)  # says in one line what is wrong with it
            raise
        # Decoded from the very bytes that are kept: a camera may be writing the next picture.
        return NewPicture(path.name, data, path.suffix.lower(), decode_picture(data, str(path)))

    @staticmethod
    def from_array(name: str, rgb: Pixels) -> NewPicture:
        """A frame of a camera or video, kept as PNG."""
        buffer = io.BytesIO()
        Image.fromarray(rgb).save(buffer, "PNG")
        return NewPicture(name, buffer.getvalue(), ".png", rgb)

    @cached_property
    def reference(self) -> Reference:
        digest = sha256_bytes(self.data)
        path = f"references/{digest[:16]}{self.suffix}"
        height, width = self.rgb.shape[:2]
        return Reference(
            name=self.name,
            file=FileRecord(path=path, sha256=digest, size=len(self.data)),
            pixels=sha256_bytes(self.rgb.tobytes()),
            width=width,
            height=height,
        )


@dataclass(frozen=True)
class Settings:
    """Changes to a product; None leaves a setting as it is."""

    fields: Mapping[str, Any]
    """Plain fields of Product: lambda, floor, metric, pooling, min_area, any_size, bank_dtype."""
    region: Points | None = None
    """In pixels of the reference pictures; an empty sequence takes the region away."""
    mask: bytes | None = None
    """A PNG of the size of the reference pictures; empty bytes take the mask away."""
    threshold: float | None = None
    """A manual threshold; 0 goes back to a provisional one."""


NO_CHANGE = Settings({})


@dataclass(frozen=True)
class Taught:
    """What a change did."""

    product: Product
    added: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


def unused_name(name: str, taken: Collection[str]) -> str:
    """Pictures of two folders may be called alike; references are told apart by their names.

    >>> unused_name("part.png", ["part.png", "part-2.png"])
    'part-3.png'
    """
    path, number, free = Path(name), 1, name
    while free in taken:
        number += 1
        free = f"{path.stem}-{number}{path.suffix}"
    return free


class Teacher:
    """Changes the products of one bundle with one engine."""

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
        scorer: str = "auto",
        *,
        wait: float = 600.0,
        progress: Progress = lambda _: None,
        on_wait: Progress = lambda _: None,
    ) -> None:
        self.bundle = bundle
        self._engine = engine
        self._scorer = scorer
        self._wait = wait
        self._progress = progress
        self._on_wait = on_wait

    @staticmethod
    def open(
        path: str | Path,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        settings: EngineSettings | None = None,
        wait: float = 600.0,
        progress: Progress = lambda _: None,
        on_wait: Progress = lambda _: None,
    ) -> Teacher:
        """Open a bundle for teaching; the engine must pass the self-test."""
        bundle = Bundle.open(path)
        opened = open_engine(engine, bundle, settings)
        check_engine(bundle, opened)
        return Teacher(bundle, opened, scorer, wait=wait, progress=progress, on_wait=on_wait)

    def enroll(
        self,
        pictures: Sequence[NewPicture],
        product: str | None = None,
        settings: Settings = NO_CHANGE,
    ) -> Taught:
        """Add references; pictures that are references already are refused by name."""
        if not pictures:
            raise UsageError("there are no reference pictures", hint="give pictures of good parts")
        name = self._name(product)
        with self._lock(name):
            old = self.bundle.product(name) if name in self.bundle.products() else None
            known = {r.pixels: r.name for r in old.references} if old else {}
            fresh, duplicates = [], []
            for picture in pictures:
                digest = picture.reference.pixels
                if digest in known:
                    duplicates.append(f"{picture.name} (same as {known[digest]})")
                else:
                    own = unused_name(picture.name, known.values())
                    known[digest] = own
                    fresh.append(replace(picture, name=own))
            if not fresh:
                raise PictureError(
                    f"nothing new: {', '.join(duplicates)}", hint="every picture is known already"
                )
            references = [*(old.references if old else ()), *(p.reference for p in fresh)]
            new = self._rebuild(name, old, references, fresh, settings, f"enroll {len(fresh)}")
        return Taught(new, tuple(p.name for p in fresh), tuple(duplicates))

    def remove(self, names: Sequence[str], product: str | None = None) -> Taught:
        """Take references away by name."""
        name = self.bundle.product(product).name  # before the lock, which would make its folder
        with self._lock(name):
            old = self.bundle.product(name)
            unknown = sorted(set(names) - {r.name for r in old.references})
            if unknown:
                raise UsageError(
                    f"product {name!r} has no reference {', '.join(unknown)}",
                    hint=f"it has: {', '.join(r.name for r in old.references) or 'none'}",
                )
            left = [r for r in old.references if r.name not in set(names)]
            new = self._rebuild(name, old, left, [], NO_CHANGE, f"remove {len(names)}")
        return Taught(new)

    def configure(self, settings: Settings, product: str | None = None) -> Taught:
        """Change settings; bank and threshold follow."""
        name = self.bundle.product(product).name  # before the lock, which would make its folder
        if settings == NO_CHANGE:
            raise UsageError("there is nothing to change", hint="give a setting; --help lists them")
        with self._lock(name):
            old = self.bundle.product(name)
            new = self._rebuild(name, old, list(old.references), [], settings, "product set")
        return Taught(new)

    # ---- one generation

    def _rebuild(
        self,
        name: str,
        old: Product | None,
        references: list[Reference],
        fresh: Sequence[NewPicture],
        settings: Settings,
        change: str,
    ) -> Product:
        draft, files = self._draft(name, old, references, settings, change)
        new_pixels = {p.reference.pixels: p.rgb for p in fresh}
        files |= {p.reference.file.path: p.data for p in fresh}
        geometry = self._geometry(draft, files)
        for reference in references:
            geometry.check_size(reference.width, reference.height, reference.name)
        fields: dict[str, Any] = {"bank": None, "dropped_patches": 0}
        if references:
            banks, dropped = self._banks(draft, old, geometry, new_pixels)
            bank = join(banks)
            path = f"bank-{draft.generation}.safetensors"
            data = bank.to_bytes()
            files[path] = data
            record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
            fields = {"bank": record, "dropped_patches": dropped}
            fields["threshold"] = self._threshold(draft, settings, bank, geometry, new_pixels)
        product = Product.model_validate({**draft.model_dump(by_alias=True), **fields})
        commit(self.bundle, product, files)
        return self.bundle.product(name)  # as it was written, checksum and all

    def _draft(
        self,
        name: str,
        old: Product | None,
        references: list[Reference],
        settings: Settings,
        change: str,
    ) -> tuple[Product, dict[str, bytes]]:
        """The next generation before its bank and threshold, and its mask file."""
        if (threshold := settings.threshold) is not None:
            if not 0 <= threshold < float("inf"):
                raise UsageError(f"threshold is {threshold}", hint="0 or more; 0 computes it anew")
            if not references:
                raise UsageError("a threshold needs a reference picture", hint="enrol first")
        fields: dict[str, Any] = dict(old.model_dump(by_alias=True)) if old else {"name": name}
        fields.update(settings.fields)
        fields.update(
            generation=next_generation(self.bundle, name),
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
            fields["region"] = self._region(settings.region, references)
        if settings.mask is not None:
            fields["mask"] = None
            if settings.mask:
                digest = sha256_bytes(settings.mask)
                path = f"mask-{digest[:16]}.png"
                size = len(settings.mask)
                fields["mask"] = FileRecord(path=path, sha256=digest, size=size)
                files[path] = settings.mask
        try:
            return Product.model_validate(fields), files
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"{where}: {first['msg']}") from None

    def _region(self, points: Points, references: Sequence[Reference]) -> Any:
        if not points:
            return None
        if not references:
            raise UsageError("a region of interest needs a reference picture", hint="enrol first")
        return region_from_pixels(points, references[0].width, references[0].height)

    def _geometry(self, draft: Product, files: Mapping[str, bytes]) -> Geometry:
        if draft.mask is None:
            return Geometry(self.bundle.manifest.input, draft, None)
        folder = self.bundle.product_folder(draft.name)
        new = draft.mask.path in files
        data = files[draft.mask.path] if new else self.bundle.read(draft.mask, folder)
        mask = read_mask(data, "the mask")
        height, width = mask.shape
        if new and draft.references:
            first = draft.references[0]
            if (width, height) != (first.width, first.height):
                raise PictureError(
                    f"the mask is {width}x{height}, "
                    f"the references are {first.width}x{first.height}",
                    hint="draw it on one of the reference pictures",
                )
        if new and not mask.any():
            raise PictureError(
                "the mask ignores nothing: no pixel of it is white",
                hint="paint what is to be left out white (255) and the rest black",
            )
        geometry = Geometry(self.bundle.manifest.input, draft, mask)
        # An older mask may outlive the references it was drawn on, but not their shape.
        geometry.check_size(width, height, "the mask")
        return geometry

    def _banks(
        self,
        draft: Product,
        old: Product | None,
        geometry: Geometry,
        new_pixels: Mapping[str, Pixels],
    ) -> tuple[list[Bank], int]:
        """One bank a picture. Patches already in the old bank are taken from there, unless the
        setting that chose or rounded them has changed."""
        kept: dict[str, Bank] = {}
        if old is not None and old.bank is not None:
            chosen_by = ("region", "mask", "bank_dtype")
            if all(getattr(old, k) == getattr(draft, k) for k in chosen_by):
                bank = self.bundle.bank(old)
                kept = {r.pixels: bank.only([k]) for k, r in enumerate(old.references)}
        banks, counted = [], 0
        for reference in draft.references:
            there = place(self.bundle.manifest.input, reference.width, reference.height)
            counted += int(geometry.counted(there).sum())
            if reference.pixels in kept:
                banks.append(kept[reference.pixels])
                continue
            self._progress(reference.name)
            rgb = self._pixels(draft, reference, new_pixels)
            banks.append(self._one(rgb, reference.name, geometry, draft))
        return banks, counted - sum(len(bank) for bank in banks)

    def _pixels(self, draft: Product, reference: Reference, new: Mapping[str, Pixels]) -> Pixels:
        if reference.pixels in new:
            return new[reference.pixels]
        folder = self.bundle.product_folder(draft.name)
        return decode_picture(self.bundle.read(reference.file, folder), reference.name)

    def _one(self, rgb: Pixels, name: str, geometry: Geometry, draft: Product) -> Bank:
        features, rows, cols = self._features(rgb, geometry)
        with np.errstate(over="ignore"):  # looked at in the next line
            stored = features.astype(draft.bank_dtype)
        if not np.isfinite(stored).all() and np.isfinite(features).all():
            raise ScoringError(
                f"features of {name} do not fit into float16",
                hint="enrol with --bank-dtype float32",
            )
        try:
            references, kept = References.of(stored)
        except ScoringError as error:
            hint = "take another picture of a good part"
            raise ScoringError(f"{name} cannot be a reference: {error.what}", hint=hint) from None
        count = len(kept)
        return Bank(
            references,
            np.zeros(count, np.int32),
            np.zeros(count, np.int16),
            rows[kept].astype(np.int16),
            cols[kept].astype(np.int16),
        )

    def _features(
        self, rgb: Pixels, geometry: Geometry
    ) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        pixels, placement = prepare(rgb, self.bundle.manifest.input)
        rows, cols = np.nonzero(geometry.counted(placement))
        grid = self._engine.features(pixels[None])[0]
        return grid[rows * self.bundle.manifest.input.cols + cols], rows, cols

    def _threshold(
        self,
        draft: Product,
        settings: Settings,
        bank: Bank,
        geometry: Geometry,
        new_pixels: Mapping[str, Pixels],
    ) -> Threshold:
        if settings.threshold:
            return Threshold(kind="manual", value=settings.threshold)  # checked by _draft
        if draft.threshold.kind == "manual" and settings.threshold is None:
            if settings.fields.keys() & {"lambda", "floor", "metric", "pooling"}:
                raise UsageError(
                    f"the threshold {draft.threshold.value:g} was set by hand for other scores",
                    hint="give --threshold too; 0 computes it anew",
                )
            return draft.threshold
        self._progress("threshold")
        if len(draft.references) > 1:
            return leave_one_out(bank, draft, self._scorer)
        rgb = self._pixels(draft, draft.references[0], new_pixels)
        return from_augmentations(
            rgb, bank, draft, self._scorer, lambda view: self._features(view, geometry)[0]
        )

    def _name(self, product: str | None) -> str:
        if product is not None:
            return product
        names = self.bundle.products()
        return self.bundle.product().name if names else DEFAULT_PRODUCT

    def _lock(self, name: str) -> Any:
        if any(not (c.isalnum() or c in "-_.") for c in name) or name.startswith(".") or not name:
            raise UsageError(
                f"{name!r} is not a product name", hint="use letters, digits, '-', '_' and '.'"
            )
        return locked(self.bundle.product_folder(name), self._wait, self._on_wait)
