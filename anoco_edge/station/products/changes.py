"""Changes of a product as the station asks for them, made by the teacher of its bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import check_generation
from anoco_edge.bundle.generations import undo as undo_generation
from anoco_edge.bundle.store import DEFAULT_PRODUCT
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.judge.alignment import Pixels
from anoco_edge.line.replay import stored_picture
from anoco_edge.station.jobs.job_models import (
    AddReferences,
    Calibrate,
    Change,
    MaskChange,
    PartPicture,
    PictureSource,
    RegionChange,
    RemoveReferences,
    ThresholdChange,
    Undo,
)
from anoco_edge.station.parts.captures import CapturePlace
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.products.promise import Promise, promise_of
from anoco_edge.station.products.uploads import Uploads
from anoco_edge.storage.locks import locked
from anoco_edge.teaching import NO_CHANGE, NewPicture, ProductChange, Settings, Teacher
from anoco_edge.teaching.new_pictures import unused_name

LOCK_SECONDS = 30.0
OpenTeacher = Callable[[Bundle], Teacher]


class ChangeOutcome(Model):
    """What a change did to a product, or would do."""

    product: str
    generation: int
    """The generation that the change made; in a dry run the one that it would make."""
    before: int | None
    change: str
    references: int
    added: list[str]
    duplicates: list[str]
    threshold: float | None
    threshold_kind: str
    promise: Promise
    notes: list[str]
    more_for_one_percent: int
    """How many more good parts have to calibrate until 1 % can be promised."""


class PictureShelf:
    """Finds the pictures that a change names: of parts, and those that were sent."""

    def __init__(
        self, folder: Path, align: Callable[[Pixels], Pixels | None] | None = None
    ) -> None:
        self._folder, self._uploads, self._align = folder, Uploads(folder), align

    def new_pictures(self, sources: list[PictureSource]) -> list[NewPicture]:
        """Return the pictures for the teacher, each with a name of its own."""
        found: dict[str, NewPicture] = {}
        for source in sources:
            if isinstance(source, PartPicture):
                picture = self._of_part(source)
            else:
                picture = self._uploads.picture(source.upload, f"{source.upload[:12]}.png")
            found[unused_name(picture.name, found)] = picture
        return list(found.values())

    def _of_part(self, source: PartPicture) -> NewPicture:
        """Read a stored picture, moved onto the reference where the line would move it."""
        path = stored_picture(self._folder, source.part, source.number)
        if self._align is None:
            return NewPicture.from_file(path)
        moved = self._align(read_picture(path))
        if moved is None:
            raise PictureError(
                f"the part is not found in the picture of {source.part}", hint="take another part"
            )
        return NewPicture.from_array(path.name, moved)

    def mask(self, digest: str | None) -> bytes:
        """Return the bytes of a mask that was sent; none remove the mask."""
        return b"" if digest is None else self._uploads.read(digest)


def carry_out(
    change: Change,
    place: CapturePlace,
    bundle: Bundle,
    teacher: Teacher,
    shelf: PictureShelf,
    *,
    expected: int,
    commit: bool,
) -> ProductChange:
    """Make a change, or with `commit=False` compute it alone.

    It is refused with a ConflictError if the product is not at the generation `expected`.
    """
    name = place.spec.product
    if isinstance(change, Undo):
        return _undo(place, bundle, expected, commit=commit)
    if isinstance(change, AddReferences):
        pictures = shelf.new_pictures(change.pictures)
        wanted = name or DEFAULT_PRODUCT if expected == 0 else name
        return teacher.enroll(
            pictures, wanted, NO_CHANGE, new_level="auto", commit=commit, expected=expected
        )
    product = place.require_product(bundle)
    check_generation(product.name, product, expected)
    if isinstance(change, Calibrate):
        return teacher.calibrate(
            shelf.new_pictures(change.pictures),
            name,
            false_reject=change.false_reject,
            accept_fewer=change.accept_fewer,
            commit=commit,
            expected=expected,
        )
    if isinstance(change, RemoveReferences):
        names = _reference_names(product, change.references)
        return teacher.remove(names, name, commit=commit, expected=expected)
    settings = settings_of(change, shelf)
    words = f"{change.what} at the station"
    return teacher.configure_by(
        lambda _: settings, name, change=words, commit=commit, expected=expected
    )


def settings_of(
    change: ThresholdChange | RegionChange | MaskChange, shelf: PictureShelf
) -> Settings:
    """Return the settings that a change of threshold, region or mask asks for."""
    if isinstance(change, ThresholdChange):
        return Settings({}, threshold=change.value or 0.0)
    if isinstance(change, RegionChange):
        return Settings({}, region=change.points)
    return Settings({}, mask=shelf.mask(change.upload))


def outcome_of(change: ProductChange) -> ChangeOutcome:
    """Return what a change did in plain values."""
    product = change.product
    promise = promise_of(product)
    return ChangeOutcome(
        product=product.name,
        generation=product.generation,
        before=change.before.generation if change.before else None,
        change=product.change,
        references=len(product.references),
        added=list(change.added),
        duplicates=list(change.duplicates),
        threshold=product.threshold.value,
        threshold_kind=product.threshold.kind,
        promise=promise,
        notes=list(change.notes),
        more_for_one_percent=promise.more_for_one_percent,
    )


def _reference_names(product: Product, digests: list[str]) -> list[str]:
    names = {reference.pixels: reference.name for reference in product.references}
    unknown = [digest for digest in digests if digest not in names]
    if unknown:
        raise UsageError(
            f"product {product.name!r} has no reference {unknown[0][:40]}",
            hint="it was removed meanwhile: look at its references again",
        )
    return [names[digest] for digest in digests]


def _undo(place: CapturePlace, bundle: Bundle, expected: int, *, commit: bool) -> ProductChange:
    current = place.require_product(bundle)
    folder = bundle.product_folder(current.name)
    if not commit:
        raise UsageError("an undo has no dry run", hint="it can itself be made again")
    with locked(folder, LOCK_SECONDS, lambda _: None):
        current = bundle.product(current.name)
        check_generation(current.name, current, expected)
        return ProductChange(undo_generation(bundle, current.name), current)
