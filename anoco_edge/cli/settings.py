"""Settings of a product as options, shared by `enroll`, `product set` and `export`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from anoco_edge.bundle.schema import BankDtype, Tta
from anoco_edge.cli.options import parse_region, parse_size
from anoco_edge.errors import UsageError
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import Metric
from anoco_edge.storage.regular_file import read_regular
from anoco_edge.teaching import ProductFields, Settings, TileSettings

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
    Pooling | None,
    typer.Option(help="Score of a picture: its largest energy, or the mean of the five largest."),
]
MetricOption = Annotated[Metric | None, typer.Option(help="Energy of a patch.")]
LambdaOption = Annotated[
    float | None, typer.Option("--lambda", help="How strongly a patch holds its place.")
]
FloorOption = Annotated[float | None, typer.Option(help="Least similarity in an edge's weight.")]
BankOption = Annotated[BankDtype | None, typer.Option(help="Precision of the stored features.")]
TtaOption = Annotated[
    Tta | None,
    typer.Option(
        help="Test-time augmentation: turned and mirrored views of the references, or (paper) of "
        "the inspected picture too. Costs time; how much is said first."
    ),
]
TtaSeedOption = Annotated[
    int | None, typer.Option("--tta-seed", min=0, help="Draws other views.", hidden=True)
]
TilesOption = Annotated[
    str | None,
    typer.Option(
        help="Look at the picture in so many tiles: 3x2 (columns x rows); 'none' takes them away."
    ),
]
TileSizeOption = Annotated[
    str | None, typer.Option(help="Tiles of this size instead, in picture pixels: 1024 or 800x600.")
]
OverlapOption = Annotated[
    int | None,
    typer.Option(min=0, help="What tiles share, in picture pixels. Default: 1/8 of a tile."),
]
MaxPatchesOption = Annotated[
    int | None,
    typer.Option(min=0, help="Keep only so many patches, the most different ones; 0: all."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Accept the cost without asking.")]


def read_settings(
    *,
    roi: str | None,
    mask: str | None,
    threshold: float | None = None,
    tiles: str | None = None,
    tile_size: str | None = None,
    overlap: int | None = None,
    max_patches: int | None = None,
    lam: float | None = None,
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
            data = read_regular(path)
        except OSError as error:
            raise UsageError(f"the mask {mask} cannot be read: {error.strerror}") from None
    if threshold is not None and not 0 <= threshold < float("inf"):
        raise UsageError(f"threshold is {threshold}", hint="0 or more; 0 computes it anew")
    fields["lambda"] = lam
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name.replace('_', '-')} is {value}", hint="give a finite number")
    given = {k: v for k, v in fields.items() if v is not None}
    return Settings(
        cast(ProductFields, given),
        region=parse_region(roi),
        mask=data,
        threshold=threshold,
        tiles=read_tiles(tiles, tile_size, overlap),
        max_patches=max_patches,
    )


def read_tiles(tiles: str | None, size: str | None, overlap: int | None) -> TileSettings | None:
    """`--tiles 3x2` or `--tile-size 1024`, not both; `none` takes them away.

    >>> read_tiles("3x2", None, 64)
    TileSettings(grid=(3, 2), size=None, overlap=64)
    """
    if tiles is None and size is None and overlap is None:
        return None
    if tiles is not None and size is not None:
        raise UsageError("--tiles and --tile-size exclude each other", hint="pass one of them")
    if tiles in (None, "none") and size is None and overlap is not None:
        raise UsageError("--overlap without tiles", hint="give --tiles or --tile-size too")
    if tiles is None:
        return TileSettings(size=parse_size(size), overlap=overlap)
    if tiles == "none":
        return TileSettings()
    # Digits that int() takes: not a superscript, not thousands of them.
    found = re.fullmatch("([0-9]{1,9})x([0-9]{1,9})", tiles.lower())
    if found is None:
        raise UsageError(f"{tiles!r} are not tiles", hint="write columns x rows: --tiles 3x2")
    return TileSettings(grid=(int(found[1]), int(found[2])), overlap=overlap)
