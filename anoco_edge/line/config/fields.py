"""What the tables of station.toml consist of: their base and the types of their fields."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Milliseconds = Annotated[int, Field(ge=1, le=600_000)]
Port = Annotated[int, Field(ge=1, le=65535)]


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", text):
        raise ValueError(f"{text!r} is not a name: up to 32 letters, digits, '-' and '_'")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be printed")
    return text


def _some_path(path: Path) -> Path:
    if str(path) in ("", ".") or "\0" in str(path):
        raise ValueError("the path is empty")
    return path


def _feature(text: str) -> str:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9_]{0,99}", text):
        raise ValueError(f"{text!r} is not the name of a feature, such as ExposureTime")
    return text


Name = Annotated[str, AfterValidator(_name)]
FeatureName = Annotated[str, AfterValidator(_feature)]
PixelBox = Annotated[tuple[int, int, int, int], Field(strict=False)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_printable)]
SomePath = Annotated[Path, Field(strict=False), AfterValidator(_some_path)]


class Table(BaseModel):
    """A table of the file; a key that it does not know is refused with the nearest that it does."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                near = difflib.get_close_matches(key, cls.model_fields, n=1, cutoff=0.5)
                known = near[0] if near else ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {key!r}; did you mean {known}?")
        return data
