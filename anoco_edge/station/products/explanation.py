"""Why a capture got its verdict: its stored picture, inspected again by what judged it."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.errors import PictureError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.judge.alignment import Aligner, Alignment
from anoco_edge.line.replay import StoredCapture
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.station.parts.part_models import Model

Box = tuple[float, float, float, float]
OpenDetector = Callable[[Bundle, Product], Detector]
MOST_REFERENCES = 12


class RegionShown(Model):
    """A region in pixels of the camera; `peak` is its highest energy over the threshold."""

    left: float
    top: float
    right: float
    bottom: float
    peak: float


class Grid(Model):
    """The energy of every patch over the threshold; null where nothing was inspected.

    `box` is where the grid lies, in pixels of the camera (before an alignment turned it).
    """

    rows: int
    columns: int
    box: Box
    ratio: list[list[float | None]]


class ReferenceShown(Model):
    """The patch of a reference that a patch of the picture was compared with.

    `row` and `column` are those of the picture's patch, `query_box` is its place, `box` the place
    in the reference.
    """

    digest: str
    name: str
    row: int
    column: int
    similarity: float
    ratio: float
    query_box: Box
    box: Box


class NearestReference(Model):
    """For each patch, the reference that it was compared with, as an index into `digests`.

    To show what hid a defect that was missed: the reference at its place.
    """

    digests: list[str]
    index: list[list[int | None]]
    similarity: list[list[float | None]]


class Explanation(Model):
    """What the judge saw in a picture."""

    uid: str
    number: int
    width: int
    height: int
    product: str
    generation: int
    verdict: str
    score: float
    threshold: float | None
    moved: bool = Field(description="Whether the picture was aligned before it was judged.")
    regions: list[RegionShown]
    grid: Grid
    references: list[ReferenceShown]
    nearest: NearestReference


def explain(
    uid: str, number: int, stored: StoredCapture, open_detector: OpenDetector
) -> Explanation:
    """Inspect the picture of a capture again and say why it got its verdict."""
    pixels = read_picture(stored.picture)
    detector = open_detector(stored.bundle, stored.product)
    moved = None
    if stored.spec.align is not None:
        moved = Aligner(stored.spec.align, detector.first_reference()).align(pixels)
        if moved is None:
            raise PictureError(
                "the part is not found in its picture",
                hint="look at the picture and at align in [[products]]",
            )
    found = detector.inspect(pixels if moved is None else moved.pixels)
    scale = found.threshold or 1.0
    return Explanation(
        uid=uid,
        number=number,
        width=pixels.shape[1],
        height=pixels.shape[0],
        product=stored.product.name,
        generation=stored.product.generation,
        verdict=found.verdict,
        score=found.score,
        threshold=found.threshold,
        moved=moved is not None,
        regions=[_region(found, k, scale, moved) for k in range(len(found.regions))],
        grid=_grid(found, scale, moved),
        references=_references(found, stored.product, scale, moved),
        nearest=_nearest(found, stored.product),
    )


def _in_camera(box: tuple[float, float, float, float], moved: Alignment | None) -> Box:
    left, top, right, bottom = box if moved is None else moved.in_camera(box)
    return (float(left), float(top), float(right), float(bottom))


def _region(found: Inspection, number: int, scale: float, moved: Alignment | None) -> RegionShown:
    region = found.regions[number]
    left, top, right, bottom = _in_camera(region.box, moved)
    return RegionShown(
        left=left, top=top, right=right, bottom=bottom, peak=float(region.peak) / scale
    )


def _grid(found: Inspection, scale: float, moved: Alignment | None) -> Grid:
    rows, columns = found.scored.shape
    height, width = found.input_map.shape
    place = found.placement
    across, down = place.picture_width / place.width, place.picture_height / place.height
    left, top = -place.left * across, -place.top * down  # outside the picture where it was padded
    box = (left, top, left + width * across, top + height * down)
    ratio = [
        [round(float(e) / scale, 4) if s else None for e, s in zip(energy, scored, strict=True)]
        for energy, scored in zip(found.energy, found.scored, strict=True)
    ]
    return Grid(rows=rows, columns=columns, box=_in_camera(box, moved), ratio=ratio)


def _references(
    found: Inspection, product: Product, scale: float, moved: Alignment | None
) -> list[ReferenceShown]:
    """The references behind the strongest patch of each region, and behind the strongest of all."""
    digests = {r.name: r.pixels for r in product.references}
    patches = dict.fromkeys([(r.row, r.col) for r in found.regions] + [found.peak])
    shown = []
    for row, column in list(patches)[:MOST_REFERENCES]:
        if not found.scored[row, column]:
            continue
        evidence = found.evidence(row, column)
        shown.append(
            ReferenceShown(
                digest=digests[evidence.reference],
                name=evidence.reference,
                row=row,
                column=column,
                similarity=evidence.similarity,
                ratio=float(found.energy[row, column]) / scale,
                query_box=_in_camera(evidence.query_box, moved),
                box=_in_camera(evidence.box, None),
            )
        )
    return shown


def _nearest(found: Inspection, product: Product) -> NearestReference:
    names = {r.name: k for k, r in enumerate(product.references)}
    rows, columns = found.scored.shape
    index: list[list[int | None]] = [[None] * columns for _ in range(rows)]
    similarity: list[list[float | None]] = [[None] * columns for _ in range(rows)]
    for row in range(rows):
        for column in range(columns):
            if found.scored[row, column]:
                evidence = found.evidence(row, column)
                index[row][column] = names[evidence.reference]
                similarity[row][column] = round(evidence.similarity, 4)
    digests = [r.pixels for r in product.references]
    return NearestReference(digests=digests, index=index, similarity=similarity)
