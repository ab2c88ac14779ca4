"""The result of an evaluation's unit as JSON, so that it can wait on a disk for the other units."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from anoco_edge_calibration.evaluation.gallery import CategoryGallery, GalleryPicture
from anoco_edge_calibration.evaluation.tables import EvaluationRow, Figures, Shots
from anoco_edge_calibration.evaluation.unit import (
    EvaluationProblem,
    EvaluationUnit,
    PictureScore,
    UnitResult,
)


class PackedRow(TypedDict):
    """An `EvaluationRow`, field by field."""

    dataset: str
    category: str
    shots: Shots
    seed: int
    scorer: str
    figures: Figures
    deviations: Figures
    over: int
    published: bool


class PackedProblem(TypedDict):
    """An `EvaluationProblem`, field by field."""

    category: str
    source: str
    what: str


class PackedUnitResult(TypedDict):
    """A `UnitResult` without its unit, which the plan knows."""

    rows: list[PackedRow]
    pictures: list[tuple[str, str, str | None, str, Shots, int, float]]
    """The fields of a `PictureScore` without their names, because there are thousands of them."""
    problems: list[PackedProblem]
    tested: dict[str, str]
    taught: list[str]
    doubled: int


class PackedJpeg(TypedDict):
    """A picture as base64 text."""

    jpeg: str


class PackedPicture(TypedDict):
    """A `GalleryPicture`; `drawn` is the picture, or says why there is none."""

    name: str
    words: str
    drawn: PackedJpeg | str


class PackedCategoryGallery(TypedDict):
    """A `CategoryGallery`, field by field."""

    scorer: str
    shots: Shots
    seed: int
    defects: int
    good: int
    misses: list[PackedPicture]
    alarms: list[PackedPicture]
    apart: bool


def pack_unit_result(result: UnitResult) -> PackedUnitResult:
    """Turn the result of a unit into plain JSON values."""
    return {
        "rows": [_pack_row(row) for row in result.rows],
        "pictures": [
            (one.category, one.source, one.defect, one.scorer, one.shots, one.seed, one.score)
            for one in result.pictures
        ],
        "problems": [
            {"category": one.category, "source": one.source, "what": one.what}
            for one in result.problems
        ],
        "tested": {str(path): pixels for path, pixels in result.tested.items()},
        "taught": sorted(result.taught),
        "doubled": result.doubled,
    }


def unpack_unit_result(unit: EvaluationUnit, packed: PackedUnitResult) -> UnitResult:
    """Restore the result that `pack_unit_result` packed; every number is the same again."""
    return UnitResult(
        unit,
        [EvaluationRow(**row) for row in packed["rows"]],
        [PictureScore(*values) for values in packed["pictures"]],
        [EvaluationProblem(**problem) for problem in packed["problems"]],
        {Path(path): pixels for path, pixels in packed["tested"].items()},
        set(packed["taught"]),
        packed["doubled"],
    )


def pack_category_gallery(gallery: CategoryGallery) -> PackedCategoryGallery:
    """Turn the worst pictures of a category into plain JSON values, the JPEGs into base64."""
    return {
        "scorer": gallery.scorer,
        "shots": gallery.shots,
        "seed": gallery.seed,
        "defects": gallery.defects,
        "good": gallery.good,
        "misses": [_pack_picture(picture) for picture in gallery.misses],
        "alarms": [_pack_picture(picture) for picture in gallery.alarms],
        "apart": gallery.apart,
    }


def unpack_category_gallery(packed: PackedCategoryGallery) -> CategoryGallery:
    """Restore what `pack_category_gallery` packed; every byte is the same again."""
    return CategoryGallery(
        packed["scorer"],
        packed["shots"],
        packed["seed"],
        packed["defects"],
        packed["good"],
        [_unpack_picture(picture) for picture in packed["misses"]],
        [_unpack_picture(picture) for picture in packed["alarms"]],
        packed["apart"],
    )


def _pack_row(row: EvaluationRow) -> PackedRow:
    packed: PackedRow = asdict(row)  # type: ignore[assignment]  # the fields are those of the row
    return packed


def _pack_picture(picture: GalleryPicture) -> PackedPicture:
    drawn: PackedJpeg | str
    if isinstance(picture.drawn, bytes):
        drawn = {"jpeg": b64encode(picture.drawn).decode()}
    else:
        drawn = picture.drawn
    return {"name": picture.name, "words": picture.words, "drawn": drawn}


def _unpack_picture(packed: PackedPicture) -> GalleryPicture:
    drawn = packed["drawn"]
    content = drawn if isinstance(drawn, str) else b64decode(drawn["jpeg"])
    return GalleryPicture(packed["name"], packed["words"], content)
