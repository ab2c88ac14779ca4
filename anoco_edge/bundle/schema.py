"""What manifest.json and product.json say; unknown fields and schema versions are refused."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from anoco_edge.images.contract import InputContract, Length, Tiles
from anoco_edge.scoring.types import Metric

SCHEMA_VERSION = 1


def _inside(path: str) -> str:
    """A path of the manifest stays inside the bundle."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} points outside the bundle")
    return path


def _product_name(name: str) -> str:
    if not name or name.startswith(".") or not all(c.isalnum() or c in "-_." for c in name):
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
# No Literal: that takes true and 1.0 for 1.
SchemaVersion = Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
Pooling = Literal["max", "top5"]
Tta = Literal["none", "references", "paper"]
# Where a pixel of a view comes from: x' = a x + b y + c, y' = d x + e y + f, in pixels of the
# canvas, whose first pixel reaches from 0 to 1.
Affine = Annotated[tuple[float, float, float, float, float, float], AfterValidator(_invertible)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileRecord(_Model):
    """An immutable file: its place, content hash and size."""

    path: RelativePath
    sha256: Sha256
    size: int = Field(ge=0)


class Weights(_Model):
    """Where the numbers in the backbone come from, and under which terms."""

    source: str
    sha256: Sha256
    license: str
    random: bool = False


class Backbone(_Model):
    """The recipe as it was carried out."""

    id: str
    architecture: str
    tap: str  # several are joined by "+", in the order their numbers are concatenated
    tap_scales: tuple[float, ...] = ()  # what each of several taps was multiplied by
    feature_norm: Literal["none", "layernorm", "model"]
    pooling: Literal["none", "avg3x3"]
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    weights: Weights


class Plan(_Model):
    """An engine built ahead of time that may travel with the bundle; its file is among `files`."""

    path: RelativePath
    engine: Literal["tensorrt-rtx"]
    version: str
    target: str = Field(pattern=r"^sm[0-9]{2,3}$")
    max_batch: int = Field(gt=0)


class Manifest(_Model):
    """manifest.json: everything about a bundle that never changes after export."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    checksum: Sha256 = "0" * 64
    created: str
    tools: dict[str, str]
    backbone: Backbone
    input: InputContract
    parity: dict[str, Any]
    files: tuple[FileRecord, ...]
    plans: tuple[Plan, ...] = ()


class Region(_Model):
    """Region of interest: a polygon in fractions of the picture's width and height."""

    points: tuple[tuple[float, float], ...] = Field(min_length=3)


class Reference(_Model):
    """One picture of a good part, kept inside the bundle."""

    name: str
    file: FileRecord
    pixels: Sha256
    width: Length
    height: Length
    views: tuple[Affine, ...] = ()  # of this picture alone; they follow the product's in the bank


class Coreset(_Model):
    """A bank that was thinned to its most different patches, and what that left uncovered."""

    max_patches: int = Field(gt=0)
    seed: int = Field(ge=0)
    considered: int = Field(default=0, ge=0)  # patches there were
    duplicates: int = Field(default=0, ge=0)  # of these, exact copies of another
    radius: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # of the farthest one left out


class CalibrationPicture(_Model):
    """A good part that was held out of the references."""

    name: str
    group: str  # pictures of one group are of one part: the highest score counts
    role: Literal["threshold", "baseline"] = "threshold"
    score: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    pixels: Sha256
    width: Length
    height: Length
    file: FileRecord | None = None  # the picture itself, where it was kept


class Calibration(_Model):
    """How a threshold was asked for; a later change of the bank computes it anew."""

    false_reject: float = Field(gt=0, lt=1)
    accept_fewer: bool = False  # settle for the rate that few pictures do support
    sigmas: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # of a baseline
    source: Literal["pictures", "references"]
    pictures: tuple[CalibrationPicture, ...] = ()  # those held out; none if it was the references


class Baseline(_Model):
    """Energy that good parts have at each place; only what exceeds it by `sigmas` counts."""

    file: FileRecord  # safetensors: mean and spread, one number a patch each
    sigmas: float = Field(ge=0, allow_inf_nan=False)
    pictures: int = Field(ge=2)


class Threshold(_Model):
    """At which score a part is anomalous, and what that rests on."""

    kind: Literal["none", "provisional", "conformal", "manual"] = "none"
    value: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    evidence: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _value_fits_kind(self) -> Threshold:
        if (self.kind == "none") != (self.value is None):
            raise ValueError("a threshold has a value exactly when its kind is not 'none'")
        return self


class Product(_Model):
    """product.json: one generation of one product. Replacing it by rename is the commit."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    checksum: Sha256 = "0" * 64
    name: ProductName
    generation: int = Field(ge=1)
    parent: Annotated[int, Field(ge=1)] | None = None
    changed: str
    change: str
    lam: float = Field(default=1.0, gt=0, allow_inf_nan=False, alias="lambda")
    floor: float = Field(default=0.05, ge=0, lt=1)
    metric: Metric = "product"
    pooling: Pooling = "max"
    tta: Tta = "none"
    tta_seed: int = Field(default=0, ge=0)
    views: tuple[Affine, ...] = ()  # that all references have, and with `paper` the query too
    tiles: Tiles | None = None
    any_size: bool = False
    min_area: float = Field(default=0.0, ge=0)
    region: Region | None = None
    mask: FileRecord | None = None
    threshold: Threshold = Threshold()
    calibration: Calibration | None = None
    baseline: Baseline | None = None
    coreset: Coreset | None = None
    references: tuple[Reference, ...] = ()
    bank: FileRecord | None = None
    bank_dtype: Literal["float16", "float32"] = "float16"
    dropped_patches: int = Field(default=0, ge=0)
