"""Pictures that were judged worst, drawn while what was found of them is still there."""

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
from anoco_edge_calibration.dataset import read_mask
from anoco_edge_calibration.measuring import Entrant, Found
from anoco_edge_calibration.scorers import ANOCO
from anoco_edge_calibration.tables import Shots
from anoco_edge_calibration.variants import Variant

MOST_SHOWN = 4  # misses of a category, and as many false alarms
PICTURE_BYTES = 9_000_000  # of all JPEGs: 12 MB in base64
SIDE, GAP = 360, 8  # pixels of a panel, and between the two


@dataclass(frozen=True)
class Shown:
    """A picture that was judged badly, with words on it; as JPEG, or why it is not drawn."""

    name: str
    words: str
    drawn: bytes | str


@dataclass(frozen=True)
class Worst:
    """The worst of one category: defects with the lowest scores, good parts with the highest."""

    scorer: str
    shots: Shots
    seed: int
    defects: int
    good: int
    misses: Sequence[Shown]
    alarms: Sequence[Shown]
    apart: bool
    """Every defect scores above every good part: what is shown are the closest calls."""


class Gallery:
    """Draws what the first ANoCo scorer, taught with the most shots, judges worst.

    Its `look` is for `measure`. Drawn pictures are all it keeps; misses and false alarms of every
    category have the same share of `PICTURE_BYTES`.
    """

    def __init__(
        self, variants: Sequence[Variant], shots: Sequence[Shots], categories: int
    ) -> None:
        anoco = [variant for variant in variants if variant.kind == ANOCO]
        self._variant = [*anoco, *variants][0]
        self._shots = max(shots, key=lambda n: math.inf if n == "full" else n)
        self._share = PICTURE_BYTES // (2 * categories)
        self.worst: dict[str, Worst] = {}

    def look(self, category: str, entrant: Entrant) -> None:
        """Draw the worst, once a category: of the lowest seed that could be taught."""
        wanted = (entrant.variant, entrant.shots) == (self._variant, self._shots)
        if not wanted or category in self.worst:
            return
        contract = entrant.reader.tiling.contract
        found = sorted(entrant.found, key=lambda one: one.score)
        defects = [one for one in found if one.picture.defect is not None]
        good = [one for one in found if one.picture.defect is None]
        self.worst[category] = Worst(
            entrant.variant.name,
            entrant.shots,
            entrant.seed,
            len(defects),
            len(good),
            self._show(defects[:MOST_SHOWN], "below", good, contract),
            self._show(good[::-1][:MOST_SHOWN], "above", defects, contract),
            apart=not (defects and good and defects[0].score < good[-1].score),
        )

    def _show(
        self, found: Sequence[Found], side: str, others: Sequence[Found], contract: InputContract
    ) -> list[Shown]:
        to_map, room, shown = MapMaker(contract), self._share, []
        for one in found:
            try:
                drawn: bytes | str = draw_panels(one, contract, to_map)
            except AnocoError as error:  # it was there minutes ago, and the figures matter more
                drawn = f"Not drawn: {error}"
            if isinstance(drawn, bytes) and len(drawn) > room:
                drawn = "Not drawn: the page would become too large."
            room -= len(drawn) if isinstance(drawn, bytes) else 0
            rank = _rank(one.score, side, [other.score for other in others])
            evidence = f"compared with {one.peak.reference}, similarity {one.peak.similarity:.3f}"
            name = f"{one.picture.path.parent.name}/{one.picture.path.name}"
            shown.append(Shown(name, f"score {one.score:.4g}, {rank}; {evidence}", drawn))
        return shown


def _rank(score: float, side: str, others: Sequence[float]) -> str:
    """How a score stands among those of the other kind.

    >>> _rank(2.0, "below", [1, 2, 3, 4]), _rank(0.5, "above", [1])
    ('scores below 2 of 4 good parts', 'scores above none of 1 defective parts')
    """
    kind = "good" if side == "below" else "defective"
    count = sum(other > score if side == "below" else other < score for other in others)
    if not others:
        return f"no {kind} part to compare with"
    return f"scores {side} {count or 'none'} of {len(others)} {kind} parts"


def draw_panels(found: Found, contract: InputContract, to_map: MapMaker) -> bytes:
    """The picture, and beside it its heat map, the outline of its mask and its strongest patch."""
    rgb = read_picture(found.picture.path)
    height, width = rgb.shape[:2]
    scale = SIDE / max(width, height)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    plain = Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR)
    small = replace(found.placement, picture_width=size[0], picture_height=size[1])
    energies = enlarge(to_map(found.energy, found.scored), small)
    hot = Image.fromarray(heat(np.asarray(plain), energies, None))
    if found.picture.mask is not None:
        with suppress(PictureError):  # which is among the problems of the evaluation already
            _outline(hot, read_mask(found.picture.mask, (width, height)))
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
    """Around the mask, not on it: a defect of a few pixels stays visible."""
    full = Image.fromarray(mask.astype(np.uint8) * 255)
    # Any coverage counts: shrinking a large picture must not lose a small defect.
    covered = full.resize(panel.size, Image.Resampling.BOX).point(lambda value: 255 * (value > 0))
    for reach, colour in ((7, HALO), (5, CONTOUR)):
        ring = ImageChops.subtract(covered.filter(ImageFilter.MaxFilter(reach)), covered)
        panel.paste(colour, (0, 0), ring)
