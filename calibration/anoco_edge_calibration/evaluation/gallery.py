"""The worst misses and false alarms of an evaluation, as pictures.

They are drawn while a category is measured, because its energy grids are discarded afterwards.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from anoco_edge.errors import AnocoError, PictureError
from anoco_edge.images.contract import InputContract
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import Mask, patch_box
from anoco_edge.pipeline.anomaly_map import MapMaker, enlarge
from anoco_edge.reporting.overlay import CONTOUR, HALO, PATCH, heat
from anoco_edge_calibration.evaluation.scorers import ANOCO
from anoco_edge_calibration.evaluation.tables import Shots
from anoco_edge_calibration.evaluation.unit import ScoredPicture, VariantRun
from anoco_edge_calibration.evaluation.variants import Variant

MOST_SHOWN = 4  # so many misses of a category are drawn, and as many false alarms
PICTURE_BYTES = 9_000_000  # limit for all JPEGs together, which are 12 MB in base64
SIDE, GAP = 360, 8  # pixels: the longer side of a panel, and the gap between the two


@dataclass(frozen=True)
class GalleryPicture:
    """One picture of the gallery with its caption; `drawn` is a JPEG, or says why there is none."""

    name: str
    words: str
    drawn: bytes | str


@dataclass(frozen=True)
class CategoryGallery:
    """The worst of one category: defects that score lowest, good parts that score highest."""

    scorer: str
    shots: Shots
    seed: int
    defects: int
    good: int
    misses: Sequence[GalleryPicture]
    alarms: Sequence[GalleryPicture]
    apart: bool
    """True when every defect scores above every good part: then the closest calls are shown."""


class Gallery:
    """Draws the pictures that the first ANoCo scorer, taught with the most shots, judges worst.

    Pass its `observe` to `measure_unit`. The gallery keeps the drawn pictures and nothing else.
    Misses and false alarms of every category have the same share of `PICTURE_BYTES`.
    """

    def __init__(
        self, variants: Sequence[Variant], shots: Sequence[Shots], categories: int
    ) -> None:
        anoco = [variant for variant in variants if variant.kind == ANOCO]
        self._variant = [*anoco, *variants][0]
        self._shots = max(shots, key=lambda n: math.inf if n == "full" else n)
        self._share = PICTURE_BYTES // (2 * categories)
        self.worst: dict[str, CategoryGallery] = {}

    def observe(self, category: str, variant_run: VariantRun) -> None:
        """Draw the worst pictures of a category once, for the lowest seed that could be taught."""
        wanted = (variant_run.variant, variant_run.shots) == (self._variant, self._shots)
        if not wanted or category in self.worst:
            return
        contract = variant_run.reader.tiling.contract
        found = sorted(variant_run.found, key=lambda one: one.score)
        defects = [one for one in found if one.picture.defect is not None]
        good = [one for one in found if one.picture.defect is None]
        self.worst[category] = CategoryGallery(
            variant_run.variant.name,
            variant_run.shots,
            variant_run.seed,
            len(defects),
            len(good),
            self._show(defects[:MOST_SHOWN], "below", good, contract),
            self._show(good[::-1][:MOST_SHOWN], "above", defects, contract),
            apart=not (defects and good and defects[0].score < good[-1].score),
        )

    def _show(
        self,
        found: Sequence[ScoredPicture],
        side: str,
        others: Sequence[ScoredPicture],
        contract: InputContract,
    ) -> list[GalleryPicture]:
        to_map, room, shown = MapMaker(contract), self._share, []
        for one in found:
            try:
                drawn: bytes | str = draw_panels(one, contract, to_map)
            except (
                AnocoError
            ) as error:  # the picture vanished since it was scored; the figures matter more
                drawn = f"Not drawn: {error}"
            if isinstance(drawn, bytes) and len(drawn) > room:
                drawn = "Not drawn: the page would become too large."
            room -= len(drawn) if isinstance(drawn, bytes) else 0
            rank = _rank(one.score, side, [other.score for other in others])
            evidence = f"compared with {one.peak.reference}, similarity {one.peak.similarity:.3f}"
            name = f"{one.picture.path.parent.name}/{one.picture.path.name}"
            shown.append(GalleryPicture(name, f"score {one.score:.4g}, {rank}; {evidence}", drawn))
        return shown


def _rank(score: float, side: str, others: Sequence[float]) -> str:
    """Say in words how a score ranks among the scores of the other kind of part.

    >>> _rank(2.0, "below", [1, 2, 3, 4]), _rank(0.5, "above", [1])
    ('scores below 2 of 4 good parts', 'scores above none of 1 defective parts')
    """
    kind = "good" if side == "below" else "defective"
    count = sum(other > score if side == "below" else other < score for other in others)
    if not others:
        return f"no {kind} part to compare with"
    return f"scores {side} {count or 'none'} of {len(others)} {kind} parts"


def draw_panels(found: ScoredPicture, contract: InputContract, to_map: MapMaker) -> bytes:
    """Draw a picture next to its heat map, with the outline of its mask and its strongest patch."""
    rgb = found.picture.turn(read_picture(found.picture.path))
    height, width = rgb.shape[:2]
    scale = SIDE / max(width, height)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    plain = Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR)
    small = replace(found.placement, picture_width=size[0], picture_height=size[1])
    energies = enlarge(to_map(found.energy, found.scored), small)
    hot = Image.fromarray(heat(np.asarray(plain), energies, None))
    if found.picture.mask is not None:
        with suppress(PictureError):  # the evaluation has reported this mask already
            _outline(hot, found.picture.read_mask((width, height)))
    x0, y0, x1, y1 = small.to_picture(patch_box(contract, found.peak.row, found.peak.col))
    corners = (x0, y0, max(x1 - 1, x0), max(y1 - 1, y0))
    ImageDraw.Draw(hot).rectangle(corners, outline=PATCH, width=2)
    both = Image.new("RGB", (2 * size[0] + GAP, size[1]), "#ffffff")
    both.paste(plain, (0, 0))
    both.paste(hot, (size[0] + GAP, 0))
    held = io.BytesIO()
    both.save(held, "JPEG", quality=80, optimize=True)
    return held.getvalue()


def _outline(panel: Image.Image, mask: Mask) -> None:
    """Draw the outline around the mask, not on it, so that a tiny defect stays visible."""
    full = Image.fromarray(mask.astype(np.uint8) * 255)
    # A pixel that is covered at all counts: shrinking a large picture must not lose a small defect.
    covered = full.resize(panel.size, Image.Resampling.BOX).point(lambda value: 255 * (value > 0))
    for reach, color in ((7, HALO), (5, CONTOUR)):
        ring = ImageChops.subtract(covered.filter(ImageFilter.MaxFilter(reach)), covered)
        panel.paste(color, (0, 0), ring)
