"""What manifest.json and product.json say; unknown fields and schema versions are refused."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

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


RelativePath = Annotated[str, AfterValidator(_inside)]
ProductName = Annotated[str, AfterValidator(_product_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Fit = Literal["stretch", "letterbox"]
Metric = Literal["product", "l2", "cosine"]
Pooling = Literal["max", "top5"]


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


class InputContract(_Model):
    """uint8 NHWC RGB of this size in, `rows x cols` patches of `dim` numbers out."""

    width: int = Field(gt=0)
    height: int = Field(gt=0)
    fit: Fit = "stretch"
    fill: tuple[int, int, int] = (0, 0, 0)
    stride: int = Field(gt=0)
    rows: int = Field(gt=0)
    cols: int = Field(gt=0)
    dim: int = Field(gt=0)

    @model_validator(mode="after")
    def _grid_fits(self) -> InputContract:
        if (self.cols * self.stride, self.rows * self.stride) != (self.width, self.height):
            raise ValueError("rows and cols times stride must give height and width")
        return self


class Plan(_Model):
    """An engine built ahead of time that may travel with the bundle; its file is among `files`."""

    path: RelativePath
    engine: Literal["tensorrt-rtx"]
    version: str
    target: str = Field(pattern=r"^sm[0-9]{2,3}$")
    max_batch: int = Field(gt=0)


class Manifest(_Model):
    """manifest.json: everything about a bundle that never changes after export."""

    schema_version: Literal[1] = 1
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
    width: int
    height: int


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

    schema_version: Literal[1] = 1
    checksum: Sha256 = "0" * 64
    name: ProductName
    generation: int = Field(ge=1)
    parent: int | None = None
    changed: str
    change: str
    lam: float = Field(default=1.0, gt=0, allow_inf_nan=False, alias="lambda")
    floor: float = Field(default=0.05, ge=0, lt=1)
    metric: Metric = "product"
    pooling: Pooling = "max"
    tta: Literal["none", "references", "paper"] = "none"
    any_size: bool = False
    min_area: float = Field(default=0.0, ge=0)
    region: Region | None = None
    mask: FileRecord | None = None
    threshold: Threshold = Threshold()
    references: tuple[Reference, ...] = ()
    bank: FileRecord | None = None
    bank_dtype: Literal["float16", "float32"] = "float16"
    dropped_patches: int = 0

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
