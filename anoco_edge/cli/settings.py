"""Settings of a product as options, shared by `enroll`, `product set`, `export` and `eval`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from anoco_edge.bundle.schema import BankDtype
from anoco_edge.cli.options import parse_region, parse_size
from anoco_edge.errors import UsageError
from anoco_edge.scoring.lambdas import Lambda
from anoco_edge.scoring.pooling import Pooling
from anoco_edge.scoring.types import Metric
from anoco_edge.storage.regular_file import read_regular
from anoco_edge.teaching import ProductFields, Settings, TileSettings
from anoco_edge.teaching.drafts import AskedLevel, AskedLimits

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
    typer.Option(
        help="Score of a picture: its largest energy, the mean of the five largest, or the largest "
        "after a 3x3 Gaussian on the grid of patches (smooth)."
    ),
]
MetricOption = Annotated[Metric | None, typer.Option(help="Energy of a patch.")]
LambdaOption = Annotated[
    str | None,
    typer.Option(
        "--lambda",
        metavar="NUMBER|NUMBERx",
        help="How strongly a patch holds its place; with x in median norms of the bank, so that it "
        "means the same for every backbone: 0.05x.",
    ),
]
FloorOption = Annotated[float | None, typer.Option(help="Least similarity in an edge's weight.")]
BankOption = Annotated[BankDtype | None, typer.Option(help="Precision of the stored features.")]
AugmentOption = Annotated[
    AskedLevel | None,
    typer.Option(
        "--augment",
        "--tta",
        help="Views of the references in the bank: turned all round (rotations), or turned a "
        "little, mirrored and shifted (references), or (paper) of the inspected picture too; "
        "auto compares none and rotations. Costs time; how much is said first.",
    ),
]
RotationsOption = Annotated[
    int | None,
    typer.Option(
        min=2, max=64, help="With --augment rotations: angles of each reference. Default: 8."
    ),
]
FlipsOption = Annotated[
    bool | None,
    typer.Option(
        "--flips/--no-flips",
        help="Enrol each reference mirrored too, at each of its angles: a mirrored part is then "
        "no defect.",
    ),
]
MergeDistanceOption = Annotated[
    float | None,
    typer.Option(
        help="Of turned and mirrored views, leave out patches as near to another of their "
        "picture, in norms of a patch: 0.3 unless given; 0 leaves out copies alone."
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
PictureLimitsOption = Annotated[
    AskedLimits | None,
    typer.Option(
        help="Limits of light, sharpness and likeness outside of which a line gives no verdict: "
        "learn them from the references (new products do), or judge every picture."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Accept the cost without asking.")]


@dataclass(frozen=True)
class ProductOptions:
    """The settings of a product that a command can change; None leaves one as it is."""

    roi: RoiOption = None
    mask: MaskOption = None
    min_area: MinAreaOption = None
    any_size: AnySizeOption = None
    pooling: PoolingOption = None
    metric: MetricOption = None
    lam: LambdaOption = None
    floor: FloorOption = None
    bank_dtype: BankOption = None
    tta: AugmentOption = None
    tta_seed: TtaSeedOption = None
    rotations: RotationsOption = None
    flips: FlipsOption = None
    merge_distance: MergeDistanceOption = None
    tiles: TilesOption = None
    tile_size: TileSizeOption = None
    overlap: OverlapOption = None
    max_patches: MaxPatchesOption = None
    picture_limits: PictureLimitsOption = None

    def settings(self, threshold: float | None = None) -> Settings:
        """Return what the teacher takes, with a threshold of the user's own if there is one."""
        return read_settings({**vars(self), "threshold": threshold})


_PLAIN_FIELDS = (
    "min_area",
    "any_size",
    "pooling",
    "metric",
    "floor",
    "bank_dtype",
    "tta",
    "tta_seed",
    "rotations",
    "flips",
    "merge_distance",
)
"""Options that set the field of a product that has their name."""


def read_settings(options: Mapping[str, Any]) -> Settings:
    """Turn the options of a command into what the teacher takes.

    `options` are the parameters of the command by name, as in `typer.Context.params`. Options that
    the command does not have, or that were not given, leave a setting as it is.

    >>> read_settings({"metric": "l2", "tta": None, "max_patches": 500, "json_": True})
    Settings(fields={'metric': 'l2'}, region=None, ..., max_patches=500, picture_limits=None)
    """
    threshold = options.get("threshold")
    if threshold is not None and not 0 <= threshold < math.inf:
        raise UsageError(f"threshold is {threshold}", hint="give 0 or more; with 0 it is computed")
    fields = {name: options.get(name) for name in _PLAIN_FIELDS}
    if (given := options.get("lam")) is not None:
        lam = Lambda.parse(given)
        fields |= {"lambda": lam.value, "lambda_kind": lam.kind}
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name.replace('_', '-')} is {value}", hint="give a finite number")
    return Settings(
        cast(ProductFields, {name: value for name, value in fields.items() if value is not None}),
        region=parse_region(options.get("roi")),
        mask=_read_mask(options.get("mask")),
        threshold=threshold,
        tiles=read_tiles(options.get("tiles"), options.get("tile_size"), options.get("overlap")),
        max_patches=options.get("max_patches"),
        picture_limits=options.get("picture_limits"),
    )


def _read_mask(mask: str | None) -> bytes | None:
    """Return the content of a mask file, no bytes for `none`, or None where no mask was given."""
    if mask is None:
        return None
    if mask == "none":
        return b""
    path = Path(mask)
    if not path.is_file():
        raise UsageError(f"there is no mask {mask}", hint="give a PNG file, or 'none'")
    try:
        return read_regular(path)
    except OSError as error:
        raise UsageError(
            f"the mask {mask} cannot be read: {error.strerror}",
            hint="give a PNG file that you may read, or 'none'",
        ) from None


def read_tiles(tiles: str | None, size: str | None, overlap: int | None) -> TileSettings | None:
    """Read `--tiles 3x2` or `--tile-size 1024`, which exclude each other; `none` removes tiles.

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
    # Only digits that int() accepts match: no superscripts, and not thousands of digits.
    found = re.fullmatch("([0-9]{1,9})x([0-9]{1,9})", tiles.lower())
    if found is None:
        raise UsageError(f"{tiles!r} are not tiles", hint="write columns x rows: --tiles 3x2")
    return TileSettings(grid=(int(found[1]), int(found[2])), overlap=overlap)
