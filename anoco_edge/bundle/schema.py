"""The schema of manifest.json and product.json; unknown fields and versions are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from anoco_edge.bundle.augmentation_choice import AugmentationChoice
from anoco_edge.bundle.evidence import Evidence, NoEvidence
from anoco_edge.bundle.picture_limits import PictureLimits
from anoco_edge.images.contract import InputContract, Length, Tiles
from anoco_edge.scoring.lambdas import Lambda, LambdaKind
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import Metric, Parameters, References

SCHEMA_VERSION = 1
# Fields of a product that the first version did not have; written where they say something.
LATER_FIELDS = (
    "rotations",
    "flips",
    "augmentation_choice",
    "merged_patches",
    "merge_distance",
    "lambda_kind",
    "tuning",
    "cpu_precision",
    "picture_limits",
)


def _inside(path: str) -> str:
    """Refuse a path that leads out of the bundle."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} points outside the bundle")
    return path


def is_product_name(name: str) -> bool:
    """Whether a product may have this name, which is also the name of its folder.

    >>> is_product_name("größe-2.b"), is_product_name(".hidden"), is_product_name("a/b")
    (True, False, False)
    """
    allowed = all(c.isalnum() or c in "-_." for c in name)
    return bool(name) and not name.startswith(".") and allowed


def _product_name(name: str) -> str:
    if not is_product_name(name):
        raise ValueError(f"{name!r} is not a product name: letters, digits, '-', '_', '.'")
    return name


def _invertible(view: tuple[float, ...]) -> tuple[float, ...]:
    a, b, _, d, e, _ = view
    if not all(map(math.isfinite, view)) or not abs(a * e - b * d) > 1e-6:
        raise ValueError(f"{view} is not a view that can be turned back")
    return view


RelativePath = Annotated[str, AfterValidator(_inside)]
ProductName = Annotated[str, AfterValidator(_product_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# This is no Literal, because a Literal accepts true and 1.0 for 1.
SchemaVersion = Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
Tta = Literal["none", "rotations", "references", "paper"]
BankDtype = Literal["float16", "float32"]
# A view as the place (x', y') in the picture that a pixel (x, y) of the view comes from:
# x' = a x + b y + c, y' = d x + e y + f, in pixels, of which the first reaches from 0 to 1.
Affine = Annotated[tuple[float, float, float, float, float, float], AfterValidator(_invertible)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _without_defaults(
    model: BaseModel, fields: dict[str, object], later: Sequence[str]
) -> dict[str, object]:
    """Leave out later fields that say nothing, so that older versions read the document."""
    defaults = type(model).model_fields
    return {k: v for k, v in fields.items() if k not in later or v != defaults[k].default}


class FileRecord(_Model):
    """An immutable file: its path, the hash of its content, and its size."""

    path: RelativePath
    sha256: Sha256
    size: int = Field(ge=0)


class Weights(_Model):
    """The origin of the backbone's weights, and their license."""

    source: str
    sha256: Sha256
    license: str
    random: bool = False


class Backbone(_Model):
    """The recipe that the backbone was exported with."""

    id: str
    architecture: str
    tap: str  # the layers that features are taken from; several are joined by "+", in their order
    tap_scales: tuple[float, ...] = ()  # the factor of each tap, where there are several
    feature_norm: Literal["none", "layernorm", "model"]
    pooling: Literal["none", "avg3x3"]
    precision: Literal["fp32", "fp16", "bf16", "int8"] = "fp32"
    image_pooling: Pooling = "max"  # what new products take unless asked otherwise
    weights: Weights

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_defaults(self, dump(self), ("image_pooling",))


class Plan(_Model):
    """A portable TensorRT plan that is part of the bundle; its file is among `files`."""

    path: RelativePath
    engine: Literal["tensorrt-rtx"]
    version: str
    target: str = Field(pattern=r"^sm[0-9]{2,3}$")
    max_batch: int = Field(gt=0)


class Manifest(_Model):
    """manifest.json: everything about a bundle that does not change after export."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    checksum: Sha256 = "0" * 64
    created: str
    tools: dict[str, str]
    backbone: Backbone
    input: InputContract
    parity: dict[str, JsonValue]  # the report of export, which this package does not interpret
    files: tuple[FileRecord, ...]
    plans: tuple[Plan, ...] = ()


class Region(_Model):
    """The region of interest, a polygon in fractions of the picture's width and height."""

    points: tuple[tuple[float, float], ...] = Field(min_length=3)


class Reference(_Model):
    """One picture of a good part, which the bundle holds."""

    name: str
    file: FileRecord
    pixels: Sha256
    width: Length
    height: Length
    views: tuple[Affine, ...] = ()  # views of this picture alone, after those of the product


class Coreset(_Model):
    """How a bank is thinned to its most different patches, and what the thinned bank leaves out."""

    max_patches: int = Field(gt=0)
    seed: int = Field(ge=0)
    considered: int = Field(default=0, ge=0)  # the number of patches before
    duplicates: int = Field(default=0, ge=0)  # how many of them are exact copies of another
    # The distance from the patch farthest from the bank to its nearest patch in the bank.
    radius: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class CalibrationPicture(_Model):
    """A picture of a good part that is not a reference and calibrates the product."""

    name: str
    group: str  # pictures of one group show one part, of which the highest score counts
    # Pictures that chose the augmentation (`choice`) never set the threshold too.
    role: Literal["threshold", "baseline", "choice"] = "threshold"
    score: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    pixels: Sha256
    width: Length
    height: Length
    file: FileRecord | None = None  # the picture itself, where the bundle holds it


class Calibration(_Model):
    """The request for a threshold, which is repeated when the bank changes later."""

    false_reject: float = Field(gt=0, lt=1)
    accept_fewer: bool = False  # accept the best rate that too few pictures support
    sigmas: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # of a baseline
    source: Literal["pictures", "references"]
    pictures: tuple[CalibrationPicture, ...] = ()  # none where the references calibrate


class Baseline(_Model):
    """The usual energy of good parts at each place; only what exceeds it by `sigmas` counts."""

    file: FileRecord  # safetensors with the mean and the spread of every patch
    sigmas: float = Field(ge=0, allow_inf_nan=False)
    pictures: int = Field(ge=2)


class Threshold(_Model):
    """The score above which a part is anomalous, and what it rests on."""

    kind: Literal["none", "provisional", "conformal", "manual"] = "none"
    value: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    evidence: Evidence = NoEvidence()

    @model_validator(mode="after")
    def _value_fits_kind(self) -> Threshold:
        if (self.kind == "none") != (self.value is None):
            raise ValueError("a threshold has a value exactly when its kind is not 'none'")
        return self


class Tuning(_Model):
    """How the settings were chosen by good pictures. A threshold that rests on pictures that chose
    the settings promises too much, so these pictures do not calibrate."""

    seed: int = Field(ge=0)
    words: str
    pictures: tuple[Sha256, ...] = Field(min_length=1)  # hashes of their decoded pixels


class Product(_Model):
    """product.json: one generation of one product. Its replacement by a rename is the commit."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    checksum: Sha256 = "0" * 64
    name: ProductName
    generation: int = Field(ge=1)
    parent: Annotated[int, Field(ge=1)] | None = None
    changed: str
    change: str
    # Scorers accept a smaller range of lambda (scoring.types.LAMBDA_RANGE) than a file may hold.
    lam: float = Field(default=1.0, gt=0, allow_inf_nan=False, alias="lambda")
    lambda_kind: LambdaKind = "absolute"  # `relative` counts median norms of the bank
    floor: float = Field(default=0.05, ge=0, lt=1)
    metric: Metric = "product"
    pooling: Pooling = "max"
    tta: Tta = "none"
    tta_seed: int = Field(default=0, ge=0)
    # The angles of each reference, its own included; only a product with `rotations` has them.
    rotations: Annotated[int, Field(ge=2, le=64)] | None = None
    flips: bool = False  # whether each reference is also mirrored, at each of its angles
    # What `auto` compared; None where a person chose the level.
    augmentation_choice: AugmentationChoice | None = None
    views: tuple[Affine, ...] = ()  # views of every reference, and with `paper` of the query too
    tiles: Tiles | None = None
    any_size: bool = False
    min_area: float = Field(default=0.0, ge=0)
    region: Region | None = None
    mask: FileRecord | None = None
    threshold: Threshold = Threshold()
    calibration: Calibration | None = None
    baseline: Baseline | None = None
    coreset: Coreset | None = None
    tuning: Tuning | None = None
    references: tuple[Reference, ...] = ()
    bank: FileRecord | None = None
    bank_dtype: BankDtype = "float16"
    dropped_patches: int = Field(default=0, ge=0)
    # Set where the scores that the threshold rests on were computed in BF16 on a processor; else
    # they were computed in the precision of the graph.
    cpu_precision: Literal["bf16"] | None = None
    # Patches of turned or mirrored views that are not in the bank: another one is like them.
    merged_patches: int = Field(default=0, ge=0)
    # How near that is, as a share of their norm; 0 where they repeat it bit for bit.
    merge_distance: float = Field(default=0.0, ge=0, lt=1)
    # What a picture must be like to be judged on a line; None judges every picture.
    picture_limits: PictureLimits | None = None

    @property
    def has_turned_views(self) -> bool:
        """Whether references have views that are turned or mirrored whole pictures."""
        return self.tta == "rotations" or self.flips

    @model_validator(mode="after")
    def _rotations_fit_level(self) -> Product:
        if (self.tta == "rotations") != (self.rotations is not None):
            raise ValueError("`rotations` is a number exactly when `tta` is 'rotations'")
        drawn = self.tta in ("references", "paper")
        if drawn and (self.flips or self.augmentation_choice is not None):
            raise ValueError("flips and a choice by auto are for 'none' and 'rotations'")
        return self

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_defaults(self, dump(self), LATER_FIELDS)

    def parameters(self, bank: References) -> Parameters:
        """Return the settings of a scorer for this bank, on which a relative lambda depends."""
        lam = Lambda(self.lam, self.lambda_kind).of(bank)
        return Parameters(lam, self.metric, self.floor)
