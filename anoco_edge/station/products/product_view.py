"""What the page of a product shows: references, region, mask, threshold, generations."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from anoco_edge.bundle import Bundle, Product
from anoco_edge.errors import AnocoError, PictureError
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.signed_bundles import BundleTrust
from anoco_edge.station.parts.captures import CapturePlace
from anoco_edge.station.parts.history import History
from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.parts.pictures import ShownPicture, copy_width, resized, shown
from anoco_edge.station.products.past_parts import all_generations, past_captures, score_settings
from anoco_edge.station.products.promise import Promise, calibration_maxima, promise_of

BINS = 60


class CaptureSummary(Model):
    """A capture of a product, and what judges it now."""

    camera: str
    bundle: str
    product: str | None
    generation: int
    threshold: float | None
    threshold_kind: str
    references: int
    calibrated: bool
    problem: str | None = None


class ProductSummary(Model):
    """A product of the line."""

    number: int
    name: str
    current: bool
    captures: list[CaptureSummary]


class ReferenceView(Model):
    """A reference picture."""

    digest: str
    name: str
    width: int
    height: int


class GenerationView(Model):
    """A generation of a product that was not pruned."""

    generation: int
    at: str
    note: str
    references: int
    threshold: float | None
    current: bool


class SignatureView(Model):
    """Who signed the bundle; `problem` says why its signature is not accepted."""

    key: str
    own: bool
    """Whether the station signed, after something was taught here."""
    at: str
    after: str
    """The number of the key that had signed before the station did."""
    problem: str | None = None


class ProductView(Model):
    """A capture of a product with all that a person may change."""

    number: int
    name: str
    capture: int
    camera: str
    bundle: str
    product: str | None
    generation: int = Field(description="What If-Match has to say; 0: not taught yet.")
    threshold: float | None
    threshold_kind: str
    promise: Promise | None
    references: list[ReferenceView]
    region: list[tuple[float, float]]
    """A polygon in pixels of the first reference; empty: all of it."""
    mask: str | None
    augmentation: str
    generations: list[GenerationView]
    undo: bool
    signature: SignatureView | None
    """Null where the station asks for no signatures."""


class Histogram(Model):
    """Scores of the parts that calibrated and of the last parts of the line, in equal bins."""

    bins: list[float]
    """The edges, one more than there are counts."""
    calibration: list[int]
    live: list[int]
    threshold: float | None
    promise: Promise
    live_parts: int
    left_out: int
    """How many of the last parts were judged by other references or settings."""


def summaries(
    config: StationConfig, places: list[CapturePlace], current: int | None
) -> list[ProductSummary]:
    """Return all products of the station; a bundle that cannot be read says why."""
    found = []
    for product in config.products:
        captures = [summary(place) for place in places if place.number == product.number]
        found.append(
            ProductSummary(
                number=product.number,
                name=product.name,
                current=product.number == current,
                captures=captures,
            )
        )
    return found


def summary(place: CapturePlace) -> CaptureSummary:
    """Return what judges a capture now."""
    product, problem = None, None
    try:
        product = place.product(place.bundle())
    except AnocoError as error:  # one broken bundle must not hide the others
        problem = str(error)
    return CaptureSummary(
        camera=place.camera,
        bundle=place.spec.bundle.rpartition("/")[2],
        product=product.name if product else place.spec.product,
        generation=product.generation if product else 0,
        threshold=product.threshold.value if product else None,
        threshold_kind=product.threshold.kind if product else "none",
        references=len(product.references) if product else 0,
        calibrated=product is not None and product.threshold.kind == "conformal",
        problem=problem,
    )


def product_view(place: CapturePlace, trust: BundleTrust | None = None) -> ProductView:
    """Return all that the page of a product shows."""
    bundle = place.bundle()
    product = place.product(bundle)
    references = product.references if product else ()
    generations = all_generations(place, bundle) if product else {}
    threshold = product.threshold if product else None
    return ProductView(
        number=place.number,
        name=place.name,
        capture=place.capture,
        camera=place.camera,
        bundle=bundle.path.name,
        product=product.name if product else place.spec.product,
        generation=product.generation if product else 0,
        threshold=threshold.value if threshold else None,
        threshold_kind=threshold.kind if threshold else "none",
        promise=promise_of(product) if product else None,
        references=[
            ReferenceView(digest=r.pixels, name=r.name, width=r.width, height=r.height)
            for r in references
        ],
        region=_region(product),
        mask=product.mask.sha256 if product and product.mask else None,
        augmentation=product.tta if product else "none",
        generations=[
            _generation(each, product) for _, each in sorted(generations.items(), reverse=True)
        ],
        undo=product is not None and product.parent in generations,
        signature=None if trust is None else signature_view(bundle, trust),
    )


def signature_view(bundle: Bundle, trust: BundleTrust) -> SignatureView:
    """Return who signed a bundle. The line hashes all of it; here its documents are enough."""
    try:
        state = trust.check(bundle.path, documents_only=True)
    except AnocoError as error:
        return SignatureView(key="", own=False, at="", after="", problem=str(error))
    comment = state.comment
    return SignatureView(
        key=state.key.number, own=trust.is_own(state), at=comment.time, after=comment.after
    )


def _region(product: Product | None) -> list[tuple[float, float]]:
    if product is None or product.region is None or not product.references:
        return []
    first = product.references[0]
    return [(x * first.width, y * first.height) for x, y in product.region.points]


def _generation(each: Product, current: Product | None) -> GenerationView:
    return GenerationView(
        generation=each.generation,
        at=each.changed,
        note=each.change,
        references=len(each.references),
        threshold=each.threshold.value,
        current=current is not None and each.generation == current.generation,
    )


def reference_picture(place: CapturePlace, digest: str, width: int | None) -> ShownPicture:
    """Return the picture of a reference of any generation, by the hash of its pixels."""
    bundle = place.bundle()
    for product in reversed(all_generations(place, bundle).values()):
        for reference in product.references:
            if reference.pixels == digest:
                data = bundle.read(reference.file, bundle.product_folder(product.name))
                return _shown(data, width, reference.name)
    raise PictureError(f"there is no reference {digest[:40]}", hint="it was pruned")


def mask_picture(place: CapturePlace) -> ShownPicture:
    """Return the mask of a product as a picture."""
    bundle = place.bundle()
    product = place.require_product(bundle)
    if product.mask is None:
        raise PictureError(f"product {product.name} has no mask", hint="draw one first")
    return shown(bundle.read(product.mask, bundle.product_folder(product.name)))


def _shown(data: bytes, width: int | None, name: str) -> ShownPicture:
    return shown(data) if width is None else resized(data, copy_width(width), name)


def histogram(place: CapturePlace, history: History, last: int) -> Histogram:
    """Return the scores of calibration and of the last parts, on one scale.

    Scores of parts that other references judged lie on another scale and are left out.
    """
    bundle = place.bundle()
    product = place.require_product(bundle)
    live, left_out = live_scores(place, bundle, product, history, last)
    held_out = calibration_maxima(product)
    value = product.threshold.value
    top = 1.2 * max([*held_out, *live, value or 0.0, 1e-12])
    if value is not None:
        top = min(top, 8 * value)  # one bad defect must not press all good parts into one bin
    edges = np.linspace(0, top, BINS + 1)
    return Histogram(
        bins=[float(edge) for edge in edges],
        calibration=_bin_counts(held_out, edges),
        live=_bin_counts(live, edges),
        threshold=value,
        promise=promise_of(product),
        live_parts=len(live),
        left_out=left_out,
    )


def _bin_counts(scores: list[float], edges: np.ndarray) -> list[int]:
    inside = np.minimum(np.asarray(scores, np.float64), edges[-1])
    return [int(n) for n in np.histogram(inside, edges)[0]]


def live_scores(
    place: CapturePlace, bundle: Bundle, product: Product, history: History, last: int
) -> tuple[list[float], int]:
    """Return the scores of the last parts that lie on the product's scale, and how many do not."""
    wanted = score_settings(product)
    factors = {
        number: each.threshold.value
        for number, each in all_generations(place, bundle).items()
        if each.threshold.value is not None and score_settings(each) == wanted
    }
    past = past_captures(history, place.number, place.capture, last)
    scores = [p.ratio * factors[p.generation] for p in past if p.generation in factors]
    return scores, len(past) - len(scores)
