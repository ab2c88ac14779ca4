"""Settings of a product as options, shared by `enroll` and `product set`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from anoco_edge.cli.options import parse_region
from anoco_edge.errors import UsageError
from anoco_edge.teaching import Settings

RoiOption = Annotated[
    str | None,
    typer.Option(
        "--roi",
        help="Region of interest in pixels of the references: x,y,width,height, or a polygon "
        "'x,y x,y x,y'; 'none' takes it away.",
    ),
]
MaskOption = Annotated[
    str | None,
    typer.Option(
        "--mask", help="PNG of the references' size; white is ignored. 'none' takes it away."
    ),
]
MinAreaOption = Annotated[
    float | None, typer.Option(min=0, help="Smallest defect that counts, in picture pixels.")
]
AnySizeOption = Annotated[
    bool | None,
    typer.Option("--any-size/--same-size", help="Accept pictures of any shape, or of one only."),
]
PoolingOption = Annotated[
    Literal["max", "top5"] | None,
    typer.Option(help="Score of a picture: its largest energy, or the mean of the five largest."),
]
MetricOption = Annotated[
    Literal["product", "l2", "cosine"] | None, typer.Option(help="Energy of a patch.")
]
LambdaOption = Annotated[
    float | None, typer.Option("--lambda", help="How strongly a patch holds its place.")
]
FloorOption = Annotated[float | None, typer.Option(help="Least similarity in an edge's weight.")]
BankOption = Annotated[
    Literal["float16", "float32"] | None, typer.Option(help="Precision of the stored features.")
]


def read_settings(
    *,
    roi: str | None,
    mask: str | None,
    threshold: float | None = None,
    **fields: Any,
) -> Settings:
    """Options as typed, turned into what the teacher takes; what was not given stays."""
    data: bytes | None = None
    if mask == "none":
        data = b""
    elif mask is not None:
        path = Path(mask)
        if not path.is_file():
            raise UsageError(f"there is no mask {mask}", hint="give a PNG file, or 'none'")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"the mask {mask} cannot be read: {error.strerror}") from None
    if threshold is not None and not 0 <= threshold < float("inf"):
        raise UsageError(f"threshold is {threshold}", hint="0 or more; 0 computes it anew")
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name.replace('_', '-')} is {value}", hint="give a finite number")
    given = {k: v for k, v in fields.items() if v is not None}
    return Settings(given, region=parse_region(roi), mask=data, threshold=threshold)
