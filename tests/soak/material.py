"""The material of the soak: two products, pictures of both, and what the judge must say of each.

What is good for one product is not for the other, so that a part that was judged by the wrong
product, or by the picture of another part, shows in its verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from command_line import ok
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.detector import Detector
from anoco_edge.images.decode import read_picture
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.judge.opinions import judge_picture
from anoco_edge.line.words.constants import Reason
from anoco_edge.sources.files import find_pictures

DEADLINE_MS, ACQUIRE_MS = 500, 200
PRODUCTS = (1, 2)
_STATION = """
[station]
name = "soak"
folder = "store"

[line]
deadline_ms = {deadline}
acquire_ms = {acquire}
hold_ms = 1000
judge_hang_ms = 1000

[[cameras]]
name = "top"
source = "folder:parts"

[[products]]
number = 1
name = "weave"
captures = [{{ camera = "top", bundle = "1.anoco" }}]

[[products]]
number = 2
name = "turned"
captures = [{{ camera = "top", bundle = "2.anoco" }}]

[tcp]
port = {tcp}

[modbus]
port = {modbus}

[store]
keep_good_every = 50
max_megabytes = 20
min_free_megabytes = 0

[webhook]
url = "http://127.0.0.1:{hook}/"
"""


@dataclass(frozen=True)
class Material:
    """A folder with all that the station needs; `expected` has the verdict for each product and
    picture, by its place in the folder."""

    folder: Path
    tcp: int
    modbus: int
    hook: int
    expected: dict[tuple[int, int], str]

    @property
    def config(self) -> Path:
        """The station.toml."""
        return self.folder / "station.toml"

    def picture(self, counter: int) -> int:
        """Return the place of the picture with this frame counter."""
        return (counter - 1) % (len(self.expected) // len(PRODUCTS))


def make_material(folder: Path) -> Material:
    """Write bundles, pictures and station.toml."""
    weave = [textured_picture(seed, 80, 80) for seed in range(3)]
    turned = [picture.transpose(1, 0, 2) for picture in weave]
    spot = weave[0].copy()
    spot[30:50, 30:60] = 20
    for number, good in zip(PRODUCTS, (weave, turned), strict=True):
        make_tiny_bundle(folder / f"{number}.anoco")
        ok("enroll", folder / f"{number}.anoco", *_write(folder / f"good{number}", good))
    mixed = [weave[0], turned[0], weave[1], turned[1], spot, turned[2], weave[2]]
    _write(folder / "parts", mixed)  # never fault_after in a row that are unlike the references
    ports = {"tcp": free_port(), "modbus": free_port(), "hook": free_port()}
    text = _STATION.format(deadline=DEADLINE_MS, acquire=ACQUIRE_MS, **ports)
    (folder / "station.toml").write_text(text)
    return Material(folder, **ports, expected=_expected(folder))


def _write(folder: Path, pictures: list[np.ndarray]) -> list[Path]:
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.png" for number in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(np.ascontiguousarray(picture)).save(path)
    return paths


def _expected(folder: Path) -> dict[tuple[int, int], str]:
    pictures = [read_picture(path) for path in find_pictures([str(folder / "parts")], "")]
    found = {}
    for number in PRODUCTS:
        detector = Detector.open(str(folder / f"{number}.anoco"))
        for place, picture in enumerate(pictures):
            opinion = judge_picture(detector, picture, PreparedProduct(number, 1, 0), 0)
            assert opinion.reason is not Reason.JUDGE_ERROR, "every picture can be judged"
            found[number, place] = opinion.verdict
    good = [{place for (n, place), v in found.items() if n == m and v == "good"} for m in PRODUCTS]
    assert good[0] and good[1] and not good[0] & good[1], found
    return found
