"""Reads the code on a part, such as a QR code or a bar code, from its picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.line.words.registers import clean_part_code
from anoco_edge.plugins.packages import import_package

Pixels = NDArray[np.uint8]
PixelBox = tuple[int, int, int, int]


@dataclass(frozen=True)
class CodeSettings:
    """Where the code lies in the picture of the camera (left, top, width, height; None: anywhere),
    and whether a part without a readable one has no verdict."""

    box: PixelBox | None = None
    required: bool = True


class CodeReader:
    """Reads one code from a picture."""

    def __init__(self, settings: CodeSettings) -> None:
        self.settings = settings
        self._zxing = import_package("zxingcpp", "barcode", "to read codes of parts")

    def read(self, rgb: Pixels) -> str:
        """Return the text of the only code in the box, as every bus can carry it; empty where there
        is none, or where there are several that differ."""
        if self.settings.box is not None:
            left, top, width, height = self.settings.box
            rgb = rgb[top : top + height, left : left + width]
        if not rgb.size:
            return ""
        found = self._zxing.read_barcodes(np.ascontiguousarray(rgb))
        texts = {clean_part_code(code.text) for code in found if code.valid} - {""}
        return texts.pop() if len(texts) == 1 else ""
